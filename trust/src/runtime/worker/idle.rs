//! The idle worker: it polls, gives its core away, or sleeps until a message comes, a socket has news or a timer is
//! due.
//!
//! Costs of a wait: polling costs the core. Giving the core away costs two switches of threads, one microsecond, if
//! another thread of this process is there to take it, and up to 4 ms if a foreign thread takes it. Sleeping costs the
//! waker 8 us and the sleeper 30 to 50 us in a virtual machine. Two threads that wait for each other must poll for
//! longer than that, or each always finds the other asleep.
//!
//! The rule:
//! 1. Where another thread of this process wants the core ([`occupancy`]), this worker may be waiting for the work of
//!    that thread. It gives the core away, [`YIELDS`] times, then sleeps. So does a worker that must not poll (spin 0).
//!    A yield that took longer than [`YIELD_NS_MAX`] is the last: a foreign thread had the core.
//! 2. Else, unless the last event was a timer, it polls for [`POLL_WAKE_UPS`] wake-ups, as measured on this machine
//!    ([`wake_up_ns`]): the time it would lose by sleeping.
//! 3. It goes on up to its spin if its [`SpinBudget`] suffices for all of that. Polling beyond 2 is charged to the
//!    budget, unless an event ended it. The budget grows with time, so no worker that polls too little remains so.
//! 4. Then it sleeps.
//! 5. A worker that lingers does not do 1 to 3: it gives the core away again and again, for the time of
//!    [`set_linger`], and then sleeps. So it answers at once where no other thread wants its core, and takes next to
//!    nothing from threads that do. Where a yield took longer than [`CONTESTED_NS`], the thread that had the core
//!    computes: the worker then sleeps at once for a while, for the kernel lets a woken thread interrupt that one, but
//!    not a thread that has yielded.
//!
//! Between two looks it pauses, the longer, the more fibers ran before ([`pauses_after`]).
//!
//! Beside a foreign thread it polls too: the kernel gives that thread its share of the core in any case, and a worker
//! that sleeps beside one waits for its time slice at each wake-up.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::config::{
    BUDGET_PARTS, BUDGET_SPINS, CONTESTED_MAX, CONTESTED_NS, CONTESTED_YIELDS, FIBERS_PER_PAUSE, PAUSES_MAX,
    POLL_WAKE_UPS, SPIN_NS_MAX, TURNS_PER_LOOK, YIELD_NS_MAX, YIELDS,
};
use crate::park;
use crate::park::occupancy;
use crate::runtime::worker::Worker;
use crate::trace;

/// A worker, or a thread with several (`runtime/seats`), on its way to sleep.
pub(crate) trait Sleeper {
    /// Announces workers that have no work of their own.
    fn mark(&self);
    /// Lets waiters go on that have missed their turn. True if there were any.
    fn let_missed_on(&self) -> bool;
    /// Time until the next timer is due.
    fn next_in(&self) -> Option<Duration>;
    /// Sleeps until there is work, or for `limit`. True if it did sleep.
    fn park(&self, limit: Option<Duration>) -> bool;
}

impl Sleeper for Worker {
    fn mark(&self) {
        self.idle.mark(self);
    }

    fn let_missed_on(&self) -> bool {
        self.launches.lines.let_missed_on(self)
    }

    fn next_in(&self) -> Option<Duration> {
        self.timers.next_in()
    }

    fn park(&self, limit: Option<Duration>) -> bool {
        let slept = self.shared.parker.park(limit, || self.has_work() || self.reactor.cannot_sleep());
        if slept {
            self.reactor.look_next();
        }
        slept
    }
}

/// Next step of an idle worker.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Poll,
    Yield,
    Sleep,
}

