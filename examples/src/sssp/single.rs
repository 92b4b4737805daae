//! The same by Dijkstra's algorithm, on the calling thread, for comparison.

use std::time::Instant;

use graph::dijkstra::Dijkstra;
use graph::shard::both_ways;
use graph::{Edge, Listing, Ranges, Shard, Vertex};

use super::options::Options;
use super::report::{Kind, Report, Search};
use super::run::choose;

/// Makes the graph and searches it.
///
/// # Errors
/// A file that is no graph; a root without edges.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let start = Instant::now();
    let (vertices, edges, first, shard) = build(options)?;
    let build_time = start.elapsed();
    let roots = choose(options, vertices, first, |vertex| shard.degree(vertex) > 0)?;
    let mut searches = Vec::new();
    let mut dijkstra = Dijkstra::new(&shard);
    for root in roots {
        let start = Instant::now();
        let relaxed = dijkstra.search(root);
        let time = start.elapsed();
        searches.push(Search { root: root + first, found: dijkstra.found(relaxed), time, verdict: None });
    }
    Ok(Report { vertices, edges, build_time, searches, kind: Kind::Single })
}

/// The graph in one shard, with the numbers of its vertices and edges, and its file's name for the first vertex.
///
/// # Errors
/// A file that is no graph.
pub fn build(options: &Options) -> anyhow::Result<(u32, u64, Vertex, Shard)> {
    let length = |edge: Edge| if options.levels { edge.of_length_1() } else { edge };
    let (vertices, edges, first, mut shard) = match &options.source.graph {
        Some(path) => {
            let Listing { vertices, first, edges } = graph::file::read(path, |_| ())?;
            let mut shard = Shard::new(Ranges::new(vertices, 1), 0);
            edges.iter().for_each(|&edge| shard.add(&both_ways(length(edge))));
            (vertices, edges.len() as u64, first, shard)
        }
        None => {
            let graph = options.source.kronecker();
            let mut shard = Shard::new(Ranges::new(graph.vertices(), 1), 0);
            graph.generate(0..graph.edges()).for_each(|edge| shard.add(&both_ways(length(edge))));
            (graph.vertices(), graph.edges(), 0, shard)
        }
    };
    let size = shard.index();
    shard.finish(size, None);
    Ok((vertices, edges, first, shard))
}
