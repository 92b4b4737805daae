//! Empty requests to workers, for a monitor of the program: does a worker come to its loop, and how soon?
//!
//! Invariant: nothing is sent unless a caller asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Message, Shared};

/// An empty request that was sent to a worker.
#[derive(Debug)]
pub struct Probe {
    sent: Instant,
    /// Nanoseconds from sending to the answer, plus one; 0 until then.
    took_ns: AtomicU64,
}

impl Probe {
    /// Asks this worker; `None` if it takes no more messages.
    pub(crate) fn send(to: &Shared) -> Option<Arc<Probe>> {
        let probe = Arc::new(Probe { sent: Instant::now(), took_ns: AtomicU64::new(0) });
        to.send(Message::Probe(Arc::clone(&probe))).ok().map(|()| probe)
    }

    /// Worker: answers, as it has come to its loop.
    pub(crate) fn answer(&self) {
        let ns = u64::try_from(self.sent.elapsed().as_nanos()).unwrap_or(u64::MAX - 1);
        // Relaxed: no other data depends on it.
        self.took_ns.store(ns.saturating_add(1), Ordering::Relaxed);
    }

    /// Time that the answer took, if it has come.
    #[must_use]
    pub fn took(&self) -> Option<Duration> {
        self.took_ns.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_nanos)
    }

    /// Time since it was sent.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.sent.elapsed()
    }
}
