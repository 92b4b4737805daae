//! `Latch<T>`: mutual exclusion among the fibers of one thread, without atomics (thesis 2.4.3.1).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::fiber::record::Awaited;
use crate::fiber::{FiberRef, Waits};
use crate::runtime::worker;

/// Value that one fiber at a time may hold, even while it waits.
///
/// Like a mutex, but only for the fibers of one thread: it is `Send` and not `Sync`, and uses no atomics. It is fair:
/// fibers get the value in the order in which they asked. Entrust a `Latch` to be able to
/// [`launch`](crate::Trust::launch) closures on its value.
///
/// ```
/// use std::rc::Rc;
/// let latch = Rc::new(trust::Latch::new(0));
/// let other = Rc::clone(&latch);
/// let fiber = trust::spawn(move || {
///     let mut value = other.lock();
///     trust::yield_now();            // still ours
///     *value += 1;
/// });
/// fiber.join().unwrap();
/// assert_eq!(*latch.lock(), 1);
/// ```
///
/// Source: thesis 2.4.3.1.
pub struct Latch<T> {
    /// Empty while a fiber holds the value.
    value: Cell<Option<Box<T>>>,
    line: RefCell<VecDeque<Ticket>>,
    next_ticket: Cell<u64>,
}

struct Ticket {
    number: u64,
    fiber: Option<FiberRef>,
}

impl<T> Latch<T> {
    /// Makes a latch around a value.
    ///
    /// ```
    /// let account = trust::local_trustee().entrust(trust::Latch::new(10));
    /// assert_eq!(account.launch(|balance| { *balance -= 3; *balance }), 7);
    /// ```
    pub fn new(value: T) -> Self {
        Latch { value: Cell::new(Some(Box::new(value))), line: RefCell::default(), next_ticket: Cell::new(0) }
    }

    /// Waits for the value; other fibers run meanwhile.
    ///
    /// # Panics
    /// In delegated context and in callbacks if the value is not free: nothing may wait there. A fiber that waits for a
    /// value that it holds itself waits for ever.
    ///
    /// ```
    /// let latch = trust::Latch::new(1);
    /// *latch.lock() += 1;
    /// assert_eq!(*latch.lock(), 2);
    /// ```
    pub fn lock(&self) -> LatchGuard<'_, T> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        worker::with(|worker| {
            worker.assert_may_wait("Latch::lock");
            let number = self.next_ticket.replace(self.next_ticket.get() + 1);
            self.line.borrow_mut().push_back(Ticket { number, fiber: worker.fiber() });
            let first = || self.line.borrow().front().is_some_and(|ticket| ticket.number == number);
            let latch = Awaited::Latch(std::any::type_name::<T>());
            worker.scheduler.waiting(latch, || worker.wait_until(|| first() && self.is_free()));
            self.line.borrow_mut().pop_front();
        });
        match self.value.take() {
            Some(value) => LatchGuard { latch: self, value: Some(value) },
            None => unreachable!("it was this fiber's turn and the value was free"),
        }
    }

    /// Returns the value, if it is free and nobody waits for it.
    ///
    /// ```
    /// let latch = trust::Latch::new(1);
    /// let held = latch.lock();
    /// assert!(latch.try_lock().is_none());
    /// drop(held);
    /// assert!(latch.try_lock().is_some());
    /// ```
    pub fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        if !self.line.borrow().is_empty() {
            return None;
        }
        self.value.take().map(|value| LatchGuard { latch: self, value: Some(value) })
    }

    /// Returns the value, or the latch again if a launched closure has the value at the moment.
    ///
    /// ```
    /// let latch = trust::Latch::new(vec![1, 2]);
    /// assert_eq!(latch.into_inner().ok(), Some(vec![1, 2]));
    /// ```
    pub fn into_inner(self) -> Result<T, Self> {
        match self.value.take() {
            Some(value) => Ok(*value),
            None => Err(self),
        }
    }

    fn is_free(&self) -> bool {
        let value = self.value.take();
        let free = value.is_some();
        self.value.set(value);
        free
    }

    /// Returns the value in place, if it is there.
    pub(crate) fn get(&mut self) -> Option<&mut T> {
        self.value.get_mut().as_deref_mut()
    }

    /// Takes the value out.
    pub(crate) fn take(&mut self) -> Option<Box<T>> {
        self.value.take()
    }

    /// Puts the value back. Returns it if the latch was replaced meanwhile and has a value already.
    pub(crate) fn put_back(&mut self, value: Box<T>) -> Option<Box<T>> {
        let there = self.value.take();
        if there.is_some() {
            self.value.set(there);
            Some(value)
        } else {
            self.value.set(Some(value));
            None
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Latch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(value) => f.debug_struct("Latch").field("value", &*value).finish(),
            None => f.write_str("Latch(<locked>)"),
        }
    }
}

impl<T: Default> Default for Latch<T> {
    fn default() -> Self {
        Latch::new(T::default())
    }
}

/// Value of a [`Latch`], held until this is dropped.
pub struct LatchGuard<'a, T> {
    latch: &'a Latch<T>,
    value: Option<Box<T>>,
}

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("a guard has the value until it is dropped"),
        }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.value {
            Some(value) => value,
            None => unreachable!("a guard has the value until it is dropped"),
        }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    fn drop(&mut self) {
        self.latch.value.set(self.value.take());
        let next = self.latch.line.borrow().front().and_then(|ticket| ticket.fiber);
        if next.is_some() {
            worker::try_with(|worker| worker.resume(next));
        }
    }
}
