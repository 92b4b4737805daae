//! Machines that reach one another by RDMA: who can, and how they learn what the fabric `verbs` must know of its peers.
//!
//! What that is depends on the workers of all machines, which follow from everyone's first card. So a machine that has a
//! device says so on its card, with an address where it takes mail; once the cards are there, machines send one another a
//! second card over connections with the program's key, which are closed when all queue pairs are up. Keys for memory
//! never travel in the clear.
//!
//! A device that is up may lead to another network than the peer's. So once everyone's queue pairs are ready, each machine
//! tries to reach each peer, and tells it by mail whether that went well. `auto` takes TCP for a pair where it did not.
//!
//! Invariant: whether a pair uses `verbs` follows from the plan, the two cards, and what both have told one another, so both
//! come to the same.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use comm::secure::Key;
use comm::tcp::{Listener, TcpFabric};
use comm::verbs::{self, Party, Settings, VerbsFabric};
use comm::{Connection, Error, Fabric, MachineId, Region, WORD_BYTES, WorkerId};
use serde::{Deserialize, Serialize};

use crate::bootstrap::{FabricChoice, Plan};
use crate::control::MAX_CARD_BYTES;
use crate::error::StartError;
use crate::rack::Way;

/// The one worker of the connections for mail.
const POSTMAN: WorkerId = WorkerId(0);
/// Park word of who waits for mail; the letter boxes follow, one for each machine.
const BELL: usize = 0;
const BOXES: usize = 64;
/// A card, and behind it the word that says how long it is, which is the flag; then a word for each `Note`.
const BOX_BYTES: usize = MAX_CARD_BYTES + 3 * WORD_BYTES;
/// How often somebody who waits looks whether the others still live.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What a machine with a device says on its card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// InfiniBand, RoCE v1 or v2: only equals can talk.
    network: String,
    /// Where it takes mail.
    mail: SocketAddr,
}

/// A machine that has a device.
pub(crate) struct Post {
    listener: Listener,
    settings: Settings,
    network: String,
    /// How long peers that are ready may take to answer over RDMA.
    patience: Duration,
    /// Whether there is no other way.
    is_asked_for: bool,
}

/// Who is reached by RDMA.
#[derive(Default)]
pub(crate) struct Reached {
    /// `None` if nobody is.
    pub(crate) fabric: Option<VerbsFabric>,
    /// Those who are not, though both have devices, and why.
    pub(crate) missing: Vec<(MachineId, Error)>,
}

/// The place of this machine in the program, once everyone's is known.
pub(crate) struct Place<'a> {
    pub(crate) own: MachineId,
    pub(crate) ways: &'a [Way],
    /// What is on the cards, by machine.
    pub(crate) offers: &'a [Option<Offer>],
    pub(crate) workers: &'a [u16],
    pub(crate) deadline: Instant,
}

impl Post {
    /// Looks for a device where the plan has a use for one. `listen` makes a listener of this host.
    ///
    /// # Errors
    /// Where RDMA was asked for by name: why it cannot be had.
    pub(crate) fn open(
        own: u16,
        plan: &Plan,
        ways: &[Way],
        listen: impl FnOnce() -> Result<Listener, StartError>,
    ) -> Result<Option<Post>, StartError> {
        let is_asked_for = ways.contains(&Way::Verbs);
        let is_welcome =
            plan.fabric == FabricChoice::Auto && ways.contains(&Way::Tcp) && !plan.host_of(own).is_tcp_only;
        if !is_asked_for && !is_welcome {
            return Ok(None);
        }
        let found = settings(own, plan).and_then(|settings| Ok((verbs::network(&settings)?, settings)));
        match found {
            Ok((network, settings)) => {
                // Twice the time in which a peer that is there and can be reached must have answered; longer where the
                // program cannot start without.
                let patience = Duration::from_millis(if is_asked_for { 4 } else { 2 } * plan.silence_ms);
                Ok(Some(Post { listener: listen()?, settings, network, patience, is_asked_for }))
            }
            Err(error) if is_asked_for => Err(StartError::fabric(error, plan)),
            Err(_) => Ok(None), // `auto` takes TCP
        }
    }

    pub(crate) fn offer(&self) -> Offer {
        Offer { network: self.network.clone(), mail: self.listener.address() }
    }

