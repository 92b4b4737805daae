//! Reports of the waits of each worker's fibers, asked from other threads: each worker reports its own, when its loop
//! comes to it.
//!
//! A worker that does not come to its loop (it runs a long closure, or code of its own) is asked once for any number of
//! askers, and answers them all when it does.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Message, Shared};
use crate::deadline::deadline_after;
use crate::fiber::record::{Seen, Wait};
use crate::ids::TrusteeId;

/// A waiter in the line for a latched value that is no fiber (`together`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Gathered {
    pub(crate) client: TrusteeId,
    pub(crate) token: u64,
    /// The values that it has taken: trustees and addresses of properties.
    pub(crate) has: Vec<(TrusteeId, usize)>,
    /// Type of the property in whose line it stands.
    pub(crate) on: &'static str,
}

/// Report of one worker.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) worker: TrusteeId,
    /// Name of the thread, if names were asked for.
    pub(crate) thread: String,
    pub(crate) fibers: Vec<Seen>,
    /// Wait of the thread's own code.
    pub(crate) root: Option<Wait>,
    /// A timer is set: some fiber goes on at some time by itself.
    pub(crate) has_timers: bool,
    /// Waiters by the property in whose line they stand.
    pub(crate) gathered: Vec<(usize, Gathered)>,
}

/// Reports on their way to an asker.
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

    /// Worker: adds its report.
    pub(crate) fn put(&self, report: Report) {
        let mut state = self.lock();
        state.awaited.retain(|id| *id != report.worker);
        state.reports.push(report);
        if state.awaited.is_empty() {
            self.complete.notify_all();
        }
    }

    /// Have all asked workers that still exist answered?
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

    /// Takes the reports, and the workers that have not answered.
    pub(crate) fn take(&self) -> (Vec<Report>, Vec<TrusteeId>) {
        let mut state = self.lock();
        (std::mem::take(&mut state.reports), state.awaited.clone())
    }
}

impl Shared {
    /// Asks for a report. False if the worker takes no more messages.
    fn ask_for_report(&self, to: &Arc<Collection>) -> bool {
        let mut waiting = self.report_to.lock().unwrap_or_else(PoisonError::into_inner);
        let is_asked = !waiting.is_empty();
        // Drops collections that are no longer awaited.
        waiting.retain(|other| Arc::strong_count(other) > 1);
        waiting.push(Arc::clone(to));
        drop(waiting);
        let is_taken = is_asked || self.send(Message::Report).is_ok();
        if !is_taken {
            self.take_asking();
        }
        is_taken
    }

    /// Worker: takes the pending askers.
    pub(crate) fn take_asking(&self) -> Vec<Arc<Collection>> {
        std::mem::take(&mut *self.report_to.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
