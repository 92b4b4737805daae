//! The program's heap: blocks, each with 16 bytes before it that describe it. Small ones are parts of spans, of which
//! each thread has some at hand (`magazine.rs`); large ones are runs. All other state is outside of the heap
//! (`own_heap.rs`).
//!
//! Before `main` its memory is that of the arena (`arena.rs`), whose blocks it has from then on.

use crate::head::{FREED, Head, LARGE, UNITS_MAX, USED};
use crate::runs::UNIT_BYTES;
use crate::side::outside;
use crate::size_class::{ALIGN, SMALL_CLASSES, SMALL_MAX, class_of};
use crate::{PAGE_BYTES, magazine, own_heap, table};

/// Blocks of this size and more begin on pages of their own, so that threads do not share pages by chance.
const OWN_PAGES: usize = 32 << 10;

/// Allocates a block at a multiple of `align`; returns it and whether it is all zero. `None`: there is no room.
pub(crate) fn allocate(bytes: usize, align: usize) -> Option<(usize, bool)> {
    let room = if align <= ALIGN { ALIGN } else { align.checked_add(ALIGN)? };
    let total = bytes.checked_add(room)?;
    if bytes >= OWN_PAGES || align >= PAGE_BYTES || total > SMALL_MAX {
        return allocate_large(bytes, align.max(PAGE_BYTES));
    }
    let class = class_of(total);
    let start = magazine::refill(class)?;
    let block = (start + ALIGN).next_multiple_of(align.max(ALIGN));
    let kind = Head::kind_of_small(class, own_heap::machine());
    // SAFETY: 16 bytes of the block that was taken just now, before the caller's part.
    unsafe { head_of(block).write(Head { kind, offset: (block - start) as u32, magic: USED }) };
    Some((block, false))
}

fn allocate_large(bytes: usize, align: usize) -> Option<(usize, bool)> {
    // Runs begin at units, so that a page before the block is enough for its head where `align` is no more.
    let room = if align <= UNIT_BYTES { align } else { align.checked_add(ALIGN)? };
    let total = bytes.checked_add(room)?.checked_next_multiple_of(UNIT_BYTES)?;
    if total / UNIT_BYTES > UNITS_MAX {
        return None;
    }
    let run = outside(move || own_heap::take_large(total))?;
    let block = (run.start + ALIGN).next_multiple_of(align);
    let kind = LARGE | ((run.bytes / UNIT_BYTES) as u32) << 8;
    // SAFETY: as in `allocate`.
    unsafe { head_of(block).write(Head { kind, offset: (block - run.start) as u32, magic: USED }) };
    Some((block, run.is_zero))
}

fn head_of(block: usize) -> *mut Head {
    std::ptr::with_exposed_provenance_mut(block - size_of::<Head>())
}

/// Returns the bytes of a block.
pub(crate) fn usable(block: usize) -> usize {
    let head = read(block, "used");
    head.bytes() - head.offset as usize
}

fn read(block: usize, doing: &str) -> Head {
    let shared = table::is_in_heap(block - size_of::<Head>());
    // SAFETY: in the heap, where everything may be read; its contents are checked below.
    let head = shared.then(|| unsafe { head_of(block).read() });
    match head {
        Some(head) if head.magic == USED && (head.class() < SMALL_CLASSES || head.kind & 0xff == LARGE) => head,
        Some(head) if head.magic == FREED => end(|| format!("memory at {block:#x} is {doing} after it was freed")),
        _ => end(|| format!("memory at {block:#x} is {doing} that malloc has not given, or its head is overwritten")),
    }
}

fn end(cause: impl FnOnce() -> String) -> ! {
    outside(|| gossamer::link::end(&cause()))
}

/// Frees a block.
pub(crate) fn free(block: usize) {
    let head = read(block, "freed");
    let start = block - head.offset as usize;
    let (kind, offset) = (head.kind, head.offset);
    // SAFETY: as in `read`; the block is the caller's, which no longer uses it.
    unsafe { head_of(block).write(Head { kind, offset, magic: FREED }) };
    if kind & 0xff != LARGE {
        return magazine::free(head.class(), start, head.machine());
    }
    // A block copied here belongs to another machine, which may reuse its address.
    if !table::is_explicit() || own_heap::own_part().contains(&start) {
        let bytes = head.bytes();
        outside(move || own_heap::put_large(start, bytes));
    }
}
