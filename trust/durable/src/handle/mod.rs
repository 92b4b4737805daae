//! `Durable`: the handle, and the transactions that it runs. Transactions that an `Err` undoes: `attempt.rs`. Calls
//! that give errors: `call.rs`. Calls on the pool as a whole: `pool.rs`. Opening a pool whose type has changed:
//! `migrate.rs`. The path of a call and its answer: `request.rs`.

mod attempt;
pub(crate) mod call;
mod migrate;
mod pool;
mod request;
#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::Location;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trust::{NoRef, Trust, TrusteeReference};

use crate::builder::Builder;
use crate::error::Result;
use crate::persist::Persist;
use crate::property::Service;
use crate::tx::Tx;

/// A handle to a value that outlives the program: a [`Trust`] whose closures are transactions on disk.
///
/// Each closure gets the root and a [`Tx`], which allocation needs. It runs alone, at the pool's trustee. After a crash
/// all of its changes are found when the pool is opened again, or none. Its result is returned once it is on disk; all
/// results that come while the disk is busy share its next write. A closure that panics is undone.
///
/// The pool is private memory of the process, so the value has to fit into memory, plus a log of the 64-byte lines that
/// changed. The handle may be cloned, captured in closures, and sent to other machines of a rack; the pool is closed
/// after the last handle is dropped.
///
/// Destructors of thread-locals may call it as long as the thread's trustee is alive. After that all calls panic except
/// those that return futures, which do not need their thread.
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("durable-{}", std::process::id()));
/// use trust_durable::{Durable, PBox, PVec, Persist};
///
/// #[derive(Persist)]
/// #[repr(C)]
/// struct Transfer {
///     from: u32,
///     to: u32,
///     amount: u64,
/// }
///
/// #[derive(Persist)]
/// #[repr(C)]
/// struct Bank<'p> {
///     accounts: PVec<'p, u64>,
///     last: Option<PBox<'p, Transfer>>,
/// }
///
/// let workers = trust::Threadpool::new(2);
/// let bank = Durable::<Bank>::open(workers.trustees()[0], &folder, |tx| Bank {
///     accounts: PVec::of([100, 0], tx),
///     last: None,
/// })?;
/// let left = bank.apply(|bank, tx| {
///     bank.accounts[0] -= 30;
///     bank.accounts[1] += 30;
///     bank.last = Some(PBox::new(Transfer { from: 0, to: 1, amount: 30 }, tx));
///     bank.accounts[0]
/// });
/// assert_eq!(left, 70); // on disk
/// let no = bank.call().apply(|bank, _| {
///     bank.accounts[0] = 0;
///     assert!(bank.accounts[1] > 99);
/// });
/// assert!(no.wait().is_err()); // and undone
/// assert_eq!(bank.peek(|bank| bank.accounts[0]), left);
/// bank.close()?;
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok::<(), trust_durable::Error>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Durable<T: Persist + 'static> {
    trust: Trust<Service<T>>,
    number: u64,
}

