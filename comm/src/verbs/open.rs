//! Coming up: resources and a card first, then queue pairs connected to those on the peers' cards.
//!
//! Here: how many of what, and in which order. Not here: running (`mod`, `core`, `attendant`).
//!
//! Between two machines there is a queue pair for each lane that either has (so a lane writes on its
//! own, and both directions share it), and one for heartbeats, which is connected last: who gets an
//! acknowledgement of its first heartbeat knows that all queue pairs of the peer are ready.

use super::attendant::{Attendant, Beat};
use super::board::{Board, HEARTBEAT};
use super::card::{Card, Line, Remote};
use super::core::Core;
use super::fates::{Fates, failure};
use super::lane::{Lane, tag_of};
use super::link::{Bounds, Far, Link};
use super::raw::{
    Completion, CompletionChannel, CompletionQueue, MemoryRegion, Path, ProtectionDomain, QueuePair, QueueSizes, Works,
};
use super::settings::{Flag, Settings};
use super::survey::{Choice, GidKind, choose};
use super::{Party, VerbsFabric};
use crate::error::Error;
use crate::fabric::MachineId;
use crate::memory::Region;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bells for which a queue pair has room before the attendant must have taken one.
const BELLS: u32 = 8;
/// Room for the attendant's own requests to a peer: one is in flight at a time.
const BEATS: u32 = 4;
/// Memory for what the attendant writes.
const BEAT_BYTES: usize = 64;
/// Longest wait between two looks while peers come up.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The queue pairs to one peer.
struct Way {
    peer: MachineId,
    lanes: usize,
    heartbeat: QueuePair,
    beat_memory: Arc<MemoryRegion>,
    /// One for each lane of either side.
    queues: Vec<Arc<QueuePair>>,
    /// One for each own lane.
    staging: Vec<Arc<MemoryRegion>>,
}

/// A machine that has all it needs but its peers' cards.
pub struct Prepared {
    card: Vec<u8>,
    ways: Vec<Way>,
    /// Of the own lanes.
    sends: Vec<Arc<CompletionQueue>>,
    queue: Arc<CompletionQueue>,
    channel: Arc<CompletionChannel>,
    memory: Arc<MemoryRegion>,
    board: Arc<Board>,
    board_memory: Arc<MemoryRegion>,
    choice: Choice,
    party: Party,
    settings: Settings,
    registered_bytes: u64,
}

/// Registers memory, and counts it.
struct Registrar {
    domain: Arc<ProtectionDomain>,
    bytes: u64,
}

impl Registrar {
    fn register(&mut self, region: Arc<Region>, is_written_by_peers: bool) -> Result<Arc<MemoryRegion>, Error> {
        self.bytes += region.bytes() as u64;
        MemoryRegion::register(&self.domain, region, is_written_by_peers)
    }
}

