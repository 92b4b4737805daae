//! A message about the end of a program whose thread uses an address that only another machine has: thread-local
//! variables lie on a thread's own stack (`own_stack.rs`), and pointers to these mean nothing on other machines.
//!
//! The handler of SIGSEGV that says so is installed before the runtime's, which chains to it; the program's own
//! replaces both.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{sigaction as Action, siginfo_t};

use crate::own_stack;
use crate::real::real;
use crate::{mask, side, trap};

/// Before the runtime starts: has the message printed, unless a constructor has set a handler of SIGSEGV.
pub(crate) fn begin() {
    // SAFETY: zeros are an action, with an empty mask.
    let mut action: Action = unsafe { mem::zeroed() };
    if set(ptr::null(), &raw mut action) != 0 || action.sa_sigaction != libc::SIG_DFL {
        return;
    }
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    action.sa_mask = mask::blockable(!0);
    set(&raw const action, ptr::null_mut());
}

fn set(action: *const Action, before: *mut Action) -> c_int {
    real!(sigaction: fn(c_int, *const Action, *mut Action) -> c_int, libc::SIGSEGV, action, before)
}

/// Says where the address lies, and lets the signal end the process when the instruction runs again.
extern "C" fn handle(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: as the system calls a handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // The address of an access; nothing is elsewhere before threads have filters.
    if code > 0
        && trap::is_on()
        && side::is_machine()
        && let Some(machine) = own_stack::machine_of(address)
        && machine != side::own_machine()
        && machine < side::machines()
    {
        report(address, machine);
    }
    // SAFETY: zeros are the default action.
    let default: Action = unsafe { mem::zeroed() };
    set(&raw const default, ptr::null_mut());
    if code <= 0 {
        // Sent by a process: no instruction brings it again. It comes when this handler returns.
        // SAFETY: it touches no memory.
        unsafe { libc::syscall(libc::SYS_tgkill, side::process(), libc::gettid(), signal) };
    }
}

/// Prints the message once: a second thread waits until the first one ends the process.
fn report(address: usize, machine: u16) {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    while IS_REPORTED.swap(true, Ordering::Relaxed) {
        // SAFETY: it waits for a signal.
        unsafe { libc::pause() };
    }
    side::outside(|| {
        eprintln!(
            "gossamer: a thread of machine {} used {address:#x}, which is a thread-local variable (`__thread`, \
             `thread_local`, `errno`) of a thread of machine {machine}: no other machine has it; give threads pointers \
             to global variables or allocated memory (docs/region.md)",
            side::own_machine(),
        );
    });
}
