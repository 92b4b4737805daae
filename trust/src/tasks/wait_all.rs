//! `wait_all`: suspends until all that was sent has been answered (T20).
//!
//! Nothing is noted per request for it. Who waits takes down how many requests each pair has made so far, and goes
//! through the pairs: answers come in the order of the requests, so it is done with one when as many have been
//! answered. Whatever is made meanwhile does not prolong the wait. Only launches, which have a token each, are told
//! apart by fiber.

use std::rc::Rc;

use crate::fiber::Waits;
use crate::ids::TrusteeId;
use crate::local::client::Outgoing;
use crate::runtime::worker::{self, Context, Worker};

/// May the caller wait? Not in delegated closures, callbacks, and while a value is serialised.
///
/// For libraries whose calls wait only where that is allowed, as [`apply_then`](crate::Trust::apply_then) does.
///
/// ```
/// assert!(trust::may_wait());
/// assert!(!trust::local_trustee().entrust(()).apply(|()| trust::may_wait()));
/// ```
pub fn may_wait() -> bool {
    worker::existing(|worker| worker.context() == Context::Free).unwrap_or(true)
}

/// Waits until all that the caller has sent is answered and its callbacks have run: the requests of
/// [`apply_then`](crate::Trust::apply_then), `apply_with_then`, `launch_then` and their like, to trustees of this
/// process and of other machines. Suspends the fiber; on a thread's own stack serves its trustee and runs its fibers
/// meanwhile, and sleeps where there is nothing to do.
///
/// What counts is what was sent before the call: requests that others make meanwhile, callbacks among them, are not
/// waited for. It also waits for the requests that other fibers of the thread had sent to the same time (but not for
/// what they launched), so it can take as long as their trustees do. Does nothing on a thread that has not used the
/// library.
///
/// Requests that fail are answered, too: a closure that panics, a trustee that is gone, a callback that panics. Each
/// says so in its own way ([`Trust::apply_then`](crate::Trust::apply_then)); this call just returns.
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

    /// Waits until what was sent to this trustee of the same process before the call is answered.
    pub(crate) fn wait_for_answers_of(&self, trustee: TrusteeId) {
        if let Some(pair) = self.pairs.shared(trustee) {
            let written = pair.written_in_all();
            self.wait_in(&pair.waiters, || pair.has_answered(written));
        }
    }
}
