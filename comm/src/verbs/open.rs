//! Coming up: queue pairs connected to those on the peers' cards.
//!
//! Here: in which order. Not here: how many of what (`resources`), what the cards say (`terms`), running (`mod`, `core`, `attendant`).
//!
//! Between two machines there is a queue pair for each lane that either has (so a lane writes on its
//! own, and both directions share it), and one for heartbeats, which is connected last: who gets an
//! acknowledgement of its first heartbeat knows that all queue pairs of the peer are ready.

use super::attendant::{Attendant, Beat};
use super::board::HEARTBEAT;
use super::card::Card;
use super::core::Core;
use super::fates::{Fates, failure};
use super::lane::{Lane, tag_of};
use super::link::{Far, Link};
use super::raw::{Completion, CompletionChannel, MemoryRegion, Path, QueuePair, Works};
use super::resources::{Own, Way};
use super::{VerbsFabric, terms};
use crate::error::Error;
use crate::fabric::MachineId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest wait between two looks while peers come up.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A machine that has all it needs but its peers' cards.
pub struct Prepared {
    pub(super) card: Vec<u8>,
    pub(super) ways: Vec<Way>,
    pub(super) own: Own,
}

impl Prepared {
    /// What every peer has to get: at most 16 KiB, opaque, and not secret, though who has it and is on
    /// the same network can write this machine's memory (docs/rdma.md).
    pub fn card(&self) -> &[u8] {
        &self.card
    }

    /// There will be no way to this peer, which has no card.
    pub fn leave_out(&mut self, peer: MachineId) {
        self.ways.retain(|way| way.peer != peer);
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
            let line = terms::matching(&card, &self.own.party, &way, &self.own.choice)?;
            let far = terms::far(&card, line, &way, &self.own.settings)?;
            let path = terms::path(&card, &self.own.settings, &self.own.choice);
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
        Ok(Connected { routes, own: self.own })
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
    own: Own,
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
            self.own.queue.arm()?;
            let mut again = Vec::new();
            let routes = &mut self.routes;
            self.own.queue.poll(&mut |completion: Completion| {
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
                wait(&self.own.channel)?;
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
        let Own { sends, queue, channel, memory, board, board_memory, choice, party, settings, registered_bytes } =
            self.own;
        let fates = Arc::new(Fates::new(Arc::clone(&board)));
        let machines = usize::from(party.machines);
        let mut links: Vec<Vec<Option<Link>>> = sends.iter().map(|_| (0..machines).map(|_| None).collect()).collect();
        let mut receivers = HashMap::new();
        let mut region_bytes = BTreeMap::new();
        let mut beats = Vec::new();
        let bounds = terms::bounds(&settings, &choice);
        for route in self.routes.into_iter().filter(|route| !without.contains(&route.far.peer)) {
            let Far { peer, region_bytes: bytes, .. } = route.far;
            region_bytes.insert(peer, bytes);
            for (lane, staging) in route.staging.into_iter().enumerate() {
                let pair = &route.queues[lane];
                let chain = (settings.queue_depth / 4).max(1) as usize;
                let works = Works::new(staging, chain, pair.inline_bytes(), tag_of(peer));
                let link = Link::new(route.far, Arc::clone(pair), works, Arc::clone(&board), bounds);
                links[lane][usize::from(peer.0)] = Some(link);
            }
            receivers.extend(route.queues.into_iter().map(|queue| (queue.number(), (peer, queue))));
            beats.push(route.beat);
        }
        let lanes = links.into_iter().zip(sends).enumerate();
        let lanes = lanes.map(|(index, (links, sends))| Mutex::new(Lane::new(index, sends, links, Arc::clone(&fates))));
        let lanes: Vec<_> = lanes.collect();
        let core = Core {
            machine: party.machine,
            machines: party.machines,
            port: choice.port,
            parked_at: lanes.iter().map(|_| AtomicUsize::new(usize::MAX)).collect(),
            lanes,
            receivers,
            memory,
            _board: board_memory,
            region_bytes,
            fates,
            device: choice.device,
            waker: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(Error::system("making an eventfd"))?,
            is_leaving: AtomicBool::new(false),
            bells_received: AtomicU64::new(0),
            registered_bytes,
        };
        let core = Arc::new(core);
        VerbsFabric::start(Attendant { core, channel, queue, beats })
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
