//! How long it takes here to wake a thread: from the waker's decision until the sleeper runs. Learned from the start of
//! each worker of a pool, which wakes the thread that waits for it, then from each sleep that another thread of this
//! process ended.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Until one was measured: about what a virtual machine takes.
const FIRST_NS: u64 = 50_000;
/// Sooner than this nobody is woken: it was awake.
const SHORTEST_NS: u64 = 1_000;
/// Longer than this a wake-up takes only where somebody else has the core. That says nothing of the next.
const LONGEST_NS: u64 = 250_000;
/// Each new one counts for so much of the mean: one part in so many.
const PARTS: u64 = 8;

/// A moving mean of all threads. Two that write at once lose one sample.
static MEAN_NS: AtomicU64 = AtomicU64::new(FIRST_NS);

/// How long a wake-up takes, in nanoseconds.
pub(crate) fn wake_up_ns() -> u64 {
    MEAN_NS.load(Ordering::Relaxed)
}

/// A thread that waited for another was awake again so long after that one had told it.
pub(crate) fn learn_wake_up(took: Duration) {
    learn(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}

fn learn(sample_ns: u64) {
    MEAN_NS.store(mean(wake_up_ns(), sample_ns), Ordering::Relaxed);
}

/// When one sleeper was woken last.
#[derive(Default)]
pub(super) struct WokenAt(AtomicU64);

impl WokenAt {
    /// Waker: now.
    pub(super) fn note(&self) {
        self.0.store(now_ns(), Ordering::Relaxed);
    }

    /// Sleeper: runs again, after a sleep that began then. How long it took to wake it, if it was woken.
    pub(super) fn learn(&self, start: Instant) -> Option<u64> {
        let (woken, now) = (self.0.load(Ordering::Relaxed), now_ns());
        let slept_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Not where somebody woke an earlier sleep, or nobody this one.
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

/// Nanoseconds since the first call, and one more.
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
