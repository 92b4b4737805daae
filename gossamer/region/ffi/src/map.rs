//! `mmap` and its kin by the program: private memory and copies of files come from its heap. Memory there is never
//! away, so that unmapped pages may still be touched, and advice changes nothing but contents.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use region_calls::call;

use crate::call::map_here;
use crate::{PAGE_BYTES, heap, mappings, refused, side, table};

fn fail(errno: c_int) -> *mut c_void {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    libc::MAP_FAILED
}

/// Access that memory of the heap has.
const ACCESS: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Returns the length in whole pages, if there is one.
fn pages(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(PAGE_BYTES).filter(|bytes| *bytes > 0)
}

/// Whether these bytes lie in the program's heap.
fn is_in_heap(start: usize, bytes: usize) -> bool {
    bytes > 0 && table::is_in_heap(start) && table::is_in_heap(start.saturating_add(bytes - 1))
}

/// Makes memory of the heap what a new mapping of it is: zeros, or the bytes of a file. `false`: the file cannot be
/// read, with `errno`.
///
/// # Safety
/// The bytes are the caller's.
unsafe fn fill(start: *mut u8, bytes: usize, is_zero: bool, file: Option<(c_int, i64)>) -> bool {
    if !is_zero {
        // SAFETY: as the caller says.
        unsafe { ptr::write_bytes(start, 0, bytes) };
    }
    let Some((file, offset)) = file else { return true };
    let mut done = 0;
    while done < bytes {
        // SAFETY: the rest of the bytes.
        match unsafe { libc::pread(file, start.add(done).cast(), bytes - done, offset + done as i64) } {
            0 => break,
            read @ 1.. => done += read as usize,
            // SAFETY: the calling thread's own.
            _ if unsafe { *libc::__errno_location() } == libc::EINTR => {}
            _ => return false,
        }
    }
    true
}

/// The C library's function; a file is read once, here. Over memory of the heap (`MAP_FIXED`) it changes the contents.
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
    let is_fixed = flags & libc::MAP_FIXED != 0;
    let over_heap = is_fixed && is_in_heap(at.addr(), bytes);
    if !side::is_programs() || bytes == 0 || offset % 4096 != 0 || is_fixed && !over_heap {
        // SAFETY: as the caller says.
        return unsafe { map_here(at, bytes, protection, flags, file, offset) };
    }
    let is_anonymous = flags & libc::MAP_ANONYMOUS != 0;
    if !is_anonymous && flags & libc::MAP_PRIVATE == 0 {
        refused::refuse("mmap", const { call("mmap", "of a file with MAP_SHARED") });
        return libc::MAP_FAILED;
    }
    if protection & libc::PROT_EXEC != 0 {
        refused::refuse("mmap", const { call("mmap", "with PROT_EXEC") });
        return libc::MAP_FAILED;
    }
    let Some(bytes) = pages(bytes) else { return fail(libc::ENOMEM) };
    let file = (!is_anonymous).then_some((file, offset));
    if over_heap {
        restore_access(at.addr(), bytes);
        mappings::restore(at.addr(), at.addr() + bytes);
        // SAFETY: the caller's memory.
        return if unsafe { fill(at.cast(), bytes, false, file) } { at } else { libc::MAP_FAILED };
    }
    let Some((block, is_zero)) = heap::allocate(bytes, PAGE_BYTES) else { return fail(libc::ENOMEM) };
    let start = ptr::with_exposed_provenance_mut::<u8>(block);
    // SAFETY: a block of at least that many bytes, which no other code has.
    if !unsafe { fill(start, bytes, is_zero, file) } {
        heap::free(block);
        return libc::MAP_FAILED;
    }
    mappings::add(block, bytes);
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

/// The C library's function; a part of a mapping may be unmapped.
///
/// # Safety
/// See [`mmap`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(start: *mut c_void, bytes: usize) -> c_int {
    if !side::is_programs() || !is_in_heap(start.addr(), bytes) {
        // SAFETY: as the caller says.
        return unsafe { libc::syscall(libc::SYS_munmap, start, bytes) as c_int };
    }
    let Some(bytes) = pages(bytes).filter(|_| start.addr().is_multiple_of(PAGE_BYTES)) else {
        fail(libc::EINVAL);
        return -1;
    };
    restore_access(start.addr(), bytes);
    mappings::remove(start.addr(), start.addr() + bytes);
    0
}

