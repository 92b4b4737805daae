//! What a worker does with nothing to do (T14): it polls for a bounded time, then gives its core away a few
//! times, then sleeps until it is sent something, a socket has news or a timer is due.

use std::cell::Cell;
use std::time::Instant;

use crate::config::YIELDS;
use crate::registry::Shared;
use crate::worker::Worker;

/// Turns between two looks at the clock while it spins.
const TURNS_PER_LOOK: u32 = 32;

/// How far a worker is on its way to sleep.
pub(crate) struct Idle {
    spin_ns: u64,
    turns: Cell<u32>,
    since: Cell<Option<Instant>>,
    yields: Cell<u32>,
    marked: Cell<bool>,
}

impl Idle {
    pub(crate) fn new(spin_ns: u64) -> Self {
        Idle { spin_ns, turns: Cell::new(0), since: Cell::new(None), yields: Cell::new(0), marked: Cell::new(false) }
    }

    /// There was something to do.
    #[inline(always)]
    pub(crate) fn reset(&self) {
        self.turns.set(0);
        self.since.set(None);
        self.yields.set(0);
    }

    /// Has the worker told that it has nothing of its own to do?
    #[inline(always)]
    pub(crate) fn marked(&self) -> bool {
        self.marked.get()
    }

    /// It has again.
    #[cold]
    pub(crate) fn unmark(&self, shared: &Shared) {
        self.marked.set(false);
        shared.quiet.leave();
    }

    /// One more turn without anything to do.
    pub(crate) fn rest(&self, worker: &Worker) {
        if self.spins() {
            return std::hint::spin_loop();
        }
        if self.yields.get() < YIELDS {
            self.yields.set(self.yields.get() + 1);
            return std::thread::yield_now();
        }
        if !self.marked.get() && worker.is_idle() {
            self.marked.set(true);
            worker.shared.quiet.enter();
        }
        let limit = worker.timers.next_in();
        if worker.shared.parker.park(limit, || worker.has_work() || worker.reactor.cannot_sleep()) {
            worker.shared.counters.parks.add(1);
        }
        self.reset();
    }

    fn spins(&self) -> bool {
        let turns = self.turns.get();
        self.turns.set(turns.saturating_add(1));
        if !turns.is_multiple_of(TURNS_PER_LOOK) || self.yields.get() > 0 {
            return self.yields.get() == 0;
        }
        let now = Instant::now();
        match self.since.get() {
            None => self.since.set(Some(now)),
            Some(since) if now.duration_since(since).as_nanos() < u128::from(self.spin_ns) => {}
            Some(_) => return false,
        }
        self.spin_ns > 0
    }
}
