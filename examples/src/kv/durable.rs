//! The table that survives (`--durable`): all items in one durable trust with closures that are transactions on disk. A
//! change is answered when it is on disk, and so is a `get` of values it has seen; the commands that arrive while the
//! disk is busy share its next write.
//!
//! Nothing is evicted: where the memory is full, items are not stored. The pool is at machine 0 of a rack, and all
//! machines use it by its handle.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use gossamer::TrusteeReference;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use trust_durable::{Durable, Error, PMap, PVec, Persist, Tx};

use super::clock;
use super::item::{Change, Found, decide};
use super::replies::Awaited;
use super::server::PROGRAM;
use super::table::{Answer, Command, Counts, Op, Table};

/// The root of the pool.
#[derive(Persist)]
#[repr(C)]
pub struct Items<'p> {
    items: PMap<'p, PVec<'p, u8>, Item<'p>>,
    /// Unique number of the last change.
    unique: u64,
    /// All that there is by then is forgotten; 0 for never.
    flush_at: u32,
}

#[derive(Persist)]
#[repr(C)]
struct Item<'p> {
    value: PVec<'p, u8>,
    unique: u64,
    flags: u32,
    expires: u32,
}

/// A handle to the items.
pub type Handle = Durable<Items<'static>>;

/// Opens the items of a folder, or makes them, at a trustee of this machine. `within`: answers come before their
/// changes are on disk, as long as these are younger.
///
/// # Errors
/// Those of [`Durable::open`].
pub fn open(
    trustee: TrusteeReference,
    folder: &Path,
    memory_bytes: usize,
    within: Option<Duration>,
) -> Result<Handle, Error> {
    let builder = Durable::<Items>::builder().limit(memory_bytes);
    let builder = if let Some(within) = within { builder.within(within) } else { builder };
    builder.open(trustee, folder, |_| Items { items: PMap::new(), unique: 0, flush_at: 0 })
}

impl<'p> Items<'p> {
    fn found(&self, key: &[u8]) -> Option<Found<'_>> {
        let Item { value, unique, flags, expires } = self.items.get(key)?;
        let is_there = !clock::has_passed(*expires);
        is_there.then_some(Found { flags: *flags, expires: *expires, unique: *unique, value })
    }

    fn run(&mut self, command: &Command<'_>, tx: &Tx<'p>) -> Reply {
        if clock::has_passed(self.flush_at) {
            self.flush(0);
        }
        let answer = match command.op {
            Op::Get => Answer::NotFound,
            _ => self.change(command, tx),
        };
        match self.found(command.key) {
            Some(Found { flags, unique, value, .. }) if matches!(command.op, Op::Get | Op::GetAndTouch) => {
                Reply::Item { flags, unique, value: ByteBuf::from(value) }
            }
            _ => Reply::Verdict(Verdict::of(&answer)),
        }
    }

    fn change(&mut self, command: &Command<'_>, tx: &Tx<'p>) -> Answer<'static> {
        let (change, answer) = decide(command, self.found(command.key));
        // Copied before the item is changed, which a change may be made of.
        let (flags, expires, value) = match change {
            Change::Nothing => return answer,
            Change::Remove => {
                self.items.remove(command.key);
                return answer;
            }
            Change::Expire(expires) => {
                if let Some(item) = self.items.get_mut(command.key) {
                    item.expires = expires;
                }
                return answer;
            }
            Change::Store { flags, expires, value } => (flags, expires, copied(value, tx)),
            Change::Number(digits) => {
                let (flags, expires) = self.found(command.key).map_or((0, 0), |found| (found.flags, found.expires));
                (flags, expires, copied(digits.parts(), tx))
            }
        };
        let unique = self.unique + 1;
        let item = value.map(|value| Item { value, unique, flags, expires });
        if item.is_some_and(|item| self.put(command.key, item, tx)) {
            self.unique = unique;
            return answer;
        }
        // As memcached does: the item differs from the one that the client has.
        self.items.remove(command.key);
        Answer::NoMemory
    }

    /// False if there is no room.
    fn put(&mut self, key: &[u8], item: Item<'p>, tx: &Tx<'p>) -> bool {
        if let Some(there) = self.items.get_mut(key) {
            *there = item;
            return true;
        }
        copied([key, &[]], tx).is_some_and(|key| self.items.try_insert(key, item, tx).is_ok())
    }

    fn flush(&mut self, at: u32) {
        self.flush_at = at;
        if at == 0 || clock::has_passed(at) {
            self.flush_at = 0;
            self.items.clear();
        }
    }
}

