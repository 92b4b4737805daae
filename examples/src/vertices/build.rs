//! The edges of a graph to the places that own one of their ends.

use std::time::{Duration, Instant};

use gossamer::Latch;
use gossamer_array::{Array, Element};
use graph::{Listing, Vertex};

use super::links::{Links, Places};
use super::numbers;
use crate::graphs::deal::{self, Dealer};
use crate::graphs::options::Source;
use crate::graphs::team::Team;

/// A graph over the places of an array.
pub struct Built<T> {
    /// An element for each vertex.
    pub values: Array<T>,
    /// The links.
    pub team: Places,
    /// Vertex of each element; `None` if it is the index.
    pub numbers: Option<Array<Vertex>>,
    /// Edges of the graph, self-loops and repeated ones included.
    pub edges: u64,
    /// The number that its file has for the first vertex.
    pub first: Vertex,
    /// Time from the first edge to the last.
    pub time: Duration,
}

/// The use of a graph, which says where an edge is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Ranks: at the vertex that it leads to, with vertices numbered by their degrees.
    Ranks,
    /// Components: at the vertex where it begins.
    Components,
}

/// Makes the graph, and an array with `value(vertices)` for each vertex.
///
/// # Errors
/// A file that is no graph; an array that finds no memory; a worker that did not do its part.
pub fn build<T: Element>(
    source: &Source,
    terminal: Option<&std::path::Path>,
    purpose: Use,
    value: impl Fn(usize) -> T,
) -> anyhow::Result<Built<T>> {
    let start = Instant::now();
    let make = |vertices: u32| -> anyhow::Result<_> {
        let values = Array::new(vertices as usize, value(vertices as usize))?;
        let owned = values.clone();
        let team = Team::new(move |_, place| Latch::new(Links::new(owned.owned(place))));
        Ok((values, team))
    };
    let (values, team, edges, first) = match &source.graph {
        Some(path) => {
            let Listing { vertices, first, edges } = deal::read(path, terminal)?;
            let ((values, team), count) = (make(vertices)?, edges.len() as u64);
            deal::deal(&team, edges, rule(&values, purpose));
            (values, team, count, first)
        }
        None => {
            let graph = source.kronecker();
            let (values, team) = make(graph.vertices())?;
            let array = values.clone();
            deal::generate(&team, graph, terminal, move || rule(&array, purpose))?;
            (values, team, graph.edges(), 0)
        }
    };
    let numbers = match purpose {
        Use::Ranks => Some(numbers::by_links(&team, values.len())?),
        Use::Components => None,
    };
    team.on_each(|member| member.own().launch(Links::sort))?;
    Ok(Built { values, team, numbers, edges, first, time: start.elapsed() })
}

/// Each edge to the place that owns one of its ends.
fn rule<T: Element>(values: &Array<T>, purpose: Use) -> impl FnMut(graph::Edge, &mut Dealer<Latch<Links>>) + use<T> {
    // Where each place's vertices begin; some have none.
    let owned = gossamer::rack().places().map(|place| values.owned(place).next());
    let starts: Vec<(usize, usize)> =
        owned.enumerate().filter_map(|(number, range)| Some((range?.start, number))).collect();
    let owner = move |vertex: Vertex| starts[starts.partition_point(|(start, _)| *start <= vertex as usize) - 1].1;
    move |edge, dealer| match purpose {
        Use::Ranks => dealer.deal(owner(edge.to), (edge.to, edge.from)),
        Use::Components => dealer.deal(owner(edge.from), (edge.from, edge.to)),
    }
}
