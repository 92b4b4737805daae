//! The effect of a command on an item, the same for every table.

use super::size::fits;
use super::table::{Answer, Command, Op};
use super::words::number;

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;
/// A text that is longer is no number.
const NUMBER_BYTES_MAX: usize = 1024;
const SPACES: &[u8] = &[b' '; NUMBER_BYTES_MAX];

/// An item that was found, and has not expired.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// As stored.
    pub flags: u32,
    /// Time at which it expires; 0 for never.
    pub expires: u32,
    /// Another one after each change.
    pub unique: u64,
    /// The value.
    pub value: &'a [u8],
}

/// The change of an item.
#[derive(Debug)]
pub enum Change<'a> {
    /// It stays as it is, or absent.
    Nothing,
    /// It has this value from now on: both parts, one behind the other.
    Store {
        /// Flags, opaque to the server.
        flags: u32,
        /// Time at which it expires; 0 for never.
        expires: u32,
        /// The parts of its value.
        value: [&'a [u8]; 2],
    },
    /// It has this number for its value.
    Number(Digits),
    /// It expires then.
    Expire(u32),
    /// It is no more.
    Remove,
}

/// A number as text: digits, and spaces behind them up to the length that the text had, as memcached has it.
#[derive(Debug)]
pub struct Digits {
    bytes: [u8; DIGITS_MAX],
    len: usize,
    spaces: &'static [u8],
}

impl Digits {
    fn of(number: u64, bytes: usize) -> Self {
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(number).as_bytes();
        let mut digits = [0; DIGITS_MAX];
        digits[..text.len()].copy_from_slice(text);
        Digits { bytes: digits, len: text.len(), spaces: &SPACES[..bytes.saturating_sub(text.len())] }
    }

    /// The text, in two parts.
    pub fn parts(&self) -> [&[u8]; 2] {
        [&self.bytes[..self.len], self.spaces]
    }
}

/// The command's effect on the item of its key, and the answer. Not for commands that only look ([`Op::Get`]): these
/// change nothing and are answered with the item.
pub fn decide<'a>(command: &Command<'a>, found: Option<Found<'a>>) -> (Change<'a>, Answer<'static>) {
    let store = Change::Store { flags: command.flags, expires: command.expires, value: [command.value, &[]] };
    let Some(found) = found else {
        return match command.op {
            Op::Set | Op::Add => (store, Answer::Stored),
            Op::Replace | Op::Append | Op::Prepend => (Change::Nothing, Answer::NotStored),
            _ => (Change::Nothing, Answer::NotFound),
        };
    };
    match command.op {
        Op::Set | Op::Replace => (store, Answer::Stored),
        Op::Add => (Change::Nothing, Answer::NotStored),
        Op::CompareAndSet if found.unique == command.number => (store, Answer::Stored),
        Op::CompareAndSet => (Change::Nothing, Answer::Exists),
        Op::Append => join(command, &found, [found.value, command.value]),
        Op::Prepend => join(command, &found, [command.value, found.value]),
        Op::Increment => count(&found, |number| number.wrapping_add(command.number)),
        Op::Decrement => count(&found, |number| number.saturating_sub(command.number)),
        Op::Touch | Op::GetAndTouch => (Change::Expire(command.expires), Answer::Touched),
        Op::Delete => (Change::Remove, Answer::Deleted),
        Op::Get => (Change::Nothing, Answer::NotStored),
    }
}

fn join<'a>(command: &Command<'_>, found: &Found<'a>, value: [&'a [u8]; 2]) -> (Change<'a>, Answer<'static>) {
    if !fits(command.key.len(), found.flags, value[0].len() + value[1].len()) {
        return (Change::Nothing, Answer::NotStored);
    }
    (Change::Store { flags: found.flags, expires: found.expires, value }, Answer::Stored)
}

fn count(found: &Found<'_>, change: impl FnOnce(u64) -> u64) -> (Change<'static>, Answer<'static>) {
    match number(found.value).filter(|_| found.value.len() <= NUMBER_BYTES_MAX) {
        Some(number) => {
            let number = change(number);
            (Change::Number(Digits::of(number, found.value.len())), Answer::Number(number))
        }
        None => (Change::Nothing, Answer::NotANumber),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_gets_shorter_keeps_its_length() {
        let found = Found { flags: 0, expires: 0, unique: 1, value: b"100" };
        let command = Command { number: 1, ..Command::on(Op::Decrement, b"k") };
        match decide(&command, Some(found)) {
            (Change::Number(digits), Answer::Number(99)) => assert_eq!(digits.parts().concat(), b"99 "),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_wrap_upwards_and_stop_at_zero() {
        let item = |value| Some(Found { flags: 0, expires: 0, unique: 1, value });
        let up = Command { number: 2, ..Command::on(Op::Increment, b"k") };
        assert!(matches!(decide(&up, item(b"18446744073709551615")).1, Answer::Number(1)));
        let down = Command { number: 2, ..Command::on(Op::Decrement, b"k") };
        assert!(matches!(decide(&down, item(b"1")).1, Answer::Number(0)));
    }
}
