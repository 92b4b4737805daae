//! The watched program: one on a rack, by its number, or one with a view, by its address.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use gossamer::control::Look;
use gossamer::view::source::{Answer, MOVE_LIMIT, dump_text, move_text};
use gossamer::view::{Snapshot, Snapshots, Source, chrome};

use super::address::{Address, LIMIT as WEB_LIMIT, STDIN};
use super::ask::Ask;
use super::complain;
use crate::outcome::{FAILURE_STATUS, USAGE_STATUS};
use crate::rack::ask::ask;
use crate::rack::look::OnRack;
use crate::wire::{ProgramId, Reply, Request};

/// Longest wait for machines to answer with a dump or to send a trace.
const LIMIT: Duration = Duration::from_secs(3);
const TRACE_LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub(super) struct Target {
    #[command(flatten)]
    pub(super) ask: Ask,

    /// The program, as `gossamer-launch ps` names it, or the address of its view (http://..), or `-` to read that
    /// address from standard input [default: the running program]
    pub(super) program: Option<String>,

    /// Read the token of that address from FILE, of mode 0600, or from standard input (`-`) [default:
    /// $GOSSAMER_VIEW_TOKEN, or the token in the address, where others on this host may see it]
    #[arg(long, value_name = "FILE", requires = "program")]
    pub(super) token_file: Option<PathBuf>,
}

/// A watched program.
pub(super) enum Watched {
    Rack(Box<OnRack>, Snapshots),
    Web(Address),
}

impl Target {
    /// Returns the program, or the exit status after the cause was printed.
    pub(super) fn find(&self) -> Result<Watched, ExitCode> {
        let wrong = |cause: &dyn Display, status: u8| {
            complain(cause);
            ExitCode::from(status)
        };
        if let Some(text) = self.program.as_ref().filter(|text| *text == STDIN || text.contains("://")) {
            let address = Address::find(text, self.token_file.as_deref());
            return address.map(Watched::Web).map_err(|cause| wrong(&cause, USAGE_STATUS));
        }
        if self.token_file.is_some() {
            return Err(wrong(&"--token-file is for the address of a view (http://..)", USAGE_STATUS));
        }
        let named = self.program.as_ref().map(|text| text.parse::<ProgramId>()).transpose();
        let named = named.map_err(|cause| wrong(&cause, USAGE_STATUS))?;
        let (rack, keys, hosts) = self.ask.whom()?;
        let program = match named {
            Some(program) => program,
            None => {
                let answers = ask(&rack, &hosts, &keys, &Request::Status);
                let mut found = Vec::new();
                for answer in answers {
                    match answer.outcome {
                        Ok((_, Reply::Status(status))) => {
                            found.extend(status.programs.into_iter().map(|program| program.id));
                        }
                        Ok(_) => {}
                        Err(error) => complain(format_args!("host {}: {}", answer.host, error.reason)),
                    }
                }
                found.sort();
                found.dedup();
                let parsed = found.first().and_then(|id| id.parse().ok());
                match (parsed, found.len()) {
                    (Some(program), 1) => program,
                    (_, 0) => return Err(wrong(&"no program runs on the hosts that answer", FAILURE_STATUS)),
                    _ => {
                        return Err(wrong(
                            &format!("several programs run, name one: {}", found.join(", ")),
                            USAGE_STATUS,
                        ));
                    }
                }
            }
        };
        Ok(Watched::Rack(Box::new(OnRack { rack, hosts, keys, program }), Snapshots::default()))
    }
}

impl Watched {
    /// Returns the current snapshot of the program.
    pub(super) fn snapshot(&self) -> Result<Snapshot, String> {
        match self {
            Watched::Rack(source, snapshots) => {
                let snapshot = snapshots.take(&**source, Duration::ZERO);
                match snapshot.machines.is_empty() {
                    true if snapshot.alerts.is_empty() => Err("no machine answers".to_owned()),
                    true => Err(snapshot.alerts.join("; ")),
                    false => Ok(snapshot),
                }
            }
            Watched::Web(address) => {
                let body = address.get("sample.json", WEB_LIMIT)?;
                let snapshot: Snapshot =
                    serde_json::from_slice(&body).map_err(|error| format!("{} is no view: {error}", address.host()))?;
                if snapshot.machines.is_empty() { Err("no machine answers".to_owned()) } else { Ok(snapshot) }
            }
        }
    }

    /// Returns the place where each fiber waits, and the missing parts.
    pub(super) fn dump(&self) -> Result<(String, Vec<String>), String> {
        match self {
            Watched::Rack(source, _) => {
                let Answer { machines, troubles } = source.look(Look::Dump, LIMIT);
                let answer = Answer { machines, troubles };
                Ok((dump_text(&answer), answer.troubles))
            }
            Watched::Web(address) => {
                let body = address.get("dump", WEB_LIMIT)?;
                Ok((String::from_utf8_lossy(&body).into_owned(), Vec::new()))
            }
        }
    }

    /// Asks a thread to go to a machine; returns [`DONE`](gossamer::view::threads::DONE), or why it has not.
    pub(super) fn send_thread(&self, thread: u64, machine: u16) -> Result<String, String> {
        match self {
            Watched::Rack(source, _) => Ok(move_text(&source.look(Look::Move { thread, machine }, MOVE_LIMIT))),
            Watched::Web(address) => {
                let what = format!("move?thread={thread}&machine={machine}");
                let body = address.request("POST", &what, MOVE_LIMIT.saturating_add(WEB_LIMIT))?;
                Ok(String::from_utf8_lossy(&body).into_owned())
            }
        }
    }

    /// Returns a trace as Chrome's JSON, and its missing parts.
    pub(super) fn trace(&self, time: Duration) -> Result<(String, Vec<String>), String> {
        match self {
            Watched::Rack(source, _) => Ok(chrome::of_answer(&source.look(Look::Trace(time), TRACE_LIMIT))),
            Watched::Web(address) => {
                let what = format!("trace.json?seconds={}", time.as_secs_f64());
                let body = address.get(&what, time.saturating_add(TRACE_LIMIT))?;
                Ok((String::from_utf8_lossy(&body).into_owned(), Vec::new()))
            }
        }
    }
}
