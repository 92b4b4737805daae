//! Ends: destructors of a thread's objects and values, which run in the program's code, on the thread's stack in the
//! region, before the thread can be joined; and handlers for the end of the program, which machine 0 has.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use crate::files::streams;
use crate::real::real;
use crate::{keys, magazine, side, table, ties};

thread_local! {
    /// Destructors of the thread's objects, with the object's address, in the order in which objects were made.
    static DESTRUCTORS: RefCell<Vec<(usize, usize)>> = const { RefCell::new(vec![]) };
}

/// The C library's function; C++ registers destructors of `thread_local` objects with it.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_thread_atexit_impl(
    destructor: *mut c_void,
    object: *mut c_void,
    library: *mut c_void,
) -> c_int {
    if !side::is_programs() {
        return real!(
            __cxa_thread_atexit_impl: fn(*mut c_void, *mut c_void, *mut c_void) -> c_int, destructor, object, library
        );
    }
    let entry = (destructor.expose_provenance(), object.expose_provenance());
    side::outside(move || DESTRUCTORS.with_borrow_mut(|destructors| destructors.push(entry)));
    0
}

/// Destroys the calling thread's objects, the last first. In the program's code.
pub(crate) fn destroy_objects() {
    while let Some((destructor, object)) = side::outside(|| DESTRUCTORS.with_borrow_mut(Vec::pop)) {
        // SAFETY: what the program has registered, which is called once.
        let destructor = unsafe { std::mem::transmute::<usize, extern "C" fn(*mut c_void)>(destructor) };
        destructor(std::ptr::with_exposed_provenance_mut(object));
    }
}

/// Takes the destructors of the calling thread, which goes to another machine, on our side.
pub(crate) fn take() -> Vec<(usize, usize)> {
    DESTRUCTORS.take()
}

/// Gives these to the calling thread, on our side.
pub(crate) fn put(destructors: Vec<(usize, usize)>) {
    DESTRUCTORS.set(destructors);
}

/// The last function of a thread in the program's code.
pub(crate) extern "C" fn end_thread(_: usize) -> usize {
    destroy_objects();
    keys::destroy_values();
    0
}

/// Same as [`end_thread`], in a block, whose magazines go with it.
pub(crate) extern "C" fn end_in_block(_: usize) -> usize {
    ties::note_end();
    end_thread(0);
    magazine::end();
    0
}

/// The C library's function, to which `atexit` and the destructors of C++'s static objects come. Those of the program
/// and its libraries go to machine 0, which runs them all; those of objects stay where each machine has variables of
/// its own.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_atexit(handler: *mut c_void, argument: *mut c_void, library: *mut c_void) -> c_int {
    // A program without position-independent code has no mark of its own.
    let of_program = || library.is_null() || table::variables().iter().any(|own| own.contains(&library.addr()));
    if !goes_to_first(argument) || !of_program() {
        return add_handler([handler, argument, library]);
    }
    let words = [handler, argument, library].map(<*mut c_void>::expose_provenance);
    side::at(0, move || add_handler(words.map(std::ptr::with_exposed_provenance_mut)))
}

/// Whether the caller is a thread of another machine than 0, and its handler's argument is memory of all machines.
fn goes_to_first(argument: *mut c_void) -> bool {
    side::is_machine_in_program() && side::own_machine() != 0 && (!table::is_explicit() || argument.is_null())
}

fn add_handler([handler, argument, library]: [*mut c_void; 3]) -> c_int {
    real!(__cxa_atexit: fn(*mut c_void, *mut c_void, *mut c_void) -> c_int, handler, argument, library)
}

/// Same as [`__cxa_atexit`], for handlers that are given the program's status.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn on_exit(handler: *mut c_void, argument: *mut c_void) -> c_int {
    fn add([handler, argument]: [*mut c_void; 2]) -> c_int {
        real!(on_exit: fn(*mut c_void, *mut c_void) -> c_int, handler, argument)
    }
    if !goes_to_first(argument) {
        return add([handler, argument]);
    }
    let words = [handler, argument].map(<*mut c_void>::expose_provenance);
    side::at(0, move || add(words.map(std::ptr::with_exposed_provenance_mut)))
}

/// The C library's function; the handlers of all machines' threads are machine 0's.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_at_quick_exit(handler: *mut c_void, library: *mut c_void) -> c_int {
    fn add([handler, library]: [*mut c_void; 2]) -> c_int {
        real!(__cxa_at_quick_exit: fn(*mut c_void, *mut c_void) -> c_int, handler, library)
    }
    if !side::is_machine_in_program() || side::own_machine() == 0 {
        return add([handler, library]);
    }
    let words = [handler, library].map(<*mut c_void>::expose_provenance);
    side::at(0, move || add(words.map(std::ptr::with_exposed_provenance_mut)))
}

/// The C library's function: its handlers run on machine 0.
#[unsafe(no_mangle)]
pub extern "C" fn quick_exit(status: c_int) -> ! {
    if side::is_machine_in_program() && side::own_machine() != 0 {
        streams::at_first(move || {
            real!(quick_exit: fn(c_int) -> (), status);
            0
        });
    }
    real!(quick_exit: fn(c_int) -> (), status);
    std::process::abort()
}
