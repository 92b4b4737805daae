//! Layout of the program's memory, by machine 0 before `main`, at the same addresses on all machines.
//!
//! Automatic: variables, blocks from before `main` and heap become regions, at the addresses that they have anyway.
//! Explicit: each machine has variables and heap of its own, and the ranges that the program names become regions
//! (`named.rs`). Either way our own table is a region.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;

use gossamer_region::link::{address, over};
use gossamer_region::{Error, Region};

use crate::PAGE_BYTES;
use crate::call::map_here;
use crate::objects::Variables;
use crate::table::{self, Layout, Table, table};
use crate::{
    affinity, arena, block, copy, end_of_program, keys, mappings, marks, mask, objects, openmp, own_heap, process,
    random, report, side, signals, trap,
};

/// Variable with the bytes of the heap, if not 64 GiB.
const BYTES: &str = "GOSSAMER_REGION_BYTES";
const HEAP_BYTES: usize = 64 << 30;
/// Addresses for a heap of each machine's own: neither the system nor regions choose addresses there.
const HEAPS: Range<usize> = 0x1000_0000_0000..0x1800_0000_0000;
const HEAPS_STEP: usize = 0x0080_0000_0000;

fn ended(doing: &str, error: Error) -> ! {
    gossamer::link::end(&format!("{doing} cannot be shared by the machines: {error}"))
}

/// In the first fiber: lays out the program's memory.
pub(crate) fn lay_out(is_explicit: bool) {
    let asked = std::env::var(BYTES).ok().map(|text| {
        let bytes = text.parse().ok().filter(|bytes| *bytes >= 64 << 20);
        bytes.unwrap_or_else(|| gossamer::link::end(&format!("{BYTES}={text}: bytes, at least 67108864")))
    });
    let heap_bytes = asked.unwrap_or(HEAP_BYTES);
    let mark = marks::marks();
    for machine in 0..side::machines() {
        if !side::from_worker(machine, move || mark == marks::marks()) {
            gossamer::link::end(&format!(
                "machine {machine} has another program or other libraries than machine 0, or has them at other \
                 addresses: all need the same files (C library included), and their hosts the same version of Linux \
                 and processors with the same instructions"
            ));
        }
    }
    let table = Region::new(size_of::<Table>()).unwrap_or_else(|error| ended("what machines tell each other", error));
    let heap = match is_explicit {
        true => (heaps_of_their_own(heap_bytes), heap_bytes),
        false => share_all(heap_bytes),
    };
    let layout = Layout { table: address(&table), heap, is_explicit };
    let (before, guard) = (arena::pages().len(), block::guard());
    for machine in 0..side::machines() {
        side::from_worker(machine, move || {
            // With OpenMP no thread is in a block.
            block::note_guard(if openmp::has_teams() { 0 } else { guard });
            if machine != 0 {
                end_of_program::register_for_blocks();
                own_heap::forget();
                mappings::forget();
                if !arena::set_bytes(before, is_explicit) {
                    gossamer::link::end(&format!("machine {machine} has no memory at {:#x}", arena::pages().start));
                }
            }
            side::note_worker();
            table::begin(layout, objects::pages());
            trap::begin();
            if machine != 0 {
                mask::can_be_ended();
            }
        });
    }
    report::note(table);
    keys::hand_over();
    if !is_explicit {
        random::hand_over();
    }
    process::hand_over();
    signals::hand_over();
    copy::begin();
    // Machines of one host share its processors.
    let mut hosts = BTreeSet::new();
    let firsts = (0u16..).zip(gossamer::rack().machines()).filter(|(_, machine)| hosts.insert(&machine.host));
    let processors: u32 = firsts.map(|(machine, _)| side::from_worker(machine, affinity::note_processors)).sum();
    self::table().processors.store(processors, Ordering::SeqCst);
}

/// Puts the variables of the program and its libraries, their blocks from before `main`, and a heap into regions;
/// returns start and length of the heap.
fn share_all(heap_bytes: usize) -> (usize, usize) {
    let heap = Region::new(heap_bytes).unwrap_or_else(|error| ended("the heap", error));
    let early = Variables { pages: arena::pages(), zeros: arena::pages().start };
    for Variables { pages, zeros } in objects::variables().into_iter().chain([early]) {
        if pages.is_empty() {
            continue;
        }
        let touched = copy::touched(&(zeros..pages.end));
        let before = copy::contents((pages.start..zeros).step_by(PAGE_BYTES).chain(touched));
        // SAFETY: the program's memory, whose bytes are restored below; nothing of the program runs yet.
        report::note(unsafe { over(pages) }.unwrap_or_else(|error| ended("the program's variables", error)));
        copy::restore(&before);
    }
    let found = (address(&heap), heap.bytes());
    report::note(heap);
    found
}

/// Gives each machine a heap of its own, at the same address; returns that address.
fn heaps_of_their_own(bytes: usize) -> usize {
    let machines = side::machines();
    let failed = |machine: u16, errno: i32| -> ! {
        let why = std::io::Error::from_raw_os_error(errno);
        gossamer::link::end(&format!(
            "machine {machine} has no {bytes} bytes for the heap: {why}; ask for less with {BYTES}"
        ))
    };
    for address in HEAPS.step_by(HEAPS_STEP) {
        let taken = (0..machines).find(|machine| match side::from_worker(*machine, move || reserve(address, bytes)) {
            0 => false,
            libc::EEXIST => true,
            errno => failed(*machine, errno),
        });
        let Some(taken) = taken else { return address };
        (0..taken).for_each(|machine| side::from_worker(machine, move || give_back(address, bytes)));
    }
    gossamer::link::end(&format!("no address is free for a heap of {bytes} bytes on all machines"))
}

/// Maps memory at an address where nothing is mapped. Returns 0 or the system's error.
fn reserve(address: usize, bytes: usize) -> i32 {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
    );
    // SAFETY: a new mapping that replaces none.
    let found = unsafe { map_here(std::ptr::without_provenance_mut(address), bytes, protection, flags, -1, 0) };
    if found == libc::MAP_FAILED {
        return std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOMEM);
    }
    if found.expose_provenance() != address {
        give_back(found.addr(), bytes); // an old kernel takes the address as a hint
        return libc::EEXIST;
    }
    0
}

fn give_back(address: usize, bytes: usize) {
    // SAFETY: `reserve` has mapped it, and no other code knows of it. If it fails, addresses are lost.
    unsafe { libc::syscall(libc::SYS_munmap, address, bytes) };
}
