//! `shm`: the fabric between machines of one host, that is, processes which map one another's
//! regions.
//!
//! Here: opening the fabric, and its connections. Beside it: `handover` (files from launcher to
//! machine), `control` (who is there), `peers` (who still lives), `park` (sleep and wake).
//!
//! A write is a copy into the mapping of the peer's region; a ring is a futex wake in it. Both go
//! on to succeed when the peer is dead, for its memory lives as long as somebody maps it. A region
//! cannot shrink once sized (it is sealed), and its pages exist from the start, so no peer and no
//! shortage of memory turns an access into a SIGBUS.
//!
//! All machines are children of one launcher, in one pid name space, and one program: they trust
//! one another.

mod control;
mod handover;
mod park;
mod peers;
#[cfg(test)]
mod tests;

pub use handover::{BOOTSTRAP_VARIABLE, Bootstrap, Segments, create};

use crate::error::Error;
use crate::fabric::{Connection, Fabric, Loss, MachineId, Wake, WorkerId};
use crate::memory::{Region, WORD_BYTES};
use control::{Control, Step};
use memmap2::MmapOptions;
use peers::Peers;
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat};
use rustix::io::retry_on_intr;
use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a machine that waits for others to start looks whether they still live.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(50);

/// One machine's end of a `shm` fabric. Dropping it says to the peers that this machine leaves in
/// order; connections stay usable after that.
#[derive(Debug)]
pub struct ShmFabric {
    seat: Seat,
    /// One for each machine, the own included.
    regions: Vec<Arc<Region>>,
    peers: Peers,
    connected: Mutex<HashSet<(MachineId, WorkerId)>>,
}

/// The own seat in the control file; says `Left` or `Failed` when it goes.
#[derive(Debug)]
struct Seat {
    control: Control,
    machine: MachineId,
    is_open: bool,
}

impl ShmFabric {
    /// Joins the program as the machine that `bootstrap` says, with a region of `region_bytes`
    /// bytes, all 0 at first; regions of different machines may differ in length. Returns when all
    /// machines have come up; `timeout` bounds the wait.
    ///
    /// # Errors
    /// [`Error::PeerMissing`] and [`Error::PeerLost`] name the machine that did not come up;
    /// [`Error::Misaligned`] when `region_bytes` is 0 or no multiple of 8; [`Error::Bootstrap`],
    /// [`Error::System`].
    pub fn open(bootstrap: Bootstrap, region_bytes: usize, timeout: Duration) -> Result<ShmFabric, Error> {
        if region_bytes == 0 || !region_bytes.is_multiple_of(WORD_BYTES) {
            return Err(Error::Misaligned { offset: 0, bytes: region_bytes, align_bytes: WORD_BYTES });
        }
        let Bootstrap { machine, fds } = bootstrap;
        let [control, memory @ ..] = fds.as_slice() else {
            return Err(Error::bootstrap("no memory files were handed over"));
        };
        let control = Control::open(control)?;
        if memory.len() != usize::from(control.machines()) || usize::from(machine.0) >= memory.len() {
            let (files, machines) = (memory.len(), control.machines());
            return Err(Error::bootstrap(format!("{files} memory files for {machine} of {machines} machines")));
        }
        let mut seat = Seat::claim(control, machine)?;
        let deadline = Deadline::after(timeout);

        size(&memory[usize::from(machine.0)], region_bytes)?;
        seat.control.introduce(machine, region_bytes, std::process::id())?;
        seat.reach(Step::Sized, &Peers::new(), &deadline)?;

        let mut peers = Peers::new();
        let mut regions = Vec::with_capacity(memory.len());
        for (id, fd) in seat.all().zip(memory) {
            regions.push(Arc::new(map(id, fd, seat.control.region_bytes(id)?)?));
            if id != machine {
                peers.add(id, seat.control.pid(id)?)?;
            }
        }
        seat.reach(Step::Linked, &peers, &deadline)?;
        seat.reach(Step::Up, &peers, &deadline)?;
        seat.is_open = true;
        // The files close here: the mappings hold the memory.
        Ok(ShmFabric { seat, regions, peers, connected: Mutex::default() })
    }

    fn peer_region(&self, peer: MachineId) -> Result<&Arc<Region>, Error> {
        let (own, machines) = (self.machine(), self.machines());
        let region = self.regions.get(usize::from(peer.0)).filter(|_| peer != own);
        region.ok_or(Error::NoSuchPeer { machine: peer, own, machines })
    }
}

impl Fabric for ShmFabric {
    fn machine(&self) -> MachineId {
        self.seat.machine
    }

    fn machines(&self) -> u16 {
        self.seat.control.machines()
    }

    fn region(&self) -> &Region {
        &self.regions[usize::from(self.machine().0)]
    }

    fn region_bytes(&self, peer: MachineId) -> Result<usize, Error> {
        Ok(self.peer_region(peer)?.bytes())
    }

