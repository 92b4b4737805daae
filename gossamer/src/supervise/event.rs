//! What whoever has started the machines of a program sees of them.

use std::process::ExitStatus;

use crate::control::{ControlError, Message};

/// What a machine did.
#[derive(Debug)]
pub enum Event {
    /// It said this.
    Said {
        /// Which machine.
        machine: u16,
        /// Any message; whether a machine may say it is the receiver's to decide.
        message: Message,
    },
    /// It said what is no message. Nothing more is heard of it but its exit.
    Nonsense {
        /// Which machine.
        machine: u16,
        /// What was wrong with it.
        error: ControlError,
    },
    /// It has been stopped by a signal for so long that it counts as dead; told once.
    Stood {
        /// Which machine.
        machine: u16,
        /// The number of the signal.
        signal: i32,
    },
    /// Its process has ended, and what it had started and left behind in its process group was killed.
    Exited {
        /// Which machine.
        machine: u16,
        /// How.
        status: ExitStatus,
    },
}
