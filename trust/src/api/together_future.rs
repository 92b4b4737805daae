//! `together` in async programs: futures of calls on several latched values at once.
//!
//! A call of an async program goes to a trustee like any other (`future.rs`), and from there to the others as that
//! trustee's own call. That first trustee is the one at which the closure will run, so that the result need not travel
//! back. Until then the call has a trust of each property.

#![allow(unsafe_code)]

use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use crate::api::delegated::Delegated;
use crate::api::future::Pending;
use crate::api::together::{CallOutcome, OnValues, Refs, Several, into_result, lost, refuse_holder, resume, send};
use crate::api::trust::Trust;
use crate::error::Error;
use crate::fiber::record;
use crate::noref::NoRef;
use crate::request::{Fault, Host};
use crate::runtime::worker::reclaim::count;
use crate::runtime::worker::{self, Worker};
use crate::tasks::together::{Job, Parts, assert_here};

/// Trusts of the properties of a call.
struct Counted<P: Parts>(P);

impl<P: Parts> Counted<P> {
    fn new(parts: P) -> Self {
        parts.as_ref().iter().map(|part| part.place()).for_each(|(property, trustee)| count(trustee, property, 1));
        Counted(parts)
    }
}

impl<P: Parts> Drop for Counted<P> {
    fn drop(&mut self) {
        self.0.as_ref().iter().map(|part| part.place()).for_each(|(property, trustee)| count(trustee, property, -1));
    }
}

/// `together`, on its way to one of the trustees.
struct Together<P: Parts, J> {
    trusts: Counted<P>,
    job: J,
}

impl<P: Parts, J: Job> Delegated<()> for Together<P, J> {
    type Output = CallOutcome<J::Output>;
    type Value = ();
    const NAME: &'static str = "together";
    const RUNS_HERE: bool = false;

    fn send(
        self,
        _: &Trust<()>,
        worker: &Worker,
        then: impl FnOnce(Result<Self::Output, Fault>) + 'static,
    ) -> Option<record::Awaited> {
        let Together { trusts, job } = self;
        // SAFETY: `trusts` are those of these properties, and live as long as this call.
        unsafe { send(worker, trusts.0.clone(), job, |outcome| then(Ok(outcome))) };
        None
    }
}

/// State of a call of `together`.
enum State<U> {
    Asked(Pending<CallOutcome<U>>),
    Settled(Option<CallOutcome<U>>),
}

impl<U: Send + 'static> State<U> {
    fn new<S, F>(trusts: &S, call: &str, f: F) -> Self
    where
        S: Several,
        F: for<'a> FnOnce(Refs<'a, S>) -> U + Send + 'static,
    {
        worker::existing(|worker| refuse_holder(worker, call));
        let parts = trusts.parts();
        let job = OnValues::<S::Values, F, U>::new(f);
        if let Err(error) = assert_here(parts.as_ref()) {
            return State::Settled(Some(Err(error)));
        }
        let Some((property, last)) = parts.as_ref().iter().map(|part| part.place()).max_by_key(|(_, trustee)| *trustee)
        else {
            return State::Settled(Some(Ok(run_on_nothing(job))));
        };
        // Stands only for the trustee; the call's own trusts keep the properties.
        let trust = ManuallyDrop::new(Trust::<()>::of(property, last));
        let pending = trust.ask(Together { trusts: Counted::new(parts), job });
        // If the last trustee is this very thread, no other code may run the deferred calls.
        worker::existing(Worker::settle);
        State::Asked(pending)
    }
}

impl<U> State<U> {
    fn poll(&mut self, context: &TaskContext<'_>) -> Poll<CallOutcome<U>> {
        match self {
            State::Asked(pending) => {
                pending.poll(context).map(|outcome| outcome.unwrap_or_else(|fault| Ok(lost(fault))))
            }
            State::Settled(outcome) => match outcome.take() {
                Some(outcome) => Poll::Ready(outcome),
                None => panic!("a future of a `together` was polled after it had given its result"),
            },
        }
    }
}

