//! Callers that close a pool and wait for its end, at the same time or one after the other.

use std::sync::Arc;

use trust::Promise;

use crate::sync::{Mutex, lock};

/// Completion that is called with the cause if something was lost.
pub(crate) trait Ends {
    fn end(self, lost: Option<String>);
}

impl Ends for Promise<Option<String>> {
    fn end(self, lost: Option<String>) {
        self.keep_with(lost);
    }
}

/// Waiting closers: the core adds to them, the disk thread ends them. Checked by loom: `model.rs`.
pub(crate) struct Closers<P = Promise<Option<String>>>(Mutex<State<P>>);

enum State<P> {
    Waiting(Vec<P>),
    /// Files and lock are released; the cause if something was lost.
    Ended(Option<String>),
}

impl<P> Default for Closers<P> {
    fn default() -> Self {
        Closers(Mutex::new(State::Waiting(Vec::new())))
    }
}

impl<P: Ends> Closers<P> {
    /// Registers a promise to be kept at the end, or keeps it at once if that is past.
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

    /// Marks the end and keeps all promises.
    pub(crate) fn end(&self, lost: Option<String>) {
        let before = std::mem::replace(&mut *lock(&self.0), State::Ended(lost.clone()));
        if let State::Waiting(waiting) = before {
            waiting.into_iter().for_each(|promise| promise.end(lost.clone()));
        }
    }
}

/// Guard that notifies the closers when it is dropped: at the end of the disk thread, also by a panic.
pub(super) struct End {
    closers: Arc<Closers>,
    /// Cause if something was lost.
    lost: Option<String>,
}

impl End {
    /// Makes a guard; `lost` is the cause if the thread ends without calling `set`.
    pub(super) fn new(lost: &str) -> End {
        End { closers: Arc::default(), lost: Some(lost.into()) }
    }

    pub(super) fn closers(&self) -> Arc<Closers> {
        Arc::clone(&self.closers)
    }

    /// Sets the cause, `None` if nothing was lost.
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
