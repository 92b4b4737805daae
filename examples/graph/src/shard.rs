//! [`Shard`]: a range of the vertices with all their edges, laid out for searches. The search itself is in `search.rs`.
//!
//! A shard numbers its vertices by *slots*: first its own, those with most edges first, then its *ghosts*, the vertices
//! of other shards that edges lead to, those with most edges from here first. So the most used ones lie together.
//!
//! The edges of a vertex stand in two runs, each by weight: to the *core*, the vertices with at least [`CORE_DEGREE`]
//! edges, and to the rest. In a graph with few vertices of very many edges most edges run inside the core; its vertices
//! are all reached early, and need never be looked at afterwards.
//!
//! Order of calls: [`add`](Shard::add), [`index`](Shard::index), then for each other shard [`wanted`](Shard::wanted)
//! here, [`answer`](Shard::answer) there and [`learn`](Shard::learn) here, then [`finish`](Shard::finish).

use std::cmp::Reverse;
use std::mem;

use serde::{Deserialize, Serialize};

use crate::components::Labels;
use crate::search::State;
use crate::validate::Validation;
use crate::{NOBODY, Ranges, Vertex};

/// Vertices with at least so many edges are the core.
pub const CORE_DEGREE: u32 = 64;

/// An edge as it is added: undirected.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// One end.
    pub from: Vertex,
    /// The other.
    pub to: Vertex,
    /// Finite and not negative.
    pub weight: f32,
}

impl Edge {
    /// The same with a weight of 1, for searches that count edges.
    pub fn of_length_1(self) -> Edge {
        Edge { weight: 1.0, ..self }
    }
}

/// An edge from a vertex of the shard, by slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    pub to: u32,
    pub weight: f32,
}

/// Home of a ghost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home {
    pub owner: u16,
    pub slot: u32,
}

/// Range of a vertex's edges: those to the core, then the rest.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Runs {
    pub start: u64,
    pub core: u32,
    pub all: u32,
}

/// A shard's counts of its edges, to be summed over all shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Vertices with edges.
    pub connected: u64,
    /// Edges from them, self-loops left out, of parallel edges the lightest only; each edge counts at both ends.
    pub edges: u64,
    /// The largest weight.
    pub heaviest: f32,
}

impl Size {
    /// Combines the sizes of two shards.
    pub fn and(self, other: Size) -> Size {
        let heaviest = self.heaviest.max(other.heaviest);
        Size { connected: self.connected + other.connected, edges: self.edges + other.edges, heaviest }
    }
}

/// A range of the vertices of a graph, with their edges and known distances.
#[derive(Debug)]
pub struct Shard {
    pub(crate) ranges: Ranges,
    pub(crate) own: usize,
    raw: Vec<Edge>,
    /// The vertex of each slot.
    pub(crate) ids: Vec<Vertex>,
    /// The slot of each own vertex.
    slots: Vec<u32>,
    /// Edges of each own slot.
    pub(crate) runs: Vec<Runs>,
    pub(crate) edges: Vec<Out>,
    /// Number of edges with an end at each own slot, self-loops and repeated ones included.
    pub(crate) ends: Vec<u32>,
    /// Home of each ghost, by slot less the number of own slots.
    pub(crate) homes: Vec<Home>,
    /// Number of own vertices in the core; they come first.
    pub(crate) core: u32,
    is_core_ghost: Vec<bool>,
    pub(crate) state: State,
    pub(crate) validation: Validation,
    pub(crate) labels: Labels,
}

impl Shard {
    /// The shard of this number, without edges.
    pub fn new(ranges: Ranges, own: usize) -> Shard {
        Shard {
            ranges,
            own,
            raw: Vec::new(),
            ids: Vec::new(),
            slots: Vec::new(),
            runs: Vec::new(),
            edges: Vec::new(),
            ends: Vec::new(),
            homes: Vec::new(),
            core: 0,
            is_core_ghost: Vec::new(),
            state: State::default(),
            validation: Validation::default(),
            labels: Labels::default(),
        }
    }

