//! Operations of a run, claimed by the clients in chunks.
//!
//! One relaxed `fetch_add` a chunk (hundreds of operations in a measured run), the same for all
//! contenders.

use std::{
    fmt,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use clap::ValueEnum;
use crossbeam_utils::CachePadded;
use serde::Serialize;

const LARGEST_CHUNK: u64 = 1024;

/// How the operations of a run are shared out among its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// Each client makes the same number, as in thesis 2.6.1: a client that is starved delays the end.
    Equal,
    /// Whoever is ready makes the next ones: throughput of all, however unfair.
    Common,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Share::Equal => "equal",
            Share::Common => "common",
        })
    }
}

/// What is left to do in a run.
#[derive(Debug)]
pub struct Budget {
    /// One for each client, or a single one for all of them.
    parts: Box<[CachePadded<Part>]>,
    chunk: u64,
}

#[derive(Debug)]
struct Part {
    next: AtomicU64,
    total: u64,
}

impl Budget {
    /// `total` operations for `clients` threads of `fibers` claimants each.
    pub fn new(total: u64, clients: usize, fibers: usize, share: Share) -> Self {
        let parts = match share {
            Share::Equal => clients as u64,
            Share::Common => 1,
        };
        let claimants = (clients * fibers).max(1) as u64;
        Self {
            parts: (0..parts)
                .map(|part| {
                    CachePadded::new(Part {
                        next: AtomicU64::new(0),
                        total: total / parts + u64::from(part < total % parts),
                    })
                })
                .collect(),
            chunk: 1 << (total / (16 * claimants)).clamp(1, LARGEST_CHUNK).ilog2(),
        }
    }

    /// The next operations of this client, by number; `None` once all are claimed.
    #[inline]
    pub fn claim(&self, client: usize) -> Option<Range<u64>> {
        let part = self.parts.get(client).unwrap_or(&self.parts[0]);
        let start = part.next.fetch_add(self.chunk, Ordering::Relaxed);
        (start < part.total).then(|| start..(start + self.chunk).min(part.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(budget: &Budget, client: usize) -> u64 {
        let mut next = 0;
        while let Some(claim) = budget.claim(client) {
            assert_eq!(claim.start, next);
            assert!(claim.end > claim.start && claim.end - claim.start <= LARGEST_CHUNK);
            next = claim.end;
        }
        next
    }

    #[test]
    fn a_common_budget_is_claimed_once() {
        for total in [0, 1, 1000, 100_001] {
            let budget = Budget::new(total, 3, 1, Share::Common);
            assert_eq!(claimed(&budget, 2), total);
            assert_eq!(claimed(&budget, 1), 0);
        }
    }

    #[test]
    fn an_equal_budget_is_split() {
        for total in [0, 1, 1000, 100_001] {
            let budget = Budget::new(total, 3, 4, Share::Equal);
            let each: Vec<u64> = (0..3).map(|client| claimed(&budget, client)).collect();
            assert_eq!(each.iter().sum::<u64>(), total);
            assert!(each.iter().max().unwrap() - each.iter().min().unwrap() <= 1);
        }
    }
}
