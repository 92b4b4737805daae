//! Dijkstra's algorithm on one thread, over a shard that has the whole graph: the reference for the search's result and
//! speed. A binary heap; outdated entries are not removed but skipped.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::search::{Found, checksum};
use crate::{Shard, Vertex};

/// The nearest is the greatest, for a heap gives the greatest first.
#[derive(Clone, Copy, PartialEq)]
struct Entry {
    distance: f64,
    slot: u32,
}

impl Eq for Entry {}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        other.distance.total_cmp(&self.distance).then(other.slot.cmp(&self.slot))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Searches from one root after the other; its allocations are used again.
#[derive(Debug)]
pub struct Dijkstra<'a> {
    shard: &'a Shard,
    distances: Vec<f64>,
    parents: Vec<Vertex>,
}

impl<'a> Dijkstra<'a> {
    /// # Panics
    /// If the shard has not the whole graph, or is not finished.
    pub fn new(shard: &'a Shard) -> Self {
        let count = shard.own_count();
        assert_eq!(count, shard.ranges.vertices() as usize, "a shard with the whole graph is needed");
        Dijkstra { shard, distances: vec![f64::INFINITY; count], parents: vec![crate::NOBODY; count] }
    }

    /// Finds the distances from `root`, and each vertex's parent on the way. Returns how many edges were relaxed.
    pub fn search(&mut self, root: Vertex) -> u64 {
        let mut heap = BinaryHeap::new();
        let mut relaxed = 0;
        self.distances.fill(f64::INFINITY);
        self.parents.fill(crate::NOBODY);
        let slot = self.shard.slot(root);
        self.distances[slot as usize] = 0.0;
        self.parents[slot as usize] = root;
        heap.push(Entry { distance: 0.0, slot });
        while let Some(Entry { distance, slot }) = heap.pop() {
            if distance > self.distances[slot as usize] {
                continue;
            }
            let edges = self.shard.edges_of(slot);
            relaxed += edges.len() as u64;
            for edge in edges {
                let through = distance + f64::from(edge.weight);
                if through < self.distances[edge.to as usize] {
                    self.distances[edge.to as usize] = through;
                    self.parents[edge.to as usize] = self.shard.ids[slot as usize];
                    heap.push(Entry { distance: through, slot: edge.to });
                }
            }
        }
        relaxed
    }

    /// The distance of a vertex from the last root; infinite where there is no way.
    pub fn distance(&self, vertex: Vertex) -> f64 {
        self.distances[self.shard.slot(vertex) as usize]
    }

    /// Result of the last search.
    pub fn found(&self, relaxed: u64) -> Found {
        let mut found = Found { relaxed, ..Found::default() };
        for (slot, &distance) in self.distances.iter().enumerate().filter(|(_, distance)| distance.is_finite()) {
            found.reached += 1;
            found.ends += u64::from(self.shard.ends[slot]);
            found.checksum = found.checksum.wrapping_add(checksum(self.shard.ids[slot], distance));
        }
        found
    }
}
