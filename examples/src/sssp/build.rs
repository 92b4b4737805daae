//! The graph into the shards: each edge goes to the shards of both its ends, and each shard sorts its own.

use std::path::Path;

use graph::shard::{Size, both_ways};
use graph::{Edge, Kronecker, Listing, Ranges, Shard, Vertex};

use super::options::Options;
use super::team::Team;
use crate::graphs::deal::{self, Dealer};

/// A graph, ready to be searched.
pub struct Built {
    /// Its shards.
    pub team: Team,
    /// Its edges, self-loops and repeated ones included.
    pub edges: u64,
    /// The number that its file has for the first vertex.
    pub first: Vertex,
}

/// Makes the graph.
///
/// # Errors
/// A file that is no graph; a worker that did not do its part.
pub fn build(options: &Options) -> anyhow::Result<Built> {
    let built = match &options.source.graph {
        Some(path) => read(path, options)?,
        None => generate(options.source.kronecker(), options)?,
    };
    let delta = options.delta;
    let sizes = built.team.on_each(|member| member.own().apply(Shard::index))?;
    let all = sizes.into_iter().fold(Size::default(), Size::and);
    built.team.on_each(move |member| {
        for (owner, answers) in member.ask(|shard, wanted: Vec<Vertex>| shard.answer(&wanted)) {
            member.own().apply_with(
                |shard, (owner, answers): (usize, Vec<u32>)| shard.learn(owner, &answers),
                (owner, answers),
            );
        }
        member.own().apply(move |shard| shard.finish(all, delta));
    })?;
    Ok(built)
}

/// Reads the whole file here, on the first machine, and deals its edges to the shards.
fn read(path: &Path, options: &Options) -> anyhow::Result<Built> {
    let Listing { vertices, first, edges } = deal::read(path, options.rack.progress_on.as_deref())?;
    let (team, count) = (Team::new(vertices), edges.len() as u64);
    deal::deal(&team, edges, rule(team.ranges, options.levels));
    Ok(Built { team, edges: count, first })
}

/// Each worker makes a part of the edges.
fn generate(graph: Kronecker, options: &Options) -> anyhow::Result<Built> {
    let team = Team::new(graph.vertices());
    let (ranges, levels) = (team.ranges, options.levels);
    deal::generate(&team, graph, options.rack.progress_on.as_deref(), move || rule(ranges, levels))?;
    Ok(Built { team, edges: graph.edges(), first: 0 })
}

/// Each edge to the shards of both its ends; of length 1 where levels are wanted.
fn rule(ranges: Ranges, levels: bool) -> impl FnMut(Edge, &mut Dealer<Shard>) {
    move |edge, dealer| {
        let edge = if levels { edge.of_length_1() } else { edge };
        both_ways(edge).into_iter().for_each(|edge| dealer.deal(ranges.owner(edge.from), edge));
    }
}
