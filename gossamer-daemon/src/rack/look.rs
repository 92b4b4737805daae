//! View of a program on the hosts of a rack for its watchers: by the daemons, which open no other port for it.

use comm::deadline::deadline_after;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use comm::secure::Keys;
use gossamer::control::Look;
use gossamer::view::Source;
use gossamer::view::source::{Answer, Parts, answer_limit, dropped_text};

use super::ask::of_all;
use crate::config::{Host, RackConfig};
use crate::wire::link;
use crate::wire::{ProgramId, Receiver, Reply, Request, Sender};

/// Time that a host may take beyond its machines.
const WAY: Duration = Duration::from_millis(500);

/// A program that runs on a rack.
pub struct OnRack {
    /// The rack.
    pub rack: RackConfig,
    /// Its hosts that are asked.
    pub hosts: Vec<Host>,
    /// Its keys.
    pub keys: Keys,
    /// Number of the program.
    pub program: ProgramId,
}

/// A host's answer about the program.
enum HostAnswer {
    Unknown,
    Seen { silent: Vec<u16>, dropped: Vec<u16> },
}

impl Source for OnRack {
    fn look(&self, look: Look, limit: Duration) -> Answer {
        let parts = Mutex::new(Parts::of_any(look, limit));
        let answer = of_all(&self.hosts, |_, host| self.ask(host, look, limit, &parts));
        let mut parts = parts.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut troubles = Vec::new();
        let mut is_known = false;
        for (host, answer) in self.hosts.iter().zip(answer) {
            match answer.unwrap_or_else(|| Err("this side has failed".to_owned())) {
                Ok(HostAnswer::Unknown) => {}
                Ok(HostAnswer::Seen { silent, dropped }) => {
                    is_known = true;
                    silent.iter().chain(&dropped).for_each(|machine| parts.forget(*machine));
                    troubles.extend(dropped_text(&dropped).map(|text| format!("host {}: {text}", host.name)));
                    let late = |machine| format!("machine {machine} on {} has not answered in time", host.name);
                    troubles.extend(silent.into_iter().map(late));
                }
                Err(reason) => troubles.push(format!("host {}: {reason}", host.name)),
            }
        }
        if !is_known {
            troubles.push(format!("no host that answers runs program {}", self.program));
        }
        let answer = parts.into_answer();
        if troubles.is_empty() && answer.troubles.is_empty() && answer.machines.is_empty() {
            troubles.push(format!("no machine of program {} runs yet on the hosts that were asked", self.program));
        }
        Answer { troubles: [troubles, answer.troubles].concat(), ..answer }
    }
}

impl OnRack {
    fn ask(&self, host: &Host, look: Look, limit: Duration, parts: &Mutex<Parts>) -> Result<HostAnswer, String> {
        let mut link = link::connect(&self.rack, host, &self.keys).map_err(|error| error.to_string())?;
        // It gives signs of life meanwhile.
        link.set_timeout(self.rack.timeouts.silence()).map_err(|error| error.to_string())?;
        let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        let request = Request::Look { program: self.program, look, limit_ms };
        link.sender.send_message(&request).map_err(|error| error.to_string())?;
        // A host that never comes to an end is given up.
        let until =
            deadline_after(answer_limit(look, limit).saturating_add(WAY).saturating_add(self.rack.timeouts.silence()));
        loop {
            if Instant::now() > until {
                return Err("it does not come to an end".to_owned());
            }
            match link.receiver.receive_message().map_err(|error| error.to_string())? {
                Reply::Seen { machine, is_last, bytes } => {
                    parts.lock().unwrap_or_else(PoisonError::into_inner).add(machine, &bytes, is_last);
                }
                Reply::SeenEnd { silent, dropped } => return Ok(HostAnswer::Seen { silent, dropped }),
                Reply::Unknown => return Ok(HostAnswer::Unknown),
                Reply::Beat => {}
                Reply::Refused(reason) => return Err(reason),
                _ => return Err("it answers what was not asked".into()),
            }
        }
    }
}
