//! Start: queue pairs connected to those on the peers' endpoints.
//!
//! Here: the order of steps. Not here: amounts (`resources`), the content of endpoints (`terms`), operation
//! (`mod`, `core`, `io_thread`).
//!
//! Between two machines there is a queue pair for each lane that either has (so a lane writes on its own, and
//! both directions share it), or one that all workers share, and one for heartbeats, which is connected last: a
//! machine whose first heartbeat is acknowledged knows that all queue pairs of the peer are ready.

use super::board::HEARTBEAT;
use super::core::{Core, Sleeper};
use super::directory::Directory;
use super::endpoint::VerbsEndpoint;
use super::io_thread::{Beat, IoThread};
use super::lane::{Lane, tag_of};
use super::lanes::Lanes;
use super::link::{Link, RemoteEnd};
use super::liveness::{VerbsLiveness, failure};
use super::raw::{
    self, Completion, CompletionChannel, CompletionQueue, Device, MemoryRegion, Path, QueuePair, WorkRequests,
};
use super::resources::{Own, PeerQueues};
use super::settings::Settings;
use super::{Party, VerbsFabric, resources, terms};
use crate::deadline::deadline_after;
use crate::error::Error;
use crate::ids::MachineId;
use crate::memory::Region;
use crate::waker::Waker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

/// Longest wait between two looks while peers come up.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A machine that has everything but its peers' endpoints.
pub struct Prepared {
    endpoint: Vec<u8>,
    ways: Vec<PeerQueues>,
    own: Own,
}

impl Prepared {
    /// See [`VerbsFabric::prepare`].
    pub(super) fn new(settings: &Settings, party: Party, region: Arc<Region>) -> Result<Prepared, Error> {
        let (own, ways) = resources::make(settings, party, region)?;
        let endpoint = terms::endpoint(&own, &ways).encode()?;
        Ok(Prepared { endpoint, ways, own })
    }

    /// Returns the endpoint that every peer must get: at most 16 KiB, opaque, and not secret, though a holder
    /// on the same network can write this machine's memory (docs/rdma.md).
    pub fn endpoint(&self) -> &[u8] {
        &self.endpoint
    }

    /// Leaves out a peer that has no endpoint: there will be no connection to it.
    pub fn leave_out(&mut self, peer: MachineId) {
        self.ways.retain(|way| way.peer != peer);
    }

    /// Makes the queue pairs ready by the peers' endpoints: from here on peers can reach this machine.
    ///
    /// # Errors
    /// [`Error::Verbs`]: an endpoint is missing or does not fit. [`Connected::greet`] reports a failure to
    /// make the path to a peer ready.
    pub fn connect(self, endpoints: &[(MachineId, Vec<u8>)]) -> Result<Connected, Error> {
        let mut routes = Vec::with_capacity(self.ways.len());
        for way in self.ways {
            let endpoint = endpoints.iter().find(|(machine, _)| *machine == way.peer);
            let endpoint = endpoint.ok_or_else(|| Error::verbs(format!("{} has sent no endpoint", way.peer)))?;
            let endpoint = VerbsEndpoint::decode(way.peer, &endpoint.1)?;
            let line = terms::matching(&endpoint, &self.own.party, &way, &self.own.choice)?;
            let remote = terms::remote_end(&endpoint, line, &way, &self.own.settings)?;
            let path = terms::path(&endpoint, &self.own.settings, &self.own.choice);
            let mut queues = way.queues.iter().zip(&line.queue_pairs[1..]);
            let ready =
                queues.try_for_each(|(queue, number)| queue.connect(&Path { peer_queue_pair: *number, ..path }));
            let path = Path { peer_queue_pair: line.queue_pairs[0], ..path };
            let trouble = ready.and_then(|()| way.heartbeat.connect(&path)).err();
            let work_requests = WorkRequests::new(way.beat_memory, 1, 0, Beat::tag(way.peer));
            let (queue, board) = (way.heartbeat, remote.board);
            let beat =
                Beat { peer: way.peer, queue, work_requests, board, is_in_flight: false, is_dead: false, beats: 0 };
            let PeerQueues { queues, sends, staging, .. } = way;
            routes.push(Route { remote, beat, path, trouble, queues, sends, staging });
        }
        Ok(Connected { routes, own: self.own })
    }

    /// Connects to the peers by their endpoints, and waits until all of them have connected as well.
    ///
    /// # Errors
    /// As for [`Prepared::connect`]; and the error of [`Connected::greet`] for the first peer that is not
    /// reached within `timeout`: [`Error::PeerMissing`] where it does not answer.
    pub fn open(self, endpoints: &[(MachineId, Vec<u8>)], timeout: Duration) -> Result<VerbsFabric, Error> {
        let mut connected = self.connect(endpoints)?;
        match connected.greet(timeout)?.pop() {
            Some((_, error)) => Err(error),
            None => connected.open(&[]),
        }
    }
}

/// Path to one peer, once its endpoint is known.
struct Route {
    remote: RemoteEnd,
    beat: Beat,
    /// Path of the heartbeats' queue pair.
    path: Path,
    /// Reason why it cannot be reached.
    trouble: Option<Error>,
    /// The same as in [`PeerQueues`].
    queues: Vec<Arc<QueuePair>>,
    sends: Vec<Arc<CompletionQueue>>,
    staging: Vec<Arc<MemoryRegion>>,
}

/// A machine whose queue pairs are ready, and that can find out which of its peers it reaches.
pub struct Connected {
    routes: Vec<Route>,
    own: Own,
}

