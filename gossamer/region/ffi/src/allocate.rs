//! `malloc` and its kin: from the region for the program's threads and constructors, from the C library for all other
//! code.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::head::Head;
use crate::side::{self, is_programs};
use crate::{PAGE_BYTES, heap, host, magazine, table};

unsafe extern "C" {
    pub(crate) fn __libc_malloc(bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_realloc(block: *mut c_void, bytes: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_free(block: *mut c_void);
}

/// Allocator of this library's own code: never the region.
pub(crate) struct Outside;

/// Room for blocks until the C library's allocator is bound (`bind.rs`): by its names the dynamic linker finds that of
/// a program which has its own, and that one calls functions of this library.
struct Early {
    bytes: UnsafeCell<[u8; EARLY_BYTES]>,
    used: AtomicUsize,
}

const EARLY_BYTES: usize = 1 << 20;

// SAFETY: each byte is handed out once.
unsafe impl Sync for Early {}

static EARLY: Early = Early { bytes: UnsafeCell::new([0; EARLY_BYTES]), used: AtomicUsize::new(0) };
static IS_BOUND: AtomicBool = AtomicBool::new(false);

impl Early {
    /// Returns a block of zeros; null if there is no room.
    fn take(&self, layout: Layout) -> *mut u8 {
        let start = self.bytes.get().addr();
        let place =
            |used: usize| start.saturating_add(used).checked_next_multiple_of(layout.align())?.checked_sub(start);
        let after = |used: usize| place(used)?.checked_add(layout.size()).filter(|end| *end <= EARLY_BYTES);
        let before = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        match before.ok().and_then(place) {
            Some(at) => self.bytes.get().cast::<u8>().wrapping_add(at),
            None => ptr::null_mut(),
        }
    }

    fn has(&self, block: *mut u8) -> bool {
        block.addr().wrapping_sub(self.bytes.get().addr()) < EARLY_BYTES
    }
}

/// Records that the C library's allocator is bound: the names below are its own.
pub(crate) fn note_bound() {
    IS_BOUND.store(true, Ordering::Relaxed);
}

/// Whether the calling thread is in the program's code, in a block.
fn is_in_block() -> bool {
    side::is_in_program() && host::is_in_block()
}

/// Our code allocates on our side: the C library's allocator keeps blocks in a thread's variables, and those of a
/// block may move.
fn check_side() {
    if cfg!(debug_assertions) && IS_BOUND.load(Ordering::Relaxed) && is_in_block() {
        std::process::abort();
    }
}

// SAFETY: the C library's allocator, by names that are bound to it, and before that memory of this library.
unsafe impl GlobalAlloc for Outside {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check_side();
        if !IS_BOUND.load(Ordering::Relaxed) {
            let block = EARLY.take(layout);
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: as the caller says.
        unsafe { __libc_memalign(layout.align().max(16), layout.size()).cast() }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 && IS_BOUND.load(Ordering::Relaxed) {
            // SAFETY: as the caller says; its blocks begin at multiples of 16.
            return unsafe { __libc_calloc(1, layout.size()).cast() };
        }
        // SAFETY: as the caller says.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: it was allocated with this size just now.
            unsafe { ptr::write_bytes(block, 0, layout.size()) };
        }
        block
    }
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        check_side();
        if EARLY.has(block) {
            return; // little, and once
        }
        // SAFETY: as the caller says.
        unsafe { __libc_free(block.cast()) };
    }
}

fn no_memory<T>() -> *mut T {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    ptr::null_mut()
}

fn from_heap(bytes: usize, align: usize) -> *mut c_void {
    match heap::allocate(bytes, align) {
        Some((block, _)) => ptr::with_exposed_provenance_mut(block),
        None => no_memory(),
    }
}

/// The C library's function.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(bytes: usize) -> *mut c_void {
    match magazine::take(bytes) {
        Some(block) => ptr::with_exposed_provenance_mut(block),
        None => malloc_without_magazine(bytes),
    }
}

#[cold]
#[inline(never)]
fn malloc_without_magazine(bytes: usize) -> *mut c_void {
    match is_programs() {
        true => from_heap(bytes, 1),
        // SAFETY: any size will do.
        false => unsafe { __libc_malloc(bytes) },
    }
}

/// The C library's function.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    if !is_programs() {
        // SAFETY: any sizes will do.
        return unsafe { __libc_calloc(count, bytes) };
    }
    let Some(all) = count.checked_mul(bytes) else { return no_memory() };
    let found = magazine::take(all).map(|block| (block, false)).or_else(|| heap::allocate(all, 1));
    let Some((block, is_zero)) = found else { return no_memory() };
    let block = ptr::with_exposed_provenance_mut::<c_void>(block);
    if !is_zero {
        // SAFETY: a block of at least that many bytes, which no other code has.
        unsafe { ptr::write_bytes(block.cast::<u8>(), 0, all) };
    }
    block
}

/// The C library's function.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // The head lies there too, if the block is the heap's.
    match table::is_in_heap(block.addr().wrapping_sub(size_of::<Head>())) {
        true if magazine::give(block.addr()) => {}
        true => heap::free(block.expose_provenance()),
        // The C library's allocator keeps blocks in a thread's variables, which may move.
        // SAFETY: as below.
        false if is_in_block() => side::outside(|| unsafe { __libc_free(block) }),
        // SAFETY: the caller's block is not the region's, so the C library gave it.
        false => unsafe { __libc_free(block) },
    }
}

/// The C library's function.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    let is_ours = table::is_in_heap(block.addr());
    if !is_ours && (!block.is_null() || !is_programs()) {
        return match is_in_block() {
            // SAFETY: as `free`.
            true => side::outside(|| unsafe { __libc_realloc(block, bytes) }),
            // SAFETY: as `free`.
            false => unsafe { __libc_realloc(block, bytes) },
        };
    }
    if block.is_null() {
        return malloc(bytes);
    }
    let had = heap::usable(block.addr());
    if bytes <= had && bytes >= had / 2 {
        return block;
    }
    let new = match magazine::take(bytes) {
        Some(new) => ptr::with_exposed_provenance_mut(new),
        None => from_heap(bytes, 1),
    };
    if !new.is_null() {
        // SAFETY: both have at least the bytes copied, and do not overlap; the old one is the caller's to free.
        unsafe {
            ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast(), had.min(bytes));
            free(block);
        }
    }
    new
}

/// The C library's function.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: as the caller says.
        Some(all) => unsafe { realloc(block, all) },
        None => no_memory(),
    }
}

/// The C library's function.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    match is_programs() && align.is_power_of_two() {
        true if align > 1 << 30 => no_memory(),
        true => from_heap(bytes, align),
        // SAFETY: any size will do, and it refuses invalid alignments.
        false => unsafe { __libc_memalign(align, bytes) },
    }
}

/// The C library's function.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    memalign(align, bytes)
}

/// The C library's function.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(bytes: usize) -> *mut c_void {
    memalign(PAGE_BYTES, bytes)
}

/// The C library's function: whole pages.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    bytes.checked_next_multiple_of(PAGE_BYTES).map_or_else(no_memory, |bytes| memalign(PAGE_BYTES, bytes))
}

/// The C library's function.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    if !align.is_power_of_two() || align < size_of::<usize>() {
        return libc::EINVAL;
    }
    let found = memalign(align, bytes);
    if found.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's.
    unsafe { block.write(found) };
    0
}

/// The C library's function.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    match table::is_in_heap(block.addr()) {
        true => heap::usable(block.addr()),
        false => crate::real::real!(malloc_usable_size: fn(*mut c_void) -> usize, block),
    }
}
