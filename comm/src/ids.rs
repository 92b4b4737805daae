//! Numbers of machines, workers, shares and reads, and what a fabric tells of a sleep and of a lost peer: plain values
//! that every file may name.

use std::fmt;

/// Number of a machine in a rack program, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u16);

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine {}", self.0)
    }
}

/// Number of a worker in its machine, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

/// Reason why [`Fabric::park`](crate::Fabric::park) returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// There was work; the thread did not sleep.
    Work,
    /// Another thread woke it, and writes before the wake are visible. The work may have been found earlier,
    /// without the wake: look again, and park again.
    Woken,
    /// The timeout has passed.
    TimedOut,
}

/// Manner in which a peer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It dropped its fabric: the graceful end of a machine.
    Left,
    /// It ended without leaving, or cannot be reached.
    Died,
}

/// Number of a share of a machine, below [`SHARES_MAX`](crate::SHARES_MAX). The users of a fabric agree on the use of
/// each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareId(pub u8);

impl fmt::Display for ShareId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "share {}", self.0)
    }
}

/// A read of a peer's share that is under way, or complete: a number, valid on the connection that issued it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);
