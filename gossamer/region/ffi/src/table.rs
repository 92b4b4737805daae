//! State of our own code that all machines share, in a region of its own; and the location of the program's memory.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{OnceLock, PoisonError, RwLock};

use crate::PAGE_BYTES;

/// Most threads of the program at a time, on all machines together: fewer than the calls that a worker may have under
/// way, since each waiting thread has one.
pub(crate) const THREADS_MAX: usize = 4000;
/// Most keys of `pthread_key_create`.
pub(crate) const KEYS_MAX: usize = 1024;
/// Most mutexes and barriers of `gossamer_region.h` at a time.
pub(crate) const SYNCS_MAX: usize = 1024;
/// Sizes of the heap's blocks.
pub(crate) const CLASSES: usize = 4 * 48;
/// The limit of regions.
const MACHINES_MAX: usize = 64;

/// The shared state; all zero at first.
#[repr(C, align(4096))]
pub(crate) struct Table {
    /// Bytes of the heap that all machines have taken, where they share it.
    pub(crate) used: AtomicUsize,
    /// Number of threads placed so far; the place of the next one is tried from here.
    pub(crate) next_thread: AtomicUsize,
    /// Processors of all machines.
    pub(crate) processors: AtomicU32,
    /// A mutex for changes of the memory that machines have (`named.rs`, `copy.rs`).
    pub(crate) changing: AtomicI32,
    /// Number of free blocks of each class that machines have passed on (`pool.rs`).
    pub(crate) pooled: [AtomicU32; CLASSES],
    /// Not 0 once the program has taken away access to memory of its heap (`map.rs`).
    pub(crate) has_guards: AtomicU32,
    /// For each machine, not 0 once it has its copy of variables and heap.
    pub(crate) has_copy: [AtomicU32; MACHINES_MAX],
    /// Turn of each sync: even while it is free; incremented each time one is made or destroyed.
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
    /// Counts the threads that had this place.
    pub(crate) turn: AtomicU32,
    /// Its result.
    pub(crate) result: AtomicUsize,
}

/// One key. `turn` is even while it is free; incremented at each `pthread_key_create` and `pthread_key_delete`.
#[repr(C)]
pub(crate) struct Key {
    pub(crate) turn: AtomicU64,
    pub(crate) destructor: AtomicUsize,
}

/// Location of the program's memory, the same on all machines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) table: usize,
    pub(crate) heap: (usize, usize),
    /// The machines share only the ranges that the program names.
    pub(crate) is_explicit: bool,
}

struct Memory {
    layout: Layout,
    variables: Vec<Range<usize>>,
}

static MEMORY: OnceLock<Memory> = OnceLock::new();
/// Ranges that the program has named, in explicit mode.
static NAMED: RwLock<Vec<Range<usize>>> = RwLock::new(vec![]);

/// Sets the location of the program's memory.
pub(crate) fn begin(layout: Layout, variables: Vec<Range<usize>>) {
    let _ = MEMORY.set(Memory { layout, variables }); // a process runs one program
}

pub(crate) fn has_begun() -> bool {
    MEMORY.get().is_some()
}

/// Whether the machines share only the ranges that the program names.
pub(crate) fn is_explicit() -> bool {
    MEMORY.get().is_some_and(|memory| memory.layout.is_explicit)
}

/// Returns start and length of the heap; zeros before the program has begun.
pub(crate) fn heap() -> (usize, usize) {
    MEMORY.get().map_or((0, 0), |memory| memory.layout.heap)
}

/// Whether an address is in the heap.
pub(crate) fn is_in_heap(address: usize) -> bool {
    let (start, bytes) = heap();
    address.wrapping_sub(start) < bytes
}

/// Returns the pages of the program's variables.
pub(crate) fn variables() -> &'static [Range<usize>] {
    MEMORY.get().map_or(&[], |memory| &memory.variables)
}

/// Returns the ranges that the program has named.
pub(crate) fn named() -> Vec<Range<usize>> {
    NAMED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// On a worker: records pages as shared.
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

/// Returns the table, once the program has begun.
pub(crate) fn table() -> &'static Table {
    let memory = MEMORY.get();
    let table = memory.map(|memory| std::ptr::with_exposed_provenance::<Table>(memory.layout.table));
    // SAFETY: a region that stays, of which no span exists, all atomics; zeros are a table.
    table.map_or_else(|| panic!("the program has not begun"), |table| unsafe { &*table })
}
