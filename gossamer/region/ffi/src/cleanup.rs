//! `pthread_cleanup_push` and `pthread_exit`: a thread that ends before its function does runs its pushed handlers, the
//! last first.
//!
//! In C each push is a jump target, from which the program runs the handler and calls `__pthread_unwind_next`. The
//! destructors that C++ and `-fexceptions` use instead are not run.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};

use crate::real::real;
use crate::side;

thread_local! {
    /// Jump targets of the pushed handlers.
    static PUSHED: RefCell<Vec<usize>> = const { RefCell::new(vec![]) };
    /// Result of the ending thread.
    static RESULT: Cell<usize> = const { Cell::new(0) };
}

/// Takes those of the calling thread, which goes to another machine, on our side.
pub(crate) fn take() -> Vec<usize> {
    PUSHED.take()
}

/// Gives these to the calling thread, on our side.
pub(crate) fn put(pushed: Vec<usize>) {
    PUSHED.set(pushed);
}

fn pop() -> Option<usize> {
    side::outside(|| PUSHED.with_borrow_mut(Vec::pop))
}

/// The C library's function; the macro `pthread_cleanup_push` calls it.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_register_cancel(place: *mut c_void) {
    if !side::is_in_program() {
        return real!(__pthread_register_cancel: fn(*mut c_void) -> (), place);
    }
    let place = place.expose_provenance();
    side::outside(move || PUSHED.with_borrow_mut(|pushed| pushed.push(place)));
}

/// The C library's function; `pthread_cleanup_pop` calls it.
///
/// # Safety
/// Same as [`__pthread_register_cancel`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_unregister_cancel(place: *mut c_void) {
    match side::is_in_program() {
        true => drop(pop()),
        false => real!(__pthread_unregister_cancel: fn(*mut c_void) -> (), place),
    }
}

/// The C library's function; the macro calls it after a handler.
///
/// # Safety
/// Same as [`__pthread_register_cancel`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_unwind_next(place: *mut c_void) -> ! {
    if !side::is_in_program() {
        real!(__pthread_unwind_next: fn(*mut c_void) -> (), place);
        std::process::abort();
    }
    go_on()
}

/// Runs the last pushed handler; without one, the thread's function has ended.
fn go_on() -> ! {
    unsafe extern "C" {
        fn siglongjmp(place: *mut c_void, value: c_int) -> !;
    }
    match pop() {
        // SAFETY: the macro has left its jump buffer there, in a function of this thread that has not returned.
        Some(place) => unsafe { siglongjmp(std::ptr::with_exposed_provenance_mut(place), 1) },
        None => side::leave(RESULT.get()),
    }
}

/// The C library's function.
///
/// # Safety
/// Same as [`__pthread_register_cancel`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_exit(result: *mut c_void) -> ! {
    if !side::is_in_program() {
        real!(pthread_exit: fn(*mut c_void) -> (), result);
        std::process::abort();
    }
    RESULT.set(result.expose_provenance());
    go_on()
}
