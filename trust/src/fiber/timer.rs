//! Timers that resume fibers.
//!
//! Here: the timers of one worker. Not here: the worker's turn, which looks at them, and how a fiber waits.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::fiber::{FiberRef, Scheduler};

/// The one waker of [one-waker], shared by the timer and the awaited event: the first of them takes the fiber out.
/// Empty while the fiber runs, and for a thread's own code, which checks for itself.
pub(crate) type Waiter = Rc<Cell<Option<FiberRef>>>;

/// Time at which it is due; timers of one instant fire in the order they were set.
pub(crate) type TimerId = (Instant, u64);

/// The timers of one worker.
#[derive(Default)]
pub(crate) struct Timers {
    due: RefCell<BTreeMap<TimerId, Waiter>>,
    next: Cell<u64>,
}

impl Timers {
    /// Sets a timer: from `at` on, the fiber that waits there goes on.
    pub(crate) fn set(&self, at: Instant, waiter: Waiter) -> TimerId {
        let id = (at, self.next.replace(self.next.get() + 1));
        self.due.borrow_mut().insert(id, waiter);
        id
    }

    /// Cancels a timer, which may have fired.
    pub(crate) fn cancel(&self, id: TimerId) {
        self.due.borrow_mut().remove(&id);
    }

    /// Resumes the fibers whose time has come.
    #[inline]
    pub(crate) fn fire(&self, scheduler: &Scheduler) -> bool {
        !self.due.borrow().is_empty() && self.fire_due(scheduler)
    }

    fn fire_due(&self, scheduler: &Scheduler) -> bool {
        let now = Instant::now();
        let mut due = self.due.borrow_mut();
        let mut any = false;
        while let Some(first) = due.first_entry().filter(|first| first.key().0 <= now) {
            scheduler.resume(first.remove().take());
            any = true;
        }
        any
    }

    /// Time until the next one is due.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        self.due.borrow().keys().next().map(|(at, _)| at.saturating_duration_since(Instant::now()))
    }
}
