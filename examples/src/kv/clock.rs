//! Time, in whole seconds since 1970, as items have it. 0 stands for never.
//!
//! It starts at the wall clock's time, as memcached's does: a wall clock that is set later lets no item expire, and
//! keeps none. The same on all machines as far as their clocks agree when they start.

use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

/// The longest time that counts as from now on, in seconds: 30 days. A longer one is a point in time.
const RELATIVE_MAX: i32 = 60 * 60 * 24 * 30;
/// A time that has passed long ago.
const PAST: u32 = 1;

/// Now. Cheap, and late by some milliseconds at most.
pub fn now() -> u32 {
    static START: OnceLock<Start> = OnceLock::new();
    START.get_or_init(Start::now).time(nanoseconds(ClockId::MonotonicCoarse))
}

/// Starts the clock.
pub fn start() {
    now();
}

/// The time since 1970 at which the monotonic clock began, in nanoseconds.
#[derive(Clone, Copy)]
struct Start(i64);

impl Start {
    fn now() -> Self {
        Start(nanoseconds(ClockId::RealtimeCoarse) - nanoseconds(ClockId::MonotonicCoarse))
    }

    /// The time when the monotonic clock says this.
    fn time(self, monotonic: i64) -> u32 {
        let seconds = self.0.saturating_add(monotonic) / 1_000_000_000;
        u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
    }
}

/// Enough until the year 2262.
fn nanoseconds(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// Expiry of an item, from the client's number: 0 for never, below 0 for at once, up to 30 days from now on in seconds,
/// beyond that seconds since 1970.
pub fn expiry(said: i32) -> u32 {
    match said {
        0 => 0,
        1..=RELATIVE_MAX => now().saturating_add(said.unsigned_abs()),
        _ => u32::try_from(said).unwrap_or(PAST),
    }
}

/// Is this over?
#[inline]
pub fn has_passed(at: u32) -> bool {
    at != 0 && at <= now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_the_start_whatever_the_wall_clock_says() {
        // The wall clock said 1000 s when the monotonic one said 10.5 s.
        let start = Start(989_500_000_000);
        let seconds = |seconds: i64| seconds * 1_000_000_000;
        assert_eq!([10, 11, 12].map(|monotonic| start.time(seconds(monotonic))), [999, 1000, 1001]);
        assert_eq!((Start(0).time(-1), Start(i64::MAX).time(1)), (0, u32::MAX));
        let wall = nanoseconds(ClockId::Realtime) / 1_000_000_000;
        assert!((i64::from(now()) - wall).abs() <= 1);
    }

    #[test]
    fn what_clients_say_becomes_a_point_in_time() {
        assert_eq!((expiry(0), expiry(-1), expiry(i32::MIN)), (0, PAST, PAST));
        assert!((now() + 99..=now() + 101).contains(&expiry(100)));
        assert_eq!(expiry(RELATIVE_MAX + 1), RELATIVE_MAX as u32 + 1);
        assert!(has_passed(expiry(-1)) && has_passed(expiry(RELATIVE_MAX + 1)));
        assert!(!has_passed(0) && !has_passed(expiry(100)) && !has_passed(expiry(i32::MAX)));
    }
}
