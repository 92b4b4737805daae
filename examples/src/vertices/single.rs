//! The same on one thread, from a plain list of edges, for comparison.

use graph::{Listing, Vertex};

use super::pagerank::DAMPING;
use crate::graphs::options::Source;

/// The graph: how many vertices, and its edges.
///
/// # Errors
/// A file that is no graph.
pub fn edges(source: &Source) -> anyhow::Result<(usize, Vec<(Vertex, Vertex)>)> {
    let ends = |edge: graph::Edge| (edge.from, edge.to);
    Ok(match &source.graph {
        Some(path) => {
            let Listing { vertices, edges, .. } = graph::file::read(path, |_| ())?;
            (vertices as usize, edges.into_iter().map(ends).collect())
        }
        None => {
            let graph = source.kronecker();
            (graph.vertices() as usize, graph.generate(0..graph.edges()).map(ends).collect())
        }
    })
}

/// The ranks after so many rounds.
pub fn ranks(pages: usize, links: &[(Vertex, Vertex)], rounds: u32) -> Vec<f64> {
    let mut degrees = vec![0u32; pages];
    links.iter().for_each(|(from, _)| degrees[*from as usize] += 1);
    let mut ranks = vec![1.0 / pages as f64; pages];
    for _ in 0..rounds {
        let mut next = vec![0.0; pages];
        for &(from, to) in links {
            next[to as usize] += ranks[from as usize] / f64::from(degrees[from as usize]);
        }
        let dangling: f64 = ranks.iter().zip(&degrees).filter(|(_, degree)| **degree == 0).map(|(rank, _)| rank).sum();
        let anywhere = (1.0 - DAMPING + DAMPING * dangling) / pages as f64;
        next.iter_mut().for_each(|rank| *rank = anywhere + DAMPING * *rank);
        ranks = next;
    }
    ranks
}

/// The least vertex that each is connected with, by union and find.
pub fn labels(vertices: usize, edges: &[(Vertex, Vertex)]) -> Vec<Vertex> {
    let mut parents: Vec<Vertex> = (0..vertices as Vertex).collect();
    for &(from, to) in edges {
        let (a, b) = (root(&mut parents, from), root(&mut parents, to));
        parents[a.max(b) as usize] = a.min(b);
    }
    (0..vertices as Vertex).map(|vertex| root(&mut parents, vertex)).collect()
}

fn root(parents: &mut [Vertex], mut vertex: Vertex) -> Vertex {
    while parents[vertex as usize] != vertex {
        parents[vertex as usize] = parents[parents[vertex as usize] as usize];
        vertex = parents[vertex as usize];
    }
    vertex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_three_pages() {
        // 0 and 1 link to each other, 1 to 2 as well, 2 to nobody.
        let ranks = ranks(3, &[(0, 1), (1, 0), (1, 2)], 100);
        let [a, b, c] = ranks[..] else { panic!("{ranks:?}") };
        assert!((a + b + c - 1.0).abs() < 1e-12 && (a - c).abs() < 1e-12, "{ranks:?}");
        // Flow into page 1: all of page 0, a third of page 2.
        let into = 0.05 + DAMPING * (a + c / 3.0);
        assert!((b - into).abs() < 1e-12, "{ranks:?}");
    }

    #[test]
    fn labels_are_the_least_vertices() {
        assert_eq!(labels(7, &[(5, 4), (2, 6), (4, 2), (3, 3)]), [0, 1, 2, 3, 2, 2, 2]);
    }
}
