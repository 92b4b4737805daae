//! From bytes to requests: memcached's text protocol, as memcached 1.6 reads it (its `protocol.txt`). Pure: nothing is
//! done here, and nothing of a request is kept.
//!
//! A request is a line; those that store something are followed by a block of data of a length that the line gives. A
//! malformed one is a request too, with the reply that memcached gives.

use memchr::memchr;

use super::clock;
use super::meta::{self, Meta, Verb};
use super::size::KEY_BYTES_MAX;
use super::table::{Command, Op};
use super::words::{Words, number, signed, unsigned};

/// The longest line of a command other than `get` and `gets`.
const LINE_BYTES_MAX: usize = 2048;
/// The longest line of `get` and `gets`.
const GET_LINE_BYTES_MAX: usize = 1 << 20;
/// Words that are distinguished: more than any command but `get` has.
const WORDS_MAX: usize = 8;

/// The start of a client's input.
#[derive(Debug)]
pub enum Line<'a> {
    /// Its first line, without the line's end, and how many bytes that is with it.
    Whole(&'a [u8], usize),
    /// There is none yet.
    Incomplete,
    /// This is no client that speaks the protocol, or none that speaks it as text.
    Unusable,
}

/// The first byte of each request of memcached's binary protocol, and of no text.
const BINARY_MAGIC: u8 = 0x80;

/// Takes the first line.
#[inline]
pub fn first_line(bytes: &[u8]) -> Line<'_> {
    // Its client would wait for an answer that never comes. A packet may have the byte of a line's end anywhere.
    if bytes.first() == Some(&BINARY_MAGIC) {
        return Line::Unusable;
    }
    match memchr(b'\n', bytes) {
        // As memcached has it: a line that is nothing but "\r\n" keeps its "\r".
        Some(end) if end > 1 && bytes[end - 1] == b'\r' => Line::Whole(&bytes[..end - 1], end + 1),
        Some(end) => Line::Whole(&bytes[..end], end + 1),
        None if bytes.len() <= LINE_BYTES_MAX => Line::Incomplete,
        None => {
            let start = bytes.trim_ascii_start();
            let gets = start.starts_with(b"get ") || start.starts_with(b"gets ");
            if gets && bytes.len() <= GET_LINE_BYTES_MAX { Line::Incomplete } else { Line::Unusable }
        }
    }
}

