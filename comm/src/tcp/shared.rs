//! What the attendant, the connections and the fabric of one machine know together: the fate of each
//! peer, and what the attendant is to do next. Not here: sockets.
//!
//! The fate of a peer is settled once: `Absent`, `Here`, then `Left` or `Died`. All of it is under
//! one lock, which nobody holds while it waits for anything else. The path of a write does not take
//! it.

use super::incoming::Crowd;
use crate::error::Error;
use crate::fabric::{Loss, MachineId};
use crate::memory::Region;
use rustix::event::{EventfdFlags, eventfd};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How it stands with a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its control connection is not made yet.
    Absent,
    /// It is there.
    Here,
    /// It said that it leaves.
    Left,
    /// It is gone without a word, and this is what was seen of it.
    Died(String),
}

/// What the attendant is to do.
pub(super) enum Order {
    /// Take over the control connection to a peer, made by this side.
    Control(MachineId, TcpStream),
    /// Say farewell to all peers, and end.
    Leave,
    /// End without a word: the start has failed.
    Stop,
}

/// See the file.
pub(super) struct Shared {
    pub(super) machine: MachineId,
    pub(super) region: Arc<Region>,
    state: Mutex<State>,
    changed: Condvar,
    /// An event counter that the attendant sleeps on: there are orders or suspicions.
    bell: OwnedFd,
    has_failed: AtomicBool,
}

struct State {
    /// `None` for the own machine, and those that this fabric does not serve.
    peers: Vec<Option<Peer>>,
    orders: Vec<Order>,
    /// Why the attendant cannot go on.
    failure: Option<String>,
    /// Whom the listener turned away.
    crowd: Option<Crowd>,
    /// Nobody waits for deaths any more.
    is_watch_over: bool,
}

struct Peer {
    fate: Fate,
    region_bytes: usize,
    /// A connection to it broke at that time, for that reason: it is dead unless it turns out soon
    /// that it left.
    suspicion: Option<(Instant, String)>,
}

impl Shared {
    pub(super) fn new(
        machine: MachineId,
        region: Arc<Region>,
        is_served: impl Iterator<Item = bool>,
    ) -> Result<Shared, Error> {
        let peer = |is_served: bool| is_served.then_some(Peer { fate: Fate::Absent, region_bytes: 0, suspicion: None });
        let state = State {
            peers: is_served.map(peer).collect(),
            orders: Vec::new(),
            failure: None,
            crowd: None,
            is_watch_over: false,
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::system("making an event counter"))?;
        Ok(Shared {
            machine,
            region,
            state: Mutex::new(state),
            changed: Condvar::new(),
            bell,
            has_failed: AtomicBool::new(false),
        })
    }

    pub(super) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring_bell(&self) {
        // It fails only when the counter is full, and then the attendant wakes anyway.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Takes back what was rung.
    pub(super) fn hush_bell(&self) {
        // It fails only when nobody has rung since.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// How many machines the program has.
    pub(super) fn machines(&self) -> u16 {
        self.lock().peers.len() as u16
    }

    /// The peers that this fabric serves.
    pub(super) fn served(&self) -> Vec<MachineId> {
        let state = self.lock();
        let served = state.peers.iter().enumerate().filter(|(_, peer)| peer.is_some());
        served.map(|(index, _)| MachineId(index as u16)).collect()
    }

    /// How it stands with `machine`, or an error if it is no peer.
    pub(super) fn fate(&self, machine: MachineId) -> Result<Fate, Error> {
        self.of(machine, |peer| peer.fate.clone())
    }

    /// Length of the region of `machine`, which is not `Absent`.
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

    /// Whether writes to `machine` are of any use; costs a lock.
    pub(super) fn is_gone(&self, machine: MachineId) -> bool {
        !matches!(self.of(machine, |peer| peer.suspicion.is_none() && peer.fate == Fate::Here), Ok(true))
    }

    /// The control connection to `machine` is made.
    pub(super) fn arrived(&self, machine: MachineId, region_bytes: usize) {
        let set = |peer: &mut Peer| {
            if peer.fate == Fate::Absent {
                (peer.fate, peer.region_bytes) = (Fate::Here, region_bytes);
            }
        };
        // Only served peers arrive.
        let _ = self.of(machine, set);
        self.changed.notify_all();
    }

    /// Settles the fate of a peer, if it is not settled.
    pub(super) fn settle(&self, machine: MachineId, fate: Fate) {
        let set = |peer: &mut Peer| {
            if matches!(peer.fate, Fate::Absent | Fate::Here) {
                peer.fate = fate;
            }
        };
        let _ = self.of(machine, set);
        self.changed.notify_all();
    }

    /// A connection to a peer broke. That is its death, unless its farewell is still under way.
    pub(super) fn suspect(&self, machine: MachineId, cause: String) {
        let set = |peer: &mut Peer| {
            peer.suspicion.get_or_insert_with(|| (Instant::now(), cause));
        };
        let _ = self.of(machine, set);
        self.ring_bell();
    }

    /// Settles the fate of those who are under suspicion for longer than `grace`. Gives their ids,
    /// and whether others are still under suspicion.
    pub(super) fn judge(&self, grace: Duration) -> (Vec<MachineId>, bool) {
        let (mut died, mut is_open) = (Vec::new(), false);
        for (index, peer) in self.lock().peers.iter_mut().enumerate() {
            let Some(peer) = peer.as_mut().filter(|peer| matches!(peer.fate, Fate::Absent | Fate::Here)) else {
                continue;
            };
            match &peer.suspicion {
                Some((since, cause)) if since.elapsed() >= grace => {
                    peer.fate = Fate::Died(cause.clone());
                    died.push(MachineId(index as u16));
                }
                Some(_) => is_open = true,
                None => {}
            }
        }
        if !died.is_empty() {
            self.changed.notify_all();
        }
        (died, is_open)
    }

    /// Gives the attendant something to do.
    pub(super) fn order(&self, order: Order) {
        self.lock().orders.push(order);
        self.ring_bell();
    }

    pub(super) fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut self.lock().orders)
    }

