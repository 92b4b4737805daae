//! Layout of a machine's region (thesis 3.2.8): only the rows and columns of its own workers.
//!
//! ```text
//! hello of machine 0, 1, …            written once by each machine, at the start
//! start word                          the machine's first thread sleeps here while it starts
//! park word of thread 0, 1, …         each on cache lines of its own
//! acknowledgements  [own thread as trustee] [thread of another machine as client], and the other way round
//! request slots  [own thread as trustee] [thread of another machine as client] [0, 1, ..]
//! answer slots   [own thread as client]  [thread of another machine as trustee] [0, 1, ..]
//! ```
//!
//! The threads of a machine are its workers and behind them, if there are other machines, its hidden ones: the service
//! thread, and the page server's worker if the program has page servers. A pair of threads of which one is hidden has
//! one slot, for its traffic is small.
//!
//! In a large rack, machines have *ways* in place of the slots of pairs (`ways`):
//!
//! ```text
//! hellos, start word, park words      as above
//! acknowledgements  [other machine]
//! news              [other machine]   count of its writes, one word behind the other: an idle worker looks here alone
//! rings             [other machine] [0, 1, ..]
//! direct rings      [own worker] [0, 1, ..]   not touched before a pair has them
//! ```
//!
//! Every machine computes the same layout from the numbers of workers and the slots of a pair, so no addresses are
//! exchanged.

use std::fmt;

use comm::shm::RegionSize;
use gossamer_ways::machine::{WRITE_BYTES, WRITES_MAX};
use gossamer_ways::ways::Limits;

use super::slot::TRAILER_BYTES;
use crate::bootstrap::Plan;
use crate::{Place, page_server, service};

/// Bytes of a hello.
pub(super) const HELLO_BYTES: usize = 256;
/// Bytes of a park word with its own cache lines.
const PARK_BYTES: usize = 128;
const ACK_BYTES: usize = 8;
pub(super) const NEWS_BYTES: usize = 8;
/// Limit of a machine's slots; above it each pair gets fewer.
const SLOTS_BYTES_MAX: usize = 512 << 20;

/// Most machines that keep rings whatever their workers, unless machine ways are asked for.
const RINGS_MACHINES: u16 = 4;

const _: () = assert!(HELLO_BYTES.is_multiple_of(128));

/// Slots for the writes of one thread to another, in each direction.
///
/// Their number is the number of batches in flight: the time of a round trip is hidden if together they hold the bytes
/// sent in it. Measured: more than 4 slots of 8 KiB do nothing for shared memory, 16 double the
/// throughput of TCP on loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    /// Number of slots for each pair of threads and direction; 0: machines have ways instead.
    pub(crate) per_pair: u16,
    /// Bytes of one slot.
    pub(crate) bytes: usize,
}

impl Slots {
    /// Slots between processes of one host.
    pub(crate) const SHM: Slots = Slots { per_pair: 4, bytes: 8192 };
    /// Slots between hosts.
    pub(crate) const NETWORK: Slots = Slots { per_pair: 16, bytes: 8192 };

    /// Returns the slots for the machines of a plan, the same for all.
    pub(crate) fn of(plan: &Plan) -> Slots {
        if plan.memory_group(0).len() == plan.machines.len() { Slots::SHM } else { Slots::NETWORK }
    }

    /// Returns the bytes of data that a slot can carry.
    pub(super) fn room_bytes(self) -> usize {
        self.bytes - TRAILER_BYTES
    }

    /// Returns the distance from one slot to the next. It is not the slot size alone: with a power of two, all flags,
    /// which an idle worker polls, would fall into the same few lines of the first-level cache.
    pub(super) const fn stride_bytes(self) -> usize {
        self.bytes + 64
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.per_pair {
            0 => f.write_str("machine ways"),
            per_pair => write!(f, "{per_pair} slots of {} bytes for each pair", self.bytes),
        }
    }
}