/// A client's request.
#[derive(PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// The items on these keys.
    Get {
        /// Whether replies carry unique numbers.
        unique: bool,
        /// They expire then from now on.
        touch: Option<u32>,
        /// One word each.
        keys: Words<'a>,
    },
    /// A command on one key that is followed by a block of data.
    Store {
        /// Command without the value.
        command: Command<'a>,
        /// Length of the block, without the line's end behind it.
        value_bytes: usize,
        /// No reply is wanted.
        quiet: bool,
    },
    /// Another command on one key.
    Change {
        /// The command.
        command: Command<'a>,
        /// No reply is wanted.
        quiet: bool,
    },
    /// A meta command.
    Meta(Box<Meta<'a>>),
    /// Forget all that there is, then (0: now).
    FlushAll {
        /// Time in seconds since 1970.
        at: u32,
        /// No reply is wanted.
        quiet: bool,
    },
    /// Items may take so much memory.
    LimitMemory {
        /// Memory in MiB.
        mib: u32,
        /// No reply is wanted.
        quiet: bool,
    },
    /// Counts; these words say which.
    Stats(Words<'a>),
    /// Which version is this?
    Version,
    /// Something that needs nothing but this reply.
    Said {
        /// Reply without the line's end.
        reply: &'static str,
        /// No reply is wanted.
        quiet: bool,
    },
    /// The end of the connection.
    Quit,
}

use Request::{Change, FlushAll, Get, LimitMemory, Quit, Said, Stats, Store, Version};

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
const BAD_DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
const ERROR: Request<'_> = Said { reply: "ERROR", quiet: false };

/// The request of a line.
pub fn parse(line: &[u8]) -> Request<'_> {
    let mut rest = Words(line);
    let Some(name) = rest.next().filter(|name| name.len() >= 2) else { return ERROR };
    match name {
        b"get" | b"bget" => get(rest, false),
        b"gets" => get(rest, true),
        b"gat" => get_and_touch(rest, false),
        b"gats" => get_and_touch(rest, true),
        b"set" => store(Op::Set, rest),
        b"add" => store(Op::Add, rest),
        b"replace" => store(Op::Replace, rest),
        b"append" => store(Op::Append, rest),
        b"prepend" => store(Op::Prepend, rest),
        b"cas" => store(Op::CompareAndSet, rest),
        b"incr" => count(Op::Increment, rest),
        b"decr" => count(Op::Decrement, rest),
        b"touch" => touch(rest),
        b"delete" => delete(rest),
        b"flush_all" => flush_all(rest),
        b"verbosity" => verbosity(rest),
        b"cache_memlimit" => limit_memory(rest),
        b"stats" => Stats(rest),
        // Alone: memcached 1.6 heeds no further words, libmemcached's tests of conformance want them refused.
        b"version" => rest.next().map_or(Version, |_| ERROR),
        b"quit" => rest.next().map_or(Quit, |_| ERROR),
        b"mg" => meta(Verb::Get, rest),
        b"ms" => meta(Verb::Set, rest),
        b"md" => meta(Verb::Delete, rest),
        b"ma" => meta(Verb::Count, rest),
        b"me" => meta(Verb::Debug, rest),
        b"mn" => Said { reply: "MN", quiet: false },
        b"shutdown" => Said { reply: "ERROR: shutdown not enabled", quiet: false },
        // A web browser, or an attack by way of one.
        _ if rest.last().is_some_and(|word| word.starts_with(b"HTTP/")) => Quit,
        _ => ERROR,
    }
}