pub(super) fn prepare(settings: &Settings, party: Party, region: Arc<Region>) -> Result<Prepared, Error> {
    settings.check()?;
    party.check()?;
    let choice = choose(settings)?;
    let own_lanes = usize::from(party.workers) + 1;
    let lanes_of = |workers: u16| usize::from(workers) + 1;
    let (depth, receives) = fit(settings, &party, &choice)?;
    let domain = ProtectionDomain::new(&choice.device)?;
    let mut registrar = Registrar { domain: Arc::clone(&domain), bytes: 0 };
    let memory = registrar.register(region, true)?;
    let board = Arc::new(Board::new(party.peers.iter().map(|(peer, workers)| (*peer, lanes_of(*workers))))?);
    let board_memory = registrar.register(Arc::clone(board.memory()), true)?;
    let channel = CompletionChannel::new(&choice.device)?;
    let queue = CompletionQueue::new(&choice.device, receives, Some(Arc::clone(&channel)))?;
    let peers = party.peers.len() as u32;
    let new_sends = |_| CompletionQueue::new(&choice.device, depth * peers + 1, None);
    let sends = (0..own_lanes).map(new_sends).collect::<Result<Vec<_>, _>>()?;

    let mut ways = Vec::with_capacity(party.peers.len());
    for &(peer, workers) in &party.peers {
        let beat_sizes = QueueSizes { sends: BEATS, receives: 1, inline_bytes: 0 };
        let heartbeat = QueuePair::new(&domain, &queue, &queue, beat_sizes)?;
        heartbeat.initialise(choice.port)?;
        let mut queues = Vec::new();
        for lane in 0..own_lanes.max(lanes_of(workers)) {
            // A lane that only the peer has sends nothing here.
            let (sends, depth) = sends.get(lane).map_or((&queue, 1), |sends| (sends, depth));
            let sizes = QueueSizes { sends: depth, receives: BELLS, inline_bytes: settings.inline_bytes };
            let pair = QueuePair::new(&domain, sends, &queue, sizes)?;
            pair.initialise(choice.port)?;
            (0..BELLS).try_for_each(|_| pair.post_receive())?;
            queues.push(Arc::new(pair));
        }
        let mut staging = Vec::with_capacity(own_lanes);
        for _ in 0..own_lanes {
            staging.push(registrar.register(Arc::new(Region::anonymous(settings.staging_bytes)?), false)?);
        }
        let beat_memory = registrar.register(Arc::new(Region::anonymous(BEAT_BYTES)?), false)?;
        ways.push(Way { peer, lanes: lanes_of(workers), heartbeat, beat_memory, queues, staging });
    }
    let card = card(&party, &choice, &ways, &memory, &board, &board_memory).encode()?;
    let (settings, registered_bytes) = (Settings { queue_depth: depth, ..settings.clone() }, registrar.bytes);
    Ok(Prepared {
        card,
        ways,
        sends,
        queue,
        channel,
        memory,
        board,
        board_memory,
        choice,
        party,
        settings,
        registered_bytes,
    })
}

/// How deep queues may be, and how long the attendant's completion queue, on this device.
fn fit(settings: &Settings, party: &Party, choice: &Choice) -> Result<(u32, u32), Error> {
    let peers = party.peers.len() as u32;
    let own = u32::from(party.workers) + 1;
    let queue_pairs: u32 = party.peers.iter().map(|(_, workers)| own.max(u32::from(*workers) + 1) + 1).sum();
    let (device, limits) = (choice.device.name(), choice.limits);
    if queue_pairs as usize > limits.queue_pairs {
        let limit = limits.queue_pairs;
        return Err(Error::verbs(format!(
            "{queue_pairs} queue pairs are needed, {device} has {limit}: use fewer workers"
        )));
    }
    let depth = settings.queue_depth.min(limits.works);
    let receives = queue_pairs * BELLS + peers * BEATS;
    let longest = (u64::from(depth) * u64::from(peers) + 1).max(u64::from(receives));
    if longest > u64::from(limits.completions) {
        let limit = limits.completions;
        return Err(Error::verbs(format!(
            "a completion queue of {longest} entries is needed, {device} has {limit}: lower queue_depth, or use fewer workers"
        )));
    }
    Ok((depth, receives))
}

fn card(
    party: &Party,
    choice: &Choice,
    ways: &[Way],
    memory: &MemoryRegion,
    board: &Board,
    board_memory: &MemoryRegion,
) -> Card {
    let remote = |memory: &MemoryRegion| Remote {
        address: memory.region().base().expose_provenance() as u64,
        key: memory.remote_key(),
    };
    let line = |way: &Way| Line {
        peer: way.peer,
        board_part: board.part(way.peer).unwrap_or(0) as u32,
        queue_pairs: std::iter::once(&way.heartbeat)
            .chain(way.queues.iter().map(|queue| &**queue))
            .map(QueuePair::number)
            .collect(),
    };
    Card {
        machine: party.machine,
        machines: party.machines,
        lanes: party.workers + 1,
        is_ethernet: choice.is_ethernet,
        is_in_order: ways.iter().all(|way| way.heartbeat.places_in_order()),
        is_routable: choice.gid.kind == GidKind::RoceV2,
        mtu: choice.mtu as u8,
        gid: choice.gid.address.octets(),
        lid: choice.lid,
        region: remote(memory),
        region_bytes: memory.region().bytes() as u64,
        board: remote(board_memory),
        lines: ways.iter().map(line).collect(),
    }
}

