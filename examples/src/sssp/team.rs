//! [`Team`]: the shards of all workers, and fibers at each of them.

use std::ops::Deref;

use gossamer::NoRef;
use graph::shard::Edge;
use graph::{Ranges, Shard, Vertex};

use crate::graphs::deal::Take;
use crate::graphs::team;

/// Vertices that are asked about at once: far below the limit of a message.
const ASKED_AT_ONCE: usize = 1 << 16;

/// All shards, as a fiber of the first machine has them.
pub struct Team {
    /// Which shard has which vertices.
    pub ranges: Ranges,
    shards: team::Team<Shard>,
}

/// The shards, as a fiber has them that works on one of them.
pub type Member = team::Member<Shard>;

impl Team {
    /// A shard on each worker of the rack, without edges.
    pub fn new(vertices: u32) -> Team {
        let ranges = Ranges::new(vertices, gossamer::rack().workers());
        Team { ranges, shards: team::Team::new(move |own, _| Shard::new(ranges, own)) }
    }
}

impl Deref for Team {
    type Target = team::Team<Shard>;

    fn deref(&self) -> &team::Team<Shard> {
        &self.shards
    }
}

impl Take for Shard {
    type Edge = Edge;

    fn take(&mut self, edges: Vec<Edge>) {
        self.add(&edges);
    }
}

impl team::Member<Shard> {
    /// Asks each other shard about those of its vertices that edges from here lead to.
    pub fn ask<T, F>(&self, question: F) -> Vec<(usize, Vec<T>)>
    where
        T: serde::Serialize + serde::de::DeserializeOwned + 'static,
        F: Fn(&mut Shard, Vec<Vertex>) -> Vec<T> + NoRef + Copy + Send + 'static,
    {
        let others = (0..self.shards.len()).filter(|owner| *owner != self.own);
        let ask_one = |owner: usize| {
            let wanted = self.own().apply_with(|shard, owner| shard.wanted(owner), owner);
            let pieces = wanted.chunks(ASKED_AT_ONCE);
            let answers = pieces.flat_map(|piece| self.shards[owner].apply_with(question, piece.to_vec()));
            (owner, answers.collect())
        };
        others.map(ask_one).collect()
    }
}
