//! `spawn` and `join`. A fiber's result waits in memory shared with its handle; starting and joining fibers is not on
//! the path of a request, so a lock suffices.

#![allow(unsafe_code)]

use std::any::{Any, type_name};
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::fiber::record::{Awaited, Revoke, Whom};
use crate::fiber::{Entry, FiberRef, Origin, Waits};
use crate::ids::TrusteeId;
use crate::registry::{self, Message, Shared};
use crate::runtime::{watch, worker};
use crate::tasks::one_shot::{SharedOneShot, Wakes};

/// Outcome of a fiber: its value, or the payload of its panic.
pub type Outcome<R> = Result<R, Box<dyn Any + Send>>;

/// Fiber, or a thread's own code, that waits for a fiber's end.
struct Waiter {
    worker: Arc<Shared>,
    fiber: Option<FiberRef>,
}

impl Wakes for Waiter {
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
            // A worker that takes no more messages has ended, and its fibers with it.
            let _ = self.worker.send(message);
        }
    }
}

/// Fiber's half: dropped at the end of its code, or with the failed attempt to start it. If the handle is gone by then,
/// the value is dropped with it, in the fiber: its destructor is user code.
struct Finish<R>(Arc<State<R>>);

type State<R> = SharedOneShot<Outcome<R>, Waiter>;

impl<R> Drop for Finish<R> {
    fn drop(&mut self) {
        if !self.0.is_set() {
            self.0.set(Err(Box::new(
                "the fiber did not run: it was aborted, or its thread has ended or had no memory for its stack",
            )));
        }
    }
}

/// Handle that waits for a fiber and takes its value. Dropping it lets the fiber run on by itself.
pub struct JoinHandle<R> {
    state: Option<Arc<State<R>>>,
    trustee: TrusteeId,
    /// Number of the fiber, never used for another one.
    number: u64,
}

impl<R> JoinHandle<R> {
    /// Waits until the fiber has ended. Meanwhile a waiting fiber lets others run; a thread's own code serves its
    /// trustee and runs its fibers.
    ///
    /// # Errors
    /// The payload of the fiber's panic, or a text if it never ran because its thread ended. An [`Error::Deadlock`] as
    /// the payload, if this fiber and the joined one, perhaps through others, would wait for each other for ever.
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    ///
    /// ```
    /// let fiber = trust::spawn(|| 6 * 7);
    /// assert_eq!(fiber.join().unwrap(), 42);
    /// ```
    pub fn join(mut self) -> Outcome<R> {
        let Some(state) = self.state.take() else { unreachable!("taken only here") };
        let outcome = Cell::new(None);
        worker::with(|worker| {
            worker.assert_may_wait("join");
            let waiter = || Waiter { worker: Arc::clone(&worker.shared), fiber: worker.fiber() };
            let done = || {
                if worker.scheduler.is_interrupted() {
                    return true;
                }
                let taken = state.take_or_wait(|before| before.unwrap_or_else(waiter));
                taken.map(|value| outcome.set(value)).is_ready()
            };
            if worker.fiber().is_some() && !state.is_set() {
                watch::note_wait();
            }
            // Not earlier: a fiber registered as the waiter must suspend [one-waker].
            let revoke = Some((Arc::as_ptr(&state).cast::<()>(), forget_waiter::<R> as Revoke));
            let wait = || worker.wait_until(done);
            // SAFETY: `state` lives until this returns; a fiber that is not registered there is woken by nobody.
            unsafe { worker.scheduler.waiting_until_revoked(Awaited::End(self.number), revoke, wait) };
            if let Some(why) = worker.scheduler.take_verdict() {
                outcome.set(Some(Err(Box::new(Error::Deadlock { cycle: why.into() }))));
                return;
            }
            // Only an abort leaves the wait without an outcome.
            let value = outcome.take();
            if value.is_none() {
                worker.heed_abort();
            }
            outcome.set(value);
        });
        outcome.take().unwrap_or_else(|| unreachable!("nobody else takes it"))
    }

