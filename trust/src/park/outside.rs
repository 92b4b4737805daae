//! Threads that sleep in a loop of their own (epoll, libevent): a descriptor that becomes readable when there is work
//! for the library. `ffi/attached.rs` gives a thread one, and has the call that does the work.
//!
//! The library cannot see such a thread go to sleep, so it keeps to this: **outside the library's calls the thread
//! counts as asleep.** A thread that leaves ([`Outside::enter`]) announces sleep, fences [sleep-then-look] and looks
//! for work once more, as in `park/mod.rs`; if there is some it wakes itself. A thread that makes work for it fences
//! [work-then-look], finds the announcement, takes it away and writes to the descriptor, once until the thread has
//! announced itself anew. So the work is seen by the last look, or the descriptor is readable, and stays so until a
//! poll has read it: no wake-up is lost, with any loop.
//!
//! Wakes are counted (`wakes`) before they are written. So a poll knows without a system call whether there is
//! something to read; a count whose write is still to come is read by a later poll, which the write itself brings
//! about.

use std::cell::{Cell, OnceCell};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use super::{Parker, Waker};

/// The descriptor of one thread.
pub(crate) struct EventWaker {
    descriptor: OwnedFd,
    /// Wakes so far, including those still being written.
    wakes: AtomicU64,
    /// Wakes that the thread has read. Written by it alone.
    read: AtomicU64,
}

impl EventWaker {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let descriptor = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(EventWaker { descriptor, wakes: AtomicU64::new(0), read: AtomicU64::new(0) })
    }

    fn wake(&self) {
        // Release: pairs with the Acquire in `drain`.
        self.wakes.fetch_add(1, Ordering::Release);
        // It cannot fail: the count stays far below the limit of the descriptor, and it is open as long as this is.
        if let Err(error) = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes()) {
            crate::unwind::tell(format_args!("an attached thread could not be woken: {error}"));
        }
    }

    /// Makes the descriptor unreadable, if it was written to.
    fn drain(&self) {
        let read = self.read.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `wake`.
        if self.wakes.load(Ordering::Acquire) == read {
            return;
        }
        let mut count = [0; 8];
        // A wake that is counted and not written yet is left to the next call.
        if rustix::io::read(&self.descriptor, &mut count).is_ok() {
            self.read.store(read.wrapping_add(u64::from_ne_bytes(count)), Ordering::Relaxed);
        }
    }
}

/// Sleep in a call of the library that waits, by the same waker.
// SAFETY: neither function calls the library.
unsafe impl Waker for Arc<EventWaker> {
    fn park(&self, limit: Option<Duration>, is_idle: &mut dyn FnMut() -> bool) {
        if is_idle() {
            let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
            // Woken, interrupted, timed out: the caller looks again in any case.
            let _ = rustix::event::poll(&mut [PollFd::new(&self.as_fd(), PollFlags::IN)], limit.as_ref());
        }
        self.drain();
    }

    fn wake(&self) {
        EventWaker::wake(self);
    }
}

impl AsFd for EventWaker {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The way to sleep of a worker whose thread sleeps outside the library; empty in all others.
#[derive(Default)]
pub(crate) struct Outside {
    waker: OnceCell<Arc<EventWaker>>,
    /// The worker ends: from here on its announced state is that it closes.
    closed: Cell<bool>,
}

impl Outside {
    #[inline(always)]
    fn waker(&self) -> Option<&Arc<EventWaker>> {
        self.waker.get().filter(|_| !self.closed.get())
    }

    /// Makes the thread sleep by this waker from now on, inside the library as well. Called once. Returns its
    /// descriptor.
    pub(crate) fn open(&self, parker: &Parker, waker: EventWaker) -> RawFd {
        let waker = self.waker.get_or_init(|| Arc::new(waker));
        parker.set_waker(Box::new(Arc::clone(waker)));
        waker.descriptor.as_raw_fd()
    }

    /// Does the thread sleep outside?
    pub(crate) fn is_polled(&self) -> bool {
        self.waker().is_some()
    }

    /// The worker ends, and looks for work itself until then.
    pub(crate) fn close(&self, parker: &Parker) {
        self.leave(parker);
        self.closed.set(true);
    }

    /// The thread goes on outside: from here on new work wakes it.
    #[inline(always)]
    pub(crate) fn enter(&self, parker: &Parker, has_work: impl Fn() -> bool) {
        if let Some(waker) = self.waker()
            && !parker.arm(has_work)
        {
            waker.wake();
        }
    }

    /// The thread is in a call that waits, which looks for work itself.
    #[inline(always)]
    pub(crate) fn leave(&self, parker: &Parker) {
        if let Some(waker) = self.waker() {
            parker.disarm();
            waker.drain();
        }
    }
}
