//! The places of the rack, by number, and the part of its machine's share that the partition of each has. Not here:
//! where it is mapped (`bases.rs`).
//!
//! Invariant: all machines reckon the same for each: so many bytes for each partition, in the order of the workers.

use std::sync::OnceLock;

use comm::{SHARE_BYTES_MAX, SHARE_UNIT_BYTES};
use gossamer::Place;

use crate::name::{At, PLACES_MAX};

static PLACES: OnceLock<Vec<Place>> = OnceLock::new();

/// All places of the rack, by number.
pub(crate) fn places() -> &'static [Place] {
    PLACES.get_or_init(|| {
        gossamer::link::refuse_losses("objects of the heap");
        let places: Vec<Place> = gossamer::rack().places().collect();
        assert!(places.len() < PLACES_MAX, "a heap can be over {} workers at most", PLACES_MAX - 1);
        places
    })
}

/// The number of a place.
pub(crate) fn number_of(place: Place) -> u32 {
    let number =
        places().binary_search(&place).unwrap_or_else(|_| panic!("there is no place {place}: {}", gossamer::rack()));
    number as u32
}

/// Bytes of each partition of a machine: addresses, most of which never have memory.
pub(crate) fn partition_bytes(machine: u16) -> usize {
    let workers = usize::from(gossamer::rack().machines()[usize::from(machine)].workers);
    (SHARE_BYTES_MAX / workers.max(16)) & !(SHARE_UNIT_BYTES - 1)
}

/// Bytes of the whole share of a machine.
pub(crate) fn share_bytes(machine: u16) -> usize {
    partition_bytes(machine) * usize::from(gossamer::rack().machines()[usize::from(machine)].workers)
}

/// Returns the offset of an object's bytes in its machine's share.
pub(crate) fn offset_in_share(at: At) -> usize {
    let place = places()[at.place() as usize];
    usize::from(place.worker) * partition_bytes(place.machine) + at.offset()
}