/// The words of a command that has between `MIN` and `MAX` of them behind its name; and is the last one `noreply`?
fn words<'a, const MAX: usize>(mut rest: Words<'a>, min: usize) -> Option<([&'a [u8]; MAX], usize, bool)> {
    const { assert!(MAX < WORDS_MAX) };
    let (mut words, mut count) = ([&b""[..]; MAX], 0);
    for word in &mut rest {
        *words.get_mut(count)? = word;
        count += 1;
    }
    let quiet = count > 0 && words[count - 1] == b"noreply";
    (count >= min).then_some((words, count, quiet))
}

fn get(keys: Words<'_>, unique: bool) -> Request<'_> {
    if keys.clone().next().is_none() {
        return ERROR;
    }
    get_keys(keys, unique, None)
}

fn get_keys(keys: Words<'_>, unique: bool, touch: Option<u32>) -> Request<'_> {
    if keys.clone().any(|key| key.len() > KEY_BYTES_MAX) {
        return Said { reply: BAD_FORMAT, quiet: false };
    }
    Get { unique, touch, keys }
}

fn get_and_touch(mut keys: Words<'_>, unique: bool) -> Request<'_> {
    let Some(expires) = keys.next() else { return ERROR };
    match signed(expires) {
        Some(expires) => get_keys(keys, unique, Some(clock::expiry(expires))),
        None => Said { reply: BAD_EXPTIME, quiet: false },
    }
}

fn store(op: Op, rest: Words<'_>) -> Request<'_> {
    let fixed = if op == Op::CompareAndSet { 5 } else { 4 };
    let Some((words, _, quiet)) = words::<6>(rest, fixed).filter(|(_, count, _)| *count <= fixed + 1) else {
        return ERROR;
    };
    let [key, flags, expires, bytes, unique, _] = words;
    let parsed = || {
        let (flags, expires) = (unsigned(flags)?, signed(expires)?);
        let number = if op == Op::CompareAndSet { number(unique)? } else { 0 };
        let value_bytes = usize::try_from(signed(bytes)?).ok().filter(|bytes| *bytes <= i32::MAX as usize - 2)?;
        let key = Some(key).filter(|key| key.len() <= KEY_BYTES_MAX)?;
        Some((Command { op, key, value: &[], flags, expires: clock::expiry(expires), number }, value_bytes))
    };
    match parsed() {
        Some((command, value_bytes)) => Store { command, value_bytes, quiet },
        None => Said { reply: BAD_FORMAT, quiet },
    }
}

fn count(op: Op, rest: Words<'_>) -> Request<'_> {
    let Some(([key, delta, _], _, quiet)) = words::<3>(rest, 2) else { return ERROR };
    if key.len() > KEY_BYTES_MAX {
        return Said { reply: BAD_FORMAT, quiet };
    }
    match number(delta) {
        Some(number) => Change { command: Command { number, ..Command::on(op, key) }, quiet },
        None => Said { reply: BAD_DELTA, quiet },
    }
}

fn touch(rest: Words<'_>) -> Request<'_> {
    let Some(([key, expires, _], _, quiet)) = words::<3>(rest, 2) else { return ERROR };
    if key.len() > KEY_BYTES_MAX {
        return Said { reply: BAD_FORMAT, quiet };
    }
    match signed(expires) {
        Some(said) => {
            Change { command: Command { expires: clock::expiry(said), ..Command::on(Op::Touch, key) }, quiet }
        }
        None => Said { reply: BAD_EXPTIME, quiet },
    }
}

/// `delete <key> [0] [noreply]`: the 0 is a time that clients of old may send.
fn delete(rest: Words<'_>) -> Request<'_> {
    let Some(([key, second, _], count, quiet)) = words::<3>(rest, 1) else { return ERROR };
    let quiet = quiet && count > 1;
    let valid = match count {
        1 => true,
        2 => quiet || second == b"0",
        _ => quiet && second == b"0",
    };
    if !valid {
        return Said { reply: BAD_DELETE, quiet };
    }
    if key.len() > KEY_BYTES_MAX {
        return Said { reply: BAD_FORMAT, quiet };
    }
    Change { command: Command::on(Op::Delete, key), quiet }
}

fn flush_all(rest: Words<'_>) -> Request<'_> {
    let Some(([delay, _], count, quiet)) = words::<2>(rest, 0) else { return ERROR };
    if count == usize::from(quiet) {
        return FlushAll { at: 0, quiet };
    }
    match signed(delay) {
        Some(delay) => FlushAll { at: clock::expiry(delay.max(0)), quiet },
        None => Said { reply: BAD_EXPTIME, quiet },
    }
}

fn verbosity(rest: Words<'_>) -> Request<'_> {
    match words::<2>(rest, 1) {
        None => ERROR,
        Some(([level, _], _, quiet)) if unsigned(level).is_some() => Said { reply: "OK", quiet },
        Some((_, _, quiet)) => Said { reply: BAD_FORMAT, quiet },
    }
}

fn limit_memory(rest: Words<'_>) -> Request<'_> {
    let Some(([mib, _], _, quiet)) = words::<2>(rest, 1) else { return ERROR };
    let refused = |reply| Said { reply, quiet };
    match unsigned(mib) {
        None => refused("ERROR"),
        Some(0..8) => refused("MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m"),
        Some(1_000_000_001..) => refused("MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes"),
        Some(mib) => LimitMemory { mib, quiet },
    }
}

fn meta(verb: Verb, rest: Words<'_>) -> Request<'_> {
    if verb != Verb::Debug && rest.clone().next().is_none() {
        return ERROR;
    }
    meta::parse(verb, rest).map_or_else(|reply| Said { reply, quiet: false }, |meta| Request::Meta(Box::new(meta)))
}
