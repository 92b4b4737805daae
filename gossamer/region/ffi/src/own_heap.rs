//! The part of the heap that a machine has: runs that it takes from what all share, spans of small blocks, and large
//! blocks.
//!
//! The heap is a region, from which all machines take; or, where the program names what is shared, memory of each
//! machine's own at the same addresses on all. There each machine allocates from a part of its own, so that neither a
//! copy of another machine's heap nor a named range ever overlaps its blocks.
//!
//! Before `main` a machine takes from the arena, whose spans are counted from its own start.
//!
//! Invariant: the lock is held on a thread's own stack, and its holder touches no memory of the program.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::head::Block;
use crate::runs::{Run, Runs, UNIT_BYTES};
use crate::spans::Spans;
use crate::table::{self, table};
use crate::{arena, pool, side};

/// Bytes that a machine takes at a time for small blocks.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of free runs that a machine keeps, with their pages.
const KEPT_BYTES: usize = 32 << 20;
/// Most bytes given back at a time.
const GIVEN_BYTES: usize = 4 << 20;

/// The heap's state on this machine.
struct Heap {
    spans: Spans,
    /// Spans in the arena.
    early: Spans,
    /// Free runs.
    runs: Runs,
    /// Large blocks: start and length.
    large: BTreeMap<usize, usize>,
    /// Freed blocks of other machines.
    away: BTreeMap<u16, Vec<Block>>,
}

impl Heap {
    const fn new() -> Heap {
        Heap {
            spans: Spans::new(),
            early: Spans::new(),
            runs: Runs::new(),
            large: BTreeMap::new(),
            away: BTreeMap::new(),
        }
    }
}

static HEAP: Mutex<Heap> = Mutex::new(Heap::new());
/// Bytes taken of this machine's own part, where each has one.
static OWN_USED: AtomicUsize = AtomicUsize::new(0);

fn heap() -> MutexGuard<'static, Heap> {
    HEAP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the machine whose spans the caller's blocks are of: before `main`, machine 0, which alone keeps them.
pub(crate) fn machine() -> u16 {
    if table::has_begun() { side::own_machine() } else { 0 }
}

/// On a machine other than 0, as the program begins: forgets the blocks of its own constructors, in whose place are
/// those of machine 0.
pub(crate) fn forget() {
    *heap() = Heap::new();
}

/// Returns the part that this machine takes from.
pub(crate) fn own_part() -> Range<usize> {
    let (start, bytes) = table::heap();
    match table::is_explicit() {
        true => {
            let part = bytes / usize::from(side::machines()) / UNIT_BYTES * UNIT_BYTES;
            let start = start + part * usize::from(side::own_machine());
            start..start + part
        }
        false => start..start + bytes,
    }
}

/// Returns the bytes taken of this machine's own part, where each has one.
pub(crate) fn own_taken() -> Range<usize> {
    let part = own_part();
    part.start..part.end.min(part.start + OWN_USED.load(Ordering::SeqCst))
}

/// Takes bytes of the heap that no machine has had.
fn take_new(bytes: usize) -> Option<Run> {
    let part = own_part();
    let used = if table::is_explicit() { &OWN_USED } else { &table().used };
    let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= part.len());
    let before = used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
    Some(Run { start: part.start + before, bytes, is_zero: true })
}

/// Takes at least this many bytes from what machines have given back, from what none has had, or from what another one
/// keeps for itself. On our side, without the heap's lock.
fn take_more(bytes: usize) -> Option<Run> {
    if !table::has_begun() {
        let bytes = bytes.max(CHUNK_BYTES);
        return arena::take(bytes).map(|start| Run { start, bytes, is_zero: true });
    }
    pool::fetch(bytes)
        .or_else(|| take_new(bytes.max(CHUNK_BYTES)))
        .or_else(|| take_new(bytes))
        .or_else(|| take_of_others(bytes))
}

/// Takes bytes of this machine's free runs.
fn take_kept(bytes: usize) -> Option<Run> {
    heap().runs.take(bytes)
}

/// Takes bytes of another machine's free runs.
fn take_of_others(bytes: usize) -> Option<Run> {
    let others = (0..side::machines()).filter(|machine| *machine != side::own_machine());
    others.filter(|_| pool::is_common()).find_map(|machine| pool::from(machine, move || take_kept(bytes)))
}