impl Prepared {
    /// What every peer has to get: at most 16 KiB, opaque, and not secret, though who has it and is on
    /// the same network can write this machine's memory (docs/rdma.md).
    pub fn card(&self) -> &[u8] {
        &self.card
    }

    /// Makes the queue pairs ready by the peers' cards: from here on peers can reach this machine.
    ///
    /// # Errors
    /// [`Error::Verbs`]: a card is missing or does not fit. That the way to a peer cannot be made ready is told by
    /// [`Connected::greet`].
    pub fn connect(self, cards: &[(MachineId, Vec<u8>)]) -> Result<Connected, Error> {
        let mut routes = Vec::with_capacity(self.ways.len());
        for way in self.ways {
            let card = cards.iter().find(|(machine, _)| *machine == way.peer);
            let card = card.ok_or_else(|| Error::verbs(format!("{} has sent no card", way.peer)))?;
            let card = Card::decode(way.peer, &card.1)?;
            let line = matching(&card, &self.party, &way, &self.choice)?;
            let far = far(&card, line, &way, &self.settings)?;
            let path = path(&card, &self.settings, &self.choice);
            let mut queues = way.queues.iter().zip(&line.queue_pairs[1..]);
            let ready =
                queues.try_for_each(|(queue, number)| queue.connect(&Path { peer_queue_pair: *number, ..path }));
            let path = Path { peer_queue_pair: line.queue_pairs[0], ..path };
            let trouble = ready.and_then(|()| way.heartbeat.connect(&path)).err();
            let works = Works::new(way.beat_memory, 1, 0, Beat::tag(way.peer));
            let (queue, board) = (way.heartbeat, far.board);
            let beat = Beat { peer: way.peer, queue, works, board, is_in_flight: false, is_dead: false, beats: 0 };
            routes.push(Route { far, beat, path, trouble, queues: way.queues, staging: way.staging });
        }
        Ok(Connected {
            routes,
            sends: self.sends,
            queue: self.queue,
            channel: self.channel,
            memory: self.memory,
            board: self.board,
            board_memory: self.board_memory,
            choice: self.choice,
            party: self.party,
            settings: self.settings,
            registered_bytes: self.registered_bytes,
        })
    }

    /// Connects to the peers by their cards, and waits until all of them have connected as well.
    ///
    /// # Errors
    /// As [`Prepared::connect`]; and what [`Connected::greet`] tells of the first peer that is not reached within `timeout`:
    /// [`Error::PeerMissing`] where it does not answer.
    pub fn open(self, cards: &[(MachineId, Vec<u8>)], timeout: Duration) -> Result<VerbsFabric, Error> {
        let mut connected = self.connect(cards)?;
        match connected.greet(timeout)?.pop() {
            Some((_, error)) => Err(error),
            None => connected.open(&[]),
        }
    }
}

/// The way to one peer, once its card is known.
struct Route {
    far: Far,
    beat: Beat,
    /// Of the heartbeats' queue pair.
    path: Path,
    /// Why it cannot be reached.
    trouble: Option<Error>,
    /// As in [`Way`].
    queues: Vec<Arc<QueuePair>>,
    staging: Vec<Arc<MemoryRegion>>,
}

/// A machine whose queue pairs are ready, and that may find out which of its peers it reaches.
pub struct Connected {
    routes: Vec<Route>,
    sends: Vec<Arc<CompletionQueue>>,
    queue: Arc<CompletionQueue>,
    channel: Arc<CompletionChannel>,
    memory: Arc<MemoryRegion>,
    board: Arc<Board>,
    board_memory: Arc<MemoryRegion>,
    choice: Choice,
    party: Party,
    settings: Settings,
    registered_bytes: u64,
}

