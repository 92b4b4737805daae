//! `Held`: the latched value while a launched closure has it. It can be released for a while and taken again, as a
//! condition variable needs.
//!
//! While held, the value is owned here, not borrowed from the latch, so releasing moves it back: no reference to it can
//! be alive meanwhile, for `released` borrows the `Held`. Invariant: outside `released` there is a value, except after
//! a deadlock or the close of the property, when there never is one again.

#![allow(unsafe_code)]

use std::any::type_name;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use crate::fiber::FiberRef;
use crate::fiber::record::Awaited;
use crate::property::{Header, Property};
use crate::request::Fault;
use crate::runtime::worker::lines::{Standing, Waiter};
use crate::runtime::worker::{self, Worker, poisoned};
use crate::tasks::latch::Latch;
use crate::unwind::quietly;

/// Value of a [`Latch`] while a [launched](crate::Call::launch_held) closure has it exclusively.
///
/// ```
/// use trust::{Latch, Threadpool};
///
/// let pool = Threadpool::new(1);
/// let account = pool.entrust(Latch::new(0));
/// let payer = account.clone();
/// let taken = pool.spawn(move || {
///     let taken = account.call().launch_held(|balance| {
///         while **balance < 10 {
///             balance.released(trust::yield_now); // others may have it meanwhile
///         }
///         **balance -= 10;
///         **balance
///     });
///     taken.wait()
/// });
/// payer.launch(|balance| *balance += 12);
/// assert_eq!(taken.join().unwrap(), Ok(2));
/// ```
pub struct Held<'a, T> {
    value: Option<Box<T>>,
    property: *mut Header,
    /// Each closure has its own `Held`, which cannot be swapped for another's.
    closure: PhantomData<Cell<&'a ()>>,
}

impl<T> Held<'_, T> {
    /// Makes a `Held` of a value taken from the latch in this property.
    pub(crate) fn new(property: *mut Header, value: Box<T>) -> Self {
        Held { value: Some(value), property, closure: PhantomData }
    }

    /// Returns the value, also after a panic: `released` has taken it again, unless that was a deadlock.
    pub(crate) fn into_value(self) -> Option<Box<T>> {
        self.value
    }

    pub(crate) fn has_value(&self) -> bool {
        self.value.is_some()
    }

    /// Releases the value, runs `f`, which may wait, and waits for the value again, behind the fibers that wait for it
    /// already. Other holders may have changed it meanwhile.
    ///
    /// # Panics
    /// With the panic of `f`; if the property was poisoned meanwhile; if it was [closed](crate::Trust::close), which
    /// drops the value, or waiting for the value again is a deadlock. If one of these two panics is caught, the `Held`
    /// has no value: each use of it panics.
    ///
    /// ```
    /// use trust::{Latch, Threadpool};
    /// let pool = Threadpool::new(1);
    /// let number = pool.entrust(Latch::new(1));
    /// let other = number.clone();
    /// let sum = number.call().launch_held(move |number| {
    ///     number.released(move || other.launch(|number| *number += 1)); // else it would wait for itself
    ///     **number
    /// });
    /// assert_eq!(sum.wait(), Ok(2));
    /// ```
    pub fn released<R>(&mut self, f: impl FnOnce() -> R) -> R {
        // A `Held` lives in the launched fiber, whose count keeps the property; its value came from there.
        worker::with(|worker| {
            let value = self.value.take().unwrap_or_else(|| lost());
            worker.scheduler.note_holding(ptr::null());
            // SAFETY: as above.
            unsafe { put_back(worker, self.property, value) };
            worker.settle();
        });
        // The fiber may not wait for the value while a panic unwinds.
        let outcome = catch_unwind(AssertUnwindSafe(f));
        let again = worker::with(|worker| wait_for_value(worker, self.property));
        self.value = Some(again.unwrap_or_else(|fault| fault.resume::<T>()));
        worker::with(|worker| worker.scheduler.note_holding(self.property.cast_const().cast()));
        let value = outcome.unwrap_or_else(|panic| resume_unwind(panic));
        // SAFETY: as above.
        if unsafe { (*self.property).is_poisoned() } {
            poisoned(self.property).resume::<T>();
        }
        value
    }
}

