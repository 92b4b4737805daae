//! A part as a user of other workers' chunks in place: the frame of such a chunk stays at its home, a part of the same
//! process, and the table has the address of its elements there.
//!
//! [near-is-kept] A part keeps the memory of each part whose elements it may use in place: where a program ends, or the
//! array loses a machine, that part may be dropped first.

use std::collections::HashMap;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{IN_PLACE, Lent, NEAR, Part};
use crate::directory::Right;
use crate::frame::Kept;
use crate::name::Name;
use crate::operator::Op;
use crate::word::is_word;

/// Memory of the parts of this process, by array and place.
static PARTS: Mutex<Option<HashMap<(Name, usize), Kept>>> = Mutex::new(None);

fn parts() -> MutexGuard<'static, Option<HashMap<(Name, usize), Kept>>> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Offers the memory of a new part to the other workers.
pub(super) fn keep(part: &Part, memory: Kept) {
    parts().get_or_insert_default().insert((part.name, part.own), memory);
}

impl Drop for Part {
    fn drop(&mut self) {
        let memory = parts().as_mut().and_then(|parts| parts.remove(&(self.name, self.own)));
        drop(memory);
    }
}

impl Part {
    pub(super) fn is_of_process(&self, place: usize) -> bool {
        self.place(place).id().machine() == self.place(self.own).id().machine()
    }

    /// May this part use single elements of a chunk in place?
    fn is_near(&self, chunk: u32) -> bool {
        is_word(self.shape.element_bytes) && self.is_of_process(self.shape.home(chunk))
    }

    /// Returns the right to ask for where a single element is read.
    pub(crate) fn right_to_get(&self, chunk: u32) -> Right<Op> {
        if self.is_near(chunk) { Right::Glance } else { Right::Read }
    }

    /// Returns the right to ask for where a single element is written.
    pub(crate) fn right_to_set(&self, chunk: u32) -> Right<Op> {
        if self.is_near(chunk) { Right::InPlace } else { Right::Write }
    }

    /// Returns the elements of a chunk that this part uses in place at another one.
    pub(super) fn near(&self, chunk: u32) -> Option<Lent> {
        let word = self.word(chunk as usize).get();
        (word & NEAR != 0).then(|| Lent::Near(ptr::with_exposed_provenance_mut((word & !super::BITS) as usize)))
    }

    /// Stops the use of a chunk in place.
    pub(super) fn leave_near(&self, chunk: u32) {
        if self.near(chunk).is_some() {
            self.word(chunk as usize).set(0);
        }
    }

    /// Handles the grant of a chunk in place: its elements are at this address.
    pub(crate) fn granted_near(&self, chunk: u32, elements: usize) {
        let is_one = (chunk as usize) < self.shape.chunks() && self.is_near(chunk);
        assert!(is_one, "a grant of chunk {chunk} in place, which is not near");
        self.counters.count(|stats| stats.grants += 1);
        let home = self.shape.home(chunk);
        if self.near[home].get().is_none() {
            let memory = parts().as_ref().and_then(|parts| parts.get(&(self.name, home)).cloned());
            // The part has been dropped since: the program ends, and this part will be told.
            let Some(memory) = memory else { return };
            let _ = self.near[home].set(memory);
        }
        if let Some(frame) = self.frame(chunk) {
            self.forget(frame);
        }
        self.word(chunk as usize).set(elements as u64 | NEAR | IN_PLACE);
        self.serve_line(chunk, Right::InPlace);
    }
}
