//! Waits of fibers on sockets: one poller for each worker that has sockets, and the waiters by socket.
//!
//! Here: the sockets that a worker knows, by token, and the turn in which it learns their events. Not here: the system
//! calls on sockets and waiting for them (`net/`), how the worker sleeps in its poller (`waker.rs`) or, where it sleeps
//! on something else because other machines wake it, the thread that watches the poller meanwhile (`poll_thread.rs`).
//!
//! Sockets are registered once for each worker that waits for them, edge-triggered. A fiber first tries its call. When
//! that would block, the socket counts as not ready from there on and the fiber waits for the next edge; an edge that
//! comes between the call and the wait is still with the kernel, for only this thread's turn takes edges from there. So
//! no wake-up is lost, and a worker that serves many sockets asks the kernel once for all of them.

mod poll_thread;
mod waker;

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use self::poll_thread::Place;
use self::waker::{PollWaker, Polled};
use crate::fiber::Scheduler;
use crate::fiber::timer::Waiter;
use crate::ids::TrusteeId;
use crate::registry::Shared;

/// Turns between two looks at the poller: a look is a system call. A worker that polls does a turn in some 100 ns.
const TURNS_PER_LOOK: u32 = 16;
/// Calls in a row without a wait, after which a fiber lets others run all the same.
const CALLS_PER_STRETCH: u32 = 64;
/// The token of the worker's own wake-ups; no socket has it.
const WAKE: Token = Token(usize::MAX);

/// Direction that a fiber waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// One direction of a socket.
#[derive(Default)]
struct Half {
    /// A call may succeed. Wrong only in that it may be true too often.
    ready: Cell<bool>,
    /// The other side has closed this direction, or there is an error: no further edge may come.
    closed: Cell<bool>,
    waiting: RefCell<Vec<Waiter>>,
}

/// A socket, as seen by a worker.
#[derive(Default)]
struct Source {
    read: Half,
    write: Half,
    /// The other side has sent urgent data (TCP): a read ends in front of it, even with more data behind.
    has_urgent: Cell<bool>,
}

impl Source {
    fn half(&self, direction: Direction) -> &Half {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// Notes that a call took less than it asked for. So the next one would block, unless the other side has closed or
    /// a read has come to urgent data.
    ///
    /// The kernel reports urgent data together with the data around it, and later data anew.
    fn note_short(&self, direction: Direction) {
        let half = self.half(direction);
        half.ready.set(half.closed.get() || (direction == Direction::Read && self.has_urgent.get()));
    }
}

#[derive(Default)]
struct Entry {
    /// Distinguishes the socket from earlier ones at the same place.
    generation: u32,
    source: Option<Rc<Source>>,
}

/// The sockets of one worker.
#[derive(Default)]
pub(crate) struct Reactor {
    poller: OnceCell<Poller>,
    entries: RefCell<Vec<Entry>>,
    free: RefCell<Vec<usize>>,
    sources: Cell<usize>,
    turns: Cell<u32>,
    calls: Cell<u32>,
}

struct Poller {
    /// The worker's place with the poll thread while it sleeps, if it does not sleep in the poller itself. Given up
    /// before the poller.
    watched: Option<Place>,
    shared: Arc<SharedPoller>,
    polled: Arc<Mutex<Polled>>,
}

/// The part of a poller that sockets know, on any thread that drops them. It is gone when its worker is.
struct SharedPoller {
    registry: Registry,
    /// Tokens of sockets that were dropped.
    dropped: Mutex<Vec<usize>>,
}

impl SharedPoller {
    fn dropped(&self) -> MutexGuard<'_, Vec<usize>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket's place with one worker.
pub(crate) struct Registration {
    pub(crate) worker: TrusteeId,
    pub(crate) token: usize,
    poller: Weak<SharedPoller>,
}

impl Registration {
    /// Has the worker ended? Then no fiber will wait at this place any more.
    pub(crate) fn is_over(&self) -> bool {
        self.poller.strong_count() == 0
    }

