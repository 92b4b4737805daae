//! The code that calls: whether it is the program's, or a library's, which may have taken a lock for memory of this
//! machine.

use std::ffi::{c_int, c_void};

use crate::objects::{self, Kind, Object};

/// Beginning of the file name of C++'s library, whose waits are the program's.
const OF_CPP: &str = "libstdc++.so";

fn object_at(address: usize) -> Option<(usize, &'static Object)> {
    objects::at_start().iter().enumerate().find(|(_, object)| object.contains(address))
}

/// Whether this address is in this library.
pub(crate) fn is_own(address: usize) -> bool {
    object_at(address).is_some_and(|(_, object)| object.kind == Kind::Own)
}

/// Whether the first function on the stack that is not this library's is the program's, or C++'s library's.
pub(crate) fn is_called_by_program() -> bool {
    unsafe extern "C" {
        fn _Unwind_Backtrace(each: extern "C" fn(*mut c_void, *mut c_void) -> c_int, found: *mut c_void) -> c_int;
        fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    }
    const GO_ON: c_int = 0;
    const STOP: c_int = 5;
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
