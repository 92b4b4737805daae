//! The contender of `gossamer-bench array` on graphs: `page_rank` and `wcc_baseline` of the registry's crate `graph`,
//! on the threads of one process, with the edges that the project's own programs generate.
//!
//! Here: how its results are checked. Its ranks are of single precision, use values of the same round, and leave the
//! ranks of pages without links aside; they are checked against the equation that they solve, not against those of
//! other programs.

use clap::Parser;
use csr::prelude::*;
use exchange::array::{Job, Outcome, Work};
use exchange::now_ns;
use graph::Kronecker;

/// Edges for each vertex.
const EDGE_FACTOR: u32 = 16;
const DAMPING: f64 = 0.85;
/// Most that single precision adds to the difference.
const TOLERANCE: f64 = 1e-3;

#[derive(Parser)]
struct Options {
    #[command(flatten)]
    job: Job,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Options { job } = Options::parse();
    job.check()?;
    let kronecker = Kronecker { scale: job.elements.trailing_zeros(), edge_factor: EDGE_FACTOR, seed: job.seed };
    let edges: Vec<(u32, u32)> = kronecker.generate(0..kronecker.edges()).map(|edge| (edge.from, edge.to)).collect();
    let outcome = match job.work {
        Work::Ranks => rank(edges, job.ops)?,
        Work::Labels => label(edges)?,
        work => return Err(format!("graphs have no part in {work}").into()),
    };
    println!("{}", outcome.line()?);
    Ok(())
}

/// So many rounds of ranks; each uses each edge.
fn rank(edges: Vec<(u32, u32)>, rounds: usize) -> Result<Outcome, String> {
    let count = edges.len();
    let graph: DirectedCsrGraph<u32> = GraphBuilder::new().csr_layout(CsrLayout::Sorted).edges(edges).build();
    let start = now_ns();
    let (ranks, done, _) = page_rank(&graph, PageRankConfig::new(rounds, 0.0, DAMPING as f32));
    let end = now_ns();
    let base = (1.0 - DAMPING) / ranks.len() as f64;
    let (mut sum, mut difference) = (0.0, 0.0);
    for (page, &rank) in ranks.iter().enumerate() {
        let share = |from: &u32| f64::from(ranks[*from as usize]) / f64::from(graph.out_degree(*from));
        let incoming: f64 = graph.in_neighbors(page as u32).map(share).sum();
        sum += f64::from(rank);
        difference += (f64::from(rank) - base - DAMPING * incoming).abs();
    }
    // Each round leaves no more than so much of it.
    let bound = 2.0 * DAMPING.powi(done as i32) + TOLERANCE;
    let is_good = done <= rounds && sum > 0.0 && sum < 1.0 + TOLERANCE && difference <= bound * sum;
    if !is_good {
        return Err(format!("after {done} rounds ranks add up to {sum} and are wrong by {difference}"));
    }
    Ok(Outcome::new((count * done) as u64, start, end))
}

/// Components; each edge once.
fn label(edges: Vec<(u32, u32)>) -> Result<Outcome, String> {
    let graph: DirectedCsrGraph<u32> =
        GraphBuilder::new().csr_layout(CsrLayout::Sorted).edges(edges.iter().copied()).build();
    let start = now_ns();
    let found = wcc_baseline(&graph, WccConfig::default());
    let end = now_ns();
    // Ends of an edge are in one component, and there are no fewer components than there must be.
    let vertices = graph.node_count();
    let mut parents: Vec<u32> = (0..vertices).collect();
    for &(from, to) in &edges {
        let (a, b) = (root(&mut parents, from), root(&mut parents, to));
        parents[a.max(b) as usize] = a.min(b);
    }
    let apart = edges.iter().filter(|(from, to)| found.component(*from) != found.component(*to)).count();
    let wanted = (0..vertices).filter(|&vertex| parents[vertex as usize] == vertex).count();
    let mut labels: Vec<u32> = (0..vertices).map(|vertex| found.component(vertex)).collect();
    labels.sort_unstable();
    labels.dedup();
    if apart > 0 || labels.len() != wanted {
        return Err(format!("{apart} edges are cut; {} components, not {wanted}", labels.len()));
    }
    Ok(Outcome::new(edges.len() as u64, start, end))
}

fn root(parents: &mut [u32], mut vertex: u32) -> u32 {
    while parents[vertex as usize] != vertex {
        parents[vertex as usize] = parents[parents[vertex as usize] as usize];
        vertex = parents[vertex as usize];
    }
    vertex
}
