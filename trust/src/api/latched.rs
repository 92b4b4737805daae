//! `launch` and its variants: calls on a latched property. Their closures run in fibers at the trustee and may wait
//! there.
//!
//! Here: the public methods. Not here: the forms (`call.rs`), the latch (`latch.rs`), the trustee's side (`launch.rs`).

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::delegated::{Delegated, Launched, LaunchedWith, calls};
use crate::api::future::{ApplyFuture, CallFuture};
use crate::api::trust::Trust;
use crate::error::Error;
use crate::noref::NoRef;
use crate::request::Fault;
use crate::tasks::held::Held;
use crate::tasks::latch::Latch;

impl<T: 'static> Trust<Latch<T>> {
    calls! {
        [U F] (f: F) where {
            F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
            U: NoRef + Send + 'static,
        } async where {} => Launched(move |held: &mut Held<'_, T>| f(held));

        /// Applies `f` to the latched value in a fiber at the trustee: `f` may wait, and delegate in turn. No other
        /// launched closure has the value meanwhile; they get it in the order in which they came.
        ///
        /// # Panics
        /// As [`apply`](Trust::apply).
        ///
        /// ```
        /// use trust::Latch;
        /// let pool = trust::Threadpool::new(2);
        /// let log = pool.entrust(Vec::new());
        /// let account = pool.entrust(Latch::new(10));
        /// let left = account.launch(move |balance| {
        ///     *balance -= 3;
        ///     let spent = *balance;
        ///     log.apply(move |log| log.push(spent));      // waits, here at the trustee
        ///     *balance
        /// });
        /// assert_eq!(left, 7);
        /// ```
        ///
        /// Source: thesis 2.4.3.
        wait launch;

        /// As [`launch`](Self::launch), for callers that handle poison, a gone trustee or a panic of `f`.
        ///
        /// # Errors
        /// As [`try_apply`](Trust::try_apply); [`Error::Refused`] if the trustee has no memory for another fiber.
        ///
        /// # Panics
        /// Inside a delegated closure or a callback, where nothing may wait.
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(trust::Latch::new(0u32));
        /// assert!(matches!(number.try_launch(|n| 10 / *n), Err(trust::Error::Panicked { .. })));
        /// assert!(matches!(number.try_launch(|n| *n), Err(trust::Error::Poisoned { .. })));
        /// ```
        try_wait try_launch;

        /// As [`launch`](Self::launch), waiting at most for `time`: see [`apply_timeout`](Trust::apply_timeout). A
        /// launched fiber runs to its end, and has the value until then.
        ///
        /// # Errors
        /// [`Error::TimedOut`], and as [`try_launch`](Self::try_launch).
        ///
        /// # Panics
        /// Inside a delegated closure or a callback, where nothing may wait.
        ///
        /// ```
        /// use std::sync::atomic::{AtomicBool, Ordering};
        /// use std::time::Duration;
        /// static IS_OVER: AtomicBool = AtomicBool::new(false);
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(trust::Latch::new(7));
        /// let slow = |n: &mut i32| { while !IS_OVER.load(Ordering::Relaxed) { trust::yield_now() } *n += 1; *n };
        /// assert!(matches!(number.launch_timeout(slow, Duration::from_millis(1)), Err(trust::Error::TimedOut { .. })));
        /// IS_OVER.store(true, Ordering::Relaxed);
        /// assert_eq!(number.launch_timeout(|n| *n, Duration::from_secs(60)), Ok(8)); // it has run all the same
        /// ```
        timeout launch_timeout;

        /// As [`launch`](Self::launch), without waiting; `then` is called with the result as by
        /// [`apply_then`](Trust::apply_then).
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(trust::Latch::new(6));
        /// number.launch_then(|n| { trust::yield_now(); *n * 7 }, |product| assert_eq!(product, 42));
        /// trust::wait_all();
        /// ```
        then launch_then;

        /// As [`launch_then`](Self::launch_then), but `then` also receives the error if there is no result.
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(trust::Latch::new(0u32));
        /// number.try_launch_then(|n| 10 / *n, |outcome| assert!(outcome.is_err()));
        /// trust::wait_all();
        /// ```
        try_then try_launch_then;

        /// As [`launch`](Self::launch), for async programs: returns a future of the result, as
        /// [`apply_async`](Trust::apply_async) does.
        ///
        /// # Panics
        /// When awaited, as `launch`.
        ///
        /// ```
        /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(trust::Latch::new(6));
        /// # runtime.block_on(async {
        /// assert_eq!(number.launch_async(|n| { trust::yield_now(); *n * 7 }).await, 42);
        /// # });
        /// ```
        future launch_async;

        /// As [`launch_async`](Self::launch_async), for callers that handle errors.
        ///
        /// # Errors
        /// When awaited, as [`try_launch`](Self::try_launch).
        ///
        /// ```
        /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(trust::Latch::new(0u32));
        /// # runtime.block_on(async {
        /// assert!(number.try_launch_async(|n| 10 / *n).await.is_err());
        /// # });
        /// ```
        try_future try_launch_async;
    }

    calls! {
        [U F] (f: F) where {
            F: FnOnce(&mut Held<'_, T>) -> U + NoRef + Send + 'static,
            U: NoRef + Send + 'static,
        } async where {} => Launched(f);

        /// As [`launch`](Self::launch), but `f` receives the value as a [`Held`], which can release it for a while
        /// ([`Held::released`]).
        ///
        /// # Panics
        /// As [`launch`](Self::launch).
        ///
        /// ```
        /// use trust::{Latch, Threadpool};
        /// let pool = Threadpool::new(1);
        /// let stock = pool.entrust(Latch::new(0));
        /// let seller = stock.clone();
        /// let sold = pool.spawn(move || seller.launch_held(|stock| {
        ///     while **stock < 3 {
        ///         stock.released(trust::yield_now); // others may fill it up meanwhile
        ///     }
        ///     std::mem::take(&mut **stock)
        /// }));
        /// stock.launch(|stock| *stock += 5);
        /// assert_eq!(sold.join().unwrap(), 5);
        /// ```
        wait launch_held;

        /// As [`launch_held`](Self::launch_held), for callers that handle errors.
        ///
        /// # Errors
        /// As [`try_launch`](Self::try_launch).
        ///
        /// # Panics
        /// Inside a delegated closure or a callback, where nothing may wait.
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(trust::Latch::new(7));
        /// assert_eq!(number.try_launch_held(|n| { n.released(trust::yield_now); **n }), Ok(7));
        /// ```
        try_wait try_launch_held;

        /// As [`launch_held`](Self::launch_held), waiting at most for `time`: see
        /// [`apply_timeout`](Trust::apply_timeout). A launched fiber runs to its end, and has the value until then.
        ///
        /// # Errors
        /// [`Error::TimedOut`], and as [`try_launch_held`](Self::try_launch_held).
        ///
        /// # Panics
        /// Inside a delegated closure or a callback, where nothing may wait.
        ///
        /// ```
        /// use std::time::Duration;
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(trust::Latch::new(7));
        /// let product = number.launch_held_timeout(|n| { n.released(trust::yield_now); **n * 6 }, Duration::from_secs(60));
        /// assert_eq!(product, Ok(42));
        /// ```
        timeout launch_held_timeout;

        /// As [`launch_held`](Self::launch_held), without waiting, as [`launch_then`](Self::launch_then).
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(trust::Latch::new(6));
        /// number.launch_held_then(|n| { n.released(trust::yield_now); **n * 7 }, |product| assert_eq!(product, 42));
        /// trust::wait_all();
        /// ```
        then launch_held_then;

        /// As [`launch_held_then`](Self::launch_held_then), but `then` also receives the error if there is no result.
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(trust::Latch::new(0u32));
        /// number.try_launch_held_then(|n| 10 / **n, |outcome| assert!(outcome.is_err()));
        /// trust::wait_all();
        /// ```
        try_then try_launch_held_then;

        /// As [`launch_held`](Self::launch_held), for async programs: returns a future of the result, as
        /// [`apply_async`](Trust::apply_async) does.
        ///
        /// # Panics
        /// When awaited, as `launch_held`.
        ///
        /// ```
        /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(trust::Latch::new(7));
        /// # runtime.block_on(async {
        /// assert_eq!(number.launch_held_async(|n| { n.released(trust::yield_now); **n }).await, 7);
        /// # });
        /// ```
        future launch_held_async;

        /// As [`launch_held_async`](Self::launch_held_async), for callers that handle errors.
        ///
        /// # Errors
        /// When awaited, as [`try_launch`](Self::try_launch).
        ///
        /// ```
        /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        /// let pool = trust::Threadpool::new(1);
        /// let number = pool.entrust(trust::Latch::new(0u32));
        /// # runtime.block_on(async {
        /// assert!(number.try_launch_held_async(|n| 10 / **n).await.is_err());
        /// # });
        /// ```
        try_future try_launch_held_async;
    }

    calls! {
        [A U F] (f: F, argument: A) where {
            F: FnOnce(&mut T, A) -> U + NoRef + Send + 'static,
            A: Serialize + DeserializeOwned + 'static,
            U: Serialize + DeserializeOwned + 'static,
        } async where { A: Send, U: Send, } => LaunchedWith::new(move |held: &mut Held<'_, T>, argument: A| f(held, argument), argument);

        /// As [`launch`](Self::launch), with argument and result serialised as in
        /// [`apply_with`](Trust::apply_with).
        ///
        /// # Panics
        /// As [`apply_with`](Trust::apply_with).
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(Vec::new()));
        /// let count = names.launch_with(|names, name: String| { trust::yield_now(); names.push(name); names.len() }, "Ada".to_owned());
        /// assert_eq!(count, 1);
        /// ```
        wait launch_with;

        /// As [`launch_with`](Self::launch_with), for callers that handle errors.
        ///
        /// # Errors
        /// As [`try_launch`](Self::try_launch); [`Error::Codec`], [`Error::TooLarge`].
        ///
        /// # Panics
        /// Inside a delegated closure or a callback, where nothing may wait.
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(Vec::new()));
        /// assert_eq!(names.try_launch_with(|names, name: String| { names.push(name); names.len() }, "Ada".to_owned()), Ok(1));
        /// ```
        try_wait try_launch_with;

        /// As [`launch_with`](Self::launch_with), waiting at most for `time`: see
        /// [`apply_timeout`](Trust::apply_timeout). A launched fiber runs to its end, and has the value until then.
        ///
        /// # Errors
        /// [`Error::TimedOut`], and as [`try_launch_with`](Self::try_launch_with).
        ///
        /// # Panics
        /// Inside a delegated closure or a callback, where nothing may wait.
        ///
        /// ```
        /// use std::time::Duration;
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(vec!["Ada".to_owned()]));
        /// let add = |names: &mut Vec<String>, name: String| { names.push(name); names.join(" ") };
        /// let all = names.launch_with_timeout(add, "Byron".to_owned(), Duration::from_secs(60));
        /// assert_eq!(all.as_deref(), Ok("Ada Byron"));
        /// ```
        timeout launch_with_timeout;

        /// As [`launch_with`](Self::launch_with), without waiting, as [`launch_then`](Self::launch_then).
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(vec!["Ada".to_owned()]));
        /// names.launch_with_then(
        ///     |names, name: String| { names.push(name); names.join(" ") },
        ///     "Byron".to_owned(),
        ///     |all| assert_eq!(all, "Ada Byron"),
        /// );
        /// trust::wait_all();
        /// ```
        then launch_with_then;

        /// As [`launch_with_then`](Self::launch_with_then), but `then` also receives the error if there is no result.
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(Vec::new()));
        /// names.try_launch_with_then(
        ///     |names, name: String| names.push(name),
        ///     "Ada".to_owned(),
        ///     |outcome| assert_eq!(outcome, Ok(())),
        /// );
        /// trust::wait_all();
        /// ```
        try_then try_launch_with_then;

        /// As [`launch_with`](Self::launch_with), for async programs: returns a future of the result, as
        /// [`apply_async`](Trust::apply_async) does. The argument is serialised before this returns.
        ///
        /// # Panics
        /// When awaited, as `launch_with`.
        ///
        /// ```
        /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(vec!["Ada".to_owned()]));
        /// # runtime.block_on(async {
        /// let all = names.launch_with_async(|names, name: String| { names.push(name); names.join(" ") }, "Byron".to_owned());
        /// assert_eq!(all.await, "Ada Byron");
        /// # });
        /// ```
        future launch_with_async;

        /// As [`launch_with_async`](Self::launch_with_async), for callers that handle errors.
        ///
        /// # Errors
        /// When awaited, as [`try_launch_with`](Self::try_launch_with).
        ///
        /// ```
        /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(Vec::new()));
        /// # runtime.block_on(async {
        /// let added = names.try_launch_with_async(|names, name: String| names.push(name), "Ada".to_owned());
        /// assert_eq!(added.await, Ok(()));
        /// # });
        /// ```
        try_future try_launch_with_async;
    }

    calls! {
        [A U F] (f: F, argument: A) where {
            F: FnOnce(&mut Held<'_, T>, A) -> U + NoRef + Send + 'static,
            A: Serialize + DeserializeOwned + 'static,
            U: Serialize + DeserializeOwned + 'static,
        } async where { A: Send, U: Send, } => LaunchedWith::new(f, argument);

        /// As [`launch_held`](Self::launch_held), with argument and result as in [`launch_with`](Self::launch_with).
        ///
        /// # Panics
        /// As [`launch_with`](Self::launch_with).
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(vec!["Ada".to_owned()]));
        /// let all = names.launch_held_with(|names, name: String| { names.push(name); names.join(" ") }, "Byron".to_owned());
        /// assert_eq!(all, "Ada Byron");
        /// ```
        wait launch_held_with;

        /// As [`launch_held_with`](Self::launch_held_with), for callers that handle errors.
        ///
        /// # Errors
        /// As [`try_launch`](Self::try_launch); [`Error::Codec`], [`Error::TooLarge`].
        ///
        /// # Panics
        /// Inside a delegated closure or a callback, where nothing may wait.
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(Vec::new()));
        /// assert_eq!(names.try_launch_held_with(|names, name: String| { names.push(name); names.len() }, "Ada".to_owned()), Ok(1));
        /// ```
        try_wait try_launch_held_with;

        /// As [`launch_held_with`](Self::launch_held_with), waiting at most for `time`: see
        /// [`apply_timeout`](Trust::apply_timeout). A launched fiber runs to its end, and has the value until then.
        ///
        /// # Errors
        /// [`Error::TimedOut`], and as [`try_launch_held_with`](Self::try_launch_held_with).
        ///
        /// # Panics
        /// Inside a delegated closure or a callback, where nothing may wait.
        ///
        /// ```
        /// use std::time::Duration;
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(Vec::new()));
        /// let time = Duration::from_secs(60);
        /// let count = names.launch_held_with_timeout(|names, name: String| { names.push(name); names.len() }, "Ada".to_owned(), time);
        /// assert_eq!(count, Ok(1));
        /// ```
        timeout launch_held_with_timeout;

        /// As [`launch_held_with`](Self::launch_held_with), without waiting, as [`launch_then`](Self::launch_then).
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(vec!["Ada".to_owned()]));
        /// names.launch_held_with_then(
        ///     |names, name: String| { names.push(name); names.join(" ") },
        ///     "Byron".to_owned(),
        ///     |all| assert_eq!(all, "Ada Byron"),
        /// );
        /// trust::wait_all();
        /// ```
        then launch_held_with_then;

        /// As [`launch_held_with_then`](Self::launch_held_with_then), but `then` also receives the error if there is no
        /// result.
        ///
        /// ```
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(Vec::new()));
        /// names.try_launch_held_with_then(
        ///     |names, name: String| names.push(name),
        ///     "Ada".to_owned(),
        ///     |outcome| assert_eq!(outcome, Ok(())),
        /// );
        /// trust::wait_all();
        /// ```
        try_then try_launch_held_with_then;

        /// As [`launch_held_with`](Self::launch_held_with), for async programs: returns a future of the result, as
        /// [`apply_async`](Trust::apply_async) does. The argument is serialised before this returns.
        ///
        /// # Panics
        /// When awaited, as `launch_held_with`.
        ///
        /// ```
        /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(vec!["Ada".to_owned()]));
        /// # runtime.block_on(async {
        /// let all = names.launch_held_with_async(|names, name: String| { names.push(name); names.join(" ") }, "Byron".to_owned());
        /// assert_eq!(all.await, "Ada Byron");
        /// # });
        /// ```
        future launch_held_with_async;

        /// As [`launch_held_with_async`](Self::launch_held_with_async), for callers that handle errors.
        ///
        /// # Errors
        /// When awaited, as [`try_launch_held_with`](Self::try_launch_held_with).
        ///
        /// ```
        /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        /// let pool = trust::Threadpool::new(1);
        /// let names = pool.entrust(trust::Latch::new(Vec::new()));
        /// # runtime.block_on(async {
        /// let added = names.try_launch_held_with_async(|names, name: String| names.push(name), "Ada".to_owned());
        /// assert_eq!(added.await, Ok(()));
        /// # });
        /// ```
        try_future try_launch_held_with_async;
    }
}
