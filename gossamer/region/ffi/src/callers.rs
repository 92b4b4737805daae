//! The code that calls: whether it is the program's, or a library's, which may have taken a lock for memory of this
//! machine.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::objects::{self, Kind, Object};

/// Beginning of the file name of C++'s library, whose waits are the program's.
const OF_CPP: &str = "libstdc++.so";

fn object_at(address: usize) -> Option<(usize, &'static Object)> {
    objects::at_start().iter().enumerate().find(|(_, object)| object.contains(address))
}

/// Whether this address is in the program itself.
pub(crate) fn is_program(address: usize) -> bool {
    objects::at_start().first().is_some_and(|program| program.contains(address))
}

/// Whether this address is in this library.
pub(crate) fn is_own(address: usize) -> bool {
    object_at(address).is_some_and(|(_, object)| object.kind == Kind::Own)
}

unsafe extern "C" {
    fn _Unwind_Backtrace(each: extern "C" fn(*mut c_void, *mut c_void) -> c_int, found: *mut c_void) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn _Unwind_GetIPInfo(frame: *mut c_void, is_before: *mut c_int) -> usize;
    fn _Unwind_FindEnclosingFunction(address: usize) -> usize;
}
const GO_ON: c_int = 0;
const STOP: c_int = 5;

/// Whether the first function on the stack that is not this library's is the program's, or C++'s library's.
pub(crate) fn is_called_by_program() -> bool {
    extern "C" fn each(frame: *mut c_void, found: *mut c_void) -> c_int {
        // SAFETY: a frame of the walk, and the word of its caller.
        let (address, found) = unsafe { (_Unwind_GetIP(frame), &mut *found.cast::<bool>()) };
        let Some((number, object)) = object_at(address.wrapping_sub(1)) else { return STOP };
        if object.kind == Kind::Own {
            return GO_ON;
        }
        let file = object.name.rsplit('/').next().unwrap_or_default();
        *found = number == 0 || file.starts_with(OF_CPP);
        STOP
    }
    let mut found = false;
    // SAFETY: `each` does not unwind, and writes to the word that lives here.
    unsafe { _Unwind_Backtrace(each, (&raw mut found).cast()) };
    found
}

/// Functions of the C library that call the program, with nothing of their machine at hand.
const PLAIN: [&CStr; 10] =
    [c"bsearch", c"lfind", c"lsearch", c"qsort", c"qsort_r", c"tdelete", c"tdestroy", c"tfind", c"tsearch", c"twalk"];

static PLAIN_AT: OnceLock<[usize; PLAIN.len()]> = OnceLock::new();

/// The function of ours that calls a thread's function of the program.
static BOTTOM: AtomicUsize = AtomicUsize::new(0);

/// Notes that function, and finds those; before the first thread starts.
pub(crate) fn note(bottom: usize) {
    BOTTOM.store(bottom, Ordering::Relaxed);
    PLAIN_AT.get_or_init(|| PLAIN.map(|name| objects::c_function(name).unwrap_or(0)));
}

/// Whether a function of the C library, or another library that each machine has for itself, has called the program
/// back, and has not returned: it may hold a lock of this machine, as `dl_iterate_phdr` does. Frames that have called
/// code without tables for its unwinding are not seen.
pub(crate) fn is_called_back() -> bool {
    #[derive(Default)]
    struct Walk {
        /// Whether a function of the program has been seen: what those have called that were before does not count.
        has_begun: bool,
        /// The function to which the last frame belongs, if that is the C library's; or 0.
        inner: usize,
        is_called_back: bool,
    }
    extern "C" fn each(frame: *mut c_void, walk: *mut c_void) -> c_int {
        let mut is_before = 0;
        // SAFETY: a frame of the walk, and what its caller gave.
        let (address, walk) = unsafe { (_Unwind_GetIPInfo(frame, &raw mut is_before), &mut *walk.cast::<Walk>()) };
        let address = if is_before == 0 { address.wrapping_sub(1) } else { address };
        let function = || {
            // SAFETY: it looks in tables of loaded objects.
            unsafe { _Unwind_FindEnclosingFunction(address) }
        };
        let kind = object_at(address).map(|(_, object)| object.kind);
        if kind == Some(Kind::System) {
            walk.inner = if walk.has_begun { function() } else { 0 };
            return GO_ON;
        }
        if kind == Some(Kind::Own) && function() == BOTTOM.load(Ordering::Relaxed) {
            return STOP; // frames of the system before it are those of the thread's begin
        }
        walk.is_called_back = walk.inner != 0 && PLAIN_AT.get().is_none_or(|plain| !plain.contains(&walk.inner));
        walk.inner = 0;
        if walk.is_called_back {
            return STOP;
        }
        walk.has_begun |= kind != Some(Kind::Own);
        GO_ON
    }
    let mut walk = Walk::default();
    // SAFETY: `each` does not unwind, and writes to the variable that lives here.
    unsafe { _Unwind_Backtrace(each, (&raw mut walk).cast()) };
    walk.is_called_back
}
