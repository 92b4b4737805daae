//! Tickets behind `VWeak`: each object that has one is named by a ticket, never by its place in memory.
//!
//! Invariant: a ticket names one object for as long as that lives, and nothing after. A ticket issued in a transaction
//! is revoked if that is undone; the ticket of an object dropped in a transaction stays valid to its end.

use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct Tickets {
    objects: HashMap<u64, u64>,
    of: HashMap<u64, u64>,
    last: u64,
    given_out: Vec<u64>,
    dead: Vec<u64>,
}

impl Tickets {
    /// Returns the ticket of the object at `at`.
    pub(crate) fn of(&mut self, at: u64) -> u64 {
        if let Some(&ticket) = self.of.get(&at) {
            return ticket;
        }
        self.last += 1;
        self.of.insert(at, self.last);
        self.objects.insert(self.last, at);
        self.given_out.push(self.last);
        self.last
    }

    /// Returns the place of the object with this ticket.
    pub(crate) fn find(&self, ticket: u64) -> Option<u64> {
        self.objects.get(&ticket).copied()
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
            if let Some(ticket) = self.of.remove(&at) {
                self.objects.remove(&ticket);
            }
        }
    }

    pub(crate) fn undo(&mut self) {
        self.dead.clear();
        for ticket in self.given_out.drain(..) {
            if let Some(at) = self.objects.remove(&ticket) {
                self.of.remove(&at);
            }
        }
    }
}
