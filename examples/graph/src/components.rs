//! Connected components, as far as a shard finds them alone: every vertex is labelled with the smallest vertex that it
//! is known to be connected with, and labels spread along the edges until none gets smaller.
//!
//! 1. [`label`](Shard::label): each vertex by itself
//! 2. [`spread_labels`](Shard::spread_labels), [`receive_label`](Shard::receive_label): to all vertices here; then the
//!    smallest label since the last time of each vertex of another shard
//! 3. [`labelling`](Shard::labelling): it is over when no label is left to spread and all messages were received
//!
//! Invariant: a label is a vertex of the same component, and never gets larger.

use std::mem;

use serde::{Deserialize, Serialize};

use crate::random::mix;
use crate::{Report, Shard, Vertex};

/// A label for a vertex of another shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)]
pub struct Label {
    /// The shard.
    pub owner: u32,
    /// The slot there.
    pub slot: u32,
    /// A vertex that it is connected with.
    pub label: Vertex,
}

/// Result of a shard, to be summed over all shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Components {
    /// Components, but for single vertices without edges: each is counted where its smallest vertex is.
    pub count: u64,
    /// Labels sent to other shards.
    pub sent: u64,
    /// A sum over all vertices and their labels: equal for equal results, for any number of shards.
    pub checksum: u64,
}

impl Components {
    /// Combines the results of two groups of shards.
    pub fn and(self, other: Components) -> Components {
        let checksum = self.checksum.wrapping_add(other.checksum);
        Components { count: self.count + other.count, sent: self.sent + other.sent, checksum }
    }

    /// Adds a vertex, of which it is known whether it has edges.
    pub fn note(&mut self, vertex: Vertex, label: Vertex, has_edges: bool) {
        self.count += u64::from(has_edges && label == vertex);
        self.checksum = self.checksum.wrapping_add(mix(u64::from(vertex) << 32 | u64::from(label)));
    }
}

/// The labels of a shard.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    /// Label of each slot, ghosts included.
    labels: Vec<Vertex>,
    /// Slots with labels that have become smaller: own ones to spread, ghosts to tell of. Each is there once.
    queue: Vec<u32>,
    ghosts: Vec<u32>,
    is_queued: Vec<bool>,
    sent: u64,
    received: u64,
}

impl Labels {
    fn lower(&mut self, slot: u32, label: Vertex, own: usize) {
        let at = slot as usize;
        if label >= self.labels[at] {
            return;
        }
        self.labels[at] = label;
        if !mem::replace(&mut self.is_queued[at], true) {
            if at < own { self.queue.push(slot) } else { self.ghosts.push(slot) }
        }
    }
}

impl Shard {
    /// Begins: each vertex has itself as label.
    pub fn label(&mut self) {
        let own = self.own_count();
        let mut is_queued = vec![true; own];
        is_queued.resize(self.ids.len(), false);
        let queue = (0..own as u32).collect();
        self.labels = Labels { labels: self.ids.clone(), queue, is_queued, ..Labels::default() };
    }

    /// Spreads labels here, along so many edges or a few more; once that is done, returns the labels for other shards,
    /// and whether it has to be called again.
    pub fn spread_labels(&mut self, budget: u64) -> (Vec<Label>, bool) {
        let own = self.own_count();
        let mut labels = mem::take(&mut self.labels);
        let mut seen = 0;
        while let Some(slot) = labels.queue.pop() {
            labels.is_queued[slot as usize] = false;
            let label = labels.labels[slot as usize];
            let edges = self.edges_of(slot);
            edges.iter().for_each(|edge| labels.lower(edge.to, label, own));
            seen += edges.len() as u64;
            if seen >= budget {
                break;
            }
        }
        let mut told = Vec::new();
        if labels.queue.is_empty() {
            for slot in mem::take(&mut labels.ghosts) {
                labels.is_queued[slot as usize] = false;
                let home = self.homes[slot as usize - own];
                told.push(Label { owner: home.owner.into(), slot: home.slot, label: labels.labels[slot as usize] });
            }
            labels.sent += told.len() as u64;
        }
        let is_more = !labels.queue.is_empty();
        self.labels = labels;
        (told, is_more)
    }

    /// Takes the label of an own slot from a shard that knows it as a ghost.
    pub fn receive_label(&mut self, told: Label) {
        self.labels.received += 1;
        let own = self.own_count();
        self.labels.lower(told.slot, told.label, own);
    }

    /// Pending work, with the bucket 0 for any.
    pub fn labelling(&self) -> Report {
        let next = if self.labels.queue.is_empty() && self.labels.ghosts.is_empty() { u64::MAX } else { 0 };
        Report { next, sent: self.labels.sent, received: self.labels.received, core: 0 }
    }

    /// The result.
    pub fn components(&self) -> Components {
        let mut found = Components { sent: self.labels.sent, ..Components::default() };
        for (slot, (&vertex, &label)) in self.ids[..self.own_count()].iter().zip(&self.labels.labels).enumerate() {
            found.note(vertex, label, self.runs[slot].all > 0);
        }
        found
    }
}
