//! Events for machine 0, from its port, the other machines, and its own process.

use comm::secure::SecureStream;
use rustix::process::Signal;

use super::wire::{Join, Up};
use crate::bootstrap::HostAddress;
use crate::control::Message;

/// Event for machine 0.
pub(super) enum HubEvent {
    /// A machine has come.
    Came(Box<Newcomer>),
    /// A connection without the key, or without a valid greeting.
    Stranger(comm::Error),
    /// Message of a machine.
    Said(u16, Up),
    /// End of a machine's messages: it is silent, or its connection has ended.
    Gone { machine: u16, is_silent: bool },
    /// Message of machine 0 itself.
    Own(Message),
    /// End of machine 0's own messages.
    OwnEnd,
    /// This process got a signal.
    Signal(Signal),
    /// A viewer of the program has asked.
    Asked,
}

/// Machine that has the key.
pub(super) struct Newcomer {
    pub(super) join: Join,
    pub(super) stream: SecureStream,
    /// Address at which it reached machine 0.
    pub(super) reached_at: Option<HostAddress>,
}
