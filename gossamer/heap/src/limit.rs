//! How much memory the heap of this machine may take, and takes: the partitions of its workers, and copies of other
//! machines' objects.
//!
//! Counted where memory is taken from the system or given back, not by the object.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use gossamer::bootstrap::HeapBytes;
use gossamer::link;

use crate::error::Error;

static USED: AtomicU64 = AtomicU64::new(0);
static LIMIT: OnceLock<u64> = OnceLock::new();

/// Bytes in use.
pub(crate) fn used() -> u64 {
    USED.load(Ordering::Relaxed)
}

/// Limit in bytes: `GOSSAMER_HEAP`; else the `heap` of the host in `rack.yaml`, or half of the memory that control
/// groups and limits leave this process, divided by the program's machines there.
///
/// # Panics
/// If `GOSSAMER_HEAP` is no number of bytes.
pub(crate) fn limit() -> u64 {
    *LIMIT.get_or_init(|| match std::env::var("GOSSAMER_HEAP") {
        Ok(text) => text.parse::<HeapBytes>().unwrap_or_else(|wrong| panic!("GOSSAMER_HEAP: {wrong}")).get(),
        Err(_) => {
            link::heap_bytes().unwrap_or_else(|| trust::memory::limit().unwrap_or(2 << 30) / 2) / machines_of_host()
        }
    })
}

/// A machine with so much in use, in thousandths, gets no objects of others.
pub(crate) const NEARLY_FULL: u16 = 900;

/// Bytes in use, in thousandths of the limit.
pub(crate) fn fill() -> u16 {
    (u128::from(used()) * 1000 / u128::from(limit().max(1))).min(1000) as u16
}

/// Bytes beyond which copies that nobody reads have to go, and new objects go elsewhere.
pub(crate) fn high() -> u64 {
    limit() / 1000 * u64::from(NEARLY_FULL)
}

/// Counts so many bytes as used, if there is room for them below `most`.
pub(crate) fn reserve(bytes: u64, most: u64) -> bool {
    // Relaxed: a count; the memory itself comes from the system.
    let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= most);
    USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
}

/// They are not used any more.
pub(crate) fn give_back(bytes: u64) {
    USED.fetch_sub(bytes, Ordering::Relaxed);
}

/// Message for a caller that finds no room.
pub(crate) fn full(bytes: usize) -> Error {
    Error::Full { machine: gossamer::rack().machine(), bytes, used: used(), limit: limit() }
}

/// Machines of the program on this host, this one included.
fn machines_of_host() -> u64 {
    let rack = gossamer::rack();
    let own = &rack.machines()[usize::from(rack.machine())].host;
    rack.machines().iter().filter(|machine| machine.host == *own).count().max(1) as u64
}
