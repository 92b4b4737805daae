//! The search, as far as a shard does it alone: delta-stepping with delayed edges.
//!
//! Distances fall into *buckets* of width delta, which are searched one after the other, by all shards together:
//!
//! 1. [`open`](Shard::open): edges of earlier buckets that lead into this one are relaxed, as far as the core still
//!    needs them
//! 2. [`work`](Shard::work), [`receive`](Shard::receive): vertices of the bucket are *expanded* (their edges that lead
//!    into the bucket are relaxed) until there is none left here. Only then other shards are notified of their
//!    vertices: a ghost has a tentative distance and a bucket like an own vertex, so it is reported once, by its
//!    best distance, when its bucket has come, and never by a worse one
//! 3. [`report`](Shard::report): the bucket is done when nobody has a vertex in it and all that was sent was received
//! 4. [`close`](Shard::close): the distances in the bucket are final; edges to vertices outside the core are relaxed
//!
//! Invariants: delta is a power of two, so a distance's bucket and its comparison with a bucket's limit agree exactly.
//! At any time all entries that matter are within the largest weight of the current bucket, so the buckets are a ring.
//!
//! Source: U. Meyer, P. Sanders, "Delta-stepping: a parallelizable shortest path algorithm" (2003); Graph500's
//! reference; thesis 3.3.3.

use std::mem;

use serde::{Deserialize, Serialize};

use crate::random::mix;
use crate::shard::Size;
use crate::{NOBODY, Shard, Vertex};

/// A distance for a vertex of another shard.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub struct Relax {
    /// The slot there.
    pub slot: u32,
    /// The vertex before it on the way.
    pub parent: Vertex,
    /// Distance by that path.
    pub distance: f64,
}

/// A relaxation and the shard that is to have it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// The shard.
    pub owner: u16,
    /// The message.
    pub relax: Relax,
}

/// A shard's state, to be combined over all shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The first bucket in which it may have something to do; `u64::MAX` if there is none.
    pub next: u64,
    /// Relaxations sent since the search began.
    pub sent: u64,
    /// Relaxations received.
    pub received: u64,
    /// Vertices of the core that have no final distance.
    pub core: u64,
}

impl Report {
    /// Report of no shard.
    pub const NONE: Report = Report { next: u64::MAX, sent: 0, received: 0, core: 0 };

    /// Combines the reports of two groups of shards.
    pub fn and(self, other: Report) -> Report {
        Report {
            next: self.next.min(other.next),
            sent: self.sent + other.sent,
            received: self.received + other.received,
            core: self.core + other.core,
        }
    }

    /// Returns whether the bucket is done, for the sum over all shards.
    pub fn is_done(&self, bucket: u64) -> bool {
        self.next > bucket && self.sent == self.received
    }

    /// Returns the next bucket, if there is one, for the sum over all shards after a bucket was closed.
    pub fn next(&self) -> Option<u64> {
        (self.next != u64::MAX).then_some(self.next)
    }
}

/// Result of a search in a shard, to be summed over all shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Vertices that were reached.
    pub reached: u64,
    /// Ends of edges, self-loops and repeated ones included, at vertices that were reached: twice the edges of the
    /// component.
    pub ends: u64,
    /// Edges that were relaxed, each time that they were.
    pub relaxed: u64,
    /// Relaxations sent to other shards.
    pub sent: u64,
    /// A sum over all vertices and their distances: equal for equal results, for any number of shards.
    pub checksum: u64,
}

impl Found {
    /// Combines the results of two groups of shards.
    pub fn and(self, other: Found) -> Found {
        Found {
            reached: self.reached + other.reached,
            ends: self.ends + other.ends,
            relaxed: self.relaxed + other.relaxed,
            sent: self.sent + other.sent,
            checksum: self.checksum.wrapping_add(other.checksum),
        }
    }
}

/// Progress of relaxing a vertex's edges: number of those to the core, and of all.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    core: u32,
    rest: u32,
}

/// The most buckets that a ring has.
const BUCKETS_MAX: f64 = 1024.0;
/// Delta is the largest weight times this, over the mean number of edges of a vertex.
const DELTA_FACTOR: f64 = 2.0;

