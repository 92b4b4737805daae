//! Board: a small registered memory of each machine, beside its region, in which its peers write their state,
//! and find this machine's shares. The region belongs to the fabric's user, the board to the fabric.
//!
//! Layout: the directory of the shares (`directory`), which the machine itself writes and its peers read; then
//! for each peer a part that only that peer writes: a line with its heartbeat (+0) and whether it has left
//! (+8), then one word for each of its lanes: the lane's sleep state. A lane is a worker, or the thread that
//! starts the machine.
//!
//! Sleep state of a lane, in one word: bit 0 asleep, bits 1 to 31 the number of its sleep, bits 32 to 63 the
//! offset of its park word in units of 4 bytes. Every sleep has a new number.

use super::directory::DIRECTORY_BYTES;
use crate::error::Error;
use crate::ids::MachineId;
use crate::memory::{Region, WORD_BYTES};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const LINE_BYTES: usize = 64;
pub(super) const HEARTBEAT: usize = 0;
pub(super) const LEFT: usize = 8;
const LANES: usize = LINE_BYTES;

/// The peers' state, in this machine's memory.
pub(super) struct Board {
    memory: Arc<Region>,
    parts: BTreeMap<MachineId, usize>,
}

/// Returns the offset of a lane's word in its machine's part of a board.
pub(super) fn lane_word(lane: usize) -> usize {
    LANES + WORD_BYTES * lane
}

/// Sleep state of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sleep(pub(super) u64);

impl Sleep {
    /// Returns the state of a sleeping lane. Its park word must lie in the first 16 GiB of the region.
    pub(super) fn asleep(number: u32, park_offset: usize) -> Result<Sleep, Error> {
        let place = u32::try_from(park_offset / 4).map_err(|_| {
            Error::verbs(format!("the park word at offset {park_offset} lies beyond the first 16 GiB of the region"))
        })?;
        Ok(Sleep(u64::from(place) << 32 | u64::from(number & 0x7fff_ffff) << 1 | 1))
    }

    pub(super) fn awake(number: u32) -> Sleep {
        Sleep(u64::from(number & 0x7fff_ffff) << 1)
    }

    pub(super) fn is_asleep_at(self, park_offset: usize) -> bool {
        self.0 & 1 == 1 && self.place() as usize * 4 == park_offset
    }

    /// Returns the place of its park word, in units of 4 bytes, as a wake message for it carries it.
    pub(super) fn place(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl Board {
    /// Makes a board for these peers, each with its number of lanes.
    pub(super) fn new(lanes: impl Iterator<Item = (MachineId, usize)>) -> Result<Board, Error> {
        let mut bytes = DIRECTORY_BYTES;
        let mut parts = BTreeMap::new();
        for (peer, lanes) in lanes {
            parts.insert(peer, bytes);
            bytes += LANES + (WORD_BYTES * lanes).next_multiple_of(LINE_BYTES);
        }
        Ok(Board { memory: Arc::new(Region::anonymous(bytes)?), parts })
    }

    pub(super) fn memory(&self) -> &Arc<Region> {
        &self.memory
    }

    /// Returns the offset of the part of `peer`.
    pub(super) fn part(&self, peer: MachineId) -> Option<usize> {
        self.parts.get(&peer).copied()
    }

    fn word(&self, peer: MachineId, offset: usize) -> u64 {
        let word = self.part(peer).and_then(|part| self.memory.word(part + offset).ok());
        // Acquire: the peer's earlier writes by the same queue pair are visible ([flag-last]; the Release is the
        // device's).
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Returns whether `peer` has announced that it leaves.
    pub(super) fn has_left(&self, peer: MachineId) -> bool {
        self.word(peer, LEFT) != 0
    }

    /// Returns the sleep state of a lane of `peer`.
    pub(super) fn sleep(&self, peer: MachineId, lane: usize) -> Sleep {
        Sleep(self.word(peer, lane_word(lane)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_one_word() {
        let sleep = Sleep::asleep(7, 640).unwrap();
        assert!(sleep.is_asleep_at(640) && !sleep.is_asleep_at(644) && !Sleep::awake(7).is_asleep_at(640));
        assert_ne!(sleep, Sleep::asleep(8, 640).unwrap());
        assert!(!Sleep::default().is_asleep_at(0), "nobody sleeps on an empty board");
        assert!(Sleep::asleep(u32::MAX, 4).unwrap().is_asleep_at(4), "the number does not spill over");
        assert!(Sleep::asleep(1, 1 << 34).is_err());
    }

    #[test]
    fn parts_do_not_overlap() {
        let board = Board::new([(MachineId(0), 1), (MachineId(2), 9), (MachineId(3), 1)].into_iter()).unwrap();
        assert_eq!([0, 2, 3].map(|peer| board.part(MachineId(peer))), [0, 128, 320].map(|at| Some(512 + at)));
        assert_eq!(board.part(MachineId(1)), None);
        board.memory().word(512 + 128 + lane_word(8)).unwrap().store(5, Ordering::Relaxed);
        assert_eq!(board.sleep(MachineId(2), 8), Sleep(5));
        assert_eq!(board.sleep(MachineId(1), 8), Sleep(0));
        assert!(!board.has_left(MachineId(2)));
    }
}
