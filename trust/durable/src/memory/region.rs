//! Address space that is reserved at once and gets its pages as they are touched: zeros at first.
//!
//! Invariant: the base stays where it is for the life of the region.

#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

/// Reserved address space.
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its bytes, as a `Box` does.
unsafe impl Send for Region {}

#[cfg(not(miri))]
impl Region {
    /// Reserves `len` bytes, rounded up to pages.
    pub(crate) fn reserve(len: usize) -> io::Result<Region> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let len = len.max(1).next_multiple_of(4096);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping wherever the system has room.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("the system mapped address 0"))?;
        Ok(Region { base, len })
    }

    /// Asks for large pages behind the first `small` bytes: fewer faults, and addresses are found sooner. A system without them says no, and goes
    /// on as before.
    pub(crate) fn prefer_large_pages(&self, small: usize) {
        use rustix::mm::{Advice, madvise};
        let Some(rest) = self.len.checked_sub(small).filter(|&rest| rest > 0) else { return };
        // SAFETY: a part of the mapping; the advice changes no byte of it.
        let _ = unsafe { madvise(self.base.as_ptr().add(small).cast(), rest, Advice::LinuxHugepage) };
    }
}

#[cfg(not(miri))]
impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `reserve` with this length; whoever had pointers into it borrowed it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(miri)]
impl Region {
    pub(crate) fn reserve(len: usize) -> io::Result<Region> {
        let len = len.max(1).next_multiple_of(4096);
        // SAFETY: the layout is not empty.
        let base = unsafe { std::alloc::alloc_zeroed(Self::layout(len)) };
        Ok(Region { base: NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?, len })
    }

    pub(crate) fn prefer_large_pages(&self, _: usize) {}

    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, 4096).unwrap_or_else(|_| unreachable!("lengths of tests"))
    }
}

#[cfg(miri)]
impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: as it was allocated.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), Self::layout(self.len)) };
    }
}

impl Region {
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
