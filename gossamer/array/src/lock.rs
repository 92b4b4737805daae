//! Locks of single elements. The line before each lock is at the home of its element ([`LockLine`]), and only while
//! somebody has the lock or waits for it; who waits has left a promise there. A fiber that is aborted while it waits,
//! or holds the lock, gives it back as its stack is unwound: `take` and `leave` of a ticket arrive in this order.
//!
//! What was done under a lock is seen under the next one without more ado: an element that was set has no valid copy
//! elsewhere, and one that is combined is read only when everything is merged.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::marker::PhantomData;

use gossamer::Trust;
use trust::Promise;
use trust::link::without_waiting;

use crate::array::{Array, on_worker};
use crate::element::Element;
use crate::part::{Name, Part};
use crate::post;
use crate::waits;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// One call for a lock, among all of the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    place: usize,
    number: u64,
}

/// Who has one lock and who waits for it, in order; a waiter is told by its `W`. Fair: those that read and stand
/// together have it together, and nobody overtakes one that waits.
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
    /// Takes the lock, and gives the waiter back to be told, or has it wait.
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

    /// Who has this ticket gives the lock back, or waits no more. Whose turn it is now. Nobody's if the ticket is not
    /// here.
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

    /// Does nobody have it or wait?
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

/// The locks of the elements of which a place is the home, as far as they are in use.
#[derive(Default)]
pub(crate) struct Locks {
    /// The last ticket of this place.
    last: Cell<u64>,
    lines: RefCell<HashMap<usize, LockLine<Promise<bool>>>>,
}

impl Locks {
    /// Nobody will have a lock any more: who waits is told.
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
    /// As home: somebody wants the lock of an element, and is told when it has it, or (`is_try`) if it has it.
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

    /// As home: somebody has no use for the lock any more.
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

/// A lock that this place has or waits for, until it is dropped.
struct OfPlace {
    name: Name,
    i: usize,
    ticket: Ticket,
}

impl Drop for OfPlace {
    fn drop(&mut self) {
        let OfPlace { name, i, ticket } = *self;
        post::at(name, |part| match part.home_of(i) {
            // Telling who is next could wait for room.
            home if home == part.own => without_waiting(|| part.unlock(i, ticket)),
            home => post::send(part, home, move |part, _| part.unlock(i, ticket), &[]),
        });
    }
}

/// What a guard has.
enum Held {
    OfPlace {
        _lock: OfPlace,
    },
    /// A worker has the lock for a thread that is no place, until this goes. No fiber does: the program would wait
    /// for it at its end where the guard was forgotten.
    OfWorker {
        _lock: Trust<OfPlace>,
    },
}

impl<T: Element> Array<T> {
    /// Locks element `i` for reading: others may read-lock it too, but not write-lock it. Waits for those before in
    /// line. It is fair: who comes first has the lock first, and those that read and come together have it together.
    ///
    /// Locks are agreements among those that use them: [`get`](Self::get), [`set`](Self::set) and the other calls do
    /// not look at them. Each element has a lock of its own, kept at its [owner](Self::owner), and costs nothing while
    /// it is not used.
    ///
    /// **Locks can wait for each other.** Who holds the lock of one element and takes that of another takes them in
    /// ascending order of index, as everybody does; and nobody takes a lock that it has already, for reading neither (a
    /// writer between the two waits for the first, and the second for the writer).
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

    /// Locks element `i` for reading and writing: nobody else has its lock meanwhile. As
    /// [`read_lock`](Self::read_lock), and what is said there.
    ///
    /// # Panics
    /// As [`read_lock`](Self::read_lock).
    ///
    /// Example: at [`WriteGuard`].
    ///
    /// Source: DArray 3.2.
    #[track_caller]
    pub fn write_lock(&self, i: usize) -> WriteGuard<'_, T> {
        WriteGuard(self.locked(i, Kind::Write))
    }

    /// As [`read_lock`](Self::read_lock), if that need not wait for others that have the lock or want it: it asks the
    /// element's owner, and waits for the answer alone.
    ///
    /// # Panics
    /// As [`read_lock`](Self::read_lock).
    ///
    /// Example: at [`ReadGuard`].
    #[track_caller]
    pub fn try_read_lock(&self, i: usize) -> Option<ReadGuard<'_, T>> {
        Some(ReadGuard(self.lock("try_read_lock", i, Kind::Read, true)?))
    }

    /// As [`write_lock`](Self::write_lock), if that need not wait for others that have the lock or want it: it asks the
    /// element's owner, and waits for the answer alone.
    ///
    /// # Panics
    /// As [`read_lock`](Self::read_lock).
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
            let lock = move || Some(trust::local_trustee().entrust(array.lock_here(i, kind, is_try)?));
            Held::OfWorker { _lock: on_worker(lock)? }
        };
        Some(Guard { array: self, i, _held: held, thread: PhantomData })
    }

    /// Has this place take the lock.
    #[track_caller]
    fn lock_here(&self, i: usize, kind: Kind, is_try: bool) -> Option<OfPlace> {
        let part = self.part();
        let number = part.locks.last.get() + 1;
        part.locks.last.set(number);
        let ticket = Ticket { place: part.own, number };
        let (promise, answer) = trust::promise::<bool>();
        match part.home_of(i) {
            home if home == part.own => part.lock(i, ticket, kind, is_try, promise),
            home => post::send(&part, home, move |part, _| part.lock(i, ticket, kind, is_try, promise), &[]),
        }
        // From here on it is given back, also where the fiber is aborted.
        let lock = OfPlace { name: part.name, i, ticket };
        drop(part);
        match answer.wait() {
            Ok(true) => Some(lock),
            Ok(false) => {
                std::mem::forget(lock);
                // Who has it may be a fiber of this very worker, or have sent that it gives it back.
                trust::yield_now();
                None
            }
            Err(_) => self.gone(),
        }
    }
}

/// What both kinds of guards are.
struct Guard<'a, T> {
    array: &'a Array<T>,
    i: usize,
    _held: Held,
    /// It stays on its thread, whose part gives the lock back.
    thread: PhantomData<*const ()>,
}

/// Element `i` is locked for reading while it lives ([`Array::read_lock`]).
///
/// Dropping it never waits, and is legal everywhere. Who holds several locks takes them in ascending order of index, or
/// they may wait for each other.
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

/// Element `i` is locked for this guard alone while it lives ([`Array::write_lock`]).
///
/// Dropping it never waits, and is legal everywhere. Who holds several locks takes them in ascending order of index, or
/// they may wait for each other.
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
    /// The element: [`Array::get`].
    ///
    /// Example: at the [type](Self).
    #[track_caller]
    pub fn get(&self) -> T {
        self.0.array.get(self.0.i)
    }
}

impl<T: Element> WriteGuard<'_, T> {
    /// The element: [`Array::get`].
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
