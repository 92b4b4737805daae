//! Sleep and wake-up of an idle worker.
//!
//! One word per worker holds its state. A worker that finds nothing to do announces that it sleeps, looks once more,
//! and sleeps; a thread that has made work for it looks at the word afterwards. Between "I sleep" and "is there work?"
//! on one side [sleep-then-look], and between "here is work" and "do you sleep?" on the other [work-then-look], stands
//! a sequentially consistent fence, so at least one side sees the other: no wake-up is lost. `model.rs` of this folder
//! checks it. The worker's end is announced through the same word, so that a client needs one load.
//!
//! The word is written by its worker; only a waker that found it asleep changes it from outside, with a
//! compare-and-swap just before the system call that wakes (not on the path of a request).

#![allow(unsafe_code)]

mod delay;
pub(crate) mod forward;
pub(crate) mod occupancy;
#[cfg(feature = "c-api")]
pub(crate) mod outside;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::stats;
use crate::sync::{AtomicU32, Ordering, fence};
use delay::WokenAt;
pub(crate) use delay::{learn_wake_up, wake_up_ns};
#[cfg(not(loom))]
use rustix::thread::futex;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const CLOSING: u32 = 2;
const CLOSED: u32 = 3;

/// State of another worker, as read from its word.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Runs, or has been woken: it will see the work.
    Here,
    /// Its thread is ending: it may or may not serve the requests sent to it.
    Closing,
    /// It has ended and will never touch a slot again.
    Closed,
}

/// Stand-in without the C API: no thread sleeps outside the library.
#[cfg(not(feature = "c-api"))]
pub(crate) mod outside {
    #[derive(Default)]
    pub(crate) struct Outside {}

    impl Outside {
        pub(crate) fn is_polled(&self) -> bool {
            false
        }
        pub(crate) fn close(&self, _: &super::Parker) {}
        pub(crate) fn enter(&self, _: &super::Parker, _: impl Fn() -> bool) {}
        pub(crate) fn leave(&self, _: &super::Parker) {}
    }
}

/// A worker's state, for threads that send to it.
#[repr(align(128))]
pub(crate) struct Parker {
    word: AtomicU32,
    /// Index of the worker, for `occupancy.rs`.
    index: usize,
    woken_at: WokenAt,
    /// Another way to sleep, for workers that other machines or sockets wake too.
    waker: OnceLock<Box<dyn Waker>>,
}

/// A way to sleep that other processes can end, and to end it. See `link.rs`.
///
/// # Safety
/// Both functions are called in the middle of the worker's loop, `wake` on the threads that send too: they call nothing
/// of this crate but `is_idle`, and run no foreign code.
pub unsafe trait Waker: Send + Sync {
    /// Announces that the worker sleeps, asks `is_idle` once more after that, and sleeps until woken or for
    /// `limit`. May return early.
    fn park(&self, limit: Option<Duration>, is_idle: &mut dyn FnMut() -> bool);
    /// Ends the sleep, from any thread of this process.
    fn wake(&self);
}

impl Parker {
    /// Parker of the worker with this index.
    pub(crate) fn new(index: usize) -> Self {
        Parker { word: AtomicU32::new(AWAKE), index, woken_at: WokenAt::default(), waker: OnceLock::new() }
    }

    /// Worker: stores its state.
    #[inline(always)]
    fn announce(&self, word: u32, order: Ordering) {
        #[cfg(not(loom))]
        self.word.store(word, order);
        // The same, but loom 0.7 knows its place among the compare-and-swaps of the wakers: it would let a plain store
        // that races with one fall between its two halves.
        #[cfg(loom)]
        self.word.swap(word, order);
    }

