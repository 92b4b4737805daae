//! Descriptor that another process passed on, recognised by its file.
//!
//! Invariant: a descriptor is owned here only if it is open, refers to exactly the file that the launcher put there,
//! and was inherited (not close-on-exec); so no descriptor that the process opened itself is ever taken.
#![allow(unsafe_code)] // inherited descriptors come as numbers

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::FdFlags;

use super::BootstrapError;

const LOWEST_FD: RawFd = 3; // below are the standard streams

/// Descriptor and the file to which it must refer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inherited {
    pub(super) fd: RawFd,
    device: u64,
    inode: u64,
}

/// State of such a descriptor in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Presence {
    /// Open, the right file, inherited.
    Inherited,
    /// Open and the right file, but already taken over: close-on-exec.
    Taken,
    /// Closed, or another file.
    Absent,
}

impl Inherited {
    pub(super) fn of(fd: BorrowedFd<'_>) -> io::Result<Inherited> {
        let stat = rustix::fs::fstat(fd)?;
        Ok(Inherited { fd: fd.as_raw_fd(), device: stat.st_dev, inode: stat.st_ino })
    }

    /// Parses `fd:device:inode`.
    pub(super) fn parse(text: &str) -> Option<Inherited> {
        let mut parts = text.split(':');
        let fd = parts.next()?.parse().ok().filter(|fd| *fd >= LOWEST_FD)?;
        let inherited = Inherited { fd, device: parts.next()?.parse().ok()?, inode: parts.next()?.parse().ok()? };
        parts.next().is_none().then_some(inherited)
    }

    pub(super) fn presence(self) -> Presence {
        // SAFETY: F_GETFD takes any number and answers EBADF when it is no descriptor; no memory is involved.
        let flags = unsafe { libc::fcntl(self.fd, libc::F_GETFD) };
        if flags < 0 {
            return Presence::Absent;
        }
        // SAFETY: F_GETFD has just found it open. Should another thread close it at this moment, fstat answers EBADF
        // or describes something else: Absent, either way.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        match Inherited::of(fd) {
            Ok(found) if found == self && flags & libc::FD_CLOEXEC != 0 => Presence::Taken,
            Ok(found) if found == self => Presence::Inherited,
            _ => Presence::Absent,
        }
    }

    pub(super) fn take(self) -> Result<OwnedFd, BootstrapError> {
        // SAFETY: only called when `presence` was Inherited: the descriptor is open, refers to the launcher's file, and
        // nothing in this process owns it, for it would then be close-on-exec (Rust opens nothing otherwise) or, after
        // an earlier `take`, is. `Bootstrap::from_env` takes one at a time.
        let owned = unsafe { OwnedFd::from_raw_fd(self.fd) };
        match rustix::io::fcntl_setfd(&owned, FdFlags::CLOEXEC) {
            Ok(()) => Ok(owned),
            Err(error) => Err(BootstrapError::Descriptor { fd: self.fd, source: error.into() }),
        }
    }
}

impl fmt::Display for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.fd, self.device, self.inode)
    }
}
