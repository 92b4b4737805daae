//! Detects that this process itself has stood still: then other hosts may have cut it off because they missed its signs
//! of life, and nothing is wrong with them.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Longest wait of the thread that looks.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Lateness of waits.
#[derive(Default)]
pub struct Stillness {
    /// Planned end of the current wait.
    wake_at: Duration,
    /// Length and end of the last long standstill.
    last: Option<(Duration, Duration)>,
}

/// Returns the time of a clock that goes on while the host is suspended.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

impl Stillness {
    /// Begins a wait of at most this length.
    pub fn start_wait(&mut self, at_most: Duration) {
        self.wake_at = now().saturating_add(at_most);
    }

    /// Ends the wait.
    pub fn end_wait(&mut self) {
        self.note(now());
    }

    fn note(&mut self, now: Duration) {
        let late = now.saturating_sub(self.wake_at);
        if late >= LOOK_INTERVAL {
            self.last = Some((late, now));
        }
    }

    /// Returns how long this process stood still, if that was just now and long enough for others to give it up at this
    /// limit of silence.
    pub fn was_still(&self, silence: Duration) -> Option<Duration> {
        self.was_still_at(now(), silence)
    }

    fn was_still_at(&self, now: Duration, silence: Duration) -> Option<Duration> {
        let (time, until) = self.last?;
        (time >= silence / 2 && now.saturating_sub(until) < silence).then_some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_end_late_are_remembered_for_a_while() {
        let s = Duration::from_secs;
        let silence = s(3);
        let mut stillness = Stillness { wake_at: s(100), last: None };
        stillness.note(s(100) + Duration::from_millis(300));
        assert_eq!(stillness.was_still_at(s(101), silence), None);
        stillness.note(s(104));
        assert_eq!(stillness.was_still_at(s(104), silence), Some(s(4)));
        stillness.wake_at = s(105);
        stillness.note(s(105)); // in time again
        assert_eq!(stillness.was_still_at(s(106), silence), Some(s(4)));
        assert_eq!(stillness.was_still_at(s(108), silence), None);
        assert_eq!(stillness.was_still_at(s(106), s(60)), None, "too short for that silence");
    }
}
