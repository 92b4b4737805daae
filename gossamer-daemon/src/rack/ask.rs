//! Requests to the daemons of a rack: one request and one answer each, of all hosts at once.

use std::time::{Duration, Instant};

use comm::deadline::deadline_after;
use comm::secure::Keys;

use crate::config::{Host, RackConfig};
use crate::daemon::drain;
use crate::wire::link::{self, Link, LinkError};
use crate::wire::{Hello, HostStatus, MessageError, Path, Receiver, Reply, Request, Sender, WireError};

/// Clocks that differ by more make logs hard to compare.
const CLOCKS_DIFFER: Duration = Duration::from_secs(2);

/// Time for a host to try its paths to all others: longer than its own limit.
const PATHS_LIMIT: Duration = Duration::from_secs(60);

/// Answer of a host.
pub struct Answer {
    /// Its name.
    pub host: String,
    /// Address of its daemon.
    pub address: String,
    /// Greeting of its daemon, and its reply.
    pub outcome: Result<(Hello, Reply), Unanswered>,
    /// Least difference between its clock and this host's when it greeted.
    pub clocks_apart: Duration,
    /// Whether it has only the old one of this host's keys.
    pub has_old_key: bool,
    /// Time until the answer.
    pub took: Duration,
}

/// Reason for the lack of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// One word, for scripts.
    pub kind: &'static str,
    /// A text.
    pub reason: String,
}

/// Asks these hosts, all at once.
#[must_use]
pub fn ask(rack: &RackConfig, hosts: &[Host], keys: &Keys, request: &Request) -> Vec<Answer> {
    ask_within(rack, hosts, keys, request, rack.timeouts.connect())
}

/// Like [`ask`], for a request that takes up to `limit`.
#[must_use]
pub fn ask_within(rack: &RackConfig, hosts: &[Host], keys: &Keys, request: &Request, limit: Duration) -> Vec<Answer> {
    let one = |_, host: &Host| {
        let start = Instant::now();
        let answered = ask_one(rack, host, keys, request, limit);
        let address = rack.place_of(host);
        let (clocks_apart, has_old_key) =
            answered.as_ref().map_or((Duration::ZERO, false), |(.., apart, has_old_key)| (*apart, *has_old_key));
        let outcome = answered.map(|(theirs, reply, ..)| (theirs, reply));
        Answer { host: host.name.clone(), address, outcome, clocks_apart, has_old_key, took: start.elapsed() }
    };
    of_all(hosts, one).into_iter().flatten().collect()
}

/// Calls `one` for each host, with its place in `hosts`, all at once. `None` where it has panicked; the panic was
/// reported by itself.
pub(super) fn of_all<R: Send>(hosts: &[Host], one: impl Fn(usize, &Host) -> R + Sync) -> Vec<Option<R>> {
    let one = &one;
    std::thread::scope(|scope| {
        let spawn = |(place, host)| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, move || one(place, host));
            thread.map_err(|_| (place, host))
        };
        let asked: Vec<_> = hosts.iter().enumerate().map(spawn).collect();
        // A host without a thread here is asked from this thread.
        let answer = |asked: Result<std::thread::ScopedJoinHandle<'_, R>, (usize, &Host)>| match asked {
            Ok(thread) => thread.join().ok(),
            Err((place, host)) => Some(one(place, host)),
        };
        asked.into_iter().map(answer).collect()
    })
}

fn ask_one(
    rack: &RackConfig,
    host: &Host,
    keys: &Keys,
    request: &Request,
    limit: Duration,
) -> Result<(Hello, Reply, Duration, bool), Unanswered> {
    let link = link::connect(rack, host, keys)
        .map_err(|error| Unanswered { kind: kind(&error), reason: error.to_string() })?;
    let Link { mut receiver, mut sender, theirs, clocks_apart, has_old_key, .. } = link;
    let mut talk = || -> Result<Reply, WireError> {
        receiver.set_timeout(Some(limit))?;
        sender.send_message(request)?;
        receiver.receive_message()
    };
    match talk() {
        Ok(Reply::Refused(reason)) => Err(Unanswered { kind: "busy", reason }),
        Ok(reply) => Ok((theirs, reply, clocks_apart, has_old_key)),
        Err(error) => Err(Unanswered { kind: "silent", reason: error.to_string() }),
    }
}

/// Lets each of these hosts try its paths to the others; returns them by name, or why a host did not try.
#[must_use]
pub fn paths(rack: &RackConfig, hosts: &[Host], keys: &Keys) -> Vec<(String, Result<Vec<Path>, String>)> {
    let to: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
    let request = Request::Paths { to };
    let of_host = |_, host: &Host| (host.name.clone(), paths_of(rack, host, keys, &request));
    of_all(hosts, of_host).into_iter().flatten().collect()
}

fn paths_of(rack: &RackConfig, host: &Host, keys: &Keys, request: &Request) -> Result<Vec<Path>, String> {
    let mut link = link::connect(rack, host, keys).map_err(|error| error.to_string())?;
    let deadline = deadline_after(PATHS_LIMIT);
    link.sender.send_message(request).map_err(|error| error.to_string())?;
    loop {
        match link.receiver.receive_message().map_err(|error| error.to_string())? {
            Reply::Beat if Instant::now() < deadline => {}
            Reply::Beat => return Err("it does not come to an end".into()),
            Reply::Paths(paths) => return Ok(paths),
            Reply::Refused(reason) => return Err(reason),
            _ => return Err("it answers what was not asked".into()),
        }
    }
}

fn kind(error: &LinkError) -> &'static str {
    use std::io::ErrorKind;
    match error {
        LinkError::Address { .. } | LinkError::CutOff(_) => "unknown-address",
        LinkError::Connect { source, .. } if source.kind() == ErrorKind::ConnectionRefused => "refused",
        LinkError::Connect { .. } => "unreachable",
        LinkError::Name { .. } => "other-host",
        LinkError::Wire(WireError::Secure(comm::Error::WrongKey { .. })) => "wrong-key",
        LinkError::Wire(WireError::Secure(comm::Error::NotGossamer { .. })) => "not-gossamer",
        LinkError::Wire(WireError::Secure(comm::Error::OtherVersion { .. } | comm::Error::OtherPurpose { .. }))
        | LinkError::Wire(WireError::Message(MessageError::Version { .. })) => "other-version",
        LinkError::Wire(_) => "silent",
    }
}

/// Deviations of a host that answered, in words.
#[must_use]
pub fn remarks(rack: &RackConfig, theirs: &Hello, apart: Duration, status: &HostStatus) -> Vec<String> {
    let mut remarks = Vec::new();
    if theirs.rack != rack.name {
        remarks.push(format!("it belongs to rack {}, {} is of rack {}", theirs.rack, rack.path.display(), rack.name));
    } else if theirs.fingerprint != rack.fingerprint() {
        let (file, host) = (rack.path.display(), &theirs.host);
        remarks.push(format!(
            "its rack.yaml says something else than {file} here: copy it, and `gossamer-launch upgrade {host}`"
        ));
    }
    if apart > CLOCKS_DIFFER {
        remarks.push(format!("its clock is {} s or more off: logs will be hard to compare (NTP?)", apart.as_secs()));
    }
    remarks.extend(status.drained_by.as_ref().map(|by| drain::in_words(&theirs.host, by)));
    remarks.extend(status.troubles.iter().cloned());
    for neighbour in status.neighbours.iter().filter(|neighbour| !neighbour.trouble.is_empty()) {
        remarks.push(format!("it does not reach {}: {}", neighbour.name, neighbour.trouble));
    }
    remarks
}
