//! The memory of partitions: in the share of their machine, which others map and read; or, where a program is one
//! machine and nobody else can, memory of the process' own. That can have huge pages, with which random reads miss
//! fewer translations of addresses; a share has none unless the administrator lets files in memory have them.
//!
//! Invariant B1: a mapping stays.

#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use gossamer::link;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::bases;

/// A huge page of most processors.
const HUGE_BYTES: usize = 2 << 20;

/// Memory for all partitions of the one machine, if there is no other and the system gives it: addresses, which take
/// memory where they are committed.
pub(crate) fn own() -> Option<*mut u8> {
    static OWN: OnceLock<Option<AtomicPtr<u8>>> = OnceLock::new();
    let map = || {
        let rack = gossamer::rack();
        let is_alone = rack.machines().len() == 1;
        is_alone.then(|| map(bases::share_bytes(rack.machine()))).flatten().map(AtomicPtr::new)
    };
    // Relaxed: it does not change, and the cell hands it over.
    Some(OWN.get_or_init(map).as_ref()?.load(Ordering::Relaxed))
}

fn map(bytes: usize) -> Option<*mut u8> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: it is a new mapping, where the system wants it.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes + HUGE_BYTES, protection, flags) }.ok()?.cast::<u8>();
    let start = start.wrapping_add(start.align_offset(HUGE_BYTES));
    advise(start, bytes, Advice::LinuxHugepage);
    Some(start)
}

/// Asks for something that does nothing but to the speed; refused, it works as well.
fn advise(start: *mut u8, bytes: usize, advice: Advice) {
    // SAFETY: huge pages do not change the contents of memory.
    let _ = unsafe { madvise(start.cast(), bytes, advice) };
}

/// A share's partition that has just been mapped: it gets huge pages where the system lets such files have them.
pub(crate) fn ask_for_huge_pages(start: *mut u8, bytes: usize) {
    advise(start, bytes, Advice::LinuxHugepage);
}

/// Prepares the share of this machine, if its memory is one.
///
/// # Errors
/// The system's error.
pub(crate) fn open() -> Result<(), String> {
    if own().is_some() {
        return Ok(());
    }
    let bytes = bases::share_bytes(gossamer::rack().machine());
    link::open_share(link::HEAP, bytes).map_err(|error| error.to_string())
}

/// Makes bytes of this machine's partitions usable, whole units; they are 0.
///
/// # Errors
/// There is no memory.
pub(crate) fn commit(range: Range<usize>) -> Result<(), String> {
    let Some(start) = own() else { return link::commit(link::HEAP, range).map_err(|error| error.to_string()) };
    // SAFETY: it writes nothing, but has the system provide the pages that are not there.
    let populated = unsafe { madvise(start.wrapping_add(range.start).cast(), range.len(), Advice::LinuxPopulateWrite) };
    match populated {
        // Before Linux 5.14 each is provided when it is touched.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(format!("committing {} bytes: {error}", range.len())),
    }
}

/// Gives bytes of this machine's partitions back to the system, whole units.
///
/// # Safety
/// Nothing is in them, and nobody has a reference there.
///
/// # Errors
/// The system takes them not.
pub(crate) unsafe fn release(range: Range<usize>) -> Result<(), String> {
    let Some(start) = own() else {
        // SAFETY: the share of the heap; the caller's promise.
        return unsafe { link::release(link::HEAP, range) }.map_err(|error| error.to_string());
    };
    // SAFETY: the range is unused, by the caller; memory that is touched again is 0.
    unsafe { madvise(start.wrapping_add(range.start).cast(), range.len(), Advice::LinuxDontNeed) }
        .map_err(|error| format!("releasing {} bytes: {error}", range.len()))
}
