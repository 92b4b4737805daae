//! Connections to a daemon: authentication and requests. No input stops the daemon.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::admission::Admitted;
use super::capacity::{self, Turned};
use super::kept::NewOutput;
use super::{Daemon, STACK_BYTES, looks, neighbours, paths, session};
use crate::panics;
use crate::wire::link::{self, Link};
use crate::wire::{BEAT_MS, ProgramId, Receiver, Reply, Request, Sender, ToPart, WireError};

/// Pause after an error that is not of one connection (too many open files).
const PAUSE: Duration = Duration::from_millis(100);
/// Time limit for a follower of a program's output that reads none of it.
const READER_LIMIT: Duration = Duration::from_secs(600);
/// Most lines of the log in an answer.
const MAX_LINES: u32 = 2000;
/// Most bytes of them: they go in one message.
const MAX_LINES_BYTES: usize = 900 << 10;

/// Accepts connections for as long as the process lives.
pub fn accept_all(daemon: &Arc<Daemon>, listener: &TcpListener) {
    loop {
        match listener.accept() {
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
    let mut link = link::accept(tcp, &keys, &daemon.greeting(), timeout)?;
    drop(keys); // a session may last for days
    let (_, most) = daemon.connections();
    if !admitted.accept(most) {
        let cure = "wait for some to end, or raise limits.connections in rack.yaml";
        return link.answer(&Reply::Refused(format!("{most} connections are open here, and no more may: {cure}")));
    }
    if link.has_old_key {
        tell_of_old_key(daemon, &link);
    }
    let request = match link.receiver.receive_message() {
        Err(WireError::Closed) => return Ok(()), // a peer that only checks that this host answers
        other => other?,
    };
    match (request, need) {
        (Request::Run(_) | Request::Neighbour | Request::Paths { .. } | Request::Probe { .. }, Some(why)) => {
            link.answer(&Reply::Refused(why))?
        }
        (request, _) => serve_request(daemon, link, request)?,
    }
    Ok(())
}

fn serve_request(daemon: &Arc<Daemon>, link: Link, request: Request) -> Result<(), WireError> {
    match request {
        Request::Run(start) => session::run(daemon, link, *start),
        Request::Neighbour => {
            let _ = neighbours::answer(link, daemon.rack.timeouts.silence()); // the other side reports how it ends
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
        Request::Output { program, follow } => tell_output(daemon, link, program, follow)?,
        Request::Paths { to } => paths::serve(daemon, link, &to)?,
        Request::Probe { is_last } => paths::open(daemon, link, is_last)?,
        Request::Chunk(_) | Request::Go | Request::Beat => link.answer(&Reply::Refused("nothing was asked".into()))?,
    }
    Ok(())
}

/// Sends the output of a program; with `follow` continues until the program ends.
fn tell_output(daemon: &Daemon, mut link: Link, program: ProgramId, follow: bool) -> Result<(), WireError> {
    link.set_timeout(READER_LIMIT)?;
    let wait = if follow { Duration::from_millis(BEAT_MS) } else { Duration::ZERO };
    let mut from = 0;
    loop {
        let Some(NewOutput { pieces, is_cut, next, exits, has_ended }) = daemon.kept.after(program, from, wait) else {
            return link.answer(&Reply::Unknown);
        };
        from = next;
        if !pieces.is_empty() {
            link.sender.send_message(&Reply::Output { pieces, is_cut })?;
        } else if has_ended || !follow {
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
