//! Connected components: each vertex gets the label of the least one that it is connected with.
//!
//! Each place first connects vertices by its own edges, by union and find over all vertices. From then on it needs only
//! the resulting trees: in a round it finds the least label in each tree, and tells the vertices of the tree that have
//! another one. It is over when no place has a vertex to tell.
//!
//! A place needs 8 bytes for each vertex of the graph.

use std::time::{Duration, Instant};

use gossamer_array::{Add, Array, Max, Min};
use graph::Vertex;
use graph::components::Components;
use indicatif::ProgressBar;

use super::build::Built;
use super::links::Links;
use super::trees::Trees;

/// The labels of all vertices, and how long they took.
pub struct Labels {
    /// Least vertex that each vertex is connected with.
    pub labels: Array<Vertex>,
    /// Number of rounds until nothing changed.
    pub rounds: u32,
    /// Time of all rounds.
    pub time: Duration,
}

/// Labels all vertices. The contents of the array of `built` do not matter.
///
/// # Errors
/// No memory for snapshots of it; a worker that did not do its part.
pub fn label(built: &Built<Vertex>, bar: &ProgressBar) -> anyhow::Result<Labels> {
    let (start, labels, mut rounds) = (Instant::now(), built.values.clone(), 0);
    let first = labels.clone();
    built.team.on_each(move |member| member.own().launch(move |links| connect(links, &first)))?;
    loop {
        let (all, new) = (labels.snapshot()?, labels.clone());
        let spread = move |links: &mut Links| spread(&links.roots, &all.slice(), &new);
        let told = built.team.on_each(move |member| member.own().launch(spread))?;
        rounds += 1;
        bar.inc(1);
        if told.into_iter().sum::<u64>() == 0 {
            return Ok(Labels { labels, rounds, time: start.elapsed() });
        }
    }
}

/// Connects vertices by the edges of one place, and labels its own ones with the roots of their trees.
fn connect(links: &mut Links, labels: &Array<Vertex>) {
    let mut trees = Trees::new(labels.len());
    links.own().for_each(|own| trees.connect(own as Vertex, links.of(own)));
    links.roots = trees.into_roots();
    let own = links.own();
    labels.copy_from(own.start, &links.roots[own]);
}

/// One round of one place: tells the vertices of its trees the least label in each. Returns how many had another.
fn spread(roots: &[Vertex], labels: &[Vertex], new: &Array<Vertex>) -> u64 {
    let mut least = vec![Vertex::MAX; roots.len()];
    for (root, label) in roots.iter().zip(labels) {
        let least = &mut least[*root as usize];
        *least = (*least).min(*label);
    }
    let mut count = 0;
    for (vertex, (root, label)) in roots.iter().zip(labels).enumerate() {
        let least = least[*root as usize];
        if least < *label {
            new.apply(vertex, Min, least);
            count += 1;
        }
    }
    count
}

/// The result, and the size of the largest component in vertices.
///
/// # Errors
/// No memory for another array; a worker that did not do its part.
pub fn summary(built: &Built<Vertex>, found: &Labels) -> anyhow::Result<(Components, u64)> {
    // Members of each component, at its least vertex.
    let members = Array::new(found.labels.len(), 0u64)?;
    let (labels, counted) = (found.labels.clone(), members.clone());
    built.team.on_each(move |member| {
        member.own().launch(move |links| {
            for chunk in labels.views(links.owned) {
                chunk.iter().for_each(|label| counted.apply(*label as usize, Add, 1));
            }
        })
    })?;
    let (labels, counts) = (found.labels.clone(), members.snapshot()?);
    let parts = built.team.on_each(move |member| {
        member.own().launch(move |links| {
            let (mut part, counts) = (Components::default(), counts.slice());
            for chunk in labels.views(links.owned) {
                for (vertex, label) in chunk.indexed() {
                    part.note(vertex as Vertex, label, counts[label as usize] > 1);
                }
            }
            part
        })
    })?;
    let largest = if members.is_empty() { 0 } else { members.reduce(0..members.len(), Max) };
    Ok((parts.into_iter().fold(Components::default(), Components::and), largest))
}