/// The state of a search. Distances are by slot, so for ghosts they are those of the ways that end here.
#[derive(Debug, Default)]
pub(crate) struct State {
    own: u32,
    delta: f64,
    per_delta: f64,
    pub best: Vec<f64>,
    pub parents: Vec<Vertex>,
    /// The distance with which a slot was last expanded, or told to its owner.
    expanded: Vec<f64>,
    cursors: Vec<Cursor>,
    /// Rings of buckets: own vertices and ghosts.
    near: Vec<Vec<u32>>,
    far: Vec<Vec<u32>>,
    bucket: u64,
    /// Number of visited entries of the current bucket.
    position: usize,
    /// Vertices expanded in the current bucket.
    settled: Vec<u32>,
    /// Vertices with final distances and edges to the core that were not relaxed.
    waiting: Vec<u32>,
    core_all: u32,
    core_left: u32,
    relaxed: u64,
    sent: u64,
    received: u64,
}

impl State {
    pub(crate) fn new(own: usize, ghosts: usize, all: Size, delta: Option<f64>) -> State {
        let heaviest = if all.heaviest > 0.0 { f64::from(all.heaviest) } else { 1.0 };
        let mean = (all.edges as f64 / all.connected.max(1) as f64).max(1.0);
        let wanted = delta.unwrap_or(heaviest * (DELTA_FACTOR / mean).min(1.0)).max(heaviest / BUCKETS_MAX);
        let delta = wanted.log2().round().exp2();
        let ring = ((heaviest / delta).ceil() as usize + 2).next_power_of_two();
        State {
            own: own as u32,
            delta,
            per_delta: delta.recip(),
            best: vec![f64::INFINITY; own + ghosts],
            parents: vec![NOBODY; own + ghosts],
            expanded: vec![f64::INFINITY; own + ghosts],
            cursors: vec![Cursor::default(); own],
            near: vec![Vec::new(); ring],
            far: vec![Vec::new(); ring],
            ..State::default()
        }
    }

    fn reset(&mut self, core: u32) {
        self.best.fill(f64::INFINITY);
        self.parents.fill(NOBODY);
        self.expanded.fill(f64::INFINITY);
        self.near.iter_mut().chain(&mut self.far).for_each(Vec::clear);
        self.settled.clear();
        self.waiting.clear();
        (self.bucket, self.position, self.core_all, self.core_left) = (0, 0, core, core);
        (self.relaxed, self.sent, self.received) = (0, 0, 0);
    }

    fn limit(&self) -> f64 {
        (self.bucket + 1) as f64 * self.delta
    }

    fn place(&self, bucket: u64) -> usize {
        bucket as usize & (self.near.len() - 1)
    }

    #[inline(always)]
    fn relax(&mut self, slot: u32, distance: f64, parent: Vertex) {
        if distance < self.best[slot as usize] {
            self.improve(slot, distance, parent);
        }
    }

    #[inline(never)]
    fn improve(&mut self, slot: u32, distance: f64, parent: Vertex) {
        self.best[slot as usize] = distance;
        self.parents[slot as usize] = parent;
        let place = self.place((distance * self.per_delta) as u64);
        let ring = if slot < self.own { &mut self.near } else { &mut self.far };
        ring[place].push(slot);
    }

    /// Whether the slot has a better distance than when this was last asked.
    fn take(&mut self, slot: u32) -> bool {
        let best = self.best[slot as usize];
        let is_better = best < self.expanded[slot as usize];
        self.expanded[slot as usize] = best;
        is_better
    }
}

impl Shard {
    /// The width of the buckets: a power of two.
    pub fn delta(&self) -> f64 {
        self.state.delta
    }

    /// Forgets the last search.
    pub fn reset(&mut self) {
        self.state.reset(self.core);
    }

    /// Begins a search: the shard that has the root is notified of it, after all were reset.
    pub fn start(&mut self, root: Vertex) {
        let slot = self.slot(root);
        self.state.improve(slot, 0.0, root);
    }

    /// Begins a bucket. `core_left` is how many vertices of the core have no final distance, in all shards.
    pub fn open(&mut self, bucket: u64, core_left: u64) {
        (self.state.bucket, self.state.position) = (bucket, 0);
        let limit = self.state.limit();
        let mut waiting = mem::take(&mut self.state.waiting);
        if core_left == 0 {
            waiting.clear();
        }
        waiting.retain(|&slot| {
            let all = self.runs[slot as usize].core;
            let cursor = self.state.cursors[slot as usize].core;
            let cursor = self.relax_run(slot, cursor, all, limit);
            self.state.cursors[slot as usize].core = cursor;
            cursor < all
        });
        self.state.waiting = waiting;
    }