/// Runs the job of an empty list, which has no trustee.
fn run_on_nothing<J: Job>(job: J) -> crate::tasks::together::Outcome<J::Output> {
    // SAFETY: there are no values.
    let run = || catch_unwind(AssertUnwindSafe(|| unsafe { job.run(&[]) }));
    let is_worker = worker::existing(|_| ()).is_some();
    let outcome = if is_worker { worker::with(|worker| worker.delegated(run)) } else { run() };
    worker::existing(Worker::settle);
    outcome.or_else(|payload| lost(Fault::Panicked(payload)))
}

/// Future of such a call: its docs and name, its output, and the function from the outcome to that.
macro_rules! future {
    ($(#[$doc:meta])* $Future:ident<$U:ident> -> $Output:ty, $make:ident) => {
        $(#[$doc])*
        #[must_use = "a closure for which there was no room is not sent before this is polled: await it"]
        pub struct $Future<$U>(State<$U>);

        // No field is ever pinned.
        impl<$U> Unpin for $Future<$U> {}

        impl<$U> Future for $Future<$U> {
            type Output = $Output;
            fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<$Output> {
                self.get_mut().0.poll(context).map($make)
            }
        }

        impl<$U> fmt::Debug for $Future<$U> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($Future)).finish_non_exhaustive()
            }
        }
    };
}

future! {
    /// Future of [`together_async`]. Dropping it discards the result; the closure still runs, unless there was no room
    /// to send it yet.
    TogetherFuture<U> -> U, resume
}
future! {
    /// Future of [`try_together_async`]. Dropping it is as for [`TogetherFuture`].
    TryTogetherFuture<U> -> Result<U, Error>, into_result
}

/// Same as [`together`](crate::together), for async programs: returns a future of the result, on any executor and any
/// thread, which does not become a trustee by it. The call is sent at once, like that of
/// [`apply_async`](Trust::apply_async), and shares its back-pressure: it goes to the trustee at which `f` will run, and
/// beyond 1,024 calls of async programs there its future waits for room.
///
/// Calls of one thread with the same set of trustees are sent in order; if they use different values, either may run
/// first. The closure of a call on an empty list runs at once, on the calling thread.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// use trust::{Latch, Threadpool, together_async};
///
/// let pool = Threadpool::new(2);
/// let (mine, yours) = (pool.entrust(Latch::new(100)), pool.entrust(Latch::new(0)));
/// # runtime.block_on(async {
/// let left = together_async((&mine, &yours), |(mine, yours)| {
///     *mine -= 30;
///     *yours += 30;
///     *mine
/// });
/// assert_eq!(left.await, 70);
/// # });
/// ```
///
/// # Panics
/// In a [launched](Trust::launch) closure, which holds a value already. When awaited: as `together`.
pub fn together_async<S, U, F>(trusts: S, f: F) -> TogetherFuture<U>
where
    S: Several,
    F: for<'a> FnOnce(Refs<'a, S>) -> U + NoRef + Send + 'static,
    U: NoRef + Send + 'static,
{
    TogetherFuture(State::new(&trusts, "together_async", f))
}

/// Same as [`together_async`], for callers that handle errors.
///
/// # Errors
/// When awaited, as [`try_together`](crate::try_together).
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// use trust::{Error, Latch, Threadpool, try_together_async};
///
/// let pool = Threadpool::new(2);
/// let (a, b) = (pool.entrust(Latch::new(1_u32)), pool.entrust(Latch::new(2_u32)));
/// # runtime.block_on(async {
/// let outcome = try_together_async((&a, &b), |(a, b)| *a / (*b - 2)).await;
/// assert!(matches!(outcome, Err(Error::Panicked { .. })));
/// assert!(matches!(try_together_async([&a, &a], |_| ()).await, Err(Error::Twice { .. })));
/// # });
/// ```
///
/// # Panics
/// In a closure that was launched.
pub fn try_together_async<S, U, F>(trusts: S, f: F) -> TryTogetherFuture<U>
where
    S: Several,
    F: for<'a> FnOnce(Refs<'a, S>) -> U + NoRef + Send + 'static,
    U: NoRef + Send + 'static,
{
    TryTogetherFuture(State::new(&trusts, "try_together_async", f))
}
