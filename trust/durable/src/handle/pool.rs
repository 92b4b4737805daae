//! Calls on a pool as a whole: sync, close, snapshot, stats.

use std::path::Path;

use trust::Pending;
use trust::link::promise_at;

use super::Durable;
use super::request::{Plain, Request, call_error};
use crate::error::{Error, Result};
use crate::persist::Persist;
use crate::property::Service;
use crate::service::snapshots;
use crate::stats::DurableStats;

impl<T: Persist + 'static> Durable<T> {
    /// Waits until every transaction before it is durable and the callbacks of this thread's earlier calls have run.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Closed`], [`Error::Gone`].
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    #[track_caller]
    pub fn sync(&self) -> Result<()> {
        Plain(|service: &mut Service<T>, client| service.sync(client)).wait(self)
    }

    /// Makes all changes durable and closes the pool, even if there are other handles: calls on those fail from here
    /// on. The folder is free when it returns, also if another thread closes the pool at the same time.
    ///
    /// # Errors
    /// [`Error::Lost`] if something could not be made durable; [`Error::Closed`] if it was closed before;
    /// [`Error::Gone`].
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    #[track_caller]
    pub fn close(self) -> Result<()> {
        let before = self.sync();
        let (keeps, closed) = promise_at::<Option<String>>(self.trust.trustee().id());
        self.trust
            .call()
            .apply(move |service| service.close(keeps))
            .wait()
            .map_err(|error| call_error(self.number, error))?;
        settled(closed)?;
        before
    }

    /// Makes all changes durable and writes a copy of the pool as it is now into another folder, which must be new or
    /// empty. The copy opens like any pool. Copying the folder of a running pool by other means does not make a backup.
    ///
    /// If the copy cannot be written, its files are removed again, as are those of an earlier snapshot that was killed.
    ///
    /// The memory is copied as a whole between two transactions: the pool pauses for that (about 0.3 s for a GiB), and
    /// until the copy is written the process takes that much more memory.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open) that keep the copy from being written, and those of [`sync`](Self::sync).
    /// [`Error::Gone`] too where the pool is on another machine: its folders are there.
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    #[track_caller]
    pub fn snapshot(&self, folder: impl AsRef<Path>) -> Result<()> {
        self.sync()?;
        let (keeps, written) = promise_at::<bool>(self.trust.trustee().id());
        let awaited = snapshots::leave(keeps.id(), folder.as_ref().to_path_buf());
        let asked = self.trust.call().apply(move |service| service.snapshot(keeps)).wait();
        let outcome = asked.map(|()| written.wait());
        outcome.map_err(|error| call_error(self.number, error))?.map_err(|_| Error::Gone)?;
        awaited.outcome().unwrap_or(Err(Error::Gone))
    }

    /// Returns the pool's counters since it was opened.
    ///
    /// # Errors
    /// [`Error::Gone`].
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    #[track_caller]
    pub fn stats(&self) -> Result<DurableStats> {
        self.trust
            .call()
            .apply(|service| service.core().borrow().stats())
            .wait()
            .map_err(|error| call_error(self.number, error))
    }

    /// Waits until the first files are durable.
    #[track_caller]
    pub(crate) fn created(&self) -> Result<()> {
        let (keeps, made) = promise_at::<Option<String>>(self.trust.trustee().id());
        self.trust
            .call()
            .apply(move |service| service.created(keeps))
            .wait()
            .map_err(|error| call_error(self.number, error))?;
        settled(made)
    }
}

/// Waits for a promise that is kept with the cause if the pool was lost.
#[track_caller]
fn settled(pending: Pending<Option<String>>) -> Result<()> {
    match pending.wait() {
        Ok(None) => Ok(()),
        Ok(Some(cause)) => Err(Error::Lost { cause }),
        Err(_) => Err(Error::Gone),
    }
}
