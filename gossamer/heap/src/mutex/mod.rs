//! `Mutex<T>`: exclusive access to an object, by a word beside it where that is mapped, else by its keeper, a trustee
//! (DRust 4.1.2). The keeper, and waits for it: `keeper.rs`; the word: `record.rs`; the queue of those that wait:
//! `queue.rs`.

#![allow(unsafe_code)]

mod keeper;
mod queue;
mod record;
mod settle;

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use gossamer::link;

use crate::error::{Error, Lost};
use crate::global::{Global, check_may_wait, no_room};
use crate::guard::RefMut;
use crate::name::Name;
use crate::object::Object;
use crate::portable::Portable;
use crate::replicas::heads::Busy;
use crate::replicas::switch;
use crate::{bases, freeing, places};
use keeper::{BEHIND, Keeper, KeeperTrust};
use record::{Given, Taken};

pub use settle::settle;

/// An object with several owners, which one at a time reads or writes. A lock gives the object in place where it is
/// mapped, else the object moves there: so it is for data of which each turn uses much; an object with requests of a
/// few bytes is better entrusted ([`Trust`](gossamer::Trust)).
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
///
/// Where a program outlives the loss of machines ([`Builder::survives`](gossamer::Builder::survives)), the mutex is
/// lost with the machine on which it was made, or on which its object lies, and with one that holds the lock: that may
/// have ended amid a change, half of which is no value at all, so there is nothing to hand on. Waiters are told at
/// once. [`renew`](Self::renew) gives a mutex that was made on a living machine another object.
///
/// With copies ([`with_copies`](crate::with_copies)) machine 0 keeps the queue and the name, so that a mutex is lost
/// with none of these, but for one that was held by the lost machine and whose object has a destructor: others are as
/// they were before that lock, and [`Poisoned`]. The end of a lock waits then until machine 0 knows of it.
pub struct Mutex<T: ?Sized + Object + Portable> {
    keeper: KeeperTrust<T>,
    meta: T::Meta,
}

/// An object whose lock was taken: its name, its address, and where it is too.
type Fetched = (Name, *mut u8, Busy, Option<Name>);

#[cold]
#[inline(never)]
fn is_lost(lost: Lost) -> ! {
    panic!("{lost}")
}

/// The lock, before the object is here; given back when it is dropped.
struct Held<'a, T: ?Sized + Object + Portable> {
    mutex: &'a Mutex<T>,
    object: ManuallyDrop<Global<T>>,
}

impl<T: ?Sized + Object + Portable> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.mutex.end(self.object.name(), false);
    }
}

/// A guard was dropped by a panic, and the object may be half-changed; or, with copies, the machine that held the lock
/// was lost, and the object is as it was before that.
#[derive(Debug)]
pub struct Poisoned<G> {
    /// The lock that was given all the same.
    pub guard: G,
}

impl<G> fmt::Display for Poisoned<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a panic unwound through a lock of this mutex, or a machine that held it was lost: what it protects may be \
             half-changed, or as it was before; `clear_poison` when it is whole",
        )
    }
}

impl<G: fmt::Debug> std::error::Error for Poisoned<G> {}

impl<T: Portable> Mutex<T> {
    /// Puts a value into the heap, in the partition of the calling worker, whose trustee keeps the queue of waiters;
    /// with copies ([`with_copies`](crate::with_copies)) machine 0 keeps it.
    ///
    /// # Panics
    /// Same as [`Global::new`]; with copies where nothing may wait.
    ///
    /// Example: at the [type](Self).
    pub fn new(value: T) -> Mutex<T> {
        Mutex::from(Global::new(value))
    }
}

impl<T: ?Sized + Object + Portable> From<Global<T>> for Mutex<T> {
    /// Shares it among several owners. Panics on a thread that is no worker of the program, and with copies where
    /// nothing may wait.
    fn from(object: Global<T>) -> Self {
        gossamer::here();
        keeper::check_may_wait();
        let object = ManuallyDrop::new(object);
        let meta = object.meta();
        Mutex { keeper: KeeperTrust::that_stays(object.name(), meta), meta }
    }
}

impl<T: ?Sized + Object + Portable> Mutex<T> {
    /// Waits for the caller's turn: nothing else, if the mutex is free and lies in memory of this host (its machine,
    /// and others by `shm`). Those that find it held are woken in the order of asking. A newcomer may come before a
    /// waiter that has just been woken. A waiter that finds it held again, after a millisecond or more, is handed it.
    ///
    /// # Errors
    /// [`Poisoned`], with the lock: a panic unwound through an earlier one.
    ///
    /// # Panics
    /// Where nothing may wait, and in plain threads; if the object has to move here and there is no room, which leaves
    /// the mutex as it was; if it is lost with a machine, which [`lock_or_lost`](Self::lock_or_lost) tells.
    ///
    /// Example: at the [type](Self).
    #[inline]
    pub fn lock(&self) -> Result<MutexGuard<'_, T>, Poisoned<MutexGuard<'_, T>>> {
        self.lock_as("lock").unwrap_or_else(|lost| is_lost(lost))
    }