impl<T: Persist + 'static> Durable<T> {
    /// Opens the pool in a folder at a trustee of this machine. If there is none, creates it with the result of `init`
    /// as its root. Waits until it is read, or made durable. [`builder`](Self::builder) sets options.
    ///
    /// `T` may be written without its lifetime: `Durable::<Bank>::open(..)`.
    ///
    /// # Errors
    /// All of [`Error`](crate::Error), except those of single calls. Existing files are not overwritten.
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    #[track_caller]
    pub fn open<I>(
        trustee: impl std::borrow::Borrow<TrusteeReference>,
        folder: impl AsRef<std::path::Path>,
        init: I,
    ) -> Result<Self>
    where
        I: for<'p> FnOnce(&Tx<'p>) -> T::At<'p> + NoRef + Send + 'static,
    {
        Self::builder().open(trustee, folder, init)
    }

    /// Returns the options for opening a pool.
    pub fn builder() -> Builder<T> {
        Builder::new()
    }

    pub(crate) fn of(trust: Trust<Service<T>>, number: u64) -> Self {
        Durable { trust, number }
    }

    /// Runs a transaction and commits the changes of `f`, even if it returns `Err` ([`attempt`](Self::attempt) undoes
    /// them). Returns the result when everything that `f` has read and written is on disk. Other fibers run meanwhile.
    ///
    /// # Panics
    /// With the text of `f`'s panic, if it panics; its changes are undone. If the disk has failed, the pool is closed
    /// or its trustee gone. In delegated context and in callbacks, where nothing may wait.
    #[track_caller]
    pub fn apply<U, F>(&self, f: F) -> U
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        request::value_or_panic(self.call().apply(f).wait())
    }

    /// Runs a transaction and commits the changes of `f`, even if it returns `Err`
    /// ([`attempt_then`](Self::attempt_then) undoes them). Returns at once. `then` is called on this thread with the
    /// result when that is on disk. Allowed in every context.
    ///
    /// Calls of one thread run in the order in which they were made, and so do their callbacks. A thread that holds
    /// 65,536 results waits here for some to become durable, if it may wait. If there is no result, standard error
    /// reports the reason and `then` is dropped. `then` is also dropped if the thread ends before; [`sync`](Self::sync)
    /// waits for all pending callbacks.
    pub fn apply_then<U, F, H>(&self, f: F, then: H)
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        H: FnOnce(U) + 'static,
    {
        self.call().apply(f).then(request::or_tell("apply_then", then));
    }

    /// Same as [`apply`](Self::apply), with an argument that is serialised, as is the result: `String`, `Vec` and every
    /// type that serde knows may be used. The changes of `f` are committed, even if it returns `Err`: see
    /// [`call`](Self::call).
    ///
    /// # Panics
    /// Those of [`apply`](Self::apply); also if the argument or result does not serialise, or is larger than
    /// `Trust::apply_with` takes.
    #[track_caller]
    pub fn apply_with<A, U, F>(&self, f: F, argument: A) -> U
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>, A) -> U + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + 'static,
        U: Serialize + DeserializeOwned + 'static,
    {
        request::value_or_panic(self.call().with(argument).apply(f).wait())
    }

    /// Same as [`apply`](Self::apply), for async programs of this process: returns a future for any executor. The
    /// calling thread does not become a trustee. `call().apply(f).await` gives errors, `call().attempt(f)` undoes what
    /// returns `Err`.
    ///
    /// The call is sent at once, unless 1,024 calls of async programs at the trustee are in flight. Then the future
    /// waits for space when it is polled, and sends the call. Dropping the future discards the result; the closure
    /// still runs, unless there was no space for it yet.
    ///
    /// # Panics
    /// When awaited, with the text of the error if there is no result.
    #[track_caller]
    pub fn apply_async<U, F>(&self, f: F) -> impl Future<Output = U> + Send + use<T, U, F>
    where
        F: for<'a, 'p> FnOnce(&'a mut T::At<'p>, &'a Tx<'p>) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        let (sent, at) = (self.call().apply(f).into_future(), Location::caller());
        async move { sent.await.unwrap_or_else(|error| panic!("{error} (`apply_async` at {at})")) }
    }

    /// Reads the root as it is now, without waiting for the disk: the value may include changes that a power cut
    /// undoes.
    ///
    /// # Panics
    /// Those of [`apply`](Self::apply).
    #[track_caller]
    pub fn peek<U, F>(&self, f: F) -> U
    where
        F: for<'a, 'p> FnOnce(&'a T::At<'p>) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        request::value_or_panic(self.call().peek(f).wait())
    }
}

impl<T: Persist + 'static> Clone for Durable<T> {
    fn clone(&self) -> Self {
        Durable { trust: self.trust.clone(), number: self.number }
    }
}

impl<T: Persist + 'static> fmt::Debug for Durable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Durable<{}>(pool {:x})", std::any::type_name::<T>(), self.number)
    }
}
