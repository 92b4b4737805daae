//! Which shard has which vertices: ranges of the same length, but for the last ones.

use serde::{Deserialize, Serialize};

use crate::Vertex;

/// The vertices of a graph over a number of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranges {
    vertices: u32,
    length: u32,
}

impl Ranges {
    /// # Panics
    /// If there is no shard.
    pub fn new(vertices: u32, shards: usize) -> Ranges {
        let length = u64::from(vertices).div_ceil(shards as u64).max(1);
        Ranges { vertices, length: length as u32 }
    }

    /// All vertices.
    pub fn vertices(self) -> u32 {
        self.vertices
    }

    /// Which shard has the vertex.
    pub fn owner(self, vertex: Vertex) -> usize {
        (vertex / self.length) as usize
    }

    /// The vertices of a shard.
    pub fn of(self, shard: usize) -> std::ops::Range<Vertex> {
        let at = |shard: usize| (shard as u64 * u64::from(self.length)).min(u64::from(self.vertices)) as u32;
        at(shard)..at(shard + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_vertex_has_one_owner() {
        for (vertices, shards) in [(0, 3), (1, 3), (10, 3), (10, 4), (u32::MAX, 7), (u32::MAX, 1)] {
            let ranges = Ranges::new(vertices, shards);
            let mut next = 0;
            for shard in 0..shards {
                let range = ranges.of(shard);
                assert_eq!(range.start, next);
                next = range.end;
                assert!(range.is_empty() || ranges.owner(range.start) == shard && ranges.owner(range.end - 1) == shard);
            }
            assert_eq!(next, vertices);
        }
    }
}
