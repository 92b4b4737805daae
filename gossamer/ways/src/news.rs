//! Which machine ways have news, and the lock of those that see to one.
//!
//! Nobody is in charge of a machine way: whichever worker finds news deals them out, and whichever adds a frame to an
//! idle way sends it. Nobody waits for another that does so. Two rules keep a frame from being left behind:
//!
//! - the bit of a way is cleared before its writes are looked at, so a write that comes behind the look sets it anew;
//! - a worker that finds the lock taken says so in the lock, and the holder does its work once more before it leaves.
//!
//! [`SharedLock`] is the lock in memory that threads share. A running rack has no bits: there the flags of the next
//! writes are looked at. Not here: the writes themselves (`machine`).
//! Invariant, searched in `search/wakes.rs`: whenever all workers sleep, there is nothing to deal out or to send.

use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each machine way: something may have come by it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct News {
    words: Vec<u64>,
    /// Word from which the next search begins, so that no way starves.
    next: usize,
}

impl News {
    /// No news of so many machines.
    pub fn new(machines: usize) -> News {
        News { words: vec![0; machines.div_ceil(64)], next: 0 }
    }

    /// Bytes that a look touches, if there are no news.
    pub fn bytes(machines: usize) -> usize {
        machines.div_ceil(64) * size_of::<u64>()
    }

    /// Something has come from a machine.
    pub fn set(&mut self, machine: u16) {
        self.words[usize::from(machine) / 64] |= 1 << (machine % 64);
    }

    /// Takes one of the machines with news, and clears its bit: before its writes are looked at.
    pub fn take(&mut self) -> Option<u16> {
        let count = self.words.len();
        let at = (0..count).map(|i| (self.next + i) % count).find(|at| self.words[*at] != 0)?;
        let bit = self.words[at].trailing_zeros();
        self.words[at] &= self.words[at] - 1;
        self.next = (at + 1) % count;
        Some((at * 64) as u16 + bit as u16)
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }
}

/// Lock that nobody waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum TryLock {
    /// Nobody has it.
    #[default]
    Free,
    /// Somebody has it.
    Held,
    /// Somebody has it and has to do its work again.
    HeldWithMore,
}

impl TryLock {
    /// Takes the lock. Where somebody else has it, leaves the work to the holder.
    #[must_use]
    pub fn try_take(&mut self) -> bool {
        let is_taken = *self == TryLock::Free;
        *self = if is_taken { TryLock::Held } else { TryLock::HeldWithMore };
        is_taken
    }

    /// Gives the lock back and returns false, or keeps it and returns true: the work has to be done again.
    #[must_use]
    pub fn has_more_or_give_back(&mut self) -> bool {
        let has_more = *self == TryLock::HeldWithMore;
        *self = if has_more { TryLock::Held } else { TryLock::Free };
        has_more
    }
}

/// [`TryLock`] that threads share. Each method changes it in one step.
#[derive(Default, Debug)]
pub struct SharedLock(AtomicU8);

impl SharedLock {
    /// See [`TryLock::try_take`].
    #[must_use]
    pub fn try_take(&self) -> bool {
        self.change(TryLock::try_take)
    }

    /// See [`TryLock::has_more_or_give_back`].
    #[must_use]
    pub fn has_more_or_give_back(&self) -> bool {
        self.change(TryLock::has_more_or_give_back)
    }

    /// Gives the lock back in any case. Returns whether there was more to do.
    pub fn give_back(&self) -> bool {
        self.change(|lock| std::mem::take(lock) == TryLock::HeldWithMore)
    }

