//! The machine way: frames of all workers of a machine for those of another one, together.
//!
//! ```text
//! worker            Allowance::take   the pair has less than 64 KiB under way; else the frame waits at its worker
//!                   Outbox::add       (by the rule of `Flight`)
//! end of the turn   Outbox::take      all there is, if nothing is in flight; else not before 64 KiB are there
//! before sleep      Outbox::take_early  all there is, if the receiver has room for one more write
//! (a write)         Inbox::arrive     numbers and workers are checked
//! whoever looks     Inbox::deal       to the workers, and to the outbox of the next machine
//!                   Inbox::taken      goes back with the next write: Outbox::acknowledge
//! receiving worker  Allowance::give   at the sender, with the next frame of the pair the other way
//! ```
//!
//! So a batch grows by all workers of both machines while an earlier one is in flight, and a worker that takes nothing
//! stops the pairs with itself alone. Any worker that added something sends at the end of its turn, not the last of
//! them alone: that one may compute for long. Not here: who sends and deals (`news`), the order of a pair (`ways`), the
//! next machine (`route`).
//!
//! Invariant: a write has at most 64 KiB, but for a single larger frame, which `Allowance` lets nobody have; at most
//! [`WRITES_MAX`] are in flight.

use std::collections::VecDeque;

use crate::{Pair, Rack, Table, Violation};

/// Bytes that a pair may have under way on machine ways.
pub const PAIR_BYTES_MAX: usize = 64 << 10;
/// Bytes that leave though others are in flight, and most bytes of a write.
pub const WRITE_BYTES: usize = 64 << 10;
/// Most writes in flight, for which the receiver has room.
pub const WRITES_MAX: u64 = 4;
/// Bytes that are dealt out in one go.
pub const DEAL_BYTES: usize = 256 << 10;

/// A frame of a pair on the way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Frame<F> {
    /// Its sender and its receiver.
    pub pair: Pair,
    /// Its bytes in a write.
    pub bytes: usize,
    /// The caller's.
    pub body: F,
}

/// Frames that go in one write.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Write<F> {
    /// Its number, from 1.
    pub number: u64,
    /// In the order in which they were added.
    pub frames: Vec<Frame<F>>,
}

/// Bytes that a pair has under way, at most [`PAIR_BYTES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct UnderWay(usize);

impl UnderWay {
    /// Counts a frame, unless too much is under way.
    #[must_use]
    pub fn take(&mut self, bytes: usize) -> bool {
        let has_room = bytes <= self.room();
        if has_room {
            self.0 += bytes;
        }
        has_room
    }

    /// Bytes that may be sent now.
    pub fn room(self) -> usize {
        PAIR_BYTES_MAX - self.0
    }

    /// The receiving worker says that it has taken so many bytes.
    pub fn give(&mut self, bytes: usize) -> Result<(), Violation> {
        self.0 = self.0.checked_sub(bytes).ok_or(Violation::TooMuch)?;
        Ok(())
    }
}

/// Bytes under way by pair: a slow receiver stops the pairs with itself alone.
#[derive(Clone, Default, Debug)]
pub struct Allowance(Table<Pair, UnderWay>);

impl Allowance {
    /// Counts a frame, unless its pair has too much under way.
    #[must_use]
    pub fn take(&mut self, pair: Pair, bytes: usize) -> bool {
        self.0.entry(pair).or_default().take(bytes)
    }

    /// Bytes that a pair may send now.
    pub fn room(&self, pair: Pair) -> usize {
        self.0.get(&pair).copied().unwrap_or_default().room()
    }

    /// Forgets what is under way to a machine that is lost.
    pub fn lose(&mut self, machine: u16) {
        self.0.retain(|pair, _| pair.to.machine != machine);
    }

    /// The receiving worker says that it has taken so many bytes of a pair.
    pub fn give(&mut self, pair: Pair, bytes: usize) -> Result<(), Violation> {
        let under_way = self.0.get_mut(&pair).ok_or(Violation::TooMuch)?;
        under_way.give(bytes)?;
        if *under_way == UnderWay::default() {
            self.0.remove(&pair);
        }
        Ok(())
    }
}

