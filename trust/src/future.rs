//! Trusts in async programs (T16): a call gives a future, which is woken by the response.
//!
//! The calling thread belongs to somebody else's executor: nobody runs a worker's loop there. So it needs no worker and no
//! slots. The call goes to the trustee by its inbox and is run in its turn, in the order in which one thread sent
//! them; the outcome is put into memory shared with the future, and the future's task is woken from the trustee's thread.
//! For a trustee of another machine the service thread of this one makes the request.
//!
//! Invariant: each call completes its future exactly once, with an outcome, or as gone when the call is dropped unrun.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::far;
use crate::noref::NoRef;
use crate::registry::{self, Message, PropertyRef};
use crate::request::{Apply, Fault, Then};
use crate::serial;
use crate::trust::Trust;
use crate::unwind::quietly;
use crate::worker::{self, Worker};

/// What a call and its future share.
struct State<U> {
    outcome: Option<Result<U, Fault>>,
    waker: Option<Waker>,
    /// The outcome is there, or was and has been taken.
    is_complete: bool,
}

type Shared<U> = Arc<Mutex<State<U>>>;

fn lock<U>(shared: &Mutex<State<U>>) -> MutexGuard<'_, State<U>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The call's half.
struct Answer<U>(Shared<U>);

impl<U> Answer<U> {
    fn complete(&self, outcome: Result<U, Fault>) {
        let mut state = lock(&self.0);
        if state.is_complete {
            return;
        }
        state.is_complete = true;
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            // The executor's code, on the trustee's thread or in a destructor.
            quietly(|| waker.wake());
        }
    }
}

impl<U> Drop for Answer<U> {
    fn drop(&mut self) {
        self.complete(Err(Fault::Gone));
    }
}

/// The future's half.
struct Pending<U>(Shared<U>);

impl<U> Pending<U> {
    fn poll(&self, context: &TaskContext<'_>) -> Poll<Result<U, Fault>> {
        let mut state = lock(&self.0);
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(outcome);
        }
        assert!(!state.is_complete, "a future of a trust was polled after it had given its result");
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

/// The result of [`Trust::apply_async`]. Dropping it discards the result: the closure runs all the same.
#[must_use = "the closure runs all the same; await this for its result, or use `apply_then`"]
pub struct ApplyFuture<U> {
    pending: Pending<U>,
    resume: fn(Fault) -> U,
}

/// The result of [`Trust::try_apply_async`]. Dropping it discards the result: the closure runs all the same.
#[must_use = "the closure runs all the same; await this for its result, or use `try_apply_then`"]
pub struct TryApplyFuture<U> {
    pending: Pending<U>,
    into_error: fn(Fault) -> Error,
}

impl<U> Future for ApplyFuture<U> {
    type Output = U;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<U> {
        self.pending.poll(context).map(|outcome| outcome.unwrap_or_else(self.resume))
    }
}

impl<U> Future for TryApplyFuture<U> {
    type Output = Result<U, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.pending.poll(context).map(|outcome| outcome.map_err(self.into_error))
    }
}

impl<U> fmt::Debug for ApplyFuture<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApplyFuture").field("complete", &lock(&self.pending.0).is_complete).finish()
    }
}

impl<U> fmt::Debug for TryApplyFuture<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryApplyFuture").field("complete", &lock(&self.pending.0).is_complete).finish()
    }
}

