//! The edges of a graph to the places that own the vertices where they begin.

use std::time::{Duration, Instant};

use gossamer::Latch;
use gossamer_array::{Array, Element};
use graph::{Listing, Vertex};

use super::links::Links;
use crate::graphs::deal::{self, Dealer};
use crate::graphs::options::Source;
use crate::graphs::team::Team;

/// The links of each place.
pub type Places = Team<Latch<Links>>;

/// A graph over the places of an array.
pub struct Built<T> {
    /// An element for each vertex.
    pub values: Array<T>,
    /// The links.
    pub team: Places,
    /// Edges of the graph, self-loops and repeated ones included.
    pub edges: u64,
    /// The number that its file has for the first vertex.
    pub first: Vertex,
    /// Time from the first edge to the last.
    pub time: Duration,
}

/// The use of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// It leads from one vertex to the other, as a link of a page does.
    One,
    /// It joins both; a vertex is not joined with itself.
    Both,
}

/// Makes the graph, and an array with `value(vertices)` for each vertex.
///
/// # Errors
/// A file that is no graph; an array that finds no memory; a worker that did not do its part.
pub fn build<T: Element>(
    source: &Source,
    terminal: Option<&std::path::Path>,
    ways: Ways,
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
            deal::deal(&team, edges, rule(&values, ways));
            (values, team, count, first)
        }
        None => {
            let graph = source.kronecker();
            let (values, team) = make(graph.vertices())?;
            let array = values.clone();
            deal::generate(&team, graph, terminal, move || rule(&array, ways))?;
            (values, team, graph.edges(), 0)
        }
    };
    team.on_each(|member| member.own().launch(Links::sort))?;
    Ok(Built { values, team, edges, first, time: start.elapsed() })
}

/// Each edge to the place that owns the vertex where it begins.
fn rule<T: Element>(values: &Array<T>, ways: Ways) -> impl FnMut(graph::Edge, &mut Dealer<Latch<Links>>) + use<T> {
    // Where each place's vertices begin; some have none.
    let owned = gossamer::rack().places().map(|place| values.owned(place).next());
    let starts: Vec<(usize, usize)> =
        owned.enumerate().filter_map(|(number, range)| Some((range?.start, number))).collect();
    let owner = move |vertex: Vertex| starts[starts.partition_point(|(start, _)| *start <= vertex as usize) - 1].1;
    move |edge, dealer| match ways {
        Ways::One => dealer.deal(owner(edge.from), (edge.from, edge.to)),
        Ways::Both if edge.from == edge.to => {}
        Ways::Both => {
            dealer.deal(owner(edge.from), (edge.from, edge.to));
            dealer.deal(owner(edge.to), (edge.to, edge.from));
        }
    }
}
