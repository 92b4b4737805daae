//! The memory of a copy.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::error::Error;
use crate::limit;

/// A copy of an object of another machine. It stays for as long as it is read: a forgotten guard keeps it until the
/// process ends.
pub(crate) struct Block {
    memory: NonNull<u8>,
    layout: Layout,
    /// Its place in the order of coming.
    pub(crate) number: u64,
}

// SAFETY: bytes that, once they are there, nobody changes.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// Returns the layout of copies: in words, as reads come.
pub(crate) fn in_words(layout: Layout) -> Layout {
    let layout = layout.align_to(8).map(|layout| layout.pad_to_align());
    layout.unwrap_or_else(|_| unreachable!("no object is as long as that"))
}

/// Bytes that a copy of so many bytes counts as: its own, and those in maps, lists and the allocator's heads.
pub(crate) fn block_bytes(bytes: usize) -> usize {
    bytes.saturating_add(256)
}

impl Block {
    /// Memory for an object of at least one byte, zeroed; the caller has reserved its bytes (`limit`).
    pub(crate) fn new(layout: Layout, number: u64) -> Result<Block, Error> {
        let layout = in_words(layout);
        assert_ne!(layout.size(), 0, "objects of no bytes are everywhere");
        // SAFETY: it is longer than nothing.
        match NonNull::new(unsafe { alloc_zeroed(layout) }) {
            Some(memory) => Ok(Block { memory, layout, number }),
            None => {
                limit::give_back(block_bytes(layout.size()) as u64);
                let (machine, why) = (gossamer::rack().machine(), "the allocator has none".to_owned());
                Err(Error::System { machine, bytes: layout.size(), why })
            }
        }
    }

    /// Bytes that it counts as.
    pub(crate) fn taken(&self) -> u64 {
        block_bytes(self.layout.size()) as u64
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// Returns the bytes to fill, before anybody else has the block.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the memory is this block's, initialised, and nobody else's.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        limit::give_back(self.taken());
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}
