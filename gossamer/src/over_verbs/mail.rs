//! Letters between machines that have devices: their second cards, or why they have none, and notes afterwards.
//!
//! Here: how they travel, over connections of their own with the program's key. Not here: what follows from them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use comm::secure::Key;
use comm::tcp::{Listener, TcpFabric};
use comm::{Connection, Error, Fabric, MachineId, Region, WORD_BYTES, WorkerId};

use super::Place;
use crate::control::MAX_CARD_BYTES;

/// The one worker of the connections for mail.
const POSTMAN: WorkerId = WorkerId(0);
/// Park word of who waits for mail; the letter boxes follow, one for each machine.
const BELL: usize = 0;
const BOXES: usize = 64;
/// A card, and behind it the word that says how long it is, which is the flag; then a word for each `Note`.
const BOX_BYTES: usize = MAX_CARD_BYTES + 3 * WORD_BYTES;
/// How often somebody who waits looks whether the others still live.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How that begins which is sent instead of a card.
const REGRET: &[u8] = b"no card: ";

/// In place of a card: the own device cannot be used, and why.
pub(super) fn regret(error: &Error) -> Vec<u8> {
    let mut letter = [REGRET, error.to_string().as_bytes()].concat();
    letter.truncate(MAX_CARD_BYTES);
    letter
}

/// Why a peer cannot use its device, if that is what it sent.
pub(super) fn regretted(peer: MachineId, card: &[u8]) -> Option<String> {
    let reason = String::from_utf8_lossy(card.strip_prefix(REGRET)?);
    Some(format!("{peer} has an RDMA device that it cannot use: {reason}"))
}

/// What is told by mail after the cards, in a word of its own each.
#[derive(Clone, Copy)]
pub(super) enum Note {
    /// The own queue pairs are ready for this peer's.
    Ready,
    /// Whether this peer has answered over RDMA.
    Reached,
}

pub(super) const YES: u64 = 1;
pub(super) const NO: u64 = 2;

/// Connections for second cards.
pub(super) struct Mail {
    fabric: TcpFabric,
    connections: Vec<Box<dyn Connection>>,
}

impl Mail {
    pub(super) fn open(listener: Listener, place: &Place<'_>, peers: Vec<MachineId>, key: Key) -> Result<Mail, Error> {
        let address = |peer: &MachineId| place.offers[usize::from(peer.0)].as_ref().map(|offer| offer.mail);
        let machines = (0..place.ways.len() as u16).map(MachineId);
        let addresses = machines.map(|peer| address(&peer).filter(|_| place.is_peer(peer))).collect();
        let region = Arc::new(Region::anonymous(BOXES + BOX_BYTES * place.ways.len())?);
        let fabric = TcpFabric::open(listener, place.own, addresses, key, region, place.left())?;
        let connections = peers.into_iter().map(|peer| fabric.connect(peer, POSTMAN)).collect::<Result<_, _>>()?;
        Ok(Mail { fabric, connections })
    }

    fn flag_of(machine: MachineId) -> usize {
        BOXES + BOX_BYTES * usize::from(machine.0) + MAX_CARD_BYTES
    }

    fn note_of(machine: MachineId, note: Note) -> usize {
        Self::flag_of(machine) + WORD_BYTES * (1 + note as usize)
    }

    /// Sends the own card to all, and waits for theirs.
    pub(super) fn exchange(&mut self, card: &[u8], deadline: Instant) -> Result<Vec<(MachineId, Vec<u8>)>, Error> {
        let mut letter = card.to_vec();
        letter.resize(card.len().next_multiple_of(WORD_BYTES), 0);
        letter.extend((card.len() as u64).to_ne_bytes());
        let to = Self::flag_of(self.fabric.machine()) + WORD_BYTES - letter.len();
        for connection in &mut self.connections {
            send(&mut **connection, &letter, to)?;
        }
        let start = Instant::now();
        let peers = self.connections.iter().map(|connection| connection.peer());
        peers.map(|peer| Ok((peer, self.receive(peer, start, deadline)?))).collect()
    }

    /// Tells each peer what `of` says of it.
    pub(super) fn tell(&mut self, note: Note, of: impl Fn(MachineId) -> u64) -> Result<(), Error> {
        let to = Self::note_of(self.fabric.machine(), note);
        self.connections.iter_mut().try_for_each(|connection| {
            let word = of(connection.peer()).to_ne_bytes();
            send(&mut **connection, &word, to)
        })
    }

