//! Locks of single elements. The queue of a lock ([`LockLine`]) is at the home of its element, and exists only while
//! the lock is held or awaited; a waiter has left a promise there. A fiber that is aborted while it waits for the lock
//! or holds it releases it as its stack is unwound: `take` and `leave` of a ticket arrive in this order.
//!
//! Writes under a lock are visible under the next one without further synchronisation: after a `set` no other place has
//! a valid copy of the element, and a combined element is read only after everything is merged.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::marker::PhantomData;

use gossamer::Trust;
use trust::Promise;
use trust::link::without_waiting;

use crate::array::{Array, on_worker};
use crate::element::Element;
use crate::name::Name;
use crate::part::Part;
use crate::post;
use crate::waits;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// Identity of one lock call, unique in the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    place: usize,
    number: u64,
}

/// Holders and waiters of one lock, in order; a waiter is notified through its `W`. Fair: adjacent readers hold it
/// together, and no request overtakes a waiting one.
pub(crate) struct LockLine<W> {
    held: Vec<Ticket>,
    is_written: bool,
    waiting: VecDeque<(Ticket, Kind, W)>,
}

impl<W> Default for LockLine<W> {
    fn default() -> Self {
        LockLine { held: Vec::new(), is_written: false, waiting: VecDeque::new() }
    }
}

impl<W> LockLine<W> {
    /// Takes the lock and returns the waiter to be notified, or queues it.
    pub(crate) fn take(&mut self, ticket: Ticket, kind: Kind, waiter: W) -> Option<W> {
        if self.try_take(ticket, kind) {
            return Some(waiter);
        }
        self.waiting.push_back((ticket, kind, waiter));
        None
    }

    /// Takes the lock if that needs no waiting.
    pub(crate) fn try_take(&mut self, ticket: Ticket, kind: Kind) -> bool {
        let can = self.waiting.is_empty() && self.fits(kind);
        if can {
            self.hold(ticket, kind);
        }
        can
    }

    /// Releases the lock, or cancels the wait, of this ticket. Returns the waiters that now have the lock; none if the
    /// ticket is unknown.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Vec<W> {
        self.held.retain(|held| *held != ticket);
        self.waiting.retain(|(waiting, ..)| *waiting != ticket);
        let mut told = Vec::new();
        while let Some((_, kind, _)) = self.waiting.front()
            && self.fits(*kind)
            && let Some((ticket, kind, waiter)) = self.waiting.pop_front()
        {
            self.hold(ticket, kind);
            told.push(waiter);
        }
        told
    }

    /// Is it neither held nor awaited?
    pub(crate) fn is_free(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    fn fits(&self, kind: Kind) -> bool {
        self.held.is_empty() || kind == Kind::Read && !self.is_written
    }

    fn hold(&mut self, ticket: Ticket, kind: Kind) {
        self.held.push(ticket);
        self.is_written = kind == Kind::Write;
    }
}

/// The locks in use of the elements of a home.
#[derive(Default)]
pub(crate) struct Locks {
    /// The last ticket of this place.
    last: Cell<u64>,
    lines: RefCell<HashMap<usize, LockLine<Promise<bool>>>>,
}

impl Locks {
    /// Drops all locks: the waiters are notified that they will not get them.
    pub(crate) fn drop_all(&self) {
        let lines = self.lines.take();
        drop(lines);
    }

    fn change<R>(&self, i: usize, change: impl FnOnce(&mut LockLine<Promise<bool>>) -> R) -> R {
        let mut lines = self.lines.borrow_mut();
        let line = lines.entry(i).or_default();
        let outcome = change(line);
        if line.is_free() {
            lines.remove(&i);
        }
        outcome
    }
}

impl Part {
    /// As home: handles a request for the lock of an element. The requester is notified when it has the lock or, with
    /// `is_try`, whether it has it.
    fn lock(&self, i: usize, ticket: Ticket, kind: Kind, is_try: bool, promise: Promise<bool>) {
        self.check_lock(i);
        if self.is_poisoned.get() {
            return;
        }
        if is_try {
            promise.keep(self.locks.change(i, |line| line.try_take(ticket, kind)));
        } else if let Some(promise) = self.locks.change(i, |line| line.take(ticket, kind, promise)) {
            promise.keep(true);
        }
    }

    /// As home: handles the release of a lock.
    fn unlock(&self, i: usize, ticket: Ticket) {
        self.check_lock(i);
        let told = self.locks.change(i, |line| line.leave(ticket));
        told.into_iter().for_each(|promise| promise.keep(true));
    }

