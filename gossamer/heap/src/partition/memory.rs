//! The memory of partitions: in the share of their machine, which others map and read; or, where a program is one
//! machine and nobody else can, memory of the process' own. That can have huge pages, with which random reads miss
//! fewer translations of addresses; a share has none unless the administrator lets files in memory have them.
//!
//! Addresses of the process' own memory are inaccessible before they are committed: with locked memory (`mlockall`) the
//! system takes pages for everything that is accessible.
//!
//! Invariant [base-stays]: a mapping stays, and committed memory stays accessible.

#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use gossamer::link;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect};

use crate::places;

/// A huge page of most processors.
const HUGE_BYTES: usize = 2 << 20;

/// Memory for all partitions of the one machine, if there is no other and the system gives it: addresses, which take
/// memory where they are committed, and are inaccessible before that.
pub(crate) fn own() -> Option<*mut u8> {
    static OWN: OnceLock<Option<AtomicPtr<u8>>> = OnceLock::new();
    let map = || {
        let rack = gossamer::rack();
        let is_alone = rack.machines().len() == 1;
        is_alone.then(|| map(places::share_bytes(rack.machine()))).flatten().map(AtomicPtr::new)
    };
    // Relaxed: it does not change, and the cell hands it over.
    Some(OWN.get_or_init(map).as_ref()?.load(Ordering::Relaxed))
}

fn map(bytes: usize) -> Option<*mut u8> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: it is a new mapping, where the system wants it.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes + HUGE_BYTES, ProtFlags::empty(), flags) };
    let start = start.ok()?.cast::<u8>();
    let start = start.wrapping_add(start.align_offset(HUGE_BYTES));
    advise(start, bytes, Advice::LinuxHugepage);
    advise(start, bytes, Advice::LinuxDontDump); // as long as the host's memory, and mostly empty
    Some(start)
}

/// Asks for something that changes no byte; refused, it works as well.
fn advise(start: *mut u8, bytes: usize, advice: Advice) {
    // SAFETY: huge pages, and what a core dump leaves out, do not change the contents of memory.
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
    let bytes = places::share_bytes(gossamer::rack().machine());
    link::open_share(link::HEAP, bytes).map_err(|error| error.to_string())
}

/// Makes bytes of this machine's partitions usable, whole units; they are 0.
///
/// # Errors
/// There is no memory.
pub(crate) fn commit(range: Range<usize>) -> Result<(), String> {
    match own() {
        Some(start) => commit_own(start, range),
        None => link::commit(link::HEAP, range).map_err(|error| error.to_string()),
    }
}

fn commit_own(start: *mut u8, range: Range<usize>) -> Result<(), String> {
    let place = start.wrapping_add(range.start).cast();
    // SAFETY: a part of the mapping; who has references into it may read and write it already.
    unsafe { mprotect(place, range.len(), MprotectFlags::READ | MprotectFlags::WRITE) }
        .map_err(|error| format!("making {} bytes accessible: {error}", range.len()))?;
    // SAFETY: it writes nothing, but has the system provide the pages that are not there.
    let populated = unsafe { madvise(place, range.len(), Advice::LinuxPopulateWrite) };
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
    match own() {
        // SAFETY: as the caller says.
        Some(start) => unsafe { release_own(start, range) },
        // SAFETY: the share of the heap; the caller's promise.
        None => unsafe { link::release(link::HEAP, range) }.map_err(|error| error.to_string()),
    }
}

/// # Safety
/// As of [`release`].
unsafe fn release_own(start: *mut u8, range: Range<usize>) -> Result<(), String> {
    // Locked memory has another name in the request, since Linux 5.18.
    // SAFETY: nothing is in there, by the caller; what is touched again is 0.
    let release = |advice| unsafe { madvise(start.wrapping_add(range.start).cast(), range.len(), advice) };
    release(Advice::LinuxDontNeed)
        .or_else(|_| release(Advice::LinuxDontneedLocked))
        .map_err(|error| format!("releasing {} bytes: {error}", range.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// May these bytes be read and written, by what the system says of the addresses?
    fn is_accessible(at: *mut u8, bytes: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| {
            let (addresses, rest) = line.split_once(' ').unwrap();
            let (start, end) = addresses.split_once('-').unwrap();
            let hex = |text| usize::from_str_radix(text, 16).unwrap();
            hex(start) <= at.addr() && at.addr() + bytes <= hex(end) && rest.starts_with("rw")
        })
    }

    #[test]
    fn what_is_not_committed_is_accessible_to_nobody() {
        const UNIT: usize = 64 << 10;
        let start = map(1 << 30).expect("room");
        assert!(!is_accessible(start, 1) && !is_accessible(start.wrapping_add(3 * UNIT), 1));
        commit_own(start, UNIT..3 * UNIT).unwrap();
        let place = start.wrapping_add(UNIT);
        assert!(is_accessible(place, 2 * UNIT) && !is_accessible(place.wrapping_add(2 * UNIT), 1));
        // Locked, as in a process that has all of its memory so.
        for is_locked in [false, true] {
            // SAFETY: committed above, and nobody else's.
            unsafe {
                if is_locked && rustix::mm::mlock(place.cast(), 2 * UNIT).is_err() {
                    return println!("SKIPPED: 128 KiB cannot be locked here");
                }
                place.write(7);
                release_own(start, UNIT..2 * UNIT).unwrap();
                commit_own(start, UNIT..2 * UNIT).unwrap();
                assert_eq!(place.read(), 0);
            }
        }
    }
}
