//! Case of many writes: each machine streams stamped writes of random sizes to the next, over two lanes at
//! once, each lane with its own thread and connections. The reader checks that every write is whole, that all
//! arrive, in order, and that lanes do not touch one another.
//!
//! A lane of a region is a ring of slots, then a guard line that must stay 0, then the word in which the
//! reader of this machine's outgoing lane counts the writes it has consumed. A write ends at the end of its
//! slot; its flag is its number. Writes come in bursts, and the reader waits only for the flag of the last of
//! a burst: the others must be there by then, without a look at their flags [flag-last]. Several bursts, with
//! wakes between them, wait for one flush, as in a worker's turn.

use super::{Effort, LANES, LINE_BYTES, PARK_LANE, STREAM, load};
use crate::{Connection, Fabric, MachineId, WORD_BYTES, Wake, WorkerId};

const SLOTS: u64 = 32;
const SLOT_BYTES: usize = 1024;
const BURST_MAX: u64 = 8;
const GUARD: usize = SLOTS as usize * SLOT_BYTES;
const CONSUMED: usize = GUARD + LINE_BYTES;
pub(super) const LANE_BYTES: usize = CONSUMED + LINE_BYTES;
/// Unsuccessful looks before a lane's thread sleeps.
const LOOKS: u32 = 16;

/// Scatters the bits of `value`.
pub(super) fn mix(value: u64) -> u64 {
    fastrand::Rng::with_seed(value).u64(..)
}

fn seed(machine: MachineId, lane: usize, number: u64) -> u64 {
    mix(mix(number) ^ (u64::from(machine.0) << 48) ^ ((lane as u64) << 56))
}

/// Returns the bytes of write `number` of a lane of `machine`: every word says where it belongs, and the last
/// one is `number`.
pub(super) fn stamped(machine: MachineId, lane: usize, number: u64, bytes: usize) -> Vec<u8> {
    let start = seed(machine, lane, number);
    let words = bytes / WORD_BYTES;
    let body = (1..words).map(|index| mix(start.wrapping_add(index as u64)).to_ne_bytes());
    body.chain([number.to_ne_bytes()]).flatten().collect()
}

/// Length of write `number`, which both sides compute.
fn bytes_of(machine: MachineId, lane: usize, number: u64) -> usize {
    let words = SLOT_BYTES / WORD_BYTES;
    WORD_BYTES * (1 + seed(machine, lane, !number) as usize % words)
}

/// Last write of the burst that begins with write `first`.
fn burst_end(machine: MachineId, lane: usize, first: u64, writes: u64) -> u64 {
    (first + mix(seed(machine, lane, first)) % BURST_MAX).min(writes)
}

/// Offset of the end of the slot of write `number`.
fn slot_end(lane: usize, number: u64) -> usize {
    STREAM + lane * LANE_BYTES + ((number % SLOTS) as usize + 1) * SLOT_BYTES
}

/// Runs the case on one machine. Returns when all its writes are consumed and it has consumed all others'.
pub(super) fn run(fabric: &dyn Fabric, effort: &Effort) {
    let writes = effort.writes.div_ceil(u64::from(fabric.machines()) * LANES as u64);
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            scope.spawn(move || Lane::new(fabric, lane, writes).run(effort));
        }
    });
    for lane in 0..LANES {
        let guard = STREAM + lane * LANE_BYTES + GUARD;
        assert!((guard..guard + LINE_BYTES).step_by(WORD_BYTES).all(|offset| load(fabric.region(), offset) == 0));
    }
}

/// Returns the worker that owns this lane's connections.
fn worker_of(lane: usize) -> WorkerId {
    WorkerId(1 + lane as u16)
}

/// Sending and receiving half of one thread.
struct Lane<'a> {
    fabric: &'a dyn Fabric,
    lane: usize,
    writes: u64,
    next: Box<dyn Connection>,
    /// Connection back to the previous machine, where that is not the next one.
    previous: Option<Box<dyn Connection>>,
    previous_id: MachineId,
    sent: u64,
    consumed: u64,
    /// Writes or wakes may wait for a flush.
    is_holding: bool,
    buffer: Vec<u8>,
}

