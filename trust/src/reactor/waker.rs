//! A worker that has sockets sleeps in its poller: events and the requests of others both end that sleep.
//!
//! The events that ended it lie in `Polled` until the worker's next turn takes them.

#![allow(unsafe_code)] // `Waker` is a promise

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::park::Waker;

/// Events that one look at the poller takes at most; the others come with the next.
const EVENTS_PER_LOOK: usize = 1024;

/// The poller, and the events of the last look at it. Locked by its worker alone, so it never waits for the lock.
pub(super) struct Polled {
    poll: mio::Poll,
    events: mio::Events,
    /// There are events that no turn has taken.
    fresh: bool,
}

impl Polled {
    pub(super) fn new(poll: mio::Poll) -> Self {
        Polled { poll, events: mio::Events::with_capacity(EVENTS_PER_LOOK), fresh: false }
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Looks at the poller, for up to `limit` unless an event comes earlier.
    ///
    /// # Panics
    /// If the system refuses: it does so only for an invalid poller.
    pub(super) fn poll(&mut self, limit: Option<Duration>) {
        match self.poll.poll(&mut self.events, limit) {
            Ok(()) => self.fresh = !self.events.is_empty(),
            // Earlier events are gone with the call.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.fresh = false,
            Err(error) => panic!("a worker's poller for sockets failed: {error}"),
        }
    }

    /// Takes the events of the last look, once.
    pub(super) fn take(&mut self) -> impl Iterator<Item = &mio::event::Event> {
        let fresh = std::mem::take(&mut self.fresh);
        self.events.iter().filter(move |_| fresh)
    }
}

/// Sleeps in the poller.
pub(super) struct PollWaker {
    polled: Arc<Mutex<Polled>>,
    waker: Arc<mio::Waker>,
}

impl PollWaker {
    pub(super) fn new(polled: Arc<Mutex<Polled>>, waker: Arc<mio::Waker>) -> Self {
        PollWaker { polled, waker }
    }
}

// SAFETY: neither function calls the library.
unsafe impl Waker for PollWaker {
    fn park(&self, limit: Option<Duration>, is_idle: &mut dyn FnMut() -> bool) {
        let mut polled = self.polled.lock().unwrap_or_else(PoisonError::into_inner);
        // Events that no turn has taken belong to a worker that had no sockets in its turn: they are of no use, and
        // must not keep it from sleep. A wake that comes behind this question is with the poller by then, and ends the
        // look at once.
        if is_idle() {
            polled.poll(limit);
        }
    }

    fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            crate::unwind::tell(format_args!("a worker could not be woken: {error}"));
        }
    }
}