    /// Connects to all peers that are to be reached by RDMA.
    ///
    /// # Errors
    /// Where RDMA was asked for by name, also that a peer is not reached.
    pub(crate) fn connect(self, place: &Place<'_>, key: Key, region: Arc<Region>) -> Result<Reached, Error> {
        let machines = place.ways.len() as u16;
        let peers: Vec<MachineId> = (0..machines).map(MachineId).filter(|peer| place.is_peer(*peer)).collect();
        let party = Party {
            machine: place.own,
            machines,
            workers: place.workers[usize::from(place.own.0)],
            peers: peers.iter().map(|peer| (*peer, place.workers[usize::from(peer.0)])).collect(),
        };
        let prepared = match VerbsFabric::prepare(&self.settings, party, region) {
            Err(error) if self.is_asked_for => return Err(error),
            prepared => prepared,
        };
        let mut mail = Mail::open(self.listener, place, peers.clone(), key)?;
        let card = prepared.as_ref().map_or_else(regret, |prepared| prepared.card().to_vec());
        let cards = mail.exchange(&card, place.deadline)?;
        let mut missing = Vec::new();
        let mut connected = match prepared {
            Ok(mut prepared) => {
                for (peer, reason) in cards.iter().filter_map(|(peer, card)| Some((*peer, regretted(*peer, card)?))) {
                    prepared.leave_out(peer);
                    missing.push((peer, Error::Verbs { reason }));
                }
                Some(prepared.connect(&cards)?)
            }
            Err(error) => {
                let reason = format!("{} has an RDMA device that it cannot use: {error}", place.own);
                missing.extend(peers.iter().map(|peer| (*peer, Error::Verbs { reason: reason.clone() })));
                None
            }
        };
        // Nobody is tried before it is ready, so who is there answers at once.
        mail.tell(Note::Ready, |_| YES)?;
        mail.hear(Note::Ready, place.deadline)?;
        if let Some(connected) = &mut connected {
            missing.extend(connected.greet(self.patience.min(place.left() / 2))?);
        }
        let is_reached = |peer| !missing.iter().any(|(other, _)| *other == peer);
        mail.tell(Note::Reached, |peer| if is_reached(peer) { YES } else { NO })?;
        if !self.is_asked_for || missing.is_empty() {
            for (peer, answer) in mail.hear(Note::Reached, place.deadline)? {
                if answer != YES && missing.iter().all(|(other, _)| *other != peer) {
                    let reason =
                        format!("{peer} does not reach {} by RDMA, though it is reached from there", place.own);
                    missing.push((peer, Error::Verbs { reason }));
                }
            }
        }
        if self.is_asked_for
            && let Some((_, error)) = missing.pop()
        {
            return Err(error);
        }
        let without: Vec<MachineId> = missing.iter().map(|(peer, _)| *peer).collect();
        let is_any_reached = peers.iter().any(|peer| !without.contains(peer));
        let fabric = match connected {
            Some(connected) if is_any_reached => Some(connected.open(&without)?),
            _ => None,
        };
        Ok(Reached { fabric, missing })
    }
}