    /// Expands vertices of the current bucket, until there are none or so many edges were relaxed. Returns the messages
    /// for other shards, and whether vertices are left; with some left there are no messages yet.
    pub fn work(&mut self, budget: u64) -> (Vec<Sent>, bool) {
        let (place, limit) = (self.state.place(self.state.bucket), self.state.limit());
        let end = self.state.relaxed.saturating_add(budget);
        while let Some(&slot) = self.state.near[place].get(self.state.position) {
            self.state.position += 1;
            if self.state.take(slot) {
                self.expand(slot, limit);
            }
            if self.state.relaxed >= end {
                return (Vec::new(), true);
            }
        }
        self.state.near[place].clear();
        self.state.position = 0;
        let mut ghosts = mem::take(&mut self.state.far[place]);
        ghosts.retain(|&slot| self.state.take(slot));
        let mut sent = Vec::with_capacity(ghosts.len());
        sent.extend(ghosts.drain(..).map(|slot| {
            let home = self.homes[(slot - self.state.own) as usize];
            let (parent, distance) = (self.state.parents[slot as usize], self.state.best[slot as usize]);
            Sent { owner: home.owner, relax: Relax { slot: home.slot, parent, distance } }
        }));
        self.state.far[place] = ghosts;
        self.state.sent += sent.len() as u64;
        (sent, false)
    }

    fn expand(&mut self, slot: u32, limit: f64) {
        self.state.settled.push(slot);
        let runs = self.runs[slot as usize];
        let core = self.relax_run(slot, 0, runs.core, limit);
        let rest = self.relax_run(slot, runs.core, runs.all, limit);
        self.state.cursors[slot as usize] = Cursor { core, rest };
    }

    /// Relaxes the edges of a run from a cursor on that lead below the limit; returns the new cursor.
    fn relax_run(&mut self, slot: u32, from: u32, to: u32, limit: f64) -> u32 {
        let distance = self.state.best[slot as usize];
        let parent = self.ids[slot as usize];
        let start = self.runs[slot as usize].start as usize;
        let mut cursor = from;
        for edge in &self.edges[start..][from as usize..to as usize] {
            let through = distance + f64::from(edge.weight);
            if through >= limit {
                break;
            }
            cursor += 1;
            self.state.relax(edge.to, through, parent);
        }
        self.state.relaxed += u64::from(cursor - from);
        cursor
    }

    /// Takes a relaxation of another shard.
    #[inline]
    pub fn receive(&mut self, relax: Relax) {
        self.state.received += 1;
        self.state.relax(relax.slot, relax.distance, relax.parent);
    }

    /// The state on which all shards agree before they go on.
    pub fn report(&self) -> Report {
        let state = &self.state;
        let has_entries = |bucket: &u64| {
            let place = state.place(*bucket);
            !state.near[place].is_empty() || !state.far[place].is_empty()
        };
        let next = (state.bucket..).take(state.near.len()).find(has_entries).unwrap_or(u64::MAX);
        let next = if state.waiting.is_empty() { next } else { next.min(state.bucket + 1) };
        Report { next, sent: state.sent, received: state.received, core: u64::from(state.core_left) }
    }

    /// Ends the bucket, when all have agreed that it is done.
    pub fn close(&mut self) {
        let mut settled = mem::take(&mut self.state.settled);
        for slot in settled.drain(..) {
            let runs = self.runs[slot as usize];
            let cursor = self.state.cursors[slot as usize];
            if cursor.rest == NOBODY {
                continue; // a vertex that was expanded twice
            }
            if slot < self.state.core_all {
                self.state.core_left -= 1;
            }
            self.relax_run(slot, cursor.rest, runs.all, f64::INFINITY);
            self.state.cursors[slot as usize].rest = NOBODY;
            if cursor.core < runs.core {
                self.state.waiting.push(slot);
            }
        }
        self.state.settled = settled;
    }

    /// The result.
    pub fn found(&self) -> Found {
        let state = &self.state;
        let mut found = Found { relaxed: state.relaxed, sent: state.sent, ..Found::default() };
        for (((&id, &distance), &ends), _) in self.ids.iter().zip(&state.best).zip(&self.ends).zip(0..self.own_count())
        {
            if distance.is_finite() {
                found.reached += 1;
                found.ends += u64::from(ends);
                found.checksum = found.checksum.wrapping_add(checksum(id, distance));
            }
        }
        found
    }
}

/// A vertex's part of [`Found::checksum`].
pub fn checksum(vertex: Vertex, distance: f64) -> u64 {
    mix(mix(u64::from(vertex) + 1) ^ distance.to_bits())
}
