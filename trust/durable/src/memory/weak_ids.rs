//! Ids behind `VWeak`: each object that has one is named by an id, never by its place in memory.
//!
//! Invariant: an id names one object for as long as that lives, and nothing after. An id issued in a transaction
//! is revoked if that is undone; the id of an object dropped in a transaction stays valid to its end.

use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct WeakIds {
    objects: HashMap<u64, u64>,
    of: HashMap<u64, u64>,
    last: u64,
    given_out: Vec<u64>,
    dead: Vec<u64>,
}

impl WeakIds {
    /// Returns the id of the object at `at`.
    pub(crate) fn of(&mut self, at: u64) -> u64 {
        if let Some(&id) = self.of.get(&at) {
            return id;
        }
        self.last += 1;
        self.of.insert(at, self.last);
        self.objects.insert(self.last, at);
        self.given_out.push(self.last);
        self.last
    }

    /// Returns the place of the object with this id.
    pub(crate) fn find(&self, id: u64) -> Option<u64> {
        self.objects.get(&id).copied()
    }

    /// Marks the object at `at` as dead, if the transaction commits.
    pub(crate) fn end(&mut self, at: u64) {
        if self.of.contains_key(&at) {
            self.dead.push(at);
        }
    }

    #[inline]
    pub(crate) fn commit(&mut self) {
        self.given_out.clear();
        if self.dead.is_empty() {
            return;
        }
        for at in self.dead.drain(..) {
            if let Some(id) = self.of.remove(&at) {
                self.objects.remove(&id);
            }
        }
    }

    pub(crate) fn undo(&mut self) {
        self.dead.clear();
        for id in self.given_out.drain(..) {
            if let Some(at) = self.objects.remove(&id) {
                self.of.remove(&at);
            }
        }
    }
}
