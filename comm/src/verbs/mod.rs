//! `verbs`: the fabric over RDMA (InfiniBand and RoCE): reliable connected queue pairs of libibverbs,
//! which is loaded at run time, so the same program runs on hosts without it.
//!
//! Here: the fabric and its connections. Beside it: `settings`, `survey` (choice of the device), `endpoint`
//! and `terms` (exchanged data), `resources` and `open` (start), `lanes`, `lane` and `link` (the data path),
//! `directory`, `peer_shares` and `shares` (shares, at owner and peer), `board` and `io_thread` (sleep, heartbeats,
//! graceful close), `liveness` (lost peers), `raw` (libibverbs; all unsafe code). docs/rdma.md is for operators.
//!
//! Between two machines there is one queue pair for each worker (thesis 3.2.9), or one that all workers share
//! ([`Party::is_shared`]), and one for heartbeats. A write is one RDMA WRITE from staged memory. Its flag travels with
//! it where the device promises to place bytes in the order of their addresses (`ibv_query_qp_data_in_order`),
//! otherwise in a second write behind it on the same queue pair: writes of one queue pair take effect in order. The
//! reader loads the flag with `Acquire` [flag-last]; the `Release` is the device's.
//!
//! A machine has an endpoint before it knows its peers: `VerbsFabric::prepare`, exchange of endpoints,
//! `Prepared::open`; or, to find out which peers can be reached, `Prepared::connect`, `Connected::greet` and
//! `Connected::open`.

mod board;
mod core;
mod directory;
mod endpoint;
mod io_thread;
mod lane;
mod lanes;
mod link;
mod liveness;
mod open;
mod peer_shares;
mod raw;
mod resources;
mod settings;
mod shares;
mod survey;
mod terms;

pub use endpoint::REGION_KEY_AT;
pub use link::Counts;
pub use open::{Connected, Prepared};
pub use raw::call_c_library;
pub use settings::{Flag, Settings};
pub use survey::{Gid, GidKind, PortReport, network, survey};

use crate::connected_pairs::ConnectedPairs;
use crate::error::Error;
use crate::fabric::{Connection, Fabric};
use crate::ids::{Loss, MachineId, Wake, WorkerId};
use crate::memory::Region;
use crate::share::{ReadId, Share, ShareId};
use core::Core;
use io_thread::IoThread;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Participants of a fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Party {
    /// The own machine.
    pub machine: MachineId,
    /// Number of machines of the program.
    pub machines: u16,
    /// Number of workers of the own machine.
    pub workers: u16,
    /// Machines that this fabric serves, all others of the program or some, each with its number of workers.
    pub peers: Vec<(MachineId, u16)>,
    /// All workers share one queue pair to each peer, in place of one for each worker; the same for all machines. For
    /// many workers that send by one of them, as on machine ways; the others may write as well.
    pub is_shared: bool,
}

impl Party {
    fn check(&self) -> Result<(), Error> {
        for (index, (peer, _)) in self.peers.iter().enumerate() {
            let is_twice = self.peers[..index].iter().any(|(other, _)| other == peer);
            if *peer == self.machine || peer.0 >= self.machines || is_twice {
                return Err(Error::NoSuchPeer { machine: *peer, own: self.machine, machines: self.machines });
            }
        }
        Ok(())
    }
}

/// One machine's end of a `verbs` fabric. Dropping it delivers all writes to the peers and tells them that
/// this machine leaves gracefully; connections stay usable after that.
pub struct VerbsFabric {
    core: Arc<Core>,
    connected: ConnectedPairs,
    io_thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for VerbsFabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (machine, device, counts) = (self.core.machine, self.core.device.name(), self.counts());
        f.debug_struct("VerbsFabric")
            .field("machine", &machine)
            .field("device", &device)
            .field("counts", &counts)
            .finish()
    }
}

impl VerbsFabric {
    /// Chooses a device, registers `region` and the fabric's own memory, and makes the queue pairs. Workers
    /// are numbered from 0; the thread that starts the machine may also use `WorkerId(u16::MAX)`.
    ///
    /// # Errors
    /// [`Error::Verbs`] names the lack or refusal, and the cure: no libibverbs, no device, no port that is
    /// up, too little memory that may be locked, a setting out of range.
    pub fn prepare(settings: &Settings, party: Party, region: Arc<Region>) -> Result<Prepared, Error> {
        Prepared::new(settings, party, region)
    }

