//! State shared by the I/O thread, the connections and the fabric of one machine: its peers, suspected
//! deaths, and orders for the I/O thread. Not here: sockets.
//!
//! [`Liveness`] records each loss once, with a kind that does not change. Everything else is under one lock, which is
//! never held during another wait. A write takes neither that record's lock nor this one.

use super::breaks::Break;
use super::incoming::Crowd;
use super::outgoing::OutgoingConnections;
use crate::error::Error;
use crate::ids::{Loss, MachineId};
use crate::liveness::Liveness;
use crate::memory::Region;
use crate::waker::Waker;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Order for the I/O thread.
pub(super) enum Order {
    /// Take over the control connection to a peer, made by this side.
    Control(MachineId, TcpStream),
    /// Close all control connections gracefully, and end.
    Leave,
    /// End without a message: the start has failed.
    Stop,
}

/// Shared state of one machine's fabric.
pub(super) struct TcpShared {
    pub(super) machine: MachineId,
    pub(super) region: Arc<Region>,
    pub(super) liveness: Liveness,
    /// Wakes the I/O thread: there are orders or suspicions.
    pub(super) waker: Waker,
    /// The data connections that this machine has made.
    pub(super) outgoing: OutgoingConnections,
    /// Longest time without a sign of life on a connection.
    pub(super) silence: Duration,
    state: Mutex<SharedState>,
    has_failed: AtomicBool,
}

struct SharedState {
    /// `None` for the own machine, and those that this fabric does not serve.
    peers: Vec<Option<Peer>>,
    orders: Vec<Order>,
    /// Reason why the I/O thread cannot continue.
    failure: Option<String>,
    /// Connections that the listener evicted.
    crowd: Option<Crowd>,
}

struct Peer {
    /// Its address.
    address: SocketAddr,
    /// Length of its region, once known.
    region_bytes: usize,
    /// Time and kind of a break of one of its connections.
    suspicion: Option<(Instant, Break)>,
}

impl TcpShared {
    pub(super) fn new(
        machine: MachineId,
        region: Arc<Region>,
        addresses: &[Option<SocketAddr>],
        silence: Duration,
    ) -> Result<TcpShared, Error> {
        let peer =
            |address: &Option<SocketAddr>| address.map(|address| Peer { address, region_bytes: 0, suspicion: None });
        let peers = addresses.iter().map(peer).collect();
        Ok(TcpShared {
            machine,
            region,
            liveness: Liveness::default(),
            waker: Waker::new()?,
            outgoing: OutgoingConnections::default(),
            silence,
            state: Mutex::new(SharedState { peers, orders: Vec::new(), failure: None, crowd: None }),
            has_failed: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of machines of the program.
    pub(super) fn machines(&self) -> u16 {
        self.lock().peers.len() as u16
    }

    /// Returns the peers that this fabric serves.
    pub(super) fn served(&self) -> Vec<MachineId> {
        self.lock().served().map(|(peer, _)| peer).collect()
    }

    /// Returns how `machine` is lost, if it is; an error if it is no peer.
    pub(super) fn lost(&self, machine: MachineId) -> Result<Option<Loss>, Error> {
        self.of(machine, |_| ())?;
        Ok(self.liveness.lost(machine))
    }

    /// Returns whether `machine` is a peer that is not lost.
    pub(super) fn is_served(&self, machine: MachineId) -> bool {
        matches!(self.lost(machine), Ok(None))
    }

    /// Returns the length of the region of `machine`, whose connection has arrived.
    pub(super) fn region_bytes(&self, machine: MachineId) -> Result<usize, Error> {
        self.of(machine, |peer| peer.region_bytes)
    }

    fn of<R>(&self, machine: MachineId, look: impl FnOnce(&mut Peer) -> R) -> Result<R, Error> {
        let mut state = self.lock();
        let machines = state.peers.len() as u16;
        match state.peers.get_mut(usize::from(machine.0)) {
            Some(Some(peer)) => Ok(look(peer)),
            _ => Err(Error::NoSuchPeer { machine, own: self.machine, machines }),
        }
    }

    /// Returns whether writes to `machine` are of no use; takes a lock.
    pub(super) fn is_gone(&self, machine: MachineId) -> bool {
        let is_suspected = self.of(machine, |peer| peer.suspicion.is_some());
        is_suspected.unwrap_or(true) || self.liveness.lost(machine).is_some()
    }

    /// Notes that the control connection to `machine` is made.
    pub(super) fn arrived(&self, machine: MachineId, region_bytes: usize) {
        // Only served peers arrive.
        let _ = self.of(machine, |peer| peer.region_bytes = region_bytes);
        self.liveness.mark_arrived(machine);
    }

    /// Returns the address of `machine`.
    pub(super) fn address(&self, machine: MachineId) -> Result<SocketAddr, Error> {
        self.of(machine, |peer| peer.address)
    }

    /// Notes a broken connection of a peer. That is the peer's death, unless its graceful close is still under way.
    pub(super) fn suspect(&self, machine: MachineId, how: Break) {
        let set = |peer: &mut Peer| {
            peer.suspicion.get_or_insert_with(|| (Instant::now(), how));
        };
        let _ = self.of(machine, set);
        self.waker.wake();
    }

    /// Returns peers whose death is certain: a connection to them is silent, or broke longer than `wait` ago
    /// and they have not left. Each comes with its kind of break; the second result is whether others are still under
    /// suspicion.
    pub(super) fn dead_suspects(&self, wait: Duration) -> (Vec<(MachineId, Break)>, bool) {
        let (mut dead, mut is_open) = (Vec::new(), false);
        for (machine, peer) in self.lock().served() {
            match peer.suspicion.as_ref().filter(|_| self.liveness.lost(machine).is_none()) {
                Some((since, how)) if *how == Break::Silent || since.elapsed() >= wait => {
                    dead.push((machine, how.clone()))
                }
                Some(_) => is_open = true,
                None => {}
            }
        }
        (dead, is_open)
    }

    /// Gives the I/O thread an order.
    pub(super) fn order(&self, order: Order) {
        self.lock().orders.push(order);
        self.waker.wake();
    }

    pub(super) fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut self.lock().orders)
    }

    /// Sets the connections that the listener evicted so far.
    pub(super) fn set_crowd(&self, crowd: Option<Crowd>) {
        self.lock().crowd = crowd;
    }

    pub(super) fn crowd(&self) -> Option<Crowd> {
        self.lock().crowd
    }

    /// Notes that the I/O thread cannot continue: nothing comes from any peer from now on.
    pub(super) fn fail(&self, failure: String) {
        let mut state = self.lock();
        state.served().for_each(|(peer, _)| self.liveness.mark_lost(peer, Loss::Died, failure.as_str()));
        state.failure = Some(failure);
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Returns an error if the I/O thread has failed.
    pub(super) fn check(&self) -> Result<(), Error> {
        // Relaxed: the failure itself is behind the lock.
        if !self.has_failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let failure = self.lock().failure.clone().unwrap_or_default();
        Err(Error::system("receiving from the other machines")(std::io::Error::other(failure)))
    }
}

impl SharedState {
    /// Returns the peers that this fabric serves.
    fn served(&self) -> impl Iterator<Item = (MachineId, &Peer)> {
        let served = self.peers.iter().enumerate();
        served.filter_map(|(index, peer)| Some((MachineId(index as u16), peer.as_ref()?)))
    }
}
