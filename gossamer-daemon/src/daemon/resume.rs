//! The connections and sessions that a former daemon has handed over: each goes on in a thread.

use std::sync::Arc;

use super::handover::{LinkState, Parked, SessionState};
use super::{Daemon, STACK_BYTES, capacity, connection, neighbours, session};
use crate::wire::link::Link;
use crate::wire::{Reply, WireError};

/// Goes on with all of them.
pub(super) fn resume(daemon: &Arc<Daemon>, sessions: Vec<SessionState>, others: Vec<Parked>) {
    let programs = u32::try_from(sessions.len()).unwrap_or(u32::MAX);
    tracing::info!(programs, connections = others.len(), "goes on for the daemon before the upgrade");
    for state in sessions {
        let (id, pass, admitted) = (state.program, daemon.sessions.enter(), daemon.admission.admit_authenticated());
        let of_thread = Arc::clone(daemon);
        let go_on = move || {
            let _admitted = admitted;
            session::resume(&of_thread, state, pass);
        };
        if !start(daemon, id.to_string(), go_on) {
            session::end(daemon, id, "its daemon could start no thread for it after an upgrade");
        }
    }
    for parked in others {
        let (pass, admitted) = (daemon.requests.enter(), daemon.admission.admit_authenticated());
        let of_thread = Arc::clone(daemon);
        let queued = if let Parked::Queued(_, start) = &parked { Some(start.program) } else { None };
        let go_on = move || {
            let _admitted = admitted;
            let _ = go_on(&of_thread, parked, pass, programs); // the peer has gone
        };
        if !start(daemon, "resumed".to_owned(), go_on)
            && let Some(program) = queued
        {
            daemon.programs.leave_queue(program);
        }
    }
}

/// Starts a thread; false where that is impossible.
fn start(daemon: &Daemon, name: String, work: impl FnOnce() + Send + 'static) -> bool {
    let started = std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(work);
    if let Err(error) = &started {
        let trouble = capacity::in_words(error);
        tracing::error!(host = daemon.host.name, trouble, "a connection is lost in the upgrade");
    }
    started.is_ok()
}

fn go_on(daemon: &Arc<Daemon>, parked: Parked, pass: super::gate::Pass, programs: u32) -> Result<(), WireError> {
    let limited = |link: LinkState| {
        let mut link = link.resume()?;
        link.set_timeout(daemon.rack.timeouts.connect())?;
        Ok::<Link, WireError>(link)
    };
    match parked {
        Parked::Request(link) => connection::serve_link(daemon, limited(link)?, None, pass),
        Parked::Queued(link, start) => {
            match limited(link) {
                Ok(link) => session::run(daemon, link, *start, pass, true),
                Err(_) => daemon.programs.leave_queue(start.program),
            }
            Ok(())
        }
        Parked::Neighbour(link) => neighbours::answer(link.resume()?, daemon.rack.timeouts.silence(), &pass, true),
        Parked::Follower(link, program, from) => {
            connection::tell_output(daemon, link.resume()?, program, Some(from), &pass)
        }
        Parked::Upgrader(link) => {
            let release = format!("{} {}", env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
            limited(link)?.answer(&Reply::Upgraded { release, programs })
        }
        Parked::Listener(_) | Parked::Down { .. } | Parked::Up { .. } => Ok(()), // taken before
    }
}