    /// Takes the socket, which is about to be closed, out of the poller. The kernel would forget it by itself only if
    /// it has no other descriptor, such as one of `try_clone`, and would otherwise mistake a later one of the same
    /// number for it.
    pub(crate) fn give_up(self, socket: RawFd) {
        if let Some(poller) = self.poller.upgrade() {
            // It was registered and is open, so this cannot fail.
            let _ = poller.registry.deregister(&mut SourceFd(&socket));
            poller.dropped().push(self.token);
        }
    }
}

fn token(place: usize, generation: u32) -> usize {
    ((generation as usize) << 32) | place
}

impl Reactor {
    /// Has the worker any sockets?
    #[inline(always)]
    pub(crate) fn is_active(&self) -> bool {
        self.sources.get() > 0
    }

    fn poller(&self, worker: &Arc<Shared>) -> io::Result<&Poller> {
        if self.poller.get().is_none() {
            let poller = Poller::new(worker).map_err(|error| {
                let text = format!(
                    "a worker could not make its poller for sockets (`ulimit -n` says how many files it \
                                    may have): {error}"
                );
                io::Error::new(error.kind(), text)
            })?;
            let _ = self.poller.set(poller);
        }
        self.poller.get().ok_or_else(|| io::Error::other("a worker has no poller"))
    }

    /// Registers the socket with this worker. At first both directions count as ready.
    pub(crate) fn register(&self, worker: &Arc<Shared>, socket: RawFd) -> io::Result<Registration> {
        let poller = self.poller(worker)?;
        self.forget_dropped(poller);
        let place = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut entries = self.entries.borrow_mut();
            entries.push(Entry::default());
            entries.len() - 1
        });
        let token = token(place, self.entries.borrow()[place].generation);
        let interests = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY;
        if let Err(error) = poller.shared.registry.register(&mut SourceFd(&socket), Token(token), interests) {
            self.free.borrow_mut().push(place);
            return Err(error);
        }
        let source = Source::default();
        source.read.ready.set(true);
        source.write.ready.set(true);
        self.entries.borrow_mut()[place].source = Some(Rc::new(source));
        self.sources.set(self.sources.get() + 1);
        Ok(Registration { worker: worker.id, token, poller: Arc::downgrade(&poller.shared) })
    }

    fn forget_dropped(&self, poller: &Poller) {
        let dropped = std::mem::take(&mut *poller.shared.dropped());
        for token in dropped {
            let place = token as u32 as usize;
            let mut entries = self.entries.borrow_mut();
            let entry = &mut entries[place];
            // No fiber waits for it: a waiter borrows the socket.
            entry.source = None;
            entry.generation = entry.generation.wrapping_add(1);
            self.free.borrow_mut().push(place);
            self.sources.set(self.sources.get() - 1);
        }
    }

    fn source(&self, of: usize) -> Option<Rc<Source>> {
        let entries = self.entries.borrow();
        let place = of as u32 as usize;
        let entry = entries.get(place)?;
        if token(place, entry.generation) == of { entry.source.clone() } else { None }
    }

    /// May a call succeed?
    pub(crate) fn is_ready(&self, token: usize, direction: Direction) -> bool {
        self.source(token).is_none_or(|source| source.half(direction).ready.get())
    }

    /// Notes that a call took less than it asked for.
    pub(crate) fn note_short(&self, token: usize, direction: Direction) {
        if let Some(source) = self.source(token) {
            source.note_short(direction);
        }
    }

    /// Notes that a call would have blocked.
    pub(crate) fn note_blocked(&self, token: usize, direction: Direction) {
        if let Some(source) = self.source(token) {
            let half = source.half(direction);
            half.closed.set(false);
            half.ready.set(false);
        }
    }

