//! The worker of the calling thread: made at first use, ended with the thread.
//!
//! A thread ends by destructors of its thread-locals, the last registered first. A fiber that waits in the middle of
//! its code may have borrowed one (by `LocalKey::with`), or have lent it to a scoped thread. So such a fiber must
//! neither go on once one of these destructors has run, nor be left behind: the thread ends the process instead, before
//! any destructor of a thread-local that the fiber can have borrowed. For that a *watch* is registered each time the
//! thread's own code goes on after fibers have run and wait ([`watch_end`]): the thread-locals that they have borrowed
//! were registered before, so they go after. Fibers that begin while the thread ends are another matter: everything
//! that is alive when they begin outlives the destructor that runs them, so they may wait until that destructor is
//! done.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::thread;

use crate::config::WATCHES;
use crate::fiber::overflow::{self, AltStack};
use crate::registry::TooMany;
use crate::runtime::worker::{Context, NotMade, Settings, Worker};
use crate::stats;
use crate::unwind::{AbortOnUnwind, give_up, quietly, thread_name};

thread_local! {
    /// The worker, or null. Needs no destructor, so it can be read at any time of the thread's life.
    static WORKER: Cell<*const Worker> = const { Cell::new(ptr::null()) };
    /// One of the worker's own destructors has run.
    static ENDING: Cell<bool> = const { Cell::new(false) };
    /// There is no worker any more, and will be none.
    static ENDED: Cell<bool> = const { Cell::new(false) };
    /// Times that the thread's own code went on while fibers waited.
    static LEFT: Cell<u64> = const { Cell::new(0) };
    /// Ends the worker with the thread.
    static GUARD: Guard = const { Guard };
}

struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        thread_ends();
        // SAFETY: made by `start` or `make`, freed only by `free`.
        let Some(worker) = (unsafe { WORKER.get().as_ref() }) else {
            ENDED.set(true);
            return;
        };
        if worker.may_end() {
            if worker.finish_own(false) {
                abort_for_fibers(worker);
            }
            free(WORKER.get());
            ENDED.set(true);
        }
    }
}

/// Notes that a destructor of this thread runs: from here on no fiber that has begun before can go on.
fn thread_ends() {
    ENDING.set(true);
    // SAFETY: as above.
    let Some(worker) = (unsafe { WORKER.get().as_ref() }) else { return };
    if !worker.may_end() {
        // The process exits from a closure or a fiber, below us on the stack.
        if worker.context() == Context::Free {
            worker.context.set(Context::Exiting);
        }
    } else if worker.scheduler.begun() > 0 {
        abort_for_fibers(worker);
    }
}

#[cold]
fn abort_for_fibers(worker: &Worker) -> ! {
    give_up(format_args!(
        "the thread {} ends while it has fibers in the middle of their code: {}. They cannot go on without the \
         thread's thread-locals. `join` the fibers of a thread before it ends, or call `trust::finish()` last, or \
         spawn them on a pool",
        thread_name(),
        worker.scheduler.names_of_begun()
    ));
}

/// Registers a watch, as the thread's own code goes on while fibers wait that have run: the thread's end is noticed
/// before any thread-local goes that they can have borrowed.
///
/// A watch takes some memory (about 48 bytes) up to the thread's end. So the first [`WATCHES`] calls register one each,
/// and later each doubling of the calls registers [`WATCHES`] more.
#[cold]
pub(crate) fn watch_end(worker: &Worker) {
    if ENDING.get() {
        // In a destructor that waited: the next destructor may be that of a borrowed thread-local.
        abort_for_fibers(worker);
    }
    if is_watched(LEFT.replace(LEFT.get() + 1)) {
        watch::register();
    }
}

fn is_watched(left: u64) -> bool {
    left.is_multiple_of(1 << (left / WATCHES).checked_ilog2().unwrap_or(0))
}

#[cfg(target_env = "gnu")]
mod watch {
    use std::ffi::{c_int, c_void};
    use std::ptr;

    type Destructor = unsafe extern "C" fn(*mut c_void);

    // SAFETY: as the C library defines it, for the thread-locals of C++.
    unsafe extern "C" {
        fn __cxa_thread_atexit_impl(destructor: Destructor, object: *mut c_void, library: *mut c_void) -> c_int;
    }

    // SAFETY: called by the C library, on the thread that registered it.
    unsafe extern "C" fn see(_: *mut c_void) {
        super::thread_ends();
    }

    /// Registers a watch. May be called any number of times, unlike the destructor of a `thread_local!`.
    pub(super) fn register() {
        // Any address inside the library that must not be unloaded before.
        let library = ptr::from_ref(&super::WATCHED_FROM).cast_mut().cast();
        // SAFETY: `see` takes any object, and lives as long as the library.
        if unsafe { __cxa_thread_atexit_impl(see, ptr::null_mut(), library) } != 0 {
            crate::unwind::give_up(format_args!("no memory to watch the end of a thread with fibers"));
        }
    }
}

