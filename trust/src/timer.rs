//! Fibers that sleep for a time (T9).

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use crate::fiber::FiberRef;
use crate::worker::{self, Worker};

/// The sleepers of one worker.
#[derive(Default)]
pub(crate) struct Timers {
    heap: RefCell<BinaryHeap<Reverse<Due>>>,
    made: Cell<u64>,
}

struct Due {
    at: Instant,
    /// Timers of one instant fire in the order they were made.
    number: u64,
    fiber: Option<FiberRef>,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl Timers {
    fn set(&self, at: Instant, fiber: Option<FiberRef>) {
        let number = self.made.replace(self.made.get() + 1);
        self.heap.borrow_mut().push(Reverse(Due { at, number, fiber }));
    }

    /// Lets the fibers go on whose time has come.
    #[inline]
    pub(crate) fn fire(&self, worker: &Worker) -> bool {
        !self.heap.borrow().is_empty() && self.fire_due(worker)
    }

    fn fire_due(&self, worker: &Worker) -> bool {
        let now = Instant::now();
        let mut heap = self.heap.borrow_mut();
        let mut any = false;
        while heap.peek().is_some_and(|due| due.0.at <= now) {
            if let Some(Reverse(due)) = heap.pop() {
                worker.resume(due.fiber);
                any = true;
            }
        }
        any
    }

    /// Time until the next one is due.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        self.heap.borrow().peek().map(|due| due.0.at.saturating_duration_since(Instant::now()))
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
        let Some(at) = Instant::now().checked_add(time) else {
            return worker.wait_until(|| false);
        };
        let fiber = worker.fiber();
        worker.timers.set(at, fiber);
        if fiber.is_some() {
            // Also if the time has come by now: the timer has the fiber, and will make it ready (S2).
            worker.scheduler.suspend();
        } else {
            worker.wait_until(|| Instant::now() >= at);
        }
    });
}