    fn check_lock(&self, i: usize) {
        let is_own = i < self.shape.elements && self.home_of(i) == self.own;
        assert!(is_own, "a message for the lock of element {i}, which is not here");
    }

    fn home_of(&self, i: usize) -> usize {
        self.shape.home((i >> self.shape.shift) as u32)
    }
}

/// A lock that this place holds or waits for, until it is dropped.
struct OfPlace {
    name: Name,
    i: usize,
    ticket: Ticket,
}

impl Drop for OfPlace {
    fn drop(&mut self) {
        let OfPlace { name, i, ticket } = *self;
        post::at(name, |part| match part.home_of(i) {
            // Notifying the next holder could wait for space.
            home if home == part.own => without_waiting(|| part.unlock(i, ticket)),
            home => post::send(part, home, move |part, _| part.unlock(i, ticket), &[]),
        });
    }
}

/// The holder behind a guard.
enum Held {
    OfPlace {
        _lock: OfPlace,
    },
    /// A worker holds the lock for a thread that is not a place, until this is dropped. It is not a fiber: if the guard
    /// were forgotten, the program would wait for that fiber at its end.
    OfWorker {
        _lock: Trust<OfPlace>,
    },
}

impl<T: Element> Array<T> {
    /// Locks element `i` for reading: others may read-lock it too, but not write-lock it. Waits for earlier requests.
    /// It is fair: requests are served in order, and adjacent readers hold the lock together.
    ///
    /// Locks are advisory: [`get`](Self::get), [`set`](Self::set) and the other calls ignore them. Each element has a
    /// lock of its own, kept at its [owner](Self::owner), which costs nothing while it is not used.
    ///
    /// **Locks can deadlock.** A holder that takes the locks of several elements has to take them in ascending order of
    /// index, as every other one does. And no holder may take the same lock again, not even for reading (a writer that
    /// queues between the two waits for the first, and the second for the writer).
    ///
    /// # Panics
    /// If `i` is out of range; inside delegated closures and callbacks, where nothing may wait; if the array is
    /// poisoned.
    ///
    /// Example: at [`ReadGuard`].
    ///
    /// Source: DArray 3.2.
    #[track_caller]
    pub fn read_lock(&self, i: usize) -> ReadGuard<'_, T> {
        ReadGuard(self.locked(i, Kind::Read))
    }

    /// Locks element `i` for reading and writing: no one else has its lock meanwhile. The remarks at
    /// [`read_lock`](Self::read_lock) apply.
    ///
    /// # Panics
    /// Those of [`read_lock`](Self::read_lock).
    ///
    /// Example: at [`WriteGuard`].
    ///
    /// Source: DArray 3.2.
    #[track_caller]
    pub fn write_lock(&self, i: usize) -> WriteGuard<'_, T> {
        WriteGuard(self.locked(i, Kind::Write))
    }

    /// Same as [`read_lock`](Self::read_lock), if that needs no waiting for holders or earlier requests, else `None`.
    /// It asks the element's owner, and waits only for the answer.
    ///
    /// # Panics
    /// Those of [`read_lock`](Self::read_lock).
    ///
    /// Example: at [`ReadGuard`].
    #[track_caller]
    pub fn try_read_lock(&self, i: usize) -> Option<ReadGuard<'_, T>> {
        Some(ReadGuard(self.lock("try_read_lock", i, Kind::Read, true)?))
    }

    /// Same as [`write_lock`](Self::write_lock), if that needs no waiting for holders or earlier requests, else `None`.
    /// It asks the element's owner, and waits only for the answer.
    ///
    /// # Panics
    /// Those of [`read_lock`](Self::read_lock).
    ///
    /// Example: at [`WriteGuard`].
    #[track_caller]
    pub fn try_write_lock(&self, i: usize) -> Option<WriteGuard<'_, T>> {
        Some(WriteGuard(self.lock("try_write_lock", i, Kind::Write, true)?))
    }

    #[track_caller]
    fn locked(&self, i: usize, kind: Kind) -> Guard<'_, T> {
        let call = if kind == Kind::Read { "read_lock" } else { "write_lock" };
        match self.lock(call, i, kind, false) {
            Some(guard) => guard,
            None => unreachable!("it waited"),
        }
    }

    #[track_caller]
    fn lock(&self, call: &'static str, i: usize, kind: Kind, is_try: bool) -> Option<Guard<'_, T>> {
        assert!(i < self.len(), "index {i} is out of range of an array of {} elements", self.len());
        waits::may_wait(call);
        self.look();
        let held = if self.is_here() {
            Held::OfPlace { _lock: self.lock_here(i, kind, is_try)? }
        } else {
            let array = self.clone();
            let lock = move || {
                let members = array.part().members.clone();
                members.wait_for_losses();
                Some(trust::local_trustee().entrust(array.lock_here(i, kind, is_try)?))
            };
            Held::OfWorker { _lock: on_worker(lock)? }
        };
        Some(Guard { array: self, i, _held: held, thread: PhantomData })
    }

    /// Takes the lock for this place.
    #[track_caller]
    fn lock_here(&self, i: usize, kind: Kind, is_try: bool) -> Option<OfPlace> {
        let part = self.part();
        let number = part.locks.last.get() + 1;
        part.locks.last.set(number);
        let ticket = Ticket { place: part.own, number };
        let (promise, answer) = trust::link::promise_at::<bool>(part.place(part.home_of(i)).id());
        match part.home_of(i) {
            home if home == part.own => part.lock(i, ticket, kind, is_try, promise),
            home => post::send(&part, home, move |part, _| part.lock(i, ticket, kind, is_try, promise), &[]),
        }
        // From here on it is released, also if the fiber is aborted.
        let lock = OfPlace { name: part.name, i, ticket };
        drop(part);
        match answer.wait() {
            Ok(true) => Some(lock),
            Ok(false) => {
                std::mem::forget(lock);
                // The holder may be a fiber of this very worker, or its release may be on the way.
                trust::yield_now();
                None
            }
            Err(_) => self.gone(),
        }
    }
}

