//! Buffers that begin at a multiple of 64, the strictest alignment of inline data, so that data at some offset of one
//! buffer can be read at the same offset of another.
//!
//! Invariant: all bytes of the allocation have been initialised, so any part may be exposed. A value that is moved into
//! it (or into a `Vec<u8>`) leaves its padding uninitialised as far as the compiler is concerned: [`fix_padding`] is
//! called before the bytes are exposed.

#![allow(unsafe_code)]

use crate::config::INLINE_ALIGN;

/// Unit of allocation.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Block([u64; 8]);

impl Block {
    pub(crate) const EMPTY: Block = Block([0; 8]);
    const BYTES: usize = size_of::<Block>();
}

const _: () = assert!(align_of::<Block>() == INLINE_ALIGN && Block::BYTES == INLINE_ALIGN);

/// Makes the padding of values that were moved to `bytes` ordinary bytes, of arbitrary but fixed value. Without it,
/// reading them, or letting the system or a peer read them, would be undefined.
///
/// Costs no instruction: the compiler assumes that the empty block writes the uninitialised bytes.
#[inline(always)]
pub(crate) fn fix_padding(bytes: *mut u8) {
    // Miri does not support assembly, and reports each read of such a byte.
    #[cfg(not(miri))]
    // SAFETY: nothing is executed. As far as the compiler may conclude, the block writes each byte that was not
    // written yet, which its owner, the caller, might do as well.
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) bytes, options(nostack, preserves_flags));
    }
    #[cfg(miri)]
    let _ = bytes;
}

/// Growable bytes; see the module's documentation.
#[derive(Default)]
pub struct Buffer {
    blocks: Vec<Block>,
    len: usize,
}

impl Buffer {
    /// Returns the number of exposed bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no bytes are exposed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the exposed bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` is at most the capacity (`set_len`), and blocks have no uninitialised bytes.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.len) }
    }

    /// Same as [`bytes`](Self::bytes).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast(), self.len) }
    }

    /// Exposes `len` bytes. Bytes that were not exposed before are 0 or have any earlier value.
    pub fn set_len(&mut self, len: usize) {
        self.reserve(len);
        self.len = len;
    }

    /// Makes room for this many bytes in all; may move the contents.
    #[inline]
    pub fn reserve(&mut self, bytes: usize) {
        if bytes > self.capacity() {
            self.grow(bytes);
        }
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        let blocks = bytes.div_ceil(Block::BYTES).max(self.blocks.len() * 2);
        self.blocks.reserve_exact(blocks - self.blocks.len());
        self.blocks.resize(blocks, Block::EMPTY);
    }

    /// Frees its memory if it is more than this many bytes.
    pub fn trim(&mut self, bytes_max: usize) {
        if self.capacity() > bytes_max {
            *self = Buffer::default();
        }
    }

    /// Returns the bytes that there is room for.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.blocks.len() * Block::BYTES
    }

    /// Returns its start. Valid until it grows.
    #[inline(always)]
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.blocks.as_mut_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_holds_stays_when_it_grows() {
        let mut buffer = Buffer::default();
        assert!(buffer.is_empty() && buffer.bytes().is_empty());
        for len in [1, 63, 64, 65, 1000, 5000] {
            let before = buffer.bytes().to_vec();
            buffer.set_len(len);
            assert_eq!((buffer.len(), &buffer.bytes()[..before.len()]), (len, &before[..]));
            assert!(buffer.start().addr().is_multiple_of(64) && buffer.capacity() >= len);
            buffer.bytes_mut().fill(len as u8);
        }
        buffer.trim(8000);
        assert_eq!(buffer.len(), 5000);
        buffer.trim(4000);
        assert_eq!((buffer.len(), buffer.capacity()), (0, 0));
    }
}
