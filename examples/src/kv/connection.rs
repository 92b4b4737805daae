//! One connection, as one fiber sees it: read, run the commands read, wait for the answers, send them, and again.
//!
//! A client may send any number of requests before it reads a reply (pipelining). All that have arrived are run one
//! after the other without waiting, and their replies leave in one write. While a client does not read its replies
//! nothing more is read from it, so the memory of a connection is bounded: its input, a burst of replies, and one large
//! value. The server's budget has all of that but some KiB: where it is used up bursts are small, and large values are
//! refused. A client that is silent for a while has no memory at all.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_bytes::ByteBuf;

use super::budget::Part;
use super::meta::{self, Meta};
use super::replies::{Awaited, Form, Replies};
use super::request::{self, Line, Request};
use super::server::{Client, Server, VERSION};
use super::size::fits;
use super::table::{Command, Large, Op, Table};
use super::words::{Words, number};
use crate::memory;

/// Read buffer of a client that sends no large values.
const INPUT_BYTES: usize = 16 << 10;
/// Requests that are run before their answers are waited for.
const BURST_REQUESTS: usize = 512;
/// Bytes of replies that are made before they are sent.
const BURST_BYTES: usize = 256 << 10;
/// The same where the server has no memory for more, and bytes of a large value that are not counted.
const SMALL_BURST_REQUESTS: usize = 64;
const SMALL_BURST_BYTES: usize = 16 << 10;
/// Bytes of keys that `stats cachedump` tells.
const DUMP_BYTES: usize = 512 << 10;
/// Time of a client's silence after which its memory is given back.
const IDLE: Duration = Duration::from_secs(1);
/// Time for which a client may stop within a large value, which holds memory of all.
const STALLED: Duration = Duration::from_secs(30);

/// Bytes of input that a connection has room for. A client that announces much and sends little gets room for twice
/// its commands.
fn room_for(unread: usize, missing: usize) -> usize {
    (unread + missing).min(2 * unread).max(unread + 1).max(INPUT_BYTES)
}

/// The next step of a connection.
#[derive(PartialEq, Eq)]
enum Next {
    /// It has to read: so many bytes are known to be missing.
    Read(usize),
    /// There may be more to run once the replies so far are sent.
    Send,
    /// It ends once the replies so far are sent.
    End,
}

/// See the file's documentation.
pub struct Connection<T: Table> {
    client: Arc<Client>,
    server: Arc<Server>,
    table: Rc<T>,
    replies: Rc<Replies<T::Large>>,
    input: Vec<u8>,
    /// The part of the input that was read and not run.
    start: usize,
    end: usize,
    /// Bytes of a value that is too large: they are read and forgotten.
    unwanted: usize,
    /// Parts of the budget that the input has, and the output.
    input_part: Part,
    output_part: RefCell<Part>,
}

impl<T: Table> Connection<T> {
    /// Makes the connection of this client.
    pub fn new(client: Arc<Client>, server: Arc<Server>, table: Rc<T>) -> Self {
        let (replies, input) = (Replies::new(), Vec::new());
        let input_part = Part::new(server.budget());
        let output_part = RefCell::new(Part::new(server.budget()));
        Connection { client, server, table, replies, input, start: 0, end: 0, unwanted: 0, input_part, output_part }
    }

