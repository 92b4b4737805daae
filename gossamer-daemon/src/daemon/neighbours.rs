//! Connections to the daemons of the other hosts, made again when they break: so `gossamer-launch status` and `check`
//! can report the pairs of hosts that do not reach each other. Programs do not depend on them: their launcher watches
//! their hosts itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use comm::secure::SecureReader;

use super::Daemon;
use super::gate::Pass;
use super::handover::{LinkState, Parked};
use crate::config::Host;
use crate::wire::link::{self, Link};
use crate::wire::{BEAT_MS, Neighbour, Receiver, Reply, Request, Sender, Wire, WireError};

/// Pause before the next attempt to connect.
const RETRY: Duration = Duration::from_secs(1);

/// Trouble of each; empty: it is up.
#[derive(Default)]
pub struct Neighbours {
    trouble: Mutex<BTreeMap<String, String>>,
}

impl Neighbours {
    /// Returns the status of all neighbours.
    pub fn status(&self) -> Vec<Neighbour> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let neighbour =
            |(name, trouble): (&String, &String)| Neighbour { name: name.clone(), trouble: trouble.clone() };
        trouble.iter().map(neighbour).collect()
    }

    /// Returns whether this host is known to be out of reach.
    pub fn has_trouble(&self, name: &str) -> bool {
        let all = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(name).is_some_and(|trouble| !trouble.is_empty())
    }

    /// Notes the trouble; true when it is news.
    fn note(&self, name: &str, trouble: String) -> bool {
        let mut all = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match all.insert(name.to_owned(), trouble) {
            Some(before) => before.is_empty() != all[name].is_empty(),
            None => true,
        }
    }
}

/// Keeps a connection to a host, for as long as the process lives.
pub fn keep(daemon: &Arc<Daemon>, host: &Host) {
    loop {
        let trouble = match link::connect(&daemon.rack, host, &daemon.key_file.keys()) {
            Ok(link) => stay(daemon, host, link).to_string(),
            Err(error) => error.to_string(),
        };
        if daemon.neighbours.note(&host.name, trouble.clone()) {
            tracing::warn!(host = host.name, trouble, "a host of the rack is not there");
        }
        std::thread::sleep(RETRY);
    }
}

/// Exchanges signs of life until the connection breaks; returns the cause.
fn stay(daemon: &Daemon, host: &Host, mut link: Link) -> WireError {
    let mut talk = || -> Result<(), WireError> {
        link.set_timeout(daemon.rack.timeouts.silence())?;
        link.sender.send_message(&Request::Neighbour)?;
        loop {
            match link.receiver.receive_message()? {
                Reply::Beat => {}
                Reply::Refused(reason) => return Err(std::io::Error::other(reason).into()),
                _ => return Err(std::io::Error::other("it answers what was not asked").into()),
            }
            if daemon.neighbours.note(&host.name, String::new()) {
                tracing::info!(host = host.name, "a host of the rack is there");
            }
            std::thread::sleep(Duration::from_millis(BEAT_MS));
            link.sender.send_message(&Request::Beat)?;
        }
    };
    match talk() {
        Ok(()) => WireError::Closed,
        Err(error) => error,
    }
}

/// The accepting end: answers each sign of life, and the request unless a former daemon has.
///
/// # Errors
/// When the connection breaks, its only end.
pub(super) fn answer(mut link: Link, silence: Duration, pass: &Pass, is_resumed: bool) -> Result<(), WireError> {
    link.set_timeout(silence)?;
    if !is_resumed {
        link.sender.send_message(&Reply::Beat)?;
    }
    let Link { receiver, sender, theirs, .. } = &mut link;
    loop {
        let park = |receiver: &SecureReader| Some(Parked::Neighbour(LinkState::of(receiver, sender, theirs)));
        let message = pass.receive(receiver, silence, park)?;
        match Request::from_bytes(&message)? {
            Request::Beat => sender.send_message(&Reply::Beat)?,
            _ => return Ok(()),
        }
    }
}