    /// Worker: sleeps until woken, or for `limit`, unless `has_work` finds something after the announcement.
    /// True if it did sleep.
    pub(crate) fn park(&self, limit: Option<Duration>, has_work: impl Fn() -> bool) -> bool {
        let sleep = self.arm(&has_work);
        if sleep {
            let start = Instant::now();
            occupancy::sleep(self.index);
            match self.waker.get() {
                // The waker looks at the word too: it may have been asked to wake before it knew of a sleeper.
                Some(waker) => {
                    let is_idle = || !has_work() && self.word.load(Ordering::Relaxed) == ASLEEP;
                    waker.park(limit, &mut { is_idle });
                }
                None => wait(&self.word, ASLEEP, limit),
            }
            self.disarm();
            let took_ns = self.woken_at.learn(start);
            occupancy::resume(self.index);
            stats::count(|counters| {
                if let Some(took_ns) = took_ns {
                    counters.woken.add(1);
                    counters.wake_up_ns.add(took_ns);
                }
                counters.parks.add(1);
                counters.parked_ns.add(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
            });
        }
        sleep
    }

    /// Worker: announces that it sleeps, or is about to without a call of the library (`outside.rs`), and looks once
    /// more. False, and the announcement is taken back, if there is work; else the next work wakes it.
    pub(crate) fn arm(&self, has_work: impl Fn() -> bool) -> bool {
        // Release: a thread that wakes this sleep (Acquire in `wake_slow`) finds the waker that it sleeps by.
        self.announce(ASLEEP, Ordering::Release);
        // [sleep-then-look]: pairs with [work-then-look] in `notify`.
        fence(Ordering::SeqCst);
        let sleep = !has_work();
        if !sleep {
            self.disarm();
        }
        sleep
    }

    /// Worker: announces that a trustee which it runs beside itself sleeps. To be followed by `park` of the worker's
    /// own parker, whose `has_work` looks for the work of this one too, and whether it [`is_armed`](Self::is_armed).
    pub(crate) fn arm_only(&self) {
        // Release: pairs with the Acquire in `wake_slow`; see `forward.rs`.
        self.announce(ASLEEP, Ordering::Release);
    }

    /// Worker: has no sender taken the announcement away? The sender may have found the worker awake, which has not
    /// announced its own sleep yet; work that comes later finds no announcement.
    pub(crate) fn is_armed(&self) -> bool {
        self.word.load(Ordering::Relaxed) == ASLEEP
    }

    /// Worker: is awake, and need not be woken.
    pub(crate) fn disarm(&self) {
        self.announce(AWAKE, Ordering::Relaxed);
    }

    /// Worker: sleeps by this waker from now on. The first one stays.
    pub(crate) fn set_waker(&self, waker: Box<dyn Waker>) -> bool {
        self.waker.set(waker).is_ok()
    }

    /// Sender: makes work visible, and wakes the worker if it sleeps. There is no other way to wake a worker, so the
    /// fence cannot be left out.
    #[inline(always)]
    pub(crate) fn publish(&self, work: impl FnOnce()) -> Presence {
        work();
        self.notify()
    }

    /// Same as [`publish`](Self::publish), where `work` tells whether it made any visible: no fence for none.
    #[inline(always)]
    pub(crate) fn publish_if(&self, work: impl FnOnce() -> bool) -> Option<Presence> {
        work().then(|| self.notify())
    }

    #[inline(always)]
    fn notify(&self) -> Presence {
        // [work-then-look]: pairs with [sleep-then-look] in `arm`, and with the fence in `begin_closing`.
        fence(Ordering::SeqCst);
        self.wake()
    }

    /// Wakes the worker if it sleeps. Only after [work-then-look].
    #[inline(always)]
    fn wake(&self) -> Presence {
        match self.word.load(Ordering::Relaxed) {
            AWAKE => Presence::Here,
            word => self.wake_slow(word),
        }
    }

    #[cold]
    fn wake_slow(&self, word: u32) -> Presence {
        if word == ASLEEP {
            // Pairs with the Release in `arm`.
            let woken = self.word.compare_exchange(ASLEEP, AWAKE, Ordering::Acquire, Ordering::Relaxed);
            if woken.is_ok() {
                occupancy::wake(self.index);
                self.woken_at.note();
                match self.waker.get() {
                    Some(waker) => waker.wake(),
                    None => wake(&self.word),
                }
                stats::count(|counters| {
                    counters.wake_ups_sent.add(1);
                });
            }
        }
        self.presence()
    }

    /// State of the worker now. Acquire: after `Closed` everything the worker did is visible.
    #[inline]
    pub(crate) fn presence(&self) -> Presence {
        // Pairs with the Release in `close`.
        match self.word.load(Ordering::Acquire) {
            CLOSING => Presence::Closing,
            CLOSED => Presence::Closed,
            _ => Presence::Here,
        }
    }

    /// Worker: from here on senders may find it closing; requests published before are served or refused.
    pub(crate) fn begin_closing(&self) {
        self.announce(CLOSING, Ordering::Relaxed);
        // Orders the announcement before the last look at the slots; pairs with [work-then-look].
        fence(Ordering::SeqCst);
    }

    /// Worker: closes, and will never touch a slot again.
    pub(crate) fn close(&self) {
        // Pairs with the Acquire in `presence`.
        self.announce(CLOSED, Ordering::Release);
    }
}

/// Sleeps if the word holds `expected`, until woken or for `limit`.
#[cfg(not(loom))]
fn wait(word: &AtomicU32, expected: u32, limit: Option<Duration>) {
    // No timeout if it is more than the kernel can count.
    let limit = limit.and_then(|limit| futex::Timespec::try_from(limit).ok());
    // Every outcome (woken, changed, interrupted, timed out) means the same to the caller: look again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, expected, limit.as_ref());
}

/// Wakes one thread that sleeps on the word.
#[cfg(not(loom))]
fn wake(word: &AtomicU32) {
    // It cannot fail: the word is aligned and mapped.
    let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
}

#[cfg(loom)]
use model::{wait, wake};

#[cfg(loom)]
mod model;

#[cfg(all(test, not(loom)))]
mod tests;
