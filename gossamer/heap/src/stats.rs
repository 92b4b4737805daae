//! Counts, for people and tests.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use trust::link::Counter;

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
    /// Objects that were made on other machines, because this one's heap was nearly full.
    pub elsewhere: u64,
    /// Objects that were copied to this machine's backup ([`with_copies`](crate::with_copies)).
    pub saves: u64,
    /// Their bytes.
    pub saved_bytes: u64,
    /// Objects that left this machine without a copy: its backup had no room.
    pub unsaved: u64,
    /// Workers of this machine the copies of which the next backup has not all yet, and lost machines the copies of
    /// which this one has alone and gives to another one. While it is not 0 a further loss may take objects.
    pub refills: u64,
}

/// Those of one worker.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) objects: Counter,
    pub(crate) committed: Counter,
    pub(crate) fetches: Counter,
    pub(crate) fetched_bytes: Counter,
    pub(crate) fetch_ns: Counter,
    pub(crate) moves: Counter,
    pub(crate) evictions: Counter,
    pub(crate) elsewhere: Counter,
    pub(crate) saves: Counter,
    pub(crate) saved_bytes: Counter,
    pub(crate) unsaved: Counter,
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
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let sum =
        |counter: fn(&Counters) -> &Counter| all.iter().fold(0u64, |sum, own| sum.wrapping_add(counter(own).get()));
    Stats {
        objects: sum(|own| &own.objects),
        partition_bytes: sum(|own| &own.committed),
        used_bytes: crate::limit::used(),
        limit_bytes: crate::limit::limit(),
        fetches: sum(|own| &own.fetches),
        fetched_bytes: sum(|own| &own.fetched_bytes),
        fetch_ns: sum(|own| &own.fetch_ns),
        moves: sum(|own| &own.moves),
        evictions: sum(|own| &own.evictions),
        elsewhere: sum(|own| &own.elsewhere),
        saves: sum(|own| &own.saves),
        saved_bytes: sum(|own| &own.saved_bytes),
        unsaved: sum(|own| &own.unsaved),
        refills: crate::replicas::refills() as u64,
    }
}
