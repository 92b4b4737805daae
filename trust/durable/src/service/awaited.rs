//! Outcome of one future: the trustee stores it, the awaiting task gets it once it is durable.
//!
//! Invariant: a task that returned `Pending` is woken by its last waker, once the outcome is settled. Checked by
//! loom: `model.rs`.

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

    /// Stores the outcome, which is not yet to be returned.
    pub(super) fn put(&self, outcome: Result<U, Error>) {
        lock(&self.0).outcome = Some(outcome);
    }

    /// Marks the outcome as ready, or as lost. If there is none, the trustee is gone.
    pub(super) fn settle(&self, lost: Option<&Why>) {
        let (replaced, waker) = {
            let mut state = lock(&self.0);
            state.is_settled = true;
            (lost.and_then(|why| state.outcome.replace(Err(why.clone().into()))), state.waker.take())
        };
        // The result is the user's, the waker the executor's code: neither runs under the lock.
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
            // Cloning and dropping a waker is the executor's code, which may call the pool: not under the lock.
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
