//! A program on the hosts of a rack, as who watches it sees it: by the daemons, which open no other port for it.

use comm::deadline::deadline_after;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use comm::secure::Key;
use gossamer::control::Look;
use gossamer::view::Source;
use gossamer::view::source::{Answer, Parts, answer_limit};

use super::ask::of_all;
use crate::config::{Host, RackConfig};
use crate::wire::link;
use crate::wire::{ProgramId, Receiver, Reply, Request, Sender};

/// What a host may take longer than its machines.
const WAY: Duration = Duration::from_millis(500);

/// A program that runs on a rack.
pub struct OnRack {
    /// The rack.
    pub rack: RackConfig,
    /// Its hosts that are asked.
    pub hosts: Vec<Host>,
    /// Its key.
    pub key: Key,
    /// Which program.
    pub program: ProgramId,
}

/// What a host has said of the program.
enum Told {
    Unknown,
    Seen(Vec<u16>),
}

impl Source for OnRack {
    fn look(&self, look: Look, limit: Duration) -> Answer {
        let machines = Mutex::new(Vec::<(u16, Vec<u8>)>::new());
        let told = of_all(&self.hosts, |_, host| self.ask(host, look, limit, &machines));
        let mut troubles = Vec::new();
        let mut is_known = false;
        for (host, told) in self.hosts.iter().zip(told) {
            match told.unwrap_or_else(|| Err("this side has failed".to_owned())) {
                Ok(Told::Unknown) => {}
                Ok(Told::Seen(silent)) => {
                    is_known = true;
                    let late = |machine| format!("machine {machine} on {} has not answered in time", host.name);
                    troubles.extend(silent.into_iter().map(late));
                }
                Err(reason) => troubles.push(format!("host {}: {reason}", host.name)),
            }
        }
        if !is_known {
            troubles.push(format!("no host that answers runs program {}", self.program));
        }
        let mut machines = machines.into_inner().unwrap_or_default();
        machines.sort_by_key(|(machine, _)| *machine);
        Answer { machines, troubles }
    }
}

impl OnRack {
    fn ask(
        &self,
        host: &Host,
        look: Look,
        limit: Duration,
        machines: &Mutex<Vec<(u16, Vec<u8>)>>,
    ) -> Result<Told, String> {
        let mut link = link::connect(&self.rack, host, &self.key).map_err(|error| error.to_string())?;
        // It gives signs of life meanwhile.
        link.set_timeout(self.rack.timeouts.silence()).map_err(|error| error.to_string())?;
        let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        let request = Request::Look { program: self.program, look: look.to_bytes().to_vec(), limit_ms };
        link.sender.send_message(&request).map_err(|error| error.to_string())?;
        // A host that goes on and on is left.
        let mut pieces: Vec<(u16, Vec<u8>, bool)> = Vec::new();
        let until =
            deadline_after(answer_limit(look, limit).saturating_add(WAY).saturating_add(self.rack.timeouts.silence()));
        let silent = loop {
            if Instant::now() > until {
                return Err("it does not come to an end".to_owned());
            }
            match link.receiver.receive_message().map_err(|error| error.to_string())? {
                Reply::Seen { machine, is_last, bytes } => pieces.push((machine, bytes, is_last)),
                Reply::SeenEnd(silent) => break silent,
                Reply::Unknown => return Ok(Told::Unknown),
                Reply::Beat => {}
                Reply::Refused(reason) => return Err(reason),
                _ => return Err("it answers what was not asked".into()),
            }
        };
        let mut numbers: Vec<u16> = pieces.iter().map(|piece| piece.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut whole = Parts::new(numbers, Duration::ZERO);
        pieces.iter().for_each(|(machine, bytes, is_last)| whole.add(*machine, bytes, *is_last));
        machines.lock().unwrap_or_else(PoisonError::into_inner).extend(whole.into_answer().machines);
        Ok(Told::Seen(silent))
    }
}
