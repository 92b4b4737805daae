//! The program's heap. Each machine takes chunks of it, and allocates blocks from them for its own threads; a freed
//! block is reused by the machine that freed it, or passed on (`pool.rs`). The 16 bytes before each block describe it;
//! all other state is outside of the heap.
//!
//! The heap is a region, from which all machines take; or, where the program names what is shared, memory of each
//! machine's own at the same addresses on all. There each machine allocates from a part of its own, so that neither a
//! copy of another machine's heap nor a named range ever overlaps its blocks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::side::{self, outside};
use crate::table::{self, CLASSES, table};
use crate::{PAGE_BYTES, pool};

/// Bytes that a machine takes at a time for small blocks.
const CHUNK_BYTES: usize = 256 << 10;
/// Blocks of this size and more begin on pages of their own, so that threads do not share pages by chance.
const OWN_PAGES: usize = 32 << 10;
/// Alignment of every block.
const ALIGN: usize = 16;
/// Bytes of free blocks of a class that a machine keeps.
const KEPT_BYTES: usize = 1 << 20;

/// Header before each block.
#[repr(C)]
struct Head {
    class: u32,
    /// Offset of the block from the start of its allocation.
    offset: u32,
    magic: u64,
}

const USED: u64 = 0x6775_7365_6420_6f66;
const FREED: u64 = 0x6672_6565_6420_6f66;

/// The heap's state on this machine.
struct Heap {
    free: [Vec<usize>; CLASSES],
    chunk: Range<usize>,
    /// Blocks with pages of their own: start and length.
    large: BTreeMap<usize, usize>,
}

static HEAP: Mutex<Heap> = Mutex::new(Heap { free: [const { vec![] }; CLASSES], chunk: 0..0, large: BTreeMap::new() });
/// Bytes taken of this machine's own part, where each has one.
static OWN_USED: AtomicUsize = AtomicUsize::new(0);

fn heap() -> MutexGuard<'static, Heap> {
    HEAP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the smallest class of at least this many bytes: four for each power of two.
fn class_of(bytes: usize) -> usize {
    let bytes = bytes.max(64);
    let power = (bytes - 1).ilog2() as usize;
    let quarter = ((bytes - 1) >> (power - 2)) & 3;
    power * 4 + quarter - 4 * 5
}

fn bytes_of(class: usize) -> usize {
    let (power, quarter) = (class / 4 + 5, class % 4);
    (1 << power) + ((quarter + 1) << (power - 2))
}

/// Returns the part that this machine takes from.
fn own_part() -> Range<usize> {
    let (start, bytes) = table::heap();
    match table::is_explicit() {
        true => {
            let part = bytes / usize::from(side::machines()) / PAGE_BYTES * PAGE_BYTES;
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

/// Takes unused bytes of the heap, all zero.
fn take(bytes: usize) -> Option<usize> {
    let part = own_part();
    let bytes = bytes.next_multiple_of(PAGE_BYTES);
    let used = if table::is_explicit() { &OWN_USED } else { &table().used };
    let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= part.len());
    let before = used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
    Some(part.start + before)
}

/// Allocates a block at a multiple of `align`; returns it and whether it is all zero. `None`: there is no room.
pub(crate) fn allocate(bytes: usize, align: usize) -> Option<(usize, bool)> {
    let has_own_pages = bytes >= OWN_PAGES || align >= PAGE_BYTES;
    let align = if has_own_pages { align.max(PAGE_BYTES) } else { align.max(ALIGN) };
    let room = if align == ALIGN { ALIGN } else { align + ALIGN };
    let total = bytes.checked_add(room).filter(|total| *total < 1 << 46)?;
    let class = class_of(total);
    let (start, is_zero) = block_of(class)?;
    let block = (start + ALIGN).next_multiple_of(align);
    let head = Head { class: class as u32, offset: (block - start) as u32, magic: USED };
    // SAFETY: 16 bytes of the block that was taken just now, before the caller's part.
    unsafe { head_of(block).write(head) };
    Some((block, is_zero))
}

/// Returns room for a block, and whether it is all zero.
fn block_of(class: usize) -> Option<(usize, bool)> {
    if let Some(start) = outside(move || heap().free[class].pop()) {
        return Some((start, false));
    }
    // Nobody waits for the heap meanwhile.
    if let Some(fetched) = pool::fetch(class) {
        let rest = fetched.into_iter().skip(1).filter(|block| *block != 0);
        outside(move || heap().free[class].extend(rest));
        return Some((fetched[0], false));
    }
    outside(move || heap().new_block(class)).map(|start| (start, true))
}

impl Heap {
    fn new_block(&mut self, class: usize) -> Option<usize> {
        let bytes = bytes_of(class);
        if bytes >= OWN_PAGES {
            let start = take(bytes)?;
            self.large.insert(start, bytes);
            return Some(start);
        }
        if self.chunk.len() < bytes {
            let start = take(CHUNK_BYTES)?; // the rest of the last one is smaller than a block, and lost
            self.chunk = start..start + CHUNK_BYTES;
        }
        self.chunk.start += bytes;
        Some(self.chunk.start - bytes)
    }

    /// Frees a block; returns those to pass on, if there are too many and they can be.
    fn free(&mut self, class: usize, start: usize, passes_on: bool) -> Option<pool::Batch> {
        let free = &mut self.free[class];
        free.push(start);
        let keeps = (KEPT_BYTES / bytes_of(class)).max(1);
        passes_on.then(|| pool::surplus(free, keeps)).flatten()
    }
}

fn head_of(block: usize) -> *mut Head {
    std::ptr::with_exposed_provenance_mut(block - size_of::<Head>())
}

/// Returns the bytes of a block.
pub(crate) fn usable(block: usize) -> usize {
    let Head { class, offset, .. } = read(block, "used");
    bytes_of(class as usize) - offset as usize
}

fn read(block: usize, doing: &str) -> Head {
    let shared = table::is_in_heap(block - size_of::<Head>());
    // SAFETY: in the heap, where everything may be read; its contents are checked below.
    let head = shared.then(|| unsafe { head_of(block).read() });
    match head {
        Some(head) if head.magic == USED && (head.class as usize) < CLASSES => head,
        Some(head) if head.magic == FREED => end(&format!("memory at {block:#x} is {doing} after it was freed")),
        _ => end(&format!("memory at {block:#x} is {doing} that malloc has not given, or its head is overwritten")),
    }
}

fn end(cause: &str) -> ! {
    outside(|| gossamer::link::end(cause))
}

/// Frees a block.
pub(crate) fn free(block: usize) {
    let Head { class, offset, .. } = read(block, "freed");
    let head = Head { class, offset, magic: FREED };
    // SAFETY: as in `read`; the block is the caller's, which no longer uses it.
    unsafe { head_of(block).write(head) };
    let start = block - offset as usize;
    // A block copied here belongs to another machine, which may reuse its address.
    if !table::is_explicit() || own_part().contains(&start) {
        let (class, passes_on) = (class as usize, pool::is_there());
        if let Some(blocks) = outside(move || heap().free(class, start, passes_on)) {
            pool::give(class, blocks);
        }
    }
}

/// Returns start and length of this machine's large block around an address. Not for small blocks.
pub(crate) fn large_around(address: usize) -> Option<(usize, usize)> {
    let around = heap().large.range(..=address).next_back().map(|(start, bytes)| (*start, *bytes))?;
    (address < around.0 + around.1).then_some(around)
}