impl Place<'_> {
    fn is_peer(&self, peer: MachineId) -> bool {
        self.ways[usize::from(peer.0)] == Way::Verbs
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// The ways once the cards are known: by RDMA where `auto` would take TCP and both have devices of one kind.
pub(crate) fn better_ways(plan: &Plan, own: u16, ways: &[Way], offers: &[Option<Offer>]) -> Vec<Way> {
    let network = |machine: usize| offers[machine].as_ref().map(|offer| &offer.network);
    let mine = network(usize::from(own));
    let better = |(peer, way): (usize, &Way)| match way {
        Way::Tcp if plan.fabric == FabricChoice::Auto && mine.is_some() && network(peer) == mine => Way::Verbs,
        way => *way,
    };
    ways.iter().enumerate().map(better).collect()
}

/// What the fabric is told: what the plan says of this host, and how long a peer may be silent.
fn settings(own: u16, plan: &Plan) -> Result<Settings, Error> {
    let host = plan.host_of(own).verbs.clone().unwrap_or_default();
    let defaults = Settings::default();
    let mtu = host.mtu_bytes.map(|bytes| u16::try_from(bytes).unwrap_or(u16::MAX));
    let (device, port, gid_index) = (host.device, host.port, host.gid_index);
    let timeout = timeout(plan.silence_ms, defaults.retries);
    Ok(Settings { device, port, gid_index, mtu, timeout, ..defaults })
}

/// The exponent with which a peer that answers nothing is given up within `silence_ms`: it is sent to once and then
/// `retries` times, each time waiting for 4.096 µs times 2 to the power of this.
fn timeout(silence_ms: u64, retries: u8) -> u8 {
    let unit_ns = 4096 * (u64::from(retries) + 1);
    let units = (silence_ms.saturating_mul(1_000_000) / unit_ns).max(1);
    (units.ilog2() as u8).clamp(8, 22)
}

/// How that begins which is sent instead of a card.
const REGRET: &[u8] = b"no card: ";

/// In place of a card: the own device cannot be used, and why.
fn regret(error: &Error) -> Vec<u8> {
    let mut letter = [REGRET, error.to_string().as_bytes()].concat();
    letter.truncate(MAX_CARD_BYTES);
    letter
}

/// Why a peer cannot use its device, if that is what it sent.
fn regretted(peer: MachineId, card: &[u8]) -> Option<String> {
    let reason = String::from_utf8_lossy(card.strip_prefix(REGRET)?);
    Some(format!("{peer} has an RDMA device that it cannot use: {reason}"))
}

/// What is told by mail after the cards, in a word of its own each.
#[derive(Clone, Copy)]
enum Note {
    /// The own queue pairs are ready for this peer's.
    Ready,
    /// Whether this peer has answered over RDMA.
    Reached,
}

const YES: u64 = 1;
const NO: u64 = 2;

/// Connections for second cards.
struct Mail {
    fabric: TcpFabric,
    connections: Vec<Box<dyn Connection>>,
}

impl Mail {
    fn open(listener: Listener, place: &Place<'_>, peers: Vec<MachineId>, key: Key) -> Result<Mail, Error> {
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
    fn exchange(&mut self, card: &[u8], deadline: Instant) -> Result<Vec<(MachineId, Vec<u8>)>, Error> {
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
    fn tell(&mut self, note: Note, of: impl Fn(MachineId) -> u64) -> Result<(), Error> {
        let to = Self::note_of(self.fabric.machine(), note);
        self.connections.iter_mut().try_for_each(|connection| {
            let word = of(connection.peer()).to_ne_bytes();
            send(&mut **connection, &word, to)
        })
    }

    /// Waits until all peers have told.
    fn hear(&self, note: Note, deadline: Instant) -> Result<Vec<(MachineId, u64)>, Error> {
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
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn offer(network: &str) -> Option<Offer> {
        Some(Offer { network: network.to_owned(), mail: ([192, 0, 2, 1], 4711).into() })
    }

    #[test]
    fn auto_takes_rdma_where_both_have_the_same_kind() {
        let mut plan = Plan::local(4, FabricChoice::Auto, None);
        let ways = [Way::Here, Way::Shm, Way::Tcp, Way::Tcp];
        let offers = [offer("RoCE v2"), offer("RoCE v2"), offer("RoCE v2"), offer("InfiniBand")];
        assert_eq!(better_ways(&plan, 0, &ways, &offers), [Way::Here, Way::Shm, Way::Verbs, Way::Tcp]);
        let offers = [None, offer("RoCE v2"), None, None];
        assert_eq!(better_ways(&plan, 0, &ways, &offers), ways, "nobody has a device");
        plan.fabric = FabricChoice::Tcp;
        let offers = [offer("RoCE v2"), None, offer("RoCE v2"), None];
        assert_eq!(better_ways(&plan, 0, &ways, &offers), ways, "TCP was asked for");
    }

    #[test]
    fn a_silent_peer_is_given_up_within_the_plans_time() {
        for silence_ms in [100, 1_000, 3_000, 20_000] {
            let given_up_ns = 7 * (4096u64 << timeout(silence_ms, 6));
            assert!(given_up_ns <= silence_ms * 1_000_000 && given_up_ns > silence_ms * 400_000, "{silence_ms}");
        }
        assert_eq!((timeout(0, 6), timeout(u64::MAX, 6)), (8, 22));
    }

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
                    let place = Place { own: MachineId(own), ways: &ways, offers, workers: &[1, 1, 1], deadline };
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