/// Progress of a worker on its way to sleep.
pub(crate) struct Idle {
    spin_ns: Cell<u64>,
    /// Time that it lingers (5); 0: it does not.
    linger_ns: Cell<u64>,
    contested: Contested,
    /// Pauses of this idle period: one or more a turn.
    turns: Cell<u32>,
    /// Pauses between two turns.
    pauses: Cell<u32>,
    /// Fibers that have run since the last idle period.
    ran: Cell<u64>,
    /// Start of the period, from the first look at the clock on.
    since: Cell<Option<Instant>>,
    /// Time of the last look at the clock.
    looked: Cell<Instant>,
    /// Yields in this period.
    yields: Cell<u32>,
    budget: SpinBudget,
    /// A timer has fired in this turn (2), or was the last event (1).
    timer: Cell<u8>,
}

impl Idle {
    pub(crate) fn new(spin_ns: u64) -> Self {
        Idle {
            spin_ns: Cell::new(spin_ns.min(SPIN_NS_MAX)),
            linger_ns: Cell::new(0),
            contested: Contested::new(),
            turns: Cell::new(0),
            pauses: Cell::new(1),
            ran: Cell::new(0),
            since: Cell::new(None),
            looked: Cell::new(Instant::now()),
            yields: Cell::new(0),
            budget: SpinBudget::new(Instant::now()),
            timer: Cell::new(0),
        }
    }

    pub(crate) fn set_spin(&self, spin_ns: u64) {
        self.spin_ns.set(spin_ns.min(SPIN_NS_MAX));
    }

    /// Ends the idle period: there was work.
    #[inline(always)]
    pub(crate) fn reset(&self) {
        self.turns.set(0);
        self.since.set(None);
        self.yields.set(0);
        self.timer.set(self.timer.get() >> 1);
    }

    /// Notes the fibers that have run in this turn.
    #[inline(always)]
    pub(crate) fn fibers_ran(&self, fibers: u64) {
        self.ran.set(self.ran.get() + fibers);
    }

    /// Notes that the event is no more than a timer, whose time was known before.
    #[inline(always)]
    pub(crate) fn timer_fired(&self) {
        if let Some(since) = self.since.get() {
            self.charge(since);
        }
        self.timer.set(2);
    }

    #[cold]
    fn charge(&self, since: Instant) {
        self.pay(Instant::now(), since);
    }

    fn pay(&self, now: Instant, since: Instant) {
        let beyond_ns = nanos(now.duration_since(since)).saturating_sub(self.always_ns());
        self.budget.pay(now, beyond_ns, self.spin_ns.get());
    }

    /// Does it give its core away each turn, before it sleeps?
    pub(crate) fn gives_way(&self) -> bool {
        self.yields.get() > 0
    }

    /// Rests once, after a turn without work.
    #[inline(always)]
    pub(crate) fn rest(&self, worker: &Worker) {
        self.rest_with(worker, worker);
    }

    /// Same as [`rest`](Self::rest), where the worker's thread sleeps by `sleeper`.
    #[inline(always)]
    pub(crate) fn rest_with(&self, worker: &Worker, sleeper: &impl Sleeper) {
        worker.shared.counters.polls.add(1);
        let ran = self.ran.take();
        if ran > 0 {
            self.pauses.set(pauses_after(ran));
        }
        let pauses = self.pauses.get();
        let turns = self.turns.get() + pauses;
        self.turns.set(turns);
        if turns < TURNS_PER_LOOK && self.spin_ns.get() > 0 {
            return (0..pauses).for_each(|_| std::hint::spin_loop());
        }
        self.look(worker, sleeper);
    }

    /// Looks at the clock, and for threads that want the core.
    #[cold]
    fn look(&self, worker: &Worker, sleeper: &impl Sleeper) {
        if sleeper.let_missed_on() {
            return;
        }
        let now = Instant::now();
        let since = self.since.get().unwrap_or(now);
        if self.since.replace(Some(since)).is_some() {
            worker.shared.counters.polled_ns.add(nanos(now.duration_since(self.looked.get())));
        }
        self.looked.set(now);
        let index = worker.id.index();
        if self.linger_ns.get() == 0 {
            occupancy::enter(index); // a lingering worker wants no core of those that poll
        }
        match self.next_step(now, nanos(now.duration_since(since)), || occupancy::is_wanted(index)) {
            Step::Poll => {
                self.turns.set(0);
                self.yields.set(0);
                if now.duration_since(since) > MARKED_AFTER {
                    sleeper.mark();
                }
            }
            Step::Yield => {
                // The next turn without work looks again.
                self.turns.set(TURNS_PER_LOOK);
                worker.shared.counters.yields.add(1);
                std::thread::yield_now();
                self.yielded(now, now.elapsed());
                if now.duration_since(since) > MARKED_AFTER {
                    sleeper.mark();
                }
            }
            Step::Sleep => {
                self.charge(since);
                sleeper.mark();
                let slept = sleeper.park(sleeper.next_in());
                if slept && trace::is_on() {
                    worker.shared.trace.activity.note(trace::Kind::Park, now, 0);
                }
                self.reset();
            }
        }
    }

