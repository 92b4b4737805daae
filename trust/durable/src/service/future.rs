//! Results for async programs: in a table of the process, by number, until their group is durable.
//!
//! The calling thread has no worker and gets none. The closure carries the number; the trustee leaves the value in the table, and the core's word
//! wakes the task.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::client::Why;
use crate::error::Error;

/// An entry, whatever its value.
trait Slot: Send + Sync {
    /// The value may be given, or is lost.
    fn settle(&self, lost: Option<&Why>);
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

struct State<U> {
    outcome: Option<Result<U, Error>>,
    is_settled: bool,
    waker: Option<Waker>,
}

struct Typed<U>(Mutex<State<U>>);

static TABLE: Mutex<Option<HashMap<u64, Arc<dyn Slot>>>> = Mutex::new(None);
static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

fn table() -> MutexGuard<'static, Option<HashMap<u64, Arc<dyn Slot>>>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<U: Send + 'static> Slot for Typed<U> {
    fn settle(&self, lost: Option<&Why>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = lost {
            state.outcome = Some(Err(why.clone().into()));
        }
        state.is_settled = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            // The executor's code.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake())).map_err(std::mem::forget);
        }
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// The result of [`Durable::apply_async`](crate::Durable::apply_async), on the disk. Dropping it discards the result: the closure runs all the same.
#[must_use = "the closure runs all the same; await this for its result, or use `apply_then`"]
pub struct DurableFuture<U> {
    number: u64,
    slot: Arc<Typed<U>>,
    /// A trust of the pool, so that it lives for as long as the result is awaited.
    kept: Mutex<Option<Box<dyn Any + Send>>>,
}

impl<U> std::fmt::Debug for DurableFuture<U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DurableFuture").field("number", &self.number).finish()
    }
}

impl<U: Send + 'static> DurableFuture<U> {
    /// `kept` keeps the pool.
    pub(crate) fn new(kept: impl Send + 'static) -> Self {
        let number = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let slot = Arc::new(Typed(Mutex::new(State { outcome: None, is_settled: false, waker: None })));
        table().get_or_insert_default().insert(number, Arc::clone(&slot) as Arc<dyn Slot>);
        DurableFuture { number, slot, kept: Mutex::new(Some(Box::new(kept))) }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// Leaves the value of a future; is it still wanted?
pub(crate) fn put<U: Send + 'static>(number: u64, outcome: Result<U, Error>) {
    let slot = table().as_ref().and_then(|table| table.get(&number).cloned());
    if let Some(Ok(typed)) = slot.map(|slot| slot.as_any().downcast::<Typed<U>>()) {
        typed.0.lock().unwrap_or_else(PoisonError::into_inner).outcome = Some(outcome);
    }
}

/// The value may be given, or is lost.
pub(crate) fn settle(number: u64, lost: Option<&Why>) {
    let slot = table().as_mut().and_then(|table| table.remove(&number));
    if let Some(slot) = slot {
        slot.settle(lost);
    }
}

impl<U: Send + 'static> Future for DurableFuture<U> {
    type Output = Result<U, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_settled {
            let outcome = state.outcome.take().unwrap_or(Err(Error::Gone));
            drop(state);
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(kept);
            return Poll::Ready(outcome);
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl<U> Drop for DurableFuture<U> {
    fn drop(&mut self) {
        let slot = table().as_mut().and_then(|table| table.remove(&self.number));
        drop(slot);
    }
}

/// Carried by the closure of a future: if that never runs, the future is told.
pub(crate) struct Carried(pub(crate) u64);

impl Drop for Carried {
    fn drop(&mut self) {
        // Where it has run, its number is in the core's list, and `Carried` was taken apart.
        settle(self.0, None);
    }
}
