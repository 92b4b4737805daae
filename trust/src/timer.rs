//! Fibers that sleep for a time (T9).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::fiber::FiberRef;
use crate::worker::{self, Worker};

/// Where whoever comes first, the timer or what the fiber waits for, finds it and takes it out: the one waker of S2.
/// Empty while the fiber runs, and for a thread's own code, which sees for itself.
pub(crate) type Waiter = Rc<Cell<Option<FiberRef>>>;

/// When it is due; timers of one instant fire in the order they were made.
pub(crate) type TimerId = (Instant, u64);

/// The timers of one worker.
#[derive(Default)]
pub(crate) struct Timers {
    due: RefCell<BTreeMap<TimerId, Waiter>>,
    made: Cell<u64>,
}

impl Timers {
    /// From `at` on, whoever waits there goes on.
    pub(crate) fn set(&self, at: Instant, waiter: Waiter) -> TimerId {
        let id = (at, self.made.replace(self.made.get() + 1));
        self.due.borrow_mut().insert(id, waiter);
        id
    }

    /// Forgets a timer, which may have fired.
    pub(crate) fn cancel(&self, id: TimerId) {
        self.due.borrow_mut().remove(&id);
    }

    /// Lets the fibers go on whose time has come.
    #[inline]
    pub(crate) fn fire(&self, worker: &Worker) -> bool {
        !self.due.borrow().is_empty() && self.fire_due(worker)
    }

    fn fire_due(&self, worker: &Worker) -> bool {
        let now = Instant::now();
        let mut due = self.due.borrow_mut();
        let mut any = false;
        while let Some(first) = due.first_entry().filter(|first| first.key().0 <= now) {
            worker.resume(first.remove().take());
            any = true;
        }
        any
    }

    /// Time until the next one is due.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        self.due.borrow().keys().next().map(|(at, _)| at.saturating_duration_since(Instant::now()))
    }
}

impl Worker {
    /// Waits until `done`, but not longer than up to `at`, if that is given; whoever makes it done takes the waiter and lets it
    /// go on.
    pub(crate) fn wait_until_or(&self, at: Option<Instant>, waiter: &Waiter, done: impl Fn() -> bool) {
        let timer = at.map(|at| self.timers.set(at, Rc::clone(waiter)));
        let over = || done() || at.is_some_and(|at| Instant::now() >= at);
        match self.fiber() {
            Some(fiber) => {
                while !over() {
                    // Several fibers may wait for one thing: who is woken lets the one go on whose place it took.
                    let earlier = waiter.replace(Some(fiber));
                    self.scheduler.suspend();
                    self.resume(earlier);
                }
            }
            None => self.wait_until(over),
        }
        if let Some(timer) = timer {
            self.timers.cancel(timer);
        }
    }
}

/// Suspends the calling fiber for at least `time`; other fibers run. On a thread outside the pool its own
/// fibers and trustee are served meanwhile.
///
/// # Panics
/// In delegated context and in callbacks, where nothing may wait.
///
/// ```
/// let sleeper = trust::spawn(|| { trust::sleep(std::time::Duration::from_millis(2)); 7 });
/// assert_eq!(sleeper.join().unwrap(), 7);
/// ```
pub fn sleep(time: Duration) {
    worker::with(|worker| {
        worker.assert_may_wait("sleep");
        // Without an end where a clock cannot say it.
        worker.wait_until_or(Instant::now().checked_add(time), &Waiter::default(), || false);
    });
}
