//! Where the partitions of all places are mapped in this process, if they are: those of its own machine, and of other
//! machines of its host.
//!
//! Invariants
//! - [base-stays] A base that is not null belongs to a mapping which stays until the process ends: a forgotten guard
//!   holds a reference for ever.
//! - The bases of a machine that is lost are null, but what was made of them before stays valid: memory of a process
//!   that has ended stays mapped, and nobody writes it any more but the owners of its objects.
//! - [shifted-base] A base is not where the partition begins, but less by the place's number where that stands in the
//!   shifted name, so that the sum of both is the address. It is never null: the lower 48 bits are those of an address.

#![allow(unsafe_code)] // the share of the heap is asked for

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use gossamer::{Place, Transport, link};

use crate::name::{At, PLACES_MAX};
use crate::partition::memory;
use crate::places::{self, partition_bytes, places};
use crate::replicas::switch;

/// Base of each place. It takes memory where it is used only.
static BASES: [AtomicPtr<u8>; PLACES_MAX] = [const { AtomicPtr::new(ptr::null_mut()) }; PLACES_MAX];

/// Bases of the places whose objects are written where they lie, with nothing to be done before: none that has replicas
/// (`replicas/mod.rs`), else all that are mapped.
static WRITABLE: [AtomicPtr<u8>; PLACES_MAX] = [const { AtomicPtr::new(ptr::null_mut()) }; PLACES_MAX];

/// Machines that are lost. Bases are stored under this lock.
static LOST: Mutex<Vec<u16>> = Mutex::new(Vec::new());

fn lost() -> MutexGuard<'static, Vec<u16>> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets the bases of a machine that is lost: its objects are found no more.
fn forget(machine: u16) {
    let mut lost = lost();
    lost.push(machine);
    for bases in [&BASES, &WRITABLE] {
        for (base, _) in bases.iter().zip(places()).filter(|(_, place)| place.machine == machine) {
            // Relaxed: nobody has to see anything else by it.
            base.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }
}

/// Returns the address of an object in this process, if its partition is known to be mapped.
#[inline(always)]
pub(crate) fn mapped(at: At) -> Option<*mut u8> {
    address(&BASES, at)
}

/// Same as `mapped`, of an object that a writer may write there with nothing done before.
#[inline(always)]
pub(crate) fn writable(at: At) -> Option<*mut u8> {
    address(&WRITABLE, at)
}

#[inline(always)]
fn address(bases: &[AtomicPtr<u8>; PLACES_MAX], at: At) -> Option<*mut u8> {
    // Acquire, pairs with the Release in `find`: the mapping is there.
    let base = bases[at.place() as usize & (PLACES_MAX - 1)].load(Ordering::Acquire);
    if base.is_null() { None } else { Some(base.wrapping_add(at.shifted())) } // [shifted-base]
}

/// Same as `mapped`, mapping the partition if that can be done. Nothing of a lost machine is found.
pub(crate) fn find(at: At) -> Option<*mut u8> {
    if let Some(address) = mapped(at) {
        return Some(address);
    }
    static FORGETS: Once = Once::new();
    FORGETS.call_once(|| {
        places(); // before the hook, which uses them
        link::on_loss(forget);
    });
    let place = places()[at.place() as usize];
    let offset = usize::from(place.worker) * partition_bytes(place.machine);
    let start = match memory::own() {
        Some(own) => own,
        None => of_share(place)?,
    };
    let start = start.wrapping_add(offset);
    let lost = lost();
    if lost.contains(&place.machine) {
        return None;
    }
    let base = start.wrapping_sub(At::new(at.place(), 0).shifted()); // [shifted-base]
    // Release: pairs with the Acquire in `address`.
    if !switch::are_on() || place.machine == 0 && places::own_machine() == 0 {
        WRITABLE[at.place() as usize].store(base, Ordering::Release);
    }
    BASES[at.place() as usize].store(base, Ordering::Release);
    drop(lost);
    mapped(at)
}

/// Returns the start of the partitions of that place's machine, if its share can be mapped here.
fn of_share(place: Place) -> Option<*mut u8> {
    match gossamer::rack().machines()[usize::from(place.machine)].transport {
        Transport::Here | Transport::Shm => {}
        _ => return None,
    }
    if link::is_lost(place.machine) {
        return None;
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
