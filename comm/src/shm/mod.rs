//! `shm`: the fabric between machines of one host, that is, processes that map each other's regions.
//!
//! Here: opening the fabric, and its connections. Beside it: `handover` (files from launcher to machine),
//! `control` (start and leave), `peers` (liveness).
//!
//! A write is a copy into the mapping of the peer's region; a wake is a futex wake in it. Both continue to
//! succeed when the peer is dead, since its memory lives as long as a mapping of it. A region cannot shrink
//! once sized (it is sealed), and its pages exist from the start, or since they were committed ([`RegionSize`]), so
//! neither a peer nor a lack of memory turns an access to them into a SIGBUS.
//!
//! A peer's shares are mapped at their first use; reads are copies, made when they are taken.
//!
//! All machines are processes of one program, of one user, in one pid name space: they trust each other.
//! They may be a *group* within a larger program, its machines on one host: then another fabric must reach
//! the others, and `mixed` combines the two.

mod control;
mod handover;
mod peers;
#[cfg(test)]
mod tests;

pub use handover::{BOOTSTRAP_VARIABLE, Bootstrap, Segments, create};

use crate::connected_pairs::ConnectedPairs;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::fabric::{Connection, Fabric};
use crate::ids::{Loss, MachineId, WorkerId};
use crate::memory::{self, Region, WORD_BYTES};
use crate::park;
use crate::share::{PendingReads, ReadId, Share, ShareFile, ShareId, Shares, check_room};
use control::{Control, Step};
use memmap2::MmapOptions;
use peers::Peers;
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::io::retry_on_intr;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Interval at which a machine that waits for others to start checks that they still live.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(50);

/// Length of a region, all of which has memory from the start or only its first part: the rest takes no memory before
/// [`Fabric::commit_region`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionSize {
    /// Length in bytes.
    pub bytes: usize,
    /// Bytes that have memory from the start, and that peers may write without being told.
    pub committed_bytes: usize,
}

impl From<usize> for RegionSize {
    fn from(bytes: usize) -> RegionSize {
        RegionSize { bytes, committed_bytes: bytes }
    }
}

/// One machine's end of a `shm` fabric. Dropping it tells the peers that this machine leaves gracefully;
/// connections stay usable after that.
#[derive(Debug)]
pub struct ShmFabric {
    seat: Seat,
    /// Number of machines of the whole program.
    machines: u16,
    own: Arc<Region>,
    /// The memory file of the own region.
    file: OwnedFd,
    /// Regions of the machines of the group but the own, ascending.
    regions: Vec<(MachineId, Arc<Region>)>,
    peers: Peers,
    connected: ConnectedPairs,
}

/// The own seat in the control file; becomes `Left` or `Failed` when dropped.
#[derive(Debug)]
struct Seat {
    control: Control,
    machine: MachineId,
    is_open: bool,
}

impl ShmFabric {
    /// Joins the program as the machine of `bootstrap`, with a region of `region_bytes` bytes, all 0 at
    /// first; regions of different machines may differ in length. Returns when all machines have come up;
    /// `timeout` bounds the wait.
    ///
    /// # Errors
    /// [`Error::PeerMissing`] and [`Error::PeerLost`] name the machine that did not come up;
    /// [`Error::Misaligned`] when `region_bytes` is 0 or no multiple of 8; [`Error::Bootstrap`],
    /// [`Error::System`].
    pub fn open(bootstrap: Bootstrap, region_bytes: usize, timeout: Duration) -> Result<ShmFabric, Error> {
        let control = Control::open(bootstrap.control()?)?;
        let machines = control.group().len() as u16; // the file has it as a u16
        ShmFabric::join(bootstrap, control, machines, region_bytes.into(), timeout)
    }

    /// Like [`open`](ShmFabric::open), for those machines of a larger program that share a host: `group` are
    /// their numbers, ascending, and `machines` is the number of machines of the program. The memory files
    /// are made for the group ([`create`] with its length), and `bootstrap.machine` is the index in it, from
    /// 0. All later calls use the machines' numbers in the program; those outside the group are no peers.
    ///
    /// # Errors
    /// As for `open`; [`Error::Bootstrap`] also when `group` does not fit the files or the program.
    pub fn open_group(
        bootstrap: Bootstrap,
        group: &[MachineId],
        machines: u16,
        region: RegionSize,
        timeout: Duration,
    ) -> Result<ShmFabric, Error> {
        let mut control = Control::open(bootstrap.control()?)?;
        control.seat_group(group)?;
        if group.last().is_some_and(|last| last.0 >= machines) {
            return Err(Error::bootstrap(format!("the machines {group:?} in a program of {machines}")));
        }
        ShmFabric::join(bootstrap, control, machines, region, timeout)
    }

