//! Deadlines of waits.
//!
//! Here: saturating sums of instants and durations, for this crate and the crates above. `Instant + Duration` panics if
//! the clock cannot represent the sum, as with a limit such as [`Duration::MAX`] ("never"): the lint
//! `arithmetic_side_effects` denies it.

use std::time::{Duration, Instant};

/// A century is as good as no deadline. The clock of every system can represent a time so far from now.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Returns the time `time` from now; a century from now if the clock cannot represent it.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// assert!(trust::link::deadline_after(Duration::MAX) > Instant::now() + Duration::from_secs(3600));
/// ```
#[must_use]
pub fn deadline_after(time: Duration) -> Instant {
    later(Instant::now(), time)
}

/// Returns the time `time` after `start`; a century after it if the clock cannot represent that, and `start` itself if
/// not even that.
#[must_use]
pub fn later(start: Instant, time: Duration) -> Instant {
    start.checked_add(time).or_else(|| start.checked_add(FAR)).unwrap_or(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_times_saturate() {
        let start = Instant::now();
        assert_eq!(later(start, Duration::from_secs(1)), start + Duration::from_secs(1));
        for time in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(i64::MAX as u64), FAR] {
            assert_eq!(later(start, time), start + FAR);
        }
        let mut last = start;
        for _ in 0..200 {
            // Near its end the clock stands still, and never goes back.
            let next = later(last, Duration::from_secs(i64::MAX as u64 / 100));
            assert!(next >= last);
            last = next;
        }
        assert!(last > start + FAR && deadline_after(Duration::MAX) >= start + FAR);
    }
}
