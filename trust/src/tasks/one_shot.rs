//! Value that is set once, with its waiter: [`OneShot`] within one thread, [`SharedOneShot`] between threads.
//!
//! The kinds differ in their waiter: a caller on its own stack (`reply.rs`), a fiber that a timer may wake too
//! (`promise.rs`), a fiber of another thread (`join.rs`), a task of an async program (`api/future.rs`).

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use crate::fiber::FiberRef;
use crate::fiber::timer::Waiter;
use crate::runtime::worker::{self, Worker};

/// Place of a waiting fiber. Empty while it runs, and for a thread's own code, which polls.
pub(crate) type WaitingFiber = Cell<Option<FiberRef>>;

/// Waiters for a value of their own thread.
pub(crate) trait Waiting {
    /// Wakes them.
    fn wake(&self, worker: &Worker);
}

impl Waiting for WaitingFiber {
    #[inline(always)]
    fn wake(&self, worker: &Worker) {
        worker.resume(self.take());
    }
}

impl Waiting for Waiter {
    fn wake(&self, worker: &Worker) {
        worker.resume(self.take());
    }
}

/// One-shot value within one thread.
#[derive(Default)]
pub(crate) struct OneShot<T, W = WaitingFiber> {
    value: Cell<Option<T>>,
    is_set: Cell<bool>,
    pub(crate) waiter: W,
}

impl<T, W: Waiting> OneShot<T, W> {
    #[inline(always)]
    pub(crate) fn new(waiter: W) -> Self {
        OneShot { value: Cell::new(None), is_set: Cell::new(false), waiter }
    }

    /// Sets the value, and wakes the waiting fiber.
    #[inline(always)]
    pub(crate) fn set(&self, value: T) {
        self.value.set(Some(value));
        self.is_set.set(true);
        worker::with(|worker| self.waiter.wake(worker));
    }

    /// Returns whether the value was set, taken or not.
    #[inline(always)]
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.get()
    }

    #[inline(always)]
    pub(crate) fn take(&self) -> Option<T> {
        self.value.take()
    }
}

/// Waiter for a value of another thread.
pub(crate) trait Wakes {
    fn wake(self);
}

/// One-shot value between threads. Starting and joining fibers, and futures, are not on the path of a request between
/// workers, so a lock suffices.
pub(crate) struct SharedOneShot<T, W>(Mutex<State<T, W>>);

struct State<T, W> {
    value: Option<T>,
    is_set: bool,
    waiter: Option<W>,
}

impl<T, W: Wakes> SharedOneShot<T, W> {
    pub(crate) fn new() -> Self {
        SharedOneShot(Mutex::new(State { value: None, is_set: false, waiter: None }))
    }

    fn lock(&self) -> MutexGuard<'_, State<T, W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the value, unless one was set before, and wakes the waiter.
    pub(crate) fn set(&self, value: T) {
        let mut state = self.lock();
        if state.is_set {
            return;
        }
        state.is_set = true;
        state.value = Some(value);
        let waiter = state.waiter.take();
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Takes back the waiter. False if there is none any more.
    pub(crate) fn forget_waiter(&self) -> bool {
        self.lock().waiter.take().is_some()
    }

    /// Returns whether the value was set, taken or not.
    pub(crate) fn is_set(&self) -> bool {
        self.lock().is_set
    }

    /// Takes the value, if it was set and not taken before; until it is set, stores the waiter that `who` makes from
    /// the previous one.
    pub(crate) fn take_or_wait(&self, who: impl FnOnce(Option<W>) -> W) -> Poll<Option<T>> {
        let mut state = self.lock();
        if state.is_set {
            return Poll::Ready(state.value.take());
        }
        let before = state.waiter.take();
        state.waiter = Some(who(before));
        Poll::Pending
    }
}
