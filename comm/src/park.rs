//! Sleeping and waking between processes: a shared futex on a park word. The pair [park-then-poll], [write-then-wake]
//! of `fabric.rs` lives here, both halves, for every fabric: a sleeper always sleeps on a word of the own region. Peers
//! that map it wake it themselves; for others a thread of the fabric does.
//!
//! A park word is `AWAKE` or `ASLEEP`. Only its sleeper stores `ASLEEP`; the thread that swaps it back to
//! `AWAKE` before the sleeper does is its waker and owes the futex wake. A late wake, for a sleep that is
//! over, only makes the next sleep look again at its word.
//!
//! `model.rs` of this folder checks it in every interleaving, [park-then-poll] and [write-then-wake] included; such a
//! build contains nothing else of this crate.

#[cfg(loom)]
mod model;

use crate::deadline::Deadline;
use crate::error::Error;
use crate::ids::Wake;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;
#[cfg(not(loom))]
use {
    rustix::thread::futex,
    std::sync::atomic::{AtomicU32, Ordering, fence},
};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// Sleeps on `word` until a wake, unless there is work. See `Fabric::park`.
pub(crate) fn park(word: &AtomicU32, timeout: Duration, is_idle: &mut dyn FnMut() -> bool) -> Result<Wake, Error> {
    let deadline = Deadline::after(timeout);
    word.store(ASLEEP, Ordering::Relaxed);
    // [park-then-poll], with [write-then-wake] in `wake`.
    fence(Ordering::SeqCst);
    if !is_idle() {
        word.store(AWAKE, Ordering::Relaxed);
        return Ok(Wake::Work);
    }
    let slept = sleep_while_asleep(word, deadline);
    // Acquire, with the Release swap in `wake`: also here, where a wake came just at the timeout.
    let was_woken = word.swap(AWAKE, Ordering::Acquire) == AWAKE;
    slept?;
    Ok(if was_woken { Wake::Woken } else { Wake::TimedOut })
}

/// Returns when the word is no longer `ASLEEP` or the deadline has passed, and goes back to sleep after any
/// other wake.
fn sleep_while_asleep(word: &AtomicU32, deadline: Deadline) -> Result<(), Error> {
    while word.load(Ordering::Relaxed) == ASLEEP {
        let left = deadline.left();
        if left.is_zero() {
            break;
        }
        wait(word, left)?;
    }
    Ok(())
}

/// Sleeps once on the word if it is `ASLEEP`, for `left` at most; may end early.
#[cfg(not(loom))]
fn wait(word: &AtomicU32, left: Duration) -> Result<(), Error> {
    use rustix::io::Errno;

    // No timeout if it is more than the kernel can count.
    let left = futex::Timespec::try_from(left).ok();
    // No PRIVATE flag: the waker maps this word at another address, in another process.
    match futex::wait(word, futex::Flags::empty(), ASLEEP, left.as_ref()) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
        Err(error) => Err(Error::system("sleeping on a park word")(error)),
    }
}

/// Ends one sleep on the word.
#[cfg(not(loom))]
fn end_sleep(word: &AtomicU32) -> Result<(), Error> {
    futex::wake(word, futex::Flags::empty(), 1).map_err(Error::system("waking a parked worker"))?;
    Ok(())
}

#[cfg(loom)]
use model::{end_sleep, wait};

/// Wakes the thread that sleeps, or is about to, on `word`. See `Connection::wake`.
#[inline]
pub(crate) fn wake(word: &AtomicU32) -> Result<(), Error> {
    // [write-then-wake], with [park-then-poll] in `park`: the caller's writes come before this look at the word.
    fence(Ordering::SeqCst);
    if word.load(Ordering::Relaxed) == AWAKE {
        return Ok(());
    }
    wake_sleeper(word)
}

/// Rare half of `wake`: one of several threads wins the swap and pays for the system call.
#[cold]
fn wake_sleeper(word: &AtomicU32) -> Result<(), Error> {
    // Release, with the Acquire swap in `park`: the woken thread sees the waker's earlier writes.
    if word.swap(AWAKE, Ordering::Release) == ASLEEP {
        end_sleep(word)?;
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn work_found_late_prevents_the_sleep() {
        let word = AtomicU32::new(AWAKE);
        let woke = park(&word, Duration::from_secs(3600), &mut || {
            assert_eq!(word.load(Ordering::Relaxed), ASLEEP, "the sleep is announced before work is looked for");
            false
        });
        assert_eq!(woke.unwrap(), Wake::Work);
        assert_eq!(word.load(Ordering::Relaxed), AWAKE);
    }

    #[test]
    fn a_wake_between_the_look_and_the_sleep_is_not_lost() {
        let word = AtomicU32::new(AWAKE);
        let woke = park(&word, Duration::from_secs(3600), &mut || {
            wake(&word).unwrap();
            true
        });
        assert_eq!(woke.unwrap(), Wake::Woken);
    }

    #[test]
    fn the_time_out_is_kept_and_withdraws_the_announcement() {
        let word = AtomicU32::new(AWAKE);
        let start = Instant::now();
        let timeout = Duration::from_millis(20);
        assert_eq!(park(&word, timeout, &mut || true).unwrap(), Wake::TimedOut);
        assert!(start.elapsed() >= timeout);
        assert_eq!(word.load(Ordering::Relaxed), AWAKE);
    }

    #[test]
    fn a_stale_wake_does_not_end_the_next_sleep() {
        let word = AtomicU32::new(AWAKE);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| park(&word, Duration::from_secs(60), &mut || true).unwrap());
            // A futex wake that hits the sleeper while its word still says `ASLEEP`.
            while futex::wake(&word, futex::Flags::empty(), 1).unwrap() == 0 {
                std::thread::yield_now();
            }
            // It must be asleep again: the word still says so, and the sleeper has entered the wait once more.
            while futex::wake(&word, futex::Flags::empty(), 1).unwrap() == 0 {
                std::thread::yield_now();
            }
            wake(&word).unwrap();
            assert_eq!(sleeper.join().unwrap(), Wake::Woken);
        });
    }
}
