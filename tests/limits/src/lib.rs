//! Time limits of tests. Nearly all of them only catch hangs: no test passes or fails by one of these on a machine that
//! works, however loaded that machine is. [`HANG`] is for single waits, [`Clock`] for watching a whole program.
//!
//! A few times are the very requirement, such as how soon a program ends after one of its machines. Load stretches
//! them, so they are judged only where nothing runs beside the test ([`bound`]). Such tests are named `timed_…`; `cargo
//! dev timed` runs them, one at a time.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Limit of one wait that takes seconds at most on an idle machine.
pub const HANG: Duration = Duration::from_secs(300);

/// Variable that `cargo dev timed` sets: nothing runs beside the tests.
pub const ALONE: &str = "GOSSAMER_TESTS_ALONE";

/// Part of the names of tests that judge such times.
pub const TIMED: &str = "timed_";

/// Returns the limit of an operation that must take no longer than `required`: `required` where nothing runs beside the
/// test, else [`HANG`]. For tests named `timed_…`.
#[must_use]
pub fn bound(required: Duration) -> Duration {
    bound_where(are_alone(), required)
}

/// Returns whether nothing runs beside the tests: see [`ALONE`].
#[must_use]
pub fn are_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

fn bound_where(is_alone: bool, required: Duration) -> Duration {
    if is_alone { required } else { HANG.max(required) }
}

/// Waits until `is_done` returns true.
///
/// # Panics
/// If it does not after [`HANG`].
#[track_caller]
pub fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < HANG, "waited {HANG:?} for this: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Steps that one run of [`work`] times.
const STEPS: u64 = 40_000_000;
/// Time for them on an idle machine of the slower kind; this package is optimised in debug builds too.
const IDLE: Duration = Duration::from_millis(60);
/// Largest factor by which a machine counts as slower than that one.
const SLOWEST: f64 = 100.0;
/// Shortest period between readings of the clock, and the largest share of the time that a reading may take (1/20).
const PERIOD: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;

/// A clock that goes as fast as the machine: on an idle one a second takes a second, on a loaded or emulated one as
/// many seconds as the work of one second takes there. The waiter reads it again and again ([`Clock::period`]).
#[derive(Debug)]
pub struct Clock {
    last: Instant,
    shown: Duration,
    period: Duration,
}

impl Clock {
    /// Returns a clock at zero.
    #[must_use]
    pub fn start() -> Clock {
        Clock { last: Instant::now(), shown: Duration::ZERO, period: PERIOD }
    }

    /// Returns the time until the next reading. Not much longer: the clock assumes that the machine was as slow all the
    /// time as it is at the reading.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns the time on this clock now. Does some work to measure how slow the machine is, for long enough that
    /// other processes get their turns meanwhile.
    pub fn shown(&mut self) -> Duration {
        let took = work();
        self.period = PERIOD.max(took * SHARE);
        self.advance(self.last.elapsed(), took);
        self.last = Instant::now();
        self.shown
    }

    /// Advances the clock by `passed`, on a machine that took `took` for the steps.
    fn advance(&mut self, passed: Duration, took: Duration) {
        let slowness = (took.as_secs_f64() / IDLE.as_secs_f64()).clamp(1.0, SLOWEST);
        self.shown += passed.div_f64(slowness);
    }
}

/// Returns the time that this machine takes for the steps now.
fn work() -> Duration {
    let start = Instant::now();
    let mut value = 1u64;
    for step in 0..STEPS {
        value = black_box(value).wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(step);
    }
    black_box(value);
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_as_fast_as_the_machine() {
        let shown = |passed: u64, took: Duration| {
            let mut clock = Clock::start();
            clock.advance(Duration::from_secs(passed), took);
            clock.shown
        };
        assert_eq!(shown(10, IDLE), Duration::from_secs(10));
        assert_eq!(shown(10, IDLE / 8), Duration::from_secs(10), "never faster than real time");
        assert_eq!(shown(10, IDLE * 5), Duration::from_secs(2));
        assert_eq!(shown(1000, IDLE * 10_000), Duration::from_secs(10), "and it never stands still");
    }

    #[test]
    fn the_clock_shows_no_more_than_has_passed() {
        let start = Instant::now();
        let mut clock = Clock::start();
        let shown = [clock.shown(), clock.shown()];
        assert!(Duration::ZERO < shown[0] && shown[0] < shown[1] && shown[1] <= start.elapsed(), "{shown:?}");
        assert!(clock.period() >= PERIOD);
    }

    #[test]
    fn a_requirement_is_judged_where_nothing_else_runs() {
        let required = Duration::from_secs(1);
        assert_eq!([bound_where(true, required), bound_where(false, required)], [required, HANG]);
    }

    #[test]
    fn what_comes_is_waited_for() {
        let mut looks = 0;
        wait_until("the third look", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }
}
