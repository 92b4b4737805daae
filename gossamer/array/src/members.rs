//! [`Members`]: the machines that have parts of an array, those that were not lost when it was made.
//!
//! Place 0 decides them once (`make.rs`), and all places are told, because machines hear of a loss at slightly
//! different times. Inside of an array places are numbered over its members alone.

use gossamer::Place;
use serde::{Deserialize, Serialize};

/// See the file's documentation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Members {
    /// All other machines of the rack, in order.
    without: Vec<u16>,
}

impl Members {
    /// Returns all machines, except for those that this one knows to be lost, and for `others`.
    pub(crate) fn living(others: &[u16]) -> Members {
        let rack = gossamer::rack();
        let machines = 0..rack.machines().len() as u16;
        Members { without: machines.filter(|machine| others.contains(machine) || rack.is_lost(*machine)).collect() }
    }

    pub(crate) fn has(&self, machine: u16) -> bool {
        !self.without.contains(&machine)
    }

    /// Returns the machines that have no part.
    pub(crate) fn others(&self) -> &[u16] {
        &self.without
    }

    /// Returns the number of workers of each machine of the rack; none for one that is no member.
    pub(crate) fn workers(&self) -> Vec<usize> {
        let machines = gossamer::rack().machines().iter().zip(0..);
        machines.map(|(machine, number)| if self.has(number) { usize::from(machine.workers) } else { 0 }).collect()
    }

    /// Returns the places with a part, in the order of their numbers.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        gossamer::rack().places().filter(|place| self.has(place.machine))
    }

    /// Returns a member that this machine knows to be lost.
    pub(crate) fn lost(&self) -> Option<u16> {
        let rack = gossamer::rack();
        (0..rack.machines().len() as u16).find(|machine| self.has(*machine) && rack.is_lost(*machine))
    }

    /// Waits until this worker has been told of the losses that the members were chosen after: a property that it has
    /// before is never freed, and the memory of an array stays with it (docs/surviving.md).
    pub(crate) fn wait_for_losses(&self) {
        for &machine in &self.without {
            // It fails: at once, or when this worker is told.
            drop(gossamer::spawn_on(Place::of(machine, 0), || ()).join());
        }
    }
}
