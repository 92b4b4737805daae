//! Threads that sleep in a loop of their own (epoll, libevent): a descriptor that becomes readable when there is something for
//! the library to do, and the call that does it.
//!
//! The library cannot see such a thread go to sleep, so it keeps to this: **outside the library's calls the thread counts as
//! asleep.** Whoever leaves ([`Outside::enter`]) announces sleep, fences (F1) and looks for work once more, as in `park/`; if
//! there is some it rings its own bell. Whoever makes work for it fences (F2), finds the announcement, takes it away and
//! writes to the descriptor, once until the thread has announced itself anew. So the work is seen by the last look, or the
//! descriptor is readable, and stays so until [`poll`] has read it: no wake-up is lost, whatever the loop does meanwhile.
//!
//! What was rung is counted (`rung`) before it is written. So a poll knows without a system call whether there is something
//! to read; a count whose write is still to come is read by a later poll, which the write itself brings about.

use std::cell::{Cell, OnceCell};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use super::types::{Failure, Result, Status};
use super::{may_wait, with_worker};
use crate::local::{self, NotEnded};
use crate::park::Bell;
use crate::worker::{self, Worker};

/// Turns of the worker's loop in one poll, after which the program's own loop has its turn.
const TURNS_PER_POLL: usize = 32;

/// The descriptor of one thread.
struct EventBell {
    descriptor: OwnedFd,
    /// Rings so far, those included whose write is under way.
    rung: AtomicU64,
    /// How many of them the thread has read. Written by it alone.
    read: AtomicU64,
}

impl EventBell {
    fn new() -> rustix::io::Result<Arc<Self>> {
        let descriptor = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(EventBell { descriptor, rung: AtomicU64::new(0), read: AtomicU64::new(0) }))
    }

    fn ring(&self) {
        // Release: pairs with the Acquire in `drain`.
        self.rung.fetch_add(1, Ordering::Release);
        // It cannot fail: the count stays far below what the descriptor holds, and it is open as long as this is.
        if let Err(error) = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes()) {
            crate::unwind::tell(format_args!("an attached thread could not be woken: {error}"));
        }
    }

    /// Makes the descriptor unreadable, if it was rung.
    fn drain(&self) {
        let read = self.read.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `ring`.
        if self.rung.load(Ordering::Acquire) == read {
            return;
        }
        let mut count = [0; 8];
        // What is counted and not there yet is left to the next.
        if rustix::io::read(&self.descriptor, &mut count).is_ok() {
            self.read.store(read.wrapping_add(u64::from_ne_bytes(count)), Ordering::Relaxed);
        }
    }
}

/// A call of the library that waits sleeps by the same bell.
impl Bell for Arc<EventBell> {
    fn park(&self, limit: Option<Duration>, is_idle: &mut dyn FnMut() -> bool) {
        if is_idle() {
            let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
            // Woken, interrupted, timed out: the caller looks again in any case.
            let _ = rustix::event::poll(&mut [PollFd::new(&self.as_fd(), PollFlags::IN)], limit.as_ref());
        }
        self.drain();
    }

    fn ring(&self) {
        EventBell::ring(self);
    }
}

impl AsFd for EventBell {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A worker whose thread sleeps outside the library; empty in all others.
#[derive(Default)]
pub(crate) struct Outside {
    bell: OnceCell<Arc<EventBell>>,
    /// The worker ends: what it says of itself from here on is that it closes.
    closed: Cell<bool>,
}

impl Outside {
    #[inline(always)]
    fn bell(&self) -> Option<&Arc<EventBell>> {
        self.bell.get().filter(|_| !self.closed.get())
    }

    /// Does the thread sleep outside?
    pub(crate) fn is_polled(&self) -> bool {
        self.bell().is_some()
    }

    /// The worker ends, and looks for work itself until then.
    pub(crate) fn close(&self, worker: &Worker) {
        self.leave(worker);
        self.closed.set(true);
    }

