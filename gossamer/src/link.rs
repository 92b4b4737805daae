//! Shares for the crates above (`gossamer-heap`, `gossamer-region`, `gossamer-array`), memory that other machines read
//! one-sidedly; keepers (`keeper.rs`); the end of the program. Not for programs.
//!
//! A share is opened once a machine, by number; what each number is for, the crates agree on here, from [`HEAP`] on.
//! Machines of one host map each other's ([`mapped`]); from others, a worker reads over its own connection ([`read`],
//! [`take`]), which no worker of theirs takes part in. `comm::share` has the orders.
//!
//! A program that runs as one process has shares too, in a fabric of one machine that is made for them.
//!
//! Safe code of programs can reach all of this: what could change or take back memory in which a crate above has its
//! values is unsafe.

#![allow(unsafe_code)] // promises

use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use comm::shm::{self, ShmFabric};
use comm::{Error, Fabric, MachineId, Share, ShareId, Ticket, WORD_BYTES};

use trust::TrusteeReference;

use crate::Builder;
use crate::bootstrap::HeapBytes;
use crate::remote::connections::{self, Connection};

/// The share in which objects of `gossamer-heap` lie.
pub const HEAP: ShareId = ShareId(0);
/// The share in which pages of `gossamer-region` lie.
pub const REGION: ShareId = ShareId(1);
/// The share in which places of `gossamer-array` have their chunks.
pub const ARRAY: ShareId = ShareId(2);

static HEAP_BYTES: OnceLock<Option<HeapBytes>> = OnceLock::new();
static FABRIC: OnceLock<Weak<dyn Fabric>> = OnceLock::new();
/// Of a program that is one process.
static ALONE: OnceLock<Result<Arc<ShmFabric>, String>> = OnceLock::new();

/// The program runs on this one, and so much its heaps on this host may take.
pub(crate) fn note(fabric: &Arc<dyn Fabric>, heap: Option<HeapBytes>) {
    let _ = FABRIC.set(Arc::downgrade(fabric)); // a process runs one program
    let _ = HEAP_BYTES.set(heap);
}

/// What the heaps of the program's machines on this host may take together, if its `rack.yaml` says so.
pub fn heap_bytes() -> Option<u64> {
    HEAP_BYTES.get().copied().flatten().map(HeapBytes::get)
}

/// Calls `f` with the fabric.
fn with<R>(f: impl FnOnce(&dyn Fabric) -> Result<R, Error>) -> Result<R, Error> {
    if let Some(fabric) = FABRIC.get() {
        let ended = || Error::Bootstrap { reason: "the program ends: its machines have parted".into() };
        return f(&*fabric.upgrade().ok_or_else(ended)?);
    }
    match ALONE.get_or_init(|| alone().map(Arc::new).map_err(|error| error.to_string())) {
        Ok(fabric) => f(&**fabric),
        Err(problem) => Err(Error::Bootstrap { reason: problem.clone() }),
    }
}

fn alone() -> Result<ShmFabric, Error> {
    ShmFabric::open(shm::create(1)?.bootstrap(MachineId(0))?, WORD_BYTES, Duration::from_secs(1))
}

/// With a keeper on each machine, if there are several.
pub fn with_keepers(builder: Builder) -> Builder {
    Builder { has_keepers: true, ..builder }
}

/// As [`Builder::main`], but `gsm_main` says with which status the program ends, then and there, whatever other fibers
/// do; returns it.
pub fn main_with_status<F: FnOnce() -> u8 + Send + 'static>(builder: Builder, gsm_main: F, threads: usize) -> u8 {
    crate::start::start_with_status(&builder, move || Some(gsm_main()), threads)
}

/// Whether the program was started with keepers.
pub fn has_keepers() -> bool {
    crate::keeper::is_started()
}

/// The keeper of a machine, where the program was started with keepers and has several machines.
pub fn keeper(machine: u16) -> TrusteeReference {
    crate::rack().keeper(machine)
}

