//! The allocator of a program that has its own `malloc`, as the C library calls it (`strdup`, `getline`): for the
//! program's code. Our code and the runtime's threads have the C library's allocator, as the program's uses memory that
//! the machines share.

use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::allocate::{__libc_calloc, __libc_free, __libc_malloc, __libc_realloc};
use crate::{allocate, side, table};

/// Names of the functions that the C library and the dynamic linker call.
pub(crate) const NAMES: [&CStr; 4] = [c"malloc", c"calloc", c"realloc", c"free"];
const MALLOC: usize = 0;
const CALLOC: usize = 1;
const REALLOC: usize = 2;
const FREE: usize = 3;

/// The program's functions; 0 where the C library calls ours.
static THEIRS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
/// Variables of the program and its libraries, from which its allocator may take blocks.
static VARIABLES: OnceLock<Vec<Range<usize>>> = OnceLock::new();

/// Records the variables of the program and its libraries.
pub(crate) fn note(variables: Vec<Range<usize>>) {
    VARIABLES.get_or_init(|| variables);
}

/// Records the program's function of this name, and returns the one that the C library is to call; none for functions
/// of other names.
pub(crate) fn replace(name: &CStr, theirs: usize) -> Option<usize> {
    let at = NAMES.iter().position(|own| *own == name)?;
    THEIRS[at].store(theirs, Ordering::SeqCst);
    Some(
        [
            malloc as *const () as usize,
            calloc as *const () as usize,
            realloc as *const () as usize,
            free as *const () as usize,
        ][at],
    )
}

/// Returns the function that the dynamic linker is to call by this name.
pub(crate) fn of_linker(name: &CStr) -> usize {
    match NAMES.iter().position(|own| *own == name) {
        Some(MALLOC) => malloc_of_linker as *const () as usize,
        Some(CALLOC) => calloc_of_linker as *const () as usize,
        // Of blocks that it had before, too.
        Some(REALLOC) => realloc as *const () as usize,
        _ => free as *const () as usize,
    }
}

/// The dynamic linker allocates thread-local variables when a thread first asks for them, in the program's code; a
/// thread that holds the allocator's lock waits for no page of its stack.
extern "C" fn malloc_of_linker(bytes: usize) -> *mut c_void {
    // SAFETY: any size will do.
    side::outside(|| unsafe { __libc_malloc(bytes) })
}

/// See above.
extern "C" fn calloc_of_linker(count: usize, bytes: usize) -> *mut c_void {
    // SAFETY: any sizes will do.
    side::outside(|| unsafe { __libc_calloc(count, bytes) })
}

/// Returns the program's function, if it has one.
fn of_program(at: usize) -> Option<usize> {
    Some(THEIRS[at].load(Ordering::Relaxed)).filter(|theirs| *theirs != 0)
}

/// Whether a block is the program's.
fn is_programs(block: usize) -> bool {
    let in_variables = || VARIABLES.get().is_some_and(|all| all.iter().any(|range| range.contains(&block)));
    table::is_in_heap(block) || in_variables()
}

extern "C" fn malloc(bytes: usize) -> *mut c_void {
    match of_program(MALLOC).filter(|_| side::is_programs()) {
        // SAFETY: the program's function, with the type of the C library's.
        Some(theirs) => unsafe { std::mem::transmute::<usize, extern "C" fn(usize) -> *mut c_void>(theirs)(bytes) },
        // SAFETY: any size will do.
        None => unsafe { __libc_malloc(bytes) },
    }
}

extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    match of_program(CALLOC).filter(|_| side::is_programs()) {
        // SAFETY: as in `malloc`.
        Some(theirs) => unsafe {
            std::mem::transmute::<usize, extern "C" fn(usize, usize) -> *mut c_void>(theirs)(count, bytes)
        },
        // SAFETY: any sizes will do.
        None => unsafe { __libc_calloc(count, bytes) },
    }
}

unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    let is_programs = if block.is_null() { side::is_programs() } else { is_programs(block.addr()) };
    match of_program(REALLOC).filter(|_| is_programs) {
        // SAFETY: the program's function, for a block of its own, or none.
        Some(theirs) => unsafe {
            std::mem::transmute::<usize, extern "C" fn(*mut c_void, usize) -> *mut c_void>(theirs)(block, bytes)
        },
        // SAFETY: a block of the heap or of the C library, or none.
        None if is_programs => unsafe { allocate::realloc(block, bytes) },
        // SAFETY: a block of the C library, or none.
        None => side::outside(|| unsafe { __libc_realloc(block, bytes) }),
    }
}

unsafe extern "C" fn free(block: *mut c_void) {
    let is_programs = is_programs(block.addr());
    match of_program(FREE).filter(|_| is_programs) {
        // SAFETY: the program's function, for a block of its own.
        Some(theirs) => unsafe { std::mem::transmute::<usize, extern "C" fn(*mut c_void)>(theirs)(block) },
        // SAFETY: a block of the heap.
        None if is_programs => unsafe { allocate::free(block) },
        // SAFETY: a block of the C library, or none.
        None => side::outside(|| unsafe { __libc_free(block) }),
    }
}
