//! Whether a worker has any work of its own: asked from other threads, which end its pool when none has.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether a worker has any work of its own, for the end of a pool.
#[derive(Default)]
pub(crate) struct Quiet {
    idle: AtomicBool,
    /// Times that it has found work again.
    woken: AtomicU64,
}

impl Quiet {
    pub(crate) fn enter(&self) {
        self.idle.store(true, Ordering::SeqCst);
    }
    pub(crate) fn leave(&self) {
        self.woken.store(self.woken.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
        self.idle.store(false, Ordering::SeqCst);
    }
    /// The number of its quiet spell, if it is in one.
    pub(crate) fn spell(&self) -> Option<u64> {
        let woken = self.woken.load(Ordering::SeqCst);
        self.idle.load(Ordering::SeqCst).then_some(woken)
    }
}
