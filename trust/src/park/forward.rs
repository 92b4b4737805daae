//! Waking of a trustee that has no thread of its own (`runtime/seats`): the wake goes on to the worker that runs it.
//!
//! The worker announces sleep for each trustee that it runs, then for itself, fences once [sleep-then-look], and looks
//! for the work of all of them, and whether all announcements still stand. A client fences [work-then-look], finds the
//! trustee's announcement and takes it away; then it fences again and looks at the worker's word, as any sender does.
//! If the worker's look missed the client's work, its fence came before both fences of the client, so the client finds
//! both announcements. If the client finds the worker awake, its second fence came before the worker's, which then
//! finds the trustee's announcement gone and does not sleep: so a worker never sleeps with a trustee that would not be
//! woken.
//!
//! A trustee changes its worker while its word says that it is awake. The one that has it stores the index of the next
//! before it gives it up, so before that one announces sleep (Release); the client that takes the announcement away
//! (Acquire) reads that index or a later one. With a later one the trustee has moved on since: whoever runs it then
//! looks at its slots before it sleeps, and by the fences finds the client's work. `forward/model.rs` checks this.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use super::{Parker, Waker};
use crate::sync::{AtomicUsize, Ordering};

/// The workers that may run a trustee, by index.
pub(crate) trait Parkers: Send + Sync {
    fn parker(&self, worker: usize) -> &Parker;
}

/// Index of the worker that runs a trustee, and the way to wake it.
pub(crate) struct Forward<P> {
    runner: AtomicUsize,
    parkers: Arc<P>,
}

impl<P: Parkers> Forward<P> {
    pub(crate) fn new(runner: usize, parkers: Arc<P>) -> Self {
        Forward { runner: AtomicUsize::new(runner), parkers }
    }

    /// The worker that has the trustee, awake: gives it to another one, or has it back.
    pub(crate) fn set_runner(&self, runner: usize) {
        // Relaxed: the Release of the next announcement (`Parker::arm_only`) makes it visible to wakers.
        self.runner.store(runner, Ordering::Relaxed);
    }

    /// The worker that runs it, or has run it last.
    pub(crate) fn runner(&self) -> usize {
        self.runner.load(Ordering::Relaxed)
    }

    /// The workers that may run it.
    pub(crate) fn parkers(&self) -> &P {
        &self.parkers
    }

    fn parker(&self) -> &Parker {
        self.parkers.parker(self.runner())
    }
}

/// The waker of a trustee.
pub(crate) struct ForwardWaker<P>(pub(crate) Arc<Forward<P>>);

// SAFETY: neither function calls foreign code, or anything of this crate but the parker of the worker.
unsafe impl<P: Parkers> Waker for ForwardWaker<P> {
    /// Called by the trustee's end alone, on its worker's thread, which waits for nothing else meanwhile.
    fn park(&self, limit: Option<Duration>, is_idle: &mut dyn FnMut() -> bool) {
        let is_idle = RefCell::new(is_idle);
        self.0.parker().park(limit, || !(is_idle.borrow_mut())());
    }

    fn wake(&self) {
        let _ = self.0.parker().publish(|| ());
    }
}

#[cfg(all(test, loom))]
mod model;
