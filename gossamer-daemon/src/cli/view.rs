//! `gossamer-launch dump`, `trace` and `view`: waiting fibers, worker history, and the page.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use gossamer::control::Look;
use gossamer::view::server::{self, Access};
use gossamer::view::source::Answer;
use gossamer::view::{Snapshot, Source};

use super::complain;
use super::console::{plain, print, write};
use super::target::{Target, Watched};
use crate::options::VIEW_ADDRESS;
use crate::outcome::{FAILURE_STATUS, USAGE_STATUS};
use crate::rack::look::OnRack;

#[derive(Debug, Args)]
pub(super) struct Dump {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct Trace {
    #[command(flatten)]
    target: Target,

    /// Length of the trace in seconds
    #[arg(long, short, value_name = "S", default_value_t = 1.0)]
    seconds: f64,

    /// Write it to FILE [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(super) struct View {
    #[command(flatten)]
    target: Target,

    /// Address to serve the page at
    #[arg(long, value_name = "ADDRESS", default_value = VIEW_ADDRESS)]
    at: String,

    /// Read the token from FILE, of mode 0600; needed where ADDRESS is not local to this host
    #[arg(long, value_name = "FILE")]
    view_token: Option<PathBuf>,

    /// Show the recording in FILE instead: one `sample.json` of a page on each line
    #[arg(long, value_name = "FILE", conflicts_with = "program")]
    recorded: Option<PathBuf>,
}

const HELP: &str = "\
The address that is printed holds a token: who has it may look, nobody else. Under it are
  sample.json    what the page shows
  metrics        for Prometheus: OpenMetrics 1.0, or the text format 0.0.4; `/metrics` with the token as a bearer is \
  the same
  dump           what all fibers wait for, and the stacks of workers that do not answer
  trace.json?seconds=S
Nothing there changes anything, but `POST move?thread=ID&machine=N`, which asks a thread of a C program that was \
started with --move to go to that machine. While nobody looks, the program is neither asked nor woken. Ctrl-C ends it.";

/// Prints the missing parts; status 0 if there are none.
fn report(troubles: &[String]) -> ExitCode {
    troubles.iter().for_each(complain);
    if troubles.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILURE_STATUS) }
}

fn failed(cause: &str) -> ExitCode {
    complain(cause);
    ExitCode::from(FAILURE_STATUS)
}

impl Dump {
    pub(super) fn main(&self) -> io::Result<ExitCode> {
        let watched = match self.target.find() {
            Ok(watched) => watched,
            Err(code) => return Ok(code),
        };
        match watched.dump() {
            Err(cause) => Ok(failed(&cause)),
            Ok((text, troubles)) => {
                let text = text.trim_end();
                match text.is_empty() {
                    true => {}
                    false if self.target.ask.json => {
                        print(&serde_json::json!({"dump": text.lines().collect::<Vec<_>>()}).to_string())?;
                    }
                    false => print(&text.lines().map(plain).collect::<Vec<_>>().join("\n"))?,
                }
                Ok(report(&troubles))
            }
        }
    }
}

impl Trace {
    pub(super) fn main(&self) -> io::Result<ExitCode> {
        let time = match Duration::try_from_secs_f64(self.seconds) {
            Ok(time) if time <= Look::TRACE_MAX && !time.is_zero() => time,
            _ => {
                complain(format_args!("--seconds {}: from 0.001 to {}", self.seconds, Look::TRACE_MAX.as_secs()));
                return Ok(ExitCode::from(USAGE_STATUS));
            }
        };
        let watched = match self.target.find() {
            Ok(watched) => watched,
            Err(code) => return Ok(code),
        };
        match watched.trace(time) {
            Err(cause) => Ok(failed(&cause)),
            Ok((json, troubles)) => {
                match &self.output {
                    None => write(&json)?,
                    Some(file) => {
                        if let Err(error) = std::fs::write(file, json) {
                            return Ok(failed(&format!("{}: {error}", file.display())));
                        }
                    }
                }
                Ok(report(&troubles))
            }
        }
    }
}

impl View {
    pub(super) fn main(&self) -> io::Result<ExitCode> {
        let access = match Access::new(&self.at, self.view_token.as_deref()) {
            Ok(access) => access,
            Err(cause) => {
                complain(cause);
                return Ok(ExitCode::from(USAGE_STATUS));
            }
        };
        let source: Arc<dyn Source> = match &self.recorded {
            Some(file) => match Recorded::read(file) {
                Ok(recorded) => Arc::new(recorded),
                Err(cause) => return Ok(failed(&cause)),
            },
            None => match self.target.find() {
                Ok(Watched::Rack(source, _)) => Arc::new(Running { source, is_silent: AtomicBool::new(false) }),
                Ok(Watched::Web(_)) => {
                    return Ok(failed("there is a page at this address already: open it in a browser"));
                }
                Err(code) => return Ok(code),
            },
        };
        match server::serve(&access, source) {
            Err(error) => Ok(failed(&format!("{}: {error}", self.at))),
            Ok(server) => {
                print(&format!("view at {}", server.url()))?;
                loop {
                    std::thread::park(); // until a signal ends this process
                }
            }
        }
    }
}

/// A program on a rack. Where no machine answers any more, the page keeps its last samples, and standard error says so.
struct Running {
    source: Box<OnRack>,
    is_silent: AtomicBool,
}

impl Source for Running {
    fn look(&self, look: Look, limit: Duration) -> Answer {
        let answer = self.source.look(look, limit);
        let is_silent = answer.machines.is_empty();
        // Relaxed: a flag on its own.
        if !self.is_silent.swap(is_silent, Ordering::Relaxed) && is_silent {
            let why = answer.troubles.join("; ");
            complain(format_args!("{why}: the page shows the last samples, if there are any"));
        }
        answer
    }
}

/// Recorded snapshots, served in order; the last one stays.
struct Recorded(Mutex<Vec<Snapshot>>);

impl Recorded {
    fn read(file: &std::path::Path) -> Result<Recorded, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let parsed = lines.map(serde_json::from_str).rev().collect::<Result<Vec<Snapshot>, _>>();
        let snapshots = parsed.map_err(|error| format!("{} is no sample.json: {error}", file.display()))?;
        if snapshots.is_empty() {
            Err(format!("{} is empty", file.display()))
        } else {
            Ok(Recorded(Mutex::new(snapshots)))
        }
    }
}

impl Source for Recorded {
    fn look(&self, look: Look, _: Duration) -> Answer {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if look != Look::Sample {
            return Answer { machines: Vec::new(), troubles: vec!["this is a record".to_owned()] };
        }
        let next = if left.len() > 1 { left.pop() } else { left.last().cloned() };
        let machines = next.into_iter().flat_map(|snapshot| snapshot.machines);
        let machines = machines.filter(|seen| seen.answers).map(|seen| (seen.sample.machine, seen.sample.to_bytes()));
        Answer { machines: machines.collect(), troubles: Vec::new() }
    }

    fn sample_age(&self) -> Duration {
        Duration::ZERO
    }
}
