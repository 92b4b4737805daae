//! `apply` and its variants: calls on any property. The forms: `call.rs`; how a request is made: `trust.rs`.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::delegated::{Closure, ClosureWith, Delegated, calls};
use crate::api::future::{ApplyFuture, CallFuture};
use crate::api::trust::Trust;
use crate::error::Error;
use crate::noref::NoRef;
use crate::request::Fault;

impl<T: 'static> Trust<T> {
    calls! {
        [U F] (f: F) where {
            F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
            U: NoRef + Send + 'static,
        } async where {} => Closure(f);

        /// Applies `f` to the property and returns its result. Other fibers run meanwhile; on a thread's own stack
        /// the thread serves its trustee and runs its fibers meanwhile.
        ///
        /// # Panics
        /// With the panic of `f` if `f` panics; if the property is poisoned or its trustee gone (see
        /// [`try_apply`](Self::try_apply)); inside a delegated closure or a callback, where nothing may wait.
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
        wait apply;

        /// As [`apply`](Self::apply), for callers that handle poison, a gone trustee or a panic of `f`.
        ///
        /// # Errors
        /// [`Error::Panicked`], [`Error::Poisoned`], [`Error::Gone`].
        ///
        /// # Panics
        /// Inside a delegated closure or a callback, where nothing may wait.
        ///
        /// ```
        /// let t = trust::local_trustee().entrust(1);
        /// assert!(t.try_apply(|_| { if true { panic!("no") } }).is_err());
        /// assert!(matches!(t.try_apply(|v| *v), Err(trust::Error::Poisoned { .. })));
        /// t.clear_poison();
        /// assert_eq!(t.try_apply(|v| *v), Ok(1));
        /// ```
        #[inline]
        try_wait try_apply;

        /// As [`try_apply`](Self::try_apply), but waits for the answer at most for `time`. A sent request cannot be
        /// taken back: after [`Error::TimedOut`] the closure may run later, may be running, or has run with its answer
        /// on the way here, which is then dropped. So it fits closures where that does no harm, or is detected later:
        /// reads, and closures that can be sent twice. A call that timed out uses memory until it is answered.
        ///
        /// `time` also bounds the wait for a place in the queue to the trustee. It does not bound the closure if the
        /// trustee is this thread, which runs it at once. [`JoinHandle::abort`](crate::JoinHandle::abort) ends the wait
        /// as well.
        ///
        /// # Errors
        /// [`Error::TimedOut`], and as [`try_apply`](Self::try_apply).
        ///
        /// # Panics
        /// Inside a delegated closure or a callback, where nothing may wait.
        ///
        /// ```
        /// use std::sync::atomic::{AtomicBool, Ordering};
        /// use std::time::Duration;
        /// static IS_OVER: AtomicBool = AtomicBool::new(false);
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(7);
        /// assert_eq!(number.apply_timeout(|n| *n, Duration::from_secs(60)), Ok(7));
        /// let slow = |_: &mut i32| while !IS_OVER.load(Ordering::Relaxed) { std::thread::yield_now() };
        /// assert!(matches!(number.apply_timeout(slow, Duration::from_millis(1)), Err(trust::Error::TimedOut { .. })));
        /// IS_OVER.store(true, Ordering::Relaxed);
        /// ```
        timeout apply_timeout;

        /// Applies `f` to the property and continues at once; `then` is called with the result, on this thread, when
        /// this thread next takes responses. Legal everywhere, also inside delegated closures and callbacks.
        ///
        /// Requests of one thread to one trustee run in the order they were made, those of `apply` included. While
        /// every slot to the trustee is full, a caller that may wait does so (memory stays bounded); inside delegated
        /// closures and callbacks the request is queued instead. While an earlier batch is unanswered, requests gather
        /// in the next one, which is sent when this thread takes the answer. So before a thread blocks outside the
        /// library (in a channel of the standard library, say) on the effect of a request, it waits for that request
        /// with [`apply`](Self::apply). If there is no result (the closure panicked, the property is poisoned, the
        /// trustee is gone), the error is reported on standard error and `then` is dropped;
        /// [`try_apply_then`](Self::try_apply_then) passes it to `then`. Nothing may wait inside `then`; if it panics,
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
        then apply_then;

        /// As [`apply_then`](Self::apply_then), but `then` also receives the error if there is no result.
        ///
        /// ```
        /// # use std::{cell::Cell, rc::Rc};
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(0u32);
        /// let failed = Rc::new(Cell::new(false));
        /// let told = Rc::clone(&failed);
        /// number.try_apply_then(|n| 10 / *n, move |outcome| told.set(outcome.is_err()));
        /// trust::wait_all();
        /// assert!(failed.get());
        /// ```
        #[inline]
        try_then try_apply_then;

        /// As [`apply`](Trust::apply), for async programs: returns a future of the result, on any executor. The closure
        /// is sent at once, not when the future is first polled, and then runs even if the future is dropped.
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
        future apply_async;

        /// As [`apply_async`](Self::apply_async), for callers that handle poison, a gone trustee or a panic of `f`.
        ///
        /// # Errors
        /// When awaited, as [`try_apply`](Trust::try_apply).
        ///
        /// ```
        /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(0u32);
        /// # runtime.block_on(async {
        /// assert!(matches!(number.try_apply_async(|n| 10 / *n).await, Err(trust::Error::Panicked { .. })));
        /// # });
        /// ```
        try_future try_apply_async;
    }

    calls! {
        [A U F] (f: F, argument: A) where {
            F: FnOnce(&mut T, A) -> U + NoRef + Send + 'static,
            A: Serialize + DeserializeOwned + 'static,
            U: Serialize + DeserializeOwned + 'static,
        } async where { A: Send, U: Send, } => ClosureWith::new(f, argument);

        /// As [`apply`](Self::apply), with an argument. Argument and result travel serialised, so `String`, `Vec`, maps
        /// and every other type that serde supports may pass, with trusts inside them too. The format does not contain
        /// names of fields or types, so serde's attributes `untagged`, `tag`, `flatten` and `skip_serializing_if` do
        /// not work. Nothing may wait while a value is serialised or deserialised.
        ///
        /// # Panics
        /// As [`apply`](Self::apply); also if the argument or result does not serialise, or is larger than 1 GiB, or 64
        /// MiB to or from another machine.
        ///
        /// ```
        /// use std::collections::HashMap;
        /// let table = trust::local_trustee().entrust(HashMap::new());
        /// table.apply_with(|t, (key, value): (String, u32)| { t.insert(key, value); }, ("one".into(), 1));
        /// assert_eq!(table.apply_with(|t, key: String| t.get(&key).copied(), "one".into()), Some(1));
        /// ```
        ///
        /// Source: thesis 2.4.3.3.
        wait apply_with;

        /// As [`apply_with`](Self::apply_with), for callers that handle errors.
        ///
        /// # Errors
        /// As [`try_apply`](Self::try_apply); [`Error::Codec`], [`Error::TooLarge`].
        ///
        /// # Panics
        /// Inside a delegated closure or a callback, where nothing may wait.
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(vec!["Ada".to_owned()]);
        /// let find = |names: &mut Vec<String>, name: String| names.iter().position(|n| *n == name).expect("unknown");
        /// assert_eq!(names.try_apply_with(find, "Ada".to_owned()), Ok(0));
        /// assert!(matches!(names.try_apply_with(find, "Bob".to_owned()), Err(trust::Error::Panicked { .. })));
        /// ```
        try_wait try_apply_with;

        /// As [`apply_with`](Self::apply_with), waiting at most for `time`: see [`apply_timeout`](Self::apply_timeout).
        ///
        /// # Errors
        /// [`Error::TimedOut`], and as [`try_apply_with`](Self::try_apply_with).
        ///
        /// # Panics
        /// Inside a delegated closure or a callback, where nothing may wait.
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(vec!["Ada".to_owned()]);
        /// let find = |names: &mut Vec<String>, name: String| names.contains(&name);
        /// let time = std::time::Duration::from_secs(60);
        /// assert_eq!(names.apply_with_timeout(find, "Ada".to_owned(), time), Ok(true));
        /// ```
        timeout apply_with_timeout;

        /// As [`apply_then`](Self::apply_then), with argument and result as in [`apply_with`](Self::apply_with).
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(Vec::<String>::new());
        /// let add = |names: &mut Vec<String>, name| { names.push(name); names.join(" and ") };
        /// names.apply_with_then(add, "Ada".to_owned(), |all| assert_eq!(all, "Ada"));
        /// names.apply_with_then(add, "Charles".to_owned(), |all| assert_eq!(all, "Ada and Charles"));
        /// trust::wait_all();
        /// ```
        then apply_with_then;

        /// As [`apply_with_then`](Self::apply_with_then), but `then` also receives the error if there is no result.
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(Vec::<String>::new());
        /// names.try_apply_with_then(
        ///     |names, name: String| names.push(name),
        ///     "Ada".to_owned(),
        ///     |outcome| assert_eq!(outcome, Ok(())),
        /// );
        /// trust::wait_all();
        /// ```
        try_then try_apply_with_then;

        /// As [`apply_async`](Self::apply_async), with an argument and a result that may hold pointers, as in
        /// [`apply_with`](Trust::apply_with). They travel serialised to other machines, and unserialised within the
        /// process.
        ///
        /// # Panics
        /// When awaited, as `apply_with`.
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
        future apply_with_async;

        /// As [`apply_with_async`](Self::apply_with_async), for callers that handle errors.
        ///
        /// # Errors
        /// When awaited, as [`try_apply`](Trust::try_apply); [`Error::Codec`], [`Error::TooLarge`].
        ///
        /// ```
        /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(Vec::new());
        /// # runtime.block_on(async {
        /// let added = names.try_apply_with_async(|n, name| n.push(name), String::from("Ada")).await;
        /// assert_eq!(added, Ok(()));
        /// # });
        /// ```
        try_future try_apply_with_async;
    }
}