    /// Has nobody taken it?
    pub fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == TryLock::Free as u8
    }

    fn change<R>(&self, step: impl Fn(&mut TryLock) -> R) -> R {
        let mut before = self.0.load(Ordering::Relaxed);
        loop {
            let mut lock = match before {
                0 => TryLock::Free,
                1 => TryLock::Held,
                _ => TryLock::HeldWithMore,
            };
            let result = step(&mut lock);
            // AcqRel, with all other changes: a holder that finds more to do sees what the other one saw before it said
            // so, and the next holder sees what the last one did.
            match self.0.compare_exchange_weak(before, lock as u8, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return result,
                Err(now) => before = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_taken_once_and_no_machine_starves() {
        let mut news = News::new(1000);
        for machine in [0, 63, 64, 999] {
            news.set(machine);
        }
        news.set(63);
        let mut taken: Vec<u16> = std::iter::from_fn(|| news.take()).collect();
        assert!(news.is_empty());
        taken.sort_unstable();
        assert_eq!(taken, [0, 63, 64, 999]);
        news.set(500);
        for _ in 0..16 {
            news.set(3);
            if news.take() == Some(500) {
                return;
            }
        }
        panic!("a machine that always has news keeps another one from its turn");
    }

    #[test]
    fn a_holder_hears_of_those_that_came_meanwhile() {
        let mut lock = TryLock::default();
        assert!(lock.try_take());
        assert!(!lock.try_take() && !lock.try_take());
        assert!(lock.has_more_or_give_back(), "work came while it was held");
        assert!(!lock.has_more_or_give_back());
        assert!(lock.try_take());
    }

    #[test]
    fn the_shared_lock_has_the_same_steps() {
        let lock = SharedLock::default();
        assert!(lock.is_free() && lock.try_take() && !lock.is_free());
        assert!(!lock.has_more_or_give_back() && lock.try_take());
        assert!(!lock.try_take() && !lock.try_take());
        assert!(lock.has_more_or_give_back() && !lock.is_free());
        assert!(!lock.try_take() && lock.give_back(), "there is more, and it is given back all the same");
        assert!(lock.is_free() && lock.try_take() && !lock.give_back());
    }

    /// Threads add to a number and take the lock to carry it over; nobody waits for the lock, and nothing is left.
    #[test]
    fn nothing_is_left_behind_by_threads() {
        use std::sync::atomic::AtomicU64;
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 20_000;
        let (lock, added, holders) = (SharedLock::default(), AtomicU64::new(0), AtomicU64::new(0));
        let carried = AtomicU64::new(0);
        let work = || {
            for _ in 0..ROUNDS {
                // Relaxed: the lock orders it.
                added.fetch_add(1, Ordering::Relaxed);
                if !lock.try_take() {
                    continue;
                }
                loop {
                    assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0, "one holder");
                    carried.store(added.load(Ordering::Relaxed), Ordering::Relaxed);
                    holders.fetch_sub(1, Ordering::Relaxed);
                    if !lock.has_more_or_give_back() {
                        break;
                    }
                }
            }
        };
        std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
        assert_eq!(carried.load(Ordering::Relaxed), THREADS * ROUNDS);
        assert!(lock.is_free());
    }

    /// `cargo test --release -p gossamer-ways looking_costs -- --ignored --nocapture`: cost of one look at the bits
    /// of a thousand machines and the flags of 64 direct ways that finds nothing.
    #[test]
    #[ignore = "measures"]
    fn looking_costs() {
        use std::hint::black_box;
        use std::sync::atomic::{AtomicU64, Ordering};
        use std::time::Instant;
        const SLOT_WORDS: usize = (8192 + 64) / 8;
        let bits: Vec<AtomicU64> = (0..News::bytes(1000) / 8).map(|_| AtomicU64::new(0)).collect();
        let rings: Vec<AtomicU64> = (0..64 * 16 * SLOT_WORDS).map(|_| AtomicU64::new(0)).collect();
        let flags: Vec<(usize, u64)> = (0..64).map(|ring| (ring * 16 * SLOT_WORDS + SLOT_WORDS - 2, 0)).collect();
        let look = || {
            let has_news = bits.iter().any(|word| word.load(Ordering::Acquire) != 0);
            has_news || flags.iter().any(|(at, before)| rings[*at].load(Ordering::Acquire) != *before)
        };
        const LOOKS: u32 = 1_000_000;
        assert!(!black_box(look()));
        let start = Instant::now();
        for _ in 0..LOOKS {
            assert!(!black_box(look()));
        }
        println!("{} ns a look", start.elapsed().as_nanos() / u128::from(LOOKS));
    }
}
