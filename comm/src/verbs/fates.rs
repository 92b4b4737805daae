//! Which peers are gone, how, and why; and those who wait to be told.

use super::board::Board;
use crate::fabric::{Loss, MachineId};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What became of the peers.
pub(super) struct Fates {
    board: Arc<Board>,
    known: Mutex<Known>,
    changed: Condvar,
}

#[derive(Default)]
struct Known {
    gone: BTreeMap<MachineId, (Loss, String)>,
    /// What is wrong with the own side, told along with a peer's loss.
    own_trouble: Option<String>,
    is_watch_over: bool,
}

impl Fates {
    pub(super) fn new(board: Arc<Board>) -> Fates {
        Fates { board, known: Mutex::default(), changed: Condvar::new() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that `peer` cannot be reached any more; only the first cause counts. A peer that has
    /// said that it leaves has left.
    pub(super) fn lose(&self, peer: MachineId, cause: &str) {
        let has_left = self.board.has_left(peer);
        let mut known = self.known();
        let cause = match &known.own_trouble {
            Some(trouble) => format!("{cause}; {trouble}"),
            None => cause.to_owned(),
        };
        let loss = if has_left { Loss::Left } else { Loss::Died };
        known.gone.entry(peer).or_insert((loss, cause));
        drop(known);
        self.changed.notify_all();
    }

    /// Notes trouble of the own device, or that it is over.
    pub(super) fn set_own_trouble(&self, trouble: Option<String>) {
        self.known().own_trouble = trouble;
    }

    /// How `peer` is gone, if it is.
    pub(super) fn lost(&self, peer: MachineId) -> Option<Loss> {
        let has_left = self.board.has_left(peer);
        let known = self.known();
        known.gone.get(&peer).map(|(loss, _)| *loss).or(has_left.then_some(Loss::Left))
    }

    /// Why `peer` died.
    pub(super) fn cause(&self, peer: MachineId) -> Option<String> {
        let known = self.known();
        known.gone.get(&peer).filter(|(loss, _)| *loss == Loss::Died).map(|(_, cause)| cause.clone())
    }

    /// Waits for a death.
    pub(super) fn watch(&self, timeout: Duration) -> Option<MachineId> {
        // No deadline if it lies beyond what the clock can tell.
        let deadline = Instant::now().checked_add(timeout);
        let mut known = self.known();
        loop {
            if let Some((peer, _)) = known.gone.iter().find(|(_, (loss, _))| *loss == Loss::Died) {
                return Some(*peer);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if known.is_watch_over || left == Some(Duration::ZERO) {
                return None;
            }
            known = match left {
                Some(left) => {
                    self.changed.wait_timeout(known, left).map_or_else(|e| e.into_inner().0, |(known, _)| known)
                }
                None => self.changed.wait(known).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    pub(super) fn end_watch(&self) {
        self.known().is_watch_over = true;
        self.changed.notify_all();
    }
}

/// What a completion that is none says, in words (`enum ibv_wc_status`).
pub(super) fn failure(status: u32) -> String {
    let what = match status {
        2 => "the own device cannot send to it: is its network interface up, its address still there?",
        4 => "a source is not registered memory",
        5 => "the queue pair was stopped",
        9 => "it found a request invalid",
        10 => "it refused an access: wrong key, or memory out of range",
        11 => "it could not carry out a request",
        12 => "it does not answer: transport retry counter exceeded (its process ended, or the network to it is cut)",
        13 => "it had no receive request posted for too long",
        _ => "a request failed",
    };
    format!("{what} (completion status {status})")
}

#[cfg(test)]
mod tests {
    use super::super::board::LEFT;
    use super::*;
    use std::sync::atomic::Ordering;

    const A: MachineId = MachineId(1);
    const B: MachineId = MachineId(2);

    fn fates() -> Fates {
        Fates::new(Arc::new(Board::new([(A, 1), (B, 1)].into_iter()).unwrap()))
    }

    #[test]
    fn the_first_cause_counts_and_a_watcher_is_told() {
        let fates = fates();
        assert_eq!((fates.lost(A), fates.watch(Duration::ZERO)), (None, None));
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| fates.watch(Duration::from_secs(60)));
            fates.set_own_trouble(Some("port 1 of x is down".to_owned()));
            fates.lose(A, "first");
            fates.lose(A, "second");
            assert_eq!(watcher.join().unwrap(), Some(A));
        });
        assert_eq!((fates.lost(A), fates.lost(B)), (Some(Loss::Died), None));
        assert_eq!(fates.cause(A).unwrap(), "first; port 1 of x is down");
    }

    #[test]
    fn who_says_that_it_leaves_does_not_die() {
        let fates = fates();
        let part = fates.board.part(B).unwrap();
        fates.board.memory().word(part + LEFT).unwrap().store(1, Ordering::Relaxed);
        assert_eq!(fates.lost(B), Some(Loss::Left));
        fates.lose(B, "its queue pairs are gone");
        assert_eq!((fates.lost(B), fates.cause(B), fates.watch(Duration::ZERO)), (Some(Loss::Left), None, None));
        fates.end_watch();
        assert_eq!(fates.watch(Duration::MAX), None);
    }
}
