//! One connection, as one fiber sees it: read, run what was read, wait for the answers, send them, and again.
//!
//! A client may send any number of requests before it reads a reply (pipelining). As many as have come are run one after the
//! other without waiting, and their replies leave in one write. While a client does not read its replies nothing more is
//! read from it, so what a connection has in memory is bounded: what it has read, a burst of replies, and one large value.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;

use super::replies::{Form, Replies};
use super::request::{self, Line, Request, Words};
use super::server::{Client, Server};
use super::table::{Command, Op, Table, VALUE_BYTES_MAX};

/// Memory for what is read from a client that sends no large values.
const INPUT_BYTES: usize = 16 << 10;
/// Requests that are run before their answers are waited for.
const BURST_REQUESTS: usize = 512;
/// Bytes of replies that are made before they are sent.
const BURST_BYTES: usize = 256 << 10;

/// What a connection does next.
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
}

impl<T: Table> Connection<T> {
    /// Of this client.
    pub fn new(client: Arc<Client>, server: Arc<Server>, table: Rc<T>) -> Self {
        let (replies, input) = (Replies::new(), Vec::new());
        Connection { client, server, table, replies, input, start: 0, end: 0, unwanted: 0 }
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

    /// Reads what there is, with room for what is known to be missing. False at the end.
    fn read(&mut self, missing: usize) -> io::Result<bool> {
        let unread = self.end - self.start;
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, unread);
        }
        // A client that announces much and sends little gets room for twice what it has sent.
        let room = (unread + missing).min(2 * unread).max(unread + 1).max(INPUT_BYTES);
        if self.input.len() < room {
            self.input.resize(room, 0);
        } else if room == INPUT_BYTES && self.input.len() > INPUT_BYTES {
            self.input.truncate(INPUT_BYTES);
            self.input.shrink_to_fit();
        }
        match (&self.client.stream).read(&mut self.input[self.end..]) {
            Ok(bytes) => {
                self.end += bytes;
                self.client.has_read(bytes);
                Ok(bytes > 0)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits for the answers and sends them.
    fn send(&self) -> io::Result<()> {
        loop {
            self.replies.wait();
            let value = self.replies.to_fetch();
            if value.is_some() {
                self.write_output()?; // before there is a large value beside it
            }
            match value {
                Some(value) => self.replies.fetched(&super::table::Large::fetch(value)),
                None => return self.write_output(),
            }
        }
    }

    fn write_output(&self) -> io::Result<()> {
        let output = self.replies.output();
        let sent = if output.is_empty() { Ok(()) } else { (&self.client.stream).write_all(&output) };
        self.client.has_written(output.len());
        self.replies.sent(output);
        sent
    }

    /// Is there enough to be answered and sent first?
    fn is_burst_full(&self) -> bool {
        let (requests, bytes) = self.replies.under_way();
        requests >= BURST_REQUESTS || bytes >= BURST_BYTES
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
                Line::Incomplete => return Ok(Next::Read(input.len().max(1))),
                Line::Unusable => return Ok(Next::End),
            };
            match request::parse(line) {
                Request::Store { command, value_bytes, quiet } => {
                    if value_bytes > VALUE_BYTES_MAX {
                        self.refuse_value(&command, quiet);
                        self.unwanted = value_bytes + 2;
                        self.start += line_bytes;
                        continue;
                    }
                    let whole = line_bytes + value_bytes + 2;
                    if input.len() < whole {
                        return Ok(Next::Read(whole - input.len()));
                    }
                    let (value, ending) = input[line_bytes..whole].split_at(value_bytes);
                    if ending == b"\r\n" {
                        self.run(&Command { value, ..command }, quiet);
                    } else if !quiet {
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

    fn run(&self, command: &Command<'_>, quiet: bool) {
        if quiet {
            self.table.run(command, |_| {});
        } else {
            let awaited = self.replies.expect(Form::Line, b"");
            self.table.run(command, |answer| awaited.answer(answer));
        }
    }

    /// A value that is too large. What was there before is not what the client has now.
    fn refuse_value(&self, command: &Command<'_>, quiet: bool) {
        if !quiet {
            self.replies.say(&[b"SERVER_ERROR object too large for cache\r\n"]);
        }
        if command.op == Op::Set {
            self.table.run(&Command::on(Op::Delete, command.key), |_| {});
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
                    self.table.run(&Command { expires, ..Command::on(op, key) }, |answer| awaited.answer(answer));
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
            Request::Version => self.say(concat!("VERSION ", env!("CARGO_PKG_VERSION")), false),
            Request::Said { reply, quiet } => self.say(reply, quiet),
            Request::Store { .. } | Request::Quit => {}
        }
        Ok(())
    }

    fn say(&self, line: &str, quiet: bool) {
        if !quiet {
            self.replies.say(&[line.as_bytes(), b"\r\n"]);
        }
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
            Some(b"cachedump") if which.count() < 2 => self.say("CLIENT_ERROR bad command line", false),
            Some(b"items" | b"slabs" | b"conns" | b"cachedump") => self.say("END", false),
            Some(_) => self.say("ERROR", false),
        }
    }
}