/// On our side: takes free blocks of a class; returns how many. 0: there is no room.
pub(crate) fn take_blocks(class: usize, blocks: &mut [usize]) -> usize {
    loop {
        {
            let mut heap = heap();
            if heap.put(&pool::returned()) {
                drop(heap);
                end_wrong_block();
            }
            let taken = heap.take(class, blocks);
            if taken > 0 {
                return taken;
            }
            if let Some(run) = heap.runs.take(UNIT_BYTES) {
                let (spans, base) = heap.spans_at(run.start);
                spans.add(class, (run.start - base) / UNIT_BYTES);
                continue;
            }
        }
        let Some(run) = take_more(UNIT_BYTES) else { return 0 };
        heap().runs.give(run);
    }
}

/// On our side: frees small blocks of this machine's spans.
pub(crate) fn put_blocks(blocks: impl Iterator<Item = Block>) {
    let blocks: Vec<Block> = blocks.collect();
    let is_wrong = heap().put(&blocks);
    if is_wrong {
        end_wrong_block();
    }
    give_back();
}

/// On our side: passes freed blocks on to their machines, once there are enough.
pub(crate) fn send_home(blocks: impl Iterator<Item = Block>) {
    /// Blocks that travel together.
    const TOGETHER: usize = 256;
    let mut full = vec![];
    let mut heap = heap();
    for block in blocks {
        let away = heap.away.entry(block.machine).or_default();
        away.push(block);
        if away.len() >= TOGETHER {
            full.push((block.machine, std::mem::take(away)));
        }
    }
    drop(heap);
    full.into_iter().for_each(|(machine, blocks)| pool::send(machine, &blocks));
}

/// On our side: gives back free runs of which there are too many.
fn give_back() {
    // Before `main` the runtime, which passes them on, has not started.
    while table::has_begun() {
        let surplus = heap().runs.take_surplus(KEPT_BYTES, GIVEN_BYTES);
        let Some(run) = surplus else { return };
        pool::give(run);
    }
}

impl Heap {
    /// Returns the spans of an address, and the start from which they are counted.
    fn spans_at(&mut self, address: usize) -> (&mut Spans, usize) {
        match arena::has(address) {
            true => (&mut self.early, arena::pages().start),
            false => (&mut self.spans, own_part().start),
        }
    }

    /// Takes free blocks of a class; returns how many there were.
    fn take(&mut self, class: usize, blocks: &mut [usize]) -> usize {
        match self.early.take(class, arena::pages().start, blocks) {
            0 => self.spans.take(class, own_part().start, blocks),
            taken => taken,
        }
    }

    /// Frees small blocks; returns whether one of them does not exist.
    fn put(&mut self, blocks: &[Block]) -> bool {
        let mut is_wrong = false;
        for block in blocks {
            let (spans, base) = self.spans_at(block.start);
            match spans.free(block.class.into(), block.start.wrapping_sub(base)) {
                Ok(Some(unit)) => {
                    self.runs.give(Run { start: base + unit * UNIT_BYTES, bytes: UNIT_BYTES, is_zero: false });
                }
                Ok(None) => {}
                Err(()) => is_wrong = true,
            }
        }
        is_wrong
    }

    /// Notes a run as a large block.
    fn note_large(&mut self, run: Run) {
        let end = run.start + run.bytes;
        let before: Vec<usize> = self
            .large
            .range(..end)
            .rev()
            .take_while(|(at, bytes)| *at + *bytes > run.start)
            .map(|(at, _)| *at)
            .collect();
        before.iter().for_each(|at| _ = self.large.remove(at));
        self.large.insert(run.start, run.bytes);
    }
}

/// Takes a run for a large block. `None`: there is no room. On our side, as all below.
pub(crate) fn take_large(bytes: usize) -> Option<Run> {
    let run = take_kept(bytes).or_else(|| take_more(bytes))?;
    let (run, rest) = run.split(bytes);
    let mut heap = heap();
    if let Some(rest) = rest {
        heap.runs.give(rest);
    }
    heap.note_large(run);
    Some(run)
}

/// Frees the run of a large block.
pub(crate) fn put_large(start: usize, bytes: usize) {
    let mut heap = heap();
    heap.large.remove(&start);
    heap.runs.give(Run { start, bytes, is_zero: false });
    drop(heap);
    give_back();
}

fn end_wrong_block() -> ! {
    gossamer::link::end("a block is freed that malloc has not given, or its head is overwritten")
}

/// Returns start and length of this machine's large block around an address. Not for small blocks.
pub(crate) fn large_around(address: usize) -> Option<(usize, usize)> {
    let around = heap().large.range(..=address).next_back().map(|(start, bytes)| (*start, *bytes))?;
    (address < around.0 + around.1).then_some(around)
}
