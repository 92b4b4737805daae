//! Counters per worker (T18): kept by the worker with plain stores, readable by anyone at any time.
//!
//! Here: what is counted, and how the code of a thread finds its worker's counters. Not here: whose they are
//! (`registry`).
//!
//! Invariant: the counters that a thread is given ([`set_of_thread`]) live until it is given others, or none.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::running::Running;

/// One counter with one writer.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n` and returns the sum. A load and a store: only the owning worker calls this.
    #[inline(always)]
    pub(crate) fn add(&self, n: u64) -> u64 {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(n);
        self.0.store(sum, Ordering::Relaxed);
        sum
    }
    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters of one worker.
        #[derive(Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
            /// Here, for these lines are the worker's own.
            pub(crate) running: Running,
        }

        /// What one worker has done since its start.
        ///
        /// `Display` writes all of it on one line, as `name=value`.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// Times the kernel took the core away from the worker's thread while that had work, for another thread
            /// (`nonvoluntary_ctxt_switches` in `/proc`). A core that a hypervisor takes away is not in it. 0 where the
            /// kernel does not say.
            pub involuntary_switches: u64,
        }

        impl Stats {
            /// Names and values of all counters, for who prints or exports them: counters that come later are among
            /// them.
            ///
            /// ```
            /// let stats = trust::stats(trust::local_trustee()).unwrap();
            /// assert!(stats.iter().any(|(name, times)| name == "parks" && times == stats.parks));
            /// ```
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)* ("involuntary_switches", self.involuntary_switches)].into_iter()
            }
        }

        impl Counters {
            pub(crate) fn read(&self, involuntary_switches: u64) -> Stats {
                Stats { $($name: self.$name.get(),)* involuntary_switches }
            }
        }

        impl Stats {
            /// What has been done since `earlier`, which was read of the same worker before.
            ///
            /// ```
            /// let here = trust::local_trustee();
            /// let counter = here.entrust(0);
            /// let before = trust::stats(here).unwrap();
            /// counter.apply(|c| *c += 1);
            /// assert_eq!(trust::stats(here).unwrap().since(&before).requests_run_here, 1);
            /// ```
            pub fn since(&self, earlier: &Stats) -> Stats {
                Stats {
                    $($name: self.$name.saturating_sub(earlier.$name),)*
                    involuntary_switches: self.involuntary_switches.saturating_sub(earlier.involuntary_switches),
                }
            }
        }

        impl fmt::Display for Stats {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(write!(f, concat!(stringify!($name), "={} "), self.$name)?;)*
                write!(f, "involuntary_switches={}", self.involuntary_switches)
            }
        }
    };
}

counters! {
    /// Requests sent to other trustees.
    requests_sent,
    /// Those among them that went to another machine.
    requests_sent_remote,
    /// Requests that this worker's own trustee ran at once, for its own thread or for a future.
    requests_run_here,
    /// Batches in which they were sent.
    batches_sent,
    /// Requests served for other clients.
    requests_served,
    /// Batches in which they came.
    batches_served,
    /// Batches whose responses did not fit their slot.
    responses_overflowed,
    /// Requests that found no free slot and were queued.
    requests_queued,
    /// Switches from one fiber to another or to the worker's loop.
    fiber_switches,
    /// Fibers started.
    fibers_spawned,
    /// Turns of the worker's loop that found nothing to do: it polls, or is about to sleep.
    polls,
    /// How long it polled in vain in all, in nanoseconds, from its first look at the clock on (some 400 ns), with the
    /// time of `yields`.
    polled_ns,
    /// Times it gave its core to another thread meanwhile.
    yields,
    /// Times the worker slept. Not the sleeps of a thread in an event loop of its own (C API).
    parks,
    /// How long it slept in all, in nanoseconds, with the time that waking up took. A sleep is added when it is over.
    parked_ns,
    /// Times another thread ended its sleep, as far as that was measured, ..
    woken,
    /// .. and how long it took in all from there until the worker ran, in nanoseconds.
    wake_up_ns,
    /// Times the worker had to wake another thread of this process, which slept: a system call each. The workers of
    /// other machines are woken by the fabric, and not counted.
    wake_ups_sent,
}

impl Stats {
    /// Mean number of requests in the batches this worker sent.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(1);
    /// let counter = pool.entrust(0);
    /// (0..1000).for_each(|_| counter.apply_then(|c| *c += 1, |()| ()));
    /// trust::wait_all();
    /// assert!(trust::stats(trust::local_trustee()).unwrap().requests_per_batch() > 1.0);
    /// ```
    pub fn requests_per_batch(&self) -> f64 {
        if self.batches_sent == 0 { 0.0 } else { self.requests_sent as f64 / self.batches_sent as f64 }
    }
}

thread_local! {
    /// The counters of the thread's worker, or null.
    static OF_THREAD: Cell<*const Counters> = const { Cell::new(ptr::null()) };
}

/// What this thread does is counted here from now on, or nowhere.
///
/// # Safety
/// They live until the thread is given others, or none.
pub(crate) unsafe fn set_of_thread(counters: Option<&Counters>) {
    OF_THREAD.set(counters.map_or(ptr::null(), ptr::from_ref));
}

/// Counts what the calling thread does, if it has a worker.
#[inline(always)]
pub(crate) fn count(f: impl FnOnce(&Counters)) {
    // SAFETY: null, or alive: the promise of `set_of_thread`.
    if let Some(counters) = unsafe { OF_THREAD.get().as_ref() } {
        f(counters);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn stats_are_subtracted_and_written_field_by_field() {
        let earlier = Stats { requests_sent: 3, parked_ns: 5, involuntary_switches: 1, ..Stats::default() };
        let later = Stats { requests_sent: 10, parked_ns: 5, involuntary_switches: 8, polls: 2, ..Stats::default() };
        let since = Stats { requests_sent: 7, polls: 2, involuntary_switches: 7, ..Stats::default() };
        assert_eq!(later.since(&earlier), since);
        let text = since.to_string();
        for part in ["requests_sent=7 ", " polls=2 ", " parked_ns=0 ", " wake_ups_sent=0 ", " involuntary_switches=7"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
