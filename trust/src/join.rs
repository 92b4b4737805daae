//! `spawn` and `join` (T9). A fiber's result waits in memory shared with its handle; starting and joining
//! fibers is not on the path of a request, so a lock does there.

use std::any::{Any, type_name};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::TrusteeReference;
use crate::fiber::{Entry, FiberRef, Origin};
use crate::registry::{self, Message, Shared};
use crate::worker;

/// What a fiber came to: its value, or the payload of its panic.
pub type Outcome<R> = Result<R, Box<dyn Any + Send>>;

struct State<R> {
    outcome: Option<Outcome<R>>,
    waiter: Option<Waiter>,
}

/// A fiber, or a thread's own code, that waits for a fiber's end.
struct Waiter {
    worker: Arc<Shared>,
    fiber: Option<FiberRef>,
}

impl Waiter {
    fn wake(self) {
        let here = worker::try_with(|worker| {
            let here = worker.id == self.worker.id;
            if here {
                worker.resume(self.fiber);
            }
            here
        });
        if here != Some(true) {
            let message = self.fiber.map_or(Message::Nudge, Message::Ready);
            // A worker that takes no more has ended, and its fibers with it.
            let _ = self.worker.send(message);
        }
    }
}

/// The fiber's half: dropped at the end of its code, or with the attempt to start it. Where the handle is gone by then, the value
/// is dropped with it, in the fiber: its destructor is the user's code.
struct Finish<R>(Arc<Mutex<State<R>>>);

/// Gives the outcome, unless there is one already, and wakes who waits for it.
fn set<R>(state: &Mutex<State<R>>, outcome: Outcome<R>) {
    let waiter = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.outcome.is_none() {
            state.outcome = Some(outcome);
        }
        state.waiter.take()
    };
    if let Some(waiter) = waiter {
        waiter.wake();
    }
}

impl<R> Drop for Finish<R> {
    fn drop(&mut self) {
        let finished = self.0.lock().unwrap_or_else(PoisonError::into_inner).outcome.is_some();
        if !finished {
            set(&self.0, Err(Box::new("the fiber did not run: its thread has ended or had no memory for its stack")));
        }
    }
}

/// Waits for a fiber and takes its value. Dropping it lets the fiber run on by itself.
pub struct JoinHandle<R>(Option<Arc<Mutex<State<R>>>>);

impl<R> JoinHandle<R> {
    /// Waits until the fiber has ended: a fiber lets others run, a thread's own code serves its trustee and
    /// runs its fibers.
    ///
    /// # Errors
    /// The payload of the fiber's panic, or a text if it never ran because its thread ended.
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    ///
    /// ```
    /// let fiber = trust::spawn(|| 6 * 7);
    /// assert_eq!(fiber.join().unwrap(), 42);
    /// ```
    pub fn join(mut self) -> Outcome<R> {
        let Some(state) = self.0.take() else { unreachable!("taken only here") };
        worker::with(|worker| {
            worker.assert_may_wait("join");
            worker.wait_until(|| {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                if state.outcome.is_none() && state.waiter.is_none() {
                    state.waiter = Some(Waiter { worker: Arc::clone(&worker.shared), fiber: worker.fiber() });
                }
                state.outcome.is_some()
            });
        });
        let outcome = state.lock().unwrap_or_else(PoisonError::into_inner).outcome.take();
        outcome.unwrap_or_else(|| unreachable!("the wait was for it"))
    }

    /// Has the fiber ended?
    pub fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(|state| state.lock().unwrap_or_else(PoisonError::into_inner).outcome.is_some())
    }
}

impl<R> fmt::Debug for JoinHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}

/// What a fiber runs, and its handle.
fn handle<R, F: FnOnce() -> R>(f: F) -> (impl FnOnce(), JoinHandle<R>) {
    let state = Arc::new(Mutex::new(State { outcome: None, waiter: None }));
    let finish = Finish(Arc::clone(&state));
    let run = move || set(&finish.0, catch_unwind(AssertUnwindSafe(f)));
    (run, JoinHandle(Some(state)))
}

