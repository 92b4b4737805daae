//! `Trust::close`: the end of a property ahead of its trusts. How the trustee does it: `tasks/close.rs`.

use crate::api::delegated::Delegated;
use crate::api::trust::Trust;
use crate::error::Error;
use crate::fiber::record::Awaited;
use crate::request::Fault;
use crate::runtime::worker::Worker;
use crate::tasks::close::close;

impl<T: 'static> Trust<T> {
    /// Ends the property now, whoever has trusts of it: drops the value at the trustee, and returns when that is done.
    /// Requests that other trusts make later fail with [`Error::Gone`], those that were made before and run later too.
    /// Cloning and dropping these trusts goes on as before; the last one gives back what is left, some words and a
    /// small value's own memory.
    ///
    /// A launched closure or a call of [`together`](crate::together) that has the value of a [`Latch`](crate::Latch)
    /// keeps it to its end. The value is dropped then, which `close` waits for. Closures that wait for the value do not
    /// run any more.
    ///
    /// [`call`](Self::call) gives the other forms: `trust.call().close()` is sent by `wait`, with a `timeout`, by
    /// `then`, which is legal everywhere, or by `.await`.
    ///
    /// # Errors
    /// [`Error::Panicked`] if the destructor of the value panics: the property is closed all the same.
    /// [`Error::Gone`] if the property was closed before, or its trustee is gone. [`Error::Lost`] if the trustee's
    /// machine is lost meanwhile. A poisoned property is closed like any other.
    ///
    /// If it has to wait for the value: [`Error::Deadlock`] if it waits for the calling closure itself, in a cycle;
    /// [`Error::Refused`] if the trustee has no memory for a fiber that waits. Then the property is closed, and the
    /// value is dropped when it is back.
    ///
    /// # Panics
    /// Inside a delegated closure or a callback, where nothing may wait.
    ///
    /// ```
    /// use trust::{Error, Threadpool};
    /// let pool = Threadpool::new(1);
    /// let log = pool.entrust(vec!["begun"]);
    /// let other = log.clone();
    /// log.close()?; // the vector is dropped
    /// assert!(matches!(other.call().apply(|log| log.len()).wait(), Err(Error::Gone { was_closed: true, .. })));
    /// assert!(matches!(other.close(), Err(Error::Gone { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn close(self) -> Result<(), Error> {
        Close.wait(&self, Close::NAME_OF, |outcome, _| outcome.map_err(|fault| fault.into_error::<T>()))
    }
}

/// The close of a property, as a call.
pub(super) struct Close;

impl Close {
    const NAME_OF: &'static str = "close";
}

impl<T: 'static> Delegated<T> for Close {
    type Output = ();
    type Value = T;
    const NAME: &'static str = Self::NAME_OF;
    const RUNS_HERE: bool = true;
    const HEEDS_POISON: bool = false;

    fn send(
        self,
        trust: &Trust<T>,
        worker: &Worker,
        then: impl FnOnce(Result<(), Fault>) + 'static,
    ) -> Option<Awaited> {
        let (property, trustee) = trust.parts();
        Some(Awaited::Result(close::<T>(worker, trustee, property, Box::new(then))))
    }
}
