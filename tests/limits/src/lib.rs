//! How long tests wait. Nearly all such limits only catch hangs: no test passes or fails by one of these on a machine
//! that works, however loaded that machine is. For them there are [`HANG`], for single waits, and [`Clock`], for
//! whoever watches a whole program.
//!
//! A few times are the very requirement, such as how soon a program ends after one of its machines. Load stretches
//! them, so they are judged only where nothing runs beside the test ([`bound`]). Such tests are named `timed_…`; `cargo
//! dev timed` runs them, one at a time.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// For one wait that takes seconds at most on an idle machine.
pub const HANG: Duration = Duration::from_secs(300);

/// The variable that `cargo dev timed` sets: nothing runs beside the tests.
pub const ALONE: &str = "GOSSAMER_TESTS_ALONE";

/// The longest that something may take which is required to take no longer than `required`: so long where nothing runs
/// beside the test, else [`HANG`]. For tests named `timed_…`.
#[must_use]
pub fn bound(required: Duration) -> Duration {
    bound_where(are_alone(), required)
}

/// Whether nothing runs beside the tests: see [`ALONE`].
#[must_use]
pub fn are_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

fn bound_where(is_alone: bool, required: Duration) -> Duration {
    if is_alone { required } else { HANG.max(required) }
}

/// Waits until it is so.
///
/// # Panics
/// If it is not so after [`HANG`].
#[track_caller]
pub fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < HANG, "waited {HANG:?} for this: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Steps of [`work`] that are timed at a time.
const STEPS: u64 = 40_000_000;
/// How long they take on an idle machine of the slower kind; this package is optimised in debug builds too.
const IDLE: Duration = Duration::from_millis(60);
/// The most that a machine counts as slower than that one.
const SLOWEST: f64 = 100.0;
/// How often the clock is set by its owner at most, and the part of the time that setting it takes at most.
const PERIOD: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;

/// A clock that goes as fast as the machine: on an idle one a second takes a second, on one that is loaded or emulated
/// so many seconds as it takes to do the work of one. Whoever waits for something asks it again and again
/// ([`Clock::period`]).
#[derive(Debug)]
pub struct Clock {
    last: Instant,
    shown: Duration,
    period: Duration,
}

impl Clock {
    /// A clock that shows nothing yet.
    #[must_use]
    pub fn start() -> Clock {
        Clock { last: Instant::now(), shown: Duration::ZERO, period: PERIOD }
    }

    /// How long to wait before the clock is asked again. Not much longer: the machine is taken to have been as slow all
    /// the time as it is when it is asked.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// The time that this clock shows now. Does some work, by which it sees how slow the machine is; so long that
    /// others get their turns meanwhile, where there are any.
    pub fn shown(&mut self) -> Duration {
        let took = work();
        self.period = PERIOD.max(took * SHARE);
        self.advance(self.last.elapsed(), took);
        self.last = Instant::now();
        self.shown
    }

    /// So much time has passed, on a machine that takes so long for the steps.
    fn advance(&mut self, passed: Duration, took: Duration) {
        let slowness = (took.as_secs_f64() / IDLE.as_secs_f64()).clamp(1.0, SLOWEST);
        self.shown += passed.div_f64(slowness);
    }
}

/// How long this machine takes for the steps now.
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
