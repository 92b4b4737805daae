//! `apply_each` in async programs: one future of the answers of many properties.
//!
//! Each call is sent as any call of an async program is (`future.rs`). The future waits for one answer after the other,
//! so that answers which come meanwhile do not wake its task.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use crate::api::delegated::Closure;
use crate::api::each::{into_errors, resume_first};
use crate::api::future::Pending;
use crate::api::trust::Trust;
use crate::error::Error;
use crate::noref::NoRef;
use crate::request::{ANYWHERE, Fault};

/// Makes the results of all outcomes.
type Finish<U, R> = fn(Vec<Result<U, Fault>>) -> Vec<R>;

/// Future of [`apply_each_async`] and [`try_apply_each_async`]. Dropping it discards the results; each closure still
/// runs, unless there was no room to send it yet.
#[must_use = "closures for which there was no room are not sent before this is polled: await it"]
pub struct EachFuture<U, R> {
    /// Calls that are not answered yet, the last one first.
    pending: Vec<Pending<U>>,
    outcomes: Vec<Result<U, Fault>>,
    /// Present until it has given its results.
    finish: Option<Finish<U, R>>,
}

impl<U: Send + 'static, R> EachFuture<U, R> {
    fn new<'a, T: 'static, F>(trusts: impl IntoIterator<Item = &'a Trust<T>>, f: F, finish: Finish<U, R>) -> Self
    where
        F: FnOnce(&mut T) -> U + Clone + Send + 'static,
    {
        let mut pending: Vec<_> =
            trusts.into_iter().map(|trust| trust.ask(Closure::<_, ANYWHERE>(f.clone()))).collect();
        pending.reverse();
        EachFuture { outcomes: Vec::with_capacity(pending.len()), pending, finish: Some(finish) }
    }
}

impl<U, R> Unpin for EachFuture<U, R> {}

impl<U, R> Future for EachFuture<U, R> {
    type Output = Vec<R>;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Vec<R>> {
        let this = self.get_mut();
        // All are sent before the first answer is waited for.
        for unsent in this.pending.iter_mut().rev().filter(|pending| !pending.is_sent()) {
            let _ = unsent.poll_sent(context); // its task is woken when there may be room
        }
        while let Some(next) = this.pending.last_mut() {
            let Poll::Ready(outcome) = next.poll(context) else { return Poll::Pending };
            this.pending.pop();
            this.outcomes.push(outcome);
        }
        let finish = this.finish.take();
        let finish = finish.expect("a future of a trust was polled after it had given its result");
        Poll::Ready(finish(std::mem::take(&mut this.outcomes)))
    }
}

impl<U, R> fmt::Debug for EachFuture<U, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EachFuture").field("waits_for", &self.pending.len()).finish()
    }
}

/// Same as [`apply_each`](crate::apply_each), for async programs: sends a closure to each property at once, and returns
/// the future of all results. Closures for which a trustee has no room wait until the future is polled and there is
/// some, as those of [`Trust::apply_async`] do.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// let pool = trust::Threadpool::new(2);
/// let shards: Vec<_> = (0..4).map(|shard| pool.entrust(vec![shard; shard])).collect();
/// let sizes = runtime.block_on(trust::apply_each_async(&shards, |shard| shard.len()));
/// assert_eq!(sizes, [0, 1, 2, 3]);
/// ```
///
/// # Panics
/// The future, after all have answered: with the first panic or fault in the order of the trusts.
pub fn apply_each_async<'a, T, U, F>(trusts: impl IntoIterator<Item = &'a Trust<T>>, f: F) -> EachFuture<U, U>
where
    T: 'static,
    F: FnOnce(&mut T) -> U + NoRef + Clone + Send + 'static,
    U: NoRef + Send + 'static,
{
    EachFuture::new(trusts, f, resume_first::<T, U>)
}

/// Same as [`apply_each_async`], for callers that handle errors, for each property by itself.
///
/// # Errors
/// In the place of each call that fails: as [`ReadyCall::wait`](crate::ReadyCall::wait).
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// let pool = trust::Threadpool::new(2);
/// let numbers = [0, 5, 2].map(|number| pool.entrust(number));
/// let quotients = runtime.block_on(trust::try_apply_each_async(&numbers, |number| 10 / *number));
/// assert!(matches!(&quotients[..], [Err(trust::Error::Panicked { .. }), Ok(2), Ok(5)]));
/// ```
pub fn try_apply_each_async<'a, T, U, F>(
    trusts: impl IntoIterator<Item = &'a Trust<T>>,
    f: F,
) -> EachFuture<U, Result<U, Error>>
where
    T: 'static,
    F: FnOnce(&mut T) -> U + NoRef + Clone + Send + 'static,
    U: NoRef + Send + 'static,
{
    EachFuture::new(trusts, f, into_errors::<T, U>)
}