    /// Notes that the core was away for that time.
    fn yielded(&self, at: Instant, took: Duration) {
        let ns = nanos(took);
        self.yields.set(if ns > YIELD_NS_MAX { YIELDS } else { self.yields.get() + 1 });
        self.contested.yielded(at, took);
    }

    /// Applies the rule, after this time of idleness.
    fn next_step(&self, now: Instant, idle_ns: u64, is_wanted: impl FnOnce() -> bool) -> Step {
        let (spin_ns, linger_ns) = (self.spin_ns.get(), self.linger_ns.get());
        if linger_ns > 0 {
            return if idle_ns < linger_ns && !self.contested.is(now) { Step::Yield } else { Step::Sleep };
        }
        if spin_ns == 0 || is_wanted() {
            return if self.yields.get() < YIELDS { Step::Yield } else { Step::Sleep };
        }
        let always_ns = self.always_ns();
        // All of it or nothing: a worker that spent each bit at once would never save enough to learn that polling
        // pays.
        let can_pay = || self.budget.balance_ns(now, spin_ns) >= spin_ns.saturating_sub(always_ns);
        if idle_ns < spin_ns && (idle_ns < always_ns || can_pay()) { Step::Poll } else { Step::Sleep }
    }

    /// Time it polls in any case: at most half of its spin, however long wake-ups take. Zero if the next event is
    /// likely to be a timer, whose time is known.
    fn always_ns(&self) -> u64 {
        if self.timer.get() > 0 { 0 } else { (POLL_WAKE_UPS * wake_up_ns()).min(self.spin_ns.get() / 2) }
    }

    /// Announces that it has no work of its own, if so.
    fn mark(&self, worker: &Worker) {
        if !worker.marks.is_quiet() && worker.is_idle() {
            worker.marks.set_quiet(true);
            worker.shared.quiet.enter();
        }
    }
}

/// Returns the pauses between two turns after this many fibers have run. More fibers wait longer for their answers, and
/// each look meanwhile takes the cache lines away from the writers of the answers.
fn pauses_after(fibers: u64) -> u32 {
    u32::try_from(1 + fibers / FIBERS_PER_PAUSE).unwrap_or(PAUSES_MAX).min(PAUSES_MAX)
}

/// Returns the time of a wake-up. Tests use a constant, since other tests beside them would change the measurement.
fn wake_up_ns() -> u64 {
    if cfg!(test) { 50_000 } else { park::wake_up_ns() }
}

/// Tells whether a foreign thread is assumed to compute on the core of a lingering worker: after a yield that took
/// longer than `CONTESTED_NS`, for a multiple of that time.
#[derive(Debug, Default)]
pub struct Contested {
    until: Cell<Option<Instant>>,
}

impl Contested {
    /// Uncontested.
    #[must_use]
    pub const fn new() -> Self {
        Contested { until: Cell::new(None) }
    }

    /// Is the core contested now?
    #[must_use]
    pub fn is(&self, now: Instant) -> bool {
        self.until.get().is_some_and(|until| now < until)
    }

    /// Notes a yield at that time, and how long it took.
    pub fn yielded(&self, at: Instant, took: Duration) {
        if nanos(took) > CONTESTED_NS {
            self.until.set(at.checked_add(CONTESTED_YIELDS * took.min(CONTESTED_MAX)));
        }
    }
}

/// Idle time before a worker announces that it has no work, for the end of its pool.
const MARKED_AFTER: Duration = Duration::from_micros(20);

