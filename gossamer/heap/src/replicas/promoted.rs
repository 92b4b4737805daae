//! Objects of a machine that is lost: their replicas at its backup, which nobody writes any more. Each is read where it
//! lies, or from there, if it is of that name: whole, of that version. Else the object is lost.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use comm::Share;
use gossamer::{Place, link};

use super::head::HEAD_BYTES;
use super::replica::is_of;
use super::switch::are_on;
use super::{backups, window};
use crate::error::Lost;
use crate::name::{At, Name};
use crate::places;

/// Where an object of a lost machine is.
pub(crate) enum Replica {
    /// At this address.
    Here(*mut u8),
    /// Perhaps at this machine, to be read from the place in its share of replicas.
    Far { machine: u16, start: usize },
}

/// Returns the backup that has what is left of a lost machine's objects.
fn backup_of(machine: u16) -> Result<u16, Lost> {
    if are_on() { backups::of_lost(machine).ok_or(Lost { machine }) } else { Err(Lost { machine }) }
}

/// Finds the object of a lost machine that has this layout. Waits for nothing.
pub(crate) fn find(name: Name, layout: Layout) -> Result<Replica, Lost> {
    let lost = places::places()[name.at.place() as usize].machine;
    let machine = backup_of(lost)?;
    let offset = window::offset(name.at, layout.size()).ok_or(Lost { machine: lost })?;
    let Some(share) = mapped(machine) else {
        return match machine == places::own_machine() {
            true => Err(Lost { machine: lost }), // there are no replicas at all
            false => Ok(Replica::Far { machine, start: offset - HEAD_BYTES }),
        };
    };
    // The lost machine is shut out, so nobody writes there but who ends an object, of which no owner is left.
    let (start, secret) = (offset - HEAD_BYTES, window::start(lost));
    // A touch elsewhere would take a page that nobody has counted.
    let is_usable = share.is_committed(start, HEAD_BYTES + layout.size()) && share.is_committed(secret, 8);
    let word = |offset: usize| share.words()[offset / 8].load(Ordering::Relaxed);
    if is_usable && is_of([0, 1, 2].map(|index| word(start + index * 8)), word(secret), name, layout) {
        Ok(Replica::Here(share.words().as_ptr().cast::<u8>().cast_mut().wrapping_add(offset)))
    } else {
        Err(Lost { machine: lost })
    }
}

/// Returns a backup's share of replicas, where it is mapped. It stays so: guards of replicas may be forgotten.
pub(super) fn mapped(machine: u16) -> Option<&'static Share> {
    static MAPPED: Mutex<BTreeMap<u16, &'static Share>> = Mutex::new(BTreeMap::new());
    let mut all = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(share) = all.get(&machine) {
        return Some(share);
    }
    // SAFETY: the share of the replicas, whose words are stored to as the crate's values allow.
    let share: &'static Arc<Share> = Box::leak(Box::new(unsafe { link::mapped(machine, link::REPLICAS) }.ok()??));
    all.insert(machine, share);
    Some(share)
}

/// Reads a replica that is far, with `read`: a machine's bytes from an offset on. The object's words come into `into`.
pub(crate) fn read<E>(
    name: Name,
    layout: Layout,
    (machine, start): (u16, usize),
    into: &mut [u8],
    mut read: impl FnMut(u16, usize, &mut [u8]) -> Result<(), E>,
) -> Result<Result<(), Lost>, E> {
    let lost = places::places()[name.at.place() as usize].machine;
    let (mut secret, mut whole) = ([0; 8], vec![0; HEAD_BYTES + into.len()]);
    read(machine, window::start(lost), &mut secret)?;
    read(machine, start, &mut whole)?;
    let (head, object) = whole.split_at(HEAD_BYTES);
    let word = |index: usize| u64::from_ne_bytes(std::array::from_fn(|at| head[index * 8 + at]));
    if !is_of([0, 1, 2].map(word), u64::from_ne_bytes(secret), name, layout) {
        return Ok(Err(Lost { machine: lost }));
    }
    into.copy_from_slice(object);
    Ok(Ok(()))
}

/// Returns the place of what is left of an object: a worker of the backup, if the object's machine is lost.
pub(crate) fn place(at: At) -> Option<Place> {
    let place = *places::places().get(at.place() as usize)?;
    if !are_on() || !link::is_lost(place.machine) {
        return None;
    }
    let machine = backups::of_lost(place.machine)?;
    let workers = gossamer::rack().machines()[usize::from(machine)].workers;
    Some(Place::of(machine, place.worker % workers))
}

/// Ends the replica of an object, at the backup: it is of no name any more. Returns its address, if it was there.
pub(crate) fn take(name: Name, layout: Layout) -> Option<*mut u8> {
    let Ok(Replica::Here(object)) = find(name, layout) else { return None };
    // SAFETY: a word of the share, which stays mapped, before the object.
    unsafe { AtomicU64::from_ptr(object.wrapping_sub(HEAD_BYTES).cast()) }.store(0, Ordering::Relaxed);
    Some(object)
}
