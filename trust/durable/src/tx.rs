//! Entering a pool: the memory that the calling thread works on, and whether it runs a transaction or a read.
//!
//! Invariants:
//! - [brand-entered] A value with the brand `'p` exists only while the pool of `'p` is entered on this thread.
//!   Closures are generic over every `'p`, so no brand can be named outside; no type with a brand is `Send`, `NoRef` or
//!   `'static`.
//! - A thread is in one pool at a time.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::memory::{Memory, ROOT_AT};
use crate::persist::Persist;
use crate::types::flags;

/// Brand of a pool: invariant in `'p`, and neither `Send` nor `Sync`.
pub(crate) type Brand<'p> = PhantomData<(Cell<&'p ()>, *mut ())>;

thread_local! {
    static MEMORY: Cell<*const Memory> = const { Cell::new(ptr::null()) };
    /// Base of that memory. Outside of a pool it is not null, so that an empty slice may begin there.
    static BASE: Cell<*mut u8> = const { Cell::new(NOWHERE) };
}

const NOWHERE: *mut u8 = ptr::without_provenance_mut(64);

/// Returns the address of offset `at` in the pool that this thread has entered.
#[inline(always)]
pub(crate) fn place(at: u64) -> *mut u8 {
    // The offset of a live value [brand-entered], so it is within the heap.
    BASE.get().wrapping_add(at as usize)
}

/// Touches a value: see [`Memory::touch`]. Outside of a pool it does nothing.
#[inline(always)]
pub(crate) fn touch<T: ?Sized>(value: *const T, bytes: usize) {
    // SAFETY: null, or the memory that a frame below has entered.
    if let Some(memory) = unsafe { MEMORY.get().as_ref() } {
        memory.touch(value.cast(), bytes);
    }
}

/// Runs `f` with the pool that this thread has entered. For destructors of values that own an allocation in it.
#[inline(always)]
pub(crate) fn with_memory<R>(f: impl FnOnce(&Memory) -> R) -> R {
    // SAFETY: as above.
    match unsafe { MEMORY.get().as_ref() } {
        Some(memory) => f(memory),
        None => unreachable!("a persistent value outside of its pool"),
    }
}

/// A transaction: the handle that changes to a pool and allocations in it need. See
/// [`Durable::apply`](crate::Durable::apply).
///
/// It is lent to a closure and cannot leave it.
pub struct Tx<'p> {
    memory: *const Memory,
    brand: Brand<'p>,
}

impl Tx<'_> {
    #[inline(always)]
    pub(crate) fn memory(&self) -> &Memory {
        // SAFETY: made by `Memory::run` and lent to its closure only.
        unsafe { &*self.memory }
    }

    /// Returns an upper bound of the bytes that values may still take. Rounding, and free slots in pages of other
    /// sizes, reduce it.
    pub fn free_bytes(&self) -> usize {
        self.memory().limit() - self.memory().allocated_bytes()
    }
}

impl fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tx")
    }
}

/// Guard that leaves the pool when it is dropped.
struct Entered;

impl Entered {
    fn enter(memory: &Memory) -> Entered {
        assert!(MEMORY.get().is_null(), "a closure on a durable trust inside another one on the same thread");
        MEMORY.set(memory);
        BASE.set(memory.base());
        Entered
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        flags::clear();
        MEMORY.set(ptr::null());
        BASE.set(NOWHERE);
    }
}

/// The payload of a panic.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Outcome of a transaction.
pub(crate) enum Ended<U, E> {
    /// Committed.
    Done(U),
    /// Undone, because the closure returned an error.
    Refused(E),
    /// Undone, because of a panic.
    Panicked(Panic),
}

impl Ended<(), Infallible> {
    /// Returns the outcome of a closure that refuses nothing.
    fn done(self) -> Result<(), Panic> {
        match self {
            Ended::Done(()) => Ok(()),
            Ended::Panicked(panic) => Err(panic),
            Ended::Refused(never) => match never {},
        }
    }
}

