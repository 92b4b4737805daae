//! Points in time by which something must be over.
//!
//! Here: ends of waits, and saturating sums of instants and durations, for this crate and those above.
//! `Instant + Duration` panics on overflow, which a limit such as [`Duration::MAX`] ("never") causes: the
//! lint `arithmetic_side_effects` denies it. (`trust::link` has the same two functions: neither crate depends
//! on the other.)

use std::time::{Duration, Instant};

/// A century is as good as no end. The clock of every system can represent a time so far from now.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Returns the time `time` from now; a century from now on overflow.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// assert!(comm::deadline::deadline_after(Duration::MAX) > Instant::now() + Duration::from_secs(3600));
/// ```
#[must_use]
pub fn deadline_after(time: Duration) -> Instant {
    later(Instant::now(), time)
}

/// Returns the time `time` after `start`; a century after it on overflow, and `start` itself where even that
/// overflows.
#[must_use]
pub fn later(start: Instant, time: Duration) -> Instant {
    start.checked_add(time).or_else(|| start.checked_add(FAR)).unwrap_or(start)
}

/// End of a wait; `None` where the clock cannot represent it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// Deadline `timeout` from now.
    pub(crate) fn after(timeout: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(timeout))
    }

    /// Returns the time left: zero when it has passed, [`Duration::MAX`] where there is no end.
    pub(crate) fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_beyond_the_clock_does_not_pass() {
        assert_eq!(Deadline::after(Duration::MAX).left(), Duration::MAX);
        assert_eq!(Deadline::after(Duration::ZERO).left(), Duration::ZERO);
        let left = Deadline::after(Duration::from_secs(60)).left();
        assert!(left > Duration::from_secs(30) && left <= Duration::from_secs(60), "{left:?}");
    }

    #[test]
    fn sums_of_times_saturate() {
        let start = Instant::now();
        assert_eq!(later(start, Duration::from_secs(1)), start + Duration::from_secs(1));
        for time in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(i64::MAX as u64), FAR] {
            assert_eq!(later(start, time), start + FAR);
        }
        let end = later(start, Duration::from_secs(i64::MAX as u64 / 2));
        assert!(end > start + FAR);
        assert_eq!(later(end, Duration::from_secs(i64::MAX as u64 / 2 + 1)), end + FAR);
        assert!(deadline_after(Duration::MAX) >= start + FAR);
    }
}
