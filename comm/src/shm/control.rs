//! Control file: one seat for each machine of a group (the machines of a program on one host), by which they
//! find each other at the start and tell each other that they leave. Not here: anything on the path of a
//! request.
//!
//! Layout, in bytes: 0 magic (u64) · 8 machines (u64) · 16 changes (u32, a futex) · then seat `i`
//! at `64 * (1 + i)`: +0 region_bytes (u64) · +8 pid (u64) · +16 step (u32).
//!
//! A machine writes only its own seat, and goes up [`Step`] by step. A step is stored with `Release`
//! after the state it announces, and loaded with `Acquire`.
//!
//! Reason for three steps: a pid may be reused once its process is dead, so a pidfd made from a pid is only
//! right if the process lived at that moment. A machine becomes `Up` after it has seen every other `Linked`,
//! a step that each machine takes after it has made its pidfds; so a machine that has seen a peer `Up` knows
//! that this peer lived when its pidfd was made.

use crate::error::Error;
use crate::ids::MachineId;
use crate::memory::Region;
use memmap2::MmapOptions;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::thread::futex;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// "gsm" and the version of this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"gsm-shm1");
const MACHINES: usize = 8;
const CHANGES: usize = 16;
const SEAT_BYTES: usize = 64;
const SEAT_PID: usize = 8;
const SEAT_STEP: usize = 16;
/// Bounds the control file (256 KiB) and, with it, the descriptors a machine holds while it starts.
const MACHINES_MAX: u16 = 4095;

/// Progress of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(super) enum Step {
    /// The machine has not started.
    Absent,
    /// Starting.
    Claimed,
    /// Its region has its length, and its pid is known.
    Sized,
    /// It has mapped all regions and has a pidfd of every peer.
    Linked,
    /// It has seen every peer linked.
    Up,
    /// It has dropped its fabric.
    Left,
    /// It could not start.
    Failed,
}

impl Step {
    fn from_u32(value: u32) -> Option<Step> {
        use Step::*;
        [Absent, Claimed, Sized, Linked, Up, Left, Failed].into_iter().find(|step| *step as u32 == value)
    }

    /// Returns the action that leads to this step, for messages.
    pub(super) fn deed(self) -> &'static str {
        match self {
            Step::Absent | Step::Claimed => "start",
            Step::Sized => "size its memory",
            Step::Linked => "map its peers' memory",
            Step::Up | Step::Left | Step::Failed => "come up",
        }
    }
}

/// A mapped control file.
#[derive(Debug)]
pub(super) struct Control {
    region: Region,
    /// The machine in each seat, ascending.
    group: Vec<MachineId>,
}

