//! `Durable::call`: a transaction made of parts, which gives its errors, in the scheme of `Trust::call`: an argument or
//! none, a closure, a limit of time or none, and one of three ways to the result.
//!
//! Not here: how a request goes to the pool and its answer comes back (`request.rs`).

#![allow(clippy::type_complexity, reason = "what a closure becomes has no name")]

use std::future::IntoFuture;
use std::result::Result as Outcome;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::NoRef;

use super::Durable;
use super::request::{AsyncRequest, Plain, Request, Serialised};
use crate::error::Result;
use crate::persist::Persist;
use crate::property::{Answer, Service};
use crate::service::future::DurableFuture;
use crate::tx::Tx;

/// Call that has no closure yet, from [`Durable::call`]; with an argument after [`with`](Call::with).
#[must_use = "a call without a closure does nothing"]
#[derive(Debug)]
pub struct Call<'d, T: Persist + 'static, A = ()> {
    durable: &'d Durable<T>,
    argument: A,
}

/// Argument of a [`Call`], which travels serialised.
#[derive(Debug)]
pub struct With<A>(A);

/// Call that can be sent: by [`wait`](ReadyCall::wait), by [`then`](ReadyCall::then), or by `.await`.
///
/// `.await`, or `into_future` of [`IntoFuture`] to await it later, is for async programs of this process and any
/// executor: see [`Durable::apply_async`].
#[must_use = "a call is sent by `wait`, `then` or `await`"]
#[derive(Debug)]
pub struct ReadyCall<'d, T: Persist + 'static, R> {
    durable: &'d Durable<T>,
    request: R,
}

/// Call whose caller [waits](TimedCall::wait) for a limited time, from [`timeout`](ReadyCall::timeout).
#[must_use = "a call is sent by `wait`"]
#[derive(Debug)]
pub struct TimedCall<'d, T: Persist + 'static, R> {
    call: ReadyCall<'d, T, R>,
    time: Duration,
}

impl<T: Persist + 'static> Durable<T> {
    /// Begins a call that gives its errors: every combination of an argument or none, the kind of closure, a limit of
    /// time or none, and the way to the result.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("durable-call-{}", std::process::id()));
    /// # let workers = trust::Threadpool::new(1);
    /// use trust_durable::{Durable, PMap, PString};
    ///
    /// let bank = Durable::<PMap<PString, u64>>::open(workers.trustees()[0], &folder, |tx| {
    ///     let mut bank = PMap::new();
    ///     bank.insert(PString::of("Ada", tx), 100, tx);
    ///     bank
    /// })?;
    /// let transfer = |from: &str, to: &str, amount: u64| {
    ///     bank.call()
    ///         .with((from.to_owned(), to.to_owned(), amount))
    ///         .attempt(|bank, _, (from, to, amount)| {
    ///             let one = bank.get_mut(&*from).ok_or(format!("{from} has no account"))?;
    ///             *one = one.checked_sub(amount).ok_or(format!("{from} has too little"))?;
    ///             *bank.get_mut(&*to).ok_or(format!("{to} has no account"))? += amount;
    ///             Ok::<(), String>(())
    ///         })
    ///         .wait()
    /// };
    /// assert_eq!(transfer("Ada", "Bob", 30)?, Err("Bob has no account".to_owned()));
    /// let left = bank.call().apply(|bank, _| bank.get("Ada").copied()).timeout(std::time::Duration::from_secs(60));
    /// assert_eq!(left.wait()?, Some(100)); // what was taken is back
    /// # drop(bank);
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok::<(), trust_durable::Error>(())
    /// ```
    #[inline]
    pub fn call(&self) -> Call<'_, T> {
        Call { durable: self, argument: () }
    }
}

impl<'d, T: Persist + 'static> Call<'d, T> {
    /// Gives the call an argument, the closure's third parameter. Argument and result travel serialised: `String`,
    /// `Vec` and every type that serde knows may be used.
    #[inline]
    pub fn with<A>(self, argument: A) -> Call<'d, T, With<A>>
    where
        A: Serialize + DeserializeOwned + 'static,
    {
        Call { durable: self.durable, argument: With(argument) }
    }

    /// Gives the call a transaction whose changes are committed, even if it returns `Err`: as [`Durable::apply`].
    #[inline]
    pub fn apply<U, F>(
        self,
        f: F,
    ) -> ReadyCall<'d, T, Plain<impl FnOnce(&mut Service<T>, u64) -> Answer<U> + NoRef + Send + use<T, U, F>>>
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        ReadyCall {
            durable: self.durable,
            request: Plain(move |service: &mut Service<T>, client| service.apply(client, f)),
        }
    }

    /// Gives the call a transaction that is undone if it returns `Err`: as [`Durable::attempt`]. The outer result says
    /// whether there is an answer, the inner one is the result of `f`.
    #[inline]
    pub fn attempt<U, E, F>(
        self,
        f: F,
    ) -> ReadyCall<
        'd,
        T,
        Plain<impl FnOnce(&mut Service<T>, u64) -> Answer<Outcome<U, E>> + NoRef + Send + use<T, U, E, F>>,
    >
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Outcome<U, E> + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        E: NoRef + Send + 'static,
    {
        ReadyCall {
            durable: self.durable,
            request: Plain(move |service: &mut Service<T>, client| service.attempt(client, f)),
        }
    }

    /// Gives the call a closure that reads the root as it is now: as [`Durable::peek`].
    #[inline]
    pub fn peek<U, F>(
        self,
        f: F,
    ) -> ReadyCall<'d, T, Plain<impl FnOnce(&mut Service<T>, u64) -> Answer<U> + NoRef + Send + use<T, U, F>>>
    where
        F: for<'a, 'p> FnOnce(&'a T::At<'p>) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        ReadyCall { durable: self.durable, request: Plain(move |service: &mut Service<T>, _| service.look(f)) }
    }
}

