//! Connected components: each vertex is labelled with its own number, then again and again with the least label among
//! its neighbours and itself, until none gets less.

use std::time::{Duration, Instant};

use gossamer_array::{Add, Array, Max, Min};
use graph::Vertex;
use graph::components::Components;
use indicatif::ProgressBar;

use super::build::Built;
use super::links::Links;

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
/// A worker that did not do its part.
pub fn label(built: &Built<Vertex>, bar: &ProgressBar) -> anyhow::Result<Labels> {
    let (start, labels, mut rounds) = (Instant::now(), built.values.clone(), 0);
    let own_number = labels.clone();
    labels.on_owners(move |own| {
        for range in own {
            own_number.modify(range, |start, labels| {
                (start..).zip(labels).for_each(|(vertex, label)| *label = vertex as Vertex);
            });
        }
    });
    loop {
        let all = labels.clone();
        let told = built.team.on_each(move |member| member.own().launch(move |links| spread(links, &all)))?;
        rounds += 1;
        bar.inc(1);
        if told.into_iter().sum::<u64>() == 0 {
            return Ok(Labels { labels, rounds, time: start.elapsed() });
        }
    }
}

/// One round of one place: tells the neighbours of its vertices the least of their labels. Returns how many had to be
/// told.
fn spread(links: &mut Links, all: &Array<Vertex>) -> u64 {
    let mut labels: Vec<Vertex> = Vec::with_capacity(links.own().len());
    all.views(links.owned).for_each(|chunk| labels.extend_from_slice(&chunk));
    let (own, mut count) = (links.own(), 0);
    for number in 0..links.heads() {
        let (vertex, tails) = links.list(number);
        let least = tails.iter().map(|&tail| labels[tail as usize]).min().unwrap_or(Vertex::MAX);
        // A label once told is there, so only a lesser one is news.
        if least < links.told[number] {
            links.told[number] = least;
            all.apply(vertex, Min, least);
            count += 1;
            if own.contains(&vertex) {
                // Its neighbours here hear of it in this round already.
                let label = &mut labels[vertex - own.start];
                *label = least.min(*label);
            }
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
    let parts = built.team.on_each(move |member| {
        member.own().launch(move |links| {
            let mut part = Components::default();
            for chunk in labels.views(links.owned) {
                for (vertex, label) in chunk.indexed() {
                    part.note(vertex as Vertex, label, links.degree(vertex) > 0);
                    counted.apply(label as usize, Add, 1);
                }
            }
            part
        })
    })?;
    let largest = if members.is_empty() { 0 } else { members.reduce(0..members.len(), Max) };
    Ok((parts.into_iter().fold(Components::default(), Components::and), largest))
}
