//! Functions about threads that the header calls (`gossamer_region.h`).

use std::ffi::c_int;

use crate::record::Answer;
use crate::told::tell_once;
use crate::{ids, side, ties, wishes};

/// Functions for threads that the header calls.
#[repr(C)]
pub struct Calls {
    machine: extern "C" fn() -> c_int,
    go: extern "C" fn(c_int) -> c_int,
    hold: extern "C" fn() -> c_int,
    free: extern "C" fn() -> c_int,
    go_other: extern "C" fn(libc::pthread_t, c_int) -> c_int,
}

static CALLS: Calls = Calls { machine, go: ties::go, hold: ties::hold, free: ties::free, go_other };

/// Entry point of the header for threads; the number in the name is its version. Null: the program was not started by
/// `gossamer-launch run --region`.
#[unsafe(no_mangle)]
pub extern "C" fn gossamer_region_threads_1() -> *const Calls {
    if side::is_in_program() { &raw const CALLS } else { std::ptr::null() }
}

extern "C" fn machine() -> c_int {
    side::own_machine().into()
}

/// Asks another thread to go to a machine, and waits for the outcome.
extern "C" fn go_other(thread: libc::pthread_t, to: c_int) -> c_int {
    let Ok(machine) = u16::try_from(to) else { return libc::EINVAL };
    if thread == ids::own() {
        return ties::go(to);
    }
    let answer = wishes::ask_other(thread, machine);
    if !matches!(answer, Answer::Done | Answer::NoThread | Answer::Ended | Answer::NoMachine) {
        tell_once("gsm_thread_move_other", "", move || {
            let text = wishes::in_words(answer, machine);
            format!("gsm_thread_move_other: thread {thread:#x} {text} (docs/region.md); called by {}", ids::caller())
        });
    }
    wishes::errno(answer)
}
