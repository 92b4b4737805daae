//! What a worker does with nothing to do (T14): it polls for a bounded time, then sleeps until it is sent something, a
//! socket has news or a timer is due.
//!
//! Two that wait for each other's requests must poll for longer than a sleeper takes to wake: else each finds the other
//! asleep, sleeps before it is answered, and every batch costs two wake-ups of tens of microseconds (in virtual machines
//! hundreds). So a worker is *patient*: it polls up to its whole spin, giving its core between looks to whoever wants it.
//! Patience that was in vain a few times is given up; it is tried again when sleeps keep being short, less and less often
//! while that is in vain too. Nobody is patient where far more threads have a trustee than there are cores.

use std::cell::Cell;
use std::time::Instant;

use crate::config::{POLL_NS, YIELDS};
use crate::registry::{self, Shared};
use crate::worker::Worker;

/// Turns between two looks at the clock while it polls.
const TURNS_PER_LOOK: u32 = 32;
/// A sleep is short if it ends within so many times what patience waits: it is as long as a wake-up or two take beside that.
const SHORT_SPINS: u64 = 4;
/// How often in a row patience may be in vain.
const VAIN_MAX: u32 = 8;
/// Short sleeps after which patience is tried again: at first, and at most.
const SHORT_SLEEPS: u32 = 4;
const SHORT_SLEEPS_MAX: u32 = 1024;

/// How far a worker is on its way to sleep, and whether it pays to wait.
pub(crate) struct Idle {
    spin_ns: u64,
    turns: Cell<u32>,
    since: Cell<Option<Instant>>,
    yields: Cell<u32>,
    marked: Cell<bool>,
    /// It polls for longer than [`POLL_NS`] this time.
    is_patient: Cell<bool>,
    /// How often patience may still be in vain; with 0 left there is none.
    credit: Cell<u32>,
    /// Short sleeps since patience was given up, and how many of them are wanted.
    short_sleeps: Cell<u32>,
    wanted: Cell<u32>,
}

impl Idle {
    pub(crate) fn new(spin_ns: u64) -> Self {
        Idle {
            spin_ns,
            turns: Cell::new(0),
            since: Cell::new(None),
            yields: Cell::new(0),
            marked: Cell::new(false),
            is_patient: Cell::new(false),
            credit: Cell::new(VAIN_MAX),
            short_sleeps: Cell::new(0),
            wanted: Cell::new(SHORT_SLEEPS),
        }
    }

    /// There was something to do.
    #[inline(always)]
    pub(crate) fn reset(&self) {
        self.turns.set(0);
        self.since.set(None);
        self.yields.set(0);
        if self.is_patient.get() {
            self.has_paid();
        }
    }

    /// Something came while it was patient.
    #[cold]
    fn has_paid(&self) {
        self.is_patient.set(false);
        self.credit.set(VAIN_MAX);
        self.wanted.set(SHORT_SLEEPS);
    }

    /// What came is no more than a timer, of which was known when it would come.
    #[inline(always)]
    pub(crate) fn timer_fired(&self) {
        if self.is_patient.get() {
            self.was_in_vain();
        }
    }