/// Makes the control file, complete and sealed.
pub(super) fn create(machines: u16) -> Result<OwnedFd, Error> {
    if machines == 0 || machines > MACHINES_MAX {
        return Err(Error::bootstrap(format!("a program has 1 to {MACHINES_MAX} machines, not {machines}")));
    }
    let doing = "creating the control file of a rack program";
    let fd = memfd_create("gossamer-control", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(Error::system(doing))?;
    let mut content = vec![0; SEAT_BYTES * (1 + usize::from(machines))];
    content[..MACHINES].copy_from_slice(&MAGIC.to_ne_bytes());
    content[MACHINES..CHANGES].copy_from_slice(&u64::from(machines).to_ne_bytes());
    let file = std::fs::File::from(fd);
    file.write_all_at(&content, 0).map_err(Error::system(doing))?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(Error::system(doing))?;
    Ok(file.into())
}

impl Control {
    /// Maps a control file, and checks that it is one.
    pub(super) fn open(fd: &OwnedFd) -> Result<Control, Error> {
        let seals = fcntl_get_seals(fd).map_err(Error::system("asking for the seals of the control file"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(Error::bootstrap("the first memory file is no control file (not sealed)"));
        }
        let map = MmapOptions::new().map_raw(fd.as_raw_fd()).map_err(Error::system("mapping the control file"))?;
        let region = Region::new(map);
        let machines = region.word(MACHINES)?.load(Ordering::Relaxed);
        let fits = u16::try_from(machines).ok().filter(|n| region.bytes() == SEAT_BYTES * (1 + usize::from(*n)));
        match fits {
            Some(machines) if region.word(0)?.load(Ordering::Relaxed) == MAGIC => {
                Ok(Control { region, group: (0..machines).map(MachineId).collect() })
            }
            _ => Err(Error::bootstrap("the first memory file is no control file of this version")),
        }
    }

    /// Sets the machines of the seats, where they are not the whole program, numbered in order.
    pub(super) fn seat_group(&mut self, group: &[MachineId]) -> Result<(), Error> {
        if group.len() != self.group.len() || !group.is_sorted_by(|a, b| a < b) {
            let seats = self.group.len();
            return Err(Error::bootstrap(format!(
                "the machines {group:?} for {seats} seats, not one for each, ascending"
            )));
        }
        self.group = group.to_vec();
        Ok(())
    }

    /// Returns the machine in each seat, ascending.
    pub(super) fn group(&self) -> &[MachineId] {
        &self.group
    }

    /// Returns the offset of the seat of a machine of the group.
    fn seat(&self, machine: MachineId) -> Result<usize, Error> {
        let index = self.group.binary_search(&machine);
        let index = index.map_err(|_| Error::bootstrap(format!("{machine} has no seat on this host")))?;
        Ok(SEAT_BYTES * (1 + index))
    }

    /// Takes the own seat; each seat has one machine.
    pub(super) fn claim(&self, machine: MachineId) -> Result<(), Error> {
        let step = self.region.word32(self.seat(machine)? + SEAT_STEP)?;
        // Relaxed: a claim publishes nothing.
        step.compare_exchange(Step::Absent as u32, Step::Claimed as u32, Ordering::Relaxed, Ordering::Relaxed)
            .map(drop)
            .map_err(|_| Error::bootstrap(format!("{machine} was started before")))
    }

    /// Writes the own region's length and pid; visible with the next step.
    pub(super) fn introduce(&self, machine: MachineId, region_bytes: usize, pid: u32) -> Result<(), Error> {
        self.region.word(self.seat(machine)?)?.store(region_bytes as u64, Ordering::Relaxed);
        self.region.word(self.seat(machine)? + SEAT_PID)?.store(u64::from(pid), Ordering::Relaxed);
        Ok(())
    }

    /// Takes a step, and wakes the machines that wait for it.
    pub(super) fn advance(&self, machine: MachineId, to: Step) -> Result<(), Error> {
        // Release, with the Acquire in `step`.
        self.region.word32(self.seat(machine)? + SEAT_STEP)?.store(to as u32, Ordering::Release);
        let changes = self.region.word32(CHANGES)?;
        // Release, with the Acquire in `changes`: a reader that sees the count sees the step.
        changes.fetch_add(1, Ordering::Release);
        futex::wake(changes, futex::Flags::empty(), i32::MAX as u32)
            .map(drop)
            .map_err(Error::system("telling the peers"))
    }

    /// Returns the step of `machine`.
    pub(super) fn step(&self, machine: MachineId) -> Result<Step, Error> {
        // Acquire, with the Release in `advance`.
        let value = self.region.word32(self.seat(machine)? + SEAT_STEP)?.load(Ordering::Acquire);
        Step::from_u32(value)
            .ok_or_else(|| Error::bootstrap(format!("the control file says step {value} of {machine}")))
    }

    /// Returns the length of the region of a machine that is `Sized`.
    pub(super) fn region_bytes(&self, machine: MachineId) -> Result<u64, Error> {
        Ok(self.region.word(self.seat(machine)?)?.load(Ordering::Relaxed))
    }

    /// Returns the process of a machine that is `Sized`.
    pub(super) fn pid(&self, machine: MachineId) -> Result<u64, Error> {
        Ok(self.region.word(self.seat(machine)? + SEAT_PID)?.load(Ordering::Relaxed))
    }

    /// Returns the count of all steps so far: load it, look at the seats, then wait for it to change.
    pub(super) fn changes(&self) -> Result<u32, Error> {
        // Acquire, with the Release in `advance`.
        Ok(self.region.word32(CHANGES)?.load(Ordering::Acquire))
    }

    /// Sleeps until some machine takes a step after `seen`, or the timeout has passed, or spuriously.
    pub(super) fn wait_for_change(&self, seen: u32, timeout: Duration) -> Result<(), Error> {
        use rustix::io::Errno;
        let timeout = futex::Timespec::try_from(timeout).ok();
        match futex::wait(self.region.word32(CHANGES)?, futex::Flags::empty(), seen, timeout.as_ref()) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
            Err(error) => Err(Error::system("waiting for the peers")(error)),
        }
    }
}
