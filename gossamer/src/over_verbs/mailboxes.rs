//! Mailbox exchange between machines that have RDMA devices: their second endpoints, or refusals, and notes
//! afterwards.
//!
//! Here: their transport, over connections of their own with the program's key. Not here: their consequences.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use comm::secure::Key;
use comm::tcp::{Listener, TcpFabric};
use comm::{Connection, Error, Fabric, MachineId, Region, WORD_BYTES, WorkerId};

use super::Topology;
use crate::control::MAX_ENDPOINT_BYTES;

/// The one worker of these connections.
const EXCHANGE_WORKER: WorkerId = WorkerId(0);
/// Park word of the waiter for a message; the mailboxes follow, one for each machine.
const PARK_WORD: usize = 0;
const MAILBOXES: usize = 64;
/// An endpoint, followed by its length, which is the flag; then a word for each `Note`.
const MAILBOX_BYTES: usize = MAX_ENDPOINT_BYTES + 3 * WORD_BYTES;
/// Interval at which a waiter checks whether the others still live.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// First bytes of a message that replaces an endpoint.
const REFUSAL: &[u8] = b"no endpoint: ";

/// Returns the message in place of an endpoint: the own device cannot be used, and why.
pub(super) fn refusal(error: &Error) -> Vec<u8> {
    let mut message = [REFUSAL, error.to_string().as_bytes()].concat();
    message.truncate(MAX_ENDPOINT_BYTES);
    message
}

/// Returns the reason why a peer cannot use its device, if it sent a refusal.
pub(super) fn refusal_reason(peer: MachineId, endpoint: &[u8]) -> Option<String> {
    let reason = String::from_utf8_lossy(endpoint.strip_prefix(REFUSAL)?);
    Some(format!("{peer} has an RDMA device that it cannot use: {reason}"))
}

/// Note sent after the endpoints, each in a word of its own.
#[derive(Clone, Copy)]
pub(super) enum Note {
    /// The own queue pairs are ready for this peer's.
    Ready,
    /// Whether this peer has answered over RDMA.
    Reached,
}

pub(super) const YES: u64 = 1;
pub(super) const NO: u64 = 2;

/// Mailboxes of this machine's peers, and its own.
pub(super) struct Mailboxes {
    fabric: TcpFabric,
    connections: Vec<Box<dyn Connection>>,
}

impl Mailboxes {
    pub(super) fn open(
        listener: Listener,
        topology: &Topology<'_>,
        peers: Vec<MachineId>,
        key: Key,
    ) -> Result<Mailboxes, Error> {
        let address = |peer: &MachineId| topology.offers[usize::from(peer.0)].as_ref().map(|offer| offer.mailbox);
        let machines = (0..topology.transports.len() as u16).map(MachineId);
        let addresses = machines.map(|peer| address(&peer).filter(|_| topology.is_peer(peer))).collect();
        let region = Arc::new(Region::anonymous(MAILBOXES + MAILBOX_BYTES * topology.transports.len())?);
        let fabric = TcpFabric::open(listener, topology.own, addresses, key, region, topology.left())?;
        let connections =
            peers.into_iter().map(|peer| fabric.connect(peer, EXCHANGE_WORKER)).collect::<Result<_, _>>()?;
        Ok(Mailboxes { fabric, connections })
    }

    fn flag_of(machine: MachineId) -> usize {
        MAILBOXES + MAILBOX_BYTES * usize::from(machine.0) + MAX_ENDPOINT_BYTES
    }

    fn note_of(machine: MachineId, note: Note) -> usize {
        Self::flag_of(machine) + WORD_BYTES * (1 + note as usize)
    }

    /// Sends the own endpoint to all, and waits for theirs.
    pub(super) fn exchange(&mut self, endpoint: &[u8], deadline: Instant) -> Result<Vec<(MachineId, Vec<u8>)>, Error> {
        let mut message = endpoint.to_vec();
        message.resize(endpoint.len().next_multiple_of(WORD_BYTES), 0);
        message.extend((endpoint.len() as u64).to_ne_bytes());
        let to = Self::flag_of(self.fabric.machine()) + WORD_BYTES - message.len();
        for connection in &mut self.connections {
            send(&mut **connection, &message, to)?;
        }
        let start = Instant::now();
        let peers = self.connections.iter().map(|connection| connection.peer());
        peers.map(|peer| Ok((peer, self.receive(peer, start, deadline)?))).collect()
    }

    /// Sends each peer its word, as `of` gives it.
    pub(super) fn tell(&mut self, note: Note, of: impl Fn(MachineId) -> u64) -> Result<(), Error> {
        let to = Self::note_of(self.fabric.machine(), note);
        self.connections.iter_mut().try_for_each(|connection| {
            let word = of(connection.peer()).to_ne_bytes();
            send(&mut **connection, &word, to)
        })
    }

