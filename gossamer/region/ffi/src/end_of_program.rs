//! The end of the program: by `exit`, `_exit`, its last thread, or a function of the C library. Machine 0 runs the exit
//! handlers; the first fiber then ends the machines.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use trust::Promise;

use crate::mask::{self, Mask};
use crate::real::real;
use crate::stack::{GUARD_BYTES, Stack};
use crate::{FAILURE_STATUS, block, ends, ids, objects, side, table, trap};

/// Stack of the exit handlers.
const HANDLERS_STACK_BYTES: usize = 8 << 20;
/// Promise by which the first fiber gets the program's exit status.
static END: Mutex<Option<Promise<u8>>> = Mutex::new(None);
static STATUS: AtomicI32 = AtomicI32::new(0);
static ENDS: AtomicBool = AtomicBool::new(false);
/// Status with which [`end_when_asked`] has to end the program.
static ENDER: Mutex<Option<c_int>> = Mutex::new(None);
static END_IS_ASKED: Condvar = Condvar::new();

/// Whether the program ends.
pub(crate) fn has_begun() -> bool {
    ENDS.load(Ordering::SeqCst)
}

/// Notes the promise of the first fiber.
pub(crate) fn note(promise: Promise<u8>) {
    *END.lock().unwrap_or_else(PoisonError::into_inner) = Some(promise);
}

/// Ends the program after its last thread, where `main` has ended by `pthread_exit`.
pub(crate) fn end_with_threads() -> ! {
    let _side = side::the_programs();
    end_by_handlers(0)
}

/// On a worker of machine 0: ends the program, on a thread of its own, since `exit` first destroys the thread's
/// delegation state. Handlers run on a stack in the region, as all of the program's functions, with the signals of
/// `mask` blocked.
fn start_end(status: c_int, mask: Mask) {
    if ENDS.swap(true, Ordering::SeqCst) {
        return; // it ends already
    }
    STATUS.store(status, Ordering::SeqCst);
    let run = move || {
        ids::be_the_last();
        mask::set_mask(mask);
        run_on_new_stack(run_handlers, status);
    };
    if std::thread::Builder::new().spawn(run).is_err() {
        gossamer::link::end("there is no thread for the program's exit handlers");
    }
}

/// Runs a function of the end of the program on a stack in the region.
fn run_on_new_stack(function: extern "C" fn(usize) -> usize, status: c_int) {
    trap::filter_this_thread();
    let Some(stack) = Stack::new(HANDLERS_STACK_BYTES, GUARD_BYTES) else {
        gossamer::link::end("there is no memory for the program's exit handlers")
    };
    let Range { start: bottom, end: top } = stack.range();
    // SAFETY: memory that is this thread's, which ends with the program.
    unsafe { side::run_on(bottom, top, function as *const () as usize, status as usize) };
}

/// Ends the program, whose handlers have run.
extern "C" fn end_after_handlers(status: usize) -> usize {
    objects::run_destructors();
    end_of_program(status as c_int)
}

extern "C" fn run_handlers(status: usize) -> usize {
    real!(exit: fn(c_int) -> (), status as c_int);
    std::process::abort()
}

/// Ends the program from a thread of any machine.
fn end_by_handlers(status: c_int) -> ! {
    let mask = mask::mask();
    side::at(0, move || start_end(status, mask));
    wait_for_the_end()
}

/// The C library's function, on any machine: ends the program.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exit(status: c_int) -> ! {
    if side::is_machine_in_program() {
        if ids::is_the_last() {
            // By an exit handler: the others run, and then this is the status.
            STATUS.store(status, Ordering::SeqCst);
            real!(exit: fn(c_int) -> (), status);
        }
        ends::destroy_objects();
        end_by_handlers(status);
    }
    if table::has_begun() {
        // The runtime ends this machine: exit handlers of the C library may touch variables whose pages are no longer
        // served. SAFETY: it ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
    real!(exit: fn(c_int) -> (), status);
    std::process::abort()
}

/// The C library's function, on any machine: ends the program at once.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    if side::is_machine_in_program() {
        tell_the_end(status);
    }
    // SAFETY: it ends the process.
    unsafe { libc::syscall(libc::SYS_exit_group, status) };
    std::process::abort()
}

/// Same as [`_exit`].
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}

/// Registers the last exit handler, before all others.
pub(crate) fn register() {
    type Handler = extern "C" fn(c_int, *mut c_void);
    real!(on_exit: fn(Handler, *mut c_void) -> c_int, at_exit, std::ptr::null_mut());
}

/// On a worker of a machine other than 0: registers it for threads in blocks, too. The C library hides addresses of
/// handlers by a word of the thread, and this one does not return.
pub(crate) fn register_for_blocks() {
    if block::has_guard() {
        block::as_in_blocks(register);
    }
}

/// Last exit handler: flushes buffers on all machines, and resumes the first fiber. Functions of the C library that
/// end the program (`err`) come here without our `exit`.
pub(crate) extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    if ENDS.load(Ordering::SeqCst) {
        end_after_handlers(STATUS.load(Ordering::SeqCst) as usize);
    }
    if side::is_machine_in_program() {
        // The C library has destroyed this thread's part of the runtime.
        *ENDER.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
        END_IS_ASKED.notify_one();
        wait_for_the_end();
    }
}

/// Thread of each machine that ends the program for a thread that cannot any more.
pub(crate) fn end_when_asked() {
    let asked = ENDER.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = END_IS_ASKED.wait_while(asked, |asked| asked.is_none()).unwrap_or_else(PoisonError::into_inner);
    let status = asked.unwrap_or(FAILURE_STATUS);
    drop(asked);
    ids::be_the_last();
    if side::own_machine() != 0 {
        let _side = side::the_programs();
        end_by_handlers(status);
    }
    run_on_new_stack(end_after_handlers, status);
    std::process::abort()
}

/// Flushes buffers as the C library does at the end, without waiting for threads that use a stream. Machine 0 has all
/// streams but those that only work on the machine that has opened them, and those of programs that name their memory.
fn end_of_program(status: c_int) -> ! {
    unsafe extern "C" {
        fn fcloseall() -> c_int;
    }
    {
        let _side = side::the_programs();
        // SAFETY: all streams of this process; the program has ended.
        unsafe { fcloseall() };
    }
    for machine in 0..side::machines() {
        if machine != side::own_machine() {
            side::at(machine, || {
                // SAFETY: as above.
                block::as_in_blocks(|| unsafe { _ = fcloseall() });
            });
        }
    }
    tell_the_end(status)
}

/// Ends the machines, for the program that `exec.rs` has noted.
pub(crate) fn end_for_next() -> ! {
    tell_the_end(0)
}

/// Waits for the end of the process.
fn wait_for_the_end() -> ! {
    loop {
        // SAFETY: it waits.
        unsafe { libc::pause() };
    }
}

/// Resumes the first fiber with the program's status.
fn tell_the_end(status: c_int) -> ! {
    side::at(0, move || {
        let promise = END.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(promise) = promise {
            promise.keep(status as u8);
        }
    });
    wait_for_the_end()
}
