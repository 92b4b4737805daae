//! Results for async programs: in a table of the process, by number, until their group is durable.
//!
//! The calling thread has no worker and gets none. The closure carries the number; the trustee leaves the value in the table, and the core's word
//! wakes the task.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use super::awaited::Awaited;
use super::held::Why;
use crate::error::Error;

/// An entry, whatever its value.
trait Slot: Send + Sync {
    /// The value may be given, or is lost.
    fn settle(&self, lost: Option<&Why>);
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

static TABLE: Mutex<Option<HashMap<u64, Arc<dyn Slot>>>> = Mutex::new(None);
static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

fn table() -> MutexGuard<'static, Option<HashMap<u64, Arc<dyn Slot>>>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<U: Send + 'static> Slot for Awaited<U> {
    fn settle(&self, lost: Option<&Why>) {
        Awaited::settle(self, lost);
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// The result of [`Durable::apply_async`](crate::Durable::apply_async), on the disk. Dropping it discards the result: the closure runs all the same.
#[must_use = "the closure runs all the same; await this for its result, or use `apply_then`"]
pub struct DurableFuture<U> {
    number: u64,
    slot: Arc<Awaited<U>>,
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
        let slot = Arc::new(Awaited::new());
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
    if let Some(Ok(awaited)) = slot.map(|slot| slot.as_any().downcast::<Awaited<U>>()) {
        awaited.put(outcome);
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
        let outcome = self.slot.poll(context);
        if outcome.is_ready() {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(kept);
        }
        outcome
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
