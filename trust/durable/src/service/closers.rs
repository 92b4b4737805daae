//! Who waits for the end of a pool: those who close it, at the same time or one after the other.

use std::sync::Arc;

use trust::Promise;

use crate::sync::{Mutex, lock};

/// What is kept with the cause if something was lost.
pub(crate) trait Ends {
    fn end(self, lost: Option<String>);
}

impl Ends for Promise<Option<String>> {
    fn end(self, lost: Option<String>) {
        self.keep_with(lost);
    }
}

/// Shared by the core, which adds to it, and the disk thread, which has the last word. Checked by loom: `model.rs`.
pub(crate) struct Closers<P = Promise<Option<String>>>(Mutex<State<P>>);

enum State<P> {
    Waiting(Vec<P>),
    /// Files and lock are let go of; the cause if something was lost.
    Ended(Option<String>),
}

impl<P> Default for Closers<P> {
    fn default() -> Self {
        Closers(Mutex::new(State::Waiting(Vec::new())))
    }
}

impl<P: Ends> Closers<P> {
    /// Has the promise kept at the end, which may have been.
    pub(crate) fn add(&self, promise: P) {
        let mut state = lock(&self.0);
        match &mut *state {
            State::Waiting(waiting) => waiting.push(promise),
            State::Ended(lost) => {
                let lost = lost.clone();
                drop(state);
                promise.end(lost);
            }
        }
    }

    /// The end.
    pub(crate) fn end(&self, lost: Option<String>) {
        let before = std::mem::replace(&mut *lock(&self.0), State::Ended(lost.clone()));
        if let State::Waiting(waiting) = before {
            waiting.into_iter().for_each(|promise| promise.end(lost.clone()));
        }
    }
}

/// Tells those who close the pool when it is dropped: at the end of the disk thread, also by a panic.
pub(super) struct End {
    closers: Arc<Closers>,
    /// Why something was lost, if so.
    lost: Option<String>,
}

impl End {
    /// For an end without a word, this is the cause.
    pub(super) fn new(lost: &str) -> End {
        End { closers: Arc::default(), lost: Some(lost.into()) }
    }

    pub(super) fn closers(&self) -> Arc<Closers> {
        Arc::clone(&self.closers)
    }

    /// The cause if something was lost.
    pub(super) fn set(&mut self, lost: Option<String>) {
        self.lost = lost;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.closers.end(self.lost.take());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn all_who_close_are_told_before_and_after_the_end() {
        let closers = <Closers>::default();
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

    #[test]
    fn who_closes_a_pool_whose_disk_thread_unwinds_is_told() {
        let (keeps, closed) = trust::promise();
        let end = End::new("unwound");
        let kept = end.closers();
        kept.add(keeps);
        let unwound = std::thread::spawn(move || {
            let _end = end;
            panic!("planted");
        });
        assert!(unwound.join().is_err());
        assert_eq!(closed.wait(), Ok(Some("unwound".into())));
        drop(kept);
    }
}
