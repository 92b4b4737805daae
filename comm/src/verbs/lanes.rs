//! Lanes of a machine: one for each thread, to all peers; or, for machine ways, one for each peer, which all threads
//! share ([`Party::is_shared`](super::Party)).
//!
//! Any thread polls shared lanes, but waits for none that another thread holds: that one polls it, or does so later. To
//! spare it a look at a thousand lanes, each has a bit that says whether there is something to poll.
//!
//! Invariant: the bit of a lane changes under its lock, at the end of each use, so it is right whenever the lane is
//! free.

use crate::error::Error;
use crate::ids::MachineId;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A lane, as far as this file is concerned.
pub(super) trait Polled {
    /// Takes what has been completed.
    fn poll(&mut self) -> Result<(), Error>;

    /// Returns whether there will be something to take.
    fn is_busy(&self) -> bool;
}

/// See the file's documentation.
pub(super) struct Lanes<L: Polled> {
    lanes: Vec<Mutex<L>>,
    shared: Option<Shared>,
}

/// Lanes that all threads share.
struct Shared {
    /// Lane of each peer.
    by_peer: BTreeMap<MachineId, usize>,
    busy: Box<[AtomicU64]>,
}

impl<L: Polled> Lanes<L> {
    /// Makes those of a machine of which each thread has one.
    pub(super) fn of_threads(lanes: impl Iterator<Item = L>) -> Lanes<L> {
        Lanes { lanes: lanes.map(Mutex::new).collect(), shared: None }
    }

    /// Makes those of a machine whose threads share one to each of these peers.
    pub(super) fn of_peers(lanes: Vec<(MachineId, L)>) -> Lanes<L> {
        let by_peer = lanes.iter().enumerate().map(|(index, (peer, _))| (*peer, index)).collect();
        let busy = (0..lanes.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let lanes = lanes.into_iter().map(|(_, lane)| Mutex::new(lane)).collect();
        Lanes { lanes, shared: Some(Shared { by_peer, busy }) }
    }

    /// Returns all lanes by which a thread writes.
    pub(super) fn of(&self, thread: usize) -> Range<usize> {
        match self.shared {
            Some(_) => self.all(),
            None => thread..thread + 1,
        }
    }

    /// Returns the lane by which a thread writes to this peer.
    pub(super) fn to(&self, thread: usize, peer: MachineId) -> Option<usize> {
        match &self.shared {
            Some(shared) => shared.by_peer.get(&peer).copied(),
            None => Some(thread),
        }
    }

    pub(super) fn all(&self) -> Range<usize> {
        0..self.lanes.len()
    }

    /// Locks a lane. A panic of a thread that holds it leaves the lane consistent: no step in it is half done.
    pub(super) fn lock(&self, index: usize) -> Held<'_, L> {
        self.held(index, self.lanes[index].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks a lane, unless another thread holds it.
    pub(super) fn try_lock(&self, index: usize) -> Option<Held<'_, L>> {
        let lane = match self.lanes[index].try_lock() {
            Ok(lane) => lane,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.held(index, lane))
    }

    fn held<'a>(&'a self, index: usize, lane: MutexGuard<'a, L>) -> Held<'a, L> {
        let bit = self.shared.as_ref().map(|shared| (&shared.busy[index / 64], 1 << (index % 64)));
        Held { lane, bit }
    }

    /// Polls the lanes of a thread: its own one, or all that have something to poll and that no other thread holds.
    pub(super) fn poll(&self, thread: usize) -> Result<(), Error> {
        let Some(shared) = &self.shared else { return self.lock(thread).poll() };
        for (word, first) in shared.busy.iter().zip((0..).step_by(64)) {
            // Relaxed: a bit that is not seen yet is seen at the next poll; the lane itself is read under its lock.
            let mut bits = word.load(Ordering::Relaxed);
            while bits != 0 {
                let lane = first + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                self.try_lock(lane).map_or(Ok(()), |mut lane| lane.poll())?;
            }
        }
        Ok(())
    }
}

/// Lane that the calling thread holds.
pub(super) struct Held<'a, L: Polled> {
    lane: MutexGuard<'a, L>,
    /// That of a shared lane.
    bit: Option<(&'a AtomicU64, u64)>,
}

impl<L: Polled> Deref for Held<'_, L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.lane
    }
}

