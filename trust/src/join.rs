//! `spawn` and `join` (T9). A fiber's result waits in memory shared with its handle; starting and joining
//! fibers is not on the path of a request, so a lock does there.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::TrusteeReference;
use crate::fiber::{Closer, Entry, FiberRef};
use crate::registry::{self, Message, Shared};
use crate::worker::{self, Worker};

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

/// Ends with the fiber, or with the attempt to start it.
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

impl<R: Send> Closer for Mutex<State<R>> {
    fn close(&self) {
        set(self, Err(Box::new("the fiber's thread has ended before the fiber did")));
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

/// What a fiber runs, its handle, and how the handle is told if the fiber never ends.
fn handle<R, F: FnOnce() -> R>(f: F) -> (impl FnOnce(), JoinHandle<R>, Arc<Mutex<State<R>>>) {
    let state = Arc::new(Mutex::new(State { outcome: None, waiter: None }));
    let finish = Finish(Arc::clone(&state));
    let run = move || set(&finish.0, catch_unwind(AssertUnwindSafe(f)));
    (run, JoinHandle(Some(Arc::clone(&state))), state)
}

/// Starts a fiber on the calling thread. It runs when the caller waits or yields, on a worker also when the
/// caller ends; as it stays on this thread it may own what is not `Send`. Legal everywhere.
///
/// If the operating system has no memory for a stack, the handle's `join` says so.
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
    let (run, handle, _) = handle(f);
    worker::with(|worker: &Worker| {
        worker.shared.counters.fibers_spawned.add(1);
        if let Err(error) = worker.scheduler.spawn(Box::new(run), name, None) {
            crate::unwind::tell(format_args!("a fiber was not started: {error}"));
        }
    });
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
    let (run, handle, closer) = handle(f);
    let entry = Entry { run: Box::new(run), closer };
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
        }
    });
}