    /// Same as [`lock`](Self::lock); a mutex that is lost with a machine, where the program outlives that, is an error.
    ///
    /// ```
    /// use gossamer_heap::{Lost, Mutex};
    /// gossamer::main(
    ///     || {
    ///         let number = Mutex::new(7u64);
    ///         match number.lock_or_lost() {
    ///             Ok(number) => assert_eq!(*number.unwrap(), 7),
    ///             Err(Lost { machine, .. }) => println!("it went with machine {machine}"),
    ///         }
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Errors
    /// [`Lost`]; inside, [`Poisoned`] with the lock.
    ///
    /// # Panics
    /// Same as [`lock`](Self::lock), but for that.
    pub fn lock_or_lost(&self) -> Result<Result<MutexGuard<'_, T>, Poisoned<MutexGuard<'_, T>>>, Lost> {
        self.lock_as("lock_or_lost")
    }

    #[inline]
    fn lock_as(&self, call: &str) -> Result<Result<MutexGuard<'_, T>, Poisoned<MutexGuard<'_, T>>>, Lost> {
        check_may_wait(call);
        match self.keeper.record().and_then(|record| record.take(places::own_machine())) {
            Some(taken) => self.guard(taken),
            None => self.guard(self.keeper.wait()?),
        }
    }

    /// The guard of a lock that was taken.
    #[inline]
    fn guard(
        &self,
        (name, is_poisoned): Taken,
    ) -> Result<Result<MutexGuard<'_, T>, Poisoned<MutexGuard<'_, T>>>, Lost> {
        let (name, object, busy, before) = match bases::writable(name.at) {
            Some(address) => (name.renamed(), address, Busy::none(), None),
            None => self.fetch(name)?,
        };
        // SAFETY: objects are not at null.
        let object = unsafe { NonNull::new_unchecked(T::at(object, self.meta)) };
        let was_panicking = std::thread::panicking();
        let guard = MutexGuard { mutex: self, object, name, was_panicking, busy, before, here: PhantomData };
        Ok(if is_poisoned { Err(Poisoned { guard }) } else { Ok(guard) })
    }

    /// Moves the object here, unless it can be mapped. With copies it stays where it is, too, until the lock ends.
    /// Where that fails the lock goes back as it came.
    #[cold]
    #[inline(never)]
    fn fetch(&self, name: Name) -> Result<Fetched, Lost> {
        // SAFETY: whoever takes the lock is the object's owner; it has the mutex's type.
        let object = ManuallyDrop::new(unsafe { Global::<T>::of(name, self.meta) });
        let mut held = Held { mutex: self, object };
        let fetched = if switch::are_on() {
            held.object
                .copied()
                .map(|(new, object)| (new, object, crate::global::busy(object, T::layout(self.meta)), Some(name)))
        } else {
            let object = held.object.try_write().map(|object| RefMut::into_parts(object).0);
            object.map(|object| (held.object.name(), object.as_ptr().cast(), Busy::none(), None))
        };
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(Error::Lost(lost)) => return Err(lost),
            Err(error) => no_room(&error),
        };
        std::mem::forget(held);
        Ok(fetched)
    }

    /// Ends a lock.
    #[inline]
    fn end(&self, name: Name, poisons: bool) {
        match self.keeper.record().map(|record| record.give(name, poisons)) {
            Some(Given::Free) => {}
            Some(Given::Told) => self.keeper.tell_freed(),
            Some(Given::Kept) | None => self.keeper.give_back(name, poisons, places::own_machine()),
        }
    }

    /// The lock, if the mutex is free; waits for the answer of its place at most.
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
    pub fn try_lock(&self) -> Option<Result<MutexGuard<'_, T>, Poisoned<MutexGuard<'_, T>>>> {
        check_may_wait("try_lock");
        let (record, machine) = (self.keeper.record(), places::own_machine());
        let taken = match record.and_then(|record| record.take(machine)) {
            Some(taken) => Ok(Some(taken)),
            // It is held, unless by a machine that is lost.
            None if record.is_some() && link::losses() == 0 => Ok(None),
            None => self.keeper.ask(move |keeper| keeper.take(machine)).flatten(),
        };
        let guard = taken.and_then(|taken| taken.map(|taken| self.guard(taken)).transpose());
        guard.unwrap_or_else(|lost| is_lost(lost))
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
    /// Where nothing may wait; if the machine on which the mutex was made is lost.
    pub fn clear_poison(&self) {
        self.keeper.ask(Keeper::clear_poison).unwrap_or_else(|lost| is_lost(lost));
    }
}

