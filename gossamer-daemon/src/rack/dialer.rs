//! Steps of a program's start on one host, from the launcher's side: the host takes the program, gets its files, and
//! starts it. Not here: the order of the hosts' steps (`hosts`, `queue`).

use comm::deadline::deadline_after;
use std::fs::File;
use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use comm::secure::Keys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::plan::Files;
use super::{Event, RackError};
use crate::config::{Host, RackConfig};
use crate::daemon::cache::{path_of, read_piece};
use crate::error::LaunchError;
use crate::options::RunOptions;
use crate::panics;
use crate::wire::link::Link;
use crate::wire::{CHUNK_BYTES, Carried, Receiver, Reply, Request, Sender, Start, WireError};

/// Connects to the hosts of a rack: their addresses and keys, and the channel for the results.
pub struct Dialer<'a> {
    /// The rack.
    pub rack: &'a RackConfig,
    /// Options of the run.
    pub options: &'a RunOptions,
    /// The chosen hosts.
    pub chosen: &'a [Host],
    /// Its keys.
    pub keys: &'a Keys,
    /// Sender into `events`.
    pub event_sender: &'a mpsc::Sender<Event>,
    /// Events of the program.
    pub events: &'a mpsc::Receiver<Event>,
    /// Shows the user a message meanwhile.
    pub notice: fn(&str),
}

/// Takes a host's next step in a thread, and reports its result; a panic of it is a failure of that host.
pub(super) fn spawn(
    number: usize,
    event_sender: &mpsc::Sender<Event>,
    step: impl FnOnce() -> Result<Link, String> + Send + 'static,
) -> Result<(), RackError> {
    let event_sender = event_sender.clone();
    let take = move || {
        let link = panics::or_text(step).flatten().map(Box::new);
        let _ = event_sender.send(Event::Connected(number, link)); // a signal came meanwhile
    };
    panics::spawn("host", take).map(drop).map_err(no_thread)
}

pub(super) fn no_thread(error: io::Error) -> RackError {
    RackError::Launch(LaunchError::system("start a thread")(error))
}

/// Asks a host to take the program, and waits until it has reserved room for it.
pub(super) fn admit(link: Link, start: Start, limit: Duration) -> Result<Link, String> {
    admit_in_turn(link, start, limit, |_, _| ())
}

/// The same; where the program waits for room, calls `tell` with the number of those before it, and the number that may
/// run.
pub(super) fn admit_in_turn(
    mut link: Link,
    start: Start,
    limit: Duration,
    mut tell: impl FnMut(u32, u16),
) -> Result<Link, String> {
    let in_words = |error: &dyn std::fmt::Display| error.to_string();
    // A host gives signs of life for as long as it takes to find its executable or to receive it.
    link.set_timeout(limit).map_err(|error| in_words(&error))?;
    link.sender.send_message(&Request::Run(Box::new(start))).map_err(|error| in_words(&error))?;
    loop {
        match link.receiver.receive_message().map_err(|error| in_words(&error))? {
            Reply::Beat => return Ok(link),
            Reply::Queued { before, most } => tell(before, most),
            Reply::Refused(reason) => return Err(reason),
            _ => return Err("it answers what was not asked".into()),
        }
    }
}

/// Waits until a host has the program's files, and sends those that it lacks.
pub(super) fn prepare(mut link: Link, files: &Files, limit: Duration) -> Result<Link, String> {
    loop {
        match link.receiver.receive_message().map_err(|error| not_sent(&error, limit))? {
            Reply::Ready => return Ok(link),
            Reply::Beat => {}
            Reply::Refused(reason) => return Err(reason),
            Reply::NeedProgram => send_file(&mut link, &files.program, "the program", limit)?,
            Reply::NeedLibrary if let Some(library) = &files.library => {
                send_file(&mut link, library, "the library that the program loads first", limit)?;
            }
            _ => return Err("it answers what was not asked".into()),
        }
    }
}

/// Has a host start its machines.
pub(super) fn go(mut link: Link) -> Result<Link, String> {
    link.sender.send_message(&Request::Go).map_err(|error| error.to_string())?;
    match link.receiver.receive_message().map_err(|error| error.to_string())? {
        Reply::Accepted => Ok(link),
        Reply::Refused(reason) => Err(reason),
        _ => Err("it answers what was not asked".into()),
    }
}

fn send_file(link: &mut Link, file: &Carried, what: &str, limit: Duration) -> Result<(), String> {
    let path = path_of(&file.path);
    let failed = |error: std::io::Error| format!("{what} cannot be sent: {}: {error}", path.display());
    let mut file = File::open(&path).map_err(failed)?;
    let total = file.metadata().map_err(failed)?.len();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut sent = 0;
    loop {
        let bytes = match read_piece(&mut file, &mut buffer).map_err(failed)? {
            0 => return Ok(()),
            bytes => bytes,
        };
        while has_come(link) {
            expect_beat(link, limit)?;
        }
        let Err(error) = link.sender.send_message(&Request::Chunk(buffer[..bytes].to_vec())) else {
            sent += bytes;
            continue;
        };
        if let WireError::Secure(comm::Error::TimedOut { .. }) = error {
            return Err(format!(
                "{what} cannot be sent: of {total} bytes at most {sent} had gone, and nothing more was taken for \
                 {limit:?}: it hangs, or the link to it is cut"
            ));
        }
        // It may have sent the cause before it hung up.
        let end = deadline_after(limit);
        while Instant::now() < end {
            expect_beat(link, limit)?;
        }
        return Err(not_sent(&error, limit));
    }
}

/// Returns whether the other side has sent something, or hung up.
fn has_come(link: &Link) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(link.receiver.tcp(), PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Reads a host's messages while a program is sent to it: signs of life, or the reason why it takes no more.
fn expect_beat(link: &mut Link, limit: Duration) -> Result<(), String> {
    match link.receiver.receive_message() {
        Ok(Reply::Beat) => Ok(()),
        Ok(Reply::Refused(reason)) => Err(reason),
        Ok(_) => Err("it answers what was not asked".into()),
        Err(error) => Err(not_sent(&error, limit)),
    }
}

/// Returns why a host does not get the program, where the host itself has given no reason.
fn not_sent(error: &WireError, limit: Duration) -> String {
    match error {
        WireError::Secure(comm::Error::TimedOut { .. }) => format!(
            "the program cannot be sent: nothing was heard of the host for {limit:?}: it hangs, or the link to it is \
             cut"
        ),
        error => format!("the program cannot be sent: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_a_hosts_step_is_reported_to_those_who_wait_for_it() {
        let (event_sender, events) = mpsc::channel();
        spawn(3, &event_sender, || panic!("as planted")).unwrap();
        match events.recv_timeout(limits::HANG).expect("nobody waits for ever") {
            Event::Connected(3, Err(reason)) => assert_eq!(reason, "a panic: as planted"),
            _ => panic!("another event"),
        }
    }
}
