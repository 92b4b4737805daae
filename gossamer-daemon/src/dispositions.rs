//! Blocked and ignored signals, of this process and of its children.
//!
//! A launcher or a daemon may be started with signals blocked: it unblocks those that are to end it in order. Programs
//! start with no signal blocked, and with SIGPIPE at its default (`std::process` sees to that). Ignored signals stay
//! ignored under `--local`, as with `nohup`; on a rack, where they would come from the daemon's starter, nothing is
//! ignored.
#![allow(unsafe_code)] // system calls without a safe wrapper

use std::io;
use std::mem::MaybeUninit;

use rustix::process::Signal;

use crate::signals::{CAUGHT, ignored_signals};

/// Unblocks all signals. It may be called between fork and exec.
///
/// # Errors
/// When the system refuses.
pub fn clear_mask() -> io::Result<()> {
    change_mask(libc::SIG_SETMASK, &[])
}

/// Unblocks the signals that end this process in order, for this thread and those that it starts. To be called first in
/// `main`.
///
/// # Errors
/// When the system refuses.
pub fn unblock() -> io::Result<()> {
    change_mask(libc::SIG_UNBLOCK, &HANDLED)
}

/// Blocks the signals that this process handles, for this thread: until the successor that it executes in its own place
/// handles them, too.
///
/// # Errors
/// When the system refuses.
pub fn block() -> io::Result<()> {
    change_mask(libc::SIG_BLOCK, &HANDLED)
}

/// Signals that a launcher or a daemon handles.
const HANDLED: [Signal; 5] = {
    let [a, b, c, d] = CAUGHT;
    [a, b, c, d, Signal::USR2]
};

fn change_mask(how: libc::c_int, signals: &[Signal]) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset writes all of the set that it is given, which is `set`.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set was written above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal.as_raw()) };
    }
    // SAFETY: the set was written above; the null pointer means that the old mask is not returned.
    match unsafe { libc::pthread_sigmask(how, set.as_ptr(), std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Sets the signals that this process was started with as ignored to their defaults, except SIGPIPE, which each child
/// gets back anyway. To be called before anything catches signals.
pub fn reset_ignored() {
    let ignored = ignored_signals();
    for signal in (1..=64).filter(|signal| *signal != libc::SIGPIPE && ignored & (1 << (signal - 1)) != 0) {
        // SAFETY: the default is no handler, so no code of this process runs for it. Of signals that cannot be changed
        // the system says so.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