    /// Notes a call that need not wait. True if it is time to let other fibers run, and the worker look around.
    pub(crate) fn note_call(&self) -> bool {
        let calls = (self.calls.get() + 1) % CALLS_PER_STRETCH;
        self.calls.set(calls);
        calls == 0
    }

    /// Begins a wait until a call may succeed: each event takes the fiber out of the waiter and resumes it [one-waker].
    pub(crate) fn begin_wait(&self, token: usize, direction: Direction, waiter: &Waiter) {
        self.calls.set(0);
        if let Some(source) = self.source(token) {
            source.half(direction).waiting.borrow_mut().push(Rc::clone(waiter));
        }
    }

    /// Ends the wait, for any reason.
    pub(crate) fn end_wait(&self, token: usize, direction: Direction, waiter: &Waiter) {
        if let Some(source) = self.source(token) {
            source.half(direction).waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, waiter));
        }
    }

    /// Runs the reactor's part of a turn: takes events of the sockets now and then, and resumes fibers. True if there
    /// were any. It looks in this turn if it `must_look`.
    pub(crate) fn turn(&self, scheduler: &Scheduler, must_look: bool) -> bool {
        let Some(poller) = self.poller.get() else { return false };
        let mut polled = poller.polled.lock().unwrap_or_else(PoisonError::into_inner);
        if !polled.is_fresh() {
            let turns = self.turns.get() + 1;
            self.turns.set(turns);
            if turns < TURNS_PER_LOOK && !must_look {
                return false;
            }
            polled.poll(Some(Duration::ZERO));
        }
        self.turns.set(0);
        let any = self.dispatch(scheduler, &mut polled);
        drop(polled);
        self.forget_dropped(poller);
        any
    }

    fn dispatch(&self, scheduler: &Scheduler, polled: &mut Polled) -> bool {
        let mut any = false;
        for event in polled.take() {
            // A socket that is gone has no source any more.
            let Some(source) = self.source(event.token().0) else { continue };
            let error = event.is_error();
            if event.is_priority() {
                source.has_urgent.set(true);
            }
            let read = (event.is_readable() || event.is_read_closed() || error, event.is_read_closed() || error);
            let write = (event.is_writable() || event.is_write_closed() || error, event.is_write_closed() || error);
            for (half, (ready, closed)) in [(&source.read, read), (&source.write, write)] {
                if ready {
                    half.ready.set(true);
                    half.closed.set(closed);
                    any = true;
                    half.waiting.borrow().iter().for_each(|waiter| scheduler.resume(waiter.take()));
                }
            }
        }
        any
    }

    /// Makes the next turn look: the worker has slept, or has done turns of its own for long.
    pub(crate) fn look_next(&self) {
        self.turns.set(TURNS_PER_LOOK);
    }

    /// Called after the worker has announced that it sleeps: makes sure that an event ends the sleep. True if it
    /// cannot: then the worker has to look for itself.
    pub(crate) fn cannot_sleep(&self) -> bool {
        if !self.is_active() {
            return false;
        }
        match self.poller.get().and_then(|poller| poller.watched.as_ref()) {
            Some(place) => place.arm().is_err(),
            None => false,
        }
    }
}

impl Poller {
    fn new(worker: &Arc<Shared>) -> io::Result<Self> {
        let poll = mio::Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let descriptor = poll.as_raw_fd();
        let waker = Arc::new(mio::Waker::new(poll.registry(), WAKE)?);
        let polled = Arc::new(Mutex::new(Polled::new(poll)));
        let waker = PollWaker::new(Arc::clone(&polled), waker);
        // A worker of a rack program has a waker already, which other machines use.
        let own = worker.parker.set_waker(Box::new(waker));
        let watched = if own { None } else { Some(Place::new(Arc::clone(worker), descriptor)?) };
        let shared = Arc::new(SharedPoller { registry, dropped: Mutex::default() });
        Ok(Poller { watched, shared, polled })
    }
}
