//! Addresses at which this machine reaches the pages of regions whoever holds them, where all machines have one memory
//! because they are on one host ([`Store::Common`](crate::view::Store)). A word there is one for all machines, as in a
//! process, so atomics of locks move no page, and the system's futexes work between machines.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use comm::Share;

/// A region in the common memory.
struct Mapped {
    addresses: Range<usize>,
    /// Where its bytes begin in the mapping of the share.
    start: usize,
    _share: Arc<Share>,
    next: OnceLock<Box<Mapped>>,
}

/// Regions in the order in which they were made. No lock: signal handlers look here.
static FIRST: OnceLock<Box<Mapped>> = OnceLock::new();

/// Notes a region whose bytes are those of the share from `offset` on.
pub(crate) fn note(addresses: Range<usize>, share: &Arc<Share>, offset: usize) {
    let start = share.words().as_ptr().expose_provenance() + offset;
    let mut mapped = Box::new(Mapped { addresses, start, _share: Arc::clone(share), next: OnceLock::new() });
    let mut place = &FIRST;
    while let Err(back) = place.set(mapped) {
        mapped = back;
        if let Some(taken) = place.get() {
            place = &taken.next;
        }
    }
}

/// Returns the address of the common memory's byte for an address of a region; none where machines have memories of
/// their own. Use atomics there: threads of all machines may be at it, whatever the state of the page.
pub fn common(address: usize) -> Option<usize> {
    let mut place = &FIRST;
    while let Some(mapped) = place.get() {
        if mapped.addresses.contains(&address) {
            return Some(mapped.start + (address - mapped.addresses.start));
        }
        place = &mapped.next;
    }
    None
}

/// Whether all machines have one memory behind their regions.
pub fn is_common() -> bool {
    FIRST.get().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_outside_of_regions_have_none() {
        assert_eq!(common(usize::MAX), None);
    }
}
