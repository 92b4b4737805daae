//! `Mutex<T>`: exclusive access to an object. Its trustee hands the owner over, in the order of asking (DRust 4.1.2).

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use gossamer::{Promise, Trust};

use crate::global::{Global, check_may_wait};
use crate::object::Object;
use crate::portable::Portable;

/// An object with several owners, which one at a time reads or writes. A lock gives the object in place where it is
/// mapped, else the object moves there: so it is for data of which each turn uses much; an object with requests of a
/// few bytes is better entrusted ([`Trust`]).
///
/// ```
/// use gossamer_heap::Mutex;
/// gossamer::main(
///     || {
///         let counts = Mutex::new([0u64; 100]);
///         let fibers: Vec<_> = gossamer::rack()
///             .places()
///             .map(|place| {
///                 let counts = counts.clone();
///                 gossamer::spawn_on(place, move || counts.lock().unwrap().iter_mut().for_each(|count| *count += 1))
///             })
///             .collect();
///         for fiber in fibers {
///             fiber.join().unwrap();
///         }
///         assert_eq!(counts.lock().unwrap()[99], 2);
///     },
///     2,
/// );
/// ```
pub struct Mutex<T: ?Sized + Object + Portable>(Trust<Line<T>>);

/// The object and the waiters.
struct Line<T: ?Sized + Object + Portable> {
    /// None while one has it.
    object: Option<Global<T>>,
    waiting: VecDeque<(Promise<Turn<T>>, Mutex<T>)>,
    is_poisoned: bool,
}

/// The object, on its way to the next waiter. Dropped, it goes back.
struct Turn<T: ?Sized + Object + Portable> {
    object: Option<Global<T>>,
    mutex: Mutex<T>,
    is_poisoned: bool,
}

impl<T: ?Sized + Object + Portable> Turn<T> {
    fn give_back(&mut self, is_poisoned: bool) {
        if let Some(object) = self.object.take() {
            self.mutex.0.apply_then(move |line| line.came_back(object, is_poisoned), |()| {});
        }
    }
}

impl<T: ?Sized + Object + Portable> Drop for Turn<T> {
    fn drop(&mut self) {
        self.give_back(false);
    }
}

impl<T: ?Sized + Object + Portable> Line<T> {
    fn take(&mut self) -> Option<(Global<T>, bool)> {
        self.object.take().map(|object| (object, self.is_poisoned))
    }

    fn came_back(&mut self, object: Global<T>, is_poisoned: bool) {
        self.is_poisoned |= is_poisoned;
        match self.waiting.pop_front() {
            Some((promise, mutex)) => promise.keep(Turn { object: Some(object), mutex, is_poisoned: self.is_poisoned }),
            None => self.object = Some(object),
        }
    }
}

/// A guard was dropped by a panic: the object may be half-changed.
#[derive(Debug)]
pub struct Poisoned<G> {
    /// The lock that was given all the same.
    pub guard: G,
}

impl<G> fmt::Display for Poisoned<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a panic unwound through a lock of this mutex: what it protects may be half-changed; \
                     `clear_poison` when it is whole",
        )
    }
}

impl<G: fmt::Debug> std::error::Error for Poisoned<G> {}

impl<T: Portable> Mutex<T> {
    /// Puts a value into the heap, in the partition of the calling worker, whose trustee keeps the queue of waiters.
    ///
    /// # Panics
    /// Same as [`Global::new`].
    ///
    /// Example: at the [type](Self).
    pub fn new(value: T) -> Mutex<T> {
        Mutex::from(Global::new(value))
    }
}

impl<T: ?Sized + Object + Portable> From<Global<T>> for Mutex<T> {
    /// Shares it among several owners. Panics on a thread that is no worker of the program.
    fn from(object: Global<T>) -> Self {
        gossamer::here();
        let line = Line { object: Some(object), waiting: VecDeque::new(), is_poisoned: false };
        Mutex(trust::local_trustee().entrust(line))
    }
}