    fn start(io_thread: IoThread) -> Result<VerbsFabric, Error> {
        let core = Arc::clone(&io_thread.core);
        let thread = std::thread::Builder::new().name("verbs-io".to_owned());
        let thread = thread.spawn(move || io_thread.run()).map_err(Error::system("starting the verbs I/O thread"))?;
        Ok(VerbsFabric { core, connected: ConnectedPairs::default(), io_thread: Some(thread) })
    }

    /// Returns the counters of this machine's fabric.
    pub fn counts(&self) -> Counts {
        self.core.counts()
    }
}

impl Drop for VerbsFabric {
    fn drop(&mut self) {
        self.core.leave();
        if let Some(io_thread) = self.io_thread.take() {
            // Its panic message is already printed; there is nothing to add.
            let _ = io_thread.join();
        }
    }
}

impl Fabric for VerbsFabric {
    fn machine(&self) -> MachineId {
        self.core.machine
    }

    fn machines(&self) -> u16 {
        self.core.machines
    }

    fn region(&self) -> &Region {
        self.core.region()
    }

    fn region_bytes(&self, peer: MachineId) -> Result<usize, Error> {
        let (own, machines) = (self.core.machine, self.core.machines);
        self.core.region_bytes.get(&peer).copied().ok_or(Error::NoSuchPeer { machine: peer, own, machines })
    }

    fn connect(&self, peer: MachineId, worker: WorkerId) -> Result<Box<dyn Connection>, Error> {
        self.region_bytes(peer)?;
        let lane = self.core.lane_of(worker, peer)?;
        self.connected.insert(peer, worker)?;
        Ok(Box::new(VerbsConnection { core: Arc::clone(&self.core), lane, peer }))
    }

    fn park(
        &self,
        worker: WorkerId,
        offset: usize,
        timeout: Duration,
        is_idle: &mut dyn FnMut() -> bool,
    ) -> Result<Wake, Error> {
        self.core.park(worker, offset, timeout, is_idle)
    }

    fn tells_sleep(&self) -> bool {
        true
    }

    fn poll(&self, worker: WorkerId) -> Result<(), Error> {
        self.core.poll(worker)
    }

    fn prepare_share(&self, share: &Share, range: Range<usize>) -> Result<(), Error> {
        self.core.directory.prepare(share, range)
    }

    fn cause(&self, peer: MachineId) -> Option<String> {
        self.core.liveness.record.cause(peer)
    }

    fn lost(&self, peer: MachineId) -> Result<Option<Loss>, Error> {
        self.region_bytes(peer)?;
        Ok(self.core.liveness.lost(peer))
    }

    fn watch(&self, known: &[MachineId], timeout: Duration) -> Result<Option<MachineId>, Error> {
        self.core.liveness.record.watch(known, timeout)
    }

    fn end_watch(&self) {
        self.core.liveness.record.end_watch();
    }
}

/// Connection of a lane to a peer.
struct VerbsConnection {
    core: Arc<Core>,
    lane: usize,
    peer: MachineId,
}

impl Connection for VerbsConnection {
    fn peer(&self) -> MachineId {
        self.peer
    }

    fn write(&mut self, source: &[u8], remote_offset: usize) -> Result<(), Error> {
        self.core.lane(self.lane).write(self.peer, source, remote_offset)
    }

    fn wake(&mut self, park_offset: usize) -> Result<(), Error> {
        self.core.lane(self.lane).wake(self.peer, park_offset)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.core.lane(self.lane).flush(self.peer)
    }

    fn write_share(&mut self, share: ShareId, offset: usize, source: &[u8]) -> Result<(), Error> {
        self.core.lane(self.lane).write_share(self.peer, share, offset, source)
    }

    fn read_share(&mut self, share: ShareId, offset: usize, bytes: usize) -> Result<ReadId, Error> {
        self.core.lane(self.lane).read_share(self.peer, share, offset, bytes)
    }

    fn take(&mut self, read_id: ReadId, into: &mut [u8]) -> Result<bool, Error> {
        self.core.lane(self.lane).take(self.peer, read_id, into)
    }
}
