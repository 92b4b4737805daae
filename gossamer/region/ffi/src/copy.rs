//! Copies of unshared memory, where the program names the memory that its machines share: all other memory is copied to
//! a machine once, with the first thread that goes to it, from the machine that starts the thread.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use serde_bytes::ByteBuf;

use crate::PAGE_BYTES;
use crate::semaphore::Count;
use crate::table::{self, table};
use crate::{arena, own_heap, side, stack};

/// Pages that travel together.
const PIECE_PAGES: usize = 256;
/// Pages per query to the system.
const LOOK_PAGES: usize = 64 << 10;

/// Other machines' parts of the heap that were copied here.
static TAKEN_OVER: Mutex<Vec<Range<usize>>> = Mutex::new(vec![]);

/// Marks machine 0, which has the program's initial memory.
pub(crate) fn begin() {
    table().has_copy[0].store(1, Ordering::SeqCst);
}

/// Guard: while it lives, no other thread changes which memory machines have. For threads of the program.
pub(crate) struct Changing(Count);

impl Changing {
    pub(crate) fn begin() -> Changing {
        // SAFETY: a word of the table, which stays, and is changed by this type only.
        let count = unsafe { Count::at(table().changing.as_ptr(), 1) };
        count.take(None);
        Changing(count)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.give();
    }
}

/// Called by a thread of the program that is about to start another one on this machine: copies variables and heap
/// there if needed.
pub(crate) fn bring_to(machine: u16) {
    let has_copy = &table().has_copy[usize::from(machine)];
    if !table::is_explicit() || has_copy.load(Ordering::SeqCst) != 0 {
        return;
    }
    let _changing = Changing::begin();
    if has_copy.load(Ordering::SeqCst) == 0 {
        side::at(side::own_machine(), move || send_all(machine));
        has_copy.store(1, Ordering::SeqCst);
    }
}

fn taken_over() -> Vec<Range<usize>> {
    TAKEN_OVER.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// In a fiber: sends variables and heap.
fn send_all(machine: u16) {
    let named = table::named();
    for pages in table::variables().iter().chain([&arena::pages()]) {
        send(machine, pages, &named, false);
    }
    let mut heaps = taken_over();
    heaps.push(own_heap::own_taken());
    for pages in &heaps {
        send(machine, pages, &named, true); // nothing of the program has run there, so there are zeros
    }
    let heaps: Vec<(usize, usize)> = heaps.iter().map(|range| (range.start, range.end)).collect();
    side::from_worker_with(machine, take_over, heaps);
}

fn take_over(heaps: Vec<(usize, usize)>) {
    let ranges = heaps.iter().map(|(start, end)| *start..*end);
    TAKEN_OVER.lock().unwrap_or_else(PoisonError::into_inner).extend(ranges);
}

/// Sends these pages as far as they are touched, except the ranges that the program has named.
fn send(machine: u16, pages: &Range<usize>, named: &[Range<usize>], without_zeros: bool) {
    let mut piece: (usize, Vec<u8>) = (pages.start, vec![]);
    let send = |(start, bytes): (usize, Vec<u8>)| {
        if !bytes.is_empty() {
            side::from_worker_with(machine, put, (start, ByteBuf::from(bytes)));
        }
    };
    for start in pages.clone().step_by(LOOK_PAGES * PAGE_BYTES) {
        let part = start..pages.end.min(start + LOOK_PAGES * PAGE_BYTES);
        for page in touched(&part) {
            if named.iter().any(|range| range.contains(&page)) || stack::is_guard(page) {
                continue;
            }
            // SAFETY: a mapped page of the program; threads of the program that write it meanwhile have a race already.
            let bytes = unsafe { std::ptr::with_exposed_provenance::<[u8; PAGE_BYTES]>(page).read_volatile() };
            if without_zeros && bytes == [0; PAGE_BYTES] {
                continue;
            }
            if piece.0 + piece.1.len() != page || piece.1.len() == PIECE_PAGES * PAGE_BYTES {
                send(std::mem::replace(&mut piece, (page, vec![])));
            }
            piece.1.extend_from_slice(&bytes);
        }
    }
    send(piece);
}

/// Receives variables and heap, in a fiber of the receiving machine.
fn put((start, bytes): (usize, ByteBuf)) {
    let to = std::ptr::with_exposed_provenance_mut::<u8>(start);
    // SAFETY: memory of the program, which has no thread here yet.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

/// Pages, with their contents.
pub(crate) type Contents = Vec<(usize, [u8; PAGE_BYTES])>;

/// Returns those of these pages of the program that are not all zero. No other thread writes them.
pub(crate) fn contents(pages: impl Iterator<Item = usize>) -> Contents {
    let mut found = vec![];
    for page in pages {
        // SAFETY: memory of the program, which is mapped, and which no other thread writes.
        let bytes = unsafe { &*std::ptr::with_exposed_provenance::<[u8; PAGE_BYTES]>(page) };
        if *bytes != [0; PAGE_BYTES] {
            found.push((page, *bytes));
        }
    }
    found
}

/// Writes pages where a region has replaced them.
pub(crate) fn restore(contents: &Contents) {
    for (page, bytes) in contents {
        // SAFETY: a page of a region that no other code uses yet.
        unsafe { std::ptr::with_exposed_provenance_mut::<[u8; PAGE_BYTES]>(*page).write(*bytes) };
    }
}

/// Returns those of these pages that the process has touched; all, where the system does not say.
pub(crate) fn touched(pages: &Range<usize>) -> Vec<usize> {
    const WORD: usize = size_of::<u64>();
    /// Bits of pages that are present or swapped out.
    const IS_THERE: u64 = 0b11 << 62;
    let mut words = vec![0; pages.len() / PAGE_BYTES * WORD];
    let from = (pages.start / PAGE_BYTES * WORD) as u64;
    let told = File::open("/proc/self/pagemap").and_then(|map| map.read_exact_at(&mut words, from)).is_ok();
    let is_there = |word: &[u8]| u64::from_ne_bytes(*word.first_chunk().unwrap_or(&[0xff; WORD])) & IS_THERE != 0;
    let addresses = pages.clone().step_by(PAGE_BYTES);
    addresses.zip(words.chunks_exact(WORD)).filter(|(_, word)| !told || is_there(word)).map(|(page, _)| page).collect()
}
