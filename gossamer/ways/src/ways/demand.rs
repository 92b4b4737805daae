//! Full batches of a pair over time: enough of them open a direct way, too few give it back.
//!
//! Invariant: counts are those of the present window and the one before it; older ones count for nothing.

/// Full batches within a window of time, and within the one before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Demand {
    /// Beginning of the present window. In the future after a refusal: nothing counts before.
    since_ns: u64,
    batches: u16,
    before: u16,
}

impl Demand {
    /// Counts so many batches.
    pub(super) fn note(&mut self, batches: u16, now_ns: u64, within_ns: u64) {
        if batches == 0 || now_ns < self.since_ns {
            return;
        }
        self.begin(now_ns, within_ns);
        self.batches = self.batches.saturating_add(batches);
    }

    /// Begins a window, if the last one is over.
    pub(super) fn begin(&mut self, now_ns: u64, within_ns: u64) {
        if now_ns.saturating_sub(self.since_ns) >= within_ns {
            *self = Demand { since_ns: now_ns, batches: 0, before: self.batches_lately(now_ns, within_ns) };
        }
    }

    /// Batches of the present window.
    pub(super) fn batches(self) -> u16 {
        self.batches
    }

    /// The larger count of the two windows, as far as they are not long over.
    pub(super) fn batches_lately(self, now_ns: u64, within_ns: u64) -> u16 {
        match now_ns.saturating_sub(self.since_ns) {
            age_ns if age_ns < within_ns => self.batches.max(self.before),
            age_ns if age_ns < within_ns.saturating_mul(2) => self.batches,
            _ => 0,
        }
    }

    /// Time since the beginning of the last window, which had a batch, or in which the way was made.
    pub(super) fn unused_ns(self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.since_ns)
    }

    /// Counts nothing for the time of a window.
    pub(super) fn pause(&mut self, now_ns: u64, within_ns: u64) {
        *self = Demand { since_ns: now_ns.saturating_add(within_ns), batches: 0, before: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_count_within_their_window() {
        let mut demand = Demand::default();
        for now_ns in [100, 110, 199] {
            demand.note(1, now_ns, 100);
        }
        assert_eq!((demand.batches(), demand.batches_lately(199, 100)), (3, 3));
        assert_eq!([200, 299, 300].map(|now_ns| demand.batches_lately(now_ns, 100)), [3, 3, 0]);
        demand.note(1, 250, 100);
        assert_eq!((demand.batches(), demand.batches_lately(250, 100)), (1, 3), "the window before counts for both");
        assert_eq!(demand.unused_ns(1250), 1000);
        demand.note(0, 500, 100);
        assert_eq!(demand.unused_ns(1250), 1000, "a small batch is no use");
    }

    #[test]
    fn a_pause_counts_nothing() {
        let mut demand = Demand::default();
        demand.pause(1000, 100);
        demand.note(1, 1099, 100);
        assert_eq!(demand.batches(), 0);
        demand.note(1, 1100, 100);
        assert_eq!(demand.batches(), 1);
    }
}