impl Memory {
    /// Runs a transaction on a root of `root_bytes` bytes.
    #[inline]
    fn transact<U, E>(&self, root_bytes: usize, f: impl for<'p> FnOnce(&Tx<'p>) -> Result<U, E>) -> Ended<U, E> {
        let entered = Entered::enter(self);
        self.begin();
        self.touch(self.at(ROOT_AT), root_bytes);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let value = f(&Tx { memory: self, brand: PhantomData })?;
            self.run_queue();
            Ok(value)
        }));
        let ended = match outcome {
            Ok(Ok(value)) => {
                self.commit();
                Ended::Done(value)
            }
            Ok(Err(error)) => {
                self.undo();
                Ended::Refused(error)
            }
            Err(panic) => {
                self.undo();
                Ended::Panicked(panic)
            }
        };
        drop(entered);
        ended
    }

    /// Runs a transaction on the root, which is a live `T`.
    ///
    /// # Safety
    /// `T` is the type with which the pool was opened, and the root has been made.
    #[inline]
    pub(crate) unsafe fn run<T, U, E>(
        &self,
        f: impl for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Result<U, E>,
    ) -> Ended<U, E>
    where
        T: Persist + 'static,
    {
        self.transact(size_of::<T::At<'static>>(), |tx| {
            // SAFETY: the caller's promise; the root's lines were touched; no other reference to it is in use
            // [closures-take-turns].
            f(unsafe { &mut *self.at(ROOT_AT).cast::<T::At<'_>>() }, tx)
        })
    }

    /// Makes the root of a new pool. If the closure panics there is no root.
    pub(crate) fn init<T>(&self, f: impl for<'p> FnOnce(&Tx<'p>) -> T::At<'p>) -> Result<(), Panic>
    where
        T: Persist + 'static,
    {
        let ended = self.transact(size_of::<T::At<'static>>(), |tx| {
            let root = f(tx);
            // SAFETY: an allocation of its own, aligned (as `Place::fits` asserts) and touched.
            unsafe { self.at(ROOT_AT).cast::<T::At<'_>>().write(root) };
            Ok::<(), Infallible>(())
        });
        ended.done()
    }

    /// Replaces the root, a live `Old`, by the `T` that the closure makes of it. If the closure panics the root stays.
    ///
    /// # Safety
    /// `Old` is the type with which the pool was opened.
    pub(crate) unsafe fn change_type<Old, T>(
        &self,
        f: impl for<'p> FnOnce(Old::At<'p>, &Tx<'p>) -> T::At<'p>,
    ) -> Result<(), Panic>
    where
        Old: Persist + 'static,
        T: Persist + 'static,
    {
        let root_bytes = size_of::<Old::At<'static>>().max(size_of::<T::At<'static>>());
        let ended = self.transact(root_bytes, |tx| {
            // SAFETY: the caller's promise; the root is moved out, and nothing reads the place before it is written. If
            // the closure panics, undoing puts the root and all that it owns back.
            let root = f(unsafe { self.at(ROOT_AT).cast::<Old::At<'_>>().read() }, tx);
            // SAFETY: the root has its own place, touched, large enough and aligned for both types.
            unsafe { self.at(ROOT_AT).cast::<T::At<'_>>().write(root) };
            Ok::<(), Infallible>(())
        });
        ended.done()
    }

    /// Reads the root.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline]
    pub(crate) unsafe fn look<T, U>(&self, f: impl for<'a, 'p> FnOnce(&'a T::At<'p>) -> U) -> Result<U, Panic>
    where
        T: Persist + 'static,
    {
        let entered = Entered::enter(self);
        // SAFETY: the caller's promise; nothing changes the root meanwhile.
        let outcome = catch_unwind(AssertUnwindSafe(|| f(unsafe { &*self.at(ROOT_AT).cast::<T::At<'_>>() })));
        drop(entered);
        outcome
    }
}
