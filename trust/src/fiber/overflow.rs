//! The report of a fiber that overflowed its stack: the fiber, the size of its stack, and the remedy; then the process
//! aborts.
//!
//! Here: the handler for SIGSEGV and SIGBUS, the alternate stack it runs on, and the record of the fiber that runs on a
//! thread. Not here: the guards that fault (`stack`), and the switches (the scheduler calls [`set_current`] at each).
//!
//! Invariants, by the labels that the SAFETY comments use:
//! - [overflow-record] The thread's `CURRENT` is null or points to a [`FiberInfo`] that lives and is not written to
//!   for as long as it is set. Only this thread writes it; the handler on this thread reads it, and others as
//!   `shown.rs` says.
//! - The handler calls nothing that allocates, locks or panics: it reads memory that is ready, and
//!   calls `writev`, `abort`, `sigaction` and `raise`, which POSIX allows. `CURRENT` is a constant-initialised
//!   thread-local without a destructor, so reading it is one load relative to the thread pointer (in a library loaded
//!   with dlopen the first access on a thread may allocate; a thread that runs fibers has had its first access in
//!   `set_current`).
//!
//! Every fault that is not the current fiber's overflow goes to the handler that was there before, std's included: it
//! still reports overflows of ordinary threads, and a wild pointer still ends the process with SIGSEGV.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{Ordering, compiler_fence};
use std::sync::{Once, OnceLock};

use super::footprint::page_bytes;
use super::shown::{Current, FiberInfo};

thread_local! {
    static CURRENT: Current = const { Current::new() };
}

/// Record of the fiber that runs on this thread, as long as the thread lives.
pub(crate) fn of_this_thread() -> *const Current {
    CURRENT.with(ptr::from_ref)
}

/// Sets the fiber that runs on this thread from now on: null for none. One plain store.
///
/// # Safety
/// `info` is null, or lives and stays unchanged until the next call on this thread [overflow-record].
#[inline]
pub(crate) unsafe fn set_current(info: *const FiberInfo) {
    CURRENT.with(|current| current.set(info));
    // A handler may run at any later instruction of this thread, unknown to the compiler. No instruction.
    compiler_fence(Ordering::SeqCst);
}

/// The last argument of [`set_current`].
pub(super) fn current() -> *const FiberInfo {
    CURRENT.with(Current::get)
}

/// Waits until no thread reads this record, which is not current any more and is about to be freed.
#[inline]
pub(super) fn before_free(info: *const FiberInfo) {
    CURRENT.with(|current| current.before_free(info));
}

/// The signals a touched guard may raise, each with the action that was in force before ours.
struct Watched {
    signal: c_int,
    previous: OnceLock<libc::sigaction>,
}

static WATCHED: [Watched; 2] = [
    Watched { signal: libc::SIGSEGV, previous: OnceLock::new() },
    Watched { signal: libc::SIGBUS, previous: OnceLock::new() },
];

/// Installs the handler, once for the process; later calls do nothing.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        for watched in &WATCHED {
            // Before ours is in force, so that ours never runs without it.
            let previous = watched.previous.get_or_init(|| current_action(watched.signal));
            let mut action = *previous;
            action.sa_sigaction = handle as *const () as usize;
            // The mask stays the previous action's, since we call it from ours; so does whether the signal may nest.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | (previous.sa_flags & KEPT_FLAGS);
            // SAFETY: `handle` has the signature that SA_SIGINFO asks for and keeps OVERFLOW-SIGNAL.
            unsafe { libc::sigaction(watched.signal, &action, ptr::null_mut()) };
        }
    });
}

const KEPT_FLAGS: c_int = libc::SA_NODEFER | libc::SA_RESTART;

fn current_action(signal: c_int) -> libc::sigaction {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only; the pointer is valid for the answer.
    unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all zeros is a valid sigaction (the default action, no flags, no mask), also if the call failed.
    unsafe { action.assume_init() }
}

