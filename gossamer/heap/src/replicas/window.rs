//! Where replicas lie: in a share of the backup, which has a window for each machine of the rack, and in it a part for
//! each worker, as long as all others. A replica lies there as its object in the partition, with its head before it, so
//! there is nothing to allocate, and nothing to look up.
//!
//! A window begins with the secret of its machine. The backup makes memory usable in blocks, when the first object of
//! one leaves, by messages to its service thread. It stays so: a write may be under way that nobody can call back.
//!
//! Invariant: all machines reckon alike.

#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use comm::{SHARE_BYTES_MAX, SHARE_UNIT_BYTES as UNIT};
use gossamer::{Place, link};

use super::head::HEAD_BYTES;
use crate::name::At;
use crate::{copies, limit, places};

/// Most bytes of a worker's part, so that connections keep a short map of what is usable.
const PART_BYTES_MAX: usize = 64 << 30;

/// Bytes of each worker's part of a window.
fn part_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let machines = gossamer::rack().machines();
        let workers = machines.iter().map(|machine| usize::from(machine.workers)).max().unwrap_or(1);
        let window = SHARE_BYTES_MAX / machines.len();
        ((window - UNIT) / workers).min(PART_BYTES_MAX) & !(UNIT - 1)
    })
}

/// Bytes of each machine's window.
fn window_bytes() -> usize {
    let workers = gossamer::rack().machines().iter().map(|machine| usize::from(machine.workers)).max().unwrap_or(1);
    UNIT + workers * part_bytes()
}

/// Returns the start of a machine's window, where its secret is.
pub(super) fn start(machine: u16) -> usize {
    usize::from(machine) * window_bytes()
}

/// Returns the place of the replica of an object of so many bytes; none if its part is too short for it.
pub(super) fn offset(at: At, bytes: usize) -> Option<usize> {
    let place = places::places()[at.place() as usize];
    let part = part_bytes();
    let end = at.offset().checked_add(bytes)?.checked_next_multiple_of(8)?;
    (end <= part).then(|| start(place.machine) + UNIT + usize::from(place.worker) * part + at.offset())
}

/// A part of a worker's partition, as long as all others: a backup makes room for the replicas there at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Block {
    machine: u16,
    worker: u16,
    number: u32,
}

const BLOCK_BYTES: usize = 16 * UNIT;

/// Returns the blocks that have a part of the replica of an object.
pub(super) fn blocks(at: At, bytes: usize) -> impl Iterator<Item = Block> + Clone {
    let Place { machine, worker, .. } = places::places()[at.place() as usize];
    let (first, end) = (at.offset().saturating_sub(HEAD_BYTES), at.offset() + bytes);
    let numbers = (first / BLOCK_BYTES) as u32..end.div_ceil(BLOCK_BYTES) as u32;
    numbers.map(move |number| Block { machine, worker, number })
}

/// Asks a machine to make room for the replicas of a block. Does not wait.
pub(super) fn ask(machine: u16, block: Block) {
    let own = gossamer::rack().machine();
    trust::link::post(link::service(machine), move |_| commit(own, block), &[]);
}

/// Returns the places of the units of this machine's share that have replicas of a machine's objects, and the block of
/// each. The unit of its secret is none of them.
pub(super) fn used(machine: u16) -> Vec<(usize, Block)> {
    let (first, units) = (start(machine) / UNIT + 1, window_bytes() / UNIT - 1);
    let usable = USABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let block = |unit: usize| {
        let (worker, offset) = ((unit - first) * UNIT / part_bytes(), (unit - first) * UNIT % part_bytes());
        Block { machine, worker: worker as u16, number: (offset / BLOCK_BYTES) as u32 }
    };
    usable.range(first..first + units).map(|&unit| (unit * UNIT, block(unit))).collect()
}

/// Units of this machine's share of replicas that are usable.
static USABLE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// On the backup's service thread: makes room for replicas that another machine is to write.
fn commit(asker: u16, block: Block) {
    let window = start(block.machine);
    let part = window + UNIT + usize::from(block.worker) * part_bytes();
    let first = block.number as usize * BLOCK_BYTES;
    let end = (first + BLOCK_BYTES).min(part_bytes());
    let mut units = std::iter::once(window / UNIT).chain((part + first) / UNIT..(part + end) / UNIT);
    if !units.all(commit_unit) {
        let own = gossamer::rack().machine();
        trust::link::post(link::service(asker), move |_| refused(own, block), &[]);
    }
}

/// Returns whether it is usable. Replicas take no more than half of the heap; copies that nobody reads go for them.
fn commit_unit(unit: usize) -> bool {
    static IS_OPEN: OnceLock<bool> = OnceLock::new();
    let bytes = gossamer::rack().machines().len() * window_bytes();
    let is_open = *IS_OPEN.get_or_init(|| link::open_share(link::REPLICAS, bytes).is_ok());
    let mut usable = USABLE.lock().unwrap_or_else(PoisonError::into_inner);
    if usable.contains(&unit) {
        return true;
    }
    let taken = (usable.len() * UNIT) as u64;
    let has_room = is_open && taken < limit::limit() / 2 && copies::reserve(UNIT).is_ok();
    let is_made = has_room && link::commit(link::REPLICAS, unit * UNIT..(unit + 1) * UNIT).is_ok();
    if is_made {
        usable.insert(unit);
    } else if has_room {
        limit::give_back(UNIT as u64);
    }
    is_made
}

/// Blocks for which a machine had no room.
static REFUSED: Mutex<Vec<(u16, Block, Instant)>> = Mutex::new(Vec::new());
/// It is asked again after this time.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// On the service thread: that machine has no room for the replicas of a block.
fn refused(by: u16, block: Block) {
    REFUSED.lock().unwrap_or_else(PoisonError::into_inner).push((by, block, Instant::now()));
    report(by, block.machine);
}

/// Has that machine said lately that it has no room for this?
pub(super) fn is_refused(by: u16, block: Block) -> bool {
    let mut refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    refused.retain(|(_, _, since)| since.elapsed() < REFUSED_FOR);
    refused.iter().any(|(one, of, _)| (*one, *of) == (by, block))
}

/// Reports once that objects of a machine have no replica there.
pub(super) fn report(backup: u16, machine: u16) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        eprintln!(
            "gossamer-heap: machine {backup} has no room for the copies of all objects of machine {machine}: some \
             would be lost with it; give it more: `GOSSAMER_HEAP` (such as 8G, for each machine), or `heap:` in \
             rack.yaml"
        );
    }
}

/// Words as they are written there.
pub(super) fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: words are bytes, with no padding.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}
