//! What the fibers of each worker wait for, asked from other threads: each worker tells of its own, when its loop comes
//! to it.
//!
//! A worker that does not come to its loop (it runs a long closure, or code of its own) is asked once, however many
//! want to know, and tells them all when it does.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Message, Shared};
use crate::deadline::deadline_after;
use crate::fiber::record::{Seen, Wait};
use crate::ids::TrusteeId;

/// What stands in the line for a latched value and is no fiber (`together`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Gathered {
    pub(crate) client: TrusteeId,
    pub(crate) token: u64,
    /// The values that it has taken: trustees and addresses of properties.
    pub(crate) has: Vec<(TrusteeId, usize)>,
    /// Type of the property in whose line it stands.
    pub(crate) on: &'static str,
}

/// What one worker tells.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) worker: TrusteeId,
    /// Name of the thread, if names were asked for.
    pub(crate) thread: String,
    pub(crate) fibers: Vec<Seen>,
    /// What the thread's own code waits for.
    pub(crate) root: Option<Wait>,
    /// Somebody goes on at some time, whatever else happens.
    pub(crate) has_timers: bool,
    /// In the line of which property.
    pub(crate) gathered: Vec<(usize, Gathered)>,
}

/// Reports on their way to who has asked.
pub(crate) struct Collection {
    pub(crate) with_names: bool,
    state: Mutex<State>,
    complete: Condvar,
}

#[derive(Default)]
struct State {
    awaited: Vec<TrusteeId>,
    reports: Vec<Report>,
}

impl Collection {
    /// Asks these workers.
    pub(crate) fn ask(workers: &[Arc<Shared>], with_names: bool) -> Arc<Collection> {
        let awaited = workers.iter().map(|worker| worker.id).collect();
        let state = Mutex::new(State { awaited, reports: Vec::new() });
        let collection = Arc::new(Collection { with_names, state, complete: Condvar::new() });
        for worker in workers {
            if !worker.ask_for_report(&collection) {
                collection.forget(worker.id);
            }
        }
        collection
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, worker: TrusteeId) {
        self.lock().awaited.retain(|id| *id != worker);
    }

    /// Worker: tells.
    pub(crate) fn put(&self, report: Report) {
        let mut state = self.lock();
        state.awaited.retain(|id| *id != report.worker);
        state.reports.push(report);
        if state.awaited.is_empty() {
            self.complete.notify_all();
        }
    }

    /// Have all told that were asked and are there?
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().awaited.is_empty()
    }

    /// Blocks the thread until it is complete, but no longer than that.
    pub(crate) fn block(&self, at_most: Duration) {
        let end = deadline_after(at_most);
        let mut state = self.lock();
        while !state.awaited.is_empty() {
            let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else { return };
            state = self.complete.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What was told, and who has not answered.
    pub(crate) fn take(&self) -> (Vec<Report>, Vec<TrusteeId>) {
        let mut state = self.lock();
        (std::mem::take(&mut state.reports), state.awaited.clone())
    }
}

impl Shared {
    /// False if the worker takes no more messages.
    fn ask_for_report(&self, to: &Arc<Collection>) -> bool {
        let mut waiting = self.report_to.lock().unwrap_or_else(PoisonError::into_inner);
        let is_asked = !waiting.is_empty();
        // Those that nobody waits for any more.
        waiting.retain(|other| Arc::strong_count(other) > 1);
        waiting.push(Arc::clone(to));
        drop(waiting);
        let is_taken = is_asked || self.send(Message::Report).is_ok();
        if !is_taken {
            self.take_asking();
        }
        is_taken
    }

    /// Worker: who has asked.
    pub(crate) fn take_asking(&self) -> Vec<Arc<Collection>> {
        std::mem::take(&mut *self.report_to.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
