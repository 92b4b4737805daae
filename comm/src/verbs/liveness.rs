//! Lost peers, with how and why: the record of the whole crate, and this fabric's own knowledge.
//!
//! A leaving peer says so on the board, without an event here; and a loss may have its cause in the own device.

use super::board::Board;
use super::raw;
use crate::ids::{Loss, MachineId};
use crate::liveness::Liveness;
use std::sync::Arc;

/// Liveness of the peers of a verbs fabric.
pub(super) struct VerbsLiveness {
    board: Arc<Board>,
    /// Causes and deaths. It lacks some of the peers that left: see `lost`.
    pub(super) record: Liveness,
    /// Returns the own device's problem; called when a peer is lost. The device's events are no substitute:
    /// they come by a queue of the kernel's own, later than the first request that fails.
    own_trouble: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

impl VerbsLiveness {
    /// `own_trouble` returns the own device's present problem, if any.
    pub(super) fn new(
        board: Arc<Board>,
        own_trouble: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> VerbsLiveness {
        VerbsLiveness { board, record: Liveness::default(), own_trouble: Box::new(own_trouble) }
    }

    /// Notes that `peer` cannot be reached any more; only the first cause counts. A peer that has announced
    /// that it leaves has left.
    pub(super) fn mark_lost(&self, peer: MachineId, cause: &str) {
        let loss = if self.board.has_left(peer) { Loss::Left } else { Loss::Died };
        match (self.own_trouble)() {
            Some(trouble) => self.record.mark_lost(peer, loss, format!("{cause}; {trouble}")),
            None => self.record.mark_lost(peer, loss, cause),
        }
    }

    /// Returns how `peer` is lost, if it is.
    pub(super) fn lost(&self, peer: MachineId) -> Option<Loss> {
        // The board first: a peer marked as dead has not announced before that it leaves.
        let has_left = self.board.has_left(peer);
        self.record.lost(peer).or(has_left.then_some(Loss::Left))
    }
}

/// Returns the error of a failed completion, in words (`enum ibv_wc_status`).
pub(super) fn failure(status: u32) -> String {
    let what = match status {
        raw::WC_LOC_QP_OP_ERR => {
            "the own device cannot send to it: is its network interface up, its address still there?"
        }
        raw::WC_LOC_PROT_ERR => "a source is not registered memory",
        raw::WC_WR_FLUSH_ERR => "the queue pair was stopped",
        raw::WC_REM_INV_REQ_ERR => "it found a request invalid",
        raw::WC_REM_ACCESS_ERR => "it refused an access: wrong key, or memory out of range",
        raw::WC_REM_OP_ERR => "it could not carry out a request",
        raw::WC_RETRY_EXC_ERR => {
            "it does not answer: transport retry counter exceeded (its process ended, or the network to it is cut)"
        }
        raw::WC_RNR_RETRY_EXC_ERR => "it had no receive request posted for too long",
        _ => "a request failed",
    };
    format!("{what} (completion status {status})")
}

#[cfg(test)]
mod tests {
    use super::super::board::LEFT;
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    const A: MachineId = MachineId(1);
    const B: MachineId = MachineId(2);

    fn liveness(own_trouble: impl Fn() -> Option<String> + Send + Sync + 'static) -> VerbsLiveness {
        VerbsLiveness::new(Arc::new(Board::new([(A, 1), (B, 1)].into_iter()).unwrap()), own_trouble)
    }

    #[test]
    fn trouble_of_the_own_device_is_told_along_while_it_lasts() {
        let is_down = Arc::new(AtomicBool::new(true));
        let seen = Arc::clone(&is_down);
        let liveness = liveness(move || seen.load(Ordering::Relaxed).then(|| "port 1 of x is down".to_owned()));
        liveness.mark_lost(A, "first");
        is_down.store(false, Ordering::Relaxed);
        liveness.mark_lost(A, "second");
        liveness.mark_lost(B, "third");
        assert_eq!(liveness.record.cause(A).unwrap(), "first; port 1 of x is down");
        assert_eq!(liveness.record.cause(B).unwrap(), "third");
        assert_eq!(liveness.record.watch(&[], Duration::MAX).unwrap(), Some(A));
    }

    #[test]
    fn who_says_that_it_leaves_does_not_die() {
        let liveness = liveness(|| None);
        let part = liveness.board.part(B).unwrap();
        liveness.board.memory().word(part + LEFT).unwrap().store(1, Ordering::Relaxed);
        assert_eq!(liveness.lost(B), Some(Loss::Left));
        liveness.mark_lost(B, "its queue pairs are gone");
        assert_eq!((liveness.lost(B), liveness.record.cause(B)), (Some(Loss::Left), None));
        assert_eq!(liveness.record.watch(&[], Duration::ZERO).unwrap(), None);
    }
}
