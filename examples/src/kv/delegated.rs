//! The table as it is meant: its shards are entrusted to workers, of one machine or of all machines of a rack, and a
//! command goes to the worker that has the key, as a closure. Here `trust` is used, and nowhere else in the server but
//! for fibers and sockets.
//!
//! A closure carries its key, or its key and value, in an array of the next size up (`Small`), so a short command is
//! copied from the connection straight into the request slot, and no memory is allocated. Where key and value are
//! longer they travel as a serialised argument. Likewise for values that are found (`Seen`): the array in which they
//! come back has the size that the longest of the last few thousand needed. A value that does not fit is kept for the
//! client, as it is, under a ticket, and the client fetches it when it is that answer's turn.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher};
use std::rc::Rc;

use foldhash::fast::FixedState;
use gossamer::Trust;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::meta;
use super::shard::{Reply, Shard, Value};
use super::table::{Answer, Answered, Carried, Command, Counts, Large, Op, Table};

/// Sizes in which values come back.
const ROOMS: [usize; 4] = [16, 48, 112, 224];
/// Number of values after which the size is chosen anew.
const ROOM_KEPT_FOR: u32 = 4096;

/// The shards of the table, as the connections of one worker see them.
pub struct Delegated {
    parts: Rc<Parts>,
}

struct Parts {
    shards: Box<[Trust<Shard>]>,
    hasher: FixedState,
    /// Index in `ROOMS` of the size in which values come back.
    room: Cell<usize>,
    /// The largest that was needed lately, and how many values `lately` is.
    needed: Cell<usize>,
    seen: Cell<u32>,
}

impl Delegated {
    /// A table of these shards. The seed decides which key is where, and is the same wherever the table is used.
    pub fn new(shards: Vec<Trust<Shard>>, seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        let (room, needed, seen) = (Cell::new(0), Cell::new(0), Cell::new(0));
        Delegated { parts: Rc::new(Parts { shards: shards.into(), hasher, room, needed, seen }) }
    }
}

impl Parts {
    /// Which shard has the key, and the hash under which the shard has it.
    #[inline]
    fn place(&self, key: &[u8]) -> (usize, u32) {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        let hash = hasher.finish();
        let shard = ((hash >> 32) * self.shards.len() as u64) >> 32;
        (shard as usize, hash as u32)
    }

    /// Notes how long a value was, and now and then chooses the size anew.
    #[inline]
    fn note(&self, bytes: usize) {
        let fits = ROOMS.iter().position(|room| bytes <= *room).unwrap_or(0);
        let needed = self.needed.get().max(fits);
        let seen = self.seen.get() + 1;
        if needed > self.room.get() || seen == ROOM_KEPT_FOR {
            self.room.set(needed);
            self.needed.set(0);
            self.seen.set(0);
        } else {
            self.needed.set(needed);
            self.seen.set(seen);
        }
    }
}

/// Up to `N` bytes in place.
#[derive(Clone, Copy)]
struct Small<const N: usize> {
    len: u8,
    bytes: [u8; N],
}

impl<const N: usize> Small<N> {
    #[inline]
    fn new(bytes: &[u8]) -> Self {
        Small { len: bytes.len() as u8, bytes: join([bytes, &[]]) }
    }