impl Connected {
    /// Sends every peer its first heartbeat until it is acknowledged, at most for `timeout`; returns the
    /// peers that were not reached, and why. A peer that is not ready yet does not answer; then the queue
    /// pair, which has given up, begins anew.
    ///
    /// # Errors
    /// The own device fails.
    pub fn greet(&mut self, timeout: Duration) -> Result<Vec<(MachineId, Error)>, Error> {
        let deadline = deadline_after(timeout);
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
                let found =
                    routes.iter_mut().enumerate().find(|(_, route)| Beat::tag(route.remote.peer) == completion.id);
                let Some((index, route)) = found else { return };
                route.beat.is_in_flight = false;
                if completion.status == raw::WC_SUCCESS {
                    route.beat.beats = 1;
                } else {
                    failures.insert(route.remote.peer, completion.status);
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
        let missing = self.routes.iter_mut().filter_map(|route| {
            let peer = route.remote.peer;
            let trouble = match (route.trouble.take(), route.beat.beats) {
                (Some(trouble), _) => Error::verbs(format!("{peer} cannot be reached: {trouble}")),
                (None, 0) => unanswered(peer, failures.get(&peer).copied().unwrap_or(0), timeout),
                (None, _) => return None,
            };
            Some((peer, trouble))
        });
        Ok(missing.collect())
    }

    /// Opens the fabric with all peers but these, which must not be connected to.
    ///
    /// # Errors
    /// [`Error::System`] when no further thread can start.
    pub fn open(self, without: &[MachineId]) -> Result<VerbsFabric, Error> {
        let Own { sends, queue, channel, memory, board, board_memory, choice, party, settings, registered_bytes } =
            self.own;
        let (device, port) = (Arc::clone(&choice.device), choice.port);
        let liveness = Arc::new(VerbsLiveness::new(Arc::clone(&board), move || port_trouble(&device, port)));
        let machines = usize::from(party.machines);
        let mut links: Vec<Vec<Option<Link>>> = sends.iter().map(|_| (0..machines).map(|_| None).collect()).collect();
        let mut shared = Vec::new();
        let mut receivers = HashMap::new();
        let mut region_bytes = BTreeMap::new();
        let mut beats = Vec::new();
        let bounds = terms::bounds(&settings, &choice);
        for route in self.routes.into_iter().filter(|route| !without.contains(&route.remote.peer)) {
            let RemoteEnd { peer, region_bytes: bytes, .. } = route.remote;
            region_bytes.insert(peer, bytes);
            let lanes = route.queues.iter().zip(route.staging).zip(route.sends).enumerate();
            for (lane, ((pair, staging), sends)) in lanes {
                let chain = (settings.queue_depth / 4).max(1) as usize;
                let work_requests = WorkRequests::new(staging, chain, pair.inline_bytes(), tag_of(peer));
                let link = Link::new(route.remote, Arc::clone(pair), work_requests, Arc::clone(&board), bounds);
                if party.is_shared {
                    shared.push((peer, Lane::new(sends, peer, vec![Some(link)], Arc::clone(&liveness))));
                } else {
                    links[lane][usize::from(peer.0)] = Some(link);
                }
            }
            receivers.extend(route.queues.into_iter().map(|queue| (queue.number(), (peer, queue))));
            beats.push(route.beat);
        }
        let lanes = links.into_iter().zip(sends);
        let lanes = lanes.map(|(links, sends)| Lane::new(sends, MachineId(0), links, Arc::clone(&liveness)));
        let lanes = if party.is_shared { Lanes::of_peers(shared) } else { Lanes::of_threads(lanes) };
        let directory = Directory::new(Arc::clone(memory.domain()), Arc::clone(board.memory()));
        let core = Core {
            machine: party.machine,
            machines: party.machines,
            sleepers: (0..=party.workers).map(|_| Sleeper::new()).collect(),
            lanes,
            receivers,
            memory,
            _board: board_memory,
            region_bytes,
            liveness,
            device: choice.device,
            waker: Waker::new()?,
            is_leaving: AtomicBool::new(false),
            wake_messages_received: AtomicU64::new(0),
            registered_bytes,
            directory,
        };
        let core = Arc::new(core);
        VerbsFabric::start(IoThread { core, channel, queue, beats })
    }
}

/// Returns the own port's present problem, if any.
fn port_trouble(device: &Device, port: u8) -> Option<String> {
    match device.port(port) {
        Ok(port) if port.state == raw::PORT_ACTIVE => None,
        Ok(_) => Some(format!("port {port} of {} is down", device.name())),
        Err(error) => Some(error.to_string()),
    }
}

/// Returns the error for a peer that was not reached: failures other than silence have their own cause.
fn unanswered(peer: MachineId, status: u32, timeout: Duration) -> Error {
    if status != raw::WC_SUCCESS && status != raw::WC_RETRY_EXC_ERR {
        return Error::verbs(format!("{peer} cannot be reached: {}", failure(status)));
    }
    let step = "connect its queue pairs (is UDP port 4791 open between the hosts?)";
    Error::PeerMissing { machine: peer, step, waited_ms: timeout.as_millis() }
}

/// Waits until a completion is announced, or for a moment.
fn wait(channel: &CompletionChannel) -> Result<(), Error> {
    let mut fds = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)];
    match poll(&mut fds, Timespec::try_from(LOOK_INTERVAL).ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(Error::system("waiting for the peers")(error)),
    }
    while channel.take() {}
    Ok(())
}
