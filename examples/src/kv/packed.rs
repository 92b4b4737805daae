//! Commands and their answers, packed one behind the other: how those of a burst travel to a shard and back. Not here:
//! what a command does (`shard.rs`), and what carries the bytes (`delegated.rs`).
//!
//! ```text
//! command:  op u8 | bytes of the key u8 | hash u32 | key                                of a `Get`
//!           op u8 | bytes of the key u8 | hash u32 | flags, expires, bytes of the value u32 | number u64 | key | value
//! answer:   kind u8 | flags u32 | unique u64 | bytes of the value u16 | value           of a value that was found
//!           kind u8 | flags u32 | unique u64 | bytes of the value u32 | ticket u64      of one that is kept
//!           kind u8 | number u64                                                        of a number
//!           kind u8                                                                     of others
//! ```
//!
//! In the bytes' order of the machine: those of a rack run one executable.

use std::iter;

use super::shard::Shard;
use super::table::{Answer, Command, Large, Op};

/// Bytes of a value that comes with its answer; longer ones are kept until they are fetched.
const HERE_BYTES_MAX: usize = 224;

/// Commands whose items are fetched into the cache together, before the first of them runs.
const FETCHED_AT_ONCE: usize = 16;

/// The operations, by their numbers.
const OPS: [Op; 12] = [
    Op::Get,
    Op::GetAndTouch,
    Op::Set,
    Op::Add,
    Op::Replace,
    Op::Append,
    Op::Prepend,
    Op::CompareAndSet,
    Op::Increment,
    Op::Decrement,
    Op::Touch,
    Op::Delete,
];

const _: () = {
    let mut number = 0;
    while number < OPS.len() {
        assert!(OPS[number] as usize == number);
        number += 1;
    }
};

/// Appends a command.
#[inline]
pub fn pack(to: &mut Vec<u8>, hash: u32, command: &Command<'_>) {
    let Command { op, key, value, flags, expires, number } = *command;
    let [a, b, c, d] = hash.to_ne_bytes();
    to.extend_from_slice(&[op as u8, key.len() as u8, a, b, c, d]);
    if op != Op::Get {
        [flags, expires, value.len() as u32].iter().for_each(|word| to.extend_from_slice(&word.to_ne_bytes()));
        to.extend_from_slice(&number.to_ne_bytes());
    }
    to.extend_from_slice(key);
    if op != Op::Get {
        to.extend_from_slice(value);
    }
}

/// Runs commands, and appends their answers. Ends before one that is not whole.
pub fn run_all(shard: &mut Shard, commands: &[u8], answers: &mut Vec<u8>) {
    let (mut fetched, mut commands) = (Unpacked(commands), Unpacked(commands));
    loop {
        if shard.is_large() {
            shard.fetch(iter::from_fn(|| fetched.command()).take(FETCHED_AT_ONCE).map(|(hash, _)| hash));
        }
        for _ in 0..FETCHED_AT_ONCE {
            let Some((hash, command)) = commands.command() else { return };
            run(shard, hash, &command, answers);
        }
    }
}

#[inline]
fn run(shard: &mut Shard, hash: u32, command: &Command<'_>, answers: &mut Vec<u8>) {
    let touch = match command.op {
        Op::Get => None,
        Op::GetAndTouch => Some(command.expires),
        _ => return put(answers, &shard.change(hash, command)),
    };
    let Some(cell) = shard.get(hash, command.key, touch) else { return put(answers, &Answer::NotFound) };
    let found = shard.item(cell);
    let (flags, unique, bytes) = (found.flags, found.unique, found.value.len());
    let [a, b, c, d] = flags.to_ne_bytes();
    if bytes <= HERE_BYTES_MAX {
        answers.extend_from_slice(&[VALUE, a, b, c, d]);
        answers.extend_from_slice(&unique.to_ne_bytes());
        answers.extend_from_slice(&(bytes as u16).to_ne_bytes());
        return answers.extend_from_slice(found.value);
    }
    let Some(ticket) = shard.keep(cell) else { return put(answers, &Answer::NoMemory) };
    answers.extend_from_slice(&[KEPT, a, b, c, d]);
    answers.extend_from_slice(&unique.to_ne_bytes());
    answers.extend_from_slice(&(bytes as u32).to_ne_bytes());
    answers.extend_from_slice(&ticket.to_ne_bytes());
}

const VALUE: u8 = 0;
const KEPT: u8 = 1;
const NUMBER: u8 = 2;
const NOT_FOUND: u8 = 3;
const STORED: u8 = 4;
const NOT_STORED: u8 = 5;
const EXISTS: u8 = 6;
const DELETED: u8 = 7;
const TOUCHED: u8 = 8;
const NOT_A_NUMBER: u8 = 9;
const NO_MEMORY: u8 = 10;

/// Appends an answer without a value.
fn put(to: &mut Vec<u8>, answer: &Answer<'_>) {
    let kind = match answer {
        Answer::NotFound | Answer::Value { .. } => NOT_FOUND,
        Answer::Stored => STORED,
        Answer::NotStored => NOT_STORED,
        Answer::Exists => EXISTS,
        Answer::Deleted => DELETED,
        Answer::Touched => TOUCHED,
        Answer::Number(number) => {
            to.push(NUMBER);
            return to.extend_from_slice(&number.to_ne_bytes());
        }
        Answer::NotANumber => NOT_A_NUMBER,
        Answer::NoMemory => NO_MEMORY,
        Answer::Large { value, .. } => match *value {},
    };
    to.push(kind);
}

