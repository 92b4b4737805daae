//! Where the partitions of all places are mapped in this process, if they are: those of its own machine, and of other
//! machines of its host.
//!
//! Invariants
//! - [base-stays] A base that is not null belongs to a mapping which stays until the process ends: a forgotten guard
//!   holds a reference for ever.
//! - [shifted-base] A base is not where the partition begins, but less by the place's number where that stands in the
//!   shifted name, so that the sum of both is the address. It is never null: the lower 48 bits are those of an address.
//! - All machines reckon the same for each: so many bytes for each partition, in the order of the workers.

#![allow(unsafe_code)] // the share of the heap is asked for

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use comm::{SHARE_BYTES_MAX, SHARE_UNIT_BYTES};
use gossamer::{Place, Transport, link};

use crate::name::{At, PLACES_MAX};
use crate::partition::memory;

/// Base of each place. It takes memory where it is used only.
static BASES: [AtomicPtr<u8>; PLACES_MAX] = [const { AtomicPtr::new(ptr::null_mut()) }; PLACES_MAX];

static PLACES: OnceLock<Vec<Place>> = OnceLock::new();

/// All places of the rack, by number.
pub(crate) fn places() -> &'static [Place] {
    PLACES.get_or_init(|| {
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

/// Returns the address of an object in this process, if its partition is known to be mapped.
#[inline(always)]
pub(crate) fn mapped(at: At) -> Option<*mut u8> {
    // Acquire, pairs with the Release in `find`: the mapping is there.
    let base = BASES[at.place() as usize & (PLACES_MAX - 1)].load(Ordering::Acquire);
    if base.is_null() { None } else { Some(base.wrapping_add(at.shifted())) } // [shifted-base]
}

/// Same as `mapped`, mapping the partition if that can be done.
pub(crate) fn find(at: At) -> Option<*mut u8> {
    if let Some(address) = mapped(at) {
        return Some(address);
    }
    let place = places()[at.place() as usize];
    let offset = usize::from(place.worker) * partition_bytes(place.machine);
    let start = match memory::own() {
        Some(own) => own,
        None => of_share(place)?,
    };
    let start = start.wrapping_add(offset);
    // [shifted-base]
    BASES[at.place() as usize].store(start.wrapping_sub(At::new(at.place(), 0).shifted()), Ordering::Release);
    mapped(at)
}

/// Returns the start of the partitions of that place's machine, if its share can be mapped here.
fn of_share(place: Place) -> Option<*mut u8> {
    match gossamer::rack().machines()[usize::from(place.machine)].transport {
        Transport::Here | Transport::Shm => {}
        _ => return None,
    }
    // SAFETY: the share of the heap, whose objects the crate finds by the address that this returns.
    let share = match unsafe { link::mapped(place.machine, link::HEAP) } {
        Ok(share) => share?,
        Err(error) => panic!("the heap of machine {} cannot be mapped: {error}", place.machine),
    };
    let start = share.words().as_ptr().cast::<u8>().cast_mut();
    memory::ask_for_huge_pages(start, share.bytes());
    std::mem::forget(share); // [base-stays]
    Some(start)
}
