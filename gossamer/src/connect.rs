//! From a place in a program to a fabric: how the machines of a program find one another.
//!
//! 1. what others need to reach this machine goes on its *card*, to the starter
//! 2. the starter answers with the program's key and the cards of all others
//! 3. the workers of each machine follow from the plan and the cards, the layout of all regions from them
//! 4. the fabric is opened; everyone says hello over it: are all the same program?
//!
//! Each step has until the plan's time for the start is over, and says which machine it was waiting for.
//!
//! Invariant: all machines compute workers and layout from the same plan and the same cards; the hello would tell.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use comm::mixed::{MixedFabric, Part};
use comm::secure::Key;
use comm::shm::{self, ShmFabric};
use comm::tcp::{Limits, Listener, TcpFabric};
use comm::{Fabric, MachineId, Region};
use serde::{Deserialize, Serialize};

use crate::bootstrap::{FabricChoice, Plan};
use crate::control::{Control, MAX_CARD_BYTES, Message};
use crate::error::StartError;
use crate::fate::News;
use crate::over_verbs::{Offer, Place, Post, Reached, better_ways};
use crate::rack::Way;
use crate::remote::{Hello, Image, Layout, Slots, exchange};
use crate::workers;

/// What the other machines must know of a machine to connect to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Card {
    /// The cores it may use.
    cores: u16,
    /// Where it listens, if it is to be reached by TCP.
    tcp: Option<SocketAddr>,
    /// What it offers, if it may be reached by RDMA.
    verbs: Option<Offer>,
}

/// A machine that is connected to all others.
pub(crate) struct Connected {
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(crate) layout: Arc<Layout>,
    /// What the machines say of themselves, by machine.
    pub(crate) hellos: Vec<Hello>,
    /// How each is reached from here.
    pub(crate) ways: Vec<Way>,
}

/// Until when the start may take.
struct Deadline {
    start: Instant,
    limit: Duration,
}

impl Deadline {
    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }
}

/// Connects this machine with all others of the plan.
pub(crate) fn connect(
    own: u16,
    plan: &Plan,
    memory: Option<shm::Bootstrap>,
    control: &Control,
    news: &Receiver<News>,
    threads: usize,
    image: &Image,
) -> Result<Connected, StartError> {
    let deadline = Deadline { start: Instant::now(), limit: Duration::from_millis(plan.start_timeout_ms) };
    let ways: Vec<Way> = (0u16..).zip(&plan.machines).map(|(machine, _)| way(plan, own, machine)).collect();
    let post = Post::open(own, plan, &ways, || listen(own, plan))?;
    let listener = if ways.contains(&Way::Tcp) { Some(listen(own, plan)?) } else { None };
    let cores = workers::usable(&workers::cores(plan.host_of(own))?);
    let (tcp, verbs) = (listener.as_ref().map(Listener::address), post.as_ref().map(Post::offer));
    let card = Card { cores: cores.try_into().unwrap_or(u16::MAX), tcp, verbs };
    control.send(&Message::Card { bytes: card.encode() })?;
    let (key, cards) = gather(own, card, plan, news, &deadline)?;

    let cores: Vec<u16> = cards.iter().map(|card| card.cores).collect();
    let offers: Vec<Option<Offer>> = cards.iter().map(|card| card.verbs.clone()).collect();
    let ways = better_ways(plan, own, &ways, &offers);
    let post = post.filter(|_| ways.contains(&Way::Verbs));
    let layout = Arc::new(Layout::new(workers::divide(plan, &cores, threads)?, Slots::of(plan)));
    let threads: Vec<u16> = (0..layout.machines()).map(|machine| layout.threads(machine)).collect();
    let (own, ways, threads) = (MachineId(own), &ways[..], &threads[..]);
    let place = Place { own, ways, offers: &offers, threads, deadline: Instant::now() + deadline.left() };
    let parts = Parts { own, plan, region_bytes: layout.region_bytes(own.0), place, deadline };
    let opened = parts.open(memory, listener, post, &cards, key);
    let (fabric, ways) = opened.map_err(|error| StartError::fabric(error, plan))?;
    let name = plan.host_of(own.0).name.clone();
    let hellos = exchange(&*fabric, &layout, image.id(), name, parts.deadline.left())?;
    Ok(Connected { fabric, layout, hellos, ways })
}

impl Card {
    fn encode(&self) -> Vec<u8> {
        bincode::serde::encode_to_vec(self, bincode::config::standard()).expect("a card is plain data")
    }

    fn decode(bytes: &[u8]) -> Option<Card> {
        let config = bincode::config::standard().with_limit::<MAX_CARD_BYTES>();
        let (card, read) = bincode::serde::decode_from_slice(bytes, config).ok()?;
        (read == bytes.len()).then_some(card)
    }
}

