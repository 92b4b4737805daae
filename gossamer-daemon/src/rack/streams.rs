//! The threads of a program on a rack: for each host one that receives and one that sends, for each of stdout and
//! stderr one that writes, and one that reads the input.
//!
//! Invariants: no receiving thread ever waits for anything but its connection, so signs of life and deaths are seen
//! while nobody reads the output; the unwritten output is bounded by the window, which hosts get back only after the
//! write.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

use comm::secure::{SecureReader, SecureWriter};

use super::Event;
use super::hosts::{Down, Hosts, Queue};
use crate::input::{self, Reader};
use crate::output::{Lines, Target, Unwritten};
use crate::panics;
use crate::wire::link::Link;
use crate::wire::{BEAT_MS, FromPart, Receiver, Sender, Stream, ToPart, WINDOW_BYTES, WireError};

/// A piece of a machine's output.
struct Piece {
    host: usize,
    machine: u16,
    bytes: Vec<u8>,
}

/// The writing threads.
pub struct Outputs {
    count: usize,
}

impl Outputs {
    /// Waits until all output is written, or a signal comes; returns the streams that have failed meanwhile. Called
    /// after the hosts' connections have ended.
    pub fn finish(self, events: &mpsc::Receiver<Event>) -> Vec<Unwritten> {
        let mut left = self.count;
        let mut unwritten = Vec::new();
        while left > 0 {
            match events.recv() {
                Ok(Event::Written) => left -= 1,
                Ok(Event::Unwritten(stream)) => unwritten.push(stream),
                Ok(Event::Signal(_)) | Err(_) => break,
                Ok(_) => {}
            }
        }
        unwritten
    }
}

/// Flow control of the input: the bytes that may be sent.
#[derive(Clone)]
pub struct Input(Arc<(Mutex<u32>, Condvar)>);

impl Input {
    /// Allows this many more bytes.
    pub fn grant(&self, bytes: u32) {
        let mut window = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        *window = window.saturating_add(bytes).min(WINDOW_BYTES);
        self.0.1.notify_all();
    }

    fn take(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let window = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut window = self.0.1.wait_while(window, |window| *window < bytes).unwrap_or_else(PoisonError::into_inner);
        *window -= bytes;
    }
}

/// Starts all threads of a program. `start_limit`: time until the first message of each host, which comes when its
/// machines run; from there on a host is silent for `silence` at most. `prefixes`: one for each machine.
///
/// # Errors
/// When the system has no threads left, or refuses a time limit on a connection.
pub fn connect(
    links: Vec<Link>,
    (start_limit, silence): (Duration, Duration),
    prefixes: &[String],
    stdin: Reader,
    event_sender: mpsc::Sender<Event>,
) -> io::Result<(Hosts, Outputs, Input)> {
    let mut ends = Vec::new();
    let mut queues = Vec::new();
    let mut writers = Vec::new();
    for (host, link) in links.into_iter().enumerate() {
        let (queue, messages) = mpsc::channel();
        let Link { mut receiver, mut sender, .. } = link;
        receiver
            .set_timeout(Some(start_limit))
            .and_then(|()| sender.set_timeout(Some(silence)))
            .map_err(io::Error::other)?;
        writers.push(panics::spawn(format!("to {host}"), move || send_all(sender, &messages))?);
        queues.push(queue);
        ends.push((host, receiver));
    }
    let (stdout, stderr) = Target::standard();
    let mut pieces = Vec::new();
    for (stream, target) in [(Stream::Out, stdout), (Stream::Err, stderr)] {
        let (sender, received) = mpsc::channel();
        let writer =
            Writer { stream, target, prefixes: prefixes.to_vec(), lines: BTreeMap::new(), queues: queues.clone() };
        let event_sender = event_sender.clone();
        panics::spawn(format!("{stream:?}"), move || writer.write_all(&received, &event_sender))?;
        pieces.push(sender);
    }
    for (host, receiver) in ends {
        let (pieces, event_sender) = (pieces.clone(), event_sender.clone());
        panics::spawn(format!("from {host}"), move || {
            receive_all(host, receiver, &pieces, &event_sender, (start_limit, silence));
        })?;
    }
    let input = Input(Arc::new((Mutex::new(WINDOW_BYTES), Condvar::new())));
    let (window, first) = (input.clone(), queues[0].clone()); // machine 0 is on the first host
    match stdin {
        Reader::Machine0 => drop(panics::spawn("input", move || read_input(&window, &first))?),
        Reader::None => drop(first.send(Down::Say(ToPart::InputEnd))), // fails only if the host is cut off
    }
    Ok((Hosts::new(queues, writers), Outputs { count: 2 }, input))
}

