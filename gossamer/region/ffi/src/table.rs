//! What our own code keeps in the program's memory, where all machines have it: at the start of the heap's region.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// Threads of the program at a time, on all machines together.
pub(crate) const THREADS_MAX: usize = 1 << 14;
/// Keys of `pthread_key_create`.
pub(crate) const KEYS_MAX: usize = 1024;

/// All zero at first.
#[repr(C, align(4096))]
pub(crate) struct Table {
    /// Bytes that the heaps of all machines have taken, from the start of the region.
    pub(crate) used: AtomicUsize,
    /// The thread that is tried next.
    pub(crate) next_thread: AtomicUsize,
    /// Processors of all machines.
    pub(crate) processors: AtomicU32,
    pub(crate) threads: [Thread; THREADS_MAX],
    pub(crate) keys: [Key; KEYS_MAX],
}

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

/// Where the heap's region is, on this machine, and its length.
static HEAP: OnceLock<(usize, usize)> = OnceLock::new();
/// Where other parts of the program's memory are.
static OTHERS: OnceLock<Vec<(usize, usize)>> = OnceLock::new();

/// From here on the program's memory is there.
pub(crate) fn begin(heap: (usize, usize), others: Vec<(usize, usize)>) {
    let _ = (HEAP.set(heap), OTHERS.set(others)); // a process runs one program
}

/// The heap's region: where it is, and its length. Nothing before the program has begun.
pub(crate) fn heap() -> (usize, usize) {
    HEAP.get().copied().unwrap_or((0, 0))
}

/// Whether an address is in the heap's region.
pub(crate) fn is_in_heap(address: usize) -> bool {
    let (start, bytes) = heap();
    address.wrapping_sub(start) < bytes
}

/// Whether an address is in memory that all machines have.
pub(crate) fn is_shared(address: usize) -> bool {
    let others = OTHERS.get().map_or(&[][..], Vec::as_slice);
    is_in_heap(address) || others.iter().any(|(start, bytes)| address.wrapping_sub(*start) < *bytes)
}

/// The table, once the program has begun.
pub(crate) fn table() -> &'static Table {
    let (start, bytes) = heap();
    assert!(bytes > size_of::<Table>(), "the program has not begun");
    let table = std::ptr::with_exposed_provenance::<Table>(start);
    // SAFETY: the start of the region, of which the heap gives away nothing, all atomics; zeros are a table.
    unsafe { &*table }
}