/// Starts a fiber on the calling thread. It runs when the caller waits or yields, on a worker also when the
/// caller ends; as it stays on this thread it may own what is not `Send`. Legal everywhere.
///
/// If the operating system has no memory for a stack, the handle's `join` says so.
///
/// # Before the thread ends
/// Join its fibers, or call [`finish`]: **a thread that ends (also the main thread, by returning from `main` or by
/// `std::process::exit`) while one of its fibers waits in the middle of its code ends the process** (`SIGABRT`, with a message that
/// names the fiber). What such a fiber has borrowed may be a thread-local, which goes with the thread, so it can neither go on
/// nor be left. A fiber that has not begun by then is run while the thread ends, for at most 5 seconds; those thread-locals that are gone
/// by then panic when it uses them. The workers of a [`Threadpool`](crate::Threadpool) finish their fibers before they end.
///
/// # What fibers share
/// The fibers of one thread are one thread to all that goes by threads, and take turns where one of them waits. So do not wait (call
/// nothing that lets other fibers run: `apply`, `join`, [`sleep`](crate::sleep), [`yield_now`], sockets of [`net`](crate::net))
///
/// - in the initialiser of a `thread_local!`: another fiber may initialise it meanwhile, and what it borrowed is
///   dropped under it when the first one is done. **Nothing can refuse this; it is undefined behaviour**;
/// - inside a closure of a crate for *scoped* thread-locals, which takes back what it lent in the order of calls: other fibers see the value, or
///   one of them ends the loan too early;
/// - while a `std::sync::Mutex`, `RwLock` or `RefCell` is held that another fiber of the thread takes: it blocks the thread (or panics), and
///   with it the fiber that would let go. A [`Latch`](crate::Latch) may be held;
/// - in what a `Once`, `OnceLock` or `LazyLock` runs, if another fiber of the thread may ask for the same: likewise;
/// - in a destructor while a panic unwinds, unless you can do with this: until it is done, `std::thread::panicking()` is true for all
///   fibers of the thread and for the closures that it serves, so that a `Mutex` is poisoned that need not be, or is not that should. In a panic hook
///   never wait: a panic of another fiber meanwhile ends the process.
///
/// ```
/// # use std::{cell::Cell, rc::Rc};
/// let count = Rc::new(Cell::new(0));
/// let fibers: Vec<_> = (0..3)
///     .map(|_| { let count = Rc::clone(&count); trust::spawn(move || count.set(count.get() + 1)) })
///     .collect();
/// for fiber in fibers { fiber.join().unwrap(); }
/// assert_eq!(count.get(), 3);
/// ```
pub fn spawn<F, R>(f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + 'static,
    R: 'static,
{
    spawn_here(None, f)
}

/// As [`spawn`], with a name that is told if the fiber overflows its stack.
pub fn spawn_named<F, R>(name: &str, f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + 'static,
    R: 'static,
{
    spawn_here(Some(name.into()), f)
}

fn spawn_here<F, R>(name: Option<Box<str>>, f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + 'static,
    R: 'static,
{
    let (run, handle) = handle(f);
    worker::with(|worker| worker.start_fiber(Box::new(run), name, Origin::Spawned(type_name::<F>())));
    handle
}

/// Starts a fiber on the thread of a trustee. Legal everywhere; does not wait.
///
/// If the trustee is gone, the handle's `join` says so.
///
/// ```
/// let pool = trust::Threadpool::new(2);
/// let fiber = trust::spawn_on(&pool.trustees()[1], trust::local_trustee);
/// assert_eq!(fiber.join().unwrap(), pool.trustees()[1]);
/// ```
pub fn spawn_on<F, R>(trustee: &TrusteeReference, f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let (run, handle) = handle(f);
    let entry = Entry { run: Box::new(run), origin: Origin::Spawned(type_name::<F>()) };
    if let Some(worker) = registry::find(trustee.id()) {
        // An entry that is refused is dropped, and its handle told.
        let _ = worker.send(Message::Spawn(entry));
    }
    handle
}

/// Lets the other fibers of this thread run, and on a thread's own stack takes one turn of its loop.
///
/// # Panics
/// In delegated context and in callbacks, where nothing may wait.
pub fn yield_now() {
    worker::with(|worker| {
        worker.assert_may_wait("yield_now");
        if worker.fiber().is_some() {
            worker.scheduler.yield_now();
        } else {
            worker.turn();
            worker.leave_loop();
        }
    });
}

/// Runs the fibers of the calling thread until all have ended, and all that it has asked for is answered. Serves its trustee meanwhile.
///
/// For the end of a thread whose fibers nobody has joined, or on which others may have [launched](crate::Trust::launch) closures: a
/// thread must not end while one of its fibers waits in the middle of its code ([`spawn`] says why). Waits for as long as they take. Does nothing on a
/// thread that has not used the library.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// static DONE: AtomicBool = AtomicBool::new(false);
///
/// let thread = std::thread::spawn(|| {
///     trust::spawn(|| {
///         trust::sleep(std::time::Duration::from_millis(2));
///         DONE.store(true, Ordering::Relaxed);
///     });
///     trust::finish();
/// });
/// thread.join().unwrap();
/// assert!(DONE.load(Ordering::Relaxed));
/// ```
///
/// # Panics
/// In fibers, delegated context and callbacks: it is for the thread's own code.
pub fn finish() {
    worker::existing(|worker| {
        worker.assert_may_wait("finish");
        assert!(worker.fiber().is_none(), "`finish` waits for all fibers of a thread, so none of them may call it");
        worker.wait_until(|| !worker.has_own_work());
    });
}
