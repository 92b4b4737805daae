//! Points in time by which something has to be over.

use std::time::{Duration, Instant};

/// The end of a wait; none where it lies beyond what the clock can tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// `timeout` from now on.
    pub(crate) fn after(timeout: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(timeout))
    }

    /// Time left: zero when it has passed, [`Duration::MAX`] where there is no end.
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
}
