//! Counters of an array, hits excluded.

use std::cell::Cell;

/// Work of the places for an array since it was made, hits excluded. See [`Array::stats`](crate::Array::stats).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls that did not find their chunk at their place.
    pub misses: u64,
    /// Rights granted by homes.
    pub grants: u64,
    /// Rights recalled by homes.
    pub recalls: u64,
    /// Chunks evicted to make space.
    pub evictions: u64,
    /// Combined chunks that were merged at home.
    pub merges: u64,
    /// Granted chunks that a place has copied itself, from the memory of a machine of its host.
    pub copied: u64,
    /// Bytes of elements that were sent to other places, in chunks and packets.
    pub bytes: u64,
}

impl std::ops::Add for Stats {
    type Output = Stats;
    fn add(self, other: Stats) -> Stats {
        Stats {
            misses: self.misses + other.misses,
            grants: self.grants + other.grants,
            recalls: self.recalls + other.recalls,
            evictions: self.evictions + other.evictions,
            merges: self.merges + other.merges,
            copied: self.copied + other.copied,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Counters of one place.
#[derive(Default)]
pub(crate) struct Counters(Cell<Stats>);

impl Counters {
    pub(crate) fn count(&self, change: impl FnOnce(&mut Stats)) {
        let mut stats = self.0.get();
        change(&mut stats);
        self.0.set(stats);
    }

    pub(crate) fn get(&self) -> Stats {
        self.0.get()
    }
}
