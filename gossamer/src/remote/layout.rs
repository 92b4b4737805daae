//! Where everything lies in the region of a machine (thesis 3.2.8): only the rows and columns of its own workers.
//!
//! ```text
//! hello of machine 0, 1, …            written once by each machine, at the start
//! start word                          the machine's first thread sleeps here while it starts
//! park word of worker 0, 1, …         each on cache lines of its own
//! request slots  [own worker as trustee] [worker of another machine as client]
//! answer slots   [own worker as client]  [worker of another machine as trustee]
//! ```
//!
//! Every machine computes the same from the numbers of workers, so no addresses are exchanged.

use super::hello::HELLO_BYTES;
use super::slot::SLOT_BYTES;
use crate::Place;

/// Bytes of a park word with the cache lines it has for itself.
const PARK_BYTES: usize = 128;

/// From one slot to the next. Not the slot alone: with a distance of 4096 bytes all flags, which an idle worker polls,
/// would fall into the same few lines of the first-level cache.
pub(super) const SLOT_STRIDE_BYTES: usize = SLOT_BYTES + 64;

const _: () = assert!(SLOT_STRIDE_BYTES.is_multiple_of(64) && HELLO_BYTES.is_multiple_of(128));

/// The numbers of workers of all machines, and what follows from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    workers: Vec<u16>,
    /// Workers of all machines before this one.
    before: Vec<usize>,
    total: usize,
}

impl Layout {
    /// For machines with these numbers of workers.
    pub(crate) fn new(workers: Vec<u16>) -> Layout {
        let mut total = 0;
        let mut before = Vec::with_capacity(workers.len());
        for &count in &workers {
            before.push(total);
            total += usize::from(count);
        }
        Layout { workers, before, total }
    }

    pub(crate) fn workers(&self) -> &[u16] {
        &self.workers
    }

    pub(crate) fn machines(&self) -> u16 {
        self.workers.len() as u16
    }

    /// Where `machine` writes its hello, in any region.
    pub(super) fn hello(&self, machine: u16) -> usize {
        usize::from(machine) * HELLO_BYTES
    }

    /// Where a machine's first thread sleeps.
    pub(super) fn start_word(&self) -> usize {
        self.workers.len() * HELLO_BYTES
    }

    /// The park word of a worker, in the region of its machine.
    pub(super) fn park_word(&self, worker: u16) -> usize {
        self.start_word() + PARK_BYTES * (1 + usize::from(worker))
    }

    /// The request slot of a pair, in the region of the trustee's machine.
    pub(super) fn request_slot(&self, trustee: Place, client: Place) -> usize {
        self.squares(trustee.machine) + SLOT_STRIDE_BYTES * self.cell(trustee, client)
    }

    /// The answer slot of a pair, in the region of the client's machine.
    pub(super) fn answer_slot(&self, client: Place, trustee: Place) -> usize {
        let machine = client.machine;
        self.squares(machine) + SLOT_STRIDE_BYTES * (self.cells(machine) + self.cell(client, trustee))
    }

    /// Bytes of the slots of a machine.
    pub(crate) fn slots_bytes(&self, machine: u16) -> usize {
        2 * self.cells(machine) * SLOT_STRIDE_BYTES
    }

    /// Bytes of the region of a machine.
    pub(crate) fn region_bytes(&self, machine: u16) -> usize {
        self.squares(machine) + self.slots_bytes(machine)
    }

    /// Workers of all machines but this.
    fn others(&self, machine: u16) -> usize {
        self.total - usize::from(self.workers[usize::from(machine)])
    }

    /// Where the request slots begin.
    fn squares(&self, machine: u16) -> usize {
        self.park_word(self.workers[usize::from(machine)])
    }

    /// Slots of one square.
    fn cells(&self, machine: u16) -> usize {
        usize::from(self.workers[usize::from(machine)]) * self.others(machine)
    }

    /// Which slot of a square of `own`'s machine is that of `own` and `other`.
    fn cell(&self, own: Place, other: Place) -> usize {
        let mut column = self.before[usize::from(other.machine)] + usize::from(other.worker);
        if other.machine > own.machine {
            column -= usize::from(self.workers[usize::from(own.machine)]);
        }
        usize::from(own.worker) * self.others(own.machine) + column
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every word, hello and slot of a machine has its own bytes, and together they fill the region.
        #[test]
        fn nothing_overlaps_and_nothing_is_left(workers in prop::collection::vec(1u16..5, 1..6)) {
            let layout = Layout::new(workers.clone());
            let places = || (0u16..).zip(&workers).flat_map(|(machine, &count)| {
                (0..count).map(move |worker| Place { machine, worker })
            });
            for (machine, &count) in (0u16..).zip(&workers) {
                let mut parts = vec![(layout.start_word(), PARK_BYTES)];
                parts.extend((0..layout.machines()).map(|other| (layout.hello(other), HELLO_BYTES)));
                parts.extend((0..count).map(|worker| (layout.park_word(worker), PARK_BYTES)));
                for own in places().filter(|place| place.machine == machine) {
                    for other in places().filter(|place| place.machine != machine) {
                        parts.push((layout.request_slot(own, other), SLOT_STRIDE_BYTES));
                        parts.push((layout.answer_slot(own, other), SLOT_STRIDE_BYTES));
                    }
                }
                parts.sort_unstable();
                let mut end = 0;
                for (start, bytes) in parts {
                    prop_assert_eq!(start, end);
                    end = start + bytes;
                }
                prop_assert_eq!(end, layout.region_bytes(machine));
            }
        }
    }

    #[test]
    fn amounts_are_those_of_the_squares() {
        let layout = Layout::new(vec![3, 3, 3]);
        assert_eq!(layout.slots_bytes(1), 2 * 3 * 6 * SLOT_STRIDE_BYTES);
        assert_eq!(Layout::new(vec![4]).slots_bytes(0), 0);
    }
}
