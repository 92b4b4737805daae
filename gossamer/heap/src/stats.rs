//! Counts, for people and tests.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counters of the heap of this machine. See [`stats`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Objects in this machine's partitions.
    pub objects: u64,
    /// Bytes of the system's memory in this machine's partitions, free room in them included.
    pub partition_bytes: u64,
    /// Bytes in use in all, copies of other machines' objects included.
    pub used_bytes: u64,
    /// Bytes that there may be at most.
    pub limit_bytes: u64,
    /// Objects that were read from other machines, to be copied or moved.
    pub fetches: u64,
    /// Their bytes.
    pub fetched_bytes: u64,
    /// Total time that their readers waited, in nanoseconds.
    pub fetch_ns: u64,
    /// Objects that were moved here by a write or by `move_here`.
    pub moves: u64,
    /// Copies that went because room was short.
    pub evictions: u64,
}

/// A count that one worker changes, and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline(always)]
    pub(crate) fn add(&self, more: u64) {
        // Relaxed: a count, of one writer.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn take(&self, less: u64) {
        self.add(less.wrapping_neg());
    }
}

/// Those of one worker.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) objects: Count,
    pub(crate) committed: Count,
    pub(crate) fetches: Count,
    pub(crate) fetched_bytes: Count,
    pub(crate) fetch_ns: Count,
    pub(crate) moves: Count,
    pub(crate) evictions: Count,
}

static ALL: Mutex<Vec<&'static Counters>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: Cell<Option<&'static Counters>> = const { Cell::new(None) };
}

/// Those of the calling worker.
#[inline]
pub(crate) fn own() -> &'static Counters {
    OWN.get().unwrap_or_else(|| {
        let new: &'static Counters = Box::leak(Box::default());
        ALL.lock().unwrap_or_else(PoisonError::into_inner).push(new);
        OWN.set(Some(new));
        new
    })
}

/// The counters of the heap of this machine until now. Counts of other workers may be a moment old.
///
/// ```
/// use gossamer_heap::Global;
/// gossamer::main(
///     || {
///         let before = gossamer_heap::stats().objects;
///         let number = Global::new(7u64);
///         assert_eq!(gossamer_heap::stats().objects, before + 1);
///         drop(number);
///         assert_eq!(gossamer_heap::stats().objects, before);
///     },
///     1,
/// );
/// ```
///
/// # Panics
/// Outside of `gossamer::main`.
pub fn stats() -> Stats {
    let mut sum = Stats { used_bytes: crate::limit::used(), limit_bytes: crate::limit::limit(), ..Stats::default() };
    for one in ALL.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let add = |to: &mut u64, count: &Count| *to = to.wrapping_add(count.0.load(Ordering::Relaxed));
        add(&mut sum.objects, &one.objects);
        add(&mut sum.partition_bytes, &one.committed);
        add(&mut sum.fetches, &one.fetches);
        add(&mut sum.fetched_bytes, &one.fetched_bytes);
        add(&mut sum.fetch_ns, &one.fetch_ns);
        add(&mut sum.moves, &one.moves);
        add(&mut sum.evictions, &one.evictions);
    }
    sum
}