    /// Returns the own region, for the other fabrics of this machine: they store incoming writes there too.
    pub fn shared_region(&self) -> Arc<Region> {
        Arc::clone(&self.own)
    }

    fn join(
        bootstrap: Bootstrap,
        control: Control,
        machines: u16,
        region: RegionSize,
        timeout: Duration,
    ) -> Result<ShmFabric, Error> {
        let region_bytes = region.bytes;
        if region_bytes == 0 || !region_bytes.is_multiple_of(WORD_BYTES) {
            return Err(Error::Misaligned { offset: 0, bytes: region_bytes, align_bytes: WORD_BYTES });
        }
        let members = bootstrap.members();
        let Bootstrap { machine: place, mut fds } = bootstrap;
        let place = usize::from(place.0);
        let machine = control.group().get(place).copied().filter(|_| members == control.group().len());
        let (Some(machine), Some(shares)) = (machine, fds.pop()) else {
            let machines = control.group().len();
            return Err(Error::bootstrap(format!("{members} memory files for machine {place} of {machines} machines")));
        };
        let shares = Arc::new(shares);
        let memory = &fds[1..];
        let mut seat = Seat::claim(control, machine)?;
        let deadline = Deadline::after(timeout);

        size(&memory[place], region)?;
        seat.control.introduce(machine, region_bytes, std::process::id())?;
        let mut peers = Peers::new()?;
        seat.reach(Step::Sized, &peers, timeout, deadline)?;

        let map = |id, place: usize, bytes| {
            let shares = Shares::in_file(ShareFile::new(Arc::clone(&shares), place));
            Ok::<_, Error>(Arc::new(map(id, &memory[place], bytes)?.with_shares(shares)))
        };
        let own = map(machine, place, region_bytes as u64)?;
        let mut regions = Vec::with_capacity(memory.len() - 1);
        for (place, id) in seat.control.group().iter().copied().enumerate().filter(|(_, id)| *id != machine) {
            regions.push((id, map(id, place, seat.control.region_bytes(id)?)?));
            peers.add(id, seat.control.pid(id)?)?;
        }
        seat.reach(Step::Linked, &peers, timeout, deadline)?;
        seat.reach(Step::Up, &peers, timeout, deadline)?;
        seat.is_open = true;
        // The files of the peers' regions close here: the mappings hold the memory. The own one and the file of the
        // shares stay open, for what is committed and for shares that are opened later.
        let file = fds.swap_remove(1 + place);
        Ok(ShmFabric { seat, machines, own, file, regions, peers, connected: ConnectedPairs::default() })
    }

    fn peer_region(&self, peer: MachineId) -> Result<&Arc<Region>, Error> {
        let (own, machines) = (self.machine(), self.machines());
        let found = self.regions.binary_search_by_key(&peer, |(machine, _)| *machine);
        found.map(|index| &self.regions[index].1).map_err(|_| Error::NoSuchPeer { machine: peer, own, machines })
    }
}

impl Fabric for ShmFabric {
    fn machine(&self) -> MachineId {
        self.seat.machine
    }

    fn machines(&self) -> u16 {
        self.machines
    }

    fn region(&self) -> &Region {
        &self.own
    }

    fn region_bytes(&self, peer: MachineId) -> Result<usize, Error> {
        Ok(self.peer_region(peer)?.bytes())
    }

    fn connect(&self, peer: MachineId, worker: WorkerId) -> Result<Box<dyn Connection>, Error> {
        let region = Arc::clone(self.peer_region(peer)?);
        self.connected.insert(peer, worker)?;
        Ok(Box::new(ShmConnection { peer, region, reads: PendingReads::default() }))
    }

    fn commit_region(&self, range: Range<usize>) -> Result<(), Error> {
        let bytes = range.len();
        memory::check_access(self.own.bytes(), range.start, bytes, 1)?;
        let committed = || fallocate(&self.file, FallocateFlags::empty(), range.start as u64, bytes as u64);
        retry_on_intr(committed).map_err(Error::system(format!("committing {bytes} bytes of the own region")))
    }

    fn mapped(&self, machine: MachineId, share: ShareId) -> Result<Option<Arc<Share>>, Error> {
        let region = if machine == self.machine() { &self.own } else { self.peer_region(machine)? };
        Ok(Some(Arc::clone(find(region, machine, share)?)))
    }

