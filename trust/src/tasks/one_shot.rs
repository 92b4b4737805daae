//! A value that is given once, and who waits for it: [`OneShot`] within one thread, [`SharedOneShot`] between threads.
//!
//! What waits is what differs: a caller on its own stack (`reply.rs`), a fiber that a timer may wake too
//! (`promise.rs`), a fiber of another thread (`join.rs`), a task of an async program (`api/future.rs`).

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use crate::fiber::FiberRef;
use crate::fiber::timer::Waiter;
use crate::runtime::worker::{self, Worker};

/// The place of a fiber that waits. Empty while it runs, and for a thread's own code, which sees for itself.
pub(crate) type WaitingFiber = Cell<Option<FiberRef>>;

/// Where fibers are that wait for a value of their own thread.
pub(crate) trait Waiting {
    /// Lets them go on.
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

/// Within one thread.
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

    /// Gives the value, and lets the fiber that waits go on.
    #[inline(always)]
    pub(crate) fn set(&self, value: T) {
        self.value.set(Some(value));
        self.is_set.set(true);
        worker::with(|worker| self.waiter.wake(worker));
    }

    /// Was it given, taken or not?
    #[inline(always)]
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.get()
    }

    #[inline(always)]
    pub(crate) fn take(&self) -> Option<T> {
        self.value.take()
    }
}

/// Who waits for a value of another thread.
pub(crate) trait Wakes {
    fn wake(self);
}

/// Between threads. Starting and joining fibers, and futures, are not on the path of a request between workers, so a
/// lock does.
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

    /// Gives the value, unless there was one before, and wakes who waits.
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

    /// Takes back who was to be woken. False if there is nobody any more.
    pub(crate) fn forget_waiter(&self) -> bool {
        self.lock().waiter.take().is_some()
    }

    /// Was it given, taken or not?
    pub(crate) fn is_set(&self) -> bool {
        self.lock().is_set
    }

    /// The value, if it was given and not taken before; until it is given, leaves who is to be woken, `who` given the
    /// one that was left before.
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
