//! The hosts of a program, from the launcher's side: connected and started all at once, or not at all; then sent
//! messages. Not here: the steps of one host (`dialer`).

use comm::deadline::deadline_after;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::dialer::{Dialer, admit, go, prepare, spawn};
use super::plan::Files;
use super::{Event, RackError, queue};
use crate::config::Host;
use crate::wire::link::{self, Link};
use crate::wire::{BEAT_MS, Request, Sender, Start, ToPart};

/// Links to all hosts in order, or the signal that came before they were there.
pub type Links = Result<Vec<Link>, Signal>;

/// Writes "host a: …" for each.
pub(super) fn list(hosts: &[(String, String)]) -> String {
    let each = hosts.iter().map(|(name, reason)| format!("host {name}: {reason}"));
    each.collect::<Vec<_>>().join("\n  and ")
}

/// The same as the end of a sentence; nothing for none.
pub(super) fn list_after(hosts: &[(String, String)]) -> String {
    if hosts.is_empty() { String::new() } else { format!("; {}", list(hosts)) }
}

/// Returns the hosts that are up and not drained, in their order, at most `most`, or the signal that came before; tells
/// of the others. The connections end: while others are tried, a host waits for a request no longer than for a
/// handshake.
///
/// # Errors
/// [`RackError::TooFew`] or [`RackError::Hosts`] where fewer are up, or none; each that is down is named, and why.
pub fn choose_up(dialer: &Dialer<'_>, most: Option<u16>) -> Result<Result<Vec<Host>, Signal>, RackError> {
    begin_to_connect(dialer)?;
    let (mut links, mut down) = match gather_all(dialer, dialer.chosen, |_| ()) {
        Ok(tried) => tried,
        Err(signal) => return Ok(Err(signal)),
    };
    for drained in links.iter_mut().filter_map(|link| link.take_if(|link| link.theirs.is_drained)) {
        down.push((drained.theirs.host, "it is drained".to_owned()));
    }
    down.sort();
    let up = dialer.chosen.iter().zip(&links).filter(|(_, link)| link.is_some()).map(|(host, _)| host.clone());
    let mut up: Vec<Host> = up.collect();
    match most {
        Some(wanted) if up.len() < usize::from(wanted) => {
            return Err(RackError::TooFew { wanted, up: up.len(), down });
        }
        None if up.is_empty() => return Err(RackError::Hosts(down)),
        Some(most) => up.truncate(most.into()),
        None => {}
    }
    for (name, reason) in down {
        (dialer.notice)(&format!("host {name} is left out: {reason}"));
    }
    Ok(Ok(up))
}

/// Connects to all hosts at once.
///
/// # Errors
/// [`RackError::Hosts`] names each that cannot be reached, and why.
pub fn connect(dialer: &Dialer<'_>) -> Result<Links, RackError> {
    begin_to_connect(dialer)?;
    gather(dialer, dialer.chosen, |_| ())
}

fn begin_to_connect(dialer: &Dialer<'_>) -> Result<(), RackError> {
    for (number, host) in dialer.chosen.iter().enumerate() {
        let (rack, host, keys) = (dialer.rack.clone(), host.clone(), dialer.keys.clone());
        let connect = move || link::connect(&rack, &host, &keys).map_err(|error| error.to_string());
        spawn(number, dialer.event_sender, connect)?;
    }
    Ok(())
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
    let limit = dialer.options.start_limit();
    let mut links: Vec<Option<Link>> = links.into_iter().map(Some).collect();
    let first = (0..dialer.chosen.len()).min_by_key(|host| &dialer.chosen[*host].name).unwrap_or(0);
    if let Some(link) = links[first].take() {
        let start = start.of_host(first);
        spawn(0, dialer.event_sender, move || admit(link, start, limit))?;
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
                (None, Some(link)) => admit(link, start, limit),
                (None, None) => Err("it was not asked".to_owned()),
            };
            prepare(admitted?, &files, limit)
        })?;
    }
    Ok(Ok(()))
}

/// Waits for all hosts, and gives signs of life to those that are ready.
///
/// # Errors
/// [`RackError::Hosts`] names each that has failed, and why.
fn gather(dialer: &Dialer<'_>, chosen: &[Host], beat: impl FnMut(&mut Link)) -> Result<Links, RackError> {
    match gather_all(dialer, chosen, beat) {
        Ok((links, failed)) if failed.is_empty() => Ok(Ok(links.into_iter().flatten().collect())),
        Ok((_, failed)) => Err(RackError::Hosts(failed)),
        Err(signal) => Ok(Err(signal)),
    }
}

/// Links to the hosts in order, and those without one, by name, each with its reason.
type Gathered = (Vec<Option<Link>>, Vec<(String, String)>);

/// The same; returns those that have failed, too.
///
/// # Errors
/// The signal that came before all were there.
fn gather_all(dialer: &Dialer<'_>, chosen: &[Host], mut beat: impl FnMut(&mut Link)) -> Result<Gathered, Signal> {
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
            Ok(Event::Signal(signal)) => return Err(signal),
            Ok(Event::Queued(host, before, most)) => (dialer.notice)(&queue::notice(&chosen[host].name, before, most)),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    failed.sort();
    Ok((links, failed))
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

    /// Sends a message to a host that is not done.
    pub fn tell(&self, host: usize, message: ToPart) {
        if let Some(queue) = self.queues.get(host).filter(|_| !self.are_done[host]) {
            let _ = queue.send(Down::Say(message)); // cut off: an event reports it
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