    /// Whom the listener turned away so far.
    pub(super) fn set_crowd(&self, crowd: Option<Crowd>) {
        self.lock().crowd = crowd;
    }

    pub(super) fn crowd(&self) -> Option<Crowd> {
        self.lock().crowd
    }

    /// The attendant cannot go on: no peer is heard of from now on.
    pub(super) fn fail(&self, failure: String) {
        let mut state = self.lock();
        for peer in state.peers.iter_mut().flatten() {
            if matches!(peer.fate, Fate::Absent | Fate::Here) {
                peer.fate = Fate::Died(failure.clone());
            }
        }
        state.failure = Some(failure);
        self.has_failed.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Whether the attendant goes on.
    pub(super) fn check(&self) -> Result<(), Error> {
        // Relaxed: the failure itself is behind the lock.
        if !self.has_failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let failure = self.lock().failure.clone().unwrap_or_default();
        Err(Error::system("receiving from the other machines")(std::io::Error::other(failure)))
    }

    /// Waits until all peers are there or have been, or one has died. Gives the one that is dead, or
    /// else missing.
    pub(super) fn wait_for_all(&self, deadline: Option<Instant>) -> Option<(MachineId, Fate)> {
        let is_absent = |fate: &Fate| *fate == Fate::Absent;
        let state = self.wait(deadline, |state| state.find(is_dead).is_some() || state.find(is_absent).is_none());
        let found = state.find(is_dead).or_else(|| state.find(is_absent))?;
        let fate = state.peers[usize::from(found.0)].as_ref().map(|peer| peer.fate.clone());
        Some((found, fate?))
    }

    /// Waits for a peer that has died, or the end of all such waits.
    pub(super) fn wait_for_death(&self, deadline: Option<Instant>) -> Option<MachineId> {
        let state = self.wait(deadline, |state| state.is_watch_over || state.find(is_dead).is_some());
        state.find(is_dead).filter(|_| !state.is_watch_over)
    }

    pub(super) fn end_watch(&self) {
        self.lock().is_watch_over = true;
        self.changed.notify_all();
    }

    fn wait(&self, deadline: Option<Instant>, is_over: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while !is_over(&state) {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match left {
                Some(Duration::ZERO) => break,
                Some(left) => {
                    state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                }
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
        state
    }

    /// Who has died, and who left; for `Fabric::lost`.
    pub(super) fn loss(&self, machine: MachineId) -> Result<Option<Loss>, Error> {
        Ok(match self.fate(machine)? {
            Fate::Absent | Fate::Here => None,
            Fate::Left => Some(Loss::Left),
            Fate::Died(_) => Some(Loss::Died),
        })
    }
}

impl State {
    /// The first peer of that fate.
    fn find(&self, is_wanted: impl Fn(&Fate) -> bool) -> Option<MachineId> {
        let found = self.peers.iter().position(|peer| peer.as_ref().is_some_and(|peer| is_wanted(&peer.fate)));
        found.map(|index| MachineId(index as u16))
    }
}

fn is_dead(fate: &Fate) -> bool {
    matches!(fate, Fate::Died(_))
}
