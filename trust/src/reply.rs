//! Where a waiting caller gets the outcome of its request.

#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::ptr;

use crate::fiber::FiberRef;
use crate::request::Fault;
use crate::unwind::AbortOnUnwind;
use crate::worker::{self, Worker};

/// Where a waiting caller gets the outcome of its request: on its own stack, which stays while it waits.
pub(crate) struct Reply<U> {
    outcome: UnsafeCell<Option<Result<U, Fault>>>,
    done: Cell<bool>,
    /// The fiber that has suspended itself to wait. None before: an outcome that is there at once (the trustee is gone)
    /// must not make a fiber ready that still runs (S2).
    waiter: Cell<Option<FiberRef>>,
}

impl<U> Reply<U> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Reply { outcome: UnsafeCell::new(None), done: Cell::new(false), waiter: Cell::new(None) }
    }

    /// What fills this reply. Must be called before the reply is dropped: `wait` sees to it.
    #[inline(always)]
    pub(crate) fn answer(&self) -> impl FnOnce(Result<U, Fault>) + use<U> {
        let reply = ptr::from_ref(self);
        move |outcome| {
            // SAFETY: the reply's owner stays in `wait` until `done` is set; same thread, and it does not
            // look at the outcome before.
            unsafe {
                *(*reply).outcome.get() = Some(outcome);
                (*reply).done.set(true);
                let waiter = (*reply).waiter.take();
                worker::with(|worker| worker.resume(waiter));
            }
        }
    }

    /// Not by value: `answer` has the address.
    #[inline(always)]
    pub(crate) fn wait(&self, worker: &Worker) -> Result<U, Fault> {
        self.waiter.set(worker.fiber());
        let guard = AbortOnUnwind;
        worker.wait_until(|| self.done.get());
        std::mem::forget(guard);
        // SAFETY: done, so nothing else looks at the outcome any more.
        match unsafe { (*self.outcome.get()).take() } {
            Some(outcome) => outcome,
            None => unreachable!("done, so there is an outcome"),
        }
    }
}
