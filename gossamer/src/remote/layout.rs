//! Where everything lies in the region of a machine (thesis 3.2.8): only the rows and columns of its own workers.
//!
//! ```text
//! hello of machine 0, 1, …            written once by each machine, at the start
//! start word                          the machine's first thread sleeps here while it starts
//! park word of worker 0, 1, …         each on cache lines of its own
//! credit words   [own worker as trustee] [worker of another machine as client], and the other way round
//! request slots  [own worker as trustee] [worker of another machine as client] [0, 1, ..]
//! answer slots   [own worker as client]  [worker of another machine as trustee] [0, 1, ..]
//! ```
//!
//! Every machine computes the same from the numbers of workers and the slots of a pair, so no addresses are exchanged.

use std::fmt;

use super::hello::HELLO_BYTES;
use super::slot::TRAILER_BYTES;
use crate::Place;
use crate::bootstrap::Plan;

/// Bytes of a park word with the cache lines it has for itself.
const PARK_BYTES: usize = 128;
const CREDIT_BYTES: usize = 8;
/// What the slots of a machine may come to before pairs get fewer.
const SLOTS_BYTES_MAX: usize = 512 << 20;

const _: () = assert!(HELLO_BYTES.is_multiple_of(128));

/// The slots in which the writes of one worker to another lie, in each direction.
///
/// How many a pair has is how many batches can be under way: the time of a round trip is hidden if together they hold what is
/// sent in it. Measured (docs/performance.md): more than 4 slots of 8 KiB do nothing for shared memory, 16 double what TCP
/// on loopback carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    /// For each pair of workers and direction.
    pub(crate) per_pair: u16,
    /// Of one slot.
    pub(crate) bytes: usize,
}

impl Slots {
    /// Between processes of one host.
    pub(crate) const SHM: Slots = Slots { per_pair: 4, bytes: 8192 };
    /// Between hosts.
    pub(crate) const NETWORK: Slots = Slots { per_pair: 16, bytes: 8192 };

    /// For the machines of a plan, which all have the same.
    pub(crate) fn of(plan: &Plan) -> Slots {
        if plan.memory_group(0).len() == plan.machines.len() { Slots::SHM } else { Slots::NETWORK }
    }

    /// Bytes of data that a slot can carry.
    pub(super) fn room_bytes(self) -> usize {
        self.bytes - TRAILER_BYTES
    }

    /// From one slot to the next. Not the slot alone: with a distance of a power of two all flags, which an idle worker
    /// polls, would fall into the same few lines of the first-level cache.
    pub(super) fn stride_bytes(self) -> usize {
        self.bytes + 64
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slots of {} bytes for each pair", self.per_pair, self.bytes)
    }
}

/// The numbers of workers of all machines, and what follows from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    workers: Vec<u16>,
    /// Workers of all machines before this one.
    before: Vec<usize>,
    total: usize,
    slots: Slots,
}

impl Layout {
    /// For machines with these numbers of workers. Where that many slots would take more than 512 MiB of a machine's memory, pairs
    /// have fewer: half, a quarter and so on, one at least.
    pub(crate) fn new(workers: Vec<u16>, slots: Slots) -> Layout {
        let mut total = 0;
        let mut before = Vec::with_capacity(workers.len());
        for &count in &workers {
            before.push(total);
            total += usize::from(count);
        }
        let mut layout = Layout { workers, before, total, slots };
        let too_large =
            |layout: &Layout| (0..layout.machines()).any(|machine| layout.slots_bytes(machine) > SLOTS_BYTES_MAX);
        while layout.slots.per_pair > 1 && too_large(&layout) {
            layout.slots.per_pair /= 2;
        }
        layout
    }

    pub(crate) fn workers(&self) -> &[u16] {
        &self.workers
    }

    pub(crate) fn machines(&self) -> u16 {
        self.workers.len() as u16
    }

