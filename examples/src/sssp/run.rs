//! The program of the rack: the graph is made, searched from each root, and the results checked.

use std::time::Instant;

use anyhow::ensure;
use graph::Vertex;
use graph::random::roots;

use super::build::{self, Built};
use super::options::Options;
use super::report::{Kind, Report, Search};
use super::{search, validate};

/// Runs the searches, on a fiber of the first machine.
///
/// # Errors
/// A file that is no graph, a root without edges, a worker that did not do its part.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let start = Instant::now();
    let Built { team, edges, first } = build::build(options)?;
    let build_time = start.elapsed();
    let vertices = team.ranges.vertices();
    let has_edges =
        |vertex: Vertex| team.shards[team.ranges.owner(vertex)].apply(move |shard| shard.degree(vertex)) > 0;
    let roots = choose(options, vertices, first, has_edges)?;
    let mut searches = Vec::with_capacity(roots.len());
    for root in roots {
        let (found, time) = search::search(&team, root)?;
        let verdict = options.validate.then(|| validate::validate(&team, root)).transpose()?;
        searches.push(Search { root: root + first, found, time, verdict });
    }
    let rack = gossamer::rack();
    let delta = team.shards[0].apply(|shard| shard.delta());
    let kind = Kind::Delegated { machines: rack.machines().len(), workers: rack.workers(), delta };
    Ok(Report { vertices, edges, build_time, searches, kind })
}

/// The roots that were asked for, or some by seed. The user calls the first vertex `first`.
///
/// # Errors
/// A root that is not there; no vertex with an edge.
pub fn choose(
    options: &Options,
    vertices: u32,
    first: Vertex,
    mut has_edges: impl FnMut(Vertex) -> bool,
) -> anyhow::Result<Vec<Vertex>> {
    if options.root.is_empty() {
        let chosen = roots(options.source.seed, vertices, options.roots, has_edges);
        ensure!(!chosen.is_empty() || options.roots == 0, "the graph has no edge, so there is nothing to search");
        return Ok(chosen);
    }
    ensure!(vertices > 0, "the graph has no vertices");
    let named = options.root.iter().map(|&root| {
        let vertex = root.wrapping_sub(first);
        ensure!(
            vertex < vertices,
            "--root {root}: the vertices are {first} to {}",
            u64::from(vertices) + u64::from(first) - 1
        );
        ensure!(has_edges(vertex), "--root {root}: no edge leads away from this vertex");
        Ok(vertex)
    });
    named.collect()
}
