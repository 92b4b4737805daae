//! The effect of meta commands on the items of a shard, and the list of its keys.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::Shard;
use crate::kv::cells::{Body, Used};
use crate::kv::clock;
use crate::kv::meta::{Command, Seen, Status, Verb};
use crate::kv::table::{self, Answer, Op};

/// Bytes of a value that comes with its answer; longer ones are kept until they are fetched.
const HERE_BYTES_MAX: usize = 4 << 10;

/// Result of a meta command.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reply {
    /// Whether it was done.
    pub status: Status,
    /// The item, where there is one.
    pub seen: Seen,
    /// The value, if it is wanted.
    pub value: Option<Value>,
}

/// A value that was found.
#[derive(Debug, Serialize, Deserialize)]
pub enum Value {
    /// As it is.
    Here(ByteBuf),
    /// Kept under this ticket.
    Kept(u64),
}

impl Reply {
    fn of(status: Status) -> Reply {
        Reply { status, seen: Seen::default(), value: None }
    }
}

impl Shard {
    /// Runs a meta command.
    pub fn meta(&mut self, hash: u32, command: &Command) -> Reply {
        self.flush_if_due();
        let cell = self.find(hash, &command.key);
        match (command.verb, cell) {
            (Verb::Get, Some(cell)) => self.meta_get(cell, command),
            (Verb::Get, None) => self.meta_vivify(hash, command),
            (Verb::Set, _) => self.meta_set(hash, cell, command),
            (Verb::Delete, Some(cell)) => self.meta_delete(hash, cell, command),
            (Verb::Delete, None) => {
                self.tally.delete_misses += 1;
                Reply::of(Status::Missing)
            }
            (Verb::Count, _) => self.meta_count(hash, cell, command),
            (Verb::Debug, Some(cell)) => Reply { seen: self.seen(cell), ..Reply::of(Status::Done) },
            (Verb::Debug, None) => Reply::of(Status::Missing),
        }
    }

    fn seen(&self, cell: u32) -> Seen {
        let item = &self.cells[cell];
        let used = item.body.used();
        Seen {
            flags: item.flags,
            expires: item.expires,
            unique: item.unique,
            bytes: item.body.value().len() as u32,
            unused_for: used.age(),
            was_read: used.has(Used::READ),
            is_won: false,
            is_sent: used.has(Used::SENT),
            is_stale: used.has(Used::STALE),
        }
    }

    fn meta_get(&mut self, cell: u32, command: &Command) -> Reply {
        self.tally.get_hits += 1;
        let mut seen = self.seen(cell);
        if let Some(expires) = command.expires {
            (self.cells[cell].expires, seen.expires) = (expires, expires);
        }
        let is_due = command.recache.is_some_and(|by| seen.expires != 0 && seen.expires < by);
        seen.is_won = !seen.is_sent && (is_due || seen.is_stale);
        let item = &mut self.cells[cell];
        let used = item.body.used().with(if seen.is_won { Used::SENT } else { 0 });
        item.body.set_used(if command.is_unused { used } else { used.again() });
        if !command.is_unused {
            self.use_again(cell);
        }
        let reply = Reply { seen, ..Reply::of(Status::Done) };
        if !command.wants_value {
            return reply;
        }
        let value = self.cells[cell].body.value();
        if value.len() <= HERE_BYTES_MAX {
            let value = ByteBuf::from(value);
            return Reply { value: Some(Value::Here(value)), ..reply };
        }
        match self.keep(cell) {
            Some(ticket) => Reply { value: Some(Value::Kept(ticket)), ..reply },
            None => Reply::of(Status::NoMemory),
        }
    }

    /// Makes an empty item that this client has won, if it wants that.
    fn meta_vivify(&mut self, hash: u32, command: &Command) -> Reply {
        self.tally.get_misses += 1;
        let Some(expires) = command.vivify else { return Reply::of(Status::Missing) };
        let body = Body::new(&command.key, [&[], &[]], &mut self.scratch);
        if !self.store(hash, None, 0, expires, body) {
            return Reply::of(Status::NoMemory);
        }
        let mut seen = Seen { expires, unique: self.unique, ..Seen::default() };
        if let Some(cell) = self.find(hash, &command.key) {
            let body = &mut self.cells[cell].body;
            body.set_used(body.used().with(Used::SENT));
        }
        seen.is_won = true;
        let value = command.wants_value.then(|| Value::Here(ByteBuf::new()));
        Reply { status: Status::Done, seen, value }
    }