impl Connected {
    /// Sends every peer its first heartbeat until it is acknowledged, at most for `timeout`; tells which peers were not
    /// reached, and why. A peer that is not ready yet does not answer; then the queue pair, which has given up, begins anew.
    ///
    /// # Errors
    /// The own device fails.
    pub fn greet(&mut self, timeout: Duration) -> Result<Vec<(MachineId, Error)>, Error> {
        let deadline = Instant::now() + timeout;
        let mut failures: BTreeMap<MachineId, u32> = BTreeMap::new();
        let is_missing = |route: &Route| route.trouble.is_none() && route.beat.beats == 0;
        while Instant::now() < deadline && self.routes.iter().any(is_missing) {
            for route in self.routes.iter_mut().filter(|route| is_missing(route) && !route.beat.is_in_flight) {
                route.beat.write(HEARTBEAT, 1)?;
            }
            self.queue.arm()?;
            let mut again = Vec::new();
            let routes = &mut self.routes;
            self.queue.poll(&mut |completion: Completion| {
                let found = routes.iter_mut().enumerate().find(|(_, route)| Beat::tag(route.far.peer) == completion.id);
                let Some((index, route)) = found else { return };
                route.beat.is_in_flight = false;
                if completion.status == 0 {
                    route.beat.beats = 1;
                } else {
                    failures.insert(route.far.peer, completion.status);
                    again.push(index);
                }
            })?;
            for index in again {
                let Route { beat, path, .. } = &self.routes[index];
                beat.queue.reset()?;
                beat.queue.initialise(path.port)?;
                beat.queue.connect(path)?;
            }
            if self.routes.iter().any(is_missing) {
                wait(&self.channel)?;
            }
        }
        let told = self.routes.iter_mut().filter_map(|route| {
            let peer = route.far.peer;
            let trouble = match (route.trouble.take(), route.beat.beats) {
                (Some(trouble), _) => Error::verbs(format!("{peer} cannot be reached: {trouble}")),
                (None, 0) => unanswered(peer, failures.get(&peer).copied().unwrap_or(0), timeout),
                (None, _) => return None,
            };
            Some((peer, trouble))
        });
        Ok(told.collect())
    }

    /// The fabric with all peers but these, which must not be connected to.
    ///
    /// # Errors
    /// [`Error::System`] where there can be no further thread.
    pub fn open(self, without: &[MachineId]) -> Result<VerbsFabric, Error> {
        let fates = Arc::new(Fates::new(Arc::clone(&self.board)));
        let machines = usize::from(self.party.machines);
        let mut links: Vec<Vec<Option<Link>>> =
            self.sends.iter().map(|_| (0..machines).map(|_| None).collect()).collect();
        let mut receivers = HashMap::new();
        let mut region_bytes = BTreeMap::new();
        let mut beats = Vec::new();
        let bounds = bounds(&self.settings, &self.choice);
        for route in self.routes.into_iter().filter(|route| !without.contains(&route.far.peer)) {
            let Far { peer, region_bytes: bytes, .. } = route.far;
            region_bytes.insert(peer, bytes);
            for (lane, staging) in route.staging.into_iter().enumerate() {
                let queue = &route.queues[lane];
                let chain = (self.settings.queue_depth / 4).max(1) as usize;
                let works = Works::new(staging, chain, queue.inline_bytes(), tag_of(peer));
                let link = Link::new(route.far, Arc::clone(queue), works, Arc::clone(&self.board), bounds);
                links[lane][usize::from(peer.0)] = Some(link);
            }
            receivers.extend(route.queues.into_iter().map(|queue| (queue.number(), (peer, queue))));
            beats.push(route.beat);
        }
        let lanes = links.into_iter().zip(self.sends).enumerate();
        let lanes = lanes.map(|(index, (links, sends))| Mutex::new(Lane::new(index, sends, links, Arc::clone(&fates))));
        let lanes: Vec<_> = lanes.collect();
        let core = Core {
            machine: self.party.machine,
            machines: self.party.machines,
            port: self.choice.port,
            parked_at: lanes.iter().map(|_| AtomicUsize::new(usize::MAX)).collect(),
            lanes,
            receivers,
            memory: self.memory,
            _board: self.board_memory,
            region_bytes,
            fates,
            device: self.choice.device,
            waker: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(Error::system("making an eventfd"))?,
            is_leaving: AtomicBool::new(false),
            bells_received: AtomicU64::new(0),
            registered_bytes: self.registered_bytes,
        };
        let core = Arc::new(core);
        VerbsFabric::start(Attendant { core, channel: self.channel, queue: self.queue, beats })
    }
}

