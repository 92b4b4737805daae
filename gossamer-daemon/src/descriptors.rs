//! Limits the descriptors that child processes inherit: the standard streams, and those made inheritable for them one
//! by one. The latter are elsewhere (`gossamer::bootstrap`, the streams of [`crate::machines`]).
//!
//! A daemon or a launcher may inherit descriptors from its own parent: of a terminal, a log, a file that only root may
//! open. Those must not go on to programs, which may be another user's. So they are marked close-on-exec twice: at the
//! start of the process ([`mark_inherited`]), and again in each child ([`mark_all`]), before the descriptors on its
//! list are made inheritable.
#![allow(unsafe_code)] // a system call without a safe wrapper

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};

/// First descriptor after the standard streams. (Where this process was started without them, the standard library has
/// opened /dev/null in their places.)
const FIRST: RawFd = 3;

/// Has the next `exec` keep the descriptor with this number. [`mark_inherited`] undoes that.
///
/// # Errors
/// When there is none.
pub fn make_inheritable(number: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is used during this call only, to set a flag that no safe code relies on.
    Ok(fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::empty())?)
}

/// Marks the inherited descriptors close-on-exec. To be called first in `main`. They stay open: a file may be named by
/// one (`--rack /dev/fd/63`).
///
/// # Errors
/// When the system neither marks nor lists the descriptors.
pub fn mark_inherited() -> io::Result<()> {
    if mark_all().is_ok() {
        return Ok(());
    }
    // Before Linux 5.11.
    let listed = std::fs::read_dir("/proc/self/fd")?;
    let numbers: Vec<RawFd> = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number >= FIRST) {
        // SAFETY: the descriptor is used during this call only, to set a flag that no safe code relies on; the one that
        // listed the folder is closed by now, and the system answers EBADF.
        let _ = fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC);
    }
    Ok(())
}

/// Marks all descriptors but the standard streams close-on-exec. It may be called between fork and exec.
///
/// # Errors
/// Before Linux 5.11.
pub fn mark_all() -> io::Result<()> {
    // SAFETY: the call takes three numbers and touches no memory of this process. No descriptor is closed by it, and
    // nothing relies on one being inheritable but what is handed on later, which clears the flag itself.
    match unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
