//! The C API of `trust`: the functions that `trust.h` declares.
//!
//! Here: the functions that C calls, with each argument checked and each panic caught (`entry`). Not here: the work of
//! the calls (`trust::ffi`), how the header is made from these files and `trust/src/ffi/types.rs` (`tests/header.rs`),
//! or how libraries are made of this one (`cargo dev install`).
//!
//! A package of its own, so that a program in Rust that uses `trust` has none of these symbols, and the static library,
//! which carries all of Rust's standard library, is built only where it is wanted.
//!
//! Invariant: no panic leaves an exported function. The rules for a C program are in docs/c-api.md; the functions rely
//! on them as far as no check can tell.

#![allow(unsafe_code)]
// `Instant + Duration` panics where limits are large: sums saturate (`deadline.rs`), in all code that is no test.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

// In the order of the header.
mod thread;

mod pool;

mod trusts;

mod calls;

use std::any::Any;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

use trust::ffi::{self, Failure, Status};

pub use calls::TRUST_INLINE_BYTES;

/// Major version of this header. A program runs with a library of the same major version, and while that is 0, of the
/// same minor version.
pub const TRUST_VERSION_MAJOR: u32 = 0;
/// Minor version of this header.
pub const TRUST_VERSION_MINOR: u32 = 1;
/// Patch version of this header.
pub const TRUST_VERSION_PATCH: u32 = 0;

/// Runs the body of an exported function.
#[inline(always)]
fn entry(body: impl FnOnce() -> ffi::Result<()>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::TRUST_OK,
        Ok(Err(failure)) => fail(&failure),
        Err(payload) => panicked(payload),
    }
}

#[cold]
fn fail(failure: &Failure) -> Status {
    ffi::note(&failure.text);
    failure.status
}

#[cold]
fn panicked(payload: Box<dyn Any + Send>) -> Status {
    let text = trust::link::panic_text(&*payload);
    let status = fail(&Failure::new(Status::TRUST_INTERNAL, format!("the library has failed: {text}")));
    // Its destructor might panic in turn.
    std::mem::forget(payload);
    status
}

#[cold]
fn null(what: &str) -> Failure {
    Failure::new(Status::TRUST_INVALID, format!("{what} is null"))
}

/// Returns the version of the library: 65536 * major + 256 * minor + patch.
// SAFETY: the name is ours.
#[unsafe(no_mangle)]
pub extern "C" fn trust_version() -> u32 {
    (TRUST_VERSION_MAJOR << 16) | (TRUST_VERSION_MINOR << 8) | TRUST_VERSION_PATCH
}

/// Returns cause and remedy of the last failure of a call of this thread, or of the failure passed to the running
/// callback; "" if there was none. In English. Valid until the thread's next call.
// SAFETY: the name is ours.
#[unsafe(no_mangle)]
pub extern "C" fn trust_error_message() -> *const c_char {
    catch_unwind(ffi::noted_text).unwrap_or(c"".as_ptr())
}

/// Returns the name of a status, such as "TRUST_GONE"; "unknown" for a number that is none.
// SAFETY: the name is ours.
#[unsafe(no_mangle)]
pub extern "C" fn trust_status_name(status: i32) -> *const c_char {
    let names = [
        c"TRUST_OK",
        c"TRUST_INVALID",
        c"TRUST_NOT_ATTACHED",
        c"TRUST_ATTACHED",
        c"TRUST_MAY_NOT_WAIT",
        c"TRUST_GONE",
        c"TRUST_WRONG_KIND",
        c"TRUST_TOO_LARGE",
        c"TRUST_REFUSED",
        c"TRUST_INTERNAL",
    ];
    usize::try_from(status).ok().and_then(|status| names.get(status)).copied().unwrap_or(c"unknown").as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_the_packages() {
        let version = format!("{TRUST_VERSION_MAJOR}.{TRUST_VERSION_MINOR}.{TRUST_VERSION_PATCH}");
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
        assert_eq!(trust_version(), 0x0000_0100);
    }

    #[test]
    fn a_panic_becomes_a_status() {
        let status = entry(|| panic!("number {}", 7));
        // SAFETY: a C string of this thread, read before the next call.
        let text = unsafe { std::ffi::CStr::from_ptr(trust_error_message()) };
        assert_eq!((status, text.to_str()), (Status::TRUST_INTERNAL, Ok("the library has failed: number 7")));
    }

    #[test]
    fn each_status_has_its_name() {
        // SAFETY: names are static.
        let name = |status| unsafe { std::ffi::CStr::from_ptr(trust_status_name(status)) };
        assert_eq!(name(Status::TRUST_INTERNAL as i32), c"TRUST_INTERNAL");
        assert_eq!(name(Status::TRUST_MAY_NOT_WAIT as i32), c"TRUST_MAY_NOT_WAIT");
        assert_eq!((name(-1), name(10)), (c"unknown", c"unknown"));
    }
}
