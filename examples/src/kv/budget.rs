//! Memory of a server's connections beyond the buffers of each: for large values that arrive, and for replies until
//! clients read them. It is a part of the items' memory, so that no number of slow clients takes much more than
//! `--memory`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The part of the items' memory that connections may have, and the least.
const PART: usize = 4;
const BYTES_MIN: usize = 8 << 20;
/// Time for which a connection waits until others give memory back.
const WAIT_LIMIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(2);

/// See the file's documentation.
pub struct Budget {
    bytes: usize,
    /// Relaxed: a sum, by which nothing is reached.
    taken: AtomicUsize,
}

impl Budget {
    /// Makes the budget of a server with this much memory for its items.
    pub fn of(memory_bytes: usize) -> Arc<Budget> {
        Arc::new(Budget { bytes: (memory_bytes / PART).max(BYTES_MIN), taken: AtomicUsize::new(0) })
    }

    fn try_take(&self, bytes: usize) -> bool {
        let more = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.bytes);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A part of the budget, given back with its value.
pub struct Part {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Part {
    /// Makes a part without memory.
    pub fn new(budget: &Arc<Budget>) -> Part {
        Part { budget: Arc::clone(budget), bytes: 0 }
    }

    /// Whether it has so many bytes now. Gives back the rest.
    pub fn try_have(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes && !self.budget.try_take(bytes - self.bytes) {
            return false;
        }
        if bytes < self.bytes {
            self.budget.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }

    /// Same as [`try_have`](Self::try_have), and waits for others for a while.
    pub fn have(&mut self, bytes: usize) -> bool {
        if self.try_have(bytes) {
            return true;
        }
        let start = Instant::now();
        while start.elapsed() < WAIT_LIMIT {
            trust::sleep(PAUSE);
            if self.try_have(bytes) {
                return true;
            }
        }
        false
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_given_than_there_is() {
        let budget = Budget::of(64 << 20);
        let (mut one, mut two) = (Part::new(&budget), Part::new(&budget));
        assert!(one.try_have(12 << 20) && two.try_have(4 << 20) && !two.try_have((4 << 20) + 1));
        assert_eq!((one.bytes(), two.bytes()), (12 << 20, 4 << 20), "a refusal changes nothing");
        assert!(one.try_have(1 << 20) && two.try_have(15 << 20) && !two.have(16 << 20));
        drop(one);
        assert!(two.have(16 << 20) && !two.try_have(usize::MAX));
        drop(two);
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0);
        assert_eq!(Budget::of(0).bytes, BYTES_MIN);
    }
}
