//! The daemons of the other hosts, as seen from here: a connection to each, made again when it breaks, so that
//! `gossamer-launch status` and `check` can tell which pairs of hosts do not reach each other. Programs do not depend
//! on it: their launcher watches their hosts itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Daemon;
use crate::config::Host;
use crate::wire::link::{self, Link};
use crate::wire::{BEAT_MS, Neighbour, Receiver, Reply, Request, Sender, WireError};

/// Pause before a connection is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What is wrong with each; empty: it is up.
#[derive(Default)]
pub struct Neighbours {
    trouble: Mutex<BTreeMap<String, String>>,
}

impl Neighbours {
    /// What to tell of them.
    pub fn status(&self) -> Vec<Neighbour> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let neighbour =
            |(name, trouble): (&String, &String)| Neighbour { name: name.clone(), trouble: trouble.clone() };
        trouble.iter().map(neighbour).collect()
    }

    /// Notes it; true when it is news.
    fn note(&self, name: &str, trouble: String) -> bool {
        let mut all = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match all.insert(name.to_owned(), trouble) {
            Some(before) => before.is_empty() != all[name].is_empty(),
            None => true,
        }
    }
}

/// Keeps in touch with a host, for as long as the process lives.
pub fn keep(daemon: &Arc<Daemon>, host: &Host) {
    loop {
        let trouble = match link::connect(&daemon.rack, host, &daemon.key) {
            Ok(link) => stay(daemon, host, link).to_string(),
            Err(error) => error.to_string(),
        };
        if daemon.neighbours.note(&host.name, trouble.clone()) {
            tracing::warn!(host = host.name, trouble, "a host of the rack is not there");
        }
        std::thread::sleep(RETRY);
    }
}

/// Until the connection breaks; why.
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

/// The other end: answers each sign of life.
///
/// # Errors
/// When the connection breaks, which is how it ends.
pub fn answer(mut link: Link, silence: Duration) -> Result<(), WireError> {
    link.set_timeout(silence)?;
    loop {
        link.sender.send_message(&Reply::Beat)?;
        match link.receiver.receive_message()? {
            Request::Beat => {}
            _ => return Ok(()),
        }
    }
}
