//! Ways of batches between the workers of a rack of many machines: memory and writes grow with the traffic, not with
//! the number of pairs.
//!
//! - [`mod@ways`]: which way a pair of workers has, *machine* or *direct*, and the order of its frames when it changes;
//! - [`mod@machine`]: the machine way itself: outbox and inbox of two machines, shared by all their workers;
//! - [`mod@news`]: which machine ways have something to deal out, and the lock of those that do it;
//! - [`mod@route`]: the next machine on the way to a far one, in a grid.
//!
//! Not here: bytes, memory, sockets, threads, clocks. The caller moves frames and tells the time. Large racks use
//! machine ways and direct ways (`gossamer/src/remote/ways`), routes not yet; `gossamer-bench racks` runs all of it in
//! a simulated rack (`benches/racks`).
//!
//! Invariant: nothing that a peer sends panics; it is dealt with or refused by a [`Violation`].

#![forbid(unsafe_code)]

pub mod machine;
pub mod news;
pub mod route;
#[cfg(test)]
mod search;
pub mod ways;

use std::sync::Arc;

/// Hash table whose order and speed are the same in every run.
type Table<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;

/// A worker of a rack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Peer {
    /// Its machine.
    pub machine: u16,
    /// Its number there.
    pub worker: u16,
}

/// Two workers, in the direction of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Pair {
    /// The worker that sends.
    pub from: Peer,
    /// The worker that receives.
    pub to: Peer,
}

/// Numbers of workers of all machines.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rack(Arc<[u16]>);

impl Rack {
    /// A rack of machines with these numbers of workers.
    pub fn new(workers: &[u16]) -> Rack {
        Rack(workers.into())
    }

    /// Is there such a worker?
    pub fn has(&self, peer: Peer) -> bool {
        self.0.get(usize::from(peer.machine)).is_some_and(|workers| peer.worker < *workers)
    }

    /// Refuses a pair with a worker that is not there.
    pub fn check(&self, pair: Pair) -> Result<(), Violation> {
        match [pair.from, pair.to].into_iter().find(|peer| !self.has(*peer)) {
            Some(unknown) => Err(Violation::NoSuchWorker(unknown)),
            None => Ok(()),
        }
    }
}

/// An act of a peer that the protocol does not allow: the peer is broken or hostile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// A worker that is not in the rack.
    #[error("worker {} of machine {} does not exist", .0.worker, .0.machine)]
    NoSuchWorker(Peer),
    /// A frame on a direct way that is not open, or behind the end that its sender told.
    #[error("a frame by a direct way that is not open")]
    NotOpened,
    /// A number that has been there.
    #[error("number {0} has been there before")]
    FromThePast(u64),
    /// A number with a gap before it, though the way has not changed.
    #[error("number {0} leaves a gap")]
    Gap(u64),
    /// A notice about a direct way that does not fit its state.
    #[error("a notice about a direct way that its state does not allow")]
    Notice,
    /// More than a pair or a way may have under way, or counts of more than was sent.
    #[error("more than may be under way")]
    TooMuch,
}
