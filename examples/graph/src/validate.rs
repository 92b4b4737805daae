//! Whether the result of a search is right: the five rules of Graph500 (specification, "Validation" of kernel 3).
//!
//! Each shard checks its own vertices and their edges. For that it needs the distances of its ghosts from the shards
//! where they are at home ([`Shard::distances`]). Whether parents make a tree needs more than one shard only where an
//! edge has no weight: everywhere else a parent is nearer to the root than its child, so no cycle goes through there.
//! Vertices at the same distance as their parent are *grounded* when their parent is; [`Shard::ground`] is repeated
//! until it changes nothing in any shard.

use std::mem;

use serde::{Deserialize, Serialize};

use crate::{NOBODY, Shard, Vertex};

/// Rules, in the order of the specification.
pub const RULES: [&str; 5] = [
    "the parents make a tree, without cycles",
    "a vertex is as far as its parent and the edge between them",
    "the ends of an edge are no further apart than its weight",
    "the tree spans the component of the root, and nothing else",
    "a vertex and its parent are joined by an edge",
];

/// Number of violations of each rule, with a vertex that violates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Number of violations of each rule.
    pub violations: [u64; 5],
    /// Example for each rule; [`NOBODY`] where there is none.
    pub examples: [Vertex; 5],
}

impl Default for Verdict {
    fn default() -> Verdict {
        Verdict { violations: [0; 5], examples: [NOBODY; 5] }
    }
}

impl Verdict {
    /// Is everything right?
    pub fn is_valid(&self) -> bool {
        self.violations == [0; 5]
    }

    /// Combines the verdicts on two groups of shards.
    pub fn and(self, other: Verdict) -> Verdict {
        let mut sum = self;
        for rule in 0..5 {
            sum.violations[rule] += other.violations[rule];
            sum.examples[rule] = sum.examples[rule].min(other.examples[rule]);
        }
        sum
    }

    fn note(&mut self, rule: usize, vertex: Vertex) {
        self.violations[rule] += 1;
        self.examples[rule] = self.examples[rule].min(vertex);
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_valid() {
            return f.write_str("valid");
        }
        let violated = (0..5).filter(|&rule| self.violations[rule] > 0).map(|rule| {
            let (count, example) = (self.violations[rule], self.examples[rule]);
            format!("rule {} ({}) is violated {count} times, at vertex {example}", rule + 1, RULES[rule])
        });
        f.write_str(&violated.collect::<Vec<_>>().join("; "))
    }
}

/// State of a shard while it validates.
#[derive(Debug, Default)]
pub(crate) struct Validation {
    root: Vertex,
    /// Distance of each slot; those of ghosts come from their shards.
    distances: Vec<f64>,
    /// Whether the parents of each slot are known to lead to the root.
    grounded: Vec<bool>,
}

impl Shard {
    /// The distances of own vertices.
    pub fn distances(&self, wanted: &[Vertex]) -> Vec<f64> {
        wanted.iter().map(|&vertex| self.state.best[self.slot(vertex) as usize]).collect()
    }

    /// Replaces the result of an own vertex. For tests of the validation.
    pub fn set_result(&mut self, vertex: Vertex, distance: f64, parent: Vertex) {
        let slot = self.slot(vertex) as usize;
        self.state.best[slot] = distance;
        self.state.parents[slot] = parent;
    }

    /// Begins to validate. `ghosts` has, for each other shard, the vertices [`wanted`](Shard::wanted) there, and their
    /// distances.
    pub fn validate(&mut self, root: Vertex, ghosts: &[(usize, Vec<f64>)]) {
        let own = self.own_count();
        let mut distances = self.state.best[..own].to_vec();
        distances.resize(self.ids.len(), f64::INFINITY);
        self.spread(ghosts, &mut distances);
        let mut grounded = vec![false; self.ids.len()];
        for slot in 0..own {
            let (id, parent) = (self.ids[slot], self.state.parents[slot]);
            let is_nearer = || {
                self.slot_of_neighbour(slot as u32, parent).is_some_and(|to| distances[to as usize] < distances[slot])
            };
            grounded[slot] = parent == NOBODY || (id == root && parent == root) || is_nearer();
        }
        self.validation = Validation { root, distances, grounded };
    }

