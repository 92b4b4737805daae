//! What our own code keeps where all machines have it, in a region of its own; and where the program's memory is.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{OnceLock, PoisonError, RwLock};

use crate::PAGE_BYTES;

/// Threads of the program at a time, on all machines together: fewer than calls of a worker may be under way, since
/// each that waits has one.
pub(crate) const THREADS_MAX: usize = 4000;
/// Keys of `pthread_key_create`.
pub(crate) const KEYS_MAX: usize = 1024;
/// Mutexes and barriers of `gossamer_region.h` at a time.
pub(crate) const SYNCS_MAX: usize = 1024;
/// As regions have.
const MACHINES_MAX: usize = 64;

/// All zero at first.
#[repr(C, align(4096))]
pub(crate) struct Table {
    /// Bytes of the heap that all machines have taken, where they share it.
    pub(crate) used: AtomicUsize,
    /// The thread that is tried next.
    pub(crate) next_thread: AtomicUsize,
    /// Processors of all machines.
    pub(crate) processors: AtomicU32,
    /// A mutex: who changes what machines have (`named.rs`, `copy.rs`).
    pub(crate) changing: AtomicI32,
    /// Not 0: this machine has had its copy of variables and heap.
    pub(crate) has_copy: [AtomicU32; MACHINES_MAX],
    /// Of each of the syncs: even while it is free; then one more each time it is made and unmade.
    pub(crate) sync_turns: [AtomicU32; SYNCS_MAX],
    pub(crate) threads: [Thread; THREADS_MAX],
    pub(crate) keys: [Key; KEYS_MAX],
    pub(crate) syncs: [SyncPage; SYNCS_MAX],
}

/// Room for a mutex or barrier of the C library, on a page of its own (`sync.rs`).
#[repr(C, align(4096))]
pub(crate) struct SyncPage(pub(crate) [AtomicU64; PAGE_BYTES / 8]);

/// One thread: free, running or ended (`threads.rs`).
#[repr(C, align(64))]
pub(crate) struct Thread {
    pub(crate) state: AtomicU32,
    /// Which of those that were in this place one after the other.
    pub(crate) turn: AtomicU32,
    /// What it returned.
    pub(crate) result: AtomicUsize,
}

/// One key: even while it is free; then one more at each `pthread_key_create` and `pthread_key_delete`.
#[repr(C)]
pub(crate) struct Key {
    pub(crate) turn: AtomicU64,
    pub(crate) destructor: AtomicUsize,
}

/// Where the program's memory is: the same on all machines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) table: usize,
    pub(crate) heap: (usize, usize),
    /// The machines share no more than what the program names.
    pub(crate) is_explicit: bool,
}

struct Memory {
    layout: Layout,
    variables: Vec<Range<usize>>,
}

static MEMORY: OnceLock<Memory> = OnceLock::new();
/// What the program has named, where it names what the machines share.
static NAMED: RwLock<Vec<Range<usize>>> = RwLock::new(vec![]);

/// From here on the program's memory is there.
pub(crate) fn begin(layout: Layout, variables: Vec<Range<usize>>) {
    let _ = MEMORY.set(Memory { layout, variables }); // a process runs one program
}

pub(crate) fn has_begun() -> bool {
    MEMORY.get().is_some()
}

/// Whether the machines share no more than what the program names.
pub(crate) fn is_explicit() -> bool {
    MEMORY.get().is_some_and(|memory| memory.layout.is_explicit)
}

/// The heap: where it is, and its length. Nothing before the program has begun.
pub(crate) fn heap() -> (usize, usize) {
    MEMORY.get().map_or((0, 0), |memory| memory.layout.heap)
}

/// Whether an address is in the heap.
pub(crate) fn is_in_heap(address: usize) -> bool {
    let (start, bytes) = heap();
    address.wrapping_sub(start) < bytes
}

/// The pages of the program's variables.
pub(crate) fn variables() -> &'static [Range<usize>] {
    MEMORY.get().map_or(&[], |memory| &memory.variables)
}

/// The ranges that the program has named.
pub(crate) fn named() -> Vec<Range<usize>> {
    NAMED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// On a worker: these pages are shared from now on.
pub(crate) fn note_named(range: Range<usize>) {
    NAMED.write().unwrap_or_else(PoisonError::into_inner).push(range);
}

/// Whether an address is in memory that all machines share.
pub(crate) fn is_shared(address: usize) -> bool {
    let Some(Memory { layout, variables }) = MEMORY.get() else { return false };
    if address.wrapping_sub(layout.table) < size_of::<Table>() {
        return true;
    }
    let of = |ranges: &[Range<usize>]| ranges.iter().any(|range| range.contains(&address));
    match layout.is_explicit {
        true => of(&NAMED.read().unwrap_or_else(PoisonError::into_inner)),
        false => is_in_heap(address) || of(variables),
    }
}

/// The table, once the program has begun.
pub(crate) fn table() -> &'static Table {
    let memory = MEMORY.get();
    let table = memory.map(|memory| std::ptr::with_exposed_provenance::<Table>(memory.layout.table));
    // SAFETY: a region that stays, of which nobody else has any part, all atomics; zeros are a table.
    table.map_or_else(|| panic!("the program has not begun"), |table| unsafe { &*table })
}
