//! What a `VWeak` names: a ticket for each object that has one, never its place in memory.
//!
//! Invariant: a ticket stands for one object for as long as that lives, and for nothing after. What a transaction gave
//! out goes with its undoing; what it dropped stays until its end.

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
    /// The ticket of the object at `at`.
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

    /// The place of the object with this ticket.
    pub(crate) fn find(&self, ticket: u64) -> Option<u64> {
        self.objects.get(&ticket).copied()
    }

    /// The object at `at` is no more, if the transaction ends well.
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