/// Sends the queued messages, or else a sign of life.
fn send_all(mut sender: SecureWriter, messages: &mpsc::Receiver<Down>) {
    loop {
        let message = match messages.recv_timeout(Duration::from_millis(BEAT_MS)) {
            Ok(Down::Say(message)) => message,
            Err(mpsc::RecvTimeoutError::Timeout) => ToPart::Beat,
            Ok(Down::Leave) | Err(mpsc::RecvTimeoutError::Disconnected) => return sender.shut_down(),
        };
        if sender.send_message(&message).is_err() {
            return sender.shut_down(); // the receiving thread reports the cause
        }
    }
}

fn receive_all(
    host: usize,
    mut receiver: SecureReader,
    pieces: &[mpsc::Sender<Piece>],
    event_sender: &mpsc::Sender<Event>,
    (start_limit, silence): (Duration, Duration),
) {
    let mut limit = start_limit;
    loop {
        let mut received = receiver.receive_message();
        if limit != silence && received.is_ok() {
            limit = silence;
            received = receiver.set_timeout(Some(silence)).map_err(WireError::from).and(received);
        }
        let event = match received {
            Ok(FromPart::Output { machine, stream, bytes }) => {
                // Fails only if the writing thread has ended.
                let _ = pieces[stream as usize].send(Piece { host, machine, bytes });
                continue;
            }
            Ok(FromPart::Beat) => continue,
            Ok(said) => Event::Received(host, said),
            Err(error) => Event::Cut(host, describe(&error, limit)),
        };
        let is_end = matches!(event, Event::Cut(..));
        if event_sender.send(event).is_err() || is_end {
            return;
        }
    }
}

fn describe(error: &WireError, limit: Duration) -> String {
    match error {
        WireError::Secure(comm::Error::TimedOut { .. }) => {
            format!("nothing was heard for {limit:?}: it is cut off or hangs, or its daemon was stopped")
        }
        WireError::Closed | WireError::Secure(comm::Error::Closed { .. }) => {
            "its daemon has closed the connection: it has ended, or was killed".into()
        }
        other => other.to_string(),
    }
}

/// Writes one stream of all machines to one of this process's.
struct Writer {
    stream: Stream,
    target: Target,
    prefixes: Vec<String>,
    lines: BTreeMap<u16, Lines>,
    queues: Vec<Queue>,
}

impl Writer {
    fn write_all(mut self, pieces: &mpsc::Receiver<Piece>, event_sender: &mpsc::Sender<Event>) {
        let mut out = Vec::new();
        let mut is_open = true;
        for Piece { host, machine, bytes } in pieces {
            let Some(prefix) = self.prefixes.get(usize::from(machine)) else { continue };
            if is_open {
                self.lines.entry(machine).or_insert_with(|| Lines::new(prefix)).push(&bytes, &mut out);
                is_open = self.write(&out, event_sender);
                out.clear();
            }
            let granted = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            // Fails if cut off.
            let _ = self.queues[host].send(Down::Say(ToPart::Grant { stream: self.stream, bytes: granted }));
        }
        self.lines.values_mut().for_each(|lines| lines.end(&mut out));
        if is_open {
            self.write(&out, event_sender);
        }
        let _ = event_sender.send(Event::Written); // fails only if nobody waits
    }

    /// Writes the bytes; false if it failed.
    fn write(&self, bytes: &[u8], event_sender: &mpsc::Sender<Event>) -> bool {
        let written = self.target.write(bytes);
        if let Err(error) = written {
            let unwritten = Unwritten { stream: self.stream, error: error.into() };
            let _ = event_sender.send(Event::Unwritten(unwritten)); // fails only if nobody waits
        }
        written.is_ok()
    }
}

/// Passes standard input on to machine 0. Nobody joins the thread: it may wait for a key for ever, and ends with the
/// process.
fn read_input(window: &Input, first: &Queue) {
    input::pump(|bytes| {
        window.take(bytes.len());
        first.send(Down::Say(ToPart::Input(bytes.to_vec()))).is_ok()
    });
    let _ = first.send(Down::Say(ToPart::InputEnd)); // fails only if the host is cut off
}
