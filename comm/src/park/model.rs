//! The futex in loom, and loom models of `park.rs`: `cargo dev loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test -p gossamer-comm --release --lib loom_`.
//!
//! [`wait`] and [`end_sleep`] keep the promise of the system calls: to a waker, the look at the word and
//! falling asleep are one step. A sleep has no timeout, which would only hide a lost wake-up; without one,
//! that is a deadlock, and loom reports it.

use super::{ASLEEP, AtomicU32, Ordering};
use crate::error::Error;
use loom::sync::{Condvar, Mutex};
use std::time::Duration;

loom::lazy_static! {
    static ref KERNEL: Mutex<()> = Mutex::new(());
    static ref WOKEN: Condvar = Condvar::new();
}

/// Sleeps if the word is `ASLEEP`. A wake for another word may end the sleep, as a signal may.
pub(super) fn wait(word: &AtomicU32, _: Duration) -> Result<(), Error> {
    let kernel = KERNEL.lock().expect("no model panics in here");
    if word.load(Ordering::Relaxed) == ASLEEP {
        drop(WOKEN.wait(kernel).expect("no model panics in here"));
    }
    Ok(())
}

/// Wakes all sleepers.
pub(super) fn end_sleep(_: &AtomicU32) -> Result<(), Error> {
    let _kernel = KERNEL.lock().expect("no model panics in here");
    WOKEN.notify_all();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{AWAKE, AtomicU32, Ordering, park, wake, wake_sleeper};
    use crate::ids::Wake;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;
    use std::sync::Arc;
    use std::time::Duration;

    /// Explores a model with at most 3 preemptions, unless `LOOM_MAX_PREEMPTIONS` says otherwise.
    fn explore(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(3));
        builder.check(model);
    }

    /// A region: one park word, a flag for each writer, and the words before the flags.
    struct Memory {
        park: AtomicU32,
        flags: [AtomicU64; 2],
        data: AtomicU64,
    }

    fn memory() -> Arc<Memory> {
        Arc::new(Memory {
            park: AtomicU32::new(AWAKE),
            flags: [AtomicU64::new(0), AtomicU64::new(0)],
            data: AtomicU64::new(0),
        })
    }

    impl Memory {
        /// A one-sided write, and the wake that follows it.
        fn write(&self, place: usize, value: u64) {
            self.publish(place, value);
            wake(&self.park).unwrap();
        }

        fn publish(&self, place: usize, value: u64) {
            self.data.store(value, Ordering::Relaxed);
            // Pairs with the Acquire in `sum`.
            self.flags[place].store(value, Ordering::Release);
        }

        /// Returns the sum of all values that have arrived.
        fn sum(&self) -> u64 {
            // Pairs with the Release in `publish`.
            self.flags.iter().map(|flag| flag.load(Ordering::Acquire)).sum()
        }

        /// Sleeps, with no timeout, until the sum is `sum`.
        fn wait_for(&self, sum: u64) {
            while self.sum() < sum {
                park(&self.park, Duration::MAX, &mut || self.sum() < sum).unwrap();
            }
            assert_eq!(self.park.load(Ordering::Relaxed), AWAKE, "the announcement is taken back");
        }
    }

    #[test]
    fn loom_park_no_wake_is_lost() {
        explore(|| {
            let memory = memory();
            let peer = Arc::clone(&memory);
            let writer = thread::spawn(move || (1..=2).for_each(|value| peer.write(0, value)));
            memory.wait_for(1);
            memory.wait_for(2);
            writer.join().unwrap();
        });
    }

    #[test]
    fn loom_park_no_wake_of_two_is_lost() {
        explore(|| {
            let memory = memory();
            let writers = [0, 1].map(|place| {
                let peer = Arc::clone(&memory);
                thread::spawn(move || peer.write(place, 1))
            });
            memory.wait_for(2);
            writers.into_iter().for_each(|writer| writer.join().unwrap());
        });
    }

    /// Both sides sleep in turn, each on its own word.
    #[test]
    fn loom_park_there_and_back() {
        explore(|| {
            let (here, there) = (memory(), memory());
            let (to, own) = (Arc::clone(&here), Arc::clone(&there));
            let peer = thread::spawn(move || {
                own.wait_for(1);
                to.write(0, 1);
            });
            there.write(0, 1);
            here.wait_for(1);
            peer.join().unwrap();
        });
    }

    /// The woken thread sees the waker's earlier writes, even if its timeout passed at the same moment.
    fn woken_sees(timeout: Duration) {
        explore(move || {
            let memory = memory();
            let peer = Arc::clone(&memory);
            let writer = thread::spawn(move || {
                peer.data.store(1, Ordering::Relaxed);
                wake(&peer.park).unwrap();
            });
            if park(&memory.park, timeout, &mut || memory.data.load(Ordering::Relaxed) == 0).unwrap() == Wake::Woken {
                assert_eq!(memory.data.load(Ordering::Relaxed), 1);
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn loom_park_woken_sees_what_was_written_before() {
        woken_sees(Duration::MAX);
    }

    #[test]
    fn loom_park_woken_too_late_sees_what_was_written_before() {
        woken_sees(Duration::ZERO);
    }

    /// The models can fail: a wake without [write-then-wake] is lost.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_park_without_the_fence_loses_a_wake() {
        explore(|| {
            let memory = memory();
            let peer = Arc::clone(&memory);
            let writer = thread::spawn(move || {
                peer.publish(0, 1);
                if peer.park.load(Ordering::Relaxed) != AWAKE {
                    wake_sleeper(&peer.park).unwrap();
                }
            });
            memory.wait_for(1);
            writer.join().unwrap();
        });
    }
}
