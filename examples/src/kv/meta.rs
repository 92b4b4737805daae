//! The meta commands of memcached 1.6 (`mg ms md ma me`): how their lines are read, the command that goes to the table,
//! and how the reply is written. Their effect on an item is in `shard/meta.rs`.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::clock;
use super::size::KEY_BYTES_MAX;
use super::words::{Words, number, signed};

/// The longest opaque token, with its letter.
const OPAQUE_BYTES_MAX: usize = 32;
/// Letters of all flags.
const FLAGS: &[u8] = b"bcfhklqstuvxCDEFIJLMNOPRT";

/// Which command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Verb {
    /// `mg`
    Get,
    /// `ms`
    Set,
    /// `md`
    Delete,
    /// `ma`
    Count,
    /// `me`
    Debug,
}

/// A command as it goes to the part of the table that has the key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Command {
    /// Which command.
    pub verb: Verb,
    /// The key, decoded.
    pub key: ByteBuf,
    /// The value to be stored.
    pub value: ByteBuf,
    /// The letter of `M`.
    pub mode: u8,
    /// Flags of `F`, opaque to the server.
    pub flags: u32,
    /// `T`: when the item expires from now on.
    pub expires: Option<u32>,
    /// `N`: a missing item is made, which expires then.
    pub vivify: Option<u32>,
    /// `R`: an item that expires before then is won by one client.
    pub recache: Option<u32>,
    /// `C`: the unique number that the item has to have.
    pub unique: Option<u64>,
    /// `E`: the unique number that it gets.
    pub new_unique: Option<u64>,
    /// `J`: the number of an item that is made.
    pub initial: u64,
    /// `D`: the number that is added or taken.
    pub delta: u64,
    /// `I`: the item becomes stale.
    pub invalidates: bool,
    /// `x`: the item loses its value.
    pub empties: bool,
    /// `u`: it does not count as used.
    pub is_unused: bool,
    /// `v`: the value is wanted.
    pub wants_value: bool,
}

/// A line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta<'a> {
    /// The command.
    pub command: Command,
    /// Length of the block of data behind the line of `ms`.
    pub value_bytes: Option<usize>,
    /// The reply, where the line is wrong.
    pub error: Option<&'static str>,
    echo: Echo<&'a [u8]>,
}

/// The parts of a line that its reply repeats.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Echo<B> {
    verb: Verb,
    key: B,
    is_binary: bool,
    is_quiet: bool,
    wants_value: bool,
    /// All flags.
    flags: B,
}

/// Result of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Status {
    /// It was done.
    Done,
    /// There is no such item.
    Missing,
    /// The item is there, or is not there, against the mode.
    NotStored,
    /// The item has another unique number.
    Exists,
    /// The value is no number.
    NotANumber,
    /// There is no room for it.
    NoMemory,
    /// This table has no meta commands.
    Unknown,
}

/// An item, as a reply tells of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Flags, opaque to the server.
    pub flags: u32,
    /// Time at which it expires; 0 for never.
    pub expires: u32,
    /// Another one after each change.
    pub unique: u64,
    /// Length of its value.
    pub bytes: u32,
    /// Seconds since it was used.
    pub unused_for: u32,
    /// Was it read before?
    pub was_read: bool,
    /// This client is to make the value anew.
    pub is_won: bool,
    /// Another client is to do so.
    pub is_sent: bool,
    /// It was invalidated.
    pub is_stale: bool,
}

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const BAD_KEY: &str = "CLIENT_ERROR error decoding key";

/// The command of the words behind a meta command's name.
///
/// # Errors
/// The reply to a line of which even the length of its data is unknown.
pub fn parse<'a>(verb: Verb, mut rest: Words<'a>) -> Result<Meta<'a>, &'static str> {
    let key = rest.next().filter(|key| key.len() <= KEY_BYTES_MAX).ok_or(BAD_FORMAT)?;
    let value_bytes = if verb == Verb::Set {
        let bytes = rest.next().and_then(signed).and_then(|bytes| usize::try_from(bytes).ok());
        Some(bytes.filter(|bytes| *bytes <= i32::MAX as usize - 2).ok_or(BAD_FORMAT)?)
    } else {
        None
    };
    let mode = if verb == Verb::Count { b'I' } else { b'S' };
    let command = Command {
        verb,
        key: ByteBuf::from(key),
        value: ByteBuf::new(),
        mode,
        flags: 0,
        expires: None,
        vivify: None,
        recache: None,
        unique: None,
        new_unique: None,
        initial: 0,
        delta: 1,
        invalidates: false,
        empties: false,
        is_unused: false,
        wants_value: false,
    };
    let flags = rest.rest();
    let echo = Echo { verb, key, is_binary: false, is_quiet: false, wants_value: false, flags };
    let mut meta = Meta { command, value_bytes, error: None, echo };
    meta.error = meta.take_flags(rest).err();
    Ok(meta)
}