#[cold]
fn lost() -> ! {
    panic!(
        "this `Held` has no value: it was closed, or to wait for it again was a deadlock, as `released` has reported"
    )
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => lost(),
        }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.value {
            Some(value) => value,
            None => lost(),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Held<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.value).finish()
    }
}

/// Puts a latched value back and wakes the next fiber.
///
/// # Safety
/// The property is a live `Property<Latch<T>>` of this worker, and the value was taken from it.
pub(super) unsafe fn put_back<T>(worker: &Worker, property: *mut Header, value: Box<T>) {
    // SAFETY: live.
    let header = unsafe { &*property };
    header.set_held(false);
    let replaced = if header.is_dropped() {
        Some(value) // another closure had a value of this latch, too [drop-when-unused]
    } else {
        // SAFETY: live; in a fiber no closure runs [closures-take-turns], so the short borrow is unique.
        unsafe { Property::<Latch<T>>::value(property) }.put_back(value)
    };
    // SAFETY: as above.
    unsafe { worker.launches.lines.let_next(worker, property) };
    // A value that panics when dropped is reported by the panic hook; this is a fiber's entry, where nothing may
    // unwind.
    quietly(|| drop(replaced));
}

/// Waits for a latched value in turn. The launch of the calling fiber keeps the property.
///
/// # Errors
/// [`Fault::Closed`]; [`Fault::Deadlock`]; the fiber is in no line any more.
pub(super) fn wait_for_value<T>(worker: &Worker, property: *mut Header) -> Result<Box<T>, Fault> {
    // SAFETY: the launch's count keeps the property.
    let header = unsafe { &*property };
    if header.is_closed() {
        return Err(Fault::Closed); // the latch may be gone [drop-when-unused]
    }
    let take = || {
        // SAFETY: as in `run_latched`; not dropped: it was not closed, or the line is not over.
        let value = unsafe { Property::<Latch<T>>::value(property) }.take()?;
        header.set_held(true);
        Some(value)
    };
    let lines = &worker.launches.lines;
    // SAFETY: as above, here and below.
    if !unsafe { lines.has(property) }
        && let Some(value) = take()
    {
        return Ok(value);
    }
    let Some(fiber) = worker.fiber() else { unreachable!("a launched closure runs in a fiber") };
    let me = Standing { fiber, has_value: has_value::<T> };
    // SAFETY: as above.
    unsafe {
        lines.push(property, Waiter::Fiber(me));
        // The value may have come back unnoticed: see `let_missed_on`.
        if has_value::<T>(property) {
            lines.let_next(worker, property);
        }
    }
    let awaited = Awaited::Value { property: property.addr(), on: type_name::<T>() };
    let wait = || {
        loop {
            worker.scheduler.suspend();
            if let Some(why) = worker.scheduler.take_verdict() {
                return Err(Fault::Deadlock(why.into()));
            }
            if let Some(value) = take() {
                // SAFETY: as above.
                unsafe { lines.end_turn(property) };
                return Ok(value);
            }
            if header.is_closed() {
                // Nobody replaces the latch any more. SAFETY: as above.
                unsafe {
                    lines.end_turn(property);
                    lines.let_next(worker, property);
                }
                return Err(Fault::Closed);
            }
            // A closure replaced the latch and had its turn: this fiber is still the first. SAFETY: as above.
            unsafe { lines.push_first(property, me) };
        }
    };
    // SAFETY: the lines are those of this thread's worker, and a fiber that has left a line is woken by nobody.
    unsafe {
        worker.scheduler.waiting_until_revoked(awaited, Some((property.cast_const().cast(), leave_line::<T>)), wait)
    }
}

/// Returns whether the value is in its latch.
///
/// # Safety
/// The property is a live `Property<Latch<T>>` of this worker, and no closure runs.
unsafe fn has_value<T>(property: *mut Header) -> bool {
    // SAFETY: the caller's promise.
    unsafe { Property::<Latch<T>>::value(property) }.get().is_some()
}

/// Takes a fiber out of a property's line. False if it is not there.
unsafe fn leave_line<T>(property: *const (), fiber: FiberRef) -> bool {
    let standing = Standing { fiber, has_value: has_value::<T> };
    // SAFETY: the fiber's launch has a count of the property.
    worker::with(|worker| unsafe { worker.launches.lines.leave(property.cast_mut().cast(), standing) })
}