impl<'a> Lane<'a> {
    fn new(fabric: &'a dyn Fabric, lane: usize, writes: u64) -> Lane<'a> {
        let (own, machines) = (fabric.machine().0, fabric.machines());
        let worker = worker_of(lane);
        let next = MachineId((own + 1) % machines);
        let previous_id = MachineId((own + machines - 1) % machines);
        let previous = (previous_id != next).then(|| fabric.connect(previous_id, worker).unwrap());
        let next = fabric.connect(next, worker).unwrap();
        Lane {
            fabric,
            lane,
            writes,
            next,
            previous,
            previous_id,
            sent: 0,
            consumed: 0,
            is_holding: false,
            buffer: Vec::new(),
        }
    }

    fn run(&mut self, effort: &Effort) {
        let fabric = self.fabric;
        let mut looks = 0;
        while !self.is_done() {
            fabric.poll(worker_of(self.lane)).unwrap();
            if self.can_send() {
                self.send();
                looks = 0;
            } else if self.can_take() {
                self.take();
                looks = 0;
            } else if self.is_holding {
                self.flush();
            } else if looks < LOOKS {
                looks += 1;
                std::thread::yield_now();
            } else {
                let mut is_idle = || !(self.can_send() || self.can_take() || self.is_done());
                let woke = fabric.park(worker_of(self.lane), self.park_word(), effort.timeout, &mut is_idle).unwrap();
                assert_ne!(woke, Wake::TimedOut, "lane {}: sent {}, took {}", self.lane, self.sent, self.consumed);
            }
        }
        // The last acknowledgement may still wait.
        self.flush();
    }

    fn flush(&mut self) {
        self.next.flush().unwrap();
        if let Some(previous) = &mut self.previous {
            previous.flush().unwrap();
        }
        self.is_holding = false;
    }

    fn park_word(&self) -> usize {
        PARK_LANE + self.lane * LINE_BYTES
    }

    /// Number of this machine's writes that the next one has consumed.
    fn acknowledged(&self) -> u64 {
        load(self.fabric.region(), STREAM + self.lane * LANE_BYTES + CONSUMED)
    }

    fn is_done(&self) -> bool {
        self.consumed == self.writes && self.acknowledged() == self.writes
    }

    fn can_send(&self) -> bool {
        let last = burst_end(self.fabric.machine(), self.lane, self.sent + 1, self.writes);
        self.sent < self.writes && last - self.acknowledged() <= SLOTS
    }

    fn can_take(&self) -> bool {
        let last = burst_end(self.previous_id, self.lane, self.consumed + 1, self.writes);
        let flag = load(self.fabric.region(), slot_end(self.lane, last) - WORD_BYTES);
        // The slot holds a write of an earlier turn of the ring, or this one: never a later one, never one of
        // another machine.
        assert!(flag == last || flag + SLOTS == last || flag == 0, "flag {flag} where {last} belongs");
        self.consumed < self.writes && flag == last
    }

    fn send(&mut self) {
        let own = self.fabric.machine();
        let last = burst_end(own, self.lane, self.sent + 1, self.writes);
        for number in self.sent + 1..=last {
            let mut source = stamped(own, self.lane, number, bytes_of(own, self.lane, number));
            self.next.write(&source, slot_end(self.lane, number) - source.len()).unwrap();
            // The caller may use the source again.
            source.fill(0xee);
        }
        self.next.wake(self.park_word()).unwrap();
        self.is_holding = true;
        self.sent = last;
    }

    fn take(&mut self) {
        let last = burst_end(self.previous_id, self.lane, self.consumed + 1, self.writes);
        for number in self.consumed + 1..=last {
            let bytes = bytes_of(self.previous_id, self.lane, number);
            self.buffer.resize(bytes, 0);
            self.fabric.region().read(slot_end(self.lane, number) - bytes, &mut self.buffer).unwrap();
            let expected = stamped(self.previous_id, self.lane, number, bytes);
            assert!(self.buffer == expected, "write {number} of {} is not whole, or not in order", self.previous_id);
        }
        self.consumed = last;
        let (park_word, consumed_word) = (self.park_word(), STREAM + self.lane * LANE_BYTES + CONSUMED);
        let back = self.previous.as_mut().unwrap_or(&mut self.next);
        back.write(&last.to_ne_bytes(), consumed_word).unwrap();
        back.wake(park_word).unwrap();
        self.is_holding = true;
    }
}
