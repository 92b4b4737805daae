//! The interface behind the server: commands, answers, and the [`Table`] that turns one into the other. Not here: the
//! table that is entrusted to workers (`delegated.rs`), the one that survives (`durable.rs`), and the effect of a
//! command on an item (`item.rs`).
//!
//! A connection gives commands to the table one after the other, without waiting, each with the place of its reply, and
//! the table answers there: at once where it knows the answer, later where another worker or another machine has it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use super::answer::{Answer, Answered, Carried, Large};
use super::meta::{self, Seen, Status};
use super::replies::Awaited;

/// The operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum Op {
    /// Its value.
    Get,
    /// Its value, and from now on it expires at another time.
    GetAndTouch,
    /// Store a value.
    Set,
    /// Store a value if there is none.
    Add,
    /// Store a value if there is one.
    Replace,
    /// Put bytes behind the value.
    Append,
    /// Put bytes before the value.
    Prepend,
    /// Store a value if the one that is there is still that of `number`.
    CompareAndSet,
    /// Add `number` to a value that is a decimal number; wraps.
    Increment,
    /// Take `number` from a value that is a decimal number; not below 0.
    Decrement,
    /// Sets another time at which it expires.
    Touch,
    /// Forget it.
    Delete,
}

/// A command on one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command<'a> {
    /// The operation.
    pub op: Op,
    /// Key of at most [`KEY_BYTES_MAX`](super::size::KEY_BYTES_MAX) bytes.
    pub key: &'a [u8],
    /// The bytes to store; at most [`VALUE_BYTES_MAX`](super::size::VALUE_BYTES_MAX).
    pub value: &'a [u8],
    /// Kept with the value for the client.
    pub flags: u32,
    /// Time at which the item expires, in seconds since 1970; 0 for never.
    pub expires: u32,
    /// The number to add or to take, or the `unique` that the item has to have.
    pub number: u64,
}

impl<'a> Command<'a> {
    /// A command with nothing but a key.
    pub fn on(op: Op, key: &'a [u8]) -> Self {
        Command { op, key, value: &[], flags: 0, expires: 0, number: 0 }
    }
}

/// A table's counters, as `stats` prints them: name and number, summed over all parts.
pub type Counts = Vec<(Cow<'static, str>, u64)>;

/// A table behind the server, as the connections of one worker see it: each worker has one of its own, all stand for
/// the same table.
pub trait Table: 'static {
    /// Transfer of values that are too large for an answer; [`Infallible`](std::convert::Infallible) if none is.
    type Large: Large;

    /// Runs the command and gives the answer to `awaited`, on this thread: at once, later, or only after
    /// [`send`](Self::send). Commands on one key run in the order in which one connection made them. Waits only where
    /// too much is under way.
    fn run(&self, command: &Command<'_>, awaited: Awaited<Self::Large>);

    /// Sends commands that were gathered; the caller is about to wait for their answers.
    fn send(&self) {}

    /// Runs a meta command, as [`run`](Self::run) does others. Unknown where a table has none.
    fn meta<H>(&self, _command: meta::Command, then: H)
    where
        H: FnOnce(Answered<Self::Large>) + 'static,
    {
        then(Answered { status: Status::Unknown, seen: Seen::default(), value: None });
    }

    /// Forgets all that was stored before that time (in seconds since 1970; 0: all that there is). Waits until that is
    /// in force.
    fn flush(&self, at: u32);

    /// Limits the memory of its items on each machine. Waits.
    fn limit_memory(&self, bytes: usize);

    /// Keys of items, up to so many bytes of keys, with the values' lengths and when they expire. Waits. None where
    /// nobody can say.
    fn keys(&self, _bytes_max: usize) -> Vec<(Vec<u8>, u32, u32)> {
        Vec::new()
    }

    /// Its counters. Waits.
    fn counts(&self) -> Counts;

    /// Counts from 0 again. Waits.
    fn reset_counts(&self);
}
