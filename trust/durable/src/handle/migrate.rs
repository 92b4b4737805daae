//! `Durable::migrate`: a pool whose root gets another type.
//!
//! Not here: the transaction (`tx.rs`), and the files (`files/migration.rs`).

use std::borrow::Borrow;
use std::path::Path;

use trust::{NoRef, TrusteeReference};

use super::Durable;
use crate::error::Result;
use crate::persist::Persist;
use crate::tx::Tx;

impl<T: Persist + 'static> Durable<T> {
    /// Opens the pool of a folder, and changes its type: `change` makes the new root from the old one, in a
    /// transaction. A pool that has the type `T` already is opened as it is, and `change` does not run. Returns once
    /// the pool of the new type is on disk. [`Builder::migrate`](crate::Builder::migrate) takes options.
    ///
    /// `change` owns the old root, so it may move parts of it into the new one without copying them. Parts that it
    /// drops are freed at its end.
    ///
    /// If the program is killed, or the power fails, the folder holds the pool of the old type with all of its values,
    /// or that of the new one: a later call finishes the work. During the call memory and folder take up to twice the
    /// pool's size, and the process a copy of its memory.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("durable-migrate-{}", std::process::id()));
    /// # let workers = trust::Threadpool::new(1);
    /// # let trustee = workers.trustees()[0];
    /// use trust_durable::{Durable, Error, PVec, Persist};
    ///
    /// mod old {
    ///     #[derive(trust_durable::Persist)]
    ///     #[repr(C)]
    ///     pub struct Bank<'p> {
    ///         pub accounts: trust_durable::PVec<'p, u64>,
    ///     }
    /// }
    ///
    /// #[derive(Persist)]
    /// #[repr(C)]
    /// struct Bank<'p> {
    ///     accounts: PVec<'p, u64>,
    ///     transfers: u64,
    /// }
    ///
    /// # let bank = Durable::<old::Bank>::open(trustee, &folder, |tx| old::Bank { accounts: PVec::of([100, 0], tx) })?;
    /// # bank.close()?;
    /// let opened = Durable::<Bank>::open(trustee, &folder, |_| Bank { accounts: PVec::new(), transfers: 0 });
    /// let bank = match opened {
    ///     Err(Error::OtherType { .. }) => Durable::<Bank>::migrate::<old::Bank>(trustee, &folder, |old, _| {
    ///         Bank { accounts: old.accounts, transfers: 0 }
    ///     })?,
    ///     other => other?,
    /// };
    /// assert_eq!(bank.apply(|bank, _| (bank.accounts[0], bank.transfers)), (100, 0));
    /// # bank.close()?;
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`open`](Self::open). [`OtherType`](crate::Error::OtherType) if the pool is of neither type;
    /// [`Truncated`](crate::Error::Truncated) if the folder holds none, [`Io`](crate::Error::Io) if there is no such
    /// folder. [`Panicked`](crate::Error::Panicked) if `change` panics, as it does where the pool is full: the pool
    /// stays of the old type.
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    #[track_caller]
    pub fn migrate<Old: Persist + 'static>(
        trustee: impl Borrow<TrusteeReference>,
        folder: impl AsRef<Path>,
        change: impl for<'p> FnOnce(Old::At<'p>, &Tx<'p>) -> T::At<'p> + NoRef + Send + 'static,
    ) -> Result<Self> {
        Self::builder().migrate::<Old>(trustee, folder, change)
    }
}
