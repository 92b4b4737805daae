//! Counters per worker (T18): kept by the worker with plain stores, readable by anyone at any time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::registry::{self, TrusteeId};

/// One counter with one writer.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n` and returns the sum. A load and a store: only the owning worker calls this.
    #[inline(always)]
    pub(crate) fn add(&self, n: u64) -> u64 {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(n);
        self.0.store(sum, Ordering::Relaxed);
        sum
    }
    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters of one worker.
        #[derive(Default)]
        #[repr(align(128))]
        pub(crate) struct Counters { $(pub(crate) $name: Counter),* }

        /// What one worker has done since its start.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats { $($(#[$doc])* pub $name: u64),* }

        impl Counters {
            fn read(&self) -> Stats {
                Stats { $($name: self.$name.get()),* }
            }
        }
    };
}

counters! {
    /// Requests sent to other trustees.
    requests_sent,
    /// Those among them that went to another machine.
    requests_sent_far,
    /// Requests that this worker's own trustee ran at once, for its own thread or for a future.
    requests_run_here,
    /// Batches in which they were sent.
    batches_sent,
    /// Requests served for other clients.
    requests_served,
    /// Batches in which they came.
    batches_served,
    /// Batches whose responses did not fit their slot.
    responses_overflowed,
    /// Requests that found no free slot and were queued.
    requests_queued,
    /// Switches from one fiber to another or to the worker's loop.
    fiber_switches,
    /// Fibers started.
    fibers_spawned,
    /// Times the worker went to sleep.
    parks,
}

impl Stats {
    /// Mean number of requests in the batches this worker sent.
    pub fn requests_per_batch(&self) -> f64 {
        if self.batches_sent == 0 { 0.0 } else { self.requests_sent as f64 / self.batches_sent as f64 }
    }
}

/// The counters of a worker, or `None` if its thread has ended. The values are each right at some recent
/// moment, not all at the same one.
///
/// ```
/// let me = trust::local_trustee();
/// assert_eq!(trust::stats(me).unwrap().requests_served, 0);
/// ```
pub fn stats(trustee: crate::TrusteeReference) -> Option<Stats> {
    let id: TrusteeId = trustee.id();
    registry::find(id).map(|worker| worker.counters.read())
}