/// Numbers of workers of all machines, and the offsets that follow from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    workers: Vec<u16>,
    /// Workers of all machines before this one.
    before: Vec<usize>,
    total: usize,
    /// Threads of each machine behind its workers, if there are other machines.
    hidden: u16,
    slots: Slots,
    /// All machines share memory.
    is_one_host: bool,
    /// Most direct ways of a worker.
    direct_ways: u16,
}

impl Layout {
    /// Makes the layout for machines with these numbers of workers, and a service thread each.
    #[cfg(test)]
    pub(crate) fn new(workers: Vec<u16>, slots: Slots) -> Layout {
        Layout::with_hidden(workers, service::HIDDEN_WORKERS, slots)
    }

    /// Makes the layout for machines with these numbers of workers, and so many hidden threads each. If the slots would
    /// take more than 512 MiB of a machine's memory, pairs have fewer: half, a quarter and so on, one at least.
    pub(crate) fn with_hidden(workers: Vec<u16>, hidden: u16, slots: Slots) -> Layout {
        let mut total = 0;
        let mut before = Vec::with_capacity(workers.len());
        for &count in &workers {
            before.push(total);
            total += usize::from(count);
        }
        let (is_one_host, direct_ways) = (slots == Slots::SHM, Limits::DEFAULT.rings as u16);
        let mut layout = Layout { workers, before, total, hidden, slots, is_one_host, direct_ways };
        let too_large =
            |layout: &Layout| (0..layout.machines()).any(|machine| layout.slots_bytes(machine) > SLOTS_BYTES_MAX);
        while layout.slots.per_pair > 1 && too_large(&layout) {
            layout.slots.per_pair /= 2;
        }
        layout
    }

    /// Makes the layout with machine ways, or with rings, or by the rule: with machine ways where there are more than
    /// four machines and a pair of workers would have one slot, so that it would wait for a round trip for each 8 KiB.
    pub(crate) fn choose(workers: Vec<u16>, hidden: u16, slots: Slots, machine_ways: Option<bool>) -> Layout {
        let rings = Layout::with_hidden(workers, hidden, slots);
        let is_large = rings.machines() > RINGS_MACHINES && rings.slots.per_pair == 1;
        match machine_ways.unwrap_or(is_large) && rings.machines() > 1 {
            true => Layout { slots: Slots { per_pair: 0, ..slots }, ..rings },
            false => rings,
        }
    }

    /// Slots of a machine way: each for the longest write, as many as may be in flight.
    pub(super) const WAY: Slots =
        Slots { per_pair: WRITES_MAX as u16, bytes: (WRITE_BYTES + TRAILER_BYTES).next_multiple_of(64) };

    /// Returns whether machines have ways in place of the slots of pairs.
    pub(crate) fn has_ways(&self) -> bool {
        self.slots.per_pair == 0
    }

    /// Returns the offset of the count of writes that machine `other` has taken, in the region of `own`.
    pub(super) fn way_ack(&self, own: u16, other: u16) -> usize {
        self.acks(own) + ACK_BYTES * usize::from(other)
    }

    /// Returns the offset of the counts of the writes of all machines, in the region of `own`.
    pub(super) fn way_news(&self, own: u16) -> usize {
        self.way_ack(own, self.machines())
    }

    /// Returns the offset of the count of the writes of machine `other`, in the region of `own`.
    pub(super) fn way_news_of(&self, own: u16, other: u16) -> usize {
        self.way_news(own) + NEWS_BYTES * usize::from(other)
    }

    /// Returns the offset of the first slot for the writes of machine `other`, in the region of `own`.
    pub(super) fn way_ring(&self, own: u16, other: u16) -> usize {
        let ring = usize::from(other) - usize::from(other > own);
        self.squares(own) + ring * Layout::WAY_BYTES
    }

    const WAY_BYTES: usize = Layout::WAY.stride_bytes() * Layout::WAY.per_pair as usize;

    /// Slots of a direct way, each for a piece of a frame (`ways::wire`).
    pub(super) const DIRECT: Slots = Slots { per_pair: 16, bytes: (8192 + TRAILER_BYTES).next_multiple_of(64) };
    pub(super) const DIRECT_BYTES: usize = Layout::DIRECT.stride_bytes() * Layout::DIRECT.per_pair as usize;