    /// Waits until all peers have told.
    pub(super) fn hear(&self, note: Note, deadline: Instant) -> Result<Vec<(MachineId, u64)>, Error> {
        let start = Instant::now();
        let peers = self.connections.iter().map(|connection| connection.peer());
        peers.map(|peer| Ok((peer, self.wait(peer, Self::note_of(peer, note), start, deadline)?))).collect()
    }

    fn receive(&self, peer: MachineId, start: Instant, deadline: Instant) -> Result<Vec<u8>, Error> {
        // A length from elsewhere, so checked before it is used.
        let bytes = self.wait(peer, Self::flag_of(peer), start, deadline)?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(MAX_CARD_BYTES);
        let mut card = vec![0; bytes];
        self.fabric.region().read(Self::flag_of(peer) - bytes.next_multiple_of(WORD_BYTES), &mut card)?;
        Ok(card)
    }

    /// Waits until `peer` has written this word.
    fn wait(&self, peer: MachineId, offset: usize, start: Instant, deadline: Instant) -> Result<u64, Error> {
        let flag = self.fabric.region().word(offset)?;
        // Acquire of pair W (`comm::fabric`), with the Release of the peer's `Connection::write`.
        let is_idle = || flag.load(Ordering::Acquire) == 0;
        while is_idle() {
            if self.fabric.lost(peer)?.is_some() && is_idle() {
                return Err(Error::PeerLost { machine: peer });
            }
            if Instant::now() >= deadline {
                let (step, waited_ms) = ("tell how it is reached by RDMA", start.elapsed().as_millis());
                return Err(Error::PeerMissing { machine: peer, step, waited_ms });
            }
            self.fabric.poll(POSTMAN)?;
            self.fabric.park(POSTMAN, BELL, LOOK_INTERVAL, &mut || is_idle())?;
        }
        // Relaxed: seen above.
        Ok(flag.load(Ordering::Relaxed))
    }
}

fn send(connection: &mut dyn Connection, letter: &[u8], to: usize) -> Result<(), Error> {
    connection.write(letter, to)?;
    connection.ring(BELL)?;
    connection.flush()
}

#[cfg(test)]
mod tests {
    use super::super::Offer;
    use super::*;
    use crate::rack::Way;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn who_cannot_use_its_device_says_so_in_place_of_a_card() {
        let error = Error::Verbs { reason: "no memory may be locked".repeat(10_000) };
        let letter = regret(&error);
        assert_eq!(letter.len(), MAX_CARD_BYTES);
        let reason = regretted(MachineId(3), &letter).unwrap();
        assert!(
            reason.starts_with(&format!("{} has an RDMA device", MachineId(3)))
                && reason.contains("no memory may be locked")
        );
        assert_eq!(regretted(MachineId(3), &[1, 2, 3]), None);
    }

    #[test]
    fn every_card_comes_to_every_peer() {
        let listeners: Vec<Listener> =
            (0..3).map(|_| Listener::bind(([127, 0, 0, 1], 0).into()).expect("binds to loopback")).collect();
        let offers: Vec<_> =
            listeners.iter().map(|listener| Some(Offer { network: String::new(), mail: listener.address() })).collect();
        let card_of = |machine: u16| vec![machine as u8 + 1; 4 + 8000 * usize::from(machine)];
        std::thread::scope(|scope| {
            for (own, listener) in (0u16..).zip(listeners) {
                let offers = &offers;
                scope.spawn(move || {
                    let mut ways = [Way::Verbs; 3];
                    ways[usize::from(own)] = Way::Here;
                    let deadline = Instant::now() + LONG;
                    let place = Place { own: MachineId(own), ways: &ways, offers, threads: &[2, 2, 2], deadline };
                    let peers: Vec<_> = (0..3).filter(|peer| *peer != own).map(MachineId).collect();
                    let mut mail = Mail::open(listener, &place, peers.clone(), Key::from_bytes([7; 32])).unwrap();
                    let cards = mail.exchange(&card_of(own), deadline).unwrap();
                    let expected: Vec<_> = peers.iter().map(|peer| (*peer, card_of(peer.0))).collect();
                    assert_eq!(cards, expected);
                    // Everyone but machine 2 has reached machine 1.
                    let verdict = |from: u16, to: MachineId| if (from, to.0) == (2, 1) { NO } else { YES };
                    mail.tell(Note::Reached, |peer| verdict(own, peer)).unwrap();
                    let told: Vec<_> = peers.iter().map(|peer| (*peer, verdict(peer.0, MachineId(own)))).collect();
                    assert_eq!(mail.hear(Note::Reached, deadline).unwrap(), told);
                });
            }
        });
    }
}
