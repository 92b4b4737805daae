//! Scheduling policies of the program's threads. Real-time policies are not set: such a thread polls for its pages and
//! keeps the threads that bring them from running.
//!
//! Not here: policies by the system calls themselves (`sched_setattr`), and those that the program was started with.

use std::ffi::c_int;

use libc::{pid_t, pthread_t, sched_param};
use region_calls::{Call, call};

use crate::of_other::on_its_machine;
use crate::real::real;
use crate::told::tell_once;
use crate::{arena, ids, side};

const REAL_TIME: &str = "with a real-time policy";

/// Skips a call that asks for a real-time policy, and tells so, the first time. Returns whether it was skipped.
fn skip(name: &'static str, row: &'static Call, policy: c_int) -> bool {
    let is_real_time = matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR);
    let is_skipped = is_real_time && (side::is_machine_in_program() || arena::is_open());
    if is_skipped {
        tell_once(name, row.when, || row.message(name));
    }
    is_skipped
}

/// The C library's function, for threads of all machines; does nothing where the policy is a real-time one.
///
/// # Safety
/// As for the C library's function, here and below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setschedparam(id: pthread_t, policy: c_int, parameters: *const sched_param) -> c_int {
    const NAME: &str = "pthread_setschedparam";
    fn set(id: pthread_t, policy: c_int, parameters: *const sched_param) -> c_int {
        real!(pthread_setschedparam: fn(pthread_t, c_int, *const sched_param) -> c_int, id, policy, parameters)
    }
    if skip(NAME, const { call(NAME, REAL_TIME) }, policy) {
        return 0;
    }
    if let Some(id) = ids::real_of(id) {
        return set(id, policy, parameters);
    }
    // SAFETY: the caller's.
    let sched_priority = unsafe { (*parameters).sched_priority };
    on_its_machine(id, libc::ESRCH, move |id| {
        let parameters = sched_param { sched_priority };
        set(id, policy, &raw const parameters)
    })
}

/// See [`pthread_setschedparam`]; for processes.
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setscheduler(process: pid_t, policy: c_int, parameters: *const sched_param) -> c_int {
    const NAME: &str = "sched_setscheduler";
    if skip(NAME, const { call(NAME, REAL_TIME) }, policy) {
        return 0;
    }
    real!(sched_setscheduler: fn(pid_t, c_int, *const sched_param) -> c_int, process, policy, parameters)
}
