//! Operations of a run, claimed in small chunks by all clients: no client ends long before the
//! others, so no contender is timed while one thread runs alone.
//!
//! One relaxed `fetch_add` a chunk (512 operations or more in a measured run), the same for all.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use crossbeam_utils::CachePadded;

const LARGEST_CHUNK: u64 = 1024;

/// What is left to do in a run.
#[derive(Debug)]
pub struct Budget {
    next: CachePadded<AtomicU64>,
    total: u64,
    chunk: u64,
}

impl Budget {
    /// `total` operations for `claimants` threads or fibers.
    pub fn new(total: u64, claimants: usize) -> Self {
        let share = total / (16 * claimants.max(1) as u64);
        let chunk = 1 << share.clamp(1, LARGEST_CHUNK).ilog2();
        Self {
            next: CachePadded::new(AtomicU64::new(0)),
            total,
            chunk,
        }
    }

    /// The next operations of this claimant, by number; `None` once all are claimed.
    pub fn claim(&self) -> Option<Range<u64>> {
        let start = self.next.fetch_add(self.chunk, Ordering::Relaxed);
        (start < self.total).then(|| start..(start + self.chunk).min(self.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_claimed_once() {
        for total in [0, 1, 1000, 100_001] {
            let budget = Budget::new(total, 3);
            let mut next = 0;
            while let Some(claim) = budget.claim() {
                assert_eq!(claim.start, next);
                assert!(claim.end > claim.start && claim.end - claim.start <= LARGEST_CHUNK);
                next = claim.end;
            }
            assert_eq!(next, total);
        }
    }
}
