//! Choice of the thread that polls the connections of a machine: its I/O thread, which sleeps until something
//! comes, or a worker that polls anyway and so saves a thread switch. Not here: the handling of received
//! bytes (`poller.rs`).
//!
//! One thread at a time holds the poller lock; workers only try it. The I/O thread *watches*: it sleeps in
//! epoll and every event wakes it. When it finds that workers have polled since the last time and none went
//! to sleep, its wake-ups are of no use, and it *stands by*: it sleeps for [`STAND_BY`] at a time, as long as
//! workers poll in between. A worker that goes to sleep calls it back to watch. If the workers stop polling
//! without a call, because they compute, the I/O thread is back after [`STAND_BY`].
//!
//! Workers read authenticated connections; they leave everything else to the I/O thread.

use super::poller::Poller;
use super::shared::TcpShared;
use crate::deadline::deadline_after;
use crate::error::Error;
use crate::ids::{MachineId, Wake};
use crate::panics::or_report;
use crate::park;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Longest time without a reader, if the workers stop polling without waking the I/O thread.
const STAND_BY: Duration = Duration::from_micros(200);
/// Interval of the checks whether workers poll, while events come. A watching I/O thread learns nothing of events that
/// workers take, though the kernel wakes it for them.
const LIVELY: Duration = Duration::from_millis(2);
/// Interval of the clock checks when a timeout is near.
const SHORT_TICK: Duration = Duration::from_millis(50);
/// Events taken at once.
const EVENTS_MAX: usize = 64;
/// Turns of a worker between two looks, while they find nothing.
const TURNS_MAX: u32 = 15;

thread_local! {
    /// Turns of this worker until its next look, and between the last two.
    static PACE: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

pub(super) struct PollerLock {
    poller: Mutex<Poller>,
    epoll: Arc<OwnedFd>,
    shared: Arc<TcpShared>,
    /// Park word of the I/O thread that stands by.
    word: AtomicU32,
    /// A worker has polled since the I/O thread last checked.
    has_worker_polled: AtomicBool,
    /// A worker has gone to sleep since the I/O thread polled last.
    somebody_sleeps: AtomicBool,
}

impl PollerLock {
    pub(super) fn new(shared: Arc<TcpShared>, poller: Poller) -> PollerLock {
        PollerLock {
            epoll: poller.epoll(),
            poller: Mutex::new(poller),
            shared,
            word: AtomicU32::new(0),
            has_worker_polled: AtomicBool::new(false),
            somebody_sleeps: AtomicBool::new(false),
        }
    }

    /// Returns the epoll in which the I/O thread waits.
    pub(super) fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    /// Body of the I/O thread. Any end but the graceful one is the death of all peers for this machine.
    pub(super) fn run(&self) {
        if let Some(Err(error)) = or_report(|| self.watch(), |panic| self.shared.fail(panic)) {
            self.shared.fail(format!("this machine cannot receive any more: {error}"));
        }
        // The peers see at once that this machine no longer reads.
        self.poller.lock().unwrap_or_else(PoisonError::into_inner).close();
    }

    fn watch(&self) -> Result<(), Error> {
        let failed = |error: Errno| Error::system("waiting for what comes")(error);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut clock_due = Instant::now();
        let (mut stands_by, mut is_lively) = (false, false);
        loop {
            events.clear();
            if stands_by {
                // Relaxed, here and below: [park-then-poll] of `park.rs` orders the sleep of a worker and of the I/O
                // thread; everything else is advice.
                let mut is_idle = || !self.somebody_sleeps.load(Ordering::Relaxed);
                let is_called = park::park(&self.word, STAND_BY, &mut is_idle)? != Wake::TimedOut;
                stands_by = self.has_worker_polled.swap(false, Ordering::Relaxed) && !is_called;
                if stands_by && Instant::now() < clock_due {
                    continue;
                }
            } else {
                let left = clock_due.saturating_duration_since(Instant::now());
                let left = if is_lively { left.min(LIVELY) } else { left };
                let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
                match epoll::wait(&*self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(failed(error)),
                }
                let has_worker_polled = self.has_worker_polled.swap(false, Ordering::Relaxed);
                stands_by = has_worker_polled && !self.somebody_sleeps.load(Ordering::Relaxed);
                is_lively = has_worker_polled || !events.is_empty();
            }
            self.somebody_sleeps.store(false, Ordering::Relaxed);
            let mut poller = self.poller.lock().map_err(|_| panicked())?;
            events.iter().try_for_each(|event| poller.handle(event.data.u64())).map_err(failed)?;
            if !events.is_empty() || Instant::now() >= clock_due {
                let tick = if poller.keep_time().map_err(failed)? { SHORT_TICK } else { poller.tick() };
                clock_due = deadline_after(tick);
            }
            if poller.is_over() {
                return Ok(());
            }
        }
    }

    /// A worker's turn: looks from time to time for events, more often while they come. Never waits.
    #[inline]
    pub(super) fn take_turn(&self) {
        let (left, pace) = PACE.get();
        if left > 0 {
            return PACE.set((left - 1, pace));
        }
        let pace = if self.look() { 0 } else { (2 * pace + 1).min(TURNS_MAX) };
        PACE.set((pace, pace));
    }

    /// Takes events, if no other thread holds the lock. Returns whether there were any.
    fn look(&self) -> bool {
        let mut poller = match self.poller.try_lock() {
            Ok(poller) => poller,
            Err(TryLockError::WouldBlock) => return false,
            // The I/O thread finds out, and reports it.
            Err(TryLockError::Poisoned(_)) => return false,
        };
        if !self.has_worker_polled.load(Ordering::Relaxed) {
            self.has_worker_polled.store(true, Ordering::Relaxed);
        }
        let looked = poller.look();
        drop(poller);
        if looked.is_for_io_thread {
            self.call();
        }
        looked.has_received
    }

    /// Shuts out a peer: while this holds the lock no thread stores its bytes, and later there is none to read.
    pub(super) fn shut_out(&self, peer: MachineId) -> Result<(), Error> {
        self.poller.lock().map_err(|_| panicked())?.shut_out(peer);
        Ok(())
    }

    /// Notes that a worker goes to sleep, and will not look any more.
    pub(super) fn hand_over(&self) {
        self.somebody_sleeps.store(true, Ordering::Relaxed);
        self.call();
    }

    /// Ends the I/O thread's standby.
    fn call(&self) {
        // If the wake fails, it wakes by itself soon.
        let _ = park::wake(&self.word);
    }
}

#[cfg(test)]
impl PollerLock {
    /// Returns the locked poller, for inspection.
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, Poller> {
        self.poller.lock().unwrap()
    }
}

fn panicked() -> Error {
    Error::system("reading")(std::io::Error::other("a worker has panicked while it read"))
}
