//! `mmap` by the program: private memory and copies of files come from its heap.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::{heap, refused, side, table};

/// Calls `mmap` for this machine alone.
///
/// # Safety
/// That of `mmap(2)`.
pub(crate) unsafe fn map_here(
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: as the caller says.
    let found = unsafe { libc::syscall(libc::SYS_mmap, at, bytes, protection, flags, file, offset) };
    ptr::with_exposed_provenance_mut(found as usize)
}

fn fail(errno: c_int) -> *mut c_void {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    libc::MAP_FAILED
}

/// The C library's function; a file is read once, here.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let is_anonymous = flags & libc::MAP_ANONYMOUS != 0;
    if !side::is_in_program() || flags & libc::MAP_FIXED != 0 || bytes == 0 || offset % 4096 != 0 {
        // SAFETY: as the caller says.
        return unsafe { map_here(at, bytes, protection, flags, file, offset) };
    }
    if !is_anonymous && flags & libc::MAP_PRIVATE == 0 {
        refused::tell("mmap of a file with MAP_SHARED", "MAP_PRIVATE, or write and pwrite");
        return fail(libc::ENOTSUP);
    }
    let Some((block, is_zero)) = heap::allocate(bytes.next_multiple_of(4096), 4096) else { return fail(libc::ENOMEM) };
    let start = ptr::with_exposed_provenance_mut::<u8>(block);
    if !is_zero {
        // SAFETY: a block of at least that many bytes, which no other code has.
        unsafe { ptr::write_bytes(start, 0, bytes) };
    }
    let mut done = 0;
    while !is_anonymous && done < bytes {
        // SAFETY: the rest of the block.
        match unsafe { libc::pread(file, start.add(done).cast(), bytes - done, offset + done as i64) } {
            0 => break,
            read @ 1.. => done += read as usize,
            // SAFETY: the calling thread's own.
            _ if unsafe { *libc::__errno_location() } == libc::EINTR => {}
            _ => {
                heap::free(block);
                return libc::MAP_FAILED;
            }
        }
    }
    start.cast()
}

/// See [`mmap`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe { mmap(at, bytes, protection, flags, file, offset) }
}

/// The C library's function, for whole mappings; a part of one stays mapped.
///
/// # Safety
/// See [`mmap`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(start: *mut c_void, bytes: usize) -> c_int {
    if !table::is_in_heap(start.addr()) {
        // SAFETY: as the caller says.
        return unsafe { libc::syscall(libc::SYS_munmap, start, bytes) as c_int };
    }
    if heap::is_block(start.addr()) && bytes.next_multiple_of(4096) * 2 > heap::usable(start.addr()) {
        heap::free(start.addr());
    }
    0
}
