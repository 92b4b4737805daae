//! When operations are due, and how late they were: the clock of every open-loop client.

use crate::prelude::*;
use crate::report::empty_histogram;
use hdrhistogram::Histogram;
use quanta::Clock;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::Exp1;
use std::sync::OnceLock;

const GAPS: usize = 1 << 14;
const FRACTION_BITS: u32 = 10;

/// Times at which one client's operations are due, in nanoseconds since its start; without end.
#[derive(Debug)]
pub struct Schedule {
    gaps: Box<[u64]>,
    next: usize,
    due: u64,
}

impl Schedule {
    /// `rate_hz` operations a second, with exponential gaps.
    pub fn new(rate_hz: f64, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mean = 1e9 / rate_hz * f64::from(1 << FRACTION_BITS);
        let gaps = (0..GAPS).map(|_| (mean * rng.sample::<f64, _>(Exp1)) as u64);
        Self { gaps: gaps.collect(), next: 0, due: 0 }
    }

    /// When the next operation is due.
    #[inline(always)]
    pub fn next_ns(&mut self) -> u64 {
        self.due += self.gaps[self.next & (GAPS - 1)];
        self.next += 1;
        self.due >> FRACTION_BITS
    }
}

/// The moment from which all clients of a run count: one that the scheduler lets begin late is behind.
#[derive(Debug, Default)]
pub struct Epoch(OnceLock<(u64, Instant)>);

/// From the first client's being ready to the start, so that the others are ready too.
const LEAD: Duration = Duration::from_millis(2);

impl Epoch {
    /// A client is ready: its recorder counts from the common start.
    pub fn join(&self) -> Recorder {
        let clock = Clock::new();
        let histogram = empty_histogram();
        let &(ready, start) = self.0.get_or_init(|| (clock.raw(), Instant::now() + LEAD));
        Recorder { clock, ready, start, histogram }
    }
}

/// A client's clock and its latencies.
#[derive(Debug)]
pub struct Recorder {
    clock: Clock,
    /// The clock's value `LEAD` before the start.
    ready: u64,
    start: Instant,
    histogram: Histogram<u64>,
}

impl Recorder {
    /// When operations begin to be due.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Nanoseconds since the start; 0 before.
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        self.clock.delta_as_nanos(self.ready, self.clock.raw()).saturating_sub(LEAD.as_nanos() as u64)
    }

    /// An operation that was due at `due_ns` is complete at `now_ns`.
    #[inline(always)]
    pub fn record(&mut self, due_ns: u64, now_ns: u64) {
        self.histogram.saturating_record(now_ns.saturating_sub(due_ns));
    }

    pub fn into_histogram(self) -> Histogram<u64> {
        self.histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_keep_their_rate() {
        let (mut schedule, mut last) = (Schedule::new(1e6, 3), 0);
        for _ in 0..GAPS {
            let due = schedule.next_ns();
            assert!(due >= last);
            last = due;
        }
        let mean_ns = last as f64 / GAPS as f64;
        assert!((mean_ns - 1000.0).abs() < 30.0, "a gap of {mean_ns} ns instead of 1000");
    }

    #[test]
    fn latency_counts_from_when_the_operation_was_due() {
        let mut recorder = Epoch::default().join();
        recorder.record(100, 350);
        recorder.record(400, 350);
        let histogram = recorder.into_histogram();
        assert_eq!((histogram.len(), histogram.max()), (2, 250));
    }
}