/// Answers, in the order of their commands.
pub struct Answers<'a>(Unpacked<'a>);

impl<'a> Answers<'a> {
    /// Those in these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Answers(Unpacked(bytes))
    }

    /// The next one; `kept` makes a value that is to be fetched from its ticket and its length.
    #[inline]
    pub fn next<L: Large>(&mut self, kept: impl FnOnce(u64, usize) -> L) -> Option<Answer<'a, L>> {
        let from = &mut self.0;
        Some(match from.byte()? {
            VALUE => {
                let (flags, unique) = (from.word()?, from.long()?);
                let bytes = u16::from_ne_bytes(from.array()?);
                Answer::Value { flags, unique, value: from.bytes(usize::from(bytes))? }
            }
            KEPT => {
                let (flags, unique, bytes, ticket) = (from.word()?, from.long()?, from.word()?, from.long()?);
                Answer::Large { flags, unique, value: kept(ticket, bytes as usize) }
            }
            NUMBER => Answer::Number(from.long()?),
            NOT_FOUND => Answer::NotFound,
            STORED => Answer::Stored,
            NOT_STORED => Answer::NotStored,
            EXISTS => Answer::Exists,
            DELETED => Answer::Deleted,
            TOUCHED => Answer::Touched,
            NOT_A_NUMBER => Answer::NotANumber,
            NO_MEMORY => Answer::NoMemory,
            _ => return None,
        })
    }
}

/// Bytes that are taken from the front; `None` where there are too few.
struct Unpacked<'a>(&'a [u8]);

impl<'a> Unpacked<'a> {
    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }

    #[inline]
    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    #[inline]
    fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    #[inline]
    fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    #[inline]
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A command, and the hash of its key.
    #[inline]
    fn command(&mut self) -> Option<(u32, Command<'a>)> {
        let [op, key_bytes, hash @ ..] = self.array::<6>()?;
        let (op, hash) = (*OPS.get(usize::from(op))?, u32::from_ne_bytes(hash));
        if op == Op::Get {
            return Some((hash, Command::on(op, self.bytes(usize::from(key_bytes))?)));
        }
        let (flags, expires, value_bytes, number) = (self.word()?, self.word()?, self.word()?, self.long()?);
        let (key, value) = (self.bytes(usize::from(key_bytes))?, self.bytes(value_bytes as usize)?);
        Some((hash, Command { op, key, value, flags, expires, number }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_answers_come_out_as_they_went_in() {
        let long = vec![7; 300];
        let (mut shard, mut commands, mut answers) = (Shard::new(1 << 30, 1), Vec::new(), Vec::new());
        let asked = [
            Command::on(Op::Get, b"key"),
            Command { value: b"12", flags: 3, ..Command::on(Op::Set, b"key") },
            Command { number: 5, ..Command::on(Op::Increment, b"key") },
            Command { value: &long, ..Command::on(Op::Add, b"long") },
            Command::on(Op::Get, b"key"),
            Command::on(Op::Get, b"long"),
            Command { expires: u32::MAX, ..Command::on(Op::GetAndTouch, b"key") },
            Command { number: 99, ..Command::on(Op::CompareAndSet, b"key") },
            Command::on(Op::Delete, b"key"),
        ];
        asked.iter().for_each(|command| pack(&mut commands, command.key.len() as u32, command));
        let mut unpacked = Unpacked(&commands);
        for command in &asked {
            assert_eq!(unpacked.command(), Some((command.key.len() as u32, *command)));
        }
        assert_eq!(unpacked.command(), None);
        run_all(&mut shard, &commands, &mut answers);
        let mut answers = Answers::new(&answers);
        let mut next = || answers.next(Ticket);
        assert_eq!(next(), Some(Answer::NotFound));
        assert_eq!(next(), Some(Answer::Stored));
        assert_eq!(next(), Some(Answer::Number(17)));
        assert_eq!(next(), Some(Answer::Stored));
        assert_eq!(next(), Some(Answer::Value { flags: 3, unique: 2, value: b"17" }));
        assert_eq!(next(), Some(Answer::Large { flags: 0, unique: 3, value: Ticket(0, 300) }));
        assert_eq!(next(), Some(Answer::Value { flags: 3, unique: 2, value: b"17" }));
        assert_eq!(next(), Some(Answer::Exists));
        assert_eq!(next(), Some(Answer::Deleted));
        assert_eq!(next(), None);
        assert_eq!(shard.take(0), long);
    }

    #[test]
    fn a_command_that_is_cut_is_not_run() {
        let mut commands = Vec::new();
        pack(&mut commands, 1, &Command { value: b"value", ..Command::on(Op::Set, b"key") });
        for cut in 0..commands.len() {
            let (mut shard, mut answers) = (Shard::new(1 << 30, 1), Vec::new());
            run_all(&mut shard, &commands[..cut], &mut answers);
            assert_eq!(answers, [0; 0], "{cut}");
        }
    }

    #[derive(Debug, PartialEq)]
    struct Ticket(u64, usize);

    impl Large for Ticket {
        fn bytes(&self) -> usize {
            self.1
        }
        fn fetch(self) -> Vec<u8> {
            Vec::new()
        }
    }
}
