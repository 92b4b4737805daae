//! Resources of a machine before it knows its peers' endpoints: registered memory, completion queues, queue pairs.
//!
//! Computes their numbers, checks the limits of the device, and creates them. Not here: the content of endpoints
//! (`terms`), connecting (`open`).

use super::Party;
use super::board::Board;
use super::raw::{Access, CompletionChannel, CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, QueueSizes};
use super::settings::Settings;
use super::survey::{Choice, choose};
use crate::error::Error;
use crate::ids::MachineId;
use crate::memory::Region;
use std::sync::Arc;

/// Wake messages that a worker's queue pair has room for before the I/O thread must take one; and the most of one that
/// all workers share.
const WAKE_MESSAGES: u32 = 8;
const SHARED_WAKE_MESSAGES_MAX: u32 = 32;
/// Room for the I/O thread's own requests to a peer: one is in flight at a time.
const BEATS: u32 = 4;
/// Bytes of memory for the I/O thread's writes.
const BEAT_BYTES: usize = 64;

/// The queue pairs to one peer.
pub(super) struct PeerQueues {
    pub(super) peer: MachineId,
    pub(super) lanes: usize,
    pub(super) heartbeat: QueuePair,
    pub(super) beat_memory: Arc<MemoryRegion>,
    /// One queue pair for each lane of either side, or one that all workers share.
    pub(super) queues: Vec<Arc<QueuePair>>,
    /// Completion queue and staging memory of each own lane to this peer.
    pub(super) sends: Vec<Arc<CompletionQueue>>,
    pub(super) staging: Vec<Arc<MemoryRegion>>,
}

/// A machine's own resources, independent of its peers.
pub(super) struct Own {
    /// Completion queues of the own lanes; none where each peer has its own.
    pub(super) sends: Vec<Arc<CompletionQueue>>,
    pub(super) queue: Arc<CompletionQueue>,
    pub(super) channel: Arc<CompletionChannel>,
    pub(super) memory: Arc<MemoryRegion>,
    pub(super) board: Arc<Board>,
    pub(super) board_memory: Arc<MemoryRegion>,
    pub(super) choice: Choice,
    pub(super) party: Party,
    pub(super) settings: Settings,
    pub(super) registered_bytes: u64,
}

/// Registers memory, and counts it.
struct Registrar {
    domain: Arc<ProtectionDomain>,
    bytes: u64,
}

impl Registrar {
    fn register(&mut self, region: Arc<Region>, access: Access) -> Result<Arc<MemoryRegion>, Error> {
        self.bytes += region.bytes() as u64;
        MemoryRegion::register(&self.domain, region, access)
    }
}

/// Makes the resources of a machine: its own, and the queue pairs to each peer.
pub(super) fn make(settings: &Settings, party: Party, region: Arc<Region>) -> Result<(Own, Vec<PeerQueues>), Error> {
    settings.check()?;
    party.check()?;
    let choice = choose(settings)?;
    let own_lanes = if party.is_shared { 0 } else { usize::from(party.workers) + 1 };
    let lanes_of = |workers: u16| usize::from(workers) + 1;
    let (depth, receives) = fit(settings, &party, &choice)?;
    let wake_messages = wake_messages(&party);
    let domain = ProtectionDomain::new(&choice.device)?;
    let mut registrar = Registrar { domain: Arc::clone(&domain), bytes: 0 };
    let memory = registrar.register(region, Access::Written)?;
    let board = Arc::new(Board::new(party.peers.iter().map(|(peer, workers)| (*peer, lanes_of(*workers))))?);
    let board_memory = registrar.register(Arc::clone(board.memory()), Access::Shared)?;
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
        let sends = match party.is_shared {
            true => vec![CompletionQueue::new(&choice.device, depth + 1, None)?],
            false => sends.clone(),
        };
        let mut queues = Vec::new();
        for lane in 0..queue_pairs_to(&party, workers) as usize {
            // The peer has a lane here that this machine lacks: nothing is sent on it.
            let (sends, depth) = sends.get(lane).map_or((&queue, 1), |sends| (sends, depth));
            let sizes = QueueSizes { sends: depth, receives: wake_messages, inline_bytes: settings.inline_bytes };
            let pair = QueuePair::new(&domain, sends, &queue, sizes)?;
            pair.initialise(choice.port)?;
            (0..wake_messages).try_for_each(|_| pair.post_receive())?;
            queues.push(Arc::new(pair));
        }
        let mut staging = Vec::with_capacity(sends.len());
        for _ in &sends {
            staging.push(registrar.register(Arc::new(Region::anonymous(settings.staging_bytes)?), Access::Staging)?);
        }
        let beat_memory = registrar.register(Arc::new(Region::anonymous(BEAT_BYTES)?), Access::Staging)?;
        ways.push(PeerQueues { peer, lanes: lanes_of(workers), heartbeat, beat_memory, queues, sends, staging });
    }
    let (settings, registered_bytes) = (Settings { queue_depth: depth, ..settings.clone() }, registrar.bytes);
    let own = Own { sends, queue, channel, memory, board, board_memory, choice, party, settings, registered_bytes };
    Ok((own, ways))
}

/// Returns the number of queue pairs to a peer with so many workers, but for that of heartbeats.
fn queue_pairs_to(party: &Party, workers: u16) -> u32 {
    if party.is_shared { 1 } else { u32::from(party.workers.max(workers)) + 1 }
}

/// Returns the number of wake messages that a queue pair has room for.
fn wake_messages(party: &Party) -> u32 {
    match party.is_shared {
        true => (u32::from(party.workers) + 1).clamp(WAKE_MESSAGES, SHARED_WAKE_MESSAGES_MAX),
        false => WAKE_MESSAGES,
    }
}

/// Returns the depth of queues, and the length of the I/O thread's completion queue, on this device.
fn fit(settings: &Settings, party: &Party, choice: &Choice) -> Result<(u32, u32), Error> {
    let peers = party.peers.len() as u32;
    let queue_pairs: u32 = party.peers.iter().map(|(_, workers)| queue_pairs_to(party, *workers) + 1).sum();
    let (device, limits) = (choice.device.name(), choice.limits);
    if queue_pairs as usize > limits.queue_pairs {
        let limit = limits.queue_pairs;
        return Err(Error::verbs(format!(
            "{queue_pairs} queue pairs are needed, {device} has {limit}: use fewer workers"
        )));
    }
    let depth = settings.queue_depth.min(limits.work_requests);
    let receives = queue_pairs * wake_messages(party) + peers * BEATS;
    let peers_of_lane = if party.is_shared { 1 } else { u64::from(peers) };
    let longest = (u64::from(depth) * peers_of_lane + 1).max(u64::from(receives));
    if longest > u64::from(limits.completions) {
        let limit = limits.completions;
        return Err(Error::verbs(format!(
            "a completion queue of {longest} entries is needed, {device} has {limit}: lower queue_depth, or use fewer \
             workers"
        )));
    }
    Ok((depth, receives))
}
