//! Replicas of a lost machine's objects get a second place: the machine that has them writes them to the next one in
//! the order of backups, in the background. The secret of the lost machine comes last, so that nothing there counts
//! before all is there [replica-is-named], and nothing if there is no room for all. Replicas of a lost machine do not
//! change; one that is ended meanwhile has no name any more.

#![allow(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use comm::{Error, ReadId, SHARE_UNIT_BYTES as UNIT, Share};
use gossamer::link;

use super::window::{Block, as_bytes};
use super::{backups, promoted, window};
use crate::here;

/// Units that are written before a read behind them, and such reads that may be under way.
const UNITS_AT_ONCE: usize = 16;
const READS: usize = 2;
/// Bytes that are written in one turn of the worker, whose other work goes on between them.
const PIECE_BYTES: usize = 8 << 10;
/// Time of a worker's other work for each unit of time that a refill takes: it has a quarter.
const OTHERS: u32 = 3;
/// A worker's turn that is shorter had nothing to do.
const NOTHING_DONE: Duration = Duration::from_micros(2);
/// Blocks that the machine is asked for ahead.
const AHEAD: usize = 4;
/// Wait before it is looked again whether there is room, or a read has come back.
const AGAIN: Duration = Duration::from_micros(50);
/// Wait before the machine is asked for room again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Where the replicas of lost machines go, and whether all have arrived.
static GOING: Mutex<BTreeMap<u16, (u16, bool)>> = Mutex::new(BTreeMap::new());

fn going() -> MutexGuard<'static, BTreeMap<u16, (u16, bool)>> {
    GOING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// On a worker, after a loss: begins to write what this machine has of lost ones to another machine. The first worker
/// does it.
pub(super) fn lose() {
    if !here::is_worker() || gossamer::here().worker != 0 {
        return;
    }
    for lost in link::lost_machines() {
        let Some(to) = backups::next_of_lost(lost) else { continue };
        let before = going().insert(lost, (to, false));
        match before {
            Some((same, is_over)) if same == to => drop(going().insert(lost, (to, is_over))),
            _ => drop(trust::spawn(move || refill(lost, to))),
        }
    }
}

/// Returns the number of lost machines the replicas of which are to get, or are getting, a second place.
pub(super) fn pending() -> usize {
    let is_pending = |lost: &u16| {
        let to = backups::next_of_lost(*lost);
        to.is_some_and(|to| going().get(lost) != Some(&(to, true)))
    };
    link::lost_machines().iter().filter(|lost| is_pending(lost)).count()
}

/// Returns once all has arrived, or the machine is lost: there is another one then.
fn refill(lost: u16, to: u16) {
    let outcome = match promoted::mapped(gossamer::rack().machine()) {
        Some(share) => Refill { lost, to, share, reads: VecDeque::new() }.run(),
        None => Ok(()), // there are no replicas at all
    };
    if !matches!(outcome, Err(Stop::Gone))
        && let Some(entry) = going().get_mut(&lost).filter(|(now, _)| *now == to)
    {
        entry.1 = true;
    }
}

/// Why a refill does not come to its end.
enum Stop {
    /// The other machine is gone, or the program ends.
    Gone,
    /// The other machine has no room for all.
    NoRoom,
}

struct Refill {
    lost: u16,
    to: u16,
    share: &'static Share,
    reads: VecDeque<ReadId>,
}

impl Refill {
    fn run(mut self) -> Result<(), Stop> {
        let (secret, used) = (window::start(self.lost), window::used(self.lost));
        if !self.share.is_committed(secret, 8) || self.words(secret, 8) == [0] {
            return Ok(()); // none of it counts
        }
        let mut blocks: Vec<Block> = used.iter().map(|(_, block)| *block).collect();
        blocks.dedup();
        let mut ahead = blocks.into_iter();
        ahead.by_ref().take(AHEAD).for_each(|block| window::ask(self.to, block));
        for some in used.chunks(UNITS_AT_ONCE) {
            ahead.by_ref().take(1).for_each(|block| window::ask(self.to, block));
            for &(start, block) in some {
                self.write_unit(start, block)?;
            }
            self.read_behind(some[0].0)?;
            self.arrive(READS)?;
        }
        self.arrive(0)?;
        // The room of its first block is that of the secret, too.
        if let Some(&(_, block)) = used.first() {
            self.write_to(secret, &self.words(secret, 8), block)?;
            self.read_behind(secret)?;
        }
        self.arrive(0)
    }

    /// Writes a unit but for its zeros, which are there. A word of it has the machine make the block usable.
    fn write_unit(&self, start: usize, block: Block) -> Result<(), Stop> {
        self.write_to(start, &self.words(start, 8), block)?;
        for piece in (start..start + UNIT).step_by(PIECE_BYTES) {
            let begun = Instant::now();
            let words = self.words(piece, PIECE_BYTES);
            if words.iter().any(|word| *word != 0) {
                self.write_to(piece, &words, block)?;
            }
            give_way(begun.elapsed());
        }
        Ok(())
    }

    fn words(&self, start: usize, bytes: usize) -> Vec<u64> {
        self.share.words()[start / 8..][..bytes / 8].iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Writes words to the same place there, once that has room.
    fn write_to(&self, start: usize, words: &[u64], block: Block) -> Result<(), Stop> {
        let mut asked: Option<Instant> = None;
        loop {
            // SAFETY: the share of the replicas; the lost machine is shut out, and this fiber alone writes its window.
            let written = unsafe { link::write(self.to, link::REPLICAS, start, as_bytes(words)) };
            match written {
                Ok(()) => return Ok(()),
                Err(Error::NotCommitted { .. } | Error::NoSuchShare { .. }) => {}
                Err(error) => return gone(&error),
            }
            if window::is_refused(self.to, block) {
                return Err(Stop::NoRoom);
            }
            if asked.is_none_or(|asked| asked.elapsed() > ASK_AGAIN) {
                asked = Some(Instant::now());
                window::ask(self.to, block);
            }
            self.pause()?;
        }
    }

    /// Begins to read there: what was written before has arrived when it comes back.
    fn read_behind(&mut self, start: usize) -> Result<(), Stop> {
        match link::read(self.to, link::REPLICAS, start, 8) {
            Ok(read_id) => self.reads.push_back(read_id),
            Err(error) => return gone(&error),
        }
        Ok(())
    }

    /// Waits until no more than so many reads are under way.
    fn arrive(&mut self, most: usize) -> Result<(), Stop> {
        while self.reads.len() > most {
            match link::take(self.to, self.reads[0], &mut [0; 8]) {
                Ok(false) => self.pause()?,
                Ok(true) => drop(self.reads.pop_front()),
                Err(error) => return gone(&error),
            }
        }
        Ok(())
    }

    fn pause(&self) -> Result<(), Stop> {
        if link::is_lost(self.to) || trust::link::is_ending() {
            return Err(Stop::Gone);
        }
        gossamer::sleep(AGAIN);
        Ok(())
    }
}

/// Leaves the worker to its other work for [`OTHERS`] times as long as this took, or until there is none.
fn give_way(taken: Duration) {
    let begun = Instant::now();
    loop {
        let turn = Instant::now();
        gossamer::yield_now();
        if turn.elapsed() < NOTHING_DONE || begun.elapsed() >= taken.saturating_mul(OTHERS) {
            return;
        }
    }
}

fn gone(error: &Error) -> Result<(), Stop> {
    match error {
        Error::Gone { .. } => Err(Stop::Gone),
        error => link::end_by("giving copies of objects of the heap a second place", error),
    }
}
