//! Batches to other machines, counted by their senders. A worker that sends a batch adds to two counters of its own;
//! the viewer's thread sums these up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Batches and bytes to each machine, from one worker. Only that worker writes.
#[derive(Debug)]
pub(crate) struct Sent(Box<[[AtomicU64; 2]]>);

static ALL: Mutex<Vec<Arc<Sent>>> = Mutex::new(Vec::new());

impl Sent {
    /// Registers one more worker of this machine, with counters for so many machines.
    pub(crate) fn new(machines: usize) -> Arc<Sent> {
        let sent = Arc::new(Sent((0..machines).map(|_| Default::default()).collect()));
        ALL.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&sent));
        sent
    }

    /// Counts a batch of so many bytes to that machine.
    #[inline]
    pub(crate) fn add(&self, machine: u16, bytes: usize) {
        if let Some([batches, sum]) = self.0.get(usize::from(machine)) {
            // One writer: a load and a store.
            batches.store(batches.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            sum.store(sum.load(Ordering::Relaxed).wrapping_add(bytes as u64), Ordering::Relaxed);
        }
    }
}

/// Returns the batches and bytes to each machine, from all workers of this one.
pub(super) fn sent(machines: usize) -> Vec<(u64, u64)> {
    let mut sums = vec![(0, 0); machines];
    for sent in ALL.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        for (sum, [batches, bytes]) in sums.iter_mut().zip(&sent.0) {
            sum.0 += batches.load(Ordering::Relaxed);
            sum.1 += bytes.load(Ordering::Relaxed);
        }
    }
    sums
}