    /// Workers have at most so many direct ways, if machines have ways.
    pub(crate) fn with_direct_ways(self, direct_ways: u16) -> Layout {
        Layout { direct_ways, ..self }
    }

    /// Returns the most direct ways of a worker, as it was asked for; 0 without machine ways.
    pub(super) fn direct_ways(&self) -> u16 {
        if self.has_ways() { self.direct_ways } else { 0 }
    }

    /// Returns the rules of direct ways for the workers of a machine. A batch need not be full to count if no others
    /// would share a write with it, at either end, or if writes are mere stores.
    pub(super) fn limits(&self, machine: u16) -> Limits {
        let workers = self.workers[usize::from(machine)];
        let limits = Limits::of_machine(workers);
        let rings = limits.rings.min(usize::from(self.direct_ways)).min(self.others(machine));
        let is_shared = !self.is_one_host && self.workers.iter().any(|workers| *workers > 1);
        let full_bytes = if is_shared { limits.full_bytes } else { 0 };
        Limits { rings, full_bytes, ..limits }
    }

    /// Returns the offset of a ring of this worker, in the region of its machine.
    pub(super) fn direct_ring(&self, own: Place, ring: usize) -> usize {
        let before = usize::from(own.worker) * self.limits(own.machine).rings;
        self.squares(own.machine) + self.slots_bytes(own.machine) + (before + ring) * Layout::DIRECT_BYTES
    }

    /// Returns the bytes of the rings of all direct ways that a machine may have.
    pub(super) fn direct_bytes(&self, machine: u16) -> usize {
        if !self.has_ways() {
            return 0;
        }
        usize::from(self.workers[usize::from(machine)]) * self.limits(machine).rings * Layout::DIRECT_BYTES
    }

    pub(crate) fn workers(&self) -> &[u16] {
        &self.workers
    }

    pub(crate) fn machines(&self) -> u16 {
        self.workers.len() as u16
    }

    /// Returns how many threads of a machine have slots.
    pub(crate) fn threads(&self, machine: u16) -> u16 {
        self.workers[usize::from(machine)] + if self.machines() > 1 { self.hidden } else { 0 }
    }

    /// Returns the service thread of a machine, if there are other machines.
    pub(crate) fn service(&self, machine: u16) -> Place {
        Place::of(machine, service::number(self.workers[usize::from(machine)]))
    }

    pub(crate) fn has_page_servers(&self) -> bool {
        self.machines() > 1 && self.hidden == page_server::HIDDEN_WORKERS
    }

    /// Returns the threads of each machine behind its workers, if there are other machines.
    pub(super) fn hidden(&self) -> u16 {
        self.hidden
    }

    /// Returns a thread's index among the hidden threads of its machine, if it is hidden.
    fn hidden_index(&self, thread: Place) -> Option<usize> {
        thread.worker.checked_sub(self.workers[usize::from(thread.machine)]).map(usize::from)
    }

    /// Returns the slots of a pair of workers.
    pub(crate) fn slots(&self) -> Slots {
        self.slots
    }

    /// Returns the slots of this pair of threads.
    pub(super) fn slots_of(&self, one: Place, other: Place) -> Slots {
        let is_hidden = |thread| self.hidden_index(thread).is_some();
        let per_pair = if is_hidden(one) || is_hidden(other) { 1 } else { self.slots.per_pair };
        Slots { per_pair, ..self.slots }
    }

    /// Returns the offset of `machine`'s hello, in any region.
    pub(super) fn hello(&self, machine: u16) -> usize {
        usize::from(machine) * HELLO_BYTES
    }

    /// Returns the offset of the word on which a machine's first thread sleeps.
    pub(super) fn start_word(&self) -> usize {
        self.workers.len() * HELLO_BYTES
    }

