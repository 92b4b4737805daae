//! The interface behind the server: commands, answers, and the [`Table`] that turns one into the other. Not here: the
//! table that is entrusted to workers (`delegated.rs`), the one that survives (`durable.rs`), and the effect of a
//! command on an item (`item.rs`).
//!
//! A connection gives commands to the table one after the other, without waiting, and the table calls back with each
//! answer: at once where it knows it, later where another worker or another machine has it. The connection puts the
//! answers back into the order of the commands.

use std::borrow::Cow;
use std::convert::Infallible;

use serde::{Deserialize, Serialize};

use super::meta::{self, Seen, Status};

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

/// Outcome of a command.
#[derive(PartialEq, Eq, Debug)]
pub enum Answer<'a, L = Infallible> {
    /// The item is there.
    Value {
        /// As stored.
        flags: u32,
        /// Another one after each change of the item.
        unique: u64,
        /// The value.
        value: &'a [u8],
    },
    /// The item is there; its value is too large to come with an answer.
    Large {
        /// As stored.
        flags: u32,
        /// Another one after each change of the item.
        unique: u64,
        /// The value, for the connection that fetches it.
        value: L,
    },
    /// There is no such item.
    NotFound,
    /// It is stored.
    Stored,
    /// It is not stored: the item is there, or is not there, or would become too large.
    NotStored,
    /// It is not stored: the item has changed.
    Exists,
    /// It is gone.
    Deleted,
    /// It expires at another time.
    Touched,
    /// The new number.
    Number(u64),
    /// The value is no number.
    NotANumber,
    /// There is no room for it.
    NoMemory,
}

/// A value that was found, as it was then, and is kept where it is until it is fetched or this is dropped.
pub trait Large: 'static {
    /// Returns its length.
    fn bytes(&self) -> usize;

    /// The value. Waits.
    fn fetch(self) -> Vec<u8>;
}

/// No value is too large for an answer.
impl Large for Infallible {
    fn bytes(&self) -> usize {
        match *self {}
    }
    fn fetch(self) -> Vec<u8> {
        match self {}
    }
}

/// Result of a meta command.
#[derive(Debug)]
pub struct Answered<L> {
    /// Whether it was done.
    pub status: Status,
    /// The item, where there is one.
    pub seen: Seen,
    /// Its value, if it is wanted.
    pub value: Option<Carried<L>>,
}

/// A value that comes with an answer, or is to be fetched.
#[derive(Debug)]
pub enum Carried<L> {
    /// As it is.
    Here(Vec<u8>),
    /// Value that is still to be fetched.
    Large(L),
}

/// A table's counters, as `stats` prints them: name and number, summed over all parts.
pub type Counts = Vec<(Cow<'static, str>, u64)>;

/// A table behind the server, as the connections of one worker see it: each worker has one of its own, all stand for
/// the same table.
pub trait Table: 'static {
    /// Transfer of values that are too large for an answer; [`Infallible`] if none is.
    type Large: Large;

    /// Runs the command; `then` is called with the answer, on this thread, at once or later. Commands on one key run in
    /// the order in which one thread made them. Waits only where too much is under way.
    fn run<H>(&self, command: &Command<'_>, then: H)
    where
        H: FnOnce(Answer<'_, Self::Large>) + 'static;

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
