//! The program's heap. Each machine takes chunks of the region, and gives blocks of them to its own threads; what is freed is
//! given again by the machine on which it was freed. Before each block, 16 bytes say what it is; all else is kept outside of the region.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::side::outside;
use crate::table::{self, Table, table};

const PAGE_BYTES: usize = 4096;
/// What a machine takes of the region for small blocks.
const CHUNK_BYTES: usize = 256 << 10;
/// Blocks of so many bytes and more begin on pages of their own, so that threads do not share pages by chance.
const OWN_PAGES: usize = 32 << 10;
/// Every block begins at such a multiple.
const ALIGN: usize = 16;
const CLASSES: usize = 4 * 48;

/// Before each block.
#[repr(C)]
struct Head {
    class: u32,
    /// From the start of what was taken to the block.
    offset: u32,
    magic: u64,
}

const USED: u64 = 0x6775_7365_6420_6f66;
const FREED: u64 = 0x6672_6565_6420_6f66;

/// What this machine has of it.
struct Heap {
    free: [Vec<usize>; CLASSES],
    chunk: std::ops::Range<usize>,
}

static HEAP: Mutex<Heap> = Mutex::new(Heap { free: [const { vec![] }; CLASSES], chunk: 0..0 });

fn heap() -> MutexGuard<'static, Heap> {
    HEAP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The smallest class of at least so many bytes: four for each power of two.
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

/// Takes bytes of the region that nobody has had, all zero.
fn take(bytes: usize) -> Option<usize> {
    let (start, all) = table::heap();
    let bytes = bytes.next_multiple_of(PAGE_BYTES);
    let before = table().used.fetch_add(bytes, Ordering::Relaxed) + size_of::<Table>();
    (before.checked_add(bytes)? <= all).then_some(start + before)
}

/// A block, at a multiple of `align`, and whether it is all zero. `None`: there is no room.
pub(crate) fn allocate(bytes: usize, align: usize) -> Option<(usize, bool)> {
    let has_own_pages = bytes >= OWN_PAGES || align >= PAGE_BYTES;
    let align = if has_own_pages { align.max(PAGE_BYTES) } else { align.max(ALIGN) };
    let room = if align == ALIGN { ALIGN } else { align + ALIGN };
    let total = bytes.checked_add(room).filter(|total| *total < 1 << 46)?;
    let class = class_of(total);
    let (start, is_zero) = outside(move || heap().block(class))?;
    let block = (start + ALIGN).next_multiple_of(align);
    let head = Head { class: class as u32, offset: (block - start) as u32, magic: USED };
    // SAFETY: 16 bytes of the block that was taken just now, before what the caller gets.
    unsafe { head_of(block).write(head) };
    Some((block, is_zero))
}

impl Heap {
    fn block(&mut self, class: usize) -> Option<(usize, bool)> {
        if let Some(start) = self.free[class].pop() {
            return Some((start, false));
        }
        let bytes = bytes_of(class);
        if bytes >= OWN_PAGES {
            return take(bytes).map(|start| (start, true));
        }
        if self.chunk.len() < bytes {
            let start = take(CHUNK_BYTES)?; // the rest of the last one is less than a block, and lost
            self.chunk = start..start + CHUNK_BYTES;
        }
        self.chunk.start += bytes;
        Some((self.chunk.start - bytes, true))
    }
}

fn head_of(block: usize) -> *mut Head {
    std::ptr::with_exposed_provenance_mut(block - size_of::<Head>())
}

/// How many bytes a block has.
pub(crate) fn usable(block: usize) -> usize {
    let Head { class, offset, .. } = read(block, "used");
    bytes_of(class as usize) - offset as usize
}

fn read(block: usize, doing: &str) -> Head {
    let shared = table::is_in_heap(block - size_of::<Head>());
    // SAFETY: in the region, where everything may be read; what it says is looked at below.
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

/// Gives a block back.
pub(crate) fn free(block: usize) {
    let Head { class, offset, .. } = read(block, "freed");
    let head = Head { class, offset, magic: FREED };
    // SAFETY: as in `read`; the block is the caller's, who has done with it.
    unsafe { head_of(block).write(head) };
    outside(move || heap().free[class as usize].push(block - offset as usize));
}

/// Whether a block that is in use begins here, as far as one can see.
pub(crate) fn is_block(address: usize) -> bool {
    // SAFETY: in the region, where everything may be read.
    table::is_in_heap(address - size_of::<Head>()) && unsafe { head_of(address).read() }.magic == USED
}