    pub(crate) fn slots(&self) -> Slots {
        self.slots
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

    /// In the region of the trustee's machine: how many answers the client has taken.
    pub(super) fn answer_credit(&self, trustee: Place, client: Place) -> usize {
        self.credits(trustee.machine) + CREDIT_BYTES * self.cell(trustee, client)
    }

    /// In the region of the client's machine: how many requests the trustee has taken.
    pub(super) fn request_credit(&self, client: Place, trustee: Place) -> usize {
        let machine = client.machine;
        self.credits(machine) + CREDIT_BYTES * (self.cells(machine) + self.cell(client, trustee))
    }

    /// The first request slot of a pair, in the region of the trustee's machine.
    pub(super) fn request_slots(&self, trustee: Place, client: Place) -> usize {
        self.squares(trustee.machine) + self.ring_bytes() * self.cell(trustee, client)
    }

    /// The first answer slot of a pair, in the region of the client's machine.
    pub(super) fn answer_slots(&self, client: Place, trustee: Place) -> usize {
        let machine = client.machine;
        self.squares(machine) + self.ring_bytes() * (self.cells(machine) + self.cell(client, trustee))
    }

    /// Bytes of the slots of a machine.
    pub(crate) fn slots_bytes(&self, machine: u16) -> usize {
        2 * self.cells(machine) * self.ring_bytes()
    }

    /// Bytes of the region of a machine.
    pub(crate) fn region_bytes(&self, machine: u16) -> usize {
        self.squares(machine) + self.slots_bytes(machine)
    }

    /// Bytes of the slots of one pair in one direction.
    fn ring_bytes(&self) -> usize {
        usize::from(self.slots.per_pair) * self.slots.stride_bytes()
    }

    /// Workers of all machines but this.
    fn others(&self, machine: u16) -> usize {
        self.total - usize::from(self.workers[usize::from(machine)])
    }

    /// Where the credit words begin.
    fn credits(&self, machine: u16) -> usize {
        self.park_word(self.workers[usize::from(machine)])
    }

    /// Where the request slots begin.
    fn squares(&self, machine: u16) -> usize {
        self.credits(machine) + (2 * self.cells(machine) * CREDIT_BYTES).next_multiple_of(PARK_BYTES)
    }

    /// Pairs of one square.
    fn cells(&self, machine: u16) -> usize {
        usize::from(self.workers[usize::from(machine)]) * self.others(machine)
    }

    /// Which pair of a square of `own`'s machine is that of `own` and `other`.
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
        fn nothing_overlaps_and_nothing_is_left(workers in prop::collection::vec(1u16..5, 1..6), per_pair in 1u16..9) {
            let slots = Slots { per_pair, bytes: 1024 };
            let layout = Layout::new(workers.clone(), slots);
            let ring = usize::from(per_pair) * (1024 + 64);
            let places = || (0u16..).zip(&workers).flat_map(|(machine, &count)| {
                (0..count).map(move |worker| Place { machine, worker })
            });
            for (machine, &count) in (0u16..).zip(&workers) {
                let mut parts = vec![(layout.start_word(), PARK_BYTES)];
                parts.extend((0..layout.machines()).map(|other| (layout.hello(other), HELLO_BYTES)));
                parts.extend((0..count).map(|worker| (layout.park_word(worker), PARK_BYTES)));
                for own in places().filter(|place| place.machine == machine) {
                    for other in places().filter(|place| place.machine != machine) {
                        parts.push((layout.request_slots(own, other), ring));
                        parts.push((layout.answer_slots(own, other), ring));
                        parts.push((layout.request_credit(own, other), CREDIT_BYTES));
                        parts.push((layout.answer_credit(own, other), CREDIT_BYTES));
                    }
                }
                parts.sort_unstable();
                let mut end = 0;
                for (start, bytes) in parts {
                    // Only before the slots a part of a cache line may be free.
                    prop_assert!(start == end || (bytes == ring && start == end.next_multiple_of(PARK_BYTES)));
                    end = start + bytes;
                }
                prop_assert_eq!(end, layout.region_bytes(machine));
            }
        }
    }

    #[test]
    fn amounts_are_those_of_the_squares() {
        let ring = |slots: Slots| usize::from(slots.per_pair) * slots.stride_bytes();
        let layout = Layout::new(vec![3, 3, 3], Slots::SHM);
        assert_eq!(layout.slots_bytes(1), 2 * 3 * 6 * ring(Slots::SHM));
        assert_eq!(Layout::new(vec![4], Slots::NETWORK).slots_bytes(0), 0);
    }

    #[test]
    fn large_racks_have_fewer_slots_for_each_pair() {
        let per_pair = |machines, workers| Layout::new(vec![workers; machines], Slots::NETWORK).slots().per_pair;
        assert_eq!((per_pair(2, 32), per_pair(4, 32), per_pair(12, 32)), (16, 8, 2));
        let layout = Layout::new(vec![32; 4], Slots::NETWORK);
        assert!(layout.slots_bytes(0) <= SLOTS_BYTES_MAX);
    }
}