    /// Which of these own vertices are grounded.
    pub fn grounded(&self, wanted: &[Vertex]) -> Vec<bool> {
        wanted.iter().map(|&vertex| self.validation.grounded[self.slot(vertex) as usize]).collect()
    }

    /// Grounds vertices with grounded parents. `ghosts` is as in [`validate`](Self::validate), with the vertices that
    /// are [`grounded`](Self::grounded). Returns how many vertices were grounded.
    pub fn ground(&mut self, ghosts: &[(usize, Vec<bool>)]) -> u64 {
        let mut validation = mem::take(&mut self.validation);
        let before = count(&validation.grounded[..self.own_count()]);
        self.spread(ghosts, &mut validation.grounded);
        let mut is_changed = true;
        while is_changed {
            is_changed = false;
            for slot in 0..self.own_count() {
                if !validation.grounded[slot]
                    && let Some(to) = self.slot_of_neighbour(slot as u32, self.state.parents[slot])
                    && validation.grounded[to as usize]
                    && validation.distances[to as usize] <= validation.distances[slot]
                {
                    validation.grounded[slot] = true;
                    is_changed = true;
                }
            }
        }
        let after = count(&validation.grounded[..self.own_count()]);
        self.validation = validation;
        after - before
    }

    /// Checks the rules, once nothing can be grounded any more, and frees the state of grounding.
    pub fn check(&mut self) -> Verdict {
        let validation = &mem::take(&mut self.validation);
        let mut verdict = Verdict::default();
        for slot in 0..self.own_count() {
            self.check_vertex(validation, slot, &mut verdict);
            let (id, distance) = (self.ids[slot], validation.distances[slot]);
            for edge in self.edges_of(slot as u32) {
                let other = validation.distances[edge.to as usize];
                if distance.is_finite() != other.is_finite() {
                    verdict.note(3, id);
                } else if distance.is_finite() && other > distance + f64::from(edge.weight) {
                    verdict.note(2, id);
                }
            }
        }
        verdict
    }

    fn check_vertex(&self, validation: &Validation, slot: usize, verdict: &mut Verdict) {
        let (id, parent, distance) = (self.ids[slot], self.state.parents[slot], validation.distances[slot]);
        let is_root = id == validation.root;
        if !validation.grounded[slot] || (is_root && parent != id) {
            verdict.note(0, id);
        }
        if is_root {
            if distance != 0.0 {
                verdict.note(1, id);
            }
            return;
        }
        if (parent == NOBODY) != distance.is_infinite() {
            verdict.note(3, id);
        }
        if parent == NOBODY {
            return;
        }
        let Some(to) = self.slot_of_neighbour(slot as u32, parent) else {
            return verdict.note(4, id);
        };
        let is_length = |weight: f32| validation.distances[to as usize] + f64::from(weight) == distance;
        if !self.edges_of(slot as u32).iter().any(|edge| edge.to == to && is_length(edge.weight)) {
            verdict.note(1, id);
        }
    }

    /// The slot of a vertex that an edge of `slot` leads to.
    fn slot_of_neighbour(&self, slot: u32, vertex: Vertex) -> Option<u32> {
        let edges = self.edges_of(slot);
        edges.iter().map(|edge| edge.to).find(|&to| self.ids[to as usize] == vertex)
    }

    /// Stores the answers of other shards about the ghosts at home with them.
    fn spread<T: Copy>(&self, ghosts: &[(usize, Vec<T>)], by_slot: &mut [T]) {
        for (owner, values) in ghosts {
            let slots = self.homes.iter().zip(self.own_count()..);
            let slots = slots.filter(|(home, _)| usize::from(home.owner) == *owner).map(|(_, slot)| slot);
            for (slot, &value) in slots.zip(values) {
                by_slot[slot] = value;
            }
        }
    }
}

fn count(grounded: &[bool]) -> u64 {
    grounded.iter().filter(|grounded| **grounded).count() as u64
}