/// The handler.
///
/// # Safety
/// Called by the kernel only, as SA_SIGINFO says.
unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo; a positive code says that a memory access raised the signal, hence
    // that it holds an address.
    let fault = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr().addr()) };
    // SAFETY: [overflow-record].
    let fiber = unsafe { current().as_ref() };
    if let (Some(address), Some(fiber)) = (fault, fiber)
        && fiber.guard.contains(&address)
    {
        report(fiber);
        // SAFETY: abort may be called from a handler.
        unsafe { libc::abort() };
    }
    // SAFETY: the arguments are the kernel's.
    unsafe { chain(signal, info, context) };
}

/// Writes the message in one piece to standard error.
fn report(fiber: &FiberInfo) {
    let (mut id, mut size) = ([0; 20], [0; 20]);
    let name = match &fiber.name {
        Some(name) => name.as_bytes(),
        None => decimal(fiber.id, &mut id),
    };
    let parts: [&[u8]; 5] = [
        b"\nfiber '",
        name,
        b"' has overflowed its stack (",
        decimal(fiber.stack_bytes as u64, &mut size),
        b" bytes); give it more with stack_bytes(..) of Threadpool::builder(), or of gossamer::builder() on a rack\n\
          fatal runtime error: stack overflow, aborting\n",
    ];
    let parts = parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: each iovec covers a slice that lives until the end of this function; writev only reads them.
    unsafe { libc::writev(libc::STDERR_FILENO, parts.as_ptr(), parts.len() as c_int) };
}

/// The digits of `value`, written to the end of `buffer`. `fmt` is not used: it is not made for handlers.
fn decimal(mut value: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut start = buffer.len();
    for digit in buffer.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
        start -= 1;
        if value == 0 {
            break;
        }
    }
    buffer.get(start..).unwrap_or_default()
}

/// Hands a signal on to the action that was in force before ours, as if ours were not there.
///
/// # Safety
/// Called from a handler with the handler's arguments.
unsafe fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = WATCHED.iter().find(|watched| watched.signal == signal).and_then(|watched| watched.previous.get());
    let (action, flags) = previous.map_or((libc::SIG_DFL, 0), |previous| (previous.sa_sigaction, previous.sa_flags));
    // SAFETY: the caller's: info is valid.
    let by_access = unsafe { (*info).si_code > 0 };
    match action {
        libc::SIG_IGN if !by_access => {}
        // The default: an access that faults does so again once we return (ignoring that is not possible, so the kernel
        // treats SIG_IGN alike); a signal that was sent must be sent again.
        libc::SIG_DFL | libc::SIG_IGN => {
            reset_to_default(signal);
            if !by_access {
                // SAFETY: the signal is blocked in its own handler, and delivered when that returns.
                unsafe { libc::raise(signal) };
            }
        }
        handler => {
            if flags & libc::SA_RESETHAND != 0 {
                reset_to_default(signal);
            }
            if flags & libc::SA_SIGINFO != 0 {
                // SAFETY: sigaction gave this address as a handler with SA_SIGINFO, which has this signature.
                let handler = unsafe {
                    std::mem::transmute::<usize, unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)>(
                        handler,
                    )
                };
                // SAFETY: the arguments are the kernel's.
                unsafe { handler(signal, info, context) };
            } else {
                // SAFETY: sigaction gave this address as a handler without SA_SIGINFO, which has this signature.
                let handler = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(handler) };
                // SAFETY: as above.
                unsafe { handler(signal) };
            }
        }
    }
}

fn reset_to_default(signal: c_int) {
    // SAFETY: all zeros is a valid sigaction: the default action, no flags, no mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = libc::SIG_DFL;
    // SAFETY: the default action needs nothing of us.
    unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
}

