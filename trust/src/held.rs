//! `Held`: the latched value while a launched closure has it, which can be given up for a while and taken again. What a
//! condition variable needs.
//!
//! The value is owned here while it is held, not borrowed from the latch, so giving it up moves it back: no reference to it
//! can be alive meanwhile, for `released` borrows the `Held`. Invariant: outside `released` there is a value.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::launch::{put_back, wait_for_value};
use crate::property::Header;
use crate::request::poisoned;
use crate::worker;

/// The value of a [`Latch`](crate::Latch) while a closure that was [launched](crate::Trust::launch_held) has it to itself.
///
/// ```
/// use trust::{Latch, Threadpool};
///
/// let pool = Threadpool::new(1);
/// let account = pool.entrust(Latch::new(0));
/// let payer = account.clone();
/// let taken = pool.spawn(move || {
///     account.launch_held(|balance| {
///         while **balance < 10 {
///             balance.released(trust::yield_now); // others may have it meanwhile
///         }
///         **balance -= 10;
///         **balance
///     })
/// });
/// payer.launch(|balance| *balance += 12);
/// assert_eq!(taken.join().unwrap(), 2);
/// ```
pub struct Held<'a, T> {
    value: Option<Box<T>>,
    property: *mut Header,
    /// Each closure has a `Held` of its own, which cannot be exchanged for another's.
    closure: PhantomData<Cell<&'a ()>>,
}

impl<T> Held<'_, T> {
    /// Of a value that was taken from the latch in this property.
    pub(crate) fn new(property: *mut Header, value: Box<T>) -> Self {
        Held { value: Some(value), property, closure: PhantomData }
    }

    /// Also after a panic: `released` has taken it again.
    pub(crate) fn into_value(mut self) -> Box<T> {
        self.take()
    }

    /// Gives the value up, runs `f`, which may wait, and waits for the value again, behind those who wait for it already.
    /// What it is by then is up to those who had it meanwhile.
    ///
    /// # Panics
    /// With the panic of `f`; if the property was poisoned meanwhile.
    pub fn released<R>(&mut self, f: impl FnOnce() -> R) -> R {
        // SAFETY: a `Held` lives in the launched fiber, whose count keeps the property; its value came from there.
        worker::with(|worker| unsafe { put_back(worker, self.property, self.take()) });
        // Not while a panic unwinds may the fiber wait for the value.
        let outcome = catch_unwind(AssertUnwindSafe(f));
        self.value = Some(worker::with(|worker| wait_for_value(worker, self.property)));
        let value = outcome.unwrap_or_else(|panic| resume_unwind(panic));
        // SAFETY: as above.
        if unsafe { (*self.property).is_poisoned() } {
            poisoned(self.property).resume::<T>();
        }
        value
    }

    fn take(&mut self) -> Box<T> {
        match self.value.take() {
            Some(value) => value,
            None => unreachable!("outside `released` there is a value"),
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("outside `released` there is a value"),
        }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.value {
            Some(value) => value,
            None => unreachable!("outside `released` there is a value"),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Held<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.value).finish()
    }
}