    /// Returns whether the fiber has ended.
    ///
    /// ```
    /// let fiber = trust::spawn(|| ());
    /// assert!(!fiber.is_finished()); // it has not begun: this thread has not waited yet
    /// trust::yield_now();
    /// assert!(fiber.is_finished());
    /// ```
    pub fn is_finished(&self) -> bool {
        self.state.as_ref().is_none_or(|state| state.is_set())
    }

    /// Asks the fiber to end. It is not cut off: it unwinds, with [`Aborted`](crate::Aborted) as the payload of its
    /// panic, when it next waits in [`sleep`](crate::sleep), [`yield_now`], [`join`](Self::join), for a promise or for
    /// a socket, or out of such a wait if it is in one. Its locals are dropped in order, as by any panic; `join`
    /// returns the payload. A fiber that has not begun does not begin.
    ///
    /// Other waits finish first: for the answer to an `apply`, the result of a `launch`, a lock of a
    /// [`Latch`](crate::Latch). The abort does nothing to a fiber that computes, that has ended, or that catches the
    /// panic and goes on; each call aborts at most once. While a panic unwinds on its thread a fiber continues to wait.
    ///
    /// Primitives that hand a value to a waiter, such as those of the crate `gossamer`, may hand it to a fiber that is
    /// unwinding: it is then lost, as when a thread panics after receiving a value.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(1);
    /// let fiber = pool.spawn(|| trust::sleep(std::time::Duration::MAX));
    /// fiber.abort();
    /// let payload = fiber.join().unwrap_err();
    /// println!("{:?}", payload.downcast_ref::<trust::Aborted>()); // if it had begun
    /// ```
    pub fn abort(&self) {
        let whom = Whom::Handle(self.number);
        let here = worker::existing(|worker| {
            let is_here = worker.id == self.trustee;
            if is_here {
                worker.abort(whom);
            }
            is_here
        });
        if here != Some(true)
            && let Some(worker) = registry::find(self.trustee)
        {
            // A worker that takes no more messages has ended, and the fiber with it.
            let _ = worker.send(Message::Abort(whom));
        }
    }
}

/// Waits until all these fibers have ended. The outcomes are in the order of the handles.
///
/// The iterator is consumed before the first wait, so `join_all(work.map(|one| trust::spawn(..)))` starts all fibers
/// first.
///
/// ```
/// let pool = trust::Threadpool::new(2);
/// let squares = trust::join_all((0..4).map(|number| pool.spawn(move || number * number)));
/// assert_eq!(squares.into_iter().map(|square| square.unwrap()).collect::<Vec<_>>(), [0, 1, 4, 9]);
/// ```
///
/// # Panics
/// In delegated context and in callbacks, where nothing may wait.
pub fn join_all<R>(handles: impl IntoIterator<Item = JoinHandle<R>>) -> Vec<Outcome<R>> {
    let handles: Vec<JoinHandle<R>> = handles.into_iter().collect();
    handles.into_iter().map(JoinHandle::join).collect()
}

impl<R> fmt::Debug for JoinHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}

/// Takes back the waiter of this state. False if it is being woken or has been.
unsafe fn forget_waiter<R>(state: *const (), _: FiberRef) -> bool {
    // SAFETY: a `State<R>`; its owner waits in `join`.
    unsafe { (*state.cast::<State<R>>()).forget_waiter() }
}

/// Number of the next handle.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Makes the code of a fiber and its handle.
fn handle<R, F: FnOnce() -> R>(trustee: TrusteeId, f: F) -> (impl FnOnce(), JoinHandle<R>, Whom) {
    let state = Arc::new(State::new());
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let finish = Finish(Arc::clone(&state));
    let run = move || {
        let outcome = catch_unwind(AssertUnwindSafe(f)).inspect_err(|payload| watch::still::note_fallen(&**payload));
        finish.0.set(outcome);
    };
    (run, JoinHandle { state: Some(state), trustee, number }, Whom::Handle(number))
}