impl<'d, T: Persist + 'static, A: Serialize + DeserializeOwned + 'static> Call<'d, T, With<A>> {
    /// Same as [`apply`](Call::apply) of a call without an argument; the closure gets it as its third parameter.
    #[inline]
    pub fn apply<U, F>(
        self,
        f: F,
    ) -> ReadyCall<
        'd,
        T,
        Serialised<A, impl FnOnce(&mut Service<T>, u64, A) -> Answer<U> + NoRef + Send + use<T, A, U, F>>,
    >
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>, A) -> U + NoRef + Send + 'static,
        U: Serialize + DeserializeOwned + 'static,
    {
        let run = move |service: &mut Service<T>, client, argument: A| {
            service.apply(client, |root, tx| f(root, tx, argument))
        };
        ReadyCall { durable: self.durable, request: Serialised { run, argument: self.argument.0 } }
    }

    /// Same as [`attempt`](Call::attempt) of a call without an argument; the closure gets it as its third parameter.
    /// The error travels serialised too.
    #[inline]
    pub fn attempt<U, E, F>(
        self,
        f: F,
    ) -> ReadyCall<
        'd,
        T,
        Serialised<
            A,
            impl FnOnce(&mut Service<T>, u64, A) -> Answer<Outcome<U, E>> + NoRef + Send + use<T, A, U, E, F>,
        >,
    >
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>, A) -> Outcome<U, E> + NoRef + Send + 'static,
        U: Serialize + DeserializeOwned + 'static,
        E: Serialize + DeserializeOwned + 'static,
    {
        let run = move |service: &mut Service<T>, client, argument: A| {
            service.attempt(client, |root, tx| f(root, tx, argument))
        };
        ReadyCall { durable: self.durable, request: Serialised { run, argument: self.argument.0 } }
    }
}

impl<'d, T: Persist + 'static, R: Request<T>> ReadyCall<'d, T, R> {
    /// Limits the time that the caller waits. A sent closure cannot be taken back: after
    /// [`Error::TimedOut`](crate::Error::TimedOut) it may run later, may be running, or has run, and its changes are
    /// committed as those of any other. Futures have the limits of their runtime.
    #[inline]
    pub fn timeout(self, time: Duration) -> TimedCall<'d, T, R> {
        TimedCall { call: self, time }
    }

    /// Sends the call and waits until its result is on disk. Other fibers run meanwhile.
    ///
    /// # Errors
    /// [`Error::Panicked`](crate::Error::Panicked), [`Error::Lost`](crate::Error::Lost),
    /// [`Error::Closed`](crate::Error::Closed), [`Error::Gone`](crate::Error::Gone); with an argument
    /// [`Error::Call`](crate::Error::Call) if it or the result does not serialise or is too large.
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    #[inline]
    #[track_caller]
    pub fn wait(self) -> Result<R::Output> {
        self.request.wait(self.durable)
    }

    /// Sends the call and continues at once; `then` is called on this thread with the result when it is on disk, or
    /// with the error: see [`Durable::apply_then`].
    #[inline]
    pub fn then<H>(self, then: H)
    where
        H: FnOnce(Result<R::Output>) + 'static,
    {
        self.request.post(self.durable, then);
    }
}

impl<T: Persist + 'static, R: Request<T>> TimedCall<'_, T, R> {
    /// Sends the call and waits until its result is on disk, at most for the time given.
    ///
    /// # Errors
    /// [`Error::TimedOut`](crate::Error::TimedOut), and those of [`ReadyCall::wait`].
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    #[track_caller]
    pub fn wait(self) -> Result<R::Output> {
        self.call.request.wait_up_to(self.call.durable, self.time)
    }
}

impl<T: Persist + 'static, R: AsyncRequest<T>> IntoFuture for ReadyCall<'_, T, R> {
    type Output = Result<R::Output>;
    type IntoFuture = DurableFuture<R::Output>;

    /// Sends the call, and returns the future of its result.
    fn into_future(self) -> DurableFuture<R::Output> {
        self.request.future(self.durable)
    }
}