/// Time that a worker may still poll beyond the minimum and find nothing.
struct SpinBudget {
    /// Balance at the time `at`.
    balance_ns: Cell<u64>,
    at: Cell<Instant>,
}

impl SpinBudget {
    fn new(now: Instant) -> Self {
        // The maximum.
        SpinBudget { balance_ns: Cell::new(u64::MAX), at: Cell::new(now) }
    }

    /// Returns the balance. It grows by one part in [`BUDGET_PARTS`] of time, up to [`BUDGET_SPINS`] spins.
    fn balance_ns(&self, now: Instant, spin_ns: u64) -> u64 {
        let earned = nanos(now.duration_since(self.at.get())) / BUDGET_PARTS;
        self.balance_ns.get().saturating_add(earned).min(spin_ns.saturating_mul(BUDGET_SPINS))
    }

    /// Charges polling that found nothing.
    fn pay(&self, now: Instant, ns: u64, spin_ns: u64) {
        self.balance_ns.set(self.balance_ns(now, spin_ns).saturating_sub(ns));
        self.at.set(now);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Sets the longest time that the calling thread polls, from now on, before it sleeps while it waits for other threads'
/// answers: 500 µs unless it is set, nothing under a CPU quota; no more than a second. The actual time follows from the
/// time of a wake-up on this machine, and from how often polling was of use. With zero it never polls.
///
/// For threads that are not workers of a pool: those have [`Builder::spin`](crate::Builder::spin). A thread that waits
/// next to others of this process on the same core gives them the core at once, with any setting.
///
/// ```
/// let pool = trust::Threadpool::new(1);
/// let counter = pool.entrust(0);
/// std::thread::spawn(move || {
///     // A thread that asks seldom, and need not have its answers soon.
///     trust::set_spin(std::time::Duration::ZERO);
///     counter.apply(|c| *c += 1);
/// })
/// .join()
/// .unwrap();
/// ```
///
/// # Panics
/// In destructors of thread-locals that run after the thread's worker has ended.
pub fn set_spin(spin: Duration) {
    crate::runtime::worker::with(|worker| worker.idle.set_spin(nanos(spin)));
}

/// Makes the calling thread's worker linger for this time when it is idle, if that is possible: under a CPU quota it
/// would use that up. Not for programs.
pub fn set_linger(linger: Duration) {
    let linger_ns = if crate::cores::quota().is_some() { 0 } else { nanos(linger) };
    crate::runtime::worker::with(|worker| worker.idle.linger_ns.set(linger_ns));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SPIN_NS: u64 = 500_000;
    const SPIN: Duration = Duration::from_nanos(SPIN_NS);

    /// Runs an idle period that begins at `now` and in which nothing comes. Returns how long the worker polls in it
    /// before it sleeps.
    fn fruitless_period(idle: &Idle, now: Instant) -> Duration {
        let mut polled = Duration::ZERO;
        while idle.next_step(now + polled, nanos(polled), || false) == Step::Poll {
            polled += Duration::from_nanos(500);
        }
        idle.pay(now + polled, now);
        polled
    }

    #[test]
    fn fruitless_polling_takes_a_bounded_part_of_time() {
        let idle = Idle::new(SPIN_NS);
        let start = Instant::now();
        let (mut now, mut beyond) = (start, Duration::ZERO);
        for period in 0..1000 {
            let this = fruitless_period(&idle, now);
            assert!(this <= SPIN + Duration::from_micros(1));
            assert!(period >= BUDGET_SPINS || this >= SPIN, "it has a budget at first");
            beyond += this.saturating_sub(Duration::from_nanos(idle.always_ns()));
            now += this + Duration::from_millis(2);
        }
        let took = now.duration_since(start).as_secs_f64();
        let bound = took / BUDGET_PARTS as f64 + SPIN.as_secs_f64() * (BUDGET_SPINS + 1) as f64;
        assert!(beyond.as_secs_f64() < bound, "{beyond:?} of {took} s");
    }

    #[test]
    fn after_a_second_of_fruitless_polling_it_polls_again_within_100_ms_of_its_paying() {
        let idle = Idle::new(SPIN_NS);
        let start = Instant::now();
        let mut now = start;
        let mut last = SPIN;
        while now < start + Duration::from_secs(1) {
            last = fruitless_period(&idle, now);
            now += last;
        }
        assert!(last < SPIN, "its budget is used up: it polls for {last:?}");
        assert!(last > Duration::ZERO);
        // From here on an event comes after this time, whenever it waits.
        let gap = SPIN * 4 / 5;
        let paying = now;
        while idle.next_step(now + gap, nanos(gap), || false) != Step::Poll {
            // It sleeps before, and is woken then.
            fruitless_period(&idle, now);
            now += gap;
            assert!(now < paying + Duration::from_millis(100), "it still sleeps");
        }
    }

    #[test]
    fn beside_another_thread_it_gives_the_core_away_then_sleeps() {
        let idle = Idle::new(SPIN_NS);
        let now = Instant::now();
        for _ in 0..YIELDS {
            assert_eq!(idle.next_step(now, 0, || true), Step::Yield);
            idle.yields.set(idle.yields.get() + 1);
        }
        assert_eq!(idle.next_step(now, 0, || true), Step::Sleep);
        assert_eq!(idle.next_step(now, 0, || false), Step::Poll, "it has gone");
    }

    #[test]
    fn for_timers_it_polls_from_its_budget_alone() {
        let idle = Idle::new(SPIN_NS);
        let now = Instant::now();
        idle.budget.pay(now, u64::MAX, SPIN_NS);
        assert_eq!(idle.next_step(now, 0, || false), Step::Poll);
        idle.timer_fired();
        idle.reset();
        assert_eq!(idle.next_step(now, 0, || false), Step::Sleep, "a timer came");
        idle.reset();
        assert_eq!(idle.next_step(now, 0, || false), Step::Poll, "something else came");
    }

    #[test]
    fn it_looks_less_often_where_more_fibers_wait() {
        assert_eq!([0, 1, 15, 16, 47, 48, u64::MAX].map(pauses_after), [1, 1, 1, 2, 3, 4, 4]);
        let idle = Idle::new(SPIN_NS);
        (0..4).for_each(|_| idle.fibers_ran(16));
        crate::runtime::worker::with(|worker| idle.rest(worker));
        assert_eq!((idle.pauses.get(), idle.turns.get()), (4, 4));
        idle.reset();
        // Other fibers were served in between.
        crate::runtime::worker::with(|worker| idle.rest(worker));
        assert_eq!((idle.pauses.get(), idle.turns.get()), (4, 4));
        idle.reset();
        idle.fibers_ran(1);
        crate::runtime::worker::with(|worker| idle.rest(worker));
        assert_eq!((idle.pauses.get(), idle.turns.get()), (1, 1));
    }

    #[test]
    fn one_that_lingers_gives_the_core_away_unless_somebody_computes_there() {
        let idle = Idle::new(0);
        idle.linger_ns.set(SPIN_NS);
        let now = Instant::now();
        for _ in 0..10 * YIELDS {
            assert_eq!(idle.next_step(now, SPIN_NS - 1, || true), Step::Yield);
            idle.yielded(now, Duration::from_nanos(CONTESTED_NS));
        }
        assert_eq!(idle.next_step(now, SPIN_NS, || false), Step::Sleep, "it is over");
        let took = Duration::from_nanos(CONTESTED_NS + 1);
        idle.yielded(now, took);
        assert_eq!(idle.next_step(now + took, 0, || false), Step::Sleep, "somebody has the core");
        assert_eq!(idle.next_step(now + CONTESTED_YIELDS * took, 0, || false), Step::Yield, "it tries again");
    }

    #[test]
    fn without_spin_nobody_polls() {
        let idle = Idle::new(0);
        assert_eq!(idle.next_step(Instant::now(), 0, || false), Step::Yield);
        idle.yields.set(YIELDS);
        assert_eq!(idle.next_step(Instant::now(), 0, || false), Step::Sleep);
    }
}
