//! Who reads the connections of a machine: its attendant, a thread that sleeps until something comes,
//! or a worker that polls anyway and so spares the switch of threads. Not here: what is done with
//! what was read (`attendant.rs`).
//!
//! One at a time has the desk (a lock), workers by trying only. The attendant *watches*: it sleeps in epoll and
//! is woken by whatever comes. When it finds that workers have looked since the last time and none went to
//! sleep, its wake-ups are of no use, and it *stands by*: it sleeps for [`STAND_BY`] at a time, as long as workers
//! look in between. A worker that goes to sleep calls it back to watch. Should the workers stop looking without a call, because
//! they compute, the attendant is back after [`STAND_BY`].
//!
//! Workers take what comes by connections that are known; all else they leave to the attendant.

use super::attendant::Attendant;
use super::shared::Shared;
use crate::error::Error;
use crate::fabric::Wake;
use crate::park;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Longest time for which nobody reads, if the workers stop looking without a word.
const STAND_BY: Duration = Duration::from_micros(200);
/// How often it is asked whether workers look, while something happens: of what they take, an
/// attendant that watches learns nothing, though the kernel wakes it for that.
const LIVELY: Duration = Duration::from_millis(2);
/// How often the clock is looked at when something is about to time out.
const SHORT_TICK: Duration = Duration::from_millis(50);
/// Events taken at once.
const EVENTS_MAX: usize = 64;
/// Turns of a worker between two looks, while they find nothing.
const TURNS_MAX: u32 = 15;

thread_local! {
    /// Turns of this worker until its next look, and between the last two.
    static PACE: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

pub(super) struct Duty {
    desk: Mutex<Attendant>,
    epoll: Arc<OwnedFd>,
    shared: Arc<Shared>,
    /// The park word of the attendant that stands by.
    word: AtomicU32,
    /// A worker has looked since the attendant asked last.
    was_looked: AtomicBool,
    /// A worker has gone to sleep since the attendant was at the desk.
    somebody_sleeps: AtomicBool,
}

impl Duty {
    pub(super) fn new(shared: Arc<Shared>, attendant: Attendant) -> Duty {
        Duty {
            epoll: attendant.epoll(),
            desk: Mutex::new(attendant),
            shared,
            word: AtomicU32::new(0),
            was_looked: AtomicBool::new(false),
            somebody_sleeps: AtomicBool::new(false),
        }
    }

    /// The attendant's life. Whatever ends it out of order is the death of all peers for this machine.
    pub(super) fn run(&self) {
        struct Guard<'a>(&'a Duty);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.shared.fail("the thread that receives has panicked".to_owned());
            }
        }
        let guard = Guard(self);
        if let Err(error) = self.attend() {
            self.shared.fail(format!("this machine cannot receive any more: {error}"));
        }
        std::mem::forget(guard);
        // The peers see at once that nobody reads any more.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner).close();
    }

    fn attend(&self) -> Result<(), Error> {
        let failed = |error: Errno| Error::system("waiting for what comes")(error);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut clock_due = Instant::now();
        let (mut stands_by, mut is_lively) = (false, false);
        loop {
            events.clear();
            if stands_by {
                // Relaxed, here and below: pair P of `park.rs` orders the going to sleep of a worker
                // and of the attendant; all else is advice.
                let mut is_idle = || !self.somebody_sleeps.load(Ordering::Relaxed);
                let is_called = park::park(&self.word, STAND_BY, &mut is_idle)? != Wake::TimedOut;
                stands_by = self.was_looked.swap(false, Ordering::Relaxed) && !is_called;
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
                let was_looked = self.was_looked.swap(false, Ordering::Relaxed);
                stands_by = was_looked && !self.somebody_sleeps.load(Ordering::Relaxed);
                is_lively = was_looked || !events.is_empty();
            }
            self.somebody_sleeps.store(false, Ordering::Relaxed);
            let mut desk = self.desk.lock().map_err(|_| panicked())?;
            events.iter().try_for_each(|event| desk.handle(event.data.u64())).map_err(failed)?;
            if !events.is_empty() || Instant::now() >= clock_due {
                let tick = if desk.keep_time().map_err(failed)? { SHORT_TICK } else { desk.tick() };
                clock_due = Instant::now() + tick;
            }
            if desk.is_over() {
                return Ok(());
            }
        }
    }

    /// A worker's turn: looks now and then whether something has come, more often while something
    /// does. Never waits.
    #[inline]
    pub(super) fn take_turn(&self) {
        let (left, pace) = PACE.get();
        if left > 0 {
            return PACE.set((left - 1, pace));
        }
        let pace = if self.look() { 0 } else { (2 * pace + 1).min(TURNS_MAX) };
        PACE.set((pace, pace));
    }

    /// Takes what has come, if nobody else is at it. Whether there was anything.
    fn look(&self) -> bool {
        let mut desk = match self.desk.try_lock() {
            Ok(desk) => desk,
            Err(TryLockError::WouldBlock) => return false,
            // The attendant finds out, and tells.
            Err(TryLockError::Poisoned(_)) => return false,
        };
        if !self.was_looked.load(Ordering::Relaxed) {
            self.was_looked.store(true, Ordering::Relaxed);
        }
        let looked = desk.look();
        drop(desk);
        if looked.is_for_attendant {
            self.call();
        }
        looked.has_taken
    }

    /// A worker goes to sleep: it will not look any more.
    pub(super) fn hand_over(&self) {
        self.somebody_sleeps.store(true, Ordering::Relaxed);
        self.call();
    }

    /// Ends the attendant's standing by.
    fn call(&self) {
        // Should the wake fail, it wakes by itself soon.
        let _ = park::ring(&self.word);
    }
}

fn panicked() -> Error {
    Error::system("reading")(std::io::Error::other("a worker has panicked while it read"))
}
