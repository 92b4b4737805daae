//! The outcome of one future, from the trustee, which has it, to the task that awaits it, which is told when it is
//! durable.
//!
//! Invariant K4: a task that was told to wait is woken by its last waker, once the outcome is settled. Checked by loom:
//! `model.rs`.

use std::task::{Context, Poll, Waker};

use super::held::Why;
use crate::error::Error;
use crate::sync::{Mutex, lock};
use crate::unwind::quietly;

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
        let (replaced, waker) = {
            let mut state = lock(&self.0);
            state.is_settled = true;
            (lost.and_then(|why| state.outcome.replace(Err(why.clone().into()))), state.waker.take())
        };
        // A result of the user's, and the executor's code: not under the lock.
        quietly(|| drop(replaced));
        if let Some(waker) = waker {
            quietly(|| waker.wake());
        }
    }

    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Result<U, Error>> {
        let mut own: Option<Waker> = None;
        loop {
            let mut state = lock(&self.0);
            if state.is_settled {
                let outcome = state.outcome.take();
                drop(state);
                return Poll::Ready(outcome.unwrap_or(Err(Error::Gone)));
            }
            if state.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                return Poll::Pending;
            }
            // Cloning and dropping one is the executor's code, which may call the pool: not under the lock.
            match own.take() {
                Some(waker) => {
                    let replaced = state.waker.replace(waker);
                    drop(state);
                    drop(replaced);
                    return Poll::Pending;
                }
                None => {
                    drop(state);
                    own = Some(context.waker().clone());
                }
            }
        }
    }
}
