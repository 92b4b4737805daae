//! Who waits for the end of a pool: those who close it, at the same time or one after the other.

use std::sync::{Mutex, PoisonError};

use trust::Promise;

/// Shared by the core, which adds to it, and the disk thread, which has the last word.
#[derive(Default)]
pub(crate) struct Closers(Mutex<State>);

enum State {
    Waiting(Vec<Promise<Option<String>>>),
    /// Files and lock are let go of; the cause if something was lost.
    Ended(Option<String>),
}

impl Default for State {
    fn default() -> Self {
        State::Waiting(Vec::new())
    }
}

impl Closers {
    /// Has the promise kept at the end, which may have been.
    pub(crate) fn add(&self, promise: Promise<Option<String>>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            State::Waiting(waiting) => waiting.push(promise),
            State::Ended(lost) => {
                let lost = lost.clone();
                drop(state);
                promise.keep_with(lost);
            }
        }
    }

    /// The end.
    pub(crate) fn end(&self, lost: Option<String>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *state, State::Ended(lost.clone()));
        drop(state);
        if let State::Waiting(waiting) = before {
            waiting.into_iter().for_each(|promise| promise.keep_with(lost.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_close_are_told_before_and_after_the_end() {
        let closers = Closers::default();
        let waits: Vec<_> = (0..2)
            .map(|_| {
                let (keeps, closed) = trust::promise();
                closers.add(keeps);
                closed
            })
            .collect();
        closers.end(Some("a cause".into()));
        let (keeps, late) = trust::promise();
        closers.add(keeps);
        for closed in waits.into_iter().chain([late]) {
            assert_eq!(closed.wait(), Ok(Some("a cause".into())));
        }
    }
}
