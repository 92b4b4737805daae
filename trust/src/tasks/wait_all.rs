//! `wait_all`: suspends until all sent requests have been answered.
//!
//! It keeps no record per request. The waiter notes the number of requests each pair has made so far, and goes through
//! the pairs: answers come in the order of the requests, so a pair is done when that many have been answered. Later
//! requests do not prolong the wait. Only launches, which have a token each, are distinguished by fiber.

use std::rc::Rc;

use crate::fiber::Waits;
use crate::ids::TrusteeId;
use crate::local::client::Outgoing;
use crate::runtime::worker::{self, Context, Worker};

/// Returns whether the caller may wait: not in delegated closures, callbacks, or while a value is serialised.
///
/// For libraries with calls that wait only where that is allowed, as [`apply_then`](crate::Trust::apply_then) does.
///
/// ```
/// assert!(trust::may_wait());
/// assert!(!trust::local_trustee().entrust(()).apply(|()| trust::may_wait()));
/// ```
pub fn may_wait() -> bool {
    worker::existing(|worker| worker.context() == Context::Free).unwrap_or(true)
}

/// Waits until all the caller's requests are answered and its callbacks have run: the requests of
/// [`apply_then`](crate::Trust::apply_then), `launch_then` and [`ReadyCall::then`](crate::ReadyCall::then), to trustees
/// of this process and of other machines. Suspends the fiber; on a thread's own stack serves its trustee and runs its
/// fibers meanwhile, and sleeps when there is nothing to do.
///
/// Only requests sent before the call count: later ones, also of callbacks, are not waited for. It also waits for the
/// requests that other fibers of the thread had sent by then (but not for their launches), so it can take as long as
/// their trustees do. Does nothing on a thread that has not used the library.
///
/// Failed requests count as answered: a closure that panics, a trustee that is gone, a callback that panics. Each
/// reports that in its own way ([`Trust::apply_then`](crate::Trust::apply_then)); this call just returns.
///
/// ```
/// use std::{cell::Cell, rc::Rc};
///
/// let pool = trust::Threadpool::new(2);
/// let words = pool.entrust(0);
/// let answers = Rc::new(Cell::new(0));
/// for word in ["to", "be", "or", "not"] {
///     let answers = Rc::clone(&answers);
///     let letters = word.len();
///     words.apply_then(move |sum| { *sum += letters; *sum }, move |sum| answers.set(answers.get().max(sum)));
/// }
/// trust::wait_all();
/// assert_eq!(answers.get(), 9);
/// ```
///
/// # Panics
/// In delegated context and in callbacks, where nothing may wait.
pub fn wait_all() {
    worker::existing(|worker| {
        worker.assert_may_wait("wait_all");
        worker.wait_all();
    });
}

impl Worker {
    fn wait_all(&self) {
        let launched = self.launches.awaited_by(self.scheduler.current_id());
        let with_number = |pair: Rc<Outgoing>| (pair.written_in_all(), pair);
        let pairs: Vec<_> = self.pairs.all_active().into_iter().map(with_number).collect();
        let remote = self.remote.written_in_all();
        for (written, pair) in pairs {
            self.wait_in(&pair.waiters, || pair.has_answered(written));
        }
        self.remote.wait_for_answers(self, &remote);
        self.launches.wait_for(self, launched);
    }

    /// Waits until the requests sent to this trustee of the same process before the call are answered.
    pub(crate) fn wait_for_answers_of(&self, trustee: TrusteeId) {
        if let Some(pair) = self.pairs.shared(trustee) {
            let written = pair.written_in_all();
            self.wait_in(&pair.waiters, || pair.has_answered(written));
        }
    }
}