    /// Adds edges. Each belongs to the shards of both its ends: a shard takes the edges with an own vertex as `from`,
    /// so each edge is added twice, once turned round ([`both_ways`]).
    ///
    /// # Panics
    /// If `from` is not of this shard.
    pub fn add(&mut self, edges: &[Edge]) {
        let range = self.ranges.of(self.own);
        for edge in edges {
            assert!(range.contains(&edge.from), "vertex {} is not of shard {}", edge.from, self.own);
        }
        self.raw.extend_from_slice(edges);
    }

    /// Sorts the added edges.
    pub fn index(&mut self) -> Size {
        let first = self.ranges.of(self.own).start;
        let count = self.ranges.of(self.own).len();
        let mut adjacency = Adjacency::of(mem::take(&mut self.raw), first, count);
        adjacency.dedup(first);
        let mut order: Vec<u32> = (0..count as u32).collect();
        order.sort_unstable_by_key(|&vertex| (Reverse(adjacency.lengths[vertex as usize]), vertex));
        self.slots = vec![0; count];
        for (&vertex, slot) in order.iter().zip(0..) {
            self.slots[vertex as usize] = slot;
        }
        self.core = order.partition_point(|&vertex| adjacency.lengths[vertex as usize] >= CORE_DEGREE) as u32;
        self.ids = order.iter().map(|vertex| first + vertex).collect();
        self.ends = order.iter().map(|&vertex| adjacency.ends[vertex as usize]).collect();
        let ghost_slots = self.number_ghosts(&adjacency, count);

        let mut size = Size::default();
        let kept: usize = adjacency.lengths.iter().map(|&length| length as usize).sum();
        self.edges = Vec::with_capacity(kept);
        self.runs = Vec::with_capacity(count);
        for &vertex in &order {
            let edges = adjacency.edges(vertex);
            size.connected += u64::from(!edges.is_empty());
            let start = self.edges.len() as u64;
            for &(to, weight) in edges {
                size.heaviest = size.heaviest.max(weight);
                let at_home = to.wrapping_sub(first) as usize;
                let to = if at_home < count { self.slots[at_home] } else { ghost_slots[to as usize] };
                self.edges.push(Out { to, weight });
            }
            self.runs.push(Runs { start, core: 0, all: edges.len() as u32 });
        }
        size.edges = kept as u64;
        size
    }

    /// Gives the ghosts their slots; the table that is returned has them by vertex.
    fn number_ghosts(&mut self, adjacency: &Adjacency, count: usize) -> Vec<u32> {
        let range = self.ranges.of(self.own);
        if range.len() == self.ranges.vertices() as usize {
            return Vec::new();
        }
        let mut table = vec![0u32; self.ranges.vertices() as usize];
        for vertex in 0..count as u32 {
            for (to, _) in adjacency.edges(vertex) {
                table[*to as usize] += 1;
            }
        }
        let mut ghosts: Vec<Vertex> =
            (0..).zip(&table).filter(|(id, edges)| **edges > 0 && !range.contains(id)).map(|(id, _)| id).collect();
        ghosts.sort_unstable_by_key(|&id| (Reverse(table[id as usize]), id));
        for (&id, slot) in ghosts.iter().zip(count as u32..) {
            table[id as usize] = slot;
        }
        self.homes = ghosts.iter().map(|&id| Home { owner: self.ranges.owner(id) as u16, slot: NOBODY }).collect();
        self.is_core_ghost = vec![false; ghosts.len()];
        self.ids.extend(ghosts);
        table
    }

    /// The ghosts that are at home with another shard, in the order of their slots.
    pub fn wanted(&self, owner: usize) -> Vec<Vertex> {
        let ids = &self.ids[self.own_count()..];
        ids.iter().zip(&self.homes).filter(|(_, home)| usize::from(home.owner) == owner).map(|(&id, _)| id).collect()
    }

    /// The own vertices that other shards have to know: their slots, doubled, and one more for those of the core.
    pub fn answer(&self, wanted: &[Vertex]) -> Vec<u32> {
        let slots = wanted.iter().map(|&vertex| self.slot(vertex));
        slots.map(|slot| slot << 1 | u32::from(slot < self.core)).collect()
    }