/// Makes sure that this thread has an alternate stack for the handler, for as long as the guard lives. Keep it for the
/// life of the thread.
///
/// Threads of std have one, which is left alone unless it is too small for this processor; other threads get one here.
/// Where the kernel gives no memory for it there is none: an overflow then still ends the process, by SIGSEGV, but
/// without the message.
#[derive(Debug)]
pub(crate) struct AltStack {
    /// Restores on drop; none where the thread had a sufficient stack.
    _ours: Option<OwnAltStack>,
    /// An alternate stack belongs to one thread: neither `Send` nor `Sync`.
    _thread: PhantomData<*const ()>,
}

#[derive(Debug)]
struct OwnAltStack {
    /// The mapping: a guard page, then the stack.
    mapping: *mut c_void,
    mapping_bytes: usize,
    stack: *mut c_void,
    /// The alternate stack that the thread had before: none, or one that is too small.
    previous: libc::stack_t,
}

/// Bytes that a handler needs beside the frame that the kernel saves: ours few, but it may chain to one that prints a
/// backtrace.
const HANDLER_BYTES: usize = 32 * 1024;
/// Fewest bytes, beside the kernel's frame, in which our own handler fits.
const MIN_HANDLER_BYTES: usize = 2 * 1024;

impl AltStack {
    /// None, for a worker whose thread has one by its own worker.
    pub(crate) fn of_others() -> AltStack {
        AltStack { _ours: None, _thread: PhantomData }
    }

    /// Installs an alternate stack on this thread, unless it has one.
    pub(crate) fn ensure() -> AltStack {
        // SAFETY: asks the kernel for a number; 0 if it has no such entry.
        let frame_bytes = (unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize).max(libc::MINSIGSTKSZ);
        let previous = alternate_stack();
        let enough = previous.ss_flags & libc::SS_DISABLE == 0 && previous.ss_size >= frame_bytes + MIN_HANDLER_BYTES;
        let _ours = if enough { None } else { OwnAltStack::install(frame_bytes + HANDLER_BYTES, previous) };
        AltStack { _ours, _thread: PhantomData }
    }
}

impl OwnAltStack {
    fn install(bytes: usize, previous: libc::stack_t) -> Option<OwnAltStack> {
        let page = page_bytes();
        let bytes = bytes.next_multiple_of(page);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a new private mapping at an address of the kernel's choice touches no memory in use.
        let mapping =
            unsafe { libc::mmap(ptr::null_mut(), page + bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the lowest page of the mapping, which has more than one. Without a guard it is still a stack.
        unsafe { libc::mprotect(mapping, page, libc::PROT_NONE) };
        // SAFETY: one page into a mapping that is longer.
        let stack = unsafe { mapping.byte_add(page) };
        let own = OwnAltStack { mapping, mapping_bytes: page + bytes, stack, previous };
        let new = libc::stack_t { ss_sp: stack, ss_flags: 0, ss_size: bytes };
        // SAFETY: the memory is ours and stays mapped until `drop` has taken it out of use. (It may fail on a thread
        // that runs on its alternate stack now; `drop` unmaps.)
        (unsafe { libc::sigaltstack(&new, ptr::null_mut()) } == 0).then_some(own)
    }
}

impl Drop for OwnAltStack {
    fn drop(&mut self) {
        // Not ours any more if other code has put another in its place: nothing to restore then.
        if alternate_stack().ss_sp == self.stack {
            // SAFETY: puts back the kernel's answer; the owner of that stack frees it after its own removal.
            if unsafe { libc::sigaltstack(&self.previous, ptr::null_mut()) } != 0 {
                return; // This thread runs on it at this moment: leave it, as it is in use.
            }
        }
        // SAFETY: made by `install`, and no longer (or never) the thread's alternate stack.
        unsafe { libc::munmap(self.mapping, self.mapping_bytes) };
    }
}

/// This thread's alternate stack; `SS_DISABLE` in its flags if it has none.
fn alternate_stack() -> libc::stack_t {
    let mut stack = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    // SAFETY: asks only; the pointer is valid for the answer.
    unsafe { libc::sigaltstack(ptr::null(), &mut stack) };
    stack
}

#[cfg(test)]
mod tests;
