//! Functions of the C library with results, or a place, in variables of the library. A thread that may move amid its
//! own code (`anywhere.rs`) finds those of its last call on any machine: they are copied to its own storage.

use std::cell::UnsafeCell;
use std::ffi::c_char;

use libc::{time_t, tm};

use crate::host;
use crate::real::real;

/// Longest text of a time, with the zero at its end.
const TEXT_BYTES: usize = 128;

thread_local! {
    static TIME: UnsafeCell<Option<tm>> = const { UnsafeCell::new(None) };
    static TEXT: UnsafeCell<[c_char; TEXT_BYTES]> = const { UnsafeCell::new([0; TEXT_BYTES]) };
    /// Where the rest of a text begins that is taken apart.
    static REST: UnsafeCell<*mut c_char> = const { UnsafeCell::new(std::ptr::null_mut()) };
}

/// Keeps a time for the calling thread.
fn keep_time(found: *mut tm) -> *mut tm {
    if found.is_null() || !host::is_in_block() {
        return found;
    }
    // SAFETY: a time that the C library returns, and the calling thread's place for it.
    TIME.with(|own| unsafe { std::ptr::from_mut((*own.get()).insert(*found)) })
}

/// Keeps a text for the calling thread.
fn keep_text(found: *mut c_char) -> *mut c_char {
    if found.is_null() || !host::is_in_block() {
        return found;
    }
    // SAFETY: a text that the C library returns, and the calling thread's place for as many bytes.
    TEXT.with(|own| unsafe {
        let bytes = libc::strlen(found).min(TEXT_BYTES - 1);
        let own = own.get().cast::<c_char>();
        own.copy_from_nonoverlapping(found, bytes);
        own.add(bytes).write(0);
        own
    })
}

/// The C library's functions: `name(argument) -> result, keep`.
macro_rules! kept {
    ($($name:ident($argument:ident: $type:ty) -> $result:ty, $keep:path;)*) => {$(
        /// The C library's function, with a result in the calling thread's storage.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($argument: $type) -> $result {
            $keep(real!($name: fn($type) -> $result, $argument))
        }
    )*};
}

kept! {
    localtime(time: *const time_t) -> *mut tm, keep_time;
    gmtime(time: *const time_t) -> *mut tm, keep_time;
    asctime(time: *const tm) -> *mut c_char, keep_text;
    ctime(time: *const time_t) -> *mut c_char, keep_text;
}

/// The C library's function, whose place is in the calling thread's storage.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strtok(text: *mut c_char, separators: *const c_char) -> *mut c_char {
    if !host::is_in_block() {
        return real!(strtok: fn(*mut c_char, *const c_char) -> *mut c_char, text, separators);
    }
    // SAFETY: the caller's texts, and the calling thread's place.
    REST.with(|rest| unsafe { libc::strtok_r(text, separators, rest.get()) })
}