/// Waits for the key and the cards of all others.
fn gather(
    own: u16,
    own_card: Card,
    plan: &Plan,
    news: &Receiver<News>,
    deadline: &Deadline,
) -> Result<(Key, Vec<Card>), StartError> {
    let mut key = None;
    let mut cards = vec![None; plan.machines.len()];
    cards[usize::from(own)] = Some(own_card);
    loop {
        if let (Some(key), true) = (&key, cards.iter().all(Option::is_some)) {
            return Ok((Key::clone(key), cards.into_iter().flatten().collect()));
        }
        match news.recv_timeout(deadline.left()) {
            Ok(News::Secret(secret)) => key = Some(secret),
            Ok(News::Peer(machine, bytes)) => {
                let bad = |what| StartError::BadCard { machine, what };
                let place = cards.get_mut(usize::from(machine)).ok_or(bad("there is no such machine"))?;
                if place.is_some() {
                    return Err(bad("it has come before"));
                }
                *place = Some(Card::decode(&bytes).ok_or(bad("it is none of this version of gossamer"))?);
            }
            // The sender goes only with the whole process, so this is the time's end.
            Err(_) => {
                let missing = (0u16..).zip(&cards).filter(|(_, card)| card.is_none());
                let missing: Vec<String> = missing.map(|(machine, _)| name(plan, machine)).collect();
                let missing = if missing.is_empty() { "the launcher".to_owned() } else { missing.join(", ") };
                return Err(StartError::NoCard { missing, waited_ms: plan.start_timeout_ms });
            }
        }
    }
}

/// "machine 3 on beta"
pub(crate) fn name(plan: &Plan, machine: u16) -> String {
    match plan.machines.get(usize::from(machine)) {
        Some(_) => format!("machine {machine} on {}", plan.host_of(machine).name),
        None => format!("machine {machine}"),
    }
}

/// How `peer` is reached from `own`.
fn way(plan: &Plan, own: u16, peer: u16) -> Way {
    match plan.fabric {
        _ if own == peer => Way::Here,
        _ if plan.memory_group(own).contains(&peer) => Way::Shm,
        FabricChoice::Verbs => Way::Verbs,
        _ => Way::Tcp,
    }
}

/// Where the machines of other hosts, or those of this one by TCP, will connect to.
fn listen(own: u16, plan: &Plan) -> Result<Listener, StartError> {
    let listener = Listener::bind(SocketAddr::new(plan.host_of(own).bind, 0));
    let listener = listener.map_err(|error| StartError::fabric(error, plan))?;
    let silence = Duration::from_millis(plan.silence_ms);
    // The clock is looked at with each heartbeat, and what was heard in between counts from then: so with the limit of 3 s
    // silence is told 2.5 to 3.25 s after its begin, as that of a host is by its launcher.
    let heartbeat = silence / 12;
    Ok(listener.with_limits(Limits { heartbeat, silence: silence - heartbeat }))
}

/// What the fabrics of this machine are made of.
struct Parts<'a> {
    own: MachineId,
    plan: &'a Plan,
    region_bytes: usize,
    /// With the ways that are hoped for.
    place: Place<'a>,
    deadline: Deadline,
}