impl<'a> Meta<'a> {
    fn take_flags(&mut self, flags: Words<'a>) -> Result<(), &'static str> {
        let is_old = matches!(self.command.verb, Verb::Delete | Verb::Count);
        let wrong = |what| if is_old { "CLIENT_ERROR invalid or duplicate flag" } else { what };
        let mut seen = 0u128;
        for flag in flags {
            let (letter, token) = (flag[0], &flag[1..]);
            if letter >= 127 || seen & 1 << letter != 0 {
                return Err(wrong("CLIENT_ERROR duplicate flag"));
            }
            seen |= 1 << letter;
            if !FLAGS.contains(&letter) {
                return Err(wrong("CLIENT_ERROR invalid flag"));
            }
            let error = self.take_flag(letter, flag, token).err();
            if let Some(error) = error {
                return Err(if error.starts_with("CLIENT_ERROR opaque") { error } else { wrong(error) });
            }
        }
        let (verb, mode) = (self.command.verb, self.command.mode);
        match (verb, mode) {
            (Verb::Set, mode) if !b"EAPRS".contains(&mode) => Err("CLIENT_ERROR invalid mode for ms M token"),
            (Verb::Count, mode) if !b"I+D-".contains(&mode) => Err("CLIENT_ERROR invalid mode for ma M token"),
            _ => Ok(()),
        }
    }

    fn take_flag(&mut self, letter: u8, flag: &[u8], token: &[u8]) -> Result<(), &'static str> {
        let time = || signed(token).map(clock::expiry).map(Some).ok_or(BAD_TOKEN);
        let unique = || number(token).map(Some).ok_or(BAD_TOKEN);
        let command = &mut self.command;
        match letter {
            b'b' => {
                let key = decode(self.echo.key).filter(|key| !key.is_empty()).ok_or(BAD_KEY)?;
                (command.key, self.echo.is_binary) = (ByteBuf::from(key), true);
            }
            b'q' => self.echo.is_quiet = true,
            b'v' => (command.wants_value, self.echo.wants_value) = (true, true),
            b'u' => command.is_unused = true,
            b'x' => command.empties = true,
            b'I' => command.invalidates = true,
            b'T' => command.expires = time()?,
            b'N' => command.vivify = time()?,
            b'R' => command.recache = time()?,
            b'C' => command.unique = unique()?,
            b'E' => command.new_unique = unique()?,
            b'F' => command.flags = number(token).ok_or(BAD_TOKEN)? as u32,
            b'J' => command.initial = number(token).ok_or("CLIENT_ERROR invalid numeric initial value")?,
            b'D' => command.delta = number(token).ok_or("CLIENT_ERROR invalid numeric delta value")?,
            b'M' if token.len() == 1 => command.mode = token[0],
            b'M' => return Err("CLIENT_ERROR incorrect length for M token"),
            b'O' if flag.len() > OPAQUE_BYTES_MAX => return Err("CLIENT_ERROR opaque token too long"),
            _ => {}
        }
        Ok(())
    }

    /// The parts that its reply repeats, for as long as that is awaited.
    pub fn echo(&self) -> Echo<Box<[u8]>> {
        let Echo { verb, key, is_binary, is_quiet, wants_value, flags } = self.echo;
        Echo { verb, key: key.into(), is_binary, is_quiet, wants_value, flags: flags.into() }
    }
}

