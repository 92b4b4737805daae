//! Liveness of a machine's peers: present, or lost, with how and why. The threads of a fabric record it, and
//! others query it or wait for it. One record serves every fabric that needs one.
//!
//! Not here: detection. The first report about a lost peer holds.

use crate::deadline::Deadline;
use crate::error::Error;
use crate::ids::{Loss, MachineId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Liveness of one machine's peers.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    record: Mutex<Record>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Record {
    arrived: BTreeSet<MachineId>,
    lost: BTreeMap<MachineId, (Loss, String)>,
    /// Why watching does not work, until a watcher has returned it.
    failure: Option<Error>,
    is_watch_over: bool,
}

impl Liveness {
    /// Notes that `peer` has arrived.
    pub(crate) fn mark_arrived(&self, peer: MachineId) {
        self.record().arrived.insert(peer);
        self.changed.notify_all();
    }

    /// Notes that `peer` is lost, and why, in words. Watchers learn of a death.
    pub(crate) fn mark_lost(&self, peer: MachineId, loss: Loss, cause: impl Into<String>) {
        self.record().lost.entry(peer).or_insert_with(|| (loss, cause.into()));
        self.changed.notify_all();
    }

    /// Makes one watcher return this error: deaths cannot be detected.
    pub(crate) fn fail(&self, error: Error) {
        self.record().failure = Some(error);
        self.changed.notify_all();
    }

    /// Returns how `peer` is lost, if it is.
    pub(crate) fn lost(&self, peer: MachineId) -> Option<Loss> {
        self.record().lost.get(&peer).map(|(loss, _)| *loss)
    }

    /// Returns why `peer` died, if it did.
    pub(crate) fn cause(&self, peer: MachineId) -> Option<String> {
        self.record().lost.get(&peer).filter(|(loss, _)| *loss == Loss::Died).map(|(_, cause)| cause.clone())
    }

    /// Waits until each of `peers` has arrived or left, or one has died. Returns the dead one, or else one
    /// that has not arrived in time.
    pub(crate) fn wait_for_arrivals(
        &self,
        peers: &[MachineId],
        deadline: Deadline,
    ) -> Option<(MachineId, Option<Loss>)> {
        self.wait(deadline, |record| {
            let is_absent = |peer: &MachineId| !record.arrived.contains(peer) && !record.lost.contains_key(peer);
            match (record.dead(&[]), peers.iter().copied().find(is_absent)) {
                (Some(dead), _) => Break(Some((dead, Some(Loss::Died)))),
                (None, Some(absent)) => Continue(Some((absent, None))),
                (None, None) => Break(None),
            }
        })
    }

    /// See `Fabric::watch`.
    pub(crate) fn watch(&self, known: &[MachineId], timeout: Duration) -> Result<Option<MachineId>, Error> {
        self.wait(Deadline::after(timeout), |record| {
            if record.is_watch_over {
                return Break(Ok(None));
            }
            if let Some(error) = record.failure.take() {
                return Break(Err(error));
            }
            record.dead(known).map_or(Continue(Ok(None)), |dead| Break(Ok(Some(dead))))
        })
    }

    /// See `Fabric::end_watch`.
    pub(crate) fn end_watch(&self) {
        self.record().is_watch_over = true;
        self.changed.notify_all();
    }

    /// Waits until `look` breaks off, or the deadline has passed. Returns the last result of `look`.
    fn wait<R>(&self, deadline: Deadline, mut look: impl FnMut(&mut Record) -> ControlFlow<R, R>) -> R {
        let mut record = self.record();
        loop {
            let left = deadline.left();
            match look(&mut record) {
                Break(found) => return found,
                Continue(found) if left.is_zero() => return found,
                Continue(_) => {
                    record = self.changed.wait_timeout(record, left).unwrap_or_else(PoisonError::into_inner).0
                }
            }
        }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    /// Returns a peer that has died and is not among the `known` ones.
    fn dead(&self, known: &[MachineId]) -> Option<MachineId> {
        let is_new =
            |(machine, (loss, _)): &(&MachineId, &(Loss, String))| *loss == Loss::Died && !known.contains(machine);
        self.lost.iter().find(is_new).map(|(machine, _)| *machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MachineId = MachineId(1);
    const B: MachineId = MachineId(2);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_first_cause_counts_and_a_watcher_is_told() {
        let liveness = Liveness::default();
        assert_eq!((liveness.lost(A), liveness.watch(&[], Duration::ZERO).unwrap()), (None, None));
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| liveness.watch(&[], LONG).unwrap());
            liveness.mark_lost(A, Loss::Died, "first");
            liveness.mark_lost(A, Loss::Left, "second");
            assert_eq!(watcher.join().unwrap(), Some(A));
        });
        assert_eq!((liveness.lost(A), liveness.lost(B)), (Some(Loss::Died), None));
        assert_eq!(liveness.cause(A).unwrap(), "first");
    }

    #[test]
    fn a_peer_that_left_has_no_cause_and_ends_no_watch() {
        let liveness = Liveness::default();
        liveness.mark_lost(B, Loss::Left, "");
        liveness.mark_lost(B, Loss::Died, "its connection closed");
        assert_eq!((liveness.lost(B), liveness.cause(B)), (Some(Loss::Left), None));
        assert_eq!(liveness.watch(&[], Duration::ZERO).unwrap(), None);
        liveness.end_watch();
        liveness.mark_lost(A, Loss::Died, "too late to be told");
        assert_eq!(liveness.watch(&[], Duration::MAX).unwrap(), None);
    }

    #[test]
    fn a_watch_goes_on_after_a_death_that_is_known() {
        let liveness = Liveness::default();
        liveness.mark_lost(A, Loss::Died, "first");
        assert_eq!(liveness.watch(&[A], Duration::ZERO).unwrap(), None);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| liveness.watch(&[A], LONG).unwrap());
            liveness.mark_lost(B, Loss::Died, "second");
            assert_eq!(watcher.join().unwrap(), Some(B));
        });
        assert_eq!(liveness.watch(&[A, B], Duration::ZERO).unwrap(), None);
    }

    #[test]
    fn one_watcher_is_told_of_a_failure() {
        let liveness = Liveness::default();
        liveness.fail(Error::bootstrap("no more threads"));
        assert!(liveness.watch(&[], LONG).is_err());
        assert_eq!(liveness.watch(&[], Duration::ZERO).unwrap(), None);
    }

    #[test]
    fn arrivals_are_waited_for_and_a_death_ends_the_wait() {
        let liveness = Liveness::default();
        let wait = |timeout| liveness.wait_for_arrivals(&[A, B], Deadline::after(timeout));
        liveness.mark_arrived(A);
        assert_eq!(wait(Duration::ZERO), Some((B, None)));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| wait(LONG));
            liveness.mark_arrived(B);
            assert_eq!(waiter.join().unwrap(), None);
        });
        liveness.mark_lost(B, Loss::Left, "");
        assert_eq!(wait(Duration::ZERO), None, "it was there");
        liveness.mark_lost(A, Loss::Died, "its process ended");
        assert_eq!(wait(LONG), Some((A, Some(Loss::Died))));
    }
}
