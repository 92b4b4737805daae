//! Arrays that have ended because a machine with a part of them was lost: calls of handles that are left say so, after
//! the memory is freed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::name::Name;

/// The lost machine, by array: at most as many as there can be arrays for each loss.
static LOST: Mutex<Option<HashMap<Name, u16>>> = Mutex::new(None);
/// There are some.
static ARE_SOME: AtomicBool = AtomicBool::new(false);

fn lost() -> MutexGuard<'static, Option<HashMap<Name, u16>>> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that an array has ended by the loss of this machine.
pub(crate) fn note(name: Name, machine: u16) {
    lost().get_or_insert_default().entry(name).or_insert(machine);
    // Relaxed, here and below: a thread that uses an array after its part was removed has noted it itself, or was told
    // by one that has.
    ARE_SOME.store(true, Ordering::Relaxed);
}

/// Returns the machine by whose loss the array has ended, if it has.
pub(crate) fn by(name: Name) -> Option<u16> {
    if !ARE_SOME.load(Ordering::Relaxed) {
        return None;
    }
    lost().as_ref().and_then(|lost| lost.get(&name).copied())
}

/// Returns the cause, as the calls of such an array tell it.
pub(crate) fn cause(machine: u16) -> String {
    format!(
        "machine {machine}, which had a part of it, was lost: make a new array on the machines that are left, and fill \
         it or restore a checkpoint (`Array::restore`)"
    )
}
