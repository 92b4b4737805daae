//! Moves of threads that call nothing (`--move asked`): the handler of a signal that comes while the thread computes
//! (`timer.rs`) goes to the other machine, if the thread is in the program's own code. The system has put all registers
//! on the thread's stack, which goes along; the handler returns there, and the system takes them from the stack again.
//!
//! The signal is one that the C library gives to nobody else (`__libc_allocate_rtsig`), and no thread of the program
//! blocks it; our code does, from where a thread leaves the program's code until it is back, maybe on another host. One
//! that comes late finds no wish.

use std::ffi::{c_int, c_void};
use std::mem;

use libc::{siginfo_t, ucontext_t};

use crate::real::real;
use crate::words::words;
use crate::{block, callers, host, mask, process, side, table, timer, wishes};

/// On machine 0: takes a signal, if threads may move; before any thread starts. Without one threads move at calls only.
pub(crate) fn begin() {
    if block::are_on() && cfg!(target_arch = "x86_64") {
        // Some of the last ones: a constructor of the program may have an action for the very last.
        let _ = (0..4).any(|_| take(allocate()));
    }
}

/// In a fiber of machine 0: has the other machines take the same signal. The program's constructors, which may have an
/// action for another one, have run here only.
pub(crate) fn hand_over() {
    let signal = timer::signal();
    for machine in (1..side::machines()).filter(|_| signal > 0) {
        side::from_worker(machine, move || {
            while allocate() > signal {}
            take(signal);
        });
    }
}

/// Has the C library give the highest signal that it has to nobody else. Returns -1 if there is none.
fn allocate() -> c_int {
    unsafe extern "C" {
        fn __libc_allocate_rtsig(is_first: c_int) -> c_int;
    }
    // SAFETY: it changes numbers of the C library.
    unsafe { __libc_allocate_rtsig(0) }
}

/// Takes a signal that has no action.
fn take(signal: c_int) -> bool {
    // SAFETY: zeros are an action, and the handler is one of three arguments.
    let is_taken = unsafe {
        let [mut action, mut before]: [libc::sigaction; 2] = mem::zeroed();
        action.sa_sigaction = on_time as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        action.sa_mask = mask::all_but_faults();
        let is_free = signal > 0 && set(signal, std::ptr::null(), &raw mut before) == 0;
        let is_free = is_free && before.sa_sigaction == libc::SIG_DFL;
        is_free && set(signal, &raw const action, std::ptr::null_mut()) == 0
    };
    if is_taken {
        timer::note(signal);
        mask::hide(signal);
    }
    is_taken
}

/// # Safety
/// As for `sigaction`.
unsafe fn set(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int {
    real!(sigaction: fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int, signal, action, before)
}

/// The handler. The thread is where it was: in the program's code any function may be called.
extern "C" fn on_time(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: as the system calls a handler.
    let context = unsafe { &mut *context.cast::<ucontext_t>() };
    let (instruction, stack) = place(context);
    // Before any variable of the thread: elsewhere it may be between two blocks.
    if !callers::is_program(instruction) || !table::is_shared(stack) || is_at_system_call(instruction) {
        return;
    }
    if !host::is_in_block() || !words().is_in_program.get() || wishes::wish().is_none() || !side::is_machine() {
        return;
    }
    let _errno = side::KeptErrno::new();
    wishes::answer(!process::has_plain_locale());
    // The stack for signals is set again from what the system has put there.
    // SAFETY: it fills the part of the handler's argument that is for it.
    unsafe { libc::sigaltstack(std::ptr::null(), &raw mut context.uc_stack) };
}

/// Whether the program's instruction there is a system call, which the system may have interrupted to begin it again,
/// or the one before is: its arguments and result are this machine's.
fn is_at_system_call(instruction: usize) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let is_one = |at: usize| {
        let is_there = callers::is_program(at) && callers::is_program(at.wrapping_add(1));
        // SAFETY: bytes of the program's code.
        is_there && unsafe { std::ptr::with_exposed_provenance::<[u8; 2]>(at).read() } == SYSCALL
    };
    is_one(instruction) || is_one(instruction.wrapping_sub(2))
}

/// Returns the instruction and the stack of an interrupted thread.
#[cfg(target_arch = "x86_64")]
fn place(context: &ucontext_t) -> (usize, usize) {
    let register = |name: c_int| context.uc_mcontext.gregs[name as usize] as usize;
    (register(libc::REG_RIP), register(libc::REG_RSP))
}

#[cfg(not(target_arch = "x86_64"))]
fn place(_: &ucontext_t) -> (usize, usize) {
    (0, 0)
}
