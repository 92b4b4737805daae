//! `Atomic`: a number that all change at once (DRust 4.1.2). Not the network card's atomics: they are none beside those
//! of the processor.

#![allow(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use gossamer::{NoRef, Trust};

use crate::error::Lost;
use crate::global::Global;
use crate::name::At;
use crate::shared::Root;
use crate::{bases, places, replicas};

/// A `u64` of the heap that several own and all may change: with the processor's instruction where it is mapped (on its
/// machine, and others of that host by `shm`), else by a request to its place, which does the same. All is in one order
/// that everybody agrees on.
///
/// ```
/// use gossamer_heap::Atomic;
/// gossamer::main(
///     || {
///         let count = Atomic::new(0);
///         let fibers: Vec<_> = gossamer::rack()
///             .places()
///             .map(|place| {
///                 let count = count.clone();
///                 gossamer::spawn_on(place, move || count.fetch_add(1))
///             })
///             .collect();
///         for fiber in fibers {
///             fiber.join().unwrap();
///         }
///         assert_eq!(count.load(), 2);
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// Its calls, where it is not mapped and nothing may wait (delegated closures, callbacks, destructors); if it is
/// [lost](Self::lost) with its machine, where the program outlives that
/// ([`Builder::survives`](gossamer::Builder::survives)).
pub struct Atomic {
    root: Trust<Root<u64>>,
    at: At,
}

impl Atomic {
    /// Puts a number into the heap, in the partition of the calling worker.
    ///
    /// # Panics
    /// Same as [`Global::new`].
    ///
    /// Example: at the [type](Self).
    pub fn new(value: u64) -> Atomic {
        let number = Global::new_here(value);
        let at = number.name().at;
        replicas::keep_none(number.name());
        Atomic { root: Root::new(number), at }
    }

    /// Does something with the number, here or at its place.
    fn with<R, F>(&self, f: F) -> R
    where
        R: NoRef + Send + 'static,
        F: FnOnce(&AtomicU64) -> R + NoRef + Send + 'static,
    {
        self.apply_or_lost(f).unwrap_or_else(|lost| panic!("{lost}"))
    }

    /// Does something with the number as the processor's atomic, at its place or where it is mapped. A number that is
    /// lost is an error; if it was lost meanwhile `f` may have run.
    ///
    /// ```
    /// use gossamer_heap::{Atomic, Lost};
    /// use std::sync::atomic::Ordering;
    /// gossamer::main(
    ///     || match Atomic::new(6).apply_or_lost(|number| number.fetch_add(1, Ordering::SeqCst)) {
    ///         Ok(before) => assert_eq!(before, 6),
    ///         Err(Lost { machine, .. }) => println!("it went with machine {machine}"),
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Errors
    /// [`Lost`].
    ///
    /// # Panics
    /// Where it is not mapped and nothing may wait.
    pub fn apply_or_lost<R, F>(&self, f: F) -> Result<R, Lost>
    where
        R: NoRef + Send + 'static,
        F: FnOnce(&AtomicU64) -> R + NoRef + Send + 'static,
    {
        if let Some(number) = bases::find(self.at) {
            // SAFETY: the number stays there while `root` has an owner; it is aligned, and nobody touches it but as an
            // atomic.
            return Ok(f(unsafe { AtomicU64::from_ptr(number.cast()) }));
        }
        places::check(self.at)?;
        let at = self.at;
        let there = move |_: &mut Root<u64>| {
            let number = bases::find(at).unwrap_or_else(|| unreachable!("it is mapped at its place"));
            // SAFETY: as above.
            f(unsafe { AtomicU64::from_ptr(number.cast()) })
        };
        self.root.call().apply(there).wait().or_else(|error| {
            places::check(at)?;
            panic!("{error}")
        })
    }

    /// Returns whether the number is lost with its machine, where the program outlives that: all other calls but
    /// [`apply_or_lost`](Self::apply_or_lost) panic then. Legal everywhere.
    ///
    /// ```
    /// gossamer::main(|| assert_eq!(gossamer_heap::Atomic::new(7).lost(), None), 1);
    /// ```
    pub fn lost(&self) -> Option<Lost> {
        places::check(self.at).err()
    }

    /// The number.
    ///
    /// Example: at the [type](Self).
    pub fn load(&self) -> u64 {
        self.with(|number| number.load(Ordering::SeqCst))
    }

    /// Sets it.
    ///
    /// ```
    /// use gossamer_heap::Atomic;
    /// gossamer::main(
    ///     || {
    ///         let number = Atomic::new(1);
    ///         number.store(5);
    ///         assert_eq!(number.swap(7), 5);
    ///         assert_eq!(number.fetch_max(6), 7);
    ///         assert_eq!(number.compare_exchange(7, 8), Ok(7));
    ///         assert_eq!(number.compare_exchange(7, 9), Err(8));
    ///         assert_eq!(number.load(), 8);
    ///     },
    ///     1,
    /// );
    /// ```
    pub fn store(&self, value: u64) {
        self.with(move |number| number.store(value, Ordering::SeqCst));
    }

    /// Sets the value. Returns the value before.
    ///
    /// Example: at [`store`](Self::store).
    pub fn swap(&self, value: u64) -> u64 {
        self.with(move |number| number.swap(value, Ordering::SeqCst))
    }

    /// Adds to the value, wrapping around. Returns the value before.
    ///
    /// Example: at the [type](Self).
    pub fn fetch_add(&self, value: u64) -> u64 {
        self.with(move |number| number.fetch_add(value, Ordering::SeqCst))
    }

    /// Raises the value to at least this one. Returns the value before.
    ///
    /// Example: at [`store`](Self::store).
    pub fn fetch_max(&self, value: u64) -> u64 {
        self.with(move |number| number.fetch_max(value, Ordering::SeqCst))
    }

    /// Sets the value if it is `current`. Returns the value before.
    ///
    /// # Errors
    /// It was something else, which stays.
    ///
    /// Example: at [`store`](Self::store).
    pub fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.with(move |number| number.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst))
    }
}

impl Clone for Atomic {
    fn clone(&self) -> Self {
        Atomic { root: self.root.clone(), at: self.at }
    }
}

impl fmt::Debug for Atomic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Atomic({:?})", self.at)
    }
}
