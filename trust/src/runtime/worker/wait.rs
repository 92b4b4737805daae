//! Waits of code on a worker: a fiber suspends, the thread's own code runs the loop.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::deadline::deadline_after;
use crate::error::Aborted;
use crate::fiber::record::{Awaited, Revoke, Whom};
use crate::fiber::timer::Waiter;
use crate::fiber::{FiberRef, Origin, Scheduler, Waits};
use crate::park::occupancy;
use crate::runtime::worker::Worker;

impl Waits for Worker {
    fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    fn wait_until(&self, done: impl Fn() -> bool) {
        if self.scheduler.current().is_some() {
            while !done() {
                self.scheduler.suspend();
            }
        } else {
            self.leave_outside();
            while !done() {
                if self.turn() {
                    self.idle.reset();
                } else if self.runs_others() {
                    std::thread::yield_now();
                } else {
                    self.idle.rest(self);
                }
            }
            self.idle.reset();
            occupancy::leave(self.id.index());
            self.leave_loop();
            self.enter_outside();
        }
    }
}

impl Worker {
    /// Marks that the thread's own code goes on; if it sleeps, only its waker reaches it.
    #[inline(always)]
    pub(crate) fn enter_outside(&self) {
        self.outside.enter(&self.shared.parker, || self.has_work());
    }

    /// Marks that the thread's own code is in the library, which looks for work.
    #[inline(always)]
    pub(crate) fn leave_outside(&self) {
        self.outside.leave(&self.shared.parker);
    }

    /// The fiber that runs, or `None` on the root.
    #[inline(always)]
    pub(crate) fn fiber(&self) -> Option<FiberRef> {
        self.scheduler.current()
    }

    /// Lets a waiting fiber go on; the root checks for itself.
    #[inline(always)]
    pub(crate) fn resume(&self, fiber: Option<FiberRef>) {
        self.scheduler.resume(fiber);
    }

    /// Waits until `done`, or up to `at`, or until the fiber is aborted; the caller then cleans up and calls
    /// [`heed_abort`](Self::heed_abort). The code that makes it done takes the waiter and resumes it.
    pub(crate) fn wait_unless_aborted(
        &self,
        awaited: Awaited,
        at: Option<Instant>,
        waiter: &Waiter,
        done: impl Fn() -> bool,
    ) {
        let over = || done() || self.scheduler.is_interrupted();
        if over() {
            return;
        }
        let revoke = Some((Rc::as_ptr(waiter).cast::<()>(), leave_waiter as Revoke));
        let wait = || self.wait_until_or(at, waiter, over);
        // SAFETY: the caller keeps the waiter; no code makes a fiber ready whose pointer is no longer there.
        unsafe { self.scheduler.waiting_until_revoked(awaited, revoke, wait) }
    }

    /// Makes the fiber that runs for this handle unwind, see [`Scheduler::abort`]: as soon as no panic unwinds on this
    /// thread.
    pub(crate) fn abort(&self, whom: Whom) {
        const LOOK_EVERY: Duration = Duration::from_millis(10);
        if self.scheduler.abort(whom) {
            return;
        }
        let again = move || {
            super::with(|worker| {
                // Polled, since no event marks the end of an unwinding: it is rare.
                while !worker.scheduler.abort_again(whom) {
                    worker.wait_until_or(Some(deadline_after(LOOK_EVERY)), &Waiter::default(), || false);
                }
            });
        };
        // Without memory for it the fiber unwinds at its next wait.
        self.start_fiber(
            Box::new(again),
            None,
            Origin::Internal("it aborts a fiber when no panic unwinds any more"),
            Whom::Nobody,
        );
    }

    /// Unwinds if the running fiber was aborted. In free context, with nothing left to clean up.
    pub(crate) fn heed_abort(&self) {
        if self.scheduler.take_abort() {
            resume_unwind(Box::new(Aborted));
        }
    }

    /// Serves until an event has happened that does not wake this thread. For code that may wait.
    pub(crate) fn serve_until(&self, done: impl Fn() -> bool) {
        const LOOK_EVERY: Duration = Duration::from_micros(100);
        while !done() {
            if self.fiber().is_some() {
                self.wait_until_or(Some(deadline_after(LOOK_EVERY)), &Waiter::default(), || false);
            } else if !self.turn() && !self.launches.lines.let_missed_on(self) {
                let _ = self.shared.parker.park(Some(LOOK_EVERY), || self.has_work());
                self.reactor.look_next();
            }
        }
        if self.fiber().is_none() {
            self.leave_loop();
        }
    }

    /// Waits until `done`, but not longer than up to `at`, if that is given; the code that makes it done takes the
    /// waiter and resumes it.
    pub(crate) fn wait_until_or(&self, at: Option<Instant>, waiter: &Waiter, done: impl Fn() -> bool) {
        let timer = at.map(|at| self.timers.set(at, Rc::clone(waiter)));
        let over = || done() || at.is_some_and(|at| Instant::now() >= at);
        match self.fiber() {
            Some(fiber) => {
                while !over() {
                    let other = waiter.replace(Some(fiber));
                    debug_assert!(other.is_none() || other == Some(fiber), "each that waits has a waiter of its own");
                    self.scheduler.suspend();
                }
            }
            None => self.wait_until(over),
        }
        if let Some(timer) = timer {
            self.timers.cancel(timer);
        }
    }
}

/// Takes a fiber out of the waiter at this address, if it is there.
unsafe fn leave_waiter(waiter: *const (), fiber: FiberRef) -> bool {
    // SAFETY: that of a wait that is not over (`wait_unless_aborted`).
    let waiter = unsafe { &*waiter.cast::<Cell<Option<FiberRef>>>() };
    let is_there = waiter.get() == Some(fiber);
    if is_there {
        waiter.set(None);
    }
    is_there
}
