//! Connections to a daemon: authentication and requests. No input stops the daemon.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use comm::secure::SecureReader;
use rustix::event::{PollFd, PollFlags, poll};

use super::admission::Admitted;
use super::capacity::{self, Turned};
use super::gate::Pass;
use super::handed::Handed;
use super::handover::{LinkState, Parked};
use super::kept::NewOutput;
use super::{Daemon, STACK_BYTES, looks, neighbours, paths, session, upgrade};
use crate::panics;
use crate::wire::link::{self, Link};
use crate::wire::{BEAT_MS, ProgramId, Reply, Request, Sender, ToPart, Wire, WireError};

/// Pause after an error that is not of one connection (too many open files).
const PAUSE: Duration = Duration::from_millis(100);
/// Time limit for a follower of a program's output that reads none of it.
const READER_LIMIT: Duration = Duration::from_secs(600);
/// Most lines of the log in an answer.
const MAX_LINES: u32 = 2000;
/// Most bytes of them: they go in one message.
const MAX_LINES_BYTES: usize = 900 << 10;

/// Accepts connections for as long as the process lives. The listener does not block.
pub fn accept_all(daemon: &Arc<Daemon>, listener: &TcpListener) {
    let pass = daemon.requests.enter();
    loop {
        pass.stop(|| Some(Parked::Listener(Handed::of(listener))));
        let closing = pass.gate().closing();
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::from_borrowed_fd(closing, PollFlags::IN)];
        let _ = poll(&mut fds, None); // interrupted: nothing is there
        match listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok((tcp, peer)) => {
                if let Err(panic) = panics::or_text(|| take(daemon, tcp, peer)) {
                    complain(daemon, "a connection was closed", &peer.to_string(), &panic);
                }
            }
            Err(error) => {
                complain(daemon, "a connection could not be accepted", "?", &capacity::in_words_of_connections(&error));
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Logs trouble that strangers can cause, rate limited.
fn complain(daemon: &Daemon, what: &'static str, peer: &str, trouble: &str) {
    if let Some(held_back) = daemon.strangers.pass(Instant::now()) {
        tracing::warn!(peer, trouble, held_back, "{what}");
    }
}

fn take(daemon: &Arc<Daemon>, tcp: TcpStream, peer: SocketAddr) {
    let (admitted, gone) = match daemon.admission.admit(&tcp, peer, daemon.connections().0) {
        Ok(admitted) => admitted,
        Err(error) => {
            let trouble = capacity::in_words_of_connections(&error);
            return complain(daemon, "a connection was closed", &peer.to_string(), &trouble);
        }
    };
    if let Some(gone) = gone {
        let trouble = "too many have not shown the key yet, and it has the most: limits.connections of rack.yaml";
        complain(daemon, "a connection was closed", &gone.to_string(), trouble);
    }
    // The thread gets the connection once it runs: if it does not, the connection is still here.
    let (hand_over, handed) = mpsc::sync_channel::<Turned>(1);
    let daemon_of_thread = Arc::clone(daemon);
    let serve = move || {
        let daemon = daemon_of_thread;
        let Ok(Turned { tcp, admitted, peer }) = handed.recv() else { return };
        if let Err(error) = serve(&daemon, tcp, admitted, None) {
            complain(&daemon, "a connection that came in ended early", &peer.to_string(), &describe(&error));
        }
    };
    let (name, turned) = (format!("from {peer}"), Turned { tcp, admitted, peer });
    match std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(serve) {
        Ok(_) => drop(hand_over.send(turned)),
        Err(error) => {
            let waits = daemon.reserve.take(turned).is_ok();
            let what = if waits { "a connection has to wait" } else { "a connection was closed" };
            complain(daemon, what, &peer.to_string(), &capacity::in_words(&error));
        }
    }
}

/// Serves a connection for which no thread could be started, as far as one thread can.
pub fn serve_in_need(daemon: &Arc<Daemon>, turned: Turned) {
    let Turned { tcp, admitted, peer } = turned;
    let why = capacity::trouble().unwrap_or_else(|| "this host could not start a thread just now: try again".into());
    if let Err(error) = serve(daemon, tcp, admitted, Some(why)) {
        complain(daemon, "a connection that came in ended early", &peer.to_string(), &describe(&error));
    }
}

/// Logs a peer that still has to get the new key, rate limited.
fn tell_of_old_key(daemon: &Daemon, link: &Link) {
    if let Some(held_back) = daemon.strangers.pass(Instant::now()) {
        let (peer, release) = (link.peer.to_string(), &link.theirs.release);
        tracing::info!(peer, release, held_back, "it came with the old key: copy the key file to it");
    }
}

/// Describes the error of an incoming connection. The errors' own texts are for the connecting side: they say
/// where to look there.
fn describe(error: &WireError) -> String {
    use comm::Error;
    let WireError::Secure(error) = error else { return error.to_string() };
    match error {
        Error::NotGossamer { .. } => "it does not speak Gossamer's protocol: something else has connected to this port",
        Error::WrongKey { .. } => "it does not have this rack's key: if it is to have it, copy the key file to it",
        Error::OtherPurpose { .. } => "it has the key and wanted something else than a daemon: another program's port?",
        Error::TimedOut { doing, .. } => return format!("it did not {doing} in time"),
        Error::Closed { doing, .. } => return format!("it closed the connection {doing}"),
        other => return other.to_string(),
    }
    .to_owned()
}

/// `need`: the reason to refuse requests that take more than this thread.
fn serve(daemon: &Arc<Daemon>, tcp: TcpStream, mut admitted: Admitted, need: Option<String>) -> Result<(), WireError> {
    let (keys, timeout) = (daemon.key_file.keys(), daemon.rack.timeouts.connect());
    let mut pass = None;
    // Holders of the key connect again where they have not been greeted: until then an upgrade may cut them off.
    let greeting = || {
        pass = Some(daemon.requests.enter());
        daemon.greeting()
    };
    let link = link::accept(tcp, &keys, greeting, timeout)?;
    drop(keys); // a session may last for days
    let Some(pass) = pass else { return Ok(()) };
    let (_, most) = daemon.connections();
    if !admitted.accept(most) {
        let cure = "wait for some to end, or raise limits.connections in rack.yaml";
        return link.answer(&Reply::Refused(format!("{most} connections are open here, and no more may: {cure}")));
    }
    if link.has_old_key {
        tell_of_old_key(daemon, &link);
    }
    serve_link(daemon, link, need, pass)
}

/// Serves a peer that has shown the key.
pub(super) fn serve_link(
    daemon: &Arc<Daemon>,
    mut link: Link,
    need: Option<String>,
    pass: Pass,
) -> Result<(), WireError> {
    let Link { receiver, sender, theirs, .. } = &mut link;
    let park = |receiver: &SecureReader| Some(Parked::Request(LinkState::of(receiver, sender, theirs)));
    let request = match pass.receive(receiver, daemon.rack.timeouts.connect(), park) {
        Err(WireError::Closed) => return Ok(()), // a peer that only checks that this host answers
        other => Request::from_bytes(&other?)?,
    };
    match (request, need) {
        (Request::Run(_) | Request::Neighbour | Request::Paths { .. } | Request::Probe { .. }, Some(why)) => {
            link.answer(&Reply::Refused(why))?
        }
        (request, _) => serve_request(daemon, link, request, pass)?,
    }
    Ok(())
}

fn serve_request(daemon: &Arc<Daemon>, link: Link, request: Request, pass: Pass) -> Result<(), WireError> {
    match request {
        Request::Run(start) => session::run(daemon, link, *start, pass, false),
        Request::Neighbour => {
            // The other side reports how it ends.
            let _ = neighbours::answer(link, daemon.rack.timeouts.silence(), &pass, false);
        }
        Request::Status => link.answer(&Reply::Status(Box::new(daemon.status())))?,
        Request::Kill { program, who } => {
            let found = daemon.programs.end(program, &format!("killed by {who}"));
            tracing::info!(%program, who, found, "asked to kill a program");
            link.answer(&Reply::Killed(found))?;
        }
        Request::Signal { program, signal, who } => {
            let reply = match rustix::process::Signal::from_named_raw(signal) {
                Some(_) => Reply::Killed(daemon.programs.tell(program, &ToPart::Signal(signal))),
                None => Reply::Refused(format!("there is no signal {signal}")),
            };
            tracing::info!(%program, who, signal, ?reply, "asked to send a signal to a program");
            link.answer(&reply)?;
        }
        Request::Drain { is_on, who } => {
            tracing::info!(who, is_on, "asked to take no new programs, or to take them again");
            daemon.drain.set(is_on.then_some(who));
            link.answer(&Reply::Status(Box::new(daemon.status())))?;
        }
        Request::Logs { program, lines } => {
            let text = program.map_or_else(String::new, |program| program.to_string());
            let mut lines = daemon.last_lines.get(&text, lines.min(MAX_LINES) as usize);
            let mut bytes = 0;
            let fits = |line: &&String| {
                bytes += line.len() + 8;
                bytes <= MAX_LINES_BYTES
            };
            let kept = lines.iter().rev().take_while(fits).count();
            lines.drain(..lines.len() - kept);
            link.answer(&Reply::Logs(lines))?;
        }
        Request::Look { program, look, limit_ms } => looks::serve(daemon, link, program, look, limit_ms)?,
        Request::Output { program, follow } => tell_output(daemon, link, program, follow.then_some(0), &pass)?,
        Request::Upgrade { who } => {
            let Err(reason) = upgrade::upgrade(daemon, &who, Some((&pass, &link)));
            tracing::error!(who, reason, "the upgrade has failed: this daemon goes on");
            link.answer(&Reply::Refused(reason))?;
        }
        Request::Paths { to } => paths::serve(daemon, link, &to)?,
        Request::Probe { is_last } => paths::open(daemon, link, is_last)?,
        Request::Chunk(_) | Request::Go | Request::Beat => link.answer(&Reply::Refused("nothing was asked".into()))?,
    }
    Ok(())
}

/// Sends the output of a program; where it follows it, from this piece on until the program ends.
pub(super) fn tell_output(
    daemon: &Daemon,
    mut link: Link,
    program: ProgramId,
    follows: Option<u64>,
    pass: &Pass,
) -> Result<(), WireError> {
    link.set_timeout(READER_LIMIT)?;
    let wait = if follows.is_some() { Duration::from_millis(BEAT_MS) } else { Duration::ZERO };
    let mut from = follows.unwrap_or(0);
    loop {
        pass.stop(|| follows.map(|_| Parked::Follower(LinkState::of_link(&link), program, from)));
        let Some(NewOutput { pieces, is_cut, next, exits, has_ended }) = daemon.kept.after(program, from, wait) else {
            return link.answer(&Reply::Unknown);
        };
        from = next;
        let _may_be_slow = pass.expendable();
        if !pieces.is_empty() {
            link.sender.send_message(&Reply::Output { pieces, is_cut })?;
        } else if has_ended || follows.is_none() {
            return link.answer(&Reply::OutputEnd(exits));
        } else {
            link.sender.send_message(&Reply::Beat)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An incoming connection is not a host that the daemon wanted to reach.
    #[test]
    fn words_are_of_one_who_came() {
        use comm::Error;
        let peer = || "192.0.2.9:4711".to_owned();
        for (error, words) in [
            (Error::NotGossamer { peer: peer() }, "something else has connected"),
            (Error::WrongKey { peer: peer() }, "does not have this rack's key"),
            (Error::OtherPurpose { peer: peer() }, "has the key and wanted"),
            (Error::TimedOut { peer: peer(), doing: "say anything" }, "it did not say anything in time"),
            (Error::Closed { peer: peer(), doing: "within a message" }, "it closed the connection within a message"),
        ] {
            let said = describe(&error.into());
            assert!(said.starts_with("it ") && said.contains(words), "{said}");
            assert!(!["see whether", "see what", "answers at"].iter().any(|words| said.contains(words)), "{said}");
        }
        assert_eq!(describe(&WireError::Closed), "the connection was closed");
    }
}
