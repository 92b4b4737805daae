//! Events of a program's machines, as seen by their launcher.

use std::process::ExitStatus;

use crate::control::{ControlError, Message};

/// Event of a machine.
#[derive(Debug)]
pub enum Event {
    /// It sent a message.
    Said {
        /// Number of the machine.
        machine: u16,
        /// Any message; the receiver decides whether a machine may send it.
        message: Message,
    },
    /// It sent a packet that is no message. Nothing more is read from it; only its exit follows.
    Nonsense {
        /// Number of the machine.
        machine: u16,
        /// The defect.
        error: ControlError,
    },
    /// It has been stopped by a signal for so long that it counts as dead; reported once.
    Stood {
        /// Number of the machine.
        machine: u16,
        /// Number of the signal.
        signal: i32,
    },
    /// Its process has ended, and the processes that it left behind in its process group were killed.
    Exited {
        /// Number of the machine.
        machine: u16,
        /// Its exit status.
        status: ExitStatus,
    },
}
