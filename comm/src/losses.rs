//! Which peers are lost, and how: what threads of a fabric find out, and others ask or wait for.
//!
//! Not here: finding it out. The first that is said of a peer holds.

use crate::error::Error;
use crate::fabric::{Loss, MachineId};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The lost peers of one machine.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lost: BTreeMap<MachineId, (Loss, String)>,
    /// Why watching does not work, until a watcher has been told.
    failure: Option<Error>,
    has_ended: bool,
}

impl Losses {
    /// Says that `peer` is lost, and why, in words. Whoever watches learns of a death.
    pub(crate) fn record(&self, peer: MachineId, loss: Loss, cause: impl Into<String>) {
        self.state().lost.entry(peer).or_insert_with(|| (loss, cause.into()));
        self.changed.notify_all();
    }

    /// Says to one watcher that deaths cannot be found out.
    pub(crate) fn fail(&self, error: Error) {
        self.state().failure = Some(error);
        self.changed.notify_all();
    }

    /// Whether `peer` is lost, and how.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn lost(&self, peer: MachineId) -> Option<Loss> {
        self.state().lost.get(&peer).map(|(loss, _)| *loss)
    }

    /// Why `peer` died.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn cause(&self, peer: MachineId) -> Option<String> {
        self.state().lost.get(&peer).filter(|(loss, _)| *loss == Loss::Died).map(|(_, cause)| cause.clone())
    }

    /// See `Fabric::watch`.
    pub(crate) fn watch(&self, timeout: Duration) -> Result<Option<MachineId>, Error> {
        // No deadline if it lies beyond what the clock can tell.
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.state();
        loop {
            if state.has_ended {
                return Ok(None);
            }
            if let Some(error) = state.failure.take() {
                return Err(error);
            }
            let died = state.lost.iter().find(|(_, (loss, _))| *loss == Loss::Died);
            if let Some((machine, _)) = died {
                return Ok(Some(*machine));
            }
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// See `Fabric::end_watch`.
    pub(crate) fn end_watch(&self) {
        self.state().has_ended = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
