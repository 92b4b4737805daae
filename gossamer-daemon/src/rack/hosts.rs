//! The hosts of a program, from the launcher's side: connected and started all at once, or not at all; then sent
//! messages.

use comm::deadline::deadline_after;
use std::fs::File;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use comm::secure::Key;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::plan::Files;
use super::{Event, RackError, queue};
use crate::config::{Host, RackConfig};
use crate::daemon::cache::{path_of, read_piece};
use crate::error::LaunchError;
use crate::options::RunOptions;
use crate::panics;
use crate::wire::link::{self, Link};
use crate::wire::{BEAT_MS, CHUNK_BYTES, Carried, Receiver, Reply, Request, Sender, Start, ToPart, WireError};

/// Links to all hosts in order, or the signal that came before they were there.
pub type Links = Result<Vec<Link>, Signal>;

/// Writes "host a: …" for each.
pub(super) fn list(hosts: &[(String, String)]) -> String {
    let each = hosts.iter().map(|(name, reason)| format!("host {name}: {reason}"));
    each.collect::<Vec<_>>().join("\n  and ")
}

/// Connects to the hosts of a rack: their addresses and key, and the channel for the results.
pub struct Dialer<'a> {
    /// The rack.
    pub rack: &'a RackConfig,
    /// Options of the run.
    pub options: &'a RunOptions,
    /// The chosen hosts.
    pub chosen: &'a [Host],
    /// Its key.
    pub key: &'a Key,
    /// Sender into `events`.
    pub event_sender: &'a mpsc::Sender<Event>,
    /// Events of the program.
    pub events: &'a mpsc::Receiver<Event>,
    /// Shows the user a message meanwhile.
    pub notice: fn(&str),
}

/// Connects to all hosts at once.
///
/// # Errors
/// [`RackError::Hosts`] names each that cannot be reached, and why.
pub fn connect(dialer: &Dialer<'_>) -> Result<Links, RackError> {
    for (number, host) in dialer.chosen.iter().enumerate() {
        let (rack, host, key) = (dialer.rack.clone(), host.clone(), dialer.key.clone());
        let connect = move || link::connect(&rack, &host, &key).map_err(|error| error.to_string());
        spawn(number, dialer.event_sender, connect)?;
    }
    gather(dialer, dialer.chosen, |_| ())
}

/// Starts the program on all hosts at once, when each of them has it and not before: the first machines would otherwise
/// wait for hosts that still take it over.
///
/// One host is asked before the others, the first by name: so as many of several programs that are started at the same
/// time on the same hosts run as these have room for. Asked all at once, one host would let some of them in and another
/// host others, and each program that one of them refuses would have taken the room on the rest.
///
/// # Errors
/// [`RackError::Hosts`] names each that refuses, and why.
pub fn start(dialer: &Dialer<'_>, links: Vec<Link>, start: &Start, files: &Files) -> Result<Links, RackError> {
    if dialer.options.wait {
        drop(links); // a host waits for a request no longer than for a handshake
        queue::enter(dialer, start, files)?;
    } else if let Err(signal) = ask(dialer, links, start, files)? {
        return Ok(Err(signal));
    }
    // Receiving the program may take a host longer than the silence that the others allow.
    let links = match gather(dialer, dialer.chosen, |link| {
        let _ = link.sender.send_message(&Request::Beat); // cut off: noticed at the start
    })? {
        Ok(links) => links,
        Err(signal) => return Ok(Err(signal)),
    };
    for (number, link) in links.into_iter().enumerate() {
        spawn(number, dialer.event_sender, move || go(link))?;
    }
    gather(dialer, dialer.chosen, |link| {
        let _ = link.sender.send_message(&ToPart::Beat); // cut off: noticed when it runs
    })
}

