//! Transactions that say no: those of `mod.rs`, for closures whose `Err` undoes what they did.

use std::result::Result as Outcome;

use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::NoRef;

use super::{Durable, answer};
use crate::error::Result;
use crate::persist::Persist;
use crate::service::future::DurableFuture;
use crate::tx::Tx;

impl<T: Persist + 'static> Durable<T> {
    /// Runs a transaction and commits what `f` did if it returns `Ok`; if it returns `Err` all that it did is undone,
    /// allocations included. Returns its result when all that it has seen and done is on disk. Other fibers run
    /// meanwhile.
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
    /// What `f` returns.
    ///
    /// # Panics
    /// As [`apply`](Self::apply).
    pub fn attempt<U, E, F>(&self, f: F) -> Outcome<U, E>
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Outcome<U, E> + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        E: NoRef + Send + 'static,
    {
        self.try_attempt(f).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`attempt`](Self::attempt), for callers who want to handle what went wrong: the outer result says whether
    /// there is an answer, the inner one is what `f` returns.
    ///
    /// # Errors
    /// As [`try_apply`](Self::try_apply).
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    pub fn try_attempt<U, E, F>(&self, f: F) -> Result<Outcome<U, E>>
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Outcome<U, E> + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        E: NoRef + Send + 'static,
    {
        self.wait(move |service, client| service.attempt(client, f))
    }

    /// As [`apply_then`](Self::apply_then), for closures that may say no: what one that returns `Err` did is undone.
    pub fn attempt_then<U, E, F, H>(&self, f: F, then: H)
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Outcome<U, E> + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        E: NoRef + Send + 'static,
        H: FnOnce(Outcome<U, E>) + 'static,
    {
        self.try_attempt_then(f, answer::or_tell("attempt_then", then));
    }

    /// As [`attempt_then`](Self::attempt_then), but `then` is also given the error if there is no result.
    pub fn try_attempt_then<U, E, F, H>(&self, f: F, then: H)
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Outcome<U, E> + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        E: NoRef + Send + 'static,
        H: FnOnce(Result<Outcome<U, E>>) + 'static,
    {
        self.post(move |service, client| service.attempt(client, f), then);
    }

    /// As [`attempt`](Self::attempt), with an argument that travels serialised, as do the result and the error: so
    /// `String`, `Vec` and all that serde knows may pass.
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
    /// What `f` returns.
    ///
    /// # Panics
    /// As [`apply_with`](Self::apply_with).
    pub fn attempt_with<A, U, E, F>(&self, f: F, argument: A) -> Outcome<U, E>
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>, A) -> Outcome<U, E> + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + 'static,
        U: Serialize + DeserializeOwned + 'static,
        E: Serialize + DeserializeOwned + 'static,
    {
        self.wait_with(
            move |service, client, argument| service.attempt(client, |root, tx| f(root, tx, argument)),
            argument,
        )
    }

    /// As [`try_attempt_then`](Self::try_attempt_then), with an argument that travels serialised, as do the result and
    /// the error.
    ///
    /// If any of these does not serialise or the trustee is gone, standard error tells so and `then` is dropped.
    pub fn try_attempt_with_then<A, U, E, F, H>(&self, f: F, argument: A, then: H)
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>, A) -> Outcome<U, E> + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + 'static,
        U: Serialize + DeserializeOwned + 'static,
        E: Serialize + DeserializeOwned + 'static,
        H: FnOnce(Result<Outcome<U, E>>) + 'static,
    {
        self.post_with(
            move |service, client, argument| service.attempt(client, |root, tx| f(root, tx, argument)),
            argument,
            then,
        );
    }

    /// As [`try_attempt`](Self::try_attempt), for async programs, as [`apply_async`](Self::apply_async) is: gives a
    /// future.
    pub fn attempt_async<U, E, F>(&self, f: F) -> DurableFuture<Outcome<U, E>>
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Outcome<U, E> + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        E: NoRef + Send + 'static,
    {
        self.future(move |service, client| service.attempt(client, f))
    }
}
