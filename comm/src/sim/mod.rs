//! `sim`: a network within one process, for tests: its machines are threads, its writes are late, torn and
//! reordered across connections, and machines are cut off or die on demand.
//!
//! Here: the network as a test sees it, the fabric, its connections. Beside it: `ether` (the traffic, and the
//! thread that delivers it).
//!
//! It uses all freedom of the contract: nothing is sent before the flush (unless much is held), writes of
//! different connections overtake each other, and the body of a write arrives in pieces, in any order, before
//! its flag. Each delay and each piece follows from the seed and from the earlier sends of that connection;
//! the interleaving of threads does not.
//!
//! # Example
//! ```
//! use comm::{Fabric, Loss, MachineId, Region, sim};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! const TIMEOUT: Duration = Duration::from_secs(60);
//! let network = sim::Network::new(2, sim::Conditions { seed: 7, ..Default::default() })?;
//! let open = |machine| {
//!     let region = Arc::new(Region::anonymous(4096)?);
//!     network.open(MachineId(machine), region, TIMEOUT)
//! };
//! std::thread::scope(|scope| -> Result<(), comm::Error> {
//!     let second = scope.spawn(|| open(1)); // each waits for the other
//!     let first = open(0)?;
//!     let second = second.join().expect("it does not panic")?;
//!     network.kill(MachineId(1));
//!     assert_eq!(first.watch(&[], TIMEOUT)?, Some(MachineId(1)));
//!     assert_eq!(first.lost(MachineId(1))?, Some(Loss::Died));
//!     drop(second);
//!     Ok(())
//! })?;
//! # Ok::<(), comm::Error>(())
//! ```

mod ether;
#[cfg(test)]
mod tests;

use crate::connected_pairs::ConnectedPairs;
use crate::error::Error;
use crate::fabric::{Connection, Fabric};
use crate::ids::{Loss, MachineId, WorkerId};
use crate::liveness::Liveness;
use crate::memory::{Region, WORD_BYTES};
use crate::share::{Landing, PendingReads, ReadId, Share, ShareId};
use ether::{DeliveryThread, Flow, Load, Part};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes after which a connection sends its held writes without a flush.
const HELD_BYTES_MAX: usize = 256 << 10;
/// Bytes of a share in one part of a read.
const READ_BYTES: usize = 8 << 10;

/// Behaviour of the network.
#[derive(Debug, Clone)]
pub struct Conditions {
    /// Seed of all random decisions.
    pub seed: u64,
    /// Delay of a write, a piece of one, or a wake.
    pub delay: RangeInclusive<Duration>,
    /// Length of a cut after which the machine and the others take each other for dead.
    pub silence: Duration,
}

impl Default for Conditions {
    /// Up to 100 µs of delay, three seconds of silence.
    fn default() -> Conditions {
        Conditions { seed: 1, delay: Duration::ZERO..=Duration::from_micros(100), silence: Duration::from_secs(3) }
    }
}

/// Network of the machines of a program. Its clones are the same network.
#[derive(Debug, Clone)]
pub struct Network {
    delivery: Arc<DeliveryThread>,
}

impl Network {
    /// Makes a network for `machines` machines.
    ///
    /// # Errors
    /// [`Error::System`] when no further thread can start.
    pub fn new(machines: u16, conditions: Conditions) -> Result<Network, Error> {
        Ok(Network { delivery: Arc::new(DeliveryThread::start(machines, conditions)?) })
    }

    /// Joins the network as `machine`, whose peers write `region`. Returns when all machines have joined;
    /// `timeout` bounds the wait.
    ///
    /// # Errors
    /// [`Error::PeerMissing`]; [`Error::Bootstrap`] when `machine` is not part of this network, or has joined before.
    pub fn open(&self, machine: MachineId, region: Arc<Region>, timeout: Duration) -> Result<SimFabric, Error> {
        let liveness = Arc::new(Liveness::default());
        let regions = self.delivery.ether().join(machine, region, Arc::clone(&liveness), timeout)?;
        Ok(SimFabric {
            delivery: Arc::clone(&self.delivery),
            machine,
            regions,
            liveness,
            connected: ConnectedPairs::default(),
        })
    }

    /// Cuts `machine` off from all others. Traffic to and from it waits; if it is not restored within
    /// [`Conditions::silence`], it and the others take each other for dead.
    ///
    /// # Panics
    /// If this network has no such machine.
    pub fn cut(&self, machine: MachineId) {
        self.delivery.ether().cut(machine);
    }

    /// Ends a cut. Too late for machines that are marked dead by then.
    ///
    /// # Panics
    /// If this network has no such machine.
    pub fn restore(&self, machine: MachineId) {
        self.delivery.ether().restore(machine);
    }

    /// Lets `machine` die, as the others see it: they learn of it at once, and nothing comes from it any
    /// more. Its threads, which belong to the test, go on.
    ///
    /// # Panics
    /// If this network has no such machine.
    pub fn kill(&self, machine: MachineId) {
        self.delivery.ether().kill(machine);
    }
}

/// One machine's end of a simulated network.
#[derive(Debug)]
pub struct SimFabric {
    delivery: Arc<DeliveryThread>,
    machine: MachineId,
    /// Regions of all machines.
    regions: Vec<Arc<Region>>,
    liveness: Arc<Liveness>,
    connected: ConnectedPairs,
}

impl SimFabric {
    fn peer_region(&self, peer: MachineId) -> Result<&Arc<Region>, Error> {
        let (own, machines) = (self.machine, self.machines());
        let region = self.regions.get(usize::from(peer.0)).filter(|_| peer != own);
        region.ok_or(Error::NoSuchPeer { machine: peer, own, machines })
    }
}

