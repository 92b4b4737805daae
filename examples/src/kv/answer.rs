//! Answers of a table, whatever it is made of.

use std::convert::Infallible;

use super::meta::{Seen, Status};

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
