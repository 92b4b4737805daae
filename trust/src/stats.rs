//! Counters per worker: written by the worker with plain stores, readable by anyone at any time.
//!
//! Here: the counters. Not here: their owner (`registry`), and the worker of a thread, whose counters [`count`] asks
//! for (`runtime/worker/current.rs`).

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::running::Running;

/// Counter with one writer, which adds with a load and a store; any thread reads it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Makes a counter of 0.
    pub const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }
    /// Adds `n` and returns the sum. Only the writer calls this: sums of several are lost.
    #[inline(always)]
    pub fn add(&self, n: u64) -> u64 {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(n);
        self.0.store(sum, Ordering::Relaxed);
        sum
    }
    /// Subtracts `n`, as [`add`](Self::add) adds.
    #[inline(always)]
    pub fn subtract(&self, n: u64) {
        self.add(n.wrapping_neg());
    }
    /// Returns the sum.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one worker.
        #[derive(Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
            /// Here, because these cache lines are the worker's own.
            pub(crate) running: Running,
        }

        /// Work of one worker since its start.
        ///
        /// `Display` writes all of it on one line, as `name=value`.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// Times the kernel took the core away from the worker's thread for another thread while the worker had
            /// work (`nonvoluntary_ctxt_switches` in `/proc`). Cores taken away by a hypervisor do not count. 0 if the
            /// kernel does not say.
            pub involuntary_switches: u64,
        }

        impl Stats {
            /// Returns names and values of all counters, to print or export them; later versions add their new
            /// counters.
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
            /// Returns the work done since `earlier`, an earlier reading of the same worker.
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
    /// Requests among those that went to another machine.
    requests_sent_remote,
    /// Requests that this worker's own trustee ran at once, for its own thread or for a future.
    requests_run_here,
    /// Batches of these requests.
    batches_sent,
    /// Requests served for other clients.
    requests_served,
    /// Batches in which these came.
    batches_served,
    /// Batches with responses that did not fit their slot.
    responses_overflowed,
    /// Requests that found no free slot and were queued.
    requests_queued,
    /// Switches from one fiber to another or to the worker's loop.
    fiber_switches,
    /// Fibers started.
    fibers_spawned,
    /// Turns of the worker's loop that found nothing to do: it polls, or is about to sleep.
    polls,
    /// Time of fruitless polling in all, in nanoseconds, from its first look at the clock on (about 400 ns), including
    /// the time of `yields`.
    polled_ns,
    /// Times it yielded its core to another thread meanwhile.
    yields,
    /// Times the worker slept. Sleeps of a thread in its own event loop (C API) are not included.
    parks,
    /// Time slept in all, in nanoseconds, including the time of waking up. A sleep is added when it is over.
    parked_ns,
    /// Times another thread ended its sleep, if that was measured.
    woken,
    /// Time in all from those wakes until the worker ran, in nanoseconds.
    wake_up_ns,
    /// Times the worker had to wake another, sleeping thread of this process: a system call each. Workers of other
    /// machines are woken by the fabric, and not counted.
    wake_ups_sent,
    /// Moves of this trustee from one worker of its pool to another ([`Builder::tuned`](crate::Builder::tuned)).
    moves,
    /// Moves among these that undid a trial.
    moves_undone,
    /// Moves that did not take place, as something binds the trustee to its thread ([`Bound`](crate::Bound)).
    moves_refused,
    /// Values dropped ahead of their properties: by [`Trust::close`](crate::Trust::close), or with the last known trust
    /// of a property of before the loss of a machine.
    properties_closed,
    /// Values there now of properties of before the loss of a machine. Not a count of work:
    /// [`since`](Stats::since) gives how many more there are.
    old_properties,
}

impl Stats {
    /// Returns the mean number of requests in the batches this worker sent.
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

/// Calls a function with the counters of the thread's worker, if there is one.
type Find = fn(&mut dyn FnMut(&Counters));

static OF_THREAD: OnceLock<Find> = OnceLock::new();

/// Tells how a thread finds the counters of its worker, before it has one.
pub(crate) fn find_by(find: Find) {
    OF_THREAD.get_or_init(|| find);
}

/// Counts work of this thread's worker, if it has one; not in each request or batch.
pub(crate) fn count(mut f: impl FnMut(&Counters)) {
    if let Some(find) = OF_THREAD.get() {
        find(&mut f);
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