    #[cold]
    fn was_in_vain(&self) {
        self.is_patient.set(false);
        self.credit.set(self.credit.get() - 1);
        if self.credit.get() == 0 {
            self.short_sleeps.set(0);
        }
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

    /// Does it give its core away each turn, before it sleeps?
    pub(crate) fn gives_way(&self) -> bool {
        self.yields.get() > 0
    }

    /// One more turn without anything to do.
    pub(crate) fn rest(&self, worker: &Worker) {
        worker.shared.counters.polls.add(1);
        if self.polls(registry::is_crowded) {
            if self.is_patient.get() {
                self.mark(worker);
            }
            return;
        }
        if self.yields.get() < YIELDS {
            self.yields.set(self.yields.get() + 1);
            return std::thread::yield_now();
        }
        self.mark(worker);
        let limit = worker.timers.next_in();
        if worker.shared.parker.park(limit, || worker.has_work() || worker.reactor.cannot_sleep()) {
            worker.reactor.look_next();
            self.learn();
        }
        self.reset();
    }

    /// Tells that it has nothing of its own to do, if so.
    fn mark(&self, worker: &Worker) {
        if !self.marked.get() && worker.is_idle() {
            self.marked.set(true);
            worker.shared.quiet.enter();
        }
    }

    /// Polls once more, if it is to. The clock is looked at, and the core given away, only now and then.
    fn polls(&self, is_crowded: fn() -> bool) -> bool {
        let turns = self.turns.get();
        self.turns.set(turns.wrapping_add(1));
        if self.yields.get() > 0 || self.spin_ns == 0 {
            return false;
        }
        if !turns.is_multiple_of(TURNS_PER_LOOK) {
            std::hint::spin_loop();
            return true;
        }
        let now = Instant::now();
        let since = self.since.get().unwrap_or(now);
        self.since.set(Some(since));
        let idle_ns = now.duration_since(since).as_nanos();
        if idle_ns < u128::from(POLL_NS.min(self.spin_ns)) {
            std::hint::spin_loop();
            return true;
        }
        if idle_ns < u128::from(self.spin_ns) && self.credit.get() > 0 && !is_crowded() {
            self.is_patient.set(true);
            std::thread::yield_now();
            return true;
        }
        false
    }

    /// It has slept: was patience in vain, or would it pay?
    #[cold]
    fn learn(&self) {
        if self.is_patient.get() {
            return self.was_in_vain();
        }
        let is_short =
            |since: Instant| since.elapsed().as_nanos() < u128::from(self.spin_ns.saturating_mul(SHORT_SPINS));
        if self.credit.get() == 0 && self.since.get().is_some_and(is_short) {
            self.short_sleeps.set(self.short_sleeps.get() + 1);
            if self.short_sleeps.get() >= self.wanted.get() {
                self.credit.set(1);
                self.wanted.set((self.wanted.get() * 2).min(SHORT_SLEEPS_MAX));
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Far longer than a busy machine keeps a thread waiting.
    const SPIN: Duration = Duration::from_millis(50);

    /// Other tests of this process have trustees too.
    fn is_not_crowded() -> bool {
        false
    }

    /// Polls in vain and sleeps for so long. True if it was patient.
    fn idle_period(idle: &Idle, sleep: Duration) -> bool {
        while idle.polls(is_not_crowded) {}
        let was_patient = idle.is_patient.get();
        std::thread::sleep(sleep);
        idle.learn();
        idle.reset();
        was_patient
    }

    #[test]
    fn t14_patience_in_vain_is_given_up_and_tried_again_ever_less_often() {
        let idle = Idle::new(SPIN.as_nanos() as u64);
        for _ in 0..VAIN_MAX {
            assert!(idle_period(&idle, Duration::ZERO));
        }
        // Long sleeps say nothing for patience.
        for _ in 0..SHORT_SLEEPS + 1 {
            assert!(!idle_period(&idle, 5 * SPIN));
        }
        // A sleep is short only where the machine lets it be, so they are counted by what the worker learned.
        let sleeps_until_patient = || {
            let mut short = 0;
            for _ in 0..10_000 {
                let before = idle.short_sleeps.get();
                if idle_period(&idle, Duration::ZERO) {
                    return short;
                }
                short += u32::from(idle.short_sleeps.get() > before);
            }
            panic!("patience was never tried again")
        };
        assert_eq!(sleeps_until_patient(), SHORT_SLEEPS);
        assert_eq!(sleeps_until_patient(), 2 * SHORT_SLEEPS);
        // Something comes while it is patient: all is as at first.
        while idle.credit.get() == 0 {
            idle_period(&idle, Duration::ZERO);
        }
        while !idle.is_patient.get() {
            assert!(idle.polls(is_not_crowded));
        }
        idle.reset();
        assert_eq!((idle.credit.get(), idle.wanted.get()), (VAIN_MAX, SHORT_SLEEPS));
    }

    #[test]
    fn t14_without_spin_nobody_polls() {
        let idle = Idle::new(0);
        assert!(!idle.polls(is_not_crowded));
        idle.learn();
        assert!(!idle.polls(is_not_crowded));
    }

    #[test]
    fn t14_where_it_is_crowded_nobody_is_patient() {
        let idle = Idle::new(SPIN.as_nanos() as u64);
        while idle.polls(|| true) {
            assert!(!idle.is_patient.get());
        }
    }
}