    /// Waits for the notes of all peers.
    pub(super) fn hear(&self, note: Note, deadline: Instant) -> Result<Vec<(MachineId, u64)>, Error> {
        let start = Instant::now();
        let peers = self.connections.iter().map(|connection| connection.peer());
        peers.map(|peer| Ok((peer, self.wait(peer, Self::note_of(peer, note), start, deadline)?))).collect()
    }

    fn receive(&self, peer: MachineId, start: Instant, deadline: Instant) -> Result<Vec<u8>, Error> {
        // A peer's length, so checked before it is used.
        let bytes = self.wait(peer, Self::flag_of(peer), start, deadline)?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(MAX_ENDPOINT_BYTES);
        let mut endpoint = vec![0; bytes];
        self.fabric.region().read(Self::flag_of(peer) - bytes.next_multiple_of(WORD_BYTES), &mut endpoint)?;
        Ok(endpoint)
    }

    /// Waits until `peer` has written this word.
    fn wait(&self, peer: MachineId, offset: usize, start: Instant, deadline: Instant) -> Result<u64, Error> {
        let flag = self.fabric.region().word(offset)?;
        // Acquire of [flag-last] (`comm::fabric`), with the Release of the peer's `Connection::write`.
        let is_idle = || flag.load(Ordering::Acquire) == 0;
        while is_idle() {
            if self.fabric.lost(peer)?.is_some() && is_idle() {
                return Err(Error::PeerLost { machine: peer });
            }
            if Instant::now() >= deadline {
                let (step, waited_ms) = ("tell how it is reached by RDMA", start.elapsed().as_millis());
                return Err(Error::PeerMissing { machine: peer, step, waited_ms });
            }
            self.fabric.poll(EXCHANGE_WORKER)?;
            self.fabric.park(EXCHANGE_WORKER, PARK_WORD, LOOK_INTERVAL, &mut || is_idle())?;
        }
        // Relaxed: seen above.
        Ok(flag.load(Ordering::Relaxed))
    }
}

fn send(connection: &mut dyn Connection, message: &[u8], to: usize) -> Result<(), Error> {
    connection.write(message, to)?;
    connection.wake(PARK_WORD)?;
    connection.flush()
}

#[cfg(test)]
mod tests {
    use super::super::Offer;
    use super::*;
    use crate::rack::Transport;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn who_cannot_use_its_device_says_so_in_place_of_a_endpoint() {
        let error = Error::Verbs { reason: "no memory may be locked".repeat(10_000) };
        let message = refusal(&error);
        assert_eq!(message.len(), MAX_ENDPOINT_BYTES);
        let reason = refusal_reason(MachineId(3), &message).unwrap();
        assert!(
            reason.starts_with(&format!("{} has an RDMA device", MachineId(3)))
                && reason.contains("no memory may be locked")
        );
        assert_eq!(refusal_reason(MachineId(3), &[1, 2, 3]), None);
    }

    #[test]
    fn every_endpoint_comes_to_every_peer() {
        let listeners: Vec<Listener> =
            (0..3).map(|_| Listener::bind(([127, 0, 0, 1], 0).into()).expect("binds to loopback")).collect();
        let offers: Vec<_> = listeners
            .iter()
            .map(|listener| Some(Offer { network: String::new(), mailbox: listener.address() }))
            .collect();
        let endpoint_of = |machine: u16| vec![machine as u8 + 1; 4 + 8000 * usize::from(machine)];
        std::thread::scope(|scope| {
            for (own, listener) in (0u16..).zip(listeners) {
                let offers = &offers;
                scope.spawn(move || {
                    let mut transports = [Transport::Verbs; 3];
                    transports[usize::from(own)] = Transport::Here;
                    let deadline = Instant::now() + LONG;
                    let topology = Topology {
                        own: MachineId(own),
                        transports: &transports,
                        offers,
                        threads: &[2, 2, 2],
                        has_ways: false,
                        deadline,
                    };
                    let peers: Vec<_> = (0..3).filter(|peer| *peer != own).map(MachineId).collect();
                    let mut mailboxes =
                        Mailboxes::open(listener, &topology, peers.clone(), Key::from_bytes([7; 32])).unwrap();
                    let endpoints = mailboxes.exchange(&endpoint_of(own), deadline).unwrap();
                    let expected: Vec<_> = peers.iter().map(|peer| (*peer, endpoint_of(peer.0))).collect();
                    assert_eq!(endpoints, expected);
                    // All but machine 2 have reached machine 1.
                    let verdict = |from: u16, to: MachineId| if (from, to.0) == (2, 1) { NO } else { YES };
                    mailboxes.tell(Note::Reached, |peer| verdict(own, peer)).unwrap();
                    let told: Vec<_> = peers.iter().map(|peer| (*peer, verdict(peer.0, MachineId(own)))).collect();
                    assert_eq!(mailboxes.hear(Note::Reached, deadline).unwrap(), told);
                });
            }
        });
    }
}