/// Asks all hosts to take the program: one first, then all others at once.
fn ask(dialer: &Dialer<'_>, links: Vec<Link>, start: &Start, files: &Files) -> Result<Result<(), Signal>, RackError> {
    let silence = dialer.options.silence;
    let mut links: Vec<Option<Link>> = links.into_iter().map(Some).collect();
    let first = (0..dialer.chosen.len()).min_by_key(|host| &dialer.chosen[*host].name).unwrap_or(0);
    if let Some(link) = links[first].take() {
        let start = start.of_host(first);
        spawn(0, dialer.event_sender, move || admit(link, start, silence))?;
    }
    let mut admitted = match gather(dialer, &dialer.chosen[first..=first], |_| ())? {
        Ok(links) => links.into_iter().next(),
        Err(signal) => return Ok(Err(signal)),
    };
    for (number, link) in links.into_iter().enumerate() {
        let (start, files) = (start.of_host(number), files.clone());
        let admitted = if number == first { admitted.take() } else { None };
        spawn(number, dialer.event_sender, move || {
            let admitted = match (admitted, link) {
                (Some(link), _) => Ok(link),
                (None, Some(link)) => admit(link, start, silence),
                (None, None) => Err("it was not asked".to_owned()),
            };
            prepare(admitted?, &files, silence)
        })?;
    }
    Ok(Ok(()))
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

/// Waits for all hosts, and gives signs of life to those that are ready.
fn gather(dialer: &Dialer<'_>, chosen: &[Host], mut beat: impl FnMut(&mut Link)) -> Result<Links, RackError> {
    let mut links: Vec<Option<Link>> = chosen.iter().map(|_| None).collect();
    let mut failed = Vec::new();
    let mut beat_at = deadline_after(Duration::from_millis(BEAT_MS));
    while links.iter().flatten().count() + failed.len() < chosen.len() {
        if Instant::now() >= beat_at {
            links.iter_mut().flatten().for_each(&mut beat);
            beat_at = deadline_after(Duration::from_millis(BEAT_MS));
        }
        match dialer.events.recv_timeout(beat_at.saturating_duration_since(Instant::now())) {
            Ok(Event::Connected(number, link)) => match link {
                Ok(link) => links[number] = Some(*link),
                Err(reason) => failed.push((chosen[number].name.clone(), reason)),
            },
            Ok(Event::Signal(signal)) => return Ok(Err(signal)),
            Ok(Event::Queued(host, before, most)) => (dialer.notice)(&queue::notice(&chosen[host].name, before, most)),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    failed.sort();
    if failed.is_empty() { Ok(Ok(links.into_iter().flatten().collect())) } else { Err(RackError::Hosts(failed)) }
}

/// Asks a host to take the program, and waits until it has reserved room for it.
fn admit(link: Link, start: Start, silence: Duration) -> Result<Link, String> {
    admit_in_turn(link, start, silence, |_, _| ())
}

/// The same; where the program waits for room, calls `tell` with the number of those before it, and the number that may
/// run.
pub(super) fn admit_in_turn(
    mut link: Link,
    start: Start,
    silence: Duration,
    mut tell: impl FnMut(u32, u16),
) -> Result<Link, String> {
    let in_words = |error: &dyn std::fmt::Display| error.to_string();
    // A host gives signs of life for as long as it takes to find its executable or to receive it.
    link.set_timeout(silence).map_err(|error| in_words(&error))?;
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
pub(super) fn prepare(mut link: Link, files: &Files, silence: Duration) -> Result<Link, String> {
    loop {
        match link.receiver.receive_message().map_err(|error| not_sent(&error, silence))? {
            Reply::Ready => return Ok(link),
            Reply::Beat => {}
            Reply::Refused(reason) => return Err(reason),
            Reply::NeedProgram => send_file(&mut link, &files.program, "the program", silence)?,
            Reply::NeedLibrary if let Some(library) = &files.library => {
                send_file(&mut link, library, "the library that the program loads first", silence)?;
            }
            _ => return Err("it answers what was not asked".into()),
        }
    }
}

fn go(mut link: Link) -> Result<Link, String> {
    link.sender.send_message(&Request::Go).map_err(|error| error.to_string())?;
    match link.receiver.receive_message().map_err(|error| error.to_string())? {
        Reply::Accepted => Ok(link),
        Reply::Refused(reason) => Err(reason),
        _ => Err("it answers what was not asked".into()),
    }
}

fn send_file(link: &mut Link, file: &Carried, what: &str, silence: Duration) -> Result<(), String> {
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
            expect_beat(link, silence)?;
        }
        let Err(error) = link.sender.send_message(&Request::Chunk(buffer[..bytes].to_vec())) else {
            sent += bytes;
            continue;
        };
        if let WireError::Secure(comm::Error::TimedOut { .. }) = error {
            return Err(format!(
                "{what} cannot be sent: of {total} bytes at most {sent} had gone, and nothing more was taken for \
                 {silence:?}: it hangs, or the link to it is cut"
            ));
        }
        // It may have sent the cause before it hung up.
        let end = deadline_after(silence);
        while Instant::now() < end {
            expect_beat(link, silence)?;
        }
        return Err(not_sent(&error, silence));
    }
}

/// Returns whether the other side has sent something, or hung up.
fn has_come(link: &Link) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(link.receiver.tcp(), PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Reads a host's messages while a program is sent to it: signs of life, or the reason why it takes no more.
fn expect_beat(link: &mut Link, silence: Duration) -> Result<(), String> {
    match link.receiver.receive_message() {
        Ok(Reply::Beat) => Ok(()),
        Ok(Reply::Refused(reason)) => Err(reason),
        Ok(_) => Err("it answers what was not asked".into()),
        Err(error) => Err(not_sent(&error, silence)),
    }
}

/// Returns why a host does not get the program, where the host itself has given no reason.
fn not_sent(error: &WireError, silence: Duration) -> String {
    match error {
        WireError::Secure(comm::Error::TimedOut { .. }) => format!(
            "the program cannot be sent: nothing was heard of the host for {silence:?}: it hangs, or the link to it is \
             cut"
        ),
        error => format!("the program cannot be sent: {error}"),
    }
}

/// Order for the sending thread of a host.
pub enum Down {
    /// Send this.
    Say(ToPart),
    /// Close the connection.
    Leave,
}

/// Queue to the sending thread of a host.
pub type Queue = mpsc::Sender<Down>;

/// The hosts of a running program: their queues, and which of them have nothing more to send.
pub struct Hosts {
    queues: Vec<Queue>,
    are_done: Vec<bool>,
    writers: Vec<std::thread::JoinHandle<()>>,
}

impl Hosts {
    pub(super) fn new(queues: Vec<Queue>, writers: Vec<std::thread::JoinHandle<()>>) -> Hosts {
        Hosts { are_done: vec![false; queues.len()], queues, writers }
    }

    /// Sends a message to all hosts that are not done.
    pub fn tell_all(&self, message: &ToPart) {
        for (queue, is_done) in self.queues.iter().zip(&self.are_done) {
            if !is_done {
                let _ = queue.send(Down::Say(message.clone())); // cut off: an event reports it
            }
        }
    }

    /// Marks a host as having nothing more to send.
    pub fn set_done(&mut self, host: usize) {
        self.are_done[host] = true;
    }

    /// Returns whether a host has nothing more to send.
    #[must_use]
    pub fn is_done(&self, host: usize) -> bool {
        self.are_done[host]
    }

    /// Returns whether no host has anything more to send.
    #[must_use]
    pub fn are_done(&self) -> bool {
        self.are_done.iter().all(|is_done| *is_done)
    }

    /// Closes the connections to all hosts.
    pub fn close(&mut self) {
        for queue in self.queues.drain(..) {
            let _ = queue.send(Down::Leave); // cut off: it has left
        }
        for writer in self.writers.drain(..) {
            let _ = writer.join(); // its panic was reported by itself
        }
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