    fn cause(&self, peer: MachineId) -> Option<String> {
        match self.lost(peer) {
            Ok(Some(Loss::Died)) => Some("its process ended".to_owned()),
            _ => None,
        }
    }

    fn lost(&self, peer: MachineId) -> Result<Option<Loss>, Error> {
        self.peer_region(peer)?;
        self.peers.lost(peer, &self.seat.control)
    }

    fn watch(&self, known: &[MachineId], timeout: Duration) -> Result<Option<MachineId>, Error> {
        self.peers.watch(known, timeout, &self.seat.control)
    }

    fn fence(&self, peer: MachineId, timeout: Duration) -> Result<(), Error> {
        self.peer_region(peer)?;
        self.peers.end(peer, timeout)
    }

    fn end_watch(&self) {
        self.peers.end_watch();
    }
}

/// Returns a share of the machine that has this region.
fn find(region: &Region, machine: MachineId, share: ShareId) -> Result<&Arc<Share>, Error> {
    region.shares().find(share)?.ok_or(Error::NoSuchShare { machine, share })
}

/// Connection to a peer whose region and shares are mapped here.
struct ShmConnection {
    peer: MachineId,
    region: Arc<Region>,
    reads: PendingReads<ShmRead>,
}

/// A read that copies when it is taken.
struct ShmRead {
    share: Arc<Share>,
    offset: usize,
    bytes: usize,
    is_committed: bool,
}

impl Connection for ShmConnection {
    fn peer(&self) -> MachineId {
        self.peer
    }

    fn write(&mut self, source: &[u8], remote_offset: usize) -> Result<(), Error> {
        self.region.publish(remote_offset, source)
    }

    fn wake(&mut self, park_offset: usize) -> Result<(), Error> {
        park::wake(self.region.word32(park_offset)?)
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(()) // nothing is held back
    }

    fn write_share(&mut self, share: ShareId, offset: usize, source: &[u8]) -> Result<(), Error> {
        let share = find(&self.region, self.peer, share)?;
        share.check_committed(offset, source.len())?;
        share.data().publish(offset, source)
    }

    fn read_share(&mut self, share: ShareId, offset: usize, bytes: usize) -> Result<ReadId, Error> {
        let share = find(&self.region, self.peer, share)?;
        share.check(offset, bytes)?;
        let is_committed = share.is_committed(offset, bytes);
        Ok(self.reads.add(ShmRead { share: Arc::clone(share), offset, bytes, is_committed }))
    }

    fn take(&mut self, read_id: ReadId, into: &mut [u8]) -> Result<bool, Error> {
        check_room(read_id, self.reads.get(read_id)?.bytes, into)?;
        let read = self.reads.remove(read_id).ok_or(Error::NoSuchRead { read_id: read_id.0 })?;
        let ShmRead { share, offset, bytes, is_committed } = read;
        if !is_committed {
            return Err(Error::NotCommitted { share: share.id(), offset, bytes });
        }
        share.data().read(offset, into)?;
        Ok(true)
    }
}

impl Seat {
    fn claim(control: Control, machine: MachineId) -> Result<Seat, Error> {
        control.claim(machine)?;
        Ok(Seat { control, machine, is_open: false })
    }

    /// Takes a step, and waits until every machine has taken it.
    fn reach(&self, step: Step, peers: &Peers, timeout: Duration, deadline: Deadline) -> Result<(), Error> {
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
                return Err(Error::PeerMissing { machine, step: step.deed(), waited_ms: timeout.as_millis() });
            }
            self.control.wait_for_change(seen, left.min(LIVENESS_INTERVAL))?;
        }
    }

    /// Returns a machine that has not come to `step` yet.
    fn behind(&self, step: Step) -> Result<Option<MachineId>, Error> {
        for &machine in self.control.group() {
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
        // The step itself cannot fail; if the wake does, peers look again within LIVENESS_INTERVAL.
        let _ = self.control.advance(self.machine, last);
    }
}

/// Gives the own memory file its length and its pages, and seals the length.
fn size(fd: &OwnedFd, RegionSize { bytes, committed_bytes }: RegionSize) -> Result<(), Error> {
    let doing = || format!("reserving {committed_bytes} of {bytes} bytes for the own region");
    retry_on_intr(|| ftruncate(fd, bytes as u64)).map_err(Error::system(doing()))?;
    let committed = committed_bytes.min(bytes) as u64;
    if committed > 0 {
        retry_on_intr(|| fallocate(fd, FallocateFlags::empty(), 0, committed)).map_err(Error::system(doing()))?;
    }
    fcntl_add_seals(fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(Error::system(doing()))
}

/// Maps a region, once it is sealed at the length its machine announced.
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