    /// Returns the offset of a thread's park word, in the region of its machine.
    pub(super) fn park_word(&self, thread: u16) -> usize {
        self.start_word() + PARK_BYTES * (1 + usize::from(thread))
    }

    /// Returns the offset of the count of answers that the client has consumed, in the region of the trustee's machine.
    pub(super) fn answer_ack(&self, trustee: Place, client: Place) -> usize {
        self.acks(trustee.machine) + ACK_BYTES * self.first(trustee, client, 1)
    }

    /// Returns the offset of the count of requests that the trustee has consumed, in the region of the client's
    /// machine.
    pub(super) fn request_ack(&self, client: Place, trustee: Place) -> usize {
        let machine = client.machine;
        self.acks(machine) + ACK_BYTES * (self.square(machine, 1) + self.first(client, trustee, 1))
    }

    /// Returns the offset of a pair's first request slot, in the region of the trustee's machine.
    pub(super) fn request_slots(&self, trustee: Place, client: Place) -> usize {
        let slot = self.first(trustee, client, self.slots.per_pair);
        self.squares(trustee.machine) + self.slots.stride_bytes() * slot
    }

    /// Returns the offset of a pair's first answer slot, in the region of the client's machine.
    pub(super) fn answer_slots(&self, client: Place, trustee: Place) -> usize {
        let machine = client.machine;
        let slot = self.square(machine, self.slots.per_pair) + self.first(client, trustee, self.slots.per_pair);
        self.squares(machine) + self.slots.stride_bytes() * slot
    }

    /// Returns the bytes of the slots of a machine, but for those of direct ways.
    pub(crate) fn slots_bytes(&self, machine: u16) -> usize {
        if self.has_ways() {
            return (self.workers.len() - 1) * Layout::WAY_BYTES;
        }
        2 * self.square(machine, self.slots.per_pair) * self.slots.stride_bytes()
    }

    /// Returns the bytes of the region of a machine, and how many of them have memory from the start.
    pub(crate) fn region_size(&self, machine: u16) -> RegionSize {
        let bytes = self.region_bytes(machine);
        RegionSize { bytes, committed_bytes: bytes - self.direct_bytes(machine) }
    }

    /// Returns the bytes of the region of a machine.
    pub(crate) fn region_bytes(&self, machine: u16) -> usize {
        self.squares(machine) + self.slots_bytes(machine) + self.direct_bytes(machine)
    }

    /// Returns the number of workers of all other machines.
    fn others(&self, machine: u16) -> usize {
        self.total - usize::from(self.workers[usize::from(machine)])
    }

    /// Returns the offset of the acknowledgement words.
    fn acks(&self, machine: u16) -> usize {
        self.park_word(self.threads(machine))
    }

    /// Returns the offset of the slots.
    fn squares(&self, machine: u16) -> usize {
        // With ways an acknowledgement and a count for each machine.
        let words = 2 * if self.has_ways() { self.workers.len() } else { self.square(machine, 1) };
        self.acks(machine) + (words * ACK_BYTES).next_multiple_of(PARK_BYTES)
    }

    /// Returns the number of words or slots of a square: `per_pair` for each pair of workers, one for each other pair.
    fn square(&self, machine: u16, per_pair: u16) -> usize {
        let workers = usize::from(self.workers[usize::from(machine)]);
        workers * self.row(machine, per_pair) + usize::from(self.hidden) * self.row(machine, 1)
    }

    /// Returns the number of these in a row of a worker; for the row of a hidden thread, `per_pair` is one.
    fn row(&self, machine: u16, per_pair: u16) -> usize {
        self.others(machine) * usize::from(per_pair) + usize::from(self.hidden) * (self.workers.len() - 1)
    }