/// Both parts, one behind the other; `None` if there is no room.
fn copied<'p>(parts: [&[u8]; 2], tx: &Tx<'p>) -> Option<PVec<'p, u8>> {
    let mut bytes = PVec::new();
    if !bytes.try_reserve(parts[0].len() + parts[1].len(), tx) {
        return None;
    }
    parts.iter().for_each(|part| bytes.extend_from_slice(part, tx));
    Some(bytes)
}

/// A command as it travels.
#[derive(Serialize, Deserialize)]
struct Sent {
    op: Op,
    key: ByteBuf,
    value: ByteBuf,
    flags: u32,
    expires: u32,
    number: u64,
}

/// The answer.
#[derive(Serialize, Deserialize)]
enum Reply {
    Item { flags: u32, unique: u64, value: ByteBuf },
    Verdict((Verdict, u64)),
}

/// An answer without a value.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum Verdict {
    NotFound,
    Stored,
    NotStored,
    Exists,
    Deleted,
    Touched,
    Number,
    NotANumber,
    NoMemory,
}

impl Verdict {
    fn of(answer: &Answer<'_>) -> (Verdict, u64) {
        let verdict = match answer {
            Answer::NotFound | Answer::Value { .. } => Verdict::NotFound,
            Answer::Stored => Verdict::Stored,
            Answer::NotStored => Verdict::NotStored,
            Answer::Exists => Verdict::Exists,
            Answer::Deleted => Verdict::Deleted,
            Answer::Touched => Verdict::Touched,
            Answer::Number(number) => return (Verdict::Number, *number),
            Answer::NotANumber => Verdict::NotANumber,
            Answer::NoMemory => Verdict::NoMemory,
            Answer::Large { value, .. } => match *value {},
        };
        (verdict, 0)
    }

    fn answer(self, number: u64) -> Answer<'static> {
        match self {
            Verdict::NotFound => Answer::NotFound,
            Verdict::Stored => Answer::Stored,
            Verdict::NotStored => Answer::NotStored,
            Verdict::Exists => Answer::Exists,
            Verdict::Deleted => Answer::Deleted,
            Verdict::Touched => Answer::Touched,
            Verdict::Number => Answer::Number(number),
            Verdict::NotANumber => Answer::NotANumber,
            Verdict::NoMemory => Answer::NoMemory,
        }
    }
}

/// The items, as the connections of one worker see them.
pub struct Surviving {
    items: Handle,
}

impl Surviving {
    /// Those of this handle.
    pub fn new(items: Handle) -> Self {
        Surviving { items }
    }
}

impl Table for Surviving {
    type Large = Infallible;

    fn run(&self, command: &Command<'_>, awaited: Awaited<Infallible>) {
        let Command { op, key, value, flags, expires, number } = *command;
        let sent = Sent { op, key: ByteBuf::from(key), value: ByteBuf::from(value), flags, expires, number };
        self.items
            .call()
            .with(sent)
            .apply(|items, tx, sent: Sent| {
                let Sent { op, key, value, flags, expires, number } = sent;
                items.run(&Command { op, key: &key, value: &value, flags, expires, number }, tx)
            })
            .then(|reply| match reply {
                Ok(Reply::Item { flags, unique, value }) => {
                    awaited.answer(Answer::Value { flags, unique, value: &value })
                }
                Ok(Reply::Verdict((verdict, number))) => awaited.answer(verdict.answer(number)),
                // Dropped, `awaited` tells the client that there is no answer.
                Err(error) => PROGRAM.complain(format_args!("a command has no answer: {error}")),
            });
    }

    fn flush(&self, at: u32) {
        let flushed = self.items.call().apply(move |items, _| items.flush(at)).wait();
        flushed.unwrap_or_else(|error| PROGRAM.complain(format_args!("the items were not forgotten: {error}")));
    }

    /// The limit is that with which the pool was opened.
    fn limit_memory(&self, _bytes: usize) {}

    fn counts(&self) -> Counts {
        let items = self.items.call().apply(|items, _| items.items.len() as u64).wait().unwrap_or(0);
        let stats = self.items.stats().unwrap_or_default();
        [
            ("curr_items", items),
            ("bytes", stats.used_bytes),
            ("limit_maxbytes", stats.limit_bytes),
            ("transactions", stats.transactions),
            ("groups", stats.groups),
            ("groups_replayed", stats.groups_replayed),
            ("log_bytes", stats.log_bytes),
        ]
        .map(|(name, count)| (name.into(), count))
        .into()
    }

    fn reset_counts(&self) {}
}
