//! An open descriptor on its way from a daemon to its successor: its number, which `exec` leaves as it is.
#![allow(unsafe_code)] // descriptors by their numbers

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An open descriptor.
#[derive(Debug)]
pub(super) enum Handed {
    /// To be handed over: its number.
    Out(RawFd),
    /// Handed over.
    In(OwnedFd),
}

impl Handed {
    pub(super) fn of(descriptor: &impl AsRawFd) -> Handed {
        Handed::Out(descriptor.as_raw_fd())
    }

    /// # Errors
    /// It was not handed over.
    pub(super) fn take(self) -> io::Result<OwnedFd> {
        match self {
            Handed::In(descriptor) => Ok(descriptor),
            Handed::Out(_) => Err(io::Error::other("a descriptor of this daemon's own")),
        }
    }
}

impl Serialize for Handed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Handed::Out(number) => number.serialize(serializer),
            Handed::In(descriptor) => descriptor.as_raw_fd().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Handed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Handed, D::Error> {
        let number = RawFd::deserialize(deserializer)?;
        // SAFETY: only `take_over` (`handover.rs`) decodes states: that of the daemon which executed this one, with
        // open descriptors that this process has opened for nothing else, and each of them once.
        Ok(Handed::In(unsafe { OwnedFd::from_raw_fd(number) }))
    }
}