impl Fabric for SimFabric {
    fn machine(&self) -> MachineId {
        self.machine
    }

    fn machines(&self) -> u16 {
        self.regions.len() as u16 // made for a number of machines that is a u16
    }

    fn region(&self) -> &Region {
        &self.regions[usize::from(self.machine.0)]
    }

    fn region_bytes(&self, peer: MachineId) -> Result<usize, Error> {
        Ok(self.peer_region(peer)?.bytes())
    }

    fn connect(&self, peer: MachineId, worker: WorkerId) -> Result<Box<dyn Connection>, Error> {
        let region = Arc::clone(self.peer_region(peer)?);
        self.connected.insert(peer, worker)?;
        let number = self.delivery.ether().add_flow(Flow { from: self.machine, to: peer, worker });
        let (delivery, liveness) = (Arc::clone(&self.delivery), Arc::clone(&self.liveness));
        let (machine, pending) = (self.machine, Arc::default());
        let (held, held_bytes, answers) = (Vec::new(), 0, None);
        Ok(Box::new(SimConnection {
            delivery,
            liveness,
            number,
            answers,
            machine,
            worker,
            peer,
            region,
            held,
            held_bytes,
            pending,
        }))
    }

    fn cause(&self, peer: MachineId) -> Option<String> {
        self.liveness.cause(peer)
    }

    fn lost(&self, peer: MachineId) -> Result<Option<Loss>, Error> {
        self.peer_region(peer)?;
        Ok(self.liveness.lost(peer))
    }

    fn watch(&self, known: &[MachineId], timeout: Duration) -> Result<Option<MachineId>, Error> {
        self.liveness.watch(known, timeout)
    }

    fn end_watch(&self) {
        self.liveness.end_watch();
    }
}

impl Drop for SimFabric {
    fn drop(&mut self) {
        self.delivery.ether().leave(self.machine);
    }
}

/// A connection through the network, and the loads that wait for its flush.
struct SimConnection {
    delivery: Arc<DeliveryThread>,
    liveness: Arc<Liveness>,
    /// Number of its flow.
    number: usize,
    /// Number of the flow by which answers come, once there was a read.
    answers: Option<usize>,
    machine: MachineId,
    worker: WorkerId,
    peer: MachineId,
    region: Arc<Region>,
    held: Vec<Load>,
    held_bytes: usize,
    pending: Arc<Mutex<PendingReads<Landing>>>,
}

impl SimConnection {
    fn hold(&mut self, load: Load, bytes: usize) -> Result<(), Error> {
        self.held.push(load);
        self.held_bytes += bytes;
        if self.held_bytes > HELD_BYTES_MAX { self.flush() } else { Ok(()) }
    }

    /// Returns the peer's share. Its existence and its committed units are known at once, unlike in a real network.
    fn share(&self, share: ShareId) -> Result<&Share, Error> {
        self.region.shares().get(share).map(|share| &**share).ok_or(Error::NoSuchShare { machine: self.peer, share })
    }
}

impl Connection for SimConnection {
    fn peer(&self) -> MachineId {
        self.peer
    }

    fn write(&mut self, source: &[u8], remote_offset: usize) -> Result<(), Error> {
        self.region.words(remote_offset, source.len())?;
        self.hold(Load::Bytes { share: None, offset: remote_offset, bytes: source.to_vec() }, source.len())
    }

    fn wake(&mut self, park_offset: usize) -> Result<(), Error> {
        self.region.word32(park_offset)?;
        self.hold(Load::Wake { offset: park_offset }, WORD_BYTES)
    }

    fn flush(&mut self) -> Result<(), Error> {
        if !self.held.is_empty() {
            self.held_bytes = 0;
            self.delivery.ether().send(self.number, std::mem::take(&mut self.held));
        }
        Ok(())
    }

    fn write_share(&mut self, share: ShareId, offset: usize, source: &[u8]) -> Result<(), Error> {
        self.share(share)?.check_committed(offset, source.len())?;
        self.hold(Load::Bytes { share: Some(share), offset, bytes: source.to_vec() }, source.len())
    }

    fn read_share(&mut self, share: ShareId, offset: usize, bytes: usize) -> Result<ReadId, Error> {
        let is_committed = {
            let share = self.share(share)?;
            share.check(offset, bytes)?;
            share.is_committed(offset, bytes)
        };
        let ether = self.delivery.ether();
        let (from, to, worker) = (self.peer, self.machine, self.worker);
        let answers = *self.answers.get_or_insert_with(|| ether.add_flow(Flow { from, to, worker }));
        let read_id = lock(&self.pending).add(Landing::new(share, offset, bytes));
        // A range that is not committed now will hardly become so: it is one part, which is refused, since
        // its length has no limit.
        let part_bytes = if is_committed { READ_BYTES } else { bytes };
        for at in (0..bytes).step_by(part_bytes) {
            let (bytes, pending) = (part_bytes.min(bytes - at), Arc::clone(&self.pending));
            let part = Part { share, offset: offset + at, bytes, read_id, at, pending };
            self.hold(Load::Read { part, answers }, WORD_BYTES)?;
        }
        Ok(read_id)
    }

    fn take(&mut self, read_id: ReadId, into: &mut [u8]) -> Result<bool, Error> {
        self.flush()?;
        // Asked first: bytes that came before the end are there.
        let is_gone = self.liveness.lost(self.peer).is_some() || !self.delivery.ether().reaches(self.number);
        lock(&self.pending).take(read_id, into, self.peer, || is_gone)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
