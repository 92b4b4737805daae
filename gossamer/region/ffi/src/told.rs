//! Messages that are printed once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::{side, table};

/// Prints the message about a call under a condition, the first time.
pub(crate) fn tell_once(what: &'static str, when: &'static str, message: impl FnOnce() -> String) {
    static TOLD: Mutex<BTreeSet<(&'static str, &'static str)>> = Mutex::new(BTreeSet::new());
    side::outside(|| {
        if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert((what, when)) {
            eprintln!("gossamer: {}", message());
        }
    });
}

/// Prints that something does not work, the first time.
pub(crate) fn tell(what: &'static str, instead: &str) {
    tell_once(what, "", || {
        format!("{what} does not work in a program on several machines; use {instead} (docs/region.md)")
    });
}

/// Where the program names what is shared, and has threads on several machines: tells, the first time, that a thread
/// waits at something that is its machine's own.
pub(crate) fn tell_of_own(what: &'static str) {
    if side::is_in_program() && table::has_several_copies() {
        tell(what, "one in named memory, initialised there");
    }
}
