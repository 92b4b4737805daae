//! Results for async programs: in a table of the process, by number, until their group is durable.
//!
//! The calling thread has no worker and gets none. The closure carries the number; the trustee stores the value in the
//! table, and the core's notification wakes the task. A call that finds the trustee's window of calls full is not sent
//! yet: the future keeps it, and sends it when it is polled.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use trust::CallFuture;

use super::awaited::Awaited;
use super::held::Why;
use crate::error::Error;
use crate::unwind::quietly;

/// Entry of the table, with its value type erased.
trait Slot: Send + Sync {
    /// Marks the value as ready, or as lost.
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

/// Future of a durable result, from a [`ReadyCall`](crate::ReadyCall). Dropping it discards the result: the closure
/// still runs, unless there was no space for it yet.
#[must_use = "a closure for which there was no room is not sent before this is polled: await it"]
pub struct DurableFuture<U> {
    number: u64,
    slot: Arc<Awaited<U>>,
    /// The call, until it is sent.
    unsent: Option<CallFuture<()>>,
    /// A trust of the pool, which keeps it alive while the result is awaited.
    kept: Mutex<Option<Box<dyn Any + Send>>>,
}

impl<U> std::fmt::Debug for DurableFuture<U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DurableFuture").field("number", &self.number).finish()
    }
}

impl<U: Send + 'static> DurableFuture<U> {
    /// Makes the future of a call. `send` makes the call with a closure that carries its argument and stores the
    /// outcome in the table. `kept` keeps the pool alive.
    pub(crate) fn new(kept: impl Send + 'static, send: impl FnOnce(Carried) -> CallFuture<()>) -> Self {
        let number = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let slot = Arc::new(Awaited::new());
        table().get_or_insert_default().insert(number, Arc::clone(&slot) as Arc<dyn Slot>);
        let call = send(Carried(number));
        // Dropping an unsent call cancels it.
        let unsent = (!call.is_sent()).then_some(call);
        DurableFuture { number, slot, unsent, kept: Mutex::new(Some(Box::new(kept))) }
    }
}

/// Stores the value of a future, if it is still wanted.
pub(crate) fn put<U: Send + 'static>(number: u64, outcome: Result<U, Error>) {
    let slot = table().as_ref().and_then(|table| table.get(&number).cloned());
    match slot.map(|slot| slot.as_any().downcast::<Awaited<U>>()) {
        // If the future is dropped meanwhile, the outcome is dropped here: a panic of its destructor would poison the
        // pool.
        Some(Ok(awaited)) => quietly(|| {
            awaited.put(outcome);
            drop(awaited);
        }),
        _ => quietly(|| drop(outcome)),
    }
}

/// Marks the value as ready, or as lost.
pub(crate) fn settle(number: u64, lost: Option<&Why>) {
    let slot = table().as_mut().and_then(|table| table.remove(&number));
    if let Some(slot) = slot {
        slot.settle(lost);
        // As in `put`.
        quietly(|| drop(slot));
    }
}

impl<U: Send + 'static> Future for DurableFuture<U> {
    type Output = Result<U, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(call) = &mut self.unsent {
            if call.poll_sent(context).is_pending() {
                return Poll::Pending;
            }
            self.unsent = None;
        }
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

/// Number of a future, carried by its closure: if the closure never runs, the future is notified.
pub(crate) struct Carried(pub(crate) u64);

impl Drop for Carried {
    fn drop(&mut self) {
        // Only for a closure that did not run: one that runs registers its number with the core and dismantles
        // `Carried`.
        settle(self.0, None);
    }
}
