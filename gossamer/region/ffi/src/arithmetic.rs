//! Rounding, traps and flags of a thread's arithmetic.

use std::ffi::c_int;

/// The C library's `fenv_t`, which is no longer than this on any processor.
#[derive(Clone, Copy)]
pub(crate) struct Arithmetic(Words);

type Words = [u64; 4];

#[link(name = "m")]
unsafe extern "C" {
    fn fegetenv(to: *mut Words) -> c_int;
    fn fesetenv(from: *const Words) -> c_int;
}

impl Arithmetic {
    pub(crate) fn of_this_thread() -> Arithmetic {
        let mut arithmetic = Arithmetic([0; 4]);
        // SAFETY: it fills what it has of it.
        unsafe { fegetenv(&raw mut arithmetic.0) };
        arithmetic
    }

    /// Gives it to the calling thread.
    pub(crate) fn take_over(&self) {
        // SAFETY: a thread's, of the same processor.
        unsafe { fesetenv(&raw const self.0) };
    }

    /// Gives the calling thread that with which programs begin.
    pub(crate) fn reset() {
        // SAFETY: the C library's name for it (`FE_DFL_ENV`).
        unsafe { fesetenv(std::ptr::without_provenance(usize::MAX)) };
    }
}
