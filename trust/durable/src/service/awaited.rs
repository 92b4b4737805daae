//! The outcome of one future, from the trustee, which has it, to the task that awaits it, which is told when it is durable.
//!
//! Invariant K4: a task that was told to wait is woken by its last waker, once the outcome is settled. Checked by loom: `model.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use super::held::Why;
use crate::error::Error;
use crate::sync::{Mutex, lock};

struct State<U> {
    outcome: Option<Result<U, Error>>,
    is_settled: bool,
    waker: Option<Waker>,
}

/// See the file's documentation.
pub(super) struct Awaited<U>(Mutex<State<U>>);

impl<U> Awaited<U> {
    pub(super) fn new() -> Self {
        Awaited(Mutex::new(State { outcome: None, is_settled: false, waker: None }))
    }

    /// Leaves the outcome, which is not to be told yet.
    pub(super) fn put(&self, outcome: Result<U, Error>) {
        lock(&self.0).outcome = Some(outcome);
    }

    /// It may be told, or is lost. Without an outcome: its trustee is gone.
    pub(super) fn settle(&self, lost: Option<&Why>) {
        let mut state = lock(&self.0);
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

    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Result<U, Error>> {
        let mut state = lock(&self.0);
        if state.is_settled {
            return Poll::Ready(state.outcome.take().unwrap_or(Err(Error::Gone)));
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}
