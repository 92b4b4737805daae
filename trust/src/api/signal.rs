//! `dump` by a signal, for programs that have no command of their own for it.
//!
//! The handler writes to a descriptor, all that a handler may do; a thread reads it and writes the dump. Invariants:
//! the descriptor is never closed; the handler calls `write` and keeps `errno`, which POSIX allows.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::event::EventfdFlags;

use crate::api::dump::dump;

/// Descriptor that the handler writes to; negative until it is open.
static WAKE: AtomicI32 = AtomicI32::new(-1);
static STARTING: Mutex<()> = Mutex::new(());

/// Installs a handler for this signal that makes a thread of the process write [`dump`](crate::dump()) to standard
/// error. Any earlier action of the signal is replaced. May be called for several signals.
///
/// # Errors
/// If the system refuses the signal (as it does `SIGKILL` and `SIGSTOP`), a thread, or a descriptor.
///
/// ```
/// # const SIGUSR1: i32 = libc::SIGUSR1;
/// trust::dump_on_signal(SIGUSR1)?; // then: kill -USR1 <pid>
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn dump_on_signal(signal: i32) -> io::Result<()> {
    let starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if WAKE.load(Ordering::Relaxed) < 0 {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let descriptor = wake.as_raw_fd();
        thread::Builder::new().name("trust-dump".to_owned()).spawn(move || write_dumps(&wake))?;
        WAKE.store(descriptor, Ordering::Relaxed);
    }
    drop(starting);
    // SAFETY: all zeros is a valid sigaction: no flags, no mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler has the signature of one without SA_SIGINFO, and does nothing that a handler may not.
    match unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn handle(_: c_int) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: `errno` is the thread's own. The descriptor is open; `write` reads the eight bytes of `one`.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::write(WAKE.load(Ordering::Relaxed), one.as_ptr().cast(), one.len());
        *errno = before;
    }
}

/// Runs as long as the process, so that the descriptor stays open.
fn write_dumps(wake: &OwnedFd) {
    let mut count = [0; 8];
    loop {
        match rustix::io::read(wake, &mut count) {
            Ok(_) => {
                let dump = dump();
                crate::unwind::tell(format_args!("{} fibers\n{dump}", dump.fibers()));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                crate::unwind::tell(format_args!("no dumps by signal any more: {error}"));
                // The handler still writes to the descriptor.
                loop {
                    thread::park();
                }
            }
        }
    }
}