    fn connect(&self, peer: MachineId, worker: WorkerId) -> Result<Box<dyn Connection>, Error> {
        let region = Arc::clone(self.peer_region(peer)?);
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if !connected.insert((peer, worker)) {
            return Err(Error::AlreadyConnected { machine: peer, worker });
        }
        Ok(Box::new(ShmConnection { peer, region }))
    }

    fn park(
        &self,
        _worker: WorkerId,
        offset: usize,
        timeout: Duration,
        is_idle: &mut dyn FnMut() -> bool,
    ) -> Result<Wake, Error> {
        park::park(self.region().word32(offset)?, timeout, is_idle)
    }

    fn ring(&self, offset: usize) -> Result<(), Error> {
        park::ring(self.region().word32(offset)?)
    }

    fn lost(&self, peer: MachineId) -> Result<Option<Loss>, Error> {
        self.peer_region(peer)?;
        self.peers.lost(peer, &self.seat.control)
    }

    fn watch(&self, timeout: Duration) -> Result<Option<MachineId>, Error> {
        self.peers.watch(timeout, &self.seat.control)
    }
}

/// The peer's region, mapped here.
struct ShmConnection {
    peer: MachineId,
    region: Arc<Region>,
}

impl Connection for ShmConnection {
    fn peer(&self) -> MachineId {
        self.peer
    }

    fn write(&mut self, source: &[u8], remote_offset: usize) -> Result<(), Error> {
        self.region.publish(remote_offset, source)
    }

    fn ring(&mut self, park_offset: usize) -> Result<(), Error> {
        park::ring(self.region.word32(park_offset)?)
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(()) // nothing is held back
    }
}

impl Seat {
    fn claim(control: Control, machine: MachineId) -> Result<Seat, Error> {
        control.claim(machine)?;
        Ok(Seat { control, machine, is_open: false })
    }

    fn all(&self) -> impl Iterator<Item = MachineId> + use<> {
        (0..self.control.machines()).map(MachineId)
    }

    /// Takes a step, and waits until every machine has taken it.
    fn reach(&self, step: Step, peers: &Peers, deadline: &Deadline) -> Result<(), Error> {
        self.control.advance(self.machine, step)?;
        loop {
            let seen = self.control.changes()?;
            let Some(machine) = self.behind(step)? else {
                return Ok(());
            };
            if peers.lost(machine, &self.control)?.is_some() {
                return Err(Error::PeerLost { machine });
            }
            let left = deadline.left();
            if left.is_zero() {
                return Err(Error::PeerMissing { machine, step: step.deed(), waited_ms: deadline.timeout.as_millis() });
            }
            self.control.wait_for_change(seen, left.min(LIVENESS_INTERVAL))?;
        }
    }

    /// A machine that has not come to `step` yet.
    fn behind(&self, step: Step) -> Result<Option<MachineId>, Error> {
        for machine in self.all() {
            match self.control.step(machine)? {
                Step::Failed => return Err(Error::PeerLost { machine }),
                reached if reached < step => return Ok(Some(machine)),
                _ => {}
            }
        }
        Ok(None)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let last = if self.is_open { Step::Left } else { Step::Failed };
        // The step itself cannot fail; should the wake, peers look again within LIVENESS_INTERVAL.
        let _ = self.control.advance(self.machine, last);
    }
}

struct Deadline {
    start: Instant,
    timeout: Duration,
}

impl Deadline {
    fn after(timeout: Duration) -> Deadline {
        Deadline { start: Instant::now(), timeout }
    }

    fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.start.elapsed())
    }
}

/// Gives the own memory file its length and its pages, and seals the length.
fn size(fd: &OwnedFd, region_bytes: usize) -> Result<(), Error> {
    let doing = || format!("reserving {region_bytes} bytes for the own region");
    retry_on_intr(|| fallocate(fd, FallocateFlags::empty(), 0, region_bytes as u64)).map_err(Error::system(doing()))?;
    fcntl_add_seals(fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(Error::system(doing()))
}

/// Maps a region, once it is sealed at the length its machine told.
fn map(machine: MachineId, fd: &OwnedFd, told_bytes: u64) -> Result<Region, Error> {
    let seals = fcntl_get_seals(fd).map_err(Error::system(format!("asking for the seals of {machine}")))?;
    let stat = fstat(fd).map_err(Error::system(format!("asking for the length of the region of {machine}")))?;
    let bytes = usize::try_from(told_bytes).ok().filter(|_| u64::try_from(stat.st_size) == Ok(told_bytes));
    match bytes {
        Some(bytes) if seals.contains(SealFlags::SHRINK) => {
            let map = MmapOptions::new().len(bytes).map_raw(fd.as_raw_fd());
            Ok(Region::new(map.map_err(Error::system(format!("mapping the region of {machine}")))?))
        }
        _ => Err(Error::bootstrap(format!(
            "the memory file of {machine} has {} bytes, seals {seals:?}; it told {told_bytes} bytes",
            stat.st_size
        ))),
    }
}
