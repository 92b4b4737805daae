//! `gossamer-launch ps`, `kill`, `status`, `logs` and `keygen`: requests to the daemons, and the display of
//! their answers. With `--json` each prints one JSON object on one line.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use comm::deadline::deadline_after;
use comm::secure::{Key, Keys};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::console::{plain, print};
use super::{complain, output, size};
use crate::config::{Host, RackConfig};
use crate::outcome::FAILURE_STATUS;
use crate::rack::ask::{Answer, ask};
use crate::rack::plan::{choose, owner};
use crate::signals;
use crate::wire::{Hello, HostStatus, ProgramId, Reply, Request};

/// Exit status for trouble: a host that does not answer, a program that does not exist.
pub(super) const NOT_WELL: u8 = 1;

/// Length up to which a trouble is repeated for each host.
const SHORT_BYTES: usize = 40;
/// Longest wait of `kill` for the end of a program.
const GONE_LIMIT: Duration = Duration::from_secs(5);
const GONE_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub(super) struct Ask {
    /// The hosts of the rack [default: $GOSSAMER_RACK, ./rack.yaml, and so on]
    #[arg(long, value_name = "FILE")]
    pub(super) rack: Option<PathBuf>,

    /// Names of the hosts to ask [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(super) hosts: Vec<String>,

    /// One JSON object instead of text
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Kill {
    #[command(flatten)]
    ask: Ask,

    /// Send this signal to all its machines instead of ending it; the program decides how to react (TERM, SIGUSR1, 10)
    #[arg(long, short = 's', value_name = "NAME", value_parser = signals::parse)]
    signal: Option<Signal>,

    /// The program, as `gossamer-launch ps` names it
    program: ProgramId,
}

#[derive(Debug, Args)]
pub(super) struct Logs {
    #[command(flatten)]
    ask: Ask,

    /// Lines from each host
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    lines: u32,

    /// Show the program's output instead, as far as its hosts have kept it: the last 256 KiB on each
    #[arg(long, short, requires = "program", conflicts_with_all = ["json", "lines"])]
    output: bool,

    /// With --output: follow the output until the program ends
    #[arg(long, short, requires = "output")]
    follow: bool,

    /// Only lines about this program, as `gossamer-launch ps` names it
    program: Option<ProgramId>,
}

#[derive(Debug, Args)]
pub(super) struct Keygen {
    /// The file to write; it must not exist
    file: PathBuf,
}

impl Ask {
    /// Returns the rack, and the answers of its hosts.
    fn all(&self, request: &Request) -> Result<(RackConfig, Vec<Answer>), ExitCode> {
        let (rack, keys, hosts) = self.whom()?;
        let answers = ask(&rack, &hosts, &keys, request);
        Ok((rack, answers))
    }

    /// Returns the rack, its keys, and the hosts to ask.
    pub(super) fn whom(&self) -> Result<(RackConfig, Keys, Vec<Host>), ExitCode> {
        let failed = |error: &dyn std::fmt::Display| {
            complain(error);
            ExitCode::from(FAILURE_STATUS)
        };
        let rack = RackConfig::find(self.rack.as_deref()).map_err(|error| failed(&error))?;
        let keys = rack.read_keys().map_err(|error| failed(&error))?;
        let hosts = choose(&rack, &self.hosts).map_err(|error| failed(&error))?;
        Ok((rack, keys, hosts))
    }

    /// Asks for the status, and lets `ps` or `status` print it.
    pub(super) fn show(&self, how: fn(&Self, &RackConfig, &[Status]) -> io::Result<ExitCode>) -> io::Result<ExitCode> {
        match self.all(&Request::Status) {
            Ok((rack, answers)) => how(self, &rack, &answers.into_iter().map(Status::of).collect::<Vec<_>>()),
            Err(code) => Ok(code),
        }
    }

    pub(super) fn ps(&self, _: &RackConfig, statuses: &[Status]) -> io::Result<ExitCode> {
        let mut programs: BTreeMap<String, (String, String, u64, Vec<Value>)> = BTreeMap::new();
        for status in statuses {
            for program in status.host.iter().flat_map(|(_, host)| &host.programs) {
                let entry = programs.entry(program.id.clone());
                let entry = entry.or_insert_with(|| (program.path.clone(), program.owner.clone(), 0, Vec::new()));
                entry.2 = entry.2.max(program.seconds);
                entry.3.extend(program.machines.iter().map(|machine| {
                    json!({"machine": machine.machine, "host": status.name, "pid": machine.pid,
                           "slots_bytes": machine.slots_bytes, "resident_bytes": machine.resident_bytes,
                           "shared_bytes": machine.shared_bytes})
                }));
            }
        }
        if self.json {
            let mut listed = Vec::new();
            for (id, (path, owner, seconds, machines)) in &programs {
                let program = json!({"id": id, "path": path, "owner": owner, "seconds": seconds, "machines": machines});
                listed.push(program);
            }
            print(&json!({"programs": listed, "unreachable": unreachable_hosts(statuses)}).to_string())?;
        } else {
            print(&format!("{:<10}{:<10}{:<10}{:<20}PATH", "PROGRAM", "MACHINES", "TIME", "OWNER"))?;
            for (id, (path, owner, seconds, machines)) in &programs {
                let time = size::seconds(*seconds);
                print(&format!("{id:<10}{:<10}{time:<10}{:<20}{}", machines.len(), plain(owner), plain(path)))?;
            }
            complain_of_unreachable(statuses);
        }
        Ok(code(statuses.iter().all(|status| status.host.is_ok())))
    }

    pub(super) fn status(&self, rack: &RackConfig, statuses: &[Status]) -> io::Result<ExitCode> {
        if self.json {
            let hosts: Vec<Value> = statuses.iter().map(Status::to_json).collect();
            print(&json!({"rack": rack.name, "hosts": hosts}).to_string())?;
        } else {
            let width = column(statuses);
            for status in statuses {
                print(&status.to_text(width))?;
            }
        }
        Ok(code(statuses.iter().all(|status| status.host.is_ok())))
    }
}

impl Kill {
    pub(super) fn main(&self) -> io::Result<ExitCode> {
        let who = format!("{} with gossamer-launch kill", owner());
        let program = self.program;
        let request = match self.signal {
            None => Request::Kill { program, who },
            Some(signal) => Request::Signal { program, signal: signal.as_raw(), who },
        };
        let (rack, keys, asked) = match self.ask.whom() {
            Ok(whom) => whom,
            Err(code) => return Ok(code),
        };
        let answers = ask(&rack, &asked, &keys, &request);
        let reached = |answer: &&Answer| matches!(answer.outcome, Ok((_, Reply::Killed(true))));
        let hosts: Vec<&str> = answers.iter().filter(reached).map(|answer| answer.host.as_str()).collect();
        // A host that gives no answer may still run the program: no success, though others have ended it.
        let unanswered = |answer: &&Answer| !matches!(answer.outcome, Ok((_, Reply::Killed(_))));
        let silent: Vec<&str> = answers.iter().filter(unanswered).map(|answer| answer.host.as_str()).collect();
        let still = match self.signal {
            None if !hosts.is_empty() => {
                let up = answers.iter().filter(|answer| answer.outcome.is_ok());
                let up: Vec<&str> = up.map(|answer| answer.host.as_str()).collect();
                let up = asked.into_iter().filter(|host| up.contains(&host.name.as_str())).collect();
                until_gone(&rack, &keys, up, program)
            }
            _ => Vec::new(),
        };
        if self.ask.json {
            let mut object = json!({"program": program.to_string(), "unreachable": silent});
            match self.signal {
                None => (object["ended_on"], object["still_on"]) = (json!(hosts), json!(still)),
                Some(signal) => {
                    (object["signal"], object["signalled_on"]) = (json!(signal.as_raw()), json!(hosts));
                }
            }
            print(&object.to_string())?;
        } else if hosts.is_empty() {
            complain(format_args!("no host that answers runs program {program}"));
        } else if let Some(signal) = self.signal {
            let signal = signals::describe(signal.as_raw());
            print(&format!("{signal} was sent to program {program} on {}", hosts.join(", ")))?;
        } else if still.is_empty() {
            print(&format!("program {program} is ended on {}", hosts.join(", ")))?;
        }
        if !still.is_empty() {
            let hosts = still.join(", ");
            complain(format_args!(
                "program {program} was told to end, and after {GONE_LIMIT:?} is still there on {hosts}"
            ));
        }
        for (name, reason) in answers.iter().filter_map(|answer| Some((&answer.host, answer.outcome.as_ref().err()?))) {
            complain(format_args!("host {name}: {}", reason.reason));
        }
        Ok(code(!hosts.is_empty() && silent.is_empty() && still.is_empty()))
    }
}

/// Waits until none of these hosts has a program any more, or [`GONE_LIMIT`] is over; returns those that have it still.
fn until_gone(rack: &RackConfig, keys: &Keys, mut hosts: Vec<Host>, program: ProgramId) -> Vec<String> {
    let end = deadline_after(GONE_LIMIT);
    let id = program.to_string();
    loop {
        let has_it = |answer: &Answer| {
            let Ok((_, Reply::Status(status))) = &answer.outcome else { return false };
            status.programs.iter().any(|program| program.id == id)
        };
        let still: Vec<String> =
            ask(rack, &hosts, keys, &Request::Status).into_iter().filter(has_it).map(|answer| answer.host).collect();
        if still.is_empty() || Instant::now() >= end {
            return still;
        }
        hosts.retain(|host| still.contains(&host.name));
        std::thread::sleep(GONE_PAUSE);
    }
}

impl Logs {
    pub(super) fn main(&self) -> io::Result<ExitCode> {
        if let (true, Some(program)) = (self.output, self.program) {
            return match self.ask.whom() {
                Ok((rack, keys, hosts)) => output::show(&rack, &keys, &hosts, program, self.follow).map(code),
                Err(code) => Ok(code),
            };
        }
        let request = Request::Logs { program: self.program, lines: self.lines };
        let answers = match self.ask.all(&request) {
            Ok((_, answers)) => answers,
            Err(code) => return Ok(code),
        };
        let mut hosts = Vec::new();
        for answer in &answers {
            match &answer.outcome {
                Ok((_, Reply::Logs(lines))) if self.ask.json => {
                    hosts.push(json!({"host": answer.host, "lines": lines}));
                }
                Ok((_, Reply::Logs(lines))) => {
                    for line in lines {
                        print(&format!("{}: {}", answer.host, plain(line)))?;
                    }
                }
                Ok(_) => complain(format_args!("host {}: it answers what was not asked", answer.host)),
                Err(error) => complain(format_args!("host {}: {}", answer.host, error.reason)),
            }
        }
        if self.ask.json {
            print(&json!({"hosts": hosts}).to_string())?;
        }
        Ok(code(answers.iter().all(|answer| answer.outcome.is_ok())))
    }
}

impl Keygen {
    pub(super) fn main(&self) -> io::Result<ExitCode> {
        let made = Key::generate().and_then(|key| key.write_new(&self.file));
        match made {
            Ok(()) => {
                let file = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
                print(&next_steps(&file))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => {
                complain(error);
                Ok(ExitCode::from(FAILURE_STATUS))
            }
        }
    }
}

fn next_steps(file: &Path) -> String {
    let file = file.display();
    format!(
        "{file} is written, readable by you alone. Copy it to every host (scp -p), name it in rack.yaml (key_file:), \
         and keep it secret: whoever has it can run programs on the rack."
    )
}

/// A host and its state.
pub(super) struct Status {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) took_ms: f64,
    pub(super) clocks_apart: Duration,
    pub(super) has_old_key: bool,
    pub(super) host: Result<(Hello, HostStatus), crate::rack::ask::Unanswered>,
}

impl Status {
    pub(super) fn of(answer: Answer) -> Status {
        let Answer { host: name, address, outcome, clocks_apart, has_old_key, took } = answer;
        let host = outcome.and_then(|(hello, reply)| match reply {
            Reply::Status(status) => Ok((hello, *status)),
            _ => {
                let reason = "it answers what was not asked".to_owned();
                Err(crate::rack::ask::Unanswered { kind: "silent", reason })
            }
        });
        Status { name, address, took_ms: took.as_secs_f64() * 1000.0, clocks_apart, has_old_key, host }
    }

    pub(super) fn to_json(&self) -> Value {
        match &self.host {
            Ok((hello, host)) => json!({
                "name": self.name, "address": self.address, "up": true, "release": hello.release, "cores": hello.cores,
                "answer_ms": self.took_ms, "status": host,
            }),
            Err(error) => json!({
                "name": self.name, "address": self.address, "up": false, "trouble": error.kind, "reason": error.reason,
            }),
        }
    }

    fn to_text(&self, width: usize) -> String {
        let (hello, host) = match &self.host {
            Ok(host) => host,
            Err(error) => return format!("{:<width$}DOWN  {}", self.name, plain(&error.reason)),
        };
        let shared: u64 = host.programs.iter().flat_map(|program| &program.machines).map(|m| m.shared_bytes).sum();
        let mut text = format!(
            "{:<width$}up    {} for {}, {} cores, {} programs, {} of shared memory",
            self.name,
            plain(&hello.release),
            size::seconds(host.uptime_seconds),
            hello.cores,
            host.programs.len(),
            size::bytes(shared)
        );
        if let Some(by) = &host.drained_by {
            text.push_str(&format!(", drained by {}", plain(by)));
        }
        for program in &host.programs {
            for machine in &program.machines {
                let slots = machine
                    .slots_bytes
                    .map_or_else(|| "no slots (yet)".to_owned(), |slots| format!("{} of slots", size::bytes(slots)));
                text.push_str(&format!(
                    "\n{:<width$}      {} m{} pid {}: {slots}, {} in use, {} of it shared memory",
                    "",
                    plain(&program.id),
                    machine.machine,
                    machine.pid,
                    size::bytes(machine.resident_bytes),
                    size::bytes(machine.shared_bytes)
                ));
            }
        }
        for neighbour in host.neighbours.iter().filter(|neighbour| !neighbour.trouble.is_empty()) {
            text.push_str(&format!(
                "\n{:<width$}      does not reach {}: {}",
                "",
                plain(&neighbour.name),
                plain(&neighbour.trouble)
            ));
        }
        text
    }
}

/// Returns the width of the column of host names, with a space after the longest.
pub(super) fn column<'a>(statuses: impl IntoIterator<Item = &'a Status>) -> usize {
    statuses.into_iter().map(|status| status.name.len() + 1).max().unwrap_or(0).max(12)
}

/// Returns the fabrics of a host in words; a long trouble that is among those `told` is not repeated.
pub(super) fn fabrics(host: &HostStatus, told: &mut BTreeSet<String>) -> String {
    let each = host.fabrics.iter().map(|(name, trouble)| match trouble.as_str() {
        "" => name.clone(),
        trouble if trouble.len() > SHORT_BYTES && !told.insert(trouble.to_owned()) => format!("no {name} (as above)"),
        trouble => format!("no {name} ({trouble})"),
    });
    each.collect::<Vec<_>>().join(", ")
}

fn unreachable_hosts(statuses: &[Status]) -> Vec<&str> {
    statuses.iter().filter(|status| status.host.is_err()).map(|status| status.name.as_str()).collect()
}

fn complain_of_unreachable(statuses: &[Status]) {
    for (name, error) in statuses.iter().filter_map(|status| Some((&status.name, status.host.as_ref().err()?))) {
        complain(format_args!("host {name}: {}", error.reason));
    }
}

pub(super) fn code(is_well: bool) -> ExitCode {
    if is_well { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) }
}