impl<T: ?Sized + Object + Portable> Mutex<T> {
    /// Waits for the caller's turn. Turns are given in the order of asking.
    ///
    /// # Errors
    /// [`Poisoned`], with the lock: a panic unwound through an earlier one.
    ///
    /// # Panics
    /// Where nothing may wait, and in plain threads; if the object has to move here and there is no room, which leaves
    /// the mutex as it was.
    ///
    /// Example: at the [type](Self).
    pub fn lock(&self) -> Result<MutexGuard<T>, Poisoned<MutexGuard<T>>> {
        check_may_wait("lock");
        if let Some(turn) = self.take() {
            return MutexGuard::of(turn);
        }
        let (promise, pending) = trust::promise();
        let mutex = self.clone();
        let taken = self.0.apply(move |line| {
            let taken = line.take();
            if taken.is_none() {
                line.waiting.push_back((promise, mutex));
            }
            taken
        });
        let turn = match taken {
            Some((object, is_poisoned)) => Turn { object: Some(object), mutex: self.clone(), is_poisoned },
            None => pending.wait().unwrap_or_else(|error| panic!("the mutex is gone: {error}")),
        };
        MutexGuard::of(turn)
    }

    /// The turn, if the object is free.
    fn take(&self) -> Option<Turn<T>> {
        let (object, is_poisoned) = self.0.apply(Line::take)?;
        Some(Turn { object: Some(object), mutex: self.clone(), is_poisoned })
    }

    /// The lock, if the object is free; waits for the answer of its place only.
    ///
    /// ```
    /// use gossamer_heap::Mutex;
    /// gossamer::main(
    ///     || {
    ///         let number = Mutex::new(7u64);
    ///         let first = number.lock().unwrap();
    ///         assert!(number.try_lock().is_none());
    ///         drop(first);
    ///         assert_eq!(*number.lock().unwrap(), 7);
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Panics
    /// Same as [`lock`](Self::lock).
    pub fn try_lock(&self) -> Option<Result<MutexGuard<T>, Poisoned<MutexGuard<T>>>> {
        check_may_wait("try_lock");
        self.take().map(MutexGuard::of)
    }

    /// The object is whole again: later locks are no errors.
    ///
    /// ```
    /// use gossamer_heap::Mutex;
    /// gossamer::main(
    ///     || {
    ///         let number = Mutex::new(7u64);
    ///         let other = number.clone();
    ///         let fiber = gossamer::spawn(move || {
    ///             let _guard = other.lock().unwrap();
    ///             panic!("amid a change");
    ///         });
    ///         assert!(fiber.join().is_err());
    ///         assert!(number.lock().is_err());
    ///         number.clear_poison();
    ///         assert!(number.lock().is_ok());
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Panics
    /// Where nothing may wait.
    pub fn clear_poison(&self) {
        self.0.apply(|line| line.is_poisoned = false);
    }
}

impl<T: ?Sized + Object + Portable> Clone for Mutex<T> {
    fn clone(&self) -> Self {
        Mutex(self.0.clone())
    }
}

impl<T: ?Sized + Object + Portable> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

/// The lock of a [`Mutex`], which ends with it. It stays on its thread.
///
/// Forgotten, the mutex stays locked.
pub struct MutexGuard<T: ?Sized + Object + Portable> {
    turn: Turn<T>,
    /// The thread was unwinding already when it was made.
    was_panicking: bool,
    /// It stays on its thread: the object may be mapped here only.
    here: PhantomData<*const ()>,
}

impl<T: ?Sized + Object + Portable> MutexGuard<T> {
    fn of(mut turn: Turn<T>) -> Result<Self, Poisoned<Self>> {
        // Here, where it may wait, rather than at the first use. Where that fails the turn goes back as it came.
        if let Some(object) = &mut turn.object {
            let _renamed = object.write();
        }
        let (is_poisoned, was_panicking) = (turn.is_poisoned, std::thread::panicking());
        let guard = MutexGuard { turn, was_panicking, here: PhantomData };
        if is_poisoned { Err(Poisoned { guard }) } else { Ok(guard) }
    }

    fn object(&self) -> &Global<T> {
        self.turn.object.as_ref().unwrap_or_else(|| unreachable!("a guard has its object"))
    }

    fn object_mut(&mut self) -> &mut Global<T> {
        self.turn.object.as_mut().unwrap_or_else(|| unreachable!("a guard has its object"))
    }
}

impl<T: ?Sized + Object + Portable> Deref for MutexGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.object().in_place()
    }
}

impl<T: ?Sized + Object + Portable> DerefMut for MutexGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.object_mut().in_place_mut()
    }
}

impl<T: ?Sized + Object + Portable> Drop for MutexGuard<T> {
    fn drop(&mut self) {
        self.turn.give_back(std::thread::panicking() && !self.was_panicking);
    }
}

impl<T: ?Sized + Object + Portable + fmt::Debug> fmt::Debug for MutexGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