impl<T: ?Sized + Object + Portable> Mutex<T> {
    /// With copies only a reader finds out that a replica is not there: returns the object, if it is lost so. An error
    /// if it is there.
    fn gone(&self) -> Result<Option<Name>, ()> {
        if !switch::are_on() {
            return Ok(None);
        }
        let taken = match self.keeper.record().and_then(|record| record.take(places::own_machine())) {
            Some(taken) => Ok(taken),
            None => self.keeper.wait(),
        };
        let Ok(taken) = taken else { return Ok(None) };
        if self.guard(taken).is_ok() { Err(()) } else { Ok(Some(taken.0)) }
    }
}

impl<T: Portable> Mutex<T> {
    /// Gives a mutex that is lost, but was made on a machine that lives, a new object: the machine that held the lock
    /// or had the object was lost. A mutex that is not lost gives the value back; of several that renew it one does.
    /// The value goes along if the mutex's own machine is lost meanwhile.
    ///
    /// ```
    /// use gossamer_heap::Mutex;
    /// gossamer::main(
    ///     || {
    ///         let number = Mutex::new(7u64);
    ///         let renewed = || number.renew(0).is_ok() || number.lock_or_lost().is_ok();
    ///         if number.lock_or_lost().is_err() && !renewed() {
    ///             println!("it is lost for ever");
    ///         }
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Errors
    /// The value: the mutex is not lost, or its own machine is.
    ///
    /// # Panics
    /// Where nothing may wait; same as [`Global::new`].
    pub fn renew(&self, value: T) -> Result<(), T> {
        check_may_wait("renew");
        if self.keeper.check().is_err() {
            return Err(value);
        }
        let Ok(gone) = self.gone() else { return Err(value) };
        // Not dropped where the wait is unwound: the mutex may have it by then.
        let object = ManuallyDrop::new(Global::new(value));
        let (name, known) = (object.name(), link::losses());
        loop {
            match self.keeper.ask(move |keeper| (link::losses() >= known).then(|| keeper.renew(name, gone))) {
                Ok(None) => gossamer::sleep(BEHIND),
                Ok(Some(false)) => return Err(ManuallyDrop::into_inner(object).into_inner()),
                // The mutex has it. That may be if it is lost now, too: others that have it mapped may hold its lock.
                Ok(Some(true)) | Err(_) => return Ok(()),
            }
        }
    }
}

impl<T: ?Sized + Object + Portable> Clone for Mutex<T> {
    fn clone(&self) -> Self {
        Mutex { keeper: self.keeper.clone(), meta: self.meta }
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
pub struct MutexGuard<'a, T: ?Sized + Object + Portable> {
    mutex: &'a Mutex<T>,
    /// It stays on its thread: the object may be mapped here only.
    object: NonNull<T>,
    /// The object's name, after this write of it.
    name: Name,
    /// The thread was unwinding already when it was made.
    was_panicking: bool,
    busy: Busy,
    /// With copies: where the object was, and is until the lock ends.
    before: Option<Name>,
    here: PhantomData<*const ()>,
}

impl<T: ?Sized + Object + Portable> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: it is mapped there until the process ends ([base-stays]), and the holder of the lock owns it; the
        // guard is lent, so nobody writes it.
        unsafe { self.object.as_ref() }
    }
}

impl<T: ?Sized + Object + Portable> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the guard is lent exclusively, so nobody else reads or writes it.
        unsafe { self.object.as_mut() }
    }
}

impl<T: ?Sized + Object + Portable> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        drop(std::mem::replace(&mut self.busy, Busy::none())); // before another one may have it
        self.mutex.end(self.name, std::thread::panicking() && !self.was_panicking);
        if let Some(before) = self.before {
            self.left(before);
        }
    }
}

impl<T: ?Sized + Object + Portable> MutexGuard<'_, T> {
    /// Frees the room that the object has left; the keeper does it for other machines.
    #[cold]
    fn left(&self, before: Name) {
        if self.mutex.keeper.record().is_some() {
            // SAFETY: its contents are in the new room, and the record has that.
            unsafe { freeing::room::<T>(before, self.mutex.meta) };
        }
    }
}

impl<T: ?Sized + Object + Portable + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
