//! Transactions that may fail: the calls of `mod.rs` for closures that are undone when they return `Err`.

use std::result::Result as Outcome;

use trust::NoRef;

use super::{Durable, request};
use crate::persist::Persist;
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
    #[track_caller]
    pub fn attempt<U, E, F>(&self, f: F) -> Outcome<U, E>
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Outcome<U, E> + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        E: NoRef + Send + 'static,
    {
        request::value_or_panic(self.call().attempt(f).wait())
    }

    /// Same as [`apply_then`](Self::apply_then), for closures that may fail: if `f` returns `Err` its changes are
    /// undone.
    pub fn attempt_then<U, E, F, H>(&self, f: F, then: H)
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> Outcome<U, E> + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        E: NoRef + Send + 'static,
        H: FnOnce(Outcome<U, E>) + 'static,
    {
        self.call().attempt(f).then(request::or_tell("attempt_then", then));
    }
}
