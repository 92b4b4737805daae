//! Transactions that may fail: the calls of `mod.rs` for closures that are undone when they return `Err`.

use std::result::Result as Outcome;

use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::NoRef;

use super::{Durable, request};
use crate::error::Result;
use crate::persist::Persist;
use crate::service::future::DurableFuture;
use crate::tx::Tx;

impl<T: Persist + 'static> Durable<T> {
    /// Runs a transaction. If `f` returns `Ok` its changes are committed; if it returns `Err` all of them are undone,
    /// allocations included. Returns the result when everything that `f` has read and written is on disk. Other fibers
    /// run meanwhile.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("durable-attempt-{}", std::process::id()));
    /// # let workers = trust::Threadpool::new(1);
    /// # use trust_durable::Durable;
    /// let accounts = Durable::<[u64; 2]>::open(workers.trustees()[0], &folder, |_| [100, 0])?;
    /// let transfer = |amount: u64| {
    ///     accounts.attempt(move |accounts, _| {
    ///         accounts[1] += amount;
    ///         accounts[0] = accounts[0].checked_sub(amount).ok_or("too little is there").map_err(|why| why.len())?;
    ///         Ok::<u64, usize>(accounts[0])
    ///     })
    /// };
    /// assert_eq!(transfer(30), Ok(70));
    /// assert!(transfer(300).is_err());
    /// assert_eq!(accounts.peek(|accounts| *accounts), [70, 30]); // undone
    /// # drop(accounts);
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok::<(), trust_durable::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that `f` returns.
    ///
    /// # Panics
    /// Those of [`apply`](Self::apply).
    pub fn attempt<U, E, F>(&self, f: F) -> Outcome<U, E>
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Outcome<U, E> + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        E: NoRef + Send + 'static,
    {
        self.try_attempt(f).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`attempt`](Self::attempt), for callers that handle errors: the outer result says whether there is an answer,
    /// the inner one is the result of `f`.
    ///
    /// # Errors
    /// Those of [`try_apply`](Self::try_apply).
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    pub fn try_attempt<U, E, F>(&self, f: F) -> Result<Outcome<U, E>>
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Outcome<U, E> + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        E: NoRef + Send + 'static,
    {
        self.call().attempt(f).wait()
    }

    /// As [`apply_then`](Self::apply_then), for closures that may fail: if `f` returns `Err` its changes are undone.
    pub fn attempt_then<U, E, F, H>(&self, f: F, then: H)
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Outcome<U, E> + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        E: NoRef + Send + 'static,
        H: FnOnce(Outcome<U, E>) + 'static,
    {
        self.try_attempt_then(f, request::or_tell("attempt_then", then));
    }

    /// As [`attempt_then`](Self::attempt_then), but `then` is also called with the error if there is no result.
    pub fn try_attempt_then<U, E, F, H>(&self, f: F, then: H)
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Outcome<U, E> + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        E: NoRef + Send + 'static,
        H: FnOnce(Result<Outcome<U, E>>) + 'static,
    {
        self.call().attempt(f).then(then);
    }

    /// As [`attempt`](Self::attempt), with an argument that is serialised, as are the result and the error: `String`,
    /// `Vec` and every type that serde knows may be used.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("durable-attempt-with-{}", std::process::id()));
    /// # let workers = trust::Threadpool::new(1);
    /// use trust_durable::{Durable, PMap, PString};
    ///
    /// let bank = Durable::<PMap<PString, u64>>::open(workers.trustees()[0], &folder, |tx| {
    ///     let mut bank = PMap::new();
    ///     bank.insert(PString::of("Ada", tx), 100, tx);
    ///     bank
    /// })?;
    /// let transfer = |from: &str, to: &str, amount: u64| {
    ///     bank.attempt_with(
    ///         |bank, _, (from, to, amount): (String, String, u64)| {
    ///             let one = bank.get_mut(&*from).ok_or(format!("{from} has no account"))?;
    ///             *one = one.checked_sub(amount).ok_or(format!("{from} has too little"))?;
    ///             *bank.get_mut(&*to).ok_or(format!("{to} has no account"))? += amount;
    ///             Ok::<(), String>(())
    ///         },
    ///         (from.to_owned(), to.to_owned(), amount),
    ///     )
    /// };
    /// assert_eq!(transfer("Ada", "Bob", 30), Err("Bob has no account".to_owned()));
    /// assert_eq!(bank.peek(|bank| bank.get("Ada").copied()), Some(100)); // what was taken is back
    /// # drop(bank);
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok::<(), trust_durable::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that `f` returns.
    ///
    /// # Panics
    /// Those of [`apply_with`](Self::apply_with).
    pub fn attempt_with<A, U, E, F>(&self, f: F, argument: A) -> Outcome<U, E>
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>, A) -> Outcome<U, E> + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + 'static,
        U: Serialize + DeserializeOwned + 'static,
        E: Serialize + DeserializeOwned + 'static,
    {
        self.call().with(argument).attempt(f).wait().unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`try_attempt_then`](Self::try_attempt_then), with an argument that is serialised, as are the result and the
    /// error.
    ///
    /// If one of these does not serialise or the trustee is gone, standard error reports it and `then` is dropped.
    pub fn try_attempt_with_then<A, U, E, F, H>(&self, f: F, argument: A, then: H)
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>, A) -> Outcome<U, E> + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + 'static,
        U: Serialize + DeserializeOwned + 'static,
        E: Serialize + DeserializeOwned + 'static,
        H: FnOnce(Result<Outcome<U, E>>) + 'static,
    {
        self.call().with(argument).attempt(f).then(then);
    }

    /// As [`try_attempt`](Self::try_attempt), for async programs, like [`apply_async`](Self::apply_async): returns a
    /// future.
    pub fn attempt_async<U, E, F>(&self, f: F) -> DurableFuture<Outcome<U, E>>
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Outcome<U, E> + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        E: NoRef + Send + 'static,
    {
        self.call().attempt(f).into_future()
    }
}
