//! The places of the rack, by number, and the part of its machine's share that the partition of each has. Not here:
//! where it is mapped (`bases.rs`). A place of a machine that is lost keeps its number.
//!
//! Invariant: all machines reckon the same for each: so many bytes for each partition, in the order of the workers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use comm::{SHARE_BYTES_MAX, SHARE_UNIT_BYTES};
use gossamer::{Place, link};

use crate::error::Lost;
use crate::name::{At, PLACES_MAX};

static PLACES: OnceLock<Vec<Place>> = OnceLock::new();
static OWN_MACHINE: AtomicU16 = AtomicU16::new(0);

/// All places of the rack, by number.
pub(crate) fn places() -> &'static [Place] {
    PLACES.get_or_init(|| {
        let places: Vec<Place> = gossamer::rack().places().collect();
        assert!(places.len() < PLACES_MAX, "a heap can be over {} workers at most", PLACES_MAX - 1);
        OWN_MACHINE.store(gossamer::rack().machine(), Ordering::Relaxed);
        places
    })
}

/// The number of this machine, once its places are known: where anything is mapped.
#[inline(always)]
pub(crate) fn own_machine() -> u16 {
    // Relaxed: it is stored once, before that.
    OWN_MACHINE.load(Ordering::Relaxed)
}

/// The number of a place.
pub(crate) fn number_of(place: Place) -> u32 {
    let number =
        places().binary_search(&place).unwrap_or_else(|_| panic!("there is no place {place}: {}", gossamer::rack()));
    number as u32
}

/// Checks that the machine of an object is not lost. Legal everywhere.
///
/// # Errors
/// It is.
#[inline]
pub(crate) fn check(at: At) -> Result<(), Lost> {
    if link::losses() == 0 { Ok(()) } else { check_machine(at) }
}

#[cold]
fn check_machine(at: At) -> Result<(), Lost> {
    match places().get(at.place() as usize) {
        Some(place) if link::is_lost(place.machine) => Err(Lost { machine: place.machine }),
        _ => Ok(()), // the owner of nothing is at no place
    }
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