/// Ends the program, which cannot go on, with this cause.
pub fn end(cause: &str) -> ! {
    crate::fate::end(cause)
}

/// Opens a share of this machine: so many bytes of addresses, of which nothing is committed.
///
/// # Errors
/// Those of `comm::Fabric::open_share`.
pub fn open_share(share: ShareId, bytes: usize) -> Result<(), Error> {
    with(|fabric| fabric.open_share(share, bytes))
}

/// Makes a range of an own share usable, by this machine and by all that are told of it from now on.
///
/// # Errors
/// Those of `comm::Fabric::commit`; there is no more memory, among others.
pub fn commit(share: ShareId, range: Range<usize>) -> Result<(), Error> {
    with(|fabric| fabric.commit(share, range))
}

/// Gives a range of an own share back.
///
/// # Safety
/// The share is the calling crate's, and nothing that anybody still uses lies in the range.
///
/// # Errors
/// Those of `comm::Fabric::release`.
pub unsafe fn release(share: ShareId, range: Range<usize>) -> Result<(), Error> {
    with(|fabric| fabric.release(share, range))
}

/// A share as this process has it mapped: an own one, or that of a machine of this host. It stays mapped for as long as
/// it is held.
///
/// # Safety
/// The share is the calling crate's: its words are stored to as that crate's values allow.
///
/// # Errors
/// Those of `comm::Fabric::mapped`.
pub unsafe fn mapped(machine: u16, share: ShareId) -> Result<Option<Arc<Share>>, Error> {
    find_mapped(machine, share)
}

fn find_mapped(machine: u16, share: ShareId) -> Result<Option<Arc<Share>>, Error> {
    with(|fabric| fabric.mapped(MachineId(machine), share))
}

/// Whether this process maps the shares of a machine, or will, when that opens them: one of this host, by shared
/// memory.
pub fn maps(machine: u16, share: ShareId) -> bool {
    matches!(find_mapped(machine, share), Ok(Some(_)) | Err(Error::NoSuchShare { .. }))
}

/// Begins to read from a share of another machine, on a worker of the program.
///
/// # Errors
/// Those of `comm::Connection::read_share`; [`Error::NoSuchPeer`] on a thread that is no worker.
pub fn read(machine: u16, share: ShareId, offset: usize, bytes: usize) -> Result<Ticket, Error> {
    connection(machine)?.read_share(share, offset, bytes)
}

/// Takes what was read by the calling worker, if it is there. Nobody is woken by what comes: who waits asks again, in
/// between letting the worker have its turns.
///
/// # Errors
/// Those of `comm::Connection::take`.
pub fn take(machine: u16, ticket: Ticket, into: &mut [u8]) -> Result<bool, Error> {
    connection(machine)?.take(ticket, into)
}

fn connection(machine: u16) -> Result<Rc<Connection>, Error> {
    let none = || {
        let rack = crate::rack();
        Error::NoSuchPeer {
            machine: MachineId(machine),
            own: MachineId(rack.machine()),
            machines: rack.machines().len() as u16,
        }
    };
    connections::to(MachineId(machine)).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    /// Functions that safe code may call at any time: they change no memory in which a crate above has its values.
    const SAFE: [&str; 11] = [
        "heap_bytes",
        "with_keepers",
        "main_with_status",
        "has_keepers",
        "keeper",
        "end",
        "open_share",
        "commit",
        "maps",
        "read",
        "take",
    ];

    #[test]
    fn functions_are_unsafe_or_known_to_be_safe() {
        let lines = include_str!("link.rs").lines();
        let names =
            lines.filter_map(|line| line.strip_prefix("pub fn ")).filter_map(|line| line.split(['(', '<']).next());
        let names: Vec<_> = names.collect();
        assert!(names.contains(&"read"), "{names:?}");
        let unknown: Vec<_> = names.iter().filter(|name| !SAFE.contains(name)).collect();
        assert!(unknown.is_empty(), "safe whatever safe code does, or unsafe? {unknown:?}");
    }
}