    #[inline]
    fn get(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Both parts, one behind the other, and zeros.
#[inline]
fn join<const N: usize>(parts: [&[u8]; 2]) -> [u8; N] {
    let (first, len) = (parts[0].len(), parts[0].len() + parts[1].len());
    let mut bytes = [0; N];
    bytes[..first].copy_from_slice(parts[0]);
    bytes[first..len].copy_from_slice(parts[1]);
    bytes
}

/// A command that stores, without key and value. Of 16 bytes, all in use: see [`dense`].
#[derive(Clone, Copy)]
struct Head {
    hash: u32,
    flags: u32,
    expires: u32,
    /// Bytes of the key.
    key_bytes: u8,
    /// Bytes of key and value, if they are captured with this.
    bytes: u8,
    op: Op,
    _unused: u8,
}

const _: () = assert!(size_of::<Head>() == 16);

/// A closure with captures of so many bytes together, and so no padding: padding may hold any bytes, and a closure with
/// bytes like the address of a function may not go to another machine.
#[inline]
fn dense<F>(bytes: usize, f: F) -> F {
    assert_eq!(size_of::<F>(), bytes, "captures with padding");
    f
}

impl Head {
    fn of(command: &Command<'_>, hash: u32) -> Self {
        let Command { op, key, value, flags, expires, .. } = *command;
        let (key_bytes, bytes) = (key.len() as u8, (key.len() + value.len()) as u8);
        Head { hash, flags, expires, key_bytes, bytes, op, _unused: 0 }
    }

    fn run(self, shard: &mut Shard, key_and_value: &[u8], number: u64) -> Verdict {
        let (key, value) = key_and_value.split_at(usize::from(self.key_bytes));
        let Head { hash, flags, expires, op, .. } = self;
        Verdict::of(&shard.change(hash, &Command { op, key, value, flags, expires, number })).0
    }
}

/// Result of a shard.
enum Seen<const R: usize> {
    Nothing,
    Value { flags: u32, unique: u64, value: Small<R> },
    Kept { flags: u32, unique: u64, ticket: u64, bytes: u32 },
    NoMemory,
}

/// An answer without a value.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) enum Verdict {
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
    pub(super) fn of(answer: &Answer<'_>) -> (Verdict, u64) {
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

    pub(super) fn answer<L>(self, number: u64) -> Answer<'static, L> {
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

/// A value that a shard keeps until it is fetched or nobody wants it any more.
pub struct Kept {
    parts: Rc<Parts>,
    shard: usize,
    bytes: usize,
    /// Id of the kept value, until it is fetched.
    ticket: Option<u64>,
}

impl Large for Kept {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn fetch(mut self) -> Vec<u8> {
        let shard = &self.parts.shards[self.shard];
        let take = |shard: &mut Shard, ticket| ByteBuf::from(shard.take(ticket));
        self.ticket.take().map(|ticket| shard.apply_with(take, ticket).into_vec()).unwrap_or_default()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.parts.shards[self.shard].apply_then(move |shard| shard.forget(ticket), |()| {});
        }
    }
}

type Given<'a> = Answer<'a, Kept>;

impl Table for Delegated {
    type Large = Kept;

    #[inline]
    fn run<H: FnOnce(Given<'_>) + 'static>(&self, command: &Command<'_>, then: H) {
        match command.op {
            Op::Get | Op::GetAndTouch => self.get(command, then),
            Op::Touch | Op::Delete | Op::Increment | Op::Decrement => match command.key.len() {
                0..=22 => self.change::<22, H>(command, then),
                _ => self.change::<254, H>(command, then),
            },
            _ => match command.key.len() + command.value.len() {
                0..=24 => self.store::<24, H>(command, then),
                25..=56 => self.store::<56, H>(command, then),
                57..=120 => self.store::<120, H>(command, then),
                121..=224 => self.store::<224, H>(command, then),
                _ => self.store_large(command, then),
            },
        }
    }

    fn meta<H: FnOnce(Answered<Kept>) + 'static>(&self, command: meta::Command, then: H) {
        let (place, hash) = self.parts.place(&command.key);
        let parts = Rc::clone(&self.parts);
        let run = dense(4, move |shard: &mut Shard, command: meta::Command| shard.meta(hash, &command));
        self.parts.shards[place].call().with(command).apply(run).then(move |result| {
            let reply: Reply = result.unwrap();
            let Reply { status, seen, value } = reply;
            let value = value.map(|value| match value {
                Value::Here(value) => Carried::Here(value.into_vec()),
                Value::Kept(ticket) => {
                    Carried::Large(Kept { parts, shard: place, bytes: seen.bytes as usize, ticket: Some(ticket) })
                }
            });
            then(Answered { status, seen, value });
        });
    }

    fn flush(&self, at: u32) {
        for shard in &self.parts.shards {
            shard.apply(move |shard| shard.flush(at));
        }
    }

    fn limit_memory(&self, bytes: usize) {
        for shard in &self.parts.shards {
            shard.apply(move |shard| shard.limit_memory(bytes));
        }
    }

    fn keys(&self, bytes_max: usize) -> Vec<(Vec<u8>, u32, u32)> {
        let each = bytes_max / self.parts.shards.len().max(1);
        let of = |shard: &Trust<Shard>| shard.apply_with(|shard, each| shard.keys(each), each);
        let keys = self.parts.shards.iter().flat_map(of);
        keys.map(|(key, bytes, expires)| (key.into_vec(), bytes, expires)).collect()
    }

    fn counts(&self) -> Counts {
        let mut sum: Counts = Vec::new();
        for shard in &self.parts.shards {
            let counts = shard.apply_with(|shard, ()| shard.counts(), ());
            if sum.is_empty() {
                sum = counts;
            } else {
                sum.iter_mut().zip(counts).for_each(|(sum, count)| sum.1 += count.1);
            }
        }
        sum
    }

    fn reset_counts(&self) {
        for shard in &self.parts.shards {
            shard.apply(Shard::reset_counts);
        }
    }
}

impl Delegated {
    #[inline]
    fn get<H: FnOnce(Given<'_>) + 'static>(&self, command: &Command<'_>, then: H) {
        match command.key.len() {
            0..=11 => self.get_by::<11, H>(command, then),
            12..=27 => self.get_by::<27, H>(command, then),
            28..=59 => self.get_by::<59, H>(command, then),
            _ => self.get_by::<251, H>(command, then),
        }
    }

    #[inline]
    fn get_by<const N: usize, H: FnOnce(Given<'_>) + 'static>(&self, command: &Command<'_>, then: H) {
        match self.parts.room.get() {
            0 => self.get_into::<N, { ROOMS[0] }, H>(command, then),
            1 => self.get_into::<N, { ROOMS[1] }, H>(command, then),
            2 => self.get_into::<N, { ROOMS[2] }, H>(command, then),
            _ => self.get_into::<N, { ROOMS[3] }, H>(command, then),
        }
    }

    /// Looks for a key of up to `N` bytes; its value comes back in place if it has up to `R`.
    fn get_into<const N: usize, const R: usize, H: FnOnce(Given<'_>) + 'static>(&self, command: &Command<'_>, then: H) {
        let (place, hash) = self.parts.place(command.key);
        let key = Small::<N>::new(command.key);
        let parts = Rc::clone(&self.parts);
        let then = move |seen: Seen<R>| match seen {
            Seen::Nothing => then(Answer::NotFound),
            Seen::Value { flags, unique, value } => {
                parts.note(value.get().len());
                then(Answer::Value { flags, unique, value: value.get() });
            }
            Seen::Kept { flags, unique, ticket, bytes } => {
                let bytes = bytes as usize;
                parts.note(bytes);
                let value = Kept { parts, shard: place, bytes, ticket: Some(ticket) };
                then(Answer::Large { flags, unique, value });
            }
            Seen::NoMemory => then(Answer::NoMemory),
        };
        let shard = &self.parts.shards[place];
        if command.op == Op::Get {
            let look = move |shard: &mut Shard| look(shard, hash, key.get(), None);
            shard.apply_then(dense(4 + 1 + N, look), then);
        } else {
            let expires = command.expires;
            let look = move |shard: &mut Shard| look(shard, hash, key.get(), Some(expires));
            shard.apply_then(dense(4 + 4 + 1 + N, look), then);
        }
    }

    /// Changes the item on a key of up to `N` bytes without a value.
    fn change<const N: usize, H: FnOnce(Given<'_>) + 'static>(&self, command: &Command<'_>, then: H) {
        let (shard, hash) = self.parts.place(command.key);
        let key = Small::<N>::new(command.key);
        let Command { op, expires, number, .. } = *command;
        let change = move |shard: &mut Shard| {
            let command = Command { expires, number, ..Command::on(op, key.get()) };
            Verdict::of(&shard.change(hash, &command))
        };
        let change = dense(4 + 1 + 4 + 8 + 1 + N, change);
        self.parts.shards[shard].apply_then(change, |(verdict, number)| then(verdict.answer(number)));
    }

    /// Stores a value that has up to `N` bytes together with its key.
    fn store<const N: usize, H: FnOnce(Given<'_>) + 'static>(&self, command: &Command<'_>, then: H) {
        let (shard, hash) = self.parts.place(command.key);
        let (head, item) = (Head::of(command, hash), join::<N>([command.key, command.value]));
        let shard = &self.parts.shards[shard];
        let then = |verdict: Verdict| then(verdict.answer(0));
        if command.op == Op::CompareAndSet {
            let number = command.number;
            let store = move |shard: &mut Shard| head.run(shard, &item[..usize::from(head.bytes)], number);
            shard.apply_then(dense(16 + N + 8, store), then);
        } else {
            let store = move |shard: &mut Shard| head.run(shard, &item[..usize::from(head.bytes)], 0);
            shard.apply_then(dense(16 + N, store), then);
        }
    }

    fn store_large<H: FnOnce(Given<'_>) + 'static>(&self, command: &Command<'_>, then: H) {
        let (shard, hash) = self.parts.place(command.key);
        let (head, number) = (Head::of(command, hash), command.number);
        let run = dense(16 + 8, move |shard: &mut Shard, item: ByteBuf| head.run(shard, &item, number));
        let item = ByteBuf::from([command.key, command.value].concat());
        self.parts.shards[shard].call().with(item).apply(run).then(|result| {
            let verdict = result.unwrap();
            then(verdict.answer(0))
        });
    }
}

fn look<const R: usize>(shard: &mut Shard, hash: u32, key: &[u8], touch: Option<u32>) -> Seen<R> {
    let Some(cell) = shard.get(hash, key, touch) else { return Seen::Nothing };
    let found = shard.item(cell);
    let (flags, unique, bytes) = (found.flags, found.unique, found.value.len());
    if bytes <= R {
        return Seen::Value { flags, unique, value: Small::new(found.value) };
    }
    let Some(ticket) = shard.keep(cell) else { return Seen::NoMemory };
    Seen::Kept { flags, unique, ticket, bytes: bytes as u32 }
}