    /// Takes the answers of a shard, in the order in which they were [`wanted`](Self::wanted).
    pub fn learn(&mut self, owner: usize, answers: &[u32]) {
        let asked = self.homes.iter_mut().zip(&mut self.is_core_ghost);
        let asked = asked.filter(|(home, _)| usize::from(home.owner) == owner);
        for ((home, is_core), answer) in asked.zip(answers) {
            home.slot = answer >> 1;
            *is_core = answer & 1 == 1;
        }
    }

    /// Makes the shard ready, once it has learned from all others. `all` has the results of [`index`](Self::index) of
    /// all shards together.
    ///
    /// # Panics
    /// If another shard's answers were not learned.
    pub fn finish(&mut self, all: Size, delta: Option<f64>) {
        assert!(self.homes.iter().all(|home| home.slot != NOBODY), "a shard was not asked for its slots");
        let (own, core, ghosts) = (self.own_count() as u32, self.core, mem::take(&mut self.is_core_ghost));
        let is_core = |slot: u32| if slot < own { slot < core } else { ghosts[(slot - own) as usize] };
        for runs in &mut self.runs {
            let edges = &mut self.edges[runs.start as usize..][..runs.all as usize];
            edges.sort_unstable_by(|a, b| {
                (!is_core(a.to)).cmp(&!is_core(b.to)).then(a.weight.total_cmp(&b.weight)).then(a.to.cmp(&b.to))
            });
            runs.core = edges.partition_point(|edge| is_core(edge.to)) as u32;
        }
        self.state = State::new(own as usize, self.homes.len(), all, delta);
    }

    pub(crate) fn own_count(&self) -> usize {
        self.slots.len()
    }

    /// Does it have the vertex?
    pub fn has(&self, vertex: Vertex) -> bool {
        self.ranges.of(self.own).contains(&vertex)
    }

    /// The slot of an own vertex.
    pub(crate) fn slot(&self, vertex: Vertex) -> u32 {
        self.slots[(vertex - self.ranges.of(self.own).start) as usize]
    }

    /// Returns the number of edges of an own vertex, without self-loops and repeated ones.
    pub fn degree(&self, vertex: Vertex) -> u32 {
        self.runs[self.slot(vertex) as usize].all
    }

    /// The edges of an own slot.
    pub(crate) fn edges_of(&self, slot: u32) -> &[Out] {
        let runs = self.runs[slot as usize];
        &self.edges[runs.start as usize..][..runs.all as usize]
    }
}

/// An edge, and the same turned round.
pub fn both_ways(edge: Edge) -> [Edge; 2] {
    [edge, Edge { from: edge.to, to: edge.from, weight: edge.weight }]
}

/// The edges of own vertices, by vertex, as they are being sorted.
struct Adjacency {
    starts: Vec<usize>,
    lengths: Vec<u32>,
    ends: Vec<u32>,
    edges: Vec<(Vertex, f32)>,
}

impl Adjacency {
    fn of(raw: Vec<Edge>, first: Vertex, count: usize) -> Adjacency {
        let mut lengths = vec![0u32; count];
        for edge in &raw {
            lengths[(edge.from - first) as usize] += 1;
        }
        let mut starts = Vec::with_capacity(count);
        let mut next = 0;
        for &length in &lengths {
            starts.push(next);
            next += length as usize;
        }
        let mut edges = vec![(0, 0.0); raw.len()];
        let mut places = starts.clone();
        for edge in raw {
            let place = &mut places[(edge.from - first) as usize];
            edges[*place] = (edge.to, edge.weight);
            *place += 1;
        }
        Adjacency { starts, ends: lengths.clone(), lengths, edges }
    }

    /// Drops self-loops, and of parallel edges all but the lightest.
    fn dedup(&mut self, first: Vertex) {
        for ((&start, length), vertex) in self.starts.iter().zip(&mut self.lengths).zip(first..) {
            let edges = &mut self.edges[start..][..*length as usize];
            edges.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
            let (mut kept, mut last) = (0, vertex);
            for at in 0..edges.len() {
                let edge = edges[at];
                if edge.0 != last && edge.0 != vertex {
                    edges[kept] = edge;
                    kept += 1;
                    last = edge.0;
                }
            }
            *length = kept as u32;
        }
    }

    fn edges(&self, vertex: u32) -> &[(Vertex, f32)] {
        &self.edges[self.starts[vertex as usize]..][..self.lengths[vertex as usize] as usize]
    }
}
