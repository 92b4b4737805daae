//! Frames of a machine way that have not left, in the bytes in which they will.
//!
//! A frame is written behind the last one of the newest write, or begins a new write if that has no room for it: these
//! are the writes of `gossamer_ways::machine::Outbox`, and leave by the same rule. No memory is allocated for a frame.

use std::collections::VecDeque;

use gossamer_ways::Violation as Breach;
use gossamer_ways::machine::{Flight, WRITE_BYTES};
use trust::link::Buffer;

use super::super::slot::Violation;
use super::wire::{self, Head, frame_bytes};

/// Frames that leave together.
#[derive(Default)]
pub(super) struct Outgoing {
    pub(super) data: Buffer,
    pub(super) frames: u32,
    pub(super) receivers: Threads,
}

/// See the file's documentation.
#[derive(Default)]
pub(super) struct Outbox {
    flight: Flight,
    writes: VecDeque<Outgoing>,
    bytes: usize,
    /// Memory to be used again.
    spare: Option<Outgoing>,
}

impl Outbox {
    /// Adds a frame from one thread to another, behind all others.
    pub(super) fn add(&mut self, (from, to): (u16, u16), head: &Head, data: &[u8]) {
        let bytes = frame_bytes(data.len());
        if self.writes.back().is_none_or(|last| last.data.len() + bytes > WRITE_BYTES) {
            self.writes.push_back(self.spare.take().unwrap_or_default());
        }
        if let Some(last) = self.writes.back_mut() {
            wire::append(&mut last.data, (from, to), head, data);
            last.frames += 1;
            last.receivers.add(to);
            self.bytes += bytes;
        }
    }

    /// Puts the next write in place of `last`, whose memory is used again, if one should leave; with `early`, if one
    /// could.
    pub(super) fn take(&mut self, early: bool, last: &mut Outgoing) -> bool {
        let leaves = self.flight.is_due(self.bytes) || early && self.flight.has_room();
        let Some(next) = self.writes.pop_front_if(|_| leaves) else { return false };
        self.flight.write();
        self.bytes -= next.data.len();
        let mut used = std::mem::replace(last, next);
        used.data.set_len(0);
        used.frames = 0;
        self.spare = Some(used);
        true
    }

    /// The other machine has dealt out all writes up to this number.
    pub(super) fn acknowledge(&mut self, number: u64) -> Result<(), Breach> {
        self.flight.acknowledge(number)
    }

    /// Drops what has not left, for a machine that is lost.
    pub(super) fn clear(&mut self) {
        (self.writes, self.bytes, self.spare) = (VecDeque::new(), 0, None);
    }

    /// Bytes that have not left.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Threads to be woken, each once.
#[derive(Default)]
pub(super) struct Threads(Vec<u16>);

impl Threads {
    pub(super) fn add(&mut self, thread: u16) {
        if self.0.last() != Some(&thread) {
            self.0.push(thread);
        }
    }

    /// Wakes each of them, and forgets them.
    pub(super) fn wake(&mut self, mut wake: impl FnMut(u16) -> Result<(), Violation>) -> Result<(), Violation> {
        self.0.sort_unstable();
        self.0.dedup();
        self.0.drain(..).try_for_each(&mut wake)
    }
}

#[cfg(test)]
mod tests {
    use gossamer_ways::machine::{Frame, Outbox as Model};
    use gossamer_ways::{Pair, Peer};
    use proptest::prelude::*;

    use super::super::wire::{Kind, PIECE_BYTES};
    use super::*;
    use crate::remote::slot::Kind as Part;

    fn head(len: usize) -> Head {
        let (len, total) = (len as u32, len as u64);
        Head { kind: Kind::Request, part: Part::Whole, len, note: 0, total, number: 1, changes: false, given: [0; 2] }
    }

    /// Returns the receivers of the frames of a write.
    fn receivers(mut write: &[u8]) -> Vec<u16> {
        std::iter::from_fn(|| wire::next(&mut write).unwrap().map(|piece| piece.to)).collect()
    }

    proptest! {
        /// The same frames leave at the same times, in the same writes, as those of the model that is searched.
        #[test]
        fn writes_are_those_of_the_model(steps in prop::collection::vec((0..4_u8, 0..=PIECE_BYTES), 1..300)) {
            let (mut outbox, mut model) = (Outbox::default(), Model::default());
            let (mut last, mut written, mut acknowledged, mut added) = (Outgoing::default(), 0, 0, 0);
            for (step, len) in steps {
                if step == 0 && acknowledged < written {
                    acknowledged += 1;
                    prop_assert!(outbox.acknowledge(acknowledged).is_ok() && model.acknowledge(acknowledged).is_ok());
                } else if step < 3 {
                    let (from, to) = (Peer { machine: 0, worker: 7 }, Peer { machine: 1, worker: added });
                    outbox.add((7, added), &head(len), &vec![1; len]);
                    model.add(Frame { pair: Pair { from, to }, bytes: frame_bytes(len), body: () });
                    added += 1;
                }
                let early = len % 2 == 0;
                let expected = if early { model.take_early() } else { model.take() };
                prop_assert_eq!(outbox.take(early, &mut last), expected.is_some());
                if let Some(write) = expected {
                    written = write.number;
                    let to: Vec<u16> = write.frames.iter().map(|frame| frame.pair.to.worker).collect();
                    prop_assert_eq!((last.frames as usize, receivers(last.data.bytes())), (to.len(), to));
                }
                prop_assert_eq!(outbox.bytes(), model.bytes());
            }
        }
    }

    #[test]
    fn each_thread_is_woken_once() {
        let mut threads = Threads::default();
        for thread in [3, 1, 1, 3] {
            threads.add(thread);
        }
        let mut woken = Vec::new();
        let wake = |thread| {
            woken.push(thread);
            Ok(())
        };
        threads.wake(wake).unwrap();
        threads.wake(|_| panic!("they were woken")).unwrap();
        assert_eq!(woken, [1, 3]);
    }
}