/// Elsewhere the worker's own destructor sees the end, which may be too late (docs/UNSAFE.md).
#[cfg(not(target_env = "gnu"))]
mod watch {
    pub(super) fn register() {}
}

/// Has an address in this library.
static WATCHED_FROM: u8 = 0;

/// Reason why a worker did not end.
pub(crate) enum NotEnded {
    /// The thread has no worker.
    None,
    /// The worker is in use below us on the stack.
    InUse,
    /// Fibers of it have begun and did not come to an end in time.
    Fibers,
}

/// Ends this thread's worker from the thread's own code, its fibers first; with `waits_for_fibers`, however long these
/// take. The thread may have another worker later.
pub(crate) fn end(waits_for_fibers: bool) -> Result<(), NotEnded> {
    // SAFETY: made by `start` or `make`, freed only by `free`.
    let worker = unsafe { WORKER.get().as_ref() }.ok_or(NotEnded::None)?;
    if !worker.may_end() {
        return Err(NotEnded::InUse);
    }
    worker.leave_outside();
    if worker.finish_own(waits_for_fibers) {
        worker.leave_loop();
        worker.enter_outside();
        return Err(NotEnded::Fibers);
    }
    free(WORKER.get());
    ENDED.set(false);
    Ok(())
}

/// Frees the worker, which is finished and no longer in use. For now the thread can have no other.
///
/// By the pointer of `start` or `make` itself: one that comes from a reference may not free what it points to.
fn free(worker: *const Worker) {
    // SAFETY: made by `start` or `make` and not freed before, for `WORKER` points to it; nothing on this thread's stack
    // uses it any more.
    unsafe {
        (*worker).end();
        WORKER.set(ptr::null());
        // Values dropped with it must not start another worker.
        ENDED.set(true);
        let worker = Box::from_raw((*worker).made.get());
        quietly(|| drop(worker));
    }
}

/// Calls `f` with the worker of this thread. `None` where it has ended (in destructors of thread-locals), and where the
/// process has as many trustees as it can have.
#[inline(always)]
pub(crate) fn try_with<R>(f: impl FnOnce(&Worker) -> R) -> Option<R> {
    let mut worker = WORKER.get();
    if worker.is_null() {
        worker = start_with_defaults()?;
    }
    // SAFETY: it lives until `end`, which is not called while this thread is in here.
    Some(f(unsafe { &*worker }))
}

/// Calls `f` with the worker of this thread, if it has one already.
#[inline(always)]
pub(crate) fn existing<R>(f: impl FnOnce(&Worker) -> R) -> Option<R> {
    let worker = WORKER.get();
    // SAFETY: as in `try_with`.
    (!worker.is_null()).then(|| f(unsafe { &*worker }))
}

/// Calls `f` with the worker of this thread, which is made if there is none.
///
/// # Panics
/// In destructors of thread-locals that run after the worker has ended; where the process has as many trustees as it
/// can have.
#[inline(always)]
pub(crate) fn with<R>(f: impl FnOnce(&Worker) -> R) -> R {
    try_with(f).unwrap_or_else(|| ended())
}

#[cold]
fn ended() -> ! {
    if !ENDED.get() {
        panic!("{TooMany}");
    }
    panic!("this thread is ending and its trustee is gone: a thread-local's destructor cannot delegate any more")
}

/// Makes the worker at the first use on a thread. Out of line: every call of a trust has this branch.
#[cold]
#[inline(never)]
fn start_with_defaults() -> Option<*const Worker> {
    try_start(Settings::default()).unwrap_or_else(|error| match error {
        NotMade::TooMany(_) => None,
        NotMade::Stack(_) => panic!("{error}"),
    })
}

/// Makes this thread's worker with these settings. `None` if the thread is ending.
///
/// # Panics
/// If the operating system has no memory for the worker's bookkeeping, the settings are out of range, or the process
/// has as many trustees as it can have.
pub(crate) fn start(settings: Settings) -> Option<*const Worker> {
    try_start(settings).unwrap_or_else(|error| panic!("{error}"))
}

fn try_start(settings: Settings) -> Result<Option<*const Worker>, NotMade> {
    if ENDED.get() {
        return Ok(None);
    }
    assert!(WORKER.get().is_null(), "this thread has a trustee already");
    let worker = Worker::new(settings, AltStack::ensure())?;
    // SAFETY: it stays as long as its thread, which ends the worker before (`end`), or exits the process from the
    // middle of it.
    unsafe { worker.shared.fibers.show(overflow::of_this_thread()) };
    let worker = keep(worker).as_ptr();
    stats::find_by(|f| {
        existing(|worker| f(&worker.shared.counters));
    });
    WORKER.set(worker);
    // Registers the destructor.
    GUARD.with(|_| ());
    Ok(Some(worker))
}

