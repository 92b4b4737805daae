//! Address space that is reserved at once. A prefix of it is accessible, and gets its pages, zeroed, as they are
//! touched.
//!
//! The rest is inaccessible, because the system charges for accessible pages: in a process that locks its memory
//! (`mlockall`) it allocates them all at once, and under strict overcommit it counts them.
//!
//! Invariants:
//! - The base never moves.
//! - Accessible bytes stay accessible.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::ptr::NonNull;

/// Granularity of growth: a large page; and the granularity while the region is small.
const STEP: usize = 2 << 20;
const FIRST_STEP: usize = 64 << 10;

/// Reserved address space.
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
    accessible: Cell<usize>,
}

// SAFETY: it owns its bytes, as a `Box` does.
unsafe impl Send for Region {}

#[cfg(not(miri))]
impl Region {
    /// Reserves `len` bytes, rounded up to pages, none of which is accessible.
    pub(crate) fn reserve(len: usize) -> io::Result<Region> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        let len = len.max(1).next_multiple_of(4096);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the system chooses.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
        // SAFETY: mapped just now; leaving it out of core dumps changes no byte of it. The whole reservation is as long
        // as the largest possible pool, so it is left out.
        let _ = unsafe { madvise(base, len, Advice::LinuxDontDump) };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("the system mapped address 0"))?;
        Ok(Region { base, len, accessible: Cell::new(0) })
    }

    fn make_accessible(&self, end: usize) -> io::Result<()> {
        use rustix::mm::{MprotectFlags, mprotect};
        let (start, access) = (self.accessible.get(), MprotectFlags::READ | MprotectFlags::WRITE);
        // SAFETY: a part of the mapping that was inaccessible up to now, so no reference to it exists.
        Ok(unsafe { mprotect(self.base.as_ptr().add(start).cast(), end - start, access) }?)
    }

    /// Requests large pages behind the first `small` bytes: fewer page faults and TLB misses. A system without them
    /// refuses, and nothing changes.
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
        // SAFETY: mapped by `reserve` with this length; holders of pointers into it borrowed it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(miri)]
impl Region {
    pub(crate) fn reserve(len: usize) -> io::Result<Region> {
        let len = len.max(1).next_multiple_of(4096);
        // SAFETY: the layout is not empty.
        let base = unsafe { std::alloc::alloc_zeroed(Self::layout(len)) };
        Ok(Region { base: NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?, len, accessible: Cell::new(0) })
    }

    pub(crate) fn prefer_large_pages(&self, _: usize) {}

    fn make_accessible(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, 4096).unwrap_or_else(|_| unreachable!("lengths of tests"))
    }
}

#[cfg(miri)]
impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated by `reserve` with this layout.
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

    /// Returns the number of bytes from the base on that may be read and written.
    #[inline(always)]
    pub(crate) fn accessible(&self) -> usize {
        self.accessible.get()
    }

    /// Makes at least the first `end` bytes accessible.
    ///
    /// # Errors
    /// If the region is smaller, or the system refuses.
    #[cold]
    pub(crate) fn grow(&self, end: usize) -> io::Result<()> {
        if end <= self.accessible.get() {
            return Ok(());
        }
        if end > self.len {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // Up to the start of a large page; otherwise no large page could span the end of the accessible part.
        let base = self.base.as_ptr().addr();
        let stepped =
            if end <= STEP / 2 { end.next_multiple_of(FIRST_STEP) } else { (base + end).next_multiple_of(STEP) - base };
        let (stepped, least) = (stepped.min(self.len), end.next_multiple_of(4096));
        let end = match self.make_accessible(stepped) {
            Ok(()) => stepped,
            Err(_) => self.make_accessible(least).map(|()| least)?,
        };
        self.accessible.set(end);
        Ok(())
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// Returns the access that the system grants to each part of the region, from the base on.
    fn access(region: &Region) -> Vec<(usize, String)> {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("it is there");
        let (base, end) = (region.base().addr(), region.base().addr() + region.len());
        let parts = maps.lines().filter_map(|line| {
            let (addresses, rest) = line.split_once(' ')?;
            let (start, stop) = addresses.split_once('-')?;
            let hex = |text| usize::from_str_radix(text, 16).expect("an address");
            let (start, stop) = (hex(start).max(base), hex(stop).min(end));
            (start < stop).then(|| (stop - base, rest[..4].to_owned()))
        });
        parts.collect()
    }

    #[test]
    fn what_is_not_used_is_accessible_to_nobody() {
        let region = Region::reserve(1 << 30).expect("room");
        let nothing = (1 << 30, "---p".to_owned());
        assert_eq!(access(&region), std::slice::from_ref(&nothing));
        for (end, at_most) in
            [(1, FIRST_STEP), (FIRST_STEP + 1, 2 * FIRST_STEP), (3 * STEP + 1, 5 * STEP), (40 * STEP, 41 * STEP)]
        {
            region.grow(end).expect("room");
            let there = region.accessible();
            assert!((end..=at_most).contains(&there) && there.is_multiple_of(4096), "{there} of {end}");
            assert_eq!(access(&region), [(there, "rw-p".to_owned()), nothing.clone()]);
        }
        let before = region.accessible();
        region.grow(5).expect("it is there");
        assert!(region.grow((1 << 30) + 1).is_err());
        assert_eq!(region.accessible(), before);
        region.grow(1 << 30).expect("room");
        assert_eq!(access(&region), [(1 << 30, "rw-p".to_owned())]);
    }
}