impl<L: Polled> DerefMut for Held<'_, L> {
    fn deref_mut(&mut self) -> &mut L {
        &mut self.lane
    }
}

impl<L: Polled> Drop for Held<'_, L> {
    fn drop(&mut self) {
        let Some((word, bit)) = self.bit else { return };
        let is_busy = self.lane.is_busy();
        // Relaxed, as in `poll`. Nobody else changes this bit: the lane is still locked.
        if is_busy != (word.load(Ordering::Relaxed) & bit != 0) {
            word.fetch_xor(bit, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lane with so many completions to come, of which a poll takes one.
    #[derive(Default)]
    struct Fake {
        coming: u32,
        polls: u32,
    }

    impl Polled for Fake {
        fn poll(&mut self) -> Result<(), Error> {
            self.polls += 1;
            self.coming = self.coming.saturating_sub(1);
            Ok(())
        }

        fn is_busy(&self) -> bool {
            self.coming > 0
        }
    }

    fn shared(peers: u16) -> Lanes<Fake> {
        Lanes::of_peers((1..=peers).map(|peer| (MachineId(peer), Fake::default())).collect())
    }

    fn polls(lanes: &Lanes<Fake>, lane: usize) -> u32 {
        lanes.lock(lane).polls
    }

    #[test]
    fn each_thread_has_a_lane_or_each_peer() {
        let lanes = Lanes::of_threads((0..3).map(|_| Fake::default()));
        assert_eq!((lanes.of(2), lanes.to(2, MachineId(7))), (2..3, Some(2)));
        lanes.poll(1).unwrap();
        assert_eq!([0, 1, 2].map(|lane| polls(&lanes, lane)), [0, 1, 0], "a thread polls its own, busy or not");
        let lanes = shared(2);
        assert_eq!(lanes.of(1), 0..2);
        assert_eq!([0, 1, 2].map(|peer| lanes.to(5, MachineId(peer))), [None, Some(0), Some(1)]);
    }

    #[test]
    fn any_thread_polls_the_lanes_that_have_something_and_no_others() {
        const BUSY: [usize; 4] = [0, 63, 64, 129];
        let lanes = shared(130);
        BUSY.iter().for_each(|lane| lanes.lock(*lane).coming = 2);
        for round in 1..=3 {
            lanes.poll(round).unwrap();
        }
        let polled: Vec<_> = lanes.all().filter(|lane| polls(&lanes, *lane) > 0).collect();
        assert_eq!(polled, BUSY);
        assert!(BUSY.iter().all(|lane| polls(&lanes, *lane) == 2), "not once everything has come");
    }

    #[test]
    fn nobody_waits_for_a_thread_that_holds_a_lane() {
        let lanes = shared(2);
        lanes.lock(0).coming = 1;
        lanes.lock(1).coming = 1;
        let mut held = lanes.lock(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(lanes.try_lock(0).is_none());
                lanes.poll(0).unwrap();
            });
        });
        assert_eq!((held.polls, polls(&lanes, 1)), (0, 1));
        // The others find what the holder adds meanwhile, when it is done.
        held.coming += 1;
        drop(held);
        lanes.poll(0).unwrap();
        lanes.poll(0).unwrap();
        assert_eq!((polls(&lanes, 0), polls(&lanes, 1)), (2, 1));
    }

    #[test]
    fn a_lane_whose_holder_panicked_is_polled_as_before() {
        let lanes = shared(1);
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let mut lane = lanes.lock(0);
                lane.coming = 1;
                panic!("of this test");
            });
            assert!(holder.join().is_err());
        });
        lanes.poll(0).unwrap();
        assert_eq!(polls(&lanes, 0), 1);
    }
}
