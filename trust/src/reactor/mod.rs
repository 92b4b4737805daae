//! What lets fibers wait on sockets (T15): one poller for each worker that has sockets, and who waits for which.
//!
//! Here: the sockets that a worker knows, by token, and the turn in which it learns what happened to them. Not here:
//! the system calls on sockets and waiting for them (`net/`), how the worker sleeps in its poller (`waker.rs`) or,
//! where it sleeps on something else because other machines wake it, who watches the poller meanwhile
//! (`poll_thread.rs`).
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
/// Calls in a row that need not wait, after which a fiber lets others run all the same.
const CALLS_PER_STRETCH: u32 = 64;
/// The token of the worker's own wake-ups; no socket has it.
const WAKE: Token = Token(usize::MAX);

/// What a fiber waits for.
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

/// A socket, as a worker knows it.
#[derive(Default)]
struct Source {
    read: Half,
    write: Half,
    /// The other side has sent urgent data (TCP): a read ends in front of it, whatever is there behind.
    has_urgent: Cell<bool>,
}

impl Source {
    fn half(&self, direction: Direction) -> &Half {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// A call took less than it asked for. So the next one would block, unless the other side has closed or a read has
    /// come to urgent data.
    ///
    /// The kernel tells of urgent data with what it tells of the data around it; whatever comes later it tells anew.
    fn note_short(&self, direction: Direction) {
        let half = self.half(direction);
        half.ready.set(half.closed.get() || (direction == Direction::Read && self.has_urgent.get()));
    }
}

#[derive(Default)]
struct Entry {
    /// Tells the socket from one that had the place before it.
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
    /// Where the worker is watched while it sleeps, if it does not sleep in the poller itself. Given up before the
    /// poller.
    watched: Option<Place>,
    shared: Arc<SharedPoller>,
    polled: Arc<Mutex<Polled>>,
}

/// The part of a poller that sockets know, on whatever thread they are dropped. It is gone when its worker is.
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
    /// Has the worker ended? Then nobody will wait at this place any more.
    pub(crate) fn is_over(&self) -> bool {
        self.poller.strong_count() == 0
    }

    /// The socket is about to be closed. The kernel would forget it by itself only if it has no other descriptor, such
    /// as one of `try_clone`; and would then take one of the same number for this one.
    pub(crate) fn give_up(self, socket: RawFd) {
        if let Some(poller) = self.poller.upgrade() {
            // It was registered and is open, so there is nothing that could go wrong.
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

    /// Makes the socket known to this worker. Until it is told otherwise, both directions count as ready.
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
            // Nobody waits for it: who waits borrows the socket.
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

    /// A call took less than it asked for.
    pub(crate) fn note_short(&self, token: usize, direction: Direction) {
        if let Some(source) = self.source(token) {
            source.note_short(direction);
        }
    }

    /// A call would have blocked.
    pub(crate) fn note_blocked(&self, token: usize, direction: Direction) {
        if let Some(source) = self.source(token) {
            let half = source.half(direction);
            half.closed.set(false);
            half.ready.set(false);
        }
    }

    /// A call need not wait. True if it is time to let other fibers run, and the worker look around.
    pub(crate) fn note_call(&self) -> bool {
        let calls = (self.calls.get() + 1) % CALLS_PER_STRETCH;
        self.calls.set(calls);
        calls == 0
    }

    /// The caller waits until a call may succeed: each event takes the fiber out of the waiter and lets it go on (S2).
    pub(crate) fn begin_wait(&self, token: usize, direction: Direction, waiter: &Waiter) {
        self.calls.set(0);
        if let Some(source) = self.source(token) {
            source.half(direction).waiting.borrow_mut().push(Rc::clone(waiter));
        }
    }

    /// It waits no longer, whatever has ended the wait.
    pub(crate) fn end_wait(&self, token: usize, direction: Direction, waiter: &Waiter) {
        if let Some(source) = self.source(token) {
            source.half(direction).waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, waiter));
        }
    }

    /// The worker's turn: learns now and then what has happened to its sockets, and lets fibers go on. True if there
    /// was anything. It looks in this turn if it `must_look`.
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
            // One of a socket that is gone has no source any more.
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

    /// The next turn looks: the worker has slept, or has done turns of its own for long.
    pub(crate) fn look_next(&self) {
        self.turns.set(TURNS_PER_LOOK);
    }

    /// Asked after the worker has announced that it sleeps: sees to it that an event ends the sleep. True if it cannot:
    /// then the worker has to look for itself.
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
