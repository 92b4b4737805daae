//! Shared by the programs of this package: how messages are gathered and sent ([`outbox`]).

pub mod outbox;