/// Writes in flight to one other machine, and the rule when the next one leaves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Flight {
    written: u64,
    acknowledged: u64,
}

impl Flight {
    /// Should a write leave, with so many bytes that have not left? At the end of a turn, and when an acknowledgement
    /// has come.
    pub fn is_due(self, bytes: usize) -> bool {
        let in_flight = self.written - self.acknowledged;
        bytes > 0 && (in_flight == 0 || bytes >= WRITE_BYTES && in_flight < WRITES_MAX)
    }

    /// Could one leave? For a worker that would do nothing, sleep or compute otherwise, and so not be there when those
    /// in flight are acknowledged.
    pub fn has_room(self) -> bool {
        self.written - self.acknowledged < WRITES_MAX
    }

    /// Counts a write that leaves, and returns its number.
    pub fn write(&mut self) -> u64 {
        self.written += 1;
        self.written
    }

    /// The other machine has dealt out all writes up to this number.
    pub fn acknowledge(&mut self, number: u64) -> Result<(), Violation> {
        if number < self.acknowledged {
            return Err(Violation::FromThePast(number));
        }
        if number > self.written {
            return Err(Violation::TooMuch);
        }
        self.acknowledged = number;
        Ok(())
    }
}

/// Frames for one other machine, here and in flight.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Outbox<F> {
    frames: VecDeque<Frame<F>>,
    bytes: usize,
    flight: Flight,
}

impl<F> Default for Outbox<F> {
    fn default() -> Outbox<F> {
        Outbox { frames: VecDeque::new(), bytes: 0, flight: Flight::default() }
    }
}

impl<F> Outbox<F> {
    /// Adds a frame, behind all others.
    pub fn add(&mut self, frame: Frame<F>) {
        self.bytes += frame.bytes;
        self.frames.push_back(frame);
    }

    /// See [`Flight::is_due`].
    pub fn is_due(&self) -> bool {
        self.flight.is_due(self.bytes)
    }

    /// Takes the next write, if one should leave.
    pub fn take(&mut self) -> Option<Write<F>> {
        if self.is_due() { self.next_write() } else { None }
    }

    /// Takes the next write though others are in flight and it is small: see [`Flight::has_room`].
    pub fn take_early(&mut self) -> Option<Write<F>> {
        if self.flight.has_room() && !self.frames.is_empty() { self.next_write() } else { None }
    }

    fn next_write(&mut self) -> Option<Write<F>> {
        let mut room = WRITE_BYTES;
        let mut frames = Vec::new();
        while let Some(frame) = self.frames.pop_front_if(|frame| frame.bytes <= room || room == WRITE_BYTES) {
            room = room.saturating_sub(frame.bytes);
            self.bytes -= frame.bytes;
            frames.push(frame);
        }
        Some(Write { number: self.flight.write(), frames })
    }

    /// See [`Flight::acknowledge`].
    pub fn acknowledge(&mut self, number: u64) -> Result<(), Violation> {
        self.flight.acknowledge(number)
    }

    /// Drops what has not left, for a machine that is lost.
    pub fn clear(&mut self) {
        self.frames = VecDeque::new();
        self.bytes = 0;
    }

    /// Bytes that have not left.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Writes of one other machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Inbox<F> {
    rack: Rack,
    writes: VecDeque<Write<F>>,
    arrived: u64,
}

impl<F> Inbox<F> {
    /// Nothing has come yet.
    pub fn new(rack: Rack) -> Inbox<F> {
        Inbox { rack, writes: VecDeque::new(), arrived: 0 }
    }