impl Echo<Box<[u8]>> {
    /// Writes the reply, up to the value's bytes. True if these come behind it.
    pub fn write(&self, to: &mut Vec<u8>, status: Status, seen: &Seen) -> bool {
        let hides = match status {
            Status::Done => matches!(self.verb, Verb::Set | Verb::Delete | Verb::Count),
            Status::Missing => self.verb == Verb::Get,
            _ => false,
        };
        if self.is_quiet && hides {
            return false;
        }
        let head: &[u8] = match status {
            Status::Done if self.verb == Verb::Debug => {
                self.write_debug(to, seen);
                return false;
            }
            Status::Done if self.has_value() => b"VA ",
            Status::Done => b"HD",
            Status::Missing if matches!(self.verb, Verb::Get | Verb::Debug) => b"EN",
            Status::Missing => b"NF",
            Status::NotStored => b"NS",
            Status::Exists => b"EX",
            Status::NotANumber => b"CLIENT_ERROR cannot increment or decrement non-numeric value",
            Status::NoMemory => b"SERVER_ERROR out of memory storing object",
            Status::Unknown => b"ERROR",
        };
        to.extend_from_slice(head);
        let is_done = status == Status::Done;
        if is_done && self.has_value() {
            put(to, u64::from(seen.bytes));
        }
        if !matches!(status, Status::NotANumber | Status::NoMemory | Status::Unknown) && self.verb != Verb::Debug {
            self.write_flags(to, is_done.then_some(seen));
        }
        to.extend_from_slice(b"\r\n");
        is_done && self.has_value()
    }

    fn has_value(&self) -> bool {
        self.wants_value && matches!(self.verb, Verb::Get | Verb::Count)
    }

    /// Writes the flags in the client's order; those of an item only where there is one.
    fn write_flags(&self, to: &mut Vec<u8>, seen: Option<&Seen>) {
        for flag in self.flags.split(|byte| *byte == b' ').filter(|flag| !flag.is_empty()) {
            let mut with = |letter: u8, number: u64| {
                to.extend_from_slice(&[b' ', letter]);
                put(to, number);
            };
            match (flag[0], self.verb, seen) {
                (b'O', ..) => to.extend([&b" "[..], flag].concat()),
                (b'k', ..) => {
                    to.extend_from_slice(b" k");
                    to.extend_from_slice(&self.key);
                    to.extend_from_slice(if self.is_binary { b" b" } else { b"" });
                }
                (b's', Verb::Get, Some(seen)) => with(b's', seen.bytes.into()),
                (b't', Verb::Get | Verb::Count, Some(seen)) if seen.expires == 0 => to.extend_from_slice(b" t-1"),
                (b't', Verb::Get | Verb::Count, Some(seen)) => {
                    with(b't', seen.expires.saturating_sub(clock::now()).into());
                }
                (b'c', Verb::Get | Verb::Count | Verb::Set, Some(seen)) => with(b'c', seen.unique),
                (b'f', Verb::Get, Some(seen)) => with(b'f', seen.flags.into()),
                (b'l', Verb::Get, Some(seen)) => with(b'l', seen.unused_for.into()),
                (b'h', Verb::Get, Some(seen)) => with(b'h', seen.was_read.into()),
                _ => {}
            }
        }
        let Some(seen) = seen.filter(|_| self.verb == Verb::Get) else { return };
        for (is_so, letter) in [(seen.is_sent, b'Z'), (seen.is_stale, b'X'), (seen.is_won, b'W')] {
            if is_so {
                to.extend_from_slice(&[b' ', letter]);
            }
        }
    }

    fn write_debug(&self, to: &mut Vec<u8>, seen: &Seen) {
        let Seen { expires, unused_for, unique, was_read, bytes, .. } = seen;
        let left = if *expires == 0 { -1 } else { i64::from(*expires) - i64::from(clock::now()) };
        let read = if *was_read { "yes" } else { "no" };
        to.extend_from_slice(b"ME ");
        to.extend_from_slice(&self.key);
        let what = format!(" exp={left} la={unused_for} cas={unique} fetch={read} cls=1 size={bytes}\r\n");
        to.extend_from_slice(what.as_bytes());
    }
}

fn put(to: &mut Vec<u8>, number: u64) {
    to.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// The bytes of base64 with padding.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0, 0u32);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (held, bits) = (held << 6 | u32::from(value), bits + 6);
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    (text.len().is_multiple_of(4) && bits < 6).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded() {
        for (text, key) in [("aGVsbG8=", "hello"), ("aw==", "k"), ("Zm9vYmFy", "foobar"), ("", "")] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(key.as_bytes()));
        }
        for no in ["k", "aw=", "aw", "a===", "a b=", "aGVsbG8", "=aaa", "aa\u{e9}="] {
            assert_eq!(decode(no.as_bytes()), None, "{no}");
        }
    }
}
