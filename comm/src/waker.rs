//! Wakes a thread of a fabric that sleeps in a poller: an event counter, readable from `wake` to `clear`.

use crate::error::Error;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Waker of the thread that polls it.
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> Result<Waker, Error> {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        counter.map(Waker).map_err(Error::system("making an event counter"))
    }

    /// Wakes the thread that polls it now, or will before `clear`.
    pub(crate) fn wake(&self) {
        // It fails only when the counter is full, which wakes too; a non-blocking write is never interrupted.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Clears all wakes so far.
    pub(crate) fn clear(&self) {
        // It fails only without a wake since the last `clear`.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