/// Why a peer was not reached: other failures than silence have a cause of their own.
fn unanswered(peer: MachineId, status: u32, timeout: Duration) -> Error {
    if status != 0 && status != 12 {
        return Error::verbs(format!("{peer} cannot be reached: {}", failure(status)));
    }
    let step = "connect its queue pairs (is UDP port 4791 open between the hosts?)";
    Error::PeerMissing { machine: peer, step, waited_ms: timeout.as_millis() }
}

/// The peer's line about this machine, once it is clear that both fit together.
fn matching<'a>(card: &'a Card, party: &Party, way: &Way, choice: &Choice) -> Result<&'a Line, Error> {
    let (own, peer) = (party.machine, way.peer);
    let refuse = |what: String| Err(Error::verbs(format!("{own} and {peer} do not fit together: {what}")));
    if card.machines != party.machines {
        return refuse(format!("one is of a program of {} machines, the other of {}", party.machines, card.machines));
    }
    if usize::from(card.lanes) != way.lanes {
        return refuse(format!("it has {} workers, not {}", card.lanes.saturating_sub(1), way.lanes - 1));
    }
    if card.is_ethernet != choice.is_ethernet {
        return refuse("one is on InfiniBand, the other on Ethernet (RoCE): set device in rack.yaml".to_owned());
    }
    if card.is_ethernet && card.is_routable != (choice.gid.kind == GidKind::RoceV2) {
        return refuse("one uses RoCE v1, the other v2: set gid_index in rack.yaml".to_owned());
    }
    let line = card.lines.iter().find(|line| line.peer == own);
    match line.filter(|line| line.queue_pairs.len() == 1 + way.queues.len()) {
        Some(line) => Ok(line),
        None => refuse(format!("its card does not offer the {} queue pairs that {own} expects", 1 + way.queues.len())),
    }
}

fn path(card: &Card, settings: &Settings, choice: &Choice) -> Path {
    Path {
        port: choice.port,
        gid_index: choice.gid.index,
        mtu: choice.mtu.min(u32::from(card.mtu)).clamp(1, 5),
        peer_queue_pair: 0,
        peer_gid: card.gid,
        peer_lid: card.lid,
        is_global: choice.is_ethernet || (choice.lid == 0 || card.lid == 0),
        traffic_class: settings.traffic_class,
        service_level: settings.service_level,
        timeout: settings.timeout,
        retries: settings.retries,
    }
}

fn far(card: &Card, line: &Line, way: &Way, settings: &Settings) -> Result<Far, Error> {
    let region_bytes = usize::try_from(card.region_bytes)
        .map_err(|_| Error::verbs(format!("{} tells a region of {} bytes", way.peer, card.region_bytes)))?;
    Ok(Far {
        peer: way.peer,
        region: card.region,
        region_bytes,
        board: Remote { address: card.board.address.wrapping_add(u64::from(line.board_part)), key: card.board.key },
        lanes: way.lanes,
        has_second_write: match settings.flag {
            Flag::Auto => !card.is_in_order,
            Flag::SameWrite => false,
            Flag::SecondWrite => true,
        },
    })
}

fn bounds(settings: &Settings, choice: &Choice) -> Bounds {
    Bounds {
        queue_depth: u64::from(settings.queue_depth),
        signal_every: u64::from(settings.signal_every.min(settings.queue_depth / 4).max(1)),
        message_bytes: choice.message_bytes.max(4096),
    }
}

/// Until a completion is announced, or a moment has passed.
fn wait(channel: &CompletionChannel) -> Result<(), Error> {
    let mut fds = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)];
    match poll(&mut fds, Timespec::try_from(LOOK_INTERVAL).ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(Error::system("waiting for the peers")(error)),
    }
    while channel.take() {}
    Ok(())
}