    /// Serves the client until it leaves, or the server stops.
    ///
    /// # Errors
    /// The system's; a client that has gone is none.
    pub fn serve(mut self) -> io::Result<()> {
        loop {
            let next = self.run_burst()?;
            self.send()?;
            match next {
                Next::End => return self.client.stream.shutdown(Shutdown::Both),
                Next::Send => {}
                Next::Read(missing) => {
                    if self.server.is_stopping() || !self.read(missing)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Reads as much as there is, with room for the missing rest of a command. False at the end.
    fn read(&mut self, missing: usize) -> io::Result<bool> {
        let unread = self.end - self.start;
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, unread);
        }
        let room = room_for(unread, missing);
        if self.input.len() < room {
            self.input.reserve_exact(room - self.input.len());
            self.input.resize(room, 0);
        } else if room == INPUT_BYTES && self.input.len() > INPUT_BYTES {
            self.input.truncate(INPUT_BYTES);
            self.input.shrink_to_fit();
        }
        if room == INPUT_BYTES {
            self.input_part.try_have(0);
        }
        let timeout = if unread == 0 { Some(IDLE) } else { Some(STALLED).filter(|_| self.input_part.bytes() > 0) };
        self.client.stream.set_read_timeout(timeout)?;
        match (&self.client.stream).read(&mut self.input[self.end..]) {
            Ok(bytes) => {
                self.end += bytes;
                self.client.has_read(bytes);
                Ok(bytes > 0)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::TimedOut && unread == 0 => self.wait_without_memory(),
            Err(error) => Err(error),
        }
    }

    /// Waits for an idle client. True, although nothing was read.
    fn wait_without_memory(&mut self) -> io::Result<bool> {
        self.input = Vec::new();
        self.replies.shrink();
        let freed = Instant::now();
        self.client.stream.set_read_timeout(Some(IDLE))?;
        loop {
            match self.client.stream.peek(&mut [0]) {
                Ok(_) => return Ok(true),
                // The first of the clients that became idle in the meantime does it for all.
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    if memory::give_back_since(freed) {
                        self.client.stream.set_read_timeout(None)?;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether there is memory to read the missing bytes, as far as the client may have room for them now. Waits for
    /// others for a while.
    fn has_room(&mut self, missing: usize) -> bool {
        let room = room_for(self.end - self.start, missing);
        let more = room.max(self.input.len()) - INPUT_BYTES.min(room);
        self.input_part.have(more)
    }

    /// Waits for the answers and sends them.
    fn send(&self) -> io::Result<()> {
        self.table.send();
        loop {
            self.replies.wait();
            let value = self.replies.to_fetch();
            let Some(value) = value else { return self.write_output() };
            self.write_output()?; // before there is a large value beside it
            // It is there twice, as it comes and in the output.
            let bytes = 2 * value.bytes();
            if bytes > SMALL_BURST_BYTES && !self.output_part.borrow_mut().have(bytes) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "other clients have not read their replies"));
            }
            self.replies.fetched(&value.fetch());
        }
    }

    fn write_output(&self) -> io::Result<()> {
        let output = self.replies.output();
        let sent = if output.is_empty() { Ok(()) } else { (&self.client.stream).write_all(&output) };
        self.client.has_written(output.len());
        self.replies.sent(output);
        self.output_part.borrow_mut().try_have(0);
        sent
    }

    /// Is there enough to be answered and sent first?
    fn is_burst_full(&self) -> bool {
        let (requests, bytes) = self.replies.under_way();
        if requests < SMALL_BURST_REQUESTS && bytes < SMALL_BURST_BYTES {
            return false;
        }
        requests >= BURST_REQUESTS || bytes >= BURST_BYTES || !self.output_part.borrow_mut().try_have(BURST_BYTES)
    }

    /// Runs requests that have come whole, up to a burst.
    fn run_burst(&mut self) -> io::Result<Next> {
        loop {
            if self.unwanted > 0 {
                let skipped = self.unwanted.min(self.end - self.start);
                self.start += skipped;
                self.unwanted -= skipped;
            }
            if self.is_burst_full() {
                return Ok(Next::Send);
            }
            let input = &self.input[self.start..self.end];
            let (line, line_bytes) = match request::first_line(input) {
                Line::Whole(line, bytes) => (line, bytes),
                // As much again: a line that comes in pieces is looked through a few times, not once for each piece.
                Line::Incomplete => {
                    let missing = input.len().max(1);
                    return Ok(if self.has_room(missing) { Next::Read(missing) } else { Next::End });
                }
                Line::Unusable => return Ok(Next::End),
            };
            match request::parse(line) {
                Request::Store { command, value_bytes, quiet } => {
                    if !fits(command.key.len(), command.flags, value_bytes) {
                        self.refuse_value(&command, "SERVER_ERROR object too large for cache", quiet);
                        self.unwanted = value_bytes + 2;
                        self.start += line_bytes;
                        continue;
                    }
                    let whole = line_bytes + value_bytes + 2;
                    if input.len() < whole {
                        let missing = whole - input.len();
                        if self.has_room(missing) {
                            return Ok(Next::Read(missing));
                        }
                        self.refuse_stored(line_bytes);
                        continue;
                    }
                    let (value, ending) = input[line_bytes..whole].split_at(value_bytes);
                    if ending == b"\r\n" {
                        self.run(&Command { value, ..command }, quiet);
                    } else if !quiet {
                        self.replies.say(&[b"CLIENT_ERROR bad data chunk\r\n"]);
                    }
                    self.start += whole;
                }
                Request::Meta(meta) => {
                    let Some(value_bytes) = meta.value_bytes else {
                        self.run_meta(&meta, &[]);
                        self.start += line_bytes;
                        continue;
                    };
                    let whole = line_bytes + value_bytes + 2;
                    let is_possible = fits(meta.command.key.len(), meta.command.flags, value_bytes);
                    if meta.error.is_some() || !is_possible {
                        self.refuse_meta(&meta);
                        self.unwanted = value_bytes + 2;
                        self.start += line_bytes;
                        continue;
                    }
                    if input.len() < whole {
                        let missing = whole - input.len();
                        if self.has_room(missing) {
                            return Ok(Next::Read(missing));
                        }
                        self.refuse_stored(line_bytes);
                        continue;
                    }
                    let (value, ending) = input[line_bytes..whole].split_at(value_bytes);
                    if ending == b"\r\n" {
                        self.run_meta(&meta, value);
                    } else {
                        self.replies.say(&[b"CLIENT_ERROR bad data chunk\r\n"]);
                    }
                    self.start += whole;
                }
                Request::Quit => return Ok(Next::End),
                other => {
                    self.run_other(&other)?;
                    self.start += line_bytes;
                }
            }
        }
    }

    fn run_meta(&self, meta: &Meta<'_>, value: &[u8]) {
        if let Some(error) = meta.error {
            return self.say(error, false);
        }
        let (awaited, echo) = (self.replies.expect(Form::Line, b""), meta.echo());
        let command = meta::Command { value: ByteBuf::from(value), ..meta.command.clone() };
        self.table.meta(command, move |answered| awaited.answer_meta(&echo, answered));
    }

    /// A line that is wrong, or with a value that is too large.
    fn refuse_meta(&self, meta: &Meta<'_>) {
        match meta.error {
            Some(error) => self.say(error, false),
            None => {
                let set = Command::on(Op::Set, &meta.command.key);
                self.refuse_value(&set, "SERVER_ERROR object too large for cache", false);
            }
        }
    }

    fn run(&self, command: &Command<'_>, quiet: bool) {
        self.table.run(command, if quiet { Awaited::nobody() } else { self.replies.expect(Form::Line, b"") });
    }

    /// There is no memory for the value of the command at the start of the input.
    fn refuse_stored(&mut self, line_bytes: usize) {
        let Line::Whole(line, _) = request::first_line(&self.input[self.start..self.end]) else { return };
        let why = "SERVER_ERROR out of memory storing object";
        self.unwanted = match request::parse(line) {
            Request::Store { command, value_bytes, quiet } => {
                self.refuse_value(&command, why, quiet);
                value_bytes + 2
            }
            Request::Meta(meta) => {
                self.refuse_value(&Command::on(Op::Set, &meta.command.key), why, false);
                meta.value_bytes.map_or(0, |bytes| bytes + 2)
            }
            _ => 0,
        };
        self.start += line_bytes;
    }

    /// Refuses a value. The client has another one now than the table, so that goes.
    fn refuse_value(&self, command: &Command<'_>, why: &str, quiet: bool) {
        self.say(why, quiet);
        if command.op == Op::Set {
            self.table.run(&Command::on(Op::Delete, command.key), Awaited::nobody());
        }
    }

    fn run_other(&self, request: &Request<'_>) -> io::Result<()> {
        match *request {
            Request::Get { unique, touch, keys } => {
                let form = if unique { Form::ItemWithUnique } else { Form::Item };
                let (op, expires) = touch.map_or((Op::Get, 0), |expires| (Op::GetAndTouch, expires));
                for key in keys {
                    // A line may have very many keys.
                    if self.is_burst_full() {
                        self.send()?;
                    }
                    let awaited = self.replies.expect(form, key);
                    self.table.run(&Command { expires, ..Command::on(op, key) }, awaited);
                }
                self.replies.say(&[b"END\r\n"]);
            }
            Request::Change { ref command, quiet } => self.run(command, quiet),
            Request::FlushAll { at, quiet } => {
                self.table.flush(at);
                self.say("OK", quiet);
            }
            Request::LimitMemory { mib, quiet } => {
                self.table.limit_memory((mib as usize) << 20);
                self.say("OK", quiet);
            }
            Request::Stats(which) => self.stats(which),
            Request::Version => self.replies.say(&[b"VERSION ", VERSION.as_bytes(), b"\r\n"]),
            Request::Said { reply, quiet } => self.say(reply, quiet),
            Request::Store { .. } | Request::Meta(_) | Request::Quit => {}
        }
        Ok(())
    }

    fn say(&self, line: &str, quiet: bool) {
        if !quiet {
            self.replies.say(&[line.as_bytes(), b"\r\n"]);
        }
    }

    /// As of the first class of slabs: so many keys, 0 for all, as far as they fit.
    fn dump_keys(&self, count: &[u8]) {
        let most = number(count).filter(|count| *count > 0).map_or(usize::MAX, |count| count as usize);
        for (key, bytes, expires) in self.table.keys(DUMP_BYTES).into_iter().take(most) {
            let what = format!(" [{bytes} b; {expires} s]\r\n");
            self.replies.say(&[b"ITEM ", &key, what.as_bytes()]);
        }
        self.say("END", false);
    }

    fn stats(&self, mut which: Words<'_>) {
        match which.next() {
            None => {
                let lines = self.server.stats(self.table.counts());
                self.replies.say(&[lines.as_bytes(), b"END\r\n"]);
            }
            Some(b"reset") => {
                self.table.reset_counts();
                self.server.reset_counts();
                self.say("RESET", false);
            }
            Some(b"settings") => self.replies.say(&[self.server.settings().as_bytes(), b"END\r\n"]),
            // Memory is not in slabs, so there is nothing to tell of them.
            Some(b"cachedump") => match (which.next(), which.next()) {
                (Some(b"1"), Some(count)) => self.dump_keys(count),
                (Some(_), Some(_)) => self.say("END", false),
                _ => self.say("CLIENT_ERROR bad command line", false),
            },
            Some(b"items" | b"slabs" | b"conns") => self.say("END", false),
            Some(_) => self.say("ERROR", false),
        }
    }
}
