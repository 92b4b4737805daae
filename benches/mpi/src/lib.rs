//! What the programs of this package share: how messages are gathered and sent ([`outbox`]).

pub mod outbox;