    /// Takes a write that has come.
    pub fn arrive(&mut self, write: Write<F>) -> Result<(), Violation> {
        if write.number <= self.arrived {
            return Err(Violation::FromThePast(write.number));
        }
        if write.number > self.arrived + 1 {
            return Err(Violation::Gap(write.number));
        }
        if self.writes.len() as u64 >= WRITES_MAX {
            return Err(Violation::TooMuch);
        }
        write.frames.iter().try_for_each(|frame| self.rack.check(frame.pair))?;
        self.arrived = write.number;
        self.writes.push_back(write);
        Ok(())
    }

    /// Returns the frames of the next writes, at most [`DEAL_BYTES`] unless the first has more.
    pub fn deal(&mut self) -> Vec<Frame<F>> {
        let mut dealt: Vec<Frame<F>> = Vec::new();
        let mut room = DEAL_BYTES;
        while let Some(write) = self.writes.front() {
            let bytes = write.frames.iter().map(|frame| frame.bytes).sum::<usize>();
            if bytes > room && room < DEAL_BYTES {
                break;
            }
            room = room.saturating_sub(bytes);
            dealt.extend(self.writes.pop_front().into_iter().flat_map(|write| write.frames));
        }
        dealt
    }

    /// Are there no writes to deal out?
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Number of the last write that was dealt out.
    pub fn taken(&self) -> u64 {
        self.arrived - self.writes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Peer;
    use proptest::prelude::*;

    fn pair(from: u16, to: u16) -> Pair {
        Pair { from: Peer { machine: 0, worker: from }, to: Peer { machine: 1, worker: to } }
    }

    fn frame(from: u16, bytes: usize, body: u64) -> Frame<u64> {
        Frame { pair: pair(from, 0), bytes, body }
    }

    fn rack() -> Rack {
        Rack::new(&[4, 4])
    }

    #[test]
    fn frames_leave_together_when_nothing_is_in_flight_or_64_kib_are_there() {
        let mut outbox = Outbox::default();
        assert!(!outbox.is_due() && outbox.take().is_none(), "there is nothing");
        outbox.add(frame(0, 100, 1));
        outbox.add(frame(1, 100, 2));
        assert_eq!(outbox.take().map(|write| write.frames.len()), Some(2));
        outbox.add(frame(2, WRITE_BYTES - 1, 3));
        assert!(outbox.take().is_none(), "one is in flight");
        outbox.add(frame(3, 1, 4));
        assert_eq!(outbox.take().map(|write| (write.number, write.frames.len())), Some((2, 2)));
        outbox.add(frame(0, 1, 5));
        assert!(outbox.take().is_none());
        outbox.acknowledge(1).unwrap();
        assert!(outbox.take().is_none(), "the second one is in flight still");
        outbox.acknowledge(2).unwrap();
        assert_eq!((outbox.take().map(|write| write.number), outbox.bytes()), (Some(3), 0));
    }

    #[test]
    fn frames_leave_early_as_long_as_the_receiver_has_room() {
        let mut outbox = Outbox::default();
        for number in 1..=WRITES_MAX {
            outbox.add(frame(0, 1, number));
            assert_eq!(outbox.take_early().map(|write| write.number), Some(number));
            assert!(outbox.take_early().is_none(), "there is nothing");
        }
        outbox.add(frame(0, 1, 9));
        assert!(outbox.take_early().is_none() && outbox.take().is_none(), "no room");
        outbox.acknowledge(1).unwrap();
        assert!(outbox.take().is_none() && outbox.take_early().is_some());
        outbox.add(frame(0, 1, 10));
        outbox.clear();
        outbox.acknowledge(WRITES_MAX + 1).unwrap();
        assert!(outbox.take().is_none() && outbox.bytes() == 0);
    }

    #[test]
    fn no_more_writes_are_in_flight_than_the_receiver_has_room_for() {
        let (mut outbox, mut inbox) = (Outbox::default(), Inbox::new(rack()));
        for body in 0..2 * WRITES_MAX {
            outbox.add(frame(0, WRITE_BYTES, body));
        }
        while let Some(write) = outbox.take() {
            inbox.arrive(write).unwrap();
        }
        assert_eq!(inbox.deal().len() as u64, WRITES_MAX, "{DEAL_BYTES} bytes");
        outbox.acknowledge(inbox.taken()).unwrap();
        assert!(outbox.is_due());
    }

    #[test]
    fn a_pair_has_64_kib_under_way_and_others_have_theirs() {
        let mut allowance = Allowance::default();
        assert!(allowance.take(pair(0, 0), PAIR_BYTES_MAX - 1));
        assert!(!allowance.take(pair(0, 0), 2) && allowance.take(pair(0, 1), 2) && allowance.take(pair(0, 0), 1));
        assert_eq!(allowance.give(pair(0, 0), PAIR_BYTES_MAX + 1), Err(Violation::TooMuch));
        assert_eq!(allowance.give(pair(1, 0), 1), Err(Violation::TooMuch), "a pair that has nothing under way");
        allowance.give(pair(0, 0), PAIR_BYTES_MAX).unwrap();
        assert!(allowance.take(pair(0, 0), PAIR_BYTES_MAX) && !allowance.take(pair(1, 0), PAIR_BYTES_MAX + 1));
        assert_eq!((allowance.room(pair(0, 0)), allowance.room(pair(0, 1))), (0, PAIR_BYTES_MAX - 2));
        allowance.lose(0);
        assert_eq!(allowance.room(pair(0, 0)), 0, "the sender's own machine");
        allowance.lose(1);
        assert_eq!(allowance.room(pair(0, 0)), PAIR_BYTES_MAX);
    }

    #[test]
    fn a_peer_that_lies_is_refused() {
        let mut inbox = Inbox::new(rack());
        let write = |number, from| Write { number, frames: vec![frame(from, 8, 0)] };
        assert_eq!(inbox.arrive(write(2, 0)), Err(Violation::Gap(2)));
        assert_eq!(inbox.arrive(write(1, 4)), Err(Violation::NoSuchWorker(Peer { machine: 0, worker: 4 })));
        assert_eq!((inbox.deal(), inbox.taken()), (vec![], 0));
        for number in 1..=WRITES_MAX {
            inbox.arrive(write(number, 0)).unwrap();
        }
        assert_eq!(inbox.arrive(write(1, 0)), Err(Violation::FromThePast(1)));
        assert_eq!(inbox.arrive(write(WRITES_MAX + 1, 0)), Err(Violation::TooMuch));
        let mut outbox = Outbox::<u64>::default();
        assert_eq!(outbox.acknowledge(1), Err(Violation::TooMuch));
        outbox.add(frame(0, 8, 0));
        let _ = outbox.take();
        outbox.acknowledge(1).unwrap();
        assert_eq!(outbox.acknowledge(0), Err(Violation::FromThePast(0)));
    }

    proptest! {
        /// Frames of any sizes, sends, arrivals and acknowledgements in any order: each arrives once, in order.
        #[test]
        fn nothing_is_lost_or_out_of_order(steps in prop::collection::vec((0..4_u8, 1..80_000_usize), 1..400)) {
            let (mut outbox, mut inbox) = (Outbox::default(), Inbox::new(rack()));
            let (mut under_way, mut dealt, mut added) = (VecDeque::new(), Vec::new(), 0);
            let steps = steps.into_iter().chain([(1, 0), (2, 0), (3, 0)].into_iter().cycle().take(3 * 400));
            for (step, bytes) in steps {
                match step {
                    0 => {
                        outbox.add(frame(0, bytes, added));
                        added += 1;
                    }
                    1 => under_way.extend(outbox.take()),
                    2 => under_way.pop_front().into_iter().try_for_each(|write| inbox.arrive(write)).unwrap(),
                    _ => {
                        dealt.extend(inbox.deal().into_iter().map(|frame| frame.body));
                        outbox.acknowledge(inbox.taken()).unwrap();
                    }
                }
            }
            prop_assert_eq!(dealt, (0..added).collect::<Vec<_>>());
            prop_assert_eq!(outbox.bytes(), 0);
        }
    }
}