/// The C library's function; a mapping that grows moves.
///
/// # Safety
/// See [`mmap`]; the argument `at` is there with `MREMAP_FIXED` only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    start: *mut c_void,
    bytes: usize,
    wanted: usize,
    flags: c_int,
    at: *mut c_void,
) -> *mut c_void {
    if !side::is_programs() || !is_in_heap(start.addr(), bytes) {
        // SAFETY: as the caller says.
        let moved = unsafe { libc::syscall(libc::SYS_mremap, start, bytes, wanted, flags, at) };
        return ptr::with_exposed_provenance_mut(moved as usize);
    }
    let (Some(bytes), Some(wanted)) = (pages(bytes), pages(wanted)) else { return fail(libc::EINVAL) };
    if flags & !libc::MREMAP_MAYMOVE != 0 {
        refused::refuse("mremap", const { call("mremap", "to an address") });
        return libc::MAP_FAILED;
    }
    if wanted <= bytes {
        restore_access(start.addr() + wanted, bytes - wanted);
        mappings::remove(start.addr() + wanted, start.addr() + bytes);
        return start;
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return fail(libc::ENOMEM);
    }
    let Some((block, is_zero)) = heap::allocate(wanted, PAGE_BYTES) else { return fail(libc::ENOMEM) };
    restore_access(start.addr(), bytes);
    let new = ptr::with_exposed_provenance_mut::<u8>(block);
    // SAFETY: a block of that many bytes, which no other code has, and the caller's mapping.
    unsafe {
        ptr::copy_nonoverlapping(start.cast::<u8>(), new, bytes);
        fill(new.add(bytes), wanted - bytes, is_zero, None);
    }
    mappings::add(block, wanted);
    mappings::remove(start.addr(), start.addr() + bytes);
    new.cast()
}

/// The C library's function.
///
/// # Safety
/// See [`mmap`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(start: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    if side::is_programs() && protection & libc::PROT_EXEC != 0 && is_in_heap(start.addr(), bytes) {
        refused::refuse("mprotect", const { call("mprotect", "with PROT_EXEC") });
        return -1;
    }
    if side::is_programs() && protection & ACCESS != ACCESS && is_in_heap(start.addr(), bytes) {
        // A guard from before `main` goes when the memory becomes a region.
        if table::has_begun() {
            table::table().has_guards.store(1, Ordering::SeqCst);
        }
    }
    // SAFETY: as the caller says.
    unsafe { libc::syscall(libc::SYS_mprotect, start, bytes, protection) as c_int }
}

/// Gives back access to pages of the heap that the program took away on any machine: the memory gets another use.
fn restore_access(start: usize, bytes: usize) {
    fn restore(start: usize, bytes: usize) {
        // SAFETY: pages of the heap, which the program unmaps, maps over or empties.
        unsafe { libc::syscall(libc::SYS_mprotect, start, bytes, ACCESS) };
    }
    if !table::has_begun() {
        restore(start, bytes);
    } else if table::table().has_guards.load(Ordering::SeqCst) != 0 {
        restore(start, bytes);
        side::on_others(move || restore(start, bytes));
    }
}

/// The C library's function: what becomes zero in one process does here.
///
/// # Safety
/// See [`mmap`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    if !side::is_programs() || !is_in_heap(start.addr(), bytes) {
        // SAFETY: as the caller says.
        return unsafe { libc::syscall(libc::SYS_madvise, start, bytes, advice) as c_int };
    }
    if !start.addr().is_multiple_of(PAGE_BYTES) {
        fail(libc::EINVAL);
        return -1;
    }
    if matches!(advice, libc::MADV_DONTNEED | libc::MADV_REMOVE)
        && let Some(bytes) = pages(bytes)
    {
        restore_access(start.addr(), bytes);
        // SAFETY: the caller's memory.
        unsafe { fill(start.cast(), bytes, false, None) };
    }
    0
}
