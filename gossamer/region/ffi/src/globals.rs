//! Location of the program's variables.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use crate::PAGE_BYTES;

/// Returns the pages of the program's own variables (`.data`, `.bss`), without those of its libraries and those that
/// the dynamic linker makes read-only.
pub(crate) fn pages() -> Vec<Range<usize>> {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: `dl_iterate_phdr` gives a loaded object with its headers, and the vector passed on below.
        let (info, found, headers) = unsafe {
            let info = &*info;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
            (info, &mut *found.cast::<Vec<Range<usize>>>(), headers)
        };
        let range = |header: &libc::Elf64_Phdr| {
            let start = (info.dlpi_addr + header.p_vaddr) as usize;
            start..start + header.p_memsz as usize
        };
        let of = |kind| headers.iter().filter(move |header| header.p_type == kind);
        let read_only = of(libc::PT_GNU_RELRO).map(range).map(|range| range.end).max().unwrap_or(0);
        for segment in of(libc::PT_LOAD).filter(|header| header.p_flags & libc::PF_W != 0).map(range) {
            let start = match segment.contains(&read_only.saturating_sub(1)) {
                true => read_only.next_multiple_of(PAGE_BYTES),
                false => segment.start / PAGE_BYTES * PAGE_BYTES,
            };
            let end = segment.end.next_multiple_of(PAGE_BYTES);
            if start < end {
                found.push(start..end);
            }
        }
        1 // the first object is the program
    }
    let mut found = vec![];
    // SAFETY: `first` takes its arguments as `dl_iterate_phdr` gives them, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
    found
}

/// Returns how many bytes above the addresses in its file the program is loaded.
pub(crate) fn bias() -> usize {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: a loaded object, and the number passed on below.
        unsafe { found.cast::<usize>().write((*info).dlpi_addr as usize) };
        1
    }
    let mut found = 0_usize;
    // SAFETY: as in `pages`.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
    found
}