/// Starts a fiber on the calling thread. It runs when the caller waits or yields, on a worker also when the caller
/// ends; as it stays on this thread it may own values that are not `Send`. Legal everywhere.
///
/// If the operating system has no memory for a stack, the handle's `join` returns that as an error.
///
/// # Before the thread ends
/// Join its fibers, or call [`finish`]: **a thread that ends (also the main thread, by returning from `main` or by
/// `std::process::exit`) while one of its fibers waits in the middle of its code ends the process** (`SIGABRT`, with a
/// message that names the fiber). Such a fiber may have borrowed a thread-local, which is destroyed with the thread, so
/// it can neither continue nor be left. A fiber that has not begun by then runs while the thread ends, for at most 5
/// seconds; thread-locals that are destroyed by then panic when it uses them. The workers of a
/// [`Threadpool`](crate::Threadpool) finish their fibers before they end.
///
/// # State shared by the fibers of a thread
/// To everything that is per thread the fibers of one thread are a single thread; they take turns where one of them
/// waits. So do not wait (call nothing that lets other fibers run: `apply`, `join`, [`sleep`](crate::sleep),
/// [`yield_now`], sockets of [`net`](crate::net))
///
/// - in the initialiser of a `thread_local!`: another fiber may initialise it meanwhile, and the value it borrowed is
///   dropped under it when the first one is done. **Nothing can refuse this; it is undefined behaviour**;
/// - inside a closure of a crate for *scoped* thread-locals, which ends loans in the order of calls: other fibers see
///   the value, or one of them ends the loan too early;
/// - while holding a `std::sync::Mutex`, `RwLock` or `RefCell` that another fiber of the thread takes: that blocks the
///   thread (or panics), and with it the fiber that would release it. A [`Latch`](crate::Latch) may be held;
/// - inside the closure of a `Once`, `OnceLock` or `LazyLock`, if another fiber of the thread may use the same one:
///   likewise;
/// - in a destructor while a panic unwinds, unless this is acceptable: until it is done, `std::thread::panicking()` is
///   true for all fibers of the thread and for the closures that it serves, so a `Mutex` may be poisoned needlessly, or
///   not poisoned when it should be. In a panic hook never wait: a panic of another fiber meanwhile ends the process.
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

/// Same as [`spawn`], with a name that is reported if the fiber overflows its stack.
///
/// ```
/// let fiber = trust::spawn_named("the adder", || 1 + 1);
/// assert_eq!(fiber.join().unwrap(), 2);
/// ```
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
    worker::with(|worker| {
        let (run, handle, whom) = handle(worker.id, f);
        worker.start_fiber(Box::new(run), name, Origin::Spawned(type_name::<F>()), whom);
        handle
    })
}

/// Starts a fiber on the thread of a trustee: see [`spawn_on`](crate::spawn_on).
pub(crate) fn spawn_at<F, R>(trustee: TrusteeId, f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let (run, handle, whom) = handle(trustee, f);
    let entry = Entry { run: Box::new(run), origin: Origin::Spawned(type_name::<F>()), whom };
    if let Some(worker) = registry::find(trustee) {
        // A refused entry is dropped, which tells its handle.
        let _ = worker.send(Message::Spawn(entry));
    }
    handle
}

/// Lets the other fibers of this thread run; on a thread's own stack also runs one turn of its loop.
///
/// # Panics
/// In delegated context and in callbacks, where nothing may wait.
///
/// ```
/// let fiber = trust::spawn(|| println!("meanwhile"));
/// trust::yield_now();
/// assert!(fiber.is_finished());
/// ```
pub fn yield_now() {
    worker::with(|worker| {
        worker.assert_may_wait("yield_now");
        worker.heed_abort();
        if worker.fiber().is_some() {
            worker.scheduler.yield_now();
        } else {
            worker.turn();
            worker.leave_loop();
        }
    });
}

/// Runs the fibers of the calling thread until all have ended and all the thread's requests are answered. Serves its
/// trustee meanwhile.
///
/// For the end of a thread whose fibers were not joined, or on which other threads may have
/// [launched](crate::Trust::launch) closures: a thread must not end while one of its fibers waits in the middle of its
/// code ([`spawn`] explains why). Waits as long as they take. Does nothing on a thread that has not used the library.
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
/// In fibers, delegated context and callbacks: only the thread's own code may call it.
pub fn finish() {
    worker::existing(|worker| {
        worker.assert_may_wait("finish");
        assert!(worker.fiber().is_none(), "`finish` waits for all fibers of a thread, so none of them may call it");
        worker.wait_until(|| !worker.has_own_work());
    });
}