impl Parts<'_> {
    /// One fabric where all others are reached in the same way; else one for each way, put together; and the ways. All
    /// machines open shared memory first, then RDMA, so nobody waits in a circle.
    fn open(
        &self,
        memory: Option<shm::Bootstrap>,
        listener: Option<Listener>,
        post: Option<Post>,
        cards: &[Card],
        key: Key,
    ) -> Result<(Arc<dyn Fabric>, Vec<Way>), comm::Error> {
        let memory = memory.map(|memory| self.open_shm(memory)).transpose()?;
        let region = match &memory {
            Some(memory) => memory.shared_region(),
            None => Arc::new(Region::anonymous(self.region_bytes)?),
        };
        let reached = post.map(|post| post.connect(&self.place, key.clone(), Arc::clone(&region))).transpose()?;
        let Reached { fabric: verbs, missing } = reached.unwrap_or_default();
        let mut ways = self.place.ways.to_vec();
        missing.iter().for_each(|(peer, _)| ways[usize::from(peer.0)] = Way::Tcp);
        self.warn(&missing);
        let peers =
            |way: Way| (0u16..).zip(&ways).filter(move |(_, found)| **found == way).map(|(peer, _)| MachineId(peer));
        let part = |fabric: Box<dyn Fabric>, way| Part { fabric, peers: peers(way).collect() };
        let mut parts = Vec::new();
        if let Some(memory) = memory {
            parts.push(part(Box::new(memory), Way::Shm));
        }
        if let Some(verbs) = verbs {
            parts.push(part(Box::new(verbs), Way::Verbs));
        }
        if let Some(listener) = listener.filter(|_| ways.contains(&Way::Tcp)) {
            parts.push(part(Box::new(self.open_tcp(listener, &ways, cards, key, region)?), Way::Tcp));
        }
        let fabric: Arc<dyn Fabric> = match parts.pop() {
            Some(only) if parts.is_empty() => Arc::from(only.fabric),
            last => Arc::new(MixedFabric::new(parts.into_iter().chain(last).collect())?),
        };
        Ok((fabric, ways))
    }

    /// Says in one line who is reached by TCP although both have devices; of two machines the first says it.
    fn warn(&self, missing: &[(MachineId, comm::Error)]) {
        let told: Vec<String> = missing
            .iter()
            .filter(|(peer, _)| *peer > self.own)
            .map(|(peer, error)| format!("{} ({error})", name(self.plan, peer.0)))
            .collect();
        if !told.is_empty() {
            let (own, told) = (name(self.plan, self.own.0), told.join(", "));
            let line = format!(
                "gossamer: {own} and these have RDMA devices that do not reach one another, and take TCP: {told}; name \
                 the right devices under `rdma:` in rack.yaml, or write `fabric: tcp`\n"
            );
            let _ = std::io::stderr().write_all(line.as_bytes()); // nobody reads it: the program runs all the same
        }
    }

    fn open_shm(&self, memory: shm::Bootstrap) -> Result<ShmFabric, comm::Error> {
        let group: Vec<MachineId> = self.plan.memory_group(self.own.0).into_iter().map(MachineId).collect();
        let machines = self.place.ways.len() as u16;
        ShmFabric::open_group(memory, &group, machines, self.region_bytes, self.deadline.left())
    }

    fn open_tcp(
        &self,
        listener: Listener,
        ways: &[Way],
        cards: &[Card],
        key: Key,
        region: Arc<Region>,
    ) -> Result<TcpFabric, comm::Error> {
        let address = |(way, card): (&Way, &Card)| card.tcp.filter(|_| *way == Way::Tcp);
        let addresses = ways.iter().zip(cards).map(address).collect();
        TcpFabric::open(listener, self.own, addresses, key, region, self.deadline.left())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn card(cores: u16) -> Card {
        Card { cores, tcp: Some(([192, 0, 2, 1], 4711).into()), verbs: None }
    }

    fn deadline(limit: Duration) -> Deadline {
        Deadline { start: Instant::now(), limit }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn cards_survive_and_damaged_ones_are_refused() {
        let bytes = card(7).encode();
        assert_eq!(Card::decode(&bytes), Some(card(7)));
        for len in 0..bytes.len() {
            assert_eq!(Card::decode(&bytes[..len]), None);
        }
        assert_eq!(Card::decode(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn the_key_and_all_cards_are_waited_for_in_any_order() {
        let plan = Plan::local(3, FabricChoice::Tcp, None);
        let (tell, news) = mpsc::channel();
        tell.send(News::Peer(2, card(2).encode())).unwrap();
        tell.send(News::Secret(Key::from_bytes([5; 32]))).unwrap();
        tell.send(News::Peer(0, card(0).encode())).unwrap();
        let (key, cards) = gather(1, card(1), &plan, &news, &deadline(LONG)).unwrap();
        assert_eq!((key, cards), (Key::from_bytes([5; 32]), vec![card(0), card(1), card(2)]));
    }

    #[test]
    fn cards_that_do_not_come_or_fit_are_named() {
        let mut plan = Plan::local(3, FabricChoice::Tcp, None);
        plan.hosts[0].name = "alpha".into();
        let gather_from = |news: &[(u16, Vec<u8>)]| {
            let (tell, heard) = mpsc::channel();
            news.iter().for_each(|(machine, bytes)| tell.send(News::Peer(*machine, bytes.clone())).unwrap());
            gather(1, card(1), &plan, &heard, &deadline(Duration::from_millis(10))).unwrap_err().to_string()
        };
        let text = gather_from(&[(0, card(0).encode())]);
        assert!(text.contains("no word came from machine 2 on alpha within"), "{text}");
        let text = gather_from(&[(0, card(0).encode()), (2, card(2).encode())]);
        assert!(text.contains("no word came from the launcher"), "{text}");
        assert!(gather_from(&[(0, vec![1, 2, 3])]).contains("card of machine 0 is of no use: it is none of this"));
        assert!(gather_from(&[(1, card(1).encode())]).contains("it has come before"));
        assert!(gather_from(&[(3, card(1).encode())]).contains("there is no such machine"));
    }

    #[test]
    fn each_pair_has_the_best_way() {
        let mut plan = Plan::local(4, FabricChoice::Auto, None);
        plan.hosts.push(plan.hosts[0].clone());
        plan.machines[3].host = 1;
        let ways = |plan: &Plan, own| (0..4).map(|peer| way(plan, own, peer)).collect::<Vec<_>>();
        assert_eq!(ways(&plan, 1), [Way::Shm, Way::Here, Way::Shm, Way::Tcp]);
        assert_eq!(ways(&plan, 3), [Way::Tcp, Way::Tcp, Way::Tcp, Way::Here]);
        plan.fabric = FabricChoice::Tcp;
        assert_eq!(ways(&plan, 0), [Way::Here, Way::Tcp, Way::Tcp, Way::Tcp]);
        plan.fabric = FabricChoice::Verbs;
        assert_eq!(ways(&plan, 0), [Way::Here, Way::Verbs, Way::Verbs, Way::Verbs]);
    }
}