    /// The thread goes on outside: from here on whoever makes work for it rings.
    #[inline(always)]
    pub(crate) fn enter(&self, worker: &Worker) {
        if let Some(bell) = self.bell()
            && !worker.shared.parker.arm(|| worker.has_work())
        {
            bell.ring();
        }
    }

    /// The end of a call that did not wait: fibers that it has made ready are work that nobody rings for.
    #[inline(always)]
    pub(super) fn look(&self, worker: &Worker) {
        if self.bell().is_some() && worker.scheduler.has_ready() && worker.is_outside_loop() {
            self.enter(worker);
        }
    }

    /// A call that waits looks for work itself.
    #[inline(always)]
    pub(crate) fn leave(&self, worker: &Worker) {
        if let Some(bell) = self.bell() {
            worker.shared.parker.disarm();
            bell.drain();
        }
    }
}

/// Makes the calling thread a client and a trustee. With `is_polled` it gets a descriptor, and is to call [`poll`] when that is
/// readable.
///
/// # Errors
/// If it is attached already, is ending, or the system has no memory or descriptor left.
pub fn attach(is_polled: bool) -> Result<Option<RawFd>> {
    if worker::existing(|_| ()).is_some() {
        let text = "this thread is attached already (workers of a pool are so from their start)";
        return Err(Failure::new(Status::TRUST_ATTACHED, text));
    }
    let refused = |text: String| Failure::new(Status::TRUST_REFUSED, text);
    let bell = if is_polled {
        let bell = EventBell::new().map_err(|error| {
            refused(format!(
                "no eventfd for this thread (`ulimit -n` says how many files the process may have): {error}"
            ))
        })?;
        Some(bell)
    } else {
        None
    };
    worker::try_with(|worker| {
        let bell = bell?;
        worker.shared.parker.set_bell(Box::new(Arc::clone(&bell)));
        let bell = worker.outside.bell.get_or_init(|| bell);
        worker.outside.enter(worker);
        Some(bell.descriptor.as_raw_fd())
    })
    .ok_or_else(|| refused("this thread is ending and its trustee is gone".to_owned()))
}

/// Ends what [`attach`] began: finishes what the thread has asked for, serves what it was sent, drops its properties.
///
/// # Errors
/// If it is not attached, or inside a delegated function, a callback or a fiber.
///
/// # Safety
/// No frame of this thread is inside the crate, and no object of the thread keeps one of its fibers: the thread's worker is freed.
pub unsafe fn detach() -> Result<()> {
    with_worker(|worker| {
        may_wait(worker)?;
        outside_loop(worker, "trust_detach")
    })?;
    match local::end(false) {
        Ok(()) => Ok(()),
        Err(NotEnded::Fibers(names)) => {
            let text = format!(
                "fibers of this thread are in the middle of their code: {names}; wait for them, and detach then"
            );
            Err(Failure::new(Status::TRUST_REFUSED, text))
        }
        Err(NotEnded::None | NotEnded::InUse) => {
            Err(Failure::new(Status::TRUST_INTERNAL, "the thread's trustee is in use"))
        }
    }
}

pub(super) fn outside_loop(worker: &Worker, call: &str) -> Result<()> {
    if worker.is_outside_loop() {
        return Ok(());
    }
    Err(Failure::new(Status::TRUST_MAY_NOT_WAIT, format!("{call} is for the thread's own code, not for fibers")))
}

/// Takes responses, serves requests, runs fibers and sends what is pending; then announces that the thread may sleep. True if
/// there was anything to do.
///
/// # Errors
/// If the thread is not attached, or inside a delegated function, a callback or a fiber.
pub fn poll() -> Result<bool> {
    with_worker(|worker| {
        may_wait(worker)?;
        outside_loop(worker, "trust_poll")?;
        worker.outside.leave(worker);
        worker.reactor.look_next();
        let mut turns = 0;
        while turns < TURNS_PER_POLL && worker.turn() {
            turns += 1;
        }
        worker.leave_loop();
        worker.outside.enter(worker);
        Ok(turns > 0)
    })
}
