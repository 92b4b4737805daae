//! `apply` and its forms that panic where there is no result: calls on any property. Forms that give errors: `call.rs`;
//! how a request is made: `trust.rs`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::delegated::{Closure, ClosureWith, Delegated, result_or_report, resumed};
use crate::api::future::ApplyFuture;
use crate::api::trust::Trust;
use crate::noref::NoRef;
use crate::request::{ANYWHERE, Called, Fault};

impl<T: 'static> Trust<T> {
    /// Applies `f` to the property and returns its result. Other fibers run meanwhile; on a thread's own stack
    /// the thread serves its trustee and runs its fibers meanwhile.
    ///
    /// # Panics
    /// With the panic of `f` if `f` panics; if the property is poisoned or its trustee gone ([`call`](Self::call)
    /// gives an error instead); inside a delegated closure or a callback, where nothing may wait.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(1);
    /// let list = pool.entrust(Vec::new());
    /// list.apply(|l| l.push(3));
    /// assert_eq!(list.apply(|l| l.len()), 1);
    /// ```
    ///
    /// Source: thesis 2.4.1.
    #[inline]
    #[track_caller]
    pub fn apply<U, F>(&self, f: F) -> U
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        Closure::<_, ANYWHERE>(f).wait(self, "apply", resumed::<T, U>)
    }

    /// Applies `f` to the property and continues at once; `then` is called with the result, on this thread, when
    /// this thread next takes responses, or before this returns if the trustee is this worker's or runs beside it
    /// ([`Builder::tuned`](crate::Builder::tuned)). Legal everywhere, also inside delegated closures and callbacks.
    ///
    /// Requests of one thread to one trustee run in the order they were made, those of `apply` included. While
    /// every slot to the trustee is full, a caller that may wait does so (memory stays bounded); inside delegated
    /// closures and callbacks the request is queued instead. While an earlier batch is unanswered, requests gather
    /// in the next one, which is sent when this thread takes the answer. So before a thread blocks outside the
    /// library (in a channel of the standard library, say) on the effect of a request, it waits for that request
    /// with [`apply`](Self::apply). If there is no result (the closure panicked, the property is poisoned, the
    /// trustee is gone), the error is reported on standard error and `then` is dropped;
    /// [`ReadyCall::then`](crate::ReadyCall::then) passes it to `then`. Nothing may wait inside `then`; if it panics,
    /// the panic hook reports it, and the thread continues. If the trustee is this thread both run at once, inside
    /// closures and callbacks as soon as those return.
    ///
    /// ```
    /// # use std::{cell::Cell, rc::Rc};
    /// let pool = trust::Threadpool::new(1);
    /// let number = pool.entrust(17);
    /// let seen = Rc::new(Cell::new(0));
    /// let see = Rc::clone(&seen);
    /// number.apply_then(|n| { *n += 1; *n }, move |n| see.set(n));
    /// number.apply(|_| ());                       // in order, so the callback has run
    /// assert_eq!(seen.get(), 18);
    /// ```
    ///
    /// Source: thesis 2.4.2.
    #[inline]
    pub fn apply_then<U, F, H>(&self, f: F, then: H)
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        H: FnOnce(U) + 'static,
    {
        Closure::<_, ANYWHERE>(f).then(self, move |outcome| result_or_report::<T, U>("apply_then", outcome, then));
    }

    /// Same as [`apply`](Trust::apply), for async programs: returns a future of the result, on any executor. The
    /// closure is sent at once, not when the future is first polled, and then runs even if the future is dropped.
    ///
    /// Back-pressure: at most 1,024 calls of async programs are under way at one worker (for properties of other
    /// machines: at this machine's service thread). A call beyond that is not sent yet. Its future is pending: when
    /// polled, it waits for room, and then sends the closure; if dropped before, it drops the closure unrun.
    /// Waiting futures are woken in the order in which they came; a new call may take the room before a woken
    /// future is polled. So memory is bounded even if calls are never awaited.
    ///
    /// Callable on any thread, which does not become a trustee by it; the future may move from thread to thread.
    /// The closures that one thread sends to one trustee run in the order in which they were sent; a call that
    /// waited for room counts from when it was sent. They have no order with those sent by `apply` and
    /// `apply_then`. The property's trustee must be a thread that serves, as the workers of a
    /// [`Threadpool`](crate::Threadpool) do; a thread occupied by an async runtime does not. A task with the only
    /// call under way spins for the result for about a microsecond before it is pending, as long as that pays off.
    ///
    /// Clone a trust for each task rather than for each call: a clone costs a message to the trustee too.
    ///
    /// # Panics
    /// When awaited, as `apply`: with the panic of `f`, or if the property is poisoned or its trustee gone.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// let pool = trust::Threadpool::new(1);
    /// let counter = pool.entrust(41);
    /// # runtime.block_on(async {
    /// assert_eq!(counter.apply_async(|c| { *c += 1; *c }).await, 42);
    /// # });
    /// ```
    #[track_caller]
    pub fn apply_async<U, F>(&self, f: F) -> ApplyFuture<U>
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        ApplyFuture::new(self, Closure::<_, ANYWHERE>(f), Called::here("apply_async"), |fault: Fault, call| {
            fault.resume_call::<T>(call)
        })
    }

    /// Same as [`apply`](Self::apply), with an argument. Argument and result travel serialised, so `String`, `Vec`,
    /// maps and every other type that serde supports may pass, with trusts inside them too. The format does not contain
    /// names of fields or types, so serde's attributes `untagged`, `tag`, `flatten` and `skip_serializing_if` do
    /// not work. Nothing may wait while a value is serialised or deserialised.
    ///
    /// # Panics
    /// Same as [`apply`](Self::apply); also if the argument or result does not serialise, or is larger than 1 GiB, or
    /// 64 MiB to or from another machine.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// let table = trust::local_trustee().entrust(HashMap::new());
    /// table.apply_with(|t, (key, value): (String, u32)| { t.insert(key, value); }, ("one".into(), 1));
    /// assert_eq!(table.apply_with(|t, key: String| t.get(&key).copied(), "one".into()), Some(1));
    /// ```
    ///
    /// Source: thesis 2.4.3.3.
    #[track_caller]
    pub fn apply_with<A, U, F>(&self, f: F, argument: A) -> U
    where
        F: FnOnce(&mut T, A) -> U + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + 'static,
        U: Serialize + DeserializeOwned + 'static,
    {
        ClosureWith::new(f, argument).wait(self, "apply_with", resumed::<T, U>)
    }
}
