//! Memory and slots of arrays that have been dropped, and are about to be free: an array is not refused for want of
//! them.
//!
//! The last handle of an array may be dropped anywhere, and its memory goes some turns of the workers later. Nothing
//! tells of the time between, so a refusal is put off for a while, if there are arrays that may be ending.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gossamer::{JoinHandle, NoRef, Place};

/// A refusal is final after so long, and so many rounds of all places.
const REFUSAL_DELAY: Duration = Duration::from_millis(500);
const ROUNDS: usize = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// Bytes that parts of this process have. Relaxed: a hint, by which nothing is reached.
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The memory of one part, as it is counted.
pub(crate) struct Held(u64);

impl Held {
    pub(crate) fn new(bytes: u64) -> Held {
        BYTES.fetch_add(bytes, Ordering::Relaxed);
        Held(bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Bytes that a machine has left by `left`, which is asked there: if they are too few, but not with those of its
/// arrays, waits for arrays that end.
pub(crate) fn left_for<F>(bytes: u64, machine: u16, left: F) -> u64
where
    F: Fn() -> u64 + NoRef + Send + Copy + 'static,
{
    let ask = || {
        let asked = gossamer::spawn_on(Place::of(machine, 0), move || (left(), BYTES.load(Ordering::Relaxed)));
        joined(asked)
    };
    let mut last = 0;
    retry(|| {
        let (left, held) = ask();
        last = left;
        if left >= bytes || left.saturating_add(held) < bytes { Some(()) } else { None }
    });
    last
}

/// Tries until there is an outcome, while arrays may be ending.
pub(crate) fn retry<R>(mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
    let start = Instant::now();
    let mut rounds = 0;
    loop {
        if let Some(outcome) = attempt() {
            return Some(outcome);
        }
        if rounds >= ROUNDS && start.elapsed() >= REFUSAL_DELAY {
            return None;
        }
        rounds += 1;
        // Each worker has its turns, in which it reclaims what nobody holds any more, and drops its parts.
        let turns: Vec<_> = gossamer::rack().places().map(|place| gossamer::spawn_on(place, || ())).collect();
        turns.into_iter().for_each(joined);
        gossamer::sleep(PAUSE);
    }
}

fn joined<R>(fiber: JoinHandle<R>) -> R {
    fiber.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
