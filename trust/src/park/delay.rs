//! Time to wake a thread on this machine: from the waker's decision until the sleeper runs. Learned from the start of
//! each worker of a pool, which wakes the thread that waits for it, then from each sleep that another thread of this
//! process ended.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Delay until one was measured: about the time in a virtual machine.
const FIRST_NS: u64 = 50_000;
/// A shorter time is no wake-up: the thread was awake.
const SHORTEST_NS: u64 = 1_000;
/// A longer time occurs only where another thread has the core, and does not predict the next wake-up.
const LONGEST_NS: u64 = 250_000;
/// Weight of each new sample in the mean: one part in this many.
const PARTS: u64 = 8;

/// A moving mean of all threads. Two that write at once lose one sample.
static MEAN_NS: AtomicU64 = AtomicU64::new(FIRST_NS);

/// Returns the time of a wake-up, in nanoseconds.
pub(crate) fn wake_up_ns() -> u64 {
    MEAN_NS.load(Ordering::Relaxed)
}

/// Notes the time from the notification of a waiting thread until it ran again.
pub(crate) fn learn_wake_up(took: Duration) {
    learn(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}

fn learn(sample_ns: u64) {
    MEAN_NS.store(mean(wake_up_ns(), sample_ns), Ordering::Relaxed);
}

/// Time at which one sleeper was woken last.
#[derive(Default)]
pub(super) struct WokenAt(AtomicU64);

impl WokenAt {
    /// Waker: notes the time.
    pub(super) fn note(&self) {
        self.0.store(now_ns(), Ordering::Relaxed);
    }

    /// Sleeper: runs again, after a sleep that began at `start`. Returns the time of its wake-up, if it was woken.
    pub(super) fn learn(&self, start: Instant) -> Option<u64> {
        let (woken, now) = (self.0.load(Ordering::Relaxed), now_ns());
        let slept_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Not where an earlier sleep was woken, or this one not at all.
        (woken > now.saturating_sub(slept_ns)).then(|| {
            let took_ns = now.saturating_sub(woken);
            learn(took_ns);
            took_ns
        })
    }
}

fn mean(before: u64, sample: u64) -> u64 {
    if !(SHORTEST_NS..=LONGEST_NS).contains(&sample) { before } else { before - before / PARTS + sample / PARTS }
}

/// Nanoseconds since the first call, plus one.
fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let ns = START.get_or_init(Instant::now).elapsed().as_nanos();
    u64::try_from(ns).unwrap_or(u64::MAX - 1) + 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_what_is_measured_but_not_cores_that_are_taken_away() {
        let after = |samples: &[u64]| samples.iter().fold(FIRST_NS, |before, &sample| mean(before, sample));
        assert!((4_900..5_100).contains(&after(&[5_000; 100])), "{}", after(&[5_000; 100]));
        assert!((99_000..=100_000).contains(&after(&[100_000; 100])), "{}", after(&[100_000; 100]));
        assert_eq!(after(&[4_000_000; 100]), FIRST_NS);
        assert_eq!(after(&[300; 100]), FIRST_NS, "nobody slept");
    }
}