impl<T: 'static> Trust<T> {
    /// As [`apply`](Trust::apply), for async programs: gives a future of the result, on any executor. The closure is sent
    /// at once, not when the future is first polled, and runs even if the future is dropped.
    ///
    /// Callable on any thread, which does not become a trustee by it. The closures that one thread sends to one trustee so
    /// run in the order in which they were sent; against those it sends by `apply` and `apply_then` they have no order. The
    /// property's trustee has to be a thread that serves, as the workers of a [`Threadpool`](crate::Threadpool) do: one
    /// that an async runtime occupies does not.
    ///
    /// # Panics
    /// When it is awaited, as `apply` does: with the panic of `f`, or if the property is poisoned or its trustee gone.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// let pool = trust::Threadpool::new(1);
    /// let counter = pool.entrust(41);
    /// # runtime.block_on(async {
    /// assert_eq!(counter.apply_async(|c| { *c += 1; *c }).await, 42);
    /// # });
    /// ```
    pub fn apply_async<U, F>(&self, f: F) -> ApplyFuture<U>
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        ApplyFuture { pending: self.ask(f), resume: |fault| fault.resume::<T>() }
    }

    /// As [`apply_async`](Self::apply_async), for callers who want to handle poison, a gone trustee or a panic of `f`.
    ///
    /// # Errors
    /// When it is awaited, as [`try_apply`](Trust::try_apply).
    pub fn try_apply_async<U, F>(&self, f: F) -> TryApplyFuture<U>
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        TryApplyFuture { pending: self.ask(f), into_error: Fault::into_error::<T> }
    }

    /// As [`apply_async`](Self::apply_async), with an argument and a result that may hold pointers, as in
    /// [`apply_with`](Trust::apply_with). They travel serialised to other machines, within the process as they are.
    ///
    /// # Panics
    /// When it is awaited, as `apply_with`.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// let pool = trust::Threadpool::new(1);
    /// let names = pool.entrust(Vec::new());
    /// # runtime.block_on(async {
    /// let first = names.apply_with_async(|n, name| { n.push(name); n[0].clone() }, String::from("Ada"));
    /// assert_eq!(first.await, "Ada");
    /// # });
    /// ```
    pub fn apply_with_async<A, U, F>(&self, f: F, argument: A) -> ApplyFuture<U>
    where
        F: FnOnce(&mut T, A) -> U + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + Send + 'static,
        U: Serialize + DeserializeOwned + Send + 'static,
    {
        ApplyFuture { pending: self.ask_with(f, argument), resume: |fault| fault.resume::<T>() }
    }

    /// As [`apply_with_async`](Self::apply_with_async), for callers who want to handle errors.
    ///
    /// # Errors
    /// When it is awaited: those of [`try_apply`](Trust::try_apply), [`Error::Codec`], [`Error::TooLarge`].
    pub fn try_apply_with_async<A, U, F>(&self, f: F, argument: A) -> TryApplyFuture<U>
    where
        F: FnOnce(&mut T, A) -> U + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + Send + 'static,
        U: Serialize + DeserializeOwned + Send + 'static,
    {
        TryApplyFuture { pending: self.ask_with(f, argument), into_error: Fault::into_error::<T> }
    }

    fn ask<U, F>(&self, f: F) -> Pending<U>
    where
        F: FnOnce(&mut T) -> U + Send + 'static,
        U: Send + 'static,
    {
        self.send(|trust, worker, answer| {
            let then = move |outcome| answer.complete(outcome);
            if trust.is_at(worker) {
                trust.post_here(worker, f, then);
            } else {
                let (property, trustee) = trust.parts();
                worker.call_back(|| worker.submit(trustee, property, Apply::new(f), Then::new(then), false));
            }
        })
    }

    fn ask_with<A, U, F>(&self, f: F, argument: A) -> Pending<U>
    where
        F: FnOnce(&mut T, A) -> U + Send + 'static,
        A: Serialize + DeserializeOwned + Send + 'static,
        U: Serialize + DeserializeOwned + Send + 'static,
    {
        self.send(|trust, worker, answer| {
            let then = move |outcome| answer.complete(outcome);
            if trust.is_at(worker) {
                trust.post_here(worker, move |value: &mut T| f(value, argument), then);
            } else {
                let (property, trustee) = trust.parts();
                // In a callback's context the request is queued rather than waited for.
                worker.call_back(|| serial::submit(worker, trustee, property, f, &argument, then));
            }
        })
    }

    /// As `send`, for calls whose result nobody wants.
    pub(crate) fn send_unanswered(&self, call: fn(&Trust<T>)) {
        let call = move |trust: &Trust<T>, _: &Worker, answer: Answer<()>| {
            call(trust);
            answer.complete(Ok(()));
        };
        drop(self.send(call));
    }

    /// Has `call` run with this trust on a worker that can reach the property: here, or as soon as the message is read.
    fn send<U: Send + 'static>(&self, call: impl FnOnce(&Trust<T>, &Worker, Answer<U>) + Send + 'static) -> Pending<U> {
        let shared = Arc::new(Mutex::new(State { outcome: None, waker: None, is_complete: false }));
        let answer = Answer(Arc::clone(&shared));
        let mut call = Some((call, answer));
        worker::existing(|worker| {
            if self.is_at(worker)
                && let Some((call, answer)) = call.take()
            {
                call(self, worker, answer);
            }
        });
        let Some((call, answer)) = call else { return Pending(shared) };
        let (property, trustee) = self.parts();
        let is_far = trustee.machine() != registry::machine();
        let Some(worker) = (if is_far { far::service() } else { Some(trustee) }).and_then(registry::find) else {
            if is_far {
                let text = format!("{trustee:?} is on another machine, and no worker here can reach one");
                answer.complete(Err(Fault::Refused(text)));
            }
            return Pending(shared);
        };
        if is_far {
            far::forward(trustee, property, 1);
        }
        let asked = PropertyRef(property);
        let run = move |worker: &Worker| {
            let PropertyRef(property) = { asked };
            // It is counted: by the message, or just above.
            let trust = Trust::of(property, trustee);
            call(&trust, worker, answer);
        };
        let to_count = (!is_far).then_some(PropertyRef(property));
        // A call that is refused is dropped, and completes its future as gone.
        if worker.send(Message::Ask(to_count, Box::new(run))).is_err() && is_far {
            far::forward(trustee, property, -1);
        }
        Pending(shared)
    }
}