    fn meta_set(&mut self, hash: u32, cell: Option<u32>, command: &Command) -> Reply {
        let old = cell.map(|cell| self.seen(cell));
        let mut op = match command.mode {
            b'E' => Op::Add,
            b'R' => Op::Replace,
            b'A' => Op::Append,
            b'P' => Op::Prepend,
            _ => Op::Set,
        };
        let (mut expires, mut marks) = (command.expires.unwrap_or(0), 0);
        match (command.unique, &old) {
            (Some(_), None) if matches!(op, Op::Set | Op::Replace) => return Reply::of(Status::Missing),
            (Some(unique), Some(old)) if op != Op::Add && unique != old.unique => {
                // A value that is older than the one it is for may stand in for a newer one, marked.
                let may_be_stale = command.invalidates && unique < old.unique && matches!(op, Op::Set | Op::Replace);
                if !may_be_stale {
                    return Reply::of(Status::Exists);
                }
                expires = old.expires;
                marks = Used::STALE | if old.is_sent { Used::SENT } else { 0 };
            }
            _ => {}
        }
        if let (Some(vivify), None, Op::Append | Op::Prepend) = (command.vivify, &old, op) {
            (op, expires) = (Op::Set, vivify);
        }
        let Command { key, value, flags, .. } = command;
        let answer = self.change(hash, &table::Command { op, key, value, flags: *flags, expires, number: 0 });
        match answer {
            Answer::Stored => self.meta_stored(hash, command, marks),
            Answer::NotStored => Reply::of(Status::NotStored),
            _ => Reply::of(Status::NoMemory),
        }
    }

    /// The item of this command has just been stored.
    fn meta_stored(&mut self, hash: u32, command: &Command, marks: u32) -> Reply {
        let Some(cell) = self.find(hash, &command.key) else {
            // It has expired at once.
            return Reply { seen: Seen { unique: self.unique, ..Seen::default() }, ..Reply::of(Status::Done) };
        };
        self.set_unique(cell, command.new_unique);
        let body = &mut self.cells[cell].body;
        body.set_used(body.used().with(marks));
        Reply { seen: self.seen(cell), ..Reply::of(Status::Done) }
    }

    /// 0 is that of free cells.
    fn set_unique(&mut self, cell: u32, unique: Option<u64>) {
        if let Some(unique) = unique.filter(|unique| *unique != 0) {
            self.cells[cell].unique = unique;
        }
    }

    fn meta_delete(&mut self, hash: u32, cell: u32, command: &Command) -> Reply {
        let seen = self.seen(cell);
        if command.unique.is_some_and(|unique| unique != seen.unique) {
            return Reply::of(Status::Exists);
        }
        self.tally.delete_hits += 1;
        let done = Reply { seen, ..Reply::of(Status::Done) };
        if !command.invalidates && !command.empties {
            self.remove(cell);
            return done;
        }
        if command.empties {
            let body = Body::new(&command.key, [&[], &[]], &mut self.scratch);
            if !self.store(hash, Some(cell), 0, seen.expires, body) {
                return Reply::of(Status::NoMemory);
            }
        }
        let Some(cell) = self.find(hash, &command.key) else { return done };
        self.unique += 1;
        let unique = command.new_unique.unwrap_or(self.unique);
        self.set_unique(cell, Some(unique));
        let item = &mut self.cells[cell];
        item.expires = command.expires.unwrap_or(seen.expires);
        if command.invalidates {
            // The next client may win it.
            let read = if seen.was_read { Used::READ } else { 0 };
            item.body.set_used(item.body.used().only(Used::STALE | read));
        }
        done
    }

    fn meta_count(&mut self, hash: u32, cell: Option<u32>, command: &Command) -> Reply {
        let op = if matches!(command.mode, b'D' | b'-') { Op::Decrement } else { Op::Increment };
        let number = match (cell, command.vivify) {
            (Some(cell), _) => {
                let seen = self.seen(cell);
                if command.unique.is_some_and(|unique| unique != seen.unique) {
                    return Reply::of(Status::Exists);
                }
                let count = table::Command { number: command.delta, ..table::Command::on(op, &command.key) };
                match self.change(hash, &count) {
                    Answer::Number(number) => number,
                    Answer::NotANumber => return Reply::of(Status::NotANumber),
                    _ => return Reply::of(Status::NoMemory),
                }
            }
            (None, Some(expires)) => {
                let mut buffer = itoa::Buffer::new();
                let value = buffer.format(command.initial).as_bytes();
                let add = table::Command { value, expires, ..table::Command::on(Op::Add, &command.key) };
                if self.change(hash, &add) != Answer::Stored {
                    return Reply::of(Status::NoMemory);
                }
                command.initial
            }
            (None, None) => {
                let missed = table::Command { number: command.delta, ..table::Command::on(op, &command.key) };
                self.change(hash, &missed); // which is counted
                return Reply::of(Status::Missing);
            }
        };
        if let (Some(cell), Some(expires)) = (cell, command.expires) {
            self.cells[cell].expires = expires;
        }
        let text = itoa::Buffer::new().format(number).as_bytes().to_vec();
        let mut reply = self.meta_stored(hash, command, 0);
        reply.seen.bytes = text.len() as u32;
        Reply { value: command.wants_value.then(|| Value::Here(ByteBuf::from(text))), ..reply }
    }

    /// Keys of items, in no order, up to so many bytes of keys; with the lengths of values, and when they expire.
    pub fn keys(&self, bytes_max: usize) -> Vec<(ByteBuf, u32, u32)> {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        for place in &self.index {
            let cell = &self.cells[place.cell];
            bytes += cell.body.key().len();
            if bytes > bytes_max {
                break;
            }
            if !clock::has_passed(cell.expires) {
                keys.push((ByteBuf::from(cell.body.key()), cell.body.value().len() as u32, cell.expires));
            }
        }
        keys
    }
}
