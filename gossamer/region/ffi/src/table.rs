//! State of our own code that all machines share, in a region of its own; and the location of the program's memory.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use crate::{PAGE_BYTES, arena};

/// Most threads of the program at a time, on all machines together: fewer than the calls that a worker may have under
/// way, since each waiting thread has one.
pub(crate) const THREADS_MAX: usize = 4000;
/// Most keys of `pthread_key_create`.
pub(crate) const KEYS_MAX: usize = 1024;
/// Most mutexes and barriers of `gossamer_region.h` at a time.
pub(crate) const SYNCS_MAX: usize = 1024;
/// The limit of regions.
pub(crate) const MACHINES_MAX: usize = 64;

/// The shared state; all zero at first.
#[repr(C, align(4096))]
pub(crate) struct Table {
    /// Bytes of the heap that all machines have taken, where they share it.
    pub(crate) used: AtomicUsize,
    /// Processors of all machines.
    pub(crate) processors: AtomicU32,
    /// A mutex for changes of the memory that machines have (`named.rs`, `copy.rs`).
    pub(crate) changing: AtomicI32,
    /// Address of the state of `random` and its kin, where the machines share one (`random.rs`).
    pub(crate) random: AtomicUsize,
    /// A mutex for changes of the environment (`environment.rs`).
    pub(crate) environment: AtomicI32,
    /// Bytes that machines have given back (`pool.rs`).
    pub(crate) pooled: AtomicUsize,
    /// Not 0 once the program has taken away access to memory of its heap (`map.rs`).
    pub(crate) has_guards: AtomicU32,
    /// Not 0 once the program has loaded a library while it runs (`load.rs`).
    pub(crate) has_loaded: AtomicU32,
    /// For each machine, not 0 once it has its copy of variables and heap.
    pub(crate) has_copy: [AtomicU32; MACHINES_MAX],
    /// Turn of each sync: even while it is free; incremented each time one is made or destroyed.
    pub(crate) sync_turns: [AtomicU32; SYNCS_MAX],
    pub(crate) created: Created,
    pub(crate) keys: [Key; KEYS_MAX],
    pub(crate) syncs: [SyncPage; SYNCS_MAX],
    pub(crate) openmp: OpenmpLocks,
}

/// Locks of OpenMP that have no name in the program (`openmp.rs`).
#[repr(C, align(4096))]
pub(crate) struct OpenmpLocks {
    pub(crate) critical: AtomicI32,
    pub(crate) atomic: AtomicI32,
}

/// Room for a mutex or barrier of the C library, on a page of its own (`sync.rs`).
#[repr(C, align(4096))]
pub(crate) struct SyncPage(pub(crate) [AtomicU64; PAGE_BYTES / 8]);

/// Counts of threads (`ids.rs`, `threads.rs`), on a page that only machines touch that create or join threads.
#[repr(C, align(4096))]
pub(crate) struct Created {
    /// Number of threads created so far, which places the next one.
    pub(crate) all: AtomicUsize,
    /// Number of threads that run, or are not joined.
    pub(crate) alive: AtomicUsize,
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

/// Variables of libraries that the program has loaded since its start.
static LATER: RwLock<Vec<Range<usize>>> = RwLock::new(vec![]);

static MEMORY: OnceLock<Memory> = OnceLock::new();
/// Start and length of the heap, once the program has begun.
static HEAP: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Ranges that the program has named, in explicit mode.
static NAMED: RwLock<Vec<Range<usize>>> = RwLock::new(vec![]);

/// Sets the location of the program's memory.
pub(crate) fn begin(layout: Layout, variables: Vec<Range<usize>>) {
    // Relaxed: the program's threads start later, and no other has an address of the heap.
    HEAP[0].store(layout.heap.0, Ordering::Relaxed);
    HEAP[1].store(layout.heap.1, Ordering::Relaxed);
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
#[inline(always)]
pub(crate) fn heap() -> (usize, usize) {
    let [start, bytes] = &HEAP;
    (start.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
}

/// Whether an address is in the heap, or in the arena, which has its blocks from before `main`.
#[inline(always)]
pub(crate) fn is_in_heap(address: usize) -> bool {
    let (start, bytes) = heap();
    address.wrapping_sub(start) < bytes || arena::has(address)
}

/// Whether more than one machine has variables and a heap of its own, as threads have started there.
pub(crate) fn has_several_copies() -> bool {
    is_explicit() && table().has_copy.iter().filter(|has| has.load(Ordering::SeqCst) != 0).count() > 1
}

/// Returns the pages of the variables of the program and its libraries.
pub(crate) fn variables() -> &'static [Range<usize>] {
    MEMORY.get().map_or(&[], |memory| &memory.variables)
}

/// Returns the ranges that the program has named.
pub(crate) fn named() -> Vec<Range<usize>> {
    NAMED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// On a worker: records the variables of a library that the program has loaded.
pub(crate) fn note_variables(range: Range<usize>) {
    LATER.write().unwrap_or_else(PoisonError::into_inner).push(range);
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
        false => is_in_heap(address) || of(variables) || of(&LATER.read().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Whether all of these bytes are in memory that all machines share, in one piece.
pub(crate) fn are_shared(start: usize, bytes: usize) -> bool {
    let Some(last) = bytes.checked_sub(1).and_then(|more| start.checked_add(more)) else { return false };
    let Some(Memory { layout, variables }) = MEMORY.get() else { return false };
    let of = |ranges: &[Range<usize>]| ranges.iter().any(|range| range.contains(&start) && range.contains(&last));
    match layout.is_explicit {
        true => of(&NAMED.read().unwrap_or_else(PoisonError::into_inner)),
        false => {
            let of_later = || of(&LATER.read().unwrap_or_else(PoisonError::into_inner));
            is_in_heap(start) && is_in_heap(last) || of(variables) || of_later()
        }
    }
}

/// Returns the table, once the program has begun.
pub(crate) fn table() -> &'static Table {
    let memory = MEMORY.get();
    let table = memory.map(|memory| std::ptr::with_exposed_provenance::<Table>(memory.layout.table));
    // SAFETY: a region that stays, of which no span exists, all atomics; zeros are a table.
    table.map_or_else(|| panic!("the program has not begun"), |table| unsafe { &*table })
}