/// State common to both kinds of guards.
struct Guard<'a, T> {
    array: &'a Array<T>,
    i: usize,
    _held: Held,
    /// It stays on its thread, because that thread's part releases the lock.
    thread: PhantomData<*const ()>,
}

/// Read lock of element `i`, held while this lives ([`Array::read_lock`]).
///
/// Dropping it never waits, and is allowed everywhere. A holder of several locks takes them in ascending order of
/// index; otherwise they may deadlock.
///
/// ```
/// use gossamer_array::Array;
/// gossamer::main(|| {
///     let array = Array::new(1000, 7u64).unwrap();
///     let first = array.read_lock(5);
///     let second = array.try_read_lock(5).unwrap();   // readers go together
///     assert_eq!(first.get() + second.get(), 14);
///     assert!(array.try_write_lock(5).is_none());
/// }, 2);
/// ```
#[must_use = "it is unlocked when this is dropped"]
pub struct ReadGuard<'a, T>(Guard<'a, T>);

/// Exclusive lock of element `i`, held while this lives ([`Array::write_lock`]).
///
/// Dropping it never waits, and is allowed everywhere. A holder of several locks takes them in ascending order of
/// index; otherwise they may deadlock.
///
/// ```
/// use gossamer_array::Array;
/// gossamer::main(|| {
///     let account = Array::new(1000, 7u64).unwrap();
///     {
///         let (from, to) = (account.write_lock(5), account.write_lock(900)); // in ascending order
///         let amount = from.get().min(3);
///         from.set(from.get() - amount);
///         to.set(to.get() + amount);
///         assert!(account.try_read_lock(5).is_none());
///     }
///     assert_eq!((account.get(5), account.get(900)), (4, 10));
///     assert!(account.try_write_lock(5).is_some());
/// }, 2);
/// ```
#[must_use = "it is unlocked when this is dropped"]
pub struct WriteGuard<'a, T>(Guard<'a, T>);

impl<T: Element> ReadGuard<'_, T> {
    /// Returns the element: [`Array::get`].
    ///
    /// Example: at the [type](Self).
    #[track_caller]
    pub fn get(&self) -> T {
        self.0.array.get(self.0.i)
    }
}

impl<T: Element> WriteGuard<'_, T> {
    /// Returns the element: [`Array::get`].
    ///
    /// Example: at the [type](Self).
    #[track_caller]
    pub fn get(&self) -> T {
        self.0.array.get(self.0.i)
    }

    /// Sets the element: [`Array::set`].
    ///
    /// Example: at the [type](Self).
    #[track_caller]
    pub fn set(&self, value: T) {
        self.0.array.set(self.0.i, value);
    }
}

impl<T> fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadGuard({})", self.0.i)
    }
}

impl<T> fmt::Debug for WriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteGuard({})", self.0.i)
    }
}

#[cfg(test)]
mod tests;
