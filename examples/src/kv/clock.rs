//! Time, in whole seconds since 1970, as items have it. 0 stands for never.
//!
//! The same on all machines as far as their clocks agree.

use rustix::time::{ClockId, clock_gettime};

/// The longest time that counts as from now on, in seconds: 30 days. What is longer is a point in time.
const RELATIVE_MAX: i32 = 60 * 60 * 24 * 30;
/// A time that has passed long ago.
const PAST: u32 = 1;

/// Now. Cheap, and late by some milliseconds at most.
pub fn now() -> u32 {
    u32::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(u32::MAX)
}

/// When an item expires, from what the client says: 0 for never, below 0 for at once, up to 30 days from now on in seconds,
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
    fn what_clients_say_becomes_a_point_in_time() {
        assert_eq!((expiry(0), expiry(-1), expiry(i32::MIN)), (0, PAST, PAST));
        assert!((now() + 99..=now() + 101).contains(&expiry(100)));
        assert_eq!(expiry(RELATIVE_MAX + 1), RELATIVE_MAX as u32 + 1);
        assert!(has_passed(expiry(-1)) && has_passed(expiry(RELATIVE_MAX + 1)));
        assert!(!has_passed(0) && !has_passed(expiry(100)) && !has_passed(expiry(i32::MAX)));
    }
}