/// Makes a worker beside that of this thread, to be run by [`run_as`] and ended by [`end_other`]. Overflows of its
/// fibers are reported as those of the thread's own; `shown.rs` does not show which one runs.
pub(crate) fn make(settings: Settings) -> Result<NonNull<Worker>, NotMade> {
    Ok(keep(Worker::new(settings, AltStack::of_others())?))
}

/// Keeps a worker up to [`free`].
fn keep(worker: Worker) -> NonNull<Worker> {
    let worker = NonNull::from(Box::leak(Box::new(worker)));
    // SAFETY: just made.
    unsafe { worker.as_ref() }.made.set(worker.as_ptr());
    worker
}

/// Runs `f` with this worker as that of the thread. If anything in it unwound, the process would end.
///
/// # Safety
/// The worker was made by [`make`] and not ended, and this thread has it [seat-settled]; or it is the thread's own.
#[inline(always)]
pub(crate) unsafe fn run_as<R>(worker: NonNull<Worker>, f: impl FnOnce(&Worker) -> R) -> R {
    let guard = AbortOnUnwind;
    // SAFETY: the caller's promise.
    let worker = unsafe { worker.as_ref() };
    let own = WORKER.replace(worker);
    let result = f(worker);
    WORKER.set(own);
    std::mem::forget(guard);
    result
}

/// Runs a closure of users with this worker as that of the thread, and catches its panic. `own` is that of the thread
/// before and after.
///
/// # Safety
/// As for [`run_as`].
#[inline(always)]
pub(crate) unsafe fn run_beside<U>(own: &Worker, worker: NonNull<Worker>, f: impl FnOnce() -> U) -> thread::Result<U> {
    debug_assert!(ptr::eq(own, WORKER.get()), "it is that of the thread");
    WORKER.with(|current| current.set(worker.as_ptr()));
    let outcome = catch_unwind(AssertUnwindSafe(f));
    WORKER.with(|current| current.set(own));
    outcome
}

/// Ends this worker, with its fibers, and frees it.
///
/// # Safety
/// As for [`run_as`]; it is not used any more.
pub(crate) unsafe fn end_other(worker: NonNull<Worker>) {
    let guard = AbortOnUnwind;
    let own = WORKER.replace(worker.as_ptr());
    // SAFETY: as in `run_as`.
    unsafe { worker.as_ref() }.in_turn.set(false);
    let ended = end(true);
    debug_assert!(ended.is_ok(), "it waits for fibers, and nothing is below it on the stack");
    WORKER.set(own);
    std::mem::forget(guard);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::rc::Rc;
    use std::time::Duration;

    use super::*;
    use crate::config::EXIT_WAIT_MS;

    /// Takes some seconds.
    #[test]
    #[ignore = "takes ten seconds: `cargo dev stress`"]
    fn stress_a_worker_that_is_to_end_waits_for_fibers_that_have_begun() {
        let thread = std::thread::spawn(|| {
            assert!(matches!(end(true), Err(NotEnded::None)));
            let done = Rc::new(Cell::new(false));
            let sets = Rc::clone(&done);
            drop(crate::spawn_named("slow", move || {
                crate::sleep(Duration::from_millis(2 * EXIT_WAIT_MS + 500));
                sets.set(true);
            }));
            drop(crate::spawn(|| assert!(matches!(end(true), Err(NotEnded::InUse)))));
            crate::yield_now();
            assert!(matches!(end(false), Err(NotEnded::Fibers)));
            let names = existing(|worker| worker.scheduler.names_of_begun()).unwrap_or_default();
            assert!(names.starts_with("fiber 'slow'"), "{names}");
            assert!(!done.get() && existing(|worker| worker.scheduler.begun()) == Some(1));
            assert!(end(true).is_ok());
            assert!(done.get() && existing(|_| ()).is_none());
            // The thread may have another worker.
            assert_eq!(crate::spawn(|| 1).join().ok(), Some(1));
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    /// The memory that watches take stays bounded, however often a thread's own code goes on beside its fibers.
    #[test]
    fn a_thread_is_watched_each_time_at_first_and_then_ever_more_rarely() {
        let watches = |times: u64| (0..times).filter(|&left| is_watched(left)).count() as u64;
        assert_eq!(watches(2 * WATCHES), 2 * WATCHES);
        assert_eq!(watches(4 * WATCHES), 3 * WATCHES);
        assert_eq!(watches(64 * WATCHES), 7 * WATCHES);
    }
}
