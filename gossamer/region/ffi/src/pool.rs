//! Free memory that machines pass on: runs of which one has too many go to machine 0, from where all take them, and
//! their pages go back to the system where it allows that. Freed small blocks go to the machine of their span.
//!
//! Where each machine has a heap of its own, and on one machine, runs stay there.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gossamer::link;
use gossamer_region::link::discard;
use trust::link::post;

use crate::head::Block;
use crate::runs::{Run, Runs};
use crate::side;
use crate::table::{self, table};

/// On machine 0, or on each where each has a heap of its own: free runs.
static STORE: Mutex<Runs> = Mutex::new(Runs::new());
/// Small blocks of this machine that others have freed.
static RETURNED: Mutex<Vec<Block>> = Mutex::new(vec![]);

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the machines have one store together.
pub(crate) fn is_common() -> bool {
    !table::is_explicit() && side::machines() > 1
}

fn keep(run: Run) {
    lock(&STORE).give(run);
}

fn take(bytes: usize) -> Option<Run> {
    lock(&STORE).take(bytes)
}

/// On our side, without the heap's lock: gives a run back.
pub(crate) fn give(run: Run) {
    let range = run.start..run.start + run.bytes;
    if !is_common() {
        // Parts of it may be regions, whose contents stay.
        let is_zero = discard_here(&range) && !table::is_explicit();
        return keep(Run { is_zero, ..run });
    }
    table().pooled.fetch_add(run.bytes, Ordering::SeqCst);
    let at_first = move |is_zero| post(link::page_server(0), move |_| keep(Run { is_zero, ..run }), &[]);
    side::without_signals(|| post(link::page_server(side::own_machine()), move |_| at_first(discard(&range)), &[]));
}

/// Gives private pages back to the system; returns whether it has taken them.
fn discard_here(range: &std::ops::Range<usize>) -> bool {
    let start = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: free memory of the heap, private to this process.
    unsafe { libc::madvise(start, range.len(), libc::MADV_DONTNEED) == 0 }
}

/// On our side, without the heap's lock: takes a run that was given back, if there is one with this many bytes.
pub(crate) fn fetch(bytes: usize) -> Option<Run> {
    if !is_common() {
        return take(bytes);
    }
    if table().pooled.load(Ordering::SeqCst) < bytes {
        return None;
    }
    let run = from(0, move || take(bytes))?;
    table().pooled.fetch_sub(run.bytes, Ordering::SeqCst);
    Some(run)
}

/// Calls `f` on a machine for a run.
pub(crate) fn from(machine: u16, f: impl FnOnce() -> Option<Run> + gossamer::NoRef + Send + 'static) -> Option<Run> {
    let (start, bytes, is_zero) = side::at(machine, move || f().map(|run| (run.start, run.bytes, run.is_zero)))?;
    Some(Run { start, bytes, is_zero })
}

/// On our side, without the heap's lock: sends freed blocks to their machine.
pub(crate) fn send(machine: u16, blocks: &[Block]) {
    let mut bytes = Vec::with_capacity(blocks.len() * size_of::<u64>());
    blocks.iter().for_each(|block| bytes.extend_from_slice(&block.to_word().to_ne_bytes()));
    let own = link::page_server(side::own_machine());
    side::without_signals(|| post(own, move |bytes| post(link::page_server(machine), receive, bytes), &bytes));
}

/// On the page server: keeps freed blocks of this machine until it next takes some.
fn receive(bytes: &[u8]) {
    let words = bytes.chunks_exact(size_of::<u64>()).filter_map(|word| word.first_chunk());
    lock(&RETURNED).extend(words.map(|word| Block::of_word(u64::from_ne_bytes(*word))));
}

/// Takes the blocks that other machines have freed.
pub(crate) fn returned() -> Vec<Block> {
    std::mem::take(&mut *lock(&RETURNED))
}
