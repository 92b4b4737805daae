//! Mapping of a part of a file, at an address with the caller's alignment: the system uses huge pages only where
//! address and file offset are congruent, and by default picks any address.

#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::{io, slice};

use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Mapping for reading and writing, shared with all other mappings of the file.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: memory that belongs to the owner of this; it is tied to no thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives the address and the length; who uses the memory has to see to that it may.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of a file from `offset` on, both whole pages, at a multiple of `align`, a power of two.
    ///
    /// # Errors
    /// Those of the system.
    ///
    /// # Safety
    /// As long as this lives the file is long enough, and others at most read these bytes of it.
    pub(crate) unsafe fn new(file: BorrowedFd<'_>, offset: u64, bytes: usize, align: usize) -> Result<Mapping> {
        let reserved_bytes = bytes.checked_add(align).ok_or(Errno::NOMEM)?;
        let nothing = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new inaccessible mapping, at an address that the system chooses.
        let reserved = unsafe { mmap_anonymous(ptr::null_mut(), reserved_bytes, ProtFlags::empty(), nothing) }?;
        let before = reserved.addr().next_multiple_of(align) - reserved.addr();
        let start = reserved.wrapping_byte_add(before);
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: it replaces a part of the reservation, which nothing uses. If it fails, the reservation is left: the
        // system may have given a part of it to another mapping already, and address space is plentiful.
        let start = unsafe { mmap(start, bytes, protection, flags, file, offset) }?;
        // SAFETY: mapped just now; leaving it out of core dumps changes no byte of it. Otherwise a dump would allocate
        // the missing pages.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxDontDump) };
        let end = start.wrapping_byte_add(bytes);
        for (rest, bytes) in [(reserved, before), (end, reserved_bytes - before - bytes)] {
            if bytes > 0 {
                // SAFETY: reserved above, and not replaced. If it fails, the addresses are lost.
                let _ = unsafe { munmap(rest, bytes) };
            }
        }
        NonNull::new(start.cast()).map(|start| Mapping { start, bytes }).ok_or(Errno::INVAL)
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: mapped, and by the promise of `new` nothing else writes it; any bytes are `u8`.
        unsafe { slice::from_raw_parts_mut(self.start(), self.bytes) }
    }

    /// Makes the system move a part with allocated pages into huge ones, independent of its policy for file memory.
    ///
    /// # Errors
    /// Those of the system, which may have moved some of it.
    pub(crate) fn collapse(&self, part: Range<usize>) -> Result<()> {
        let start = self.start().wrapping_add(part.start);
        assert!(part.start <= part.end && part.end <= self.bytes, "{part:?} is of the mapping");
        // SAFETY: within this mapping, and its contents stay as they are.
        match unsafe { libc::madvise(start.cast(), part.len(), libc::MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping, which nothing uses any more. If it fails, the mapping stays.
        let _ = unsafe { munmap(self.start().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    const HUGE: usize = 2 << 20;
    const PAGE: usize = 4096;

    /// Makes a file in memory with all of its pages allocated.
    fn file(name: &str, bytes: usize) -> File {
        let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64).unwrap();
        file.into()
    }

    fn map(file: &File, offset: usize, bytes: usize, align: usize) -> Mapping {
        // SAFETY: the tests' files do not shrink, and only the mapping writes them meanwhile.
        unsafe { Mapping::new(file.as_fd(), offset as u64, bytes, align) }.unwrap()
    }

    /// Is the file, which only one test maps, mapped at this address?
    fn is_mapped(address: usize) -> bool {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let is_of = |line: &str| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let [start, end] = [start, end].map(|number| usize::from_str_radix(number, 16).unwrap());
            (start..end).contains(&address) && line.contains("memfd:mapping-that-ends")
        };
        maps.lines().any(is_of)
    }

    #[test]
    fn mappings_begin_where_huge_pages_do() {
        let file = file("mapping", 3 * HUGE);
        // Of many lengths, so that the system's own choice is rarely a multiple.
        let mut all: Vec<_> = (1..40).map(|pages| map(&file, HUGE, HUGE + pages * PAGE, HUGE)).collect();
        assert!(all.iter().all(|mapping| mapping.start().addr().is_multiple_of(HUGE)));
        all[7].as_mut_slice()[5] = 7;
        let mut byte = [0];
        file.read_exact_at(&mut byte, HUGE as u64 + 5).unwrap();
        assert_eq!((byte, all[0].as_mut_slice()[5]), ([7], 7), "all are the file");
    }

    #[test]
    fn mappings_leave_nothing_behind() {
        let file = file("mapping-that-ends", HUGE);
        let mapping = map(&file, 0, HUGE, HUGE);
        let (first, last) = (mapping.start().addr(), mapping.start().addr() + HUGE - 1);
        assert!(is_mapped(first) && is_mapped(last));
        drop(mapping);
        assert!(!is_mapped(first) && !is_mapped(last));
        // If the reservations around them stayed, they would soon exceed the 128 TiB of a process.
        (0..256).for_each(|_| drop(map(&file, 0, HUGE, 1 << 40)));
        // SAFETY: there is no such mapping.
        let beyond = unsafe { Mapping::new(file.as_fd(), 0, usize::MAX & !(PAGE - 1), HUGE) };
        assert_eq!(beyond.err(), Some(Errno::NOMEM));
    }

    #[test]
    fn what_begins_there_may_have_huge_pages() {
        let file = file("mapping", 4 * HUGE);
        let mapping = map(&file, HUGE, 2 * HUGE, HUGE);
        if let Err(error) = mapping.collapse(0..2 * HUGE) {
            return println!("SKIPPED: what_begins_there_may_have_huge_pages: this system gives a file none: {error}");
        }
        // Here address and file offset are not congruent, and the system refuses.
        let astray = map(&file, HUGE + PAGE, 2 * HUGE, HUGE);
        assert!(astray.collapse(0..2 * HUGE).is_err());
        for pages in 1..20 {
            let mapping = map(&file, HUGE, 2 * HUGE + pages * PAGE, HUGE);
            assert_eq!(mapping.collapse(0..HUGE).and(mapping.collapse(HUGE..2 * HUGE)), Ok(()));
        }
    }
}
