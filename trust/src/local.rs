//! The worker of the calling thread: made at first use (T1), ended with the thread.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;

use crate::fiber::Scheduler;
use crate::fiber::overflow::AltStack;
use crate::stats::Counters;
use crate::worker::{Settings, Worker};

thread_local! {
    /// The worker, or null. Needs no destructor, so it can be read at any time of the thread's life.
    static WORKER: Cell<*const Worker> = const { Cell::new(ptr::null()) };
    static ENDED: Cell<bool> = const { Cell::new(false) };
    /// Ends the worker with the thread.
    static GUARD: Guard = const { Guard };
}

struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        if WORKER.get().is_null() || end() {
            ENDED.set(true);
        }
    }
}

/// Ends this thread's worker, if it has one. False if it is in use below us on the stack: the process exits out of a closure or
/// a fiber. The thread may have another one later, unless it is ending itself.
pub(crate) fn end() -> bool {
    let worker = WORKER.get();
    // SAFETY: made by `start`, freed only here.
    if worker.is_null() || !unsafe { &*worker }.may_end() {
        return false;
    }
    // SAFETY: nothing on this thread's stack uses it any more.
    unsafe {
        (*worker).end();
        WORKER.set(ptr::null());
        // What is dropped with it must not begin another.
        ENDED.set(true);
        drop(Box::from_raw(worker.cast_mut()));
    }
    ENDED.set(false);
    true
}

/// The worker of this thread, or `None` where it has ended (in destructors of thread-locals).
#[inline(always)]
pub(crate) fn try_with<R>(f: impl FnOnce(&Worker) -> R) -> Option<R> {
    let mut worker = WORKER.get();
    if worker.is_null() {
        worker = start(Settings::default())?;
    }
    // SAFETY: it lives until `end`, which is not called while this thread is in here.
    Some(f(unsafe { &*worker }))
}

/// The worker of this thread, if it has one already.
#[inline(always)]
pub(crate) fn existing<R>(f: impl FnOnce(&Worker) -> R) -> Option<R> {
    let worker = WORKER.get();
    // SAFETY: as in `try_with`.
    (!worker.is_null()).then(|| f(unsafe { &*worker }))
}

/// The worker of this thread.
///
/// # Panics
/// In destructors of thread-locals that run after the worker has ended.
#[inline(always)]
pub(crate) fn with<R>(f: impl FnOnce(&Worker) -> R) -> R {
    try_with(f).unwrap_or_else(|| ended())
}

#[cold]
fn ended() -> ! {
    panic!("this thread is ending and its trustee is gone: a thread-local's destructor cannot delegate any more")
}

/// Makes this thread's worker with these settings. `None` if the thread is ending.
///
/// # Panics
/// If the operating system has no memory for the worker's bookkeeping or the settings are out of range.
pub(crate) fn start(settings: Settings) -> Option<*const Worker> {
    if ENDED.get() {
        return None;
    }
    assert!(WORKER.get().is_null(), "this thread has a trustee already");
    let worker = Worker::new(settings, AltStack::ensure()).unwrap_or_else(|error| panic!("{error}"));
    let worker: *const Worker = Box::into_raw(Box::new(worker));
    WORKER.set(worker);
    // Registers the destructor.
    GUARD.with(|_| ());
    Some(worker)
}

/// The scheduler of this thread. For fibers, which have one for certain.
pub(crate) fn scheduler(f: impl FnOnce(&Scheduler)) {
    with(|worker| f(&worker.scheduler));
}

/// The counters of this thread.
#[inline(always)]
pub(crate) fn counters(f: impl FnOnce(&Counters)) {
    let worker = WORKER.get();
    if !worker.is_null() {
        // SAFETY: as in `try_with`.
        let worker = unsafe { &*worker };
        f(&worker.shared.counters);
    }
}
