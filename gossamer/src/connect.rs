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

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use comm::Fabric;
use comm::secure::Key;
use comm::shm::{self, ShmFabric};
use serde::{Deserialize, Serialize};

use crate::bootstrap::{FabricChoice, Plan};
use crate::control::{Control, MAX_CARD_BYTES, Message};
use crate::error::StartError;
use crate::fate::News;
use crate::rack::Way;
use crate::remote::{Hello, Image, Layout, exchange};
use crate::workers;

/// What the other machines must know of a machine to connect to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Card {
    /// The cores it may use.
    cores: u16,
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
    let own_card = Card { cores: workers::cores(plan.host_of(own))?.len().try_into().unwrap_or(u16::MAX) };
    control.send(&Message::Card { bytes: own_card.encode() })?;
    let (key, cards) = gather(own, own_card, plan, news, &deadline)?;

    let cores: Vec<u16> = cards.iter().map(|card| card.cores).collect();
    let layout = Arc::new(Layout::new(workers::divide(plan, &cores, threads)?));
    let fabric = open(own, plan, memory, &key, &layout, &deadline)?;
    let name = plan.host_of(own).name.clone();
    let hellos = exchange(&*fabric, &layout, image.id(), name, deadline.left())?;
    let ways = (0..layout.machines()).map(|machine| way(plan, own, machine)).collect();
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

fn open(
    own: u16,
    plan: &Plan,
    memory: Option<shm::Bootstrap>,
    _key: &Key,
    layout: &Layout,
    deadline: &Deadline,
) -> Result<Arc<dyn Fabric>, StartError> {
    let is_whole = plan.memory_group(own).len() == plan.machines.len();
    let Some(memory) = memory.filter(|_| is_whole) else { return Err(StartError::NoFabric(plan.fabric)) };
    let fabric = ShmFabric::open(memory, layout.region_bytes(own), deadline.left());
    Ok(Arc::new(fabric.map_err(|error| StartError::fabric(error, plan))?))
}