    /// Returns the index of the first of these for the pair of `own` and `other`, in a square of `own`'s machine. A row
    /// has all threads of the other machines, one machine after the other.
    fn first(&self, own: Place, other: Place, per_pair: u16) -> usize {
        let is_behind = other.machine > own.machine;
        let mut workers = self.before[usize::from(other.machine)];
        let mut hidden = usize::from(self.hidden) * (usize::from(other.machine) - usize::from(is_behind));
        match self.hidden_index(other) {
            None => workers += usize::from(other.worker),
            Some(index) => {
                workers += usize::from(self.workers[usize::from(other.machine)]);
                hidden += index;
            }
        }
        if is_behind {
            workers -= usize::from(self.workers[usize::from(own.machine)]);
        }
        let (rows, each) = match self.hidden_index(own) {
            None => (usize::from(own.worker) * self.row(own.machine, per_pair), usize::from(per_pair)),
            Some(index) => {
                let of_workers = usize::from(self.workers[usize::from(own.machine)]) * self.row(own.machine, per_pair);
                (of_workers + index * self.row(own.machine, 1), 1)
            }
        };
        rows + workers * each + hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every word, hello and slot of a machine has its own bytes, and together they fill the region.
        #[test]
        fn nothing_overlaps_and_nothing_is_left(
            workers in prop::collection::vec(1u16..5, 1..6),
            hidden in 1u16..3,
            per_pair in 1u16..9,
        ) {
            let slots = Slots { per_pair, bytes: 1024 };
            let layout = Layout::with_hidden(workers.clone(), hidden, slots);
            let hidden = if workers.len() > 1 { hidden } else { 0 };
            let threads = || (0u16..).zip(&workers).flat_map(|(machine, &count)| {
                (0..count + hidden).map(move |worker| Place { machine, worker })
            });
            for machine in 0..layout.machines() {
                let mut parts = vec![(layout.start_word(), PARK_BYTES)];
                parts.extend((0..layout.machines()).map(|other| (layout.hello(other), HELLO_BYTES)));
                for own in threads().filter(|thread| thread.machine == machine) {
                    parts.push((layout.park_word(own.worker), PARK_BYTES));
                    for other in threads().filter(|thread| thread.machine != machine) {
                        let is_worker = |thread: &Place| thread.worker < workers[usize::from(thread.machine)];
                        let is_of_workers = [own, other].iter().all(is_worker);
                        let ring = if is_of_workers { usize::from(per_pair) } else { 1 } * (1024 + 64);
                        prop_assert_eq!(usize::from(layout.slots_of(own, other).per_pair) * slots.stride_bytes(), ring);
                        parts.push((layout.request_slots(own, other), ring));
                        parts.push((layout.answer_slots(own, other), ring));
                        parts.push((layout.request_ack(own, other), ACK_BYTES));
                        parts.push((layout.answer_ack(own, other), ACK_BYTES));
                    }
                }
                parts.sort_unstable();
                let mut end = 0;
                for (start, bytes) in parts {
                    // A part of a cache line may be free only before the slots.
                    prop_assert!(start == end || (bytes > PARK_BYTES && start == end.next_multiple_of(PARK_BYTES)));
                    end = start + bytes;
                }
                prop_assert_eq!(end, layout.region_bytes(machine));
            }
        }
    }

    #[test]
    fn amounts_are_those_of_the_squares() {
        let layout = Layout::new(vec![3, 3, 3], Slots::SHM);
        // Each of 3 workers with 6 others, of 4 slots, and each of 4 threads with service threads, or as one, of one
        // slot.
        assert_eq!(layout.slots_bytes(1), 2 * (3 * 6 * 4 + 3 * 2 + 8) * (8192 + 64));
        assert_eq!(Layout::new(vec![4], Slots::NETWORK).slots_bytes(0), 0);
    }

