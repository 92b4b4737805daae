//! Graph500's generator: a Kronecker graph (A .57, B .19, C .19) with permuted vertices and weights uniform in [0, 1).
//!
//! Edge `i` depends on the seed and `i` alone, so edges can be made by anyone in any order: the same seed gives the
//! same graph over any number of workers.
//!
//! Source: Graph500 benchmark specification, "Graph generation".

use serde::{Deserialize, Serialize};

use crate::random::{Permutation, Random};
use crate::{Edge, VERTICES_MAX, Vertex};

/// Limits, in 32 bits, of the quadrants that an edge may fall into at each level.
const A: u32 = (0.57 * 4_294_967_296.0) as u32;
const AB: u32 = (0.76 * 4_294_967_296.0) as u32;
const ABC: u32 = (0.95 * 4_294_967_296.0) as u32;

/// A generated graph: 2^`scale` vertices, `edge_factor` edges for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kronecker {
    /// The number of vertices as a power of two.
    pub scale: u32,
    /// Edges for each vertex.
    pub edge_factor: u32,
    /// Another seed, another graph.
    pub seed: u64,
}

impl Kronecker {
    /// The largest scale with vertices that can be numbered.
    pub const SCALE_MAX: u32 = VERTICES_MAX.ilog2();

    /// The number of vertices.
    pub fn vertices(&self) -> u32 {
        1 << self.scale
    }

    /// The number of edges, self-loops and repeated ones included.
    pub fn edges(&self) -> u64 {
        u64::from(self.edge_factor) << self.scale
    }

    /// The edges with these numbers.
    pub fn generate(&self, numbers: std::ops::Range<u64>) -> impl Iterator<Item = Edge> + use<> {
        let (seed, scale) = (self.seed, self.scale);
        let permutation = Permutation::new(seed, u64::from(self.vertices()));
        numbers.map(move |number| {
            let mut random = Random::new(seed, number);
            let (mut from, mut to) = (0u64, 0u64);
            let mut levels = scale;
            while levels > 0 {
                let bits = random.next_u64();
                for quadrant in [bits as u32, (bits >> 32) as u32].into_iter().take(levels as usize) {
                    let (low, middle, high) = (quadrant >= A, quadrant >= AB, quadrant >= ABC);
                    from = from << 1 | u64::from(middle);
                    to = to << 1 | u64::from(low ^ middle ^ high);
                    levels -= 1;
                }
            }
            // 24 bits: each such number is an `f32`, and sums of them are exact in `f64`.
            let weight = (random.next_u64() >> 40) as f32 / (1u32 << 24) as f32;
            Edge { from: permutation.of(from) as Vertex, to: permutation.of(to) as Vertex, weight }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix;

    fn sum(edges: impl Iterator<Item = Edge>) -> u64 {
        edges.fold(0, |sum, edge| {
            let ends = u64::from(edge.from) << 32 | u64::from(edge.to);
            sum.wrapping_add(mix(ends ^ mix(u64::from(edge.weight.to_bits()))))
        })
    }

    #[test]
    fn the_graph_of_a_seed_is_fixed() {
        let sums = [(10, 1), (10, 2), (13, 1)].map(|(scale, seed)| {
            let graph = Kronecker { scale, edge_factor: 16, seed };
            sum(graph.generate(0..graph.edges()))
        });
        assert_eq!(sums, [11_333_214_969_476_092_886, 3_772_003_459_371_786_704, 14_460_434_413_242_442_174]);
    }

    #[test]
    fn pieces_make_the_whole() {
        let graph = Kronecker { scale: 9, edge_factor: 3, seed: 5 };
        let whole: Vec<Edge> = graph.generate(0..graph.edges()).collect();
        let pieces: Vec<Edge> = [0..7, 7..7, 7..1000, 1000..1536].into_iter().flat_map(|r| graph.generate(r)).collect();
        assert_eq!(whole, pieces);
    }

    #[test]
    fn quadrants_have_their_shares() {
        // At one level, before the permutation, an edge is in one of four quadrants; after it the shares may be
        // swapped.
        let graph = Kronecker { scale: 1, edge_factor: 50_000, seed: 3 };
        let mut shares = [0u32; 4];
        for edge in graph.generate(0..100_000) {
            shares[(edge.from << 1 | edge.to) as usize] += 1;
            assert!((0.0..1.0).contains(&edge.weight));
        }
        shares.sort_unstable();
        for (share, wanted) in shares.into_iter().zip([5_000, 19_000, 19_000, 57_000]) {
            assert!(share.abs_diff(wanted) < 600, "{shares:?}");
        }
        let weights: f64 = graph.generate(0..100_000).map(|edge| f64::from(edge.weight)).sum();
        assert!((weights / 100_000.0 - 0.5).abs() < 0.01, "{weights}");
    }
}