    proptest! {
        /// The same for machine ways.
        #[test]
        fn no_ways_overlap_and_nothing_is_left(workers in prop::collection::vec(1u16..5, 2..40), hidden in 1u16..3) {
            let layout = Layout::choose(workers.clone(), hidden, Slots::NETWORK, Some(true));
            prop_assert!(layout.has_ways());
            for machine in 0..layout.machines() {
                let mut parts = vec![(layout.start_word(), PARK_BYTES)];
                parts.extend((0..layout.machines()).map(|other| (layout.hello(other), HELLO_BYTES)));
                parts.extend((0..layout.threads(machine)).map(|thread| (layout.park_word(thread), PARK_BYTES)));
                parts.extend((0..layout.machines()).map(|other| (layout.way_ack(machine, other), ACK_BYTES)));
                parts.extend((0..layout.machines()).map(|other| (layout.way_news_of(machine, other), NEWS_BYTES)));
                let others = (0..layout.machines()).filter(|other| *other != machine);
                parts.extend(others.map(|other| (layout.way_ring(machine, other), Layout::WAY_BYTES)));
                for worker in (0..workers[usize::from(machine)]).map(|worker| Place { machine, worker }) {
                    let rings = 0..layout.limits(machine).rings;
                    parts.extend(rings.map(|ring| (layout.direct_ring(worker, ring), Layout::DIRECT_BYTES)));
                }
                parts.sort_unstable();
                let mut end = 0;
                for (start, bytes) in parts {
                    prop_assert!(start == end || (bytes > PARK_BYTES && start == end.next_multiple_of(PARK_BYTES)));
                    end = start + bytes;
                }
                prop_assert_eq!(end, layout.region_bytes(machine));
            }
        }
    }

    #[test]
    fn direct_ways_are_bounded_by_the_worker_and_the_machine() {
        let limits = |workers: &[u16], slots| {
            let layout = Layout::choose(workers.to_vec(), service::HIDDEN_WORKERS, slots, Some(true));
            let limits = layout.limits(0);
            assert_eq!(layout.direct_bytes(0), usize::from(workers[0]) * limits.rings * Layout::DIRECT_BYTES);
            (limits.rings, limits.full_bytes)
        };
        let full_bytes = Limits::DEFAULT.full_bytes;
        assert_eq!((limits(&[2, 1, 2], Slots::NETWORK), limits(&[2, 1, 2], Slots::SHM)), ((3, full_bytes), (3, 0)));
        assert_eq!((limits(&[1; 100], Slots::NETWORK), limits(&[128; 9], Slots::NETWORK)), ((64, 0), (28, full_bytes)));
        let layout = Layout::choose(vec![1; 100], service::HIDDEN_WORKERS, Slots::SHM, Some(true)).with_direct_ways(2);
        assert_eq!((layout.limits(5).rings, layout.direct_bytes(5)), (2, 2 * Layout::DIRECT_BYTES));
        assert_eq!(Layout::new(vec![1; 3], Slots::SHM).direct_bytes(0), 0);
    }

    #[test]
    fn racks_with_one_slot_for_a_pair_have_machine_ways() {
        let has_ways = |machines, workers, asked| {
            Layout::choose(vec![workers; machines], service::HIDDEN_WORKERS, Slots::NETWORK, asked).has_ways()
        };
        assert!(has_ways(64, 64, None) && has_ways(1000, 128, None) && has_ways(5, 128, None));
        assert!(!has_ways(12, 32, None) && !has_ways(64, 1, None), "these have two slots and more");
        assert!(!has_ways(2, 128, None) && !has_ways(4, 128, None), "few machines");
        assert!(has_ways(2, 1, Some(true)) && !has_ways(64, 64, Some(false)) && !has_ways(1, 4, Some(true)));
        let layout = Layout::choose(vec![64; 64], service::HIDDEN_WORKERS, Slots::NETWORK, None);
        assert!(layout.slots_bytes(3) < 17 << 20, "{}", layout.slots_bytes(3));
        assert_eq!(layout.slots().to_string(), "machine ways");
    }

    #[test]
    fn large_racks_have_fewer_slots_for_each_pair() {
        let per_pair = |machines, workers| Layout::new(vec![workers; machines], Slots::NETWORK).slots().per_pair;
        assert_eq!((per_pair(2, 32), per_pair(4, 32), per_pair(12, 32)), (16, 8, 2));
        let layout = Layout::new(vec![32; 4], Slots::NETWORK);
        assert!(layout.slots_bytes(0) <= SLOTS_BYTES_MAX);
    }
}
