//! `gossamer-launch threads` and `move`: the threads of a C program over several machines, and their moves.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use gossamer::view::Snapshot;
use gossamer::view::threads::{DONE, ThreadSample};
use serde_json::json;

use super::ask::{Ask, NOT_WELL};
use super::complain;
use super::console::{plain, print};
use super::movers::{all_threads, origin};
use super::target::{Target, Watched};
use crate::outcome::FAILURE_STATUS;

/// Time between two samples, of which the second tells how busy threads are: longer than a page keeps a sample.
const INTERVAL: Duration = Duration::from_millis(600);

#[derive(Debug, Args)]
pub(super) struct Threads {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct Move {
    #[command(flatten)]
    ask: Ask,

    /// The program, as `gossamer-launch ps` names it, or the address of its view (http://..), or `-` to read that
    /// address from standard input
    program: String,

    /// The thread, as `gossamer-launch threads` names it
    #[arg(value_parser = parse_thread)]
    thread: u64,

    /// The machine, from 0 on
    machine: u16,

    /// Read the token of the view from FILE, of mode 0600, or from standard input (`-`)
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Reads an id, as messages name it (0x..), or as a plain number.
fn parse_thread(text: &str) -> Result<u64, String> {
    let found = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    found.map_err(|_| "an id as `gossamer-launch threads` lists it: 0x6753000000010001".to_owned())
}

fn failed(cause: &str) -> ExitCode {
    complain(cause);
    ExitCode::from(FAILURE_STATUS)
}

impl Threads {
    pub(super) fn main(&self) -> io::Result<ExitCode> {
        let watched = match self.target.find() {
            Ok(watched) => watched,
            Err(code) => return Ok(code),
        };
        let second = |watched: &Watched| {
            watched.snapshot()?;
            std::thread::sleep(INTERVAL);
            watched.snapshot()
        };
        match second(&watched) {
            Err(cause) => Ok(failed(&cause)),
            Ok(now) => {
                print(&if self.target.ask.json { object(&now).to_string() } else { table(&now) })?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Returns all threads, with their machines, by their ids.
fn all(now: &Snapshot) -> Vec<(u16, &ThreadSample)> {
    let mut all: Vec<_> = all_threads(now).collect();
    all.sort_by_key(|(_, thread)| &thread.id);
    all
}

fn object(now: &Snapshot) -> serde_json::Value {
    let thread = |(machine, thread): (u16, &ThreadSample)| {
        json!({"id": thread.id, "function": thread.function, "machine": machine,
               "busy": f64::from(thread.busy) / 1000.0, "moves": thread.moves, "came_from": thread.came_from,
               "tie": thread.tie})
    };
    json!({"program": now.program(), "threads": all(now).into_iter().map(thread).collect::<Vec<_>>()})
}

fn table(now: &Snapshot) -> String {
    let all = all(now);
    if all.is_empty() {
        return format!("{}: no threads of a program that was started with --region", plain(now.program()));
    }
    let mut text = format!("{:<20}{:<24}{:>7}{:>6}{:>6}  ", "THREAD", "FUNCTION", "MACHINE", "BUSY", "MOVES");
    text += &format!("{:<16}STAYS", "CAME FROM");
    for (machine, thread) in all {
        let function: String = plain(&thread.function).chars().take(23).collect();
        let busy = format!("{:.0}%", f64::from(thread.busy) / 10.0);
        let (id, moves) = (plain(&thread.id), thread.moves);
        let (came, tie) = (origin(&thread.came_from), plain(&thread.tie));
        text += format!("\n{id:<20}{function:<24}{machine:>7}{busy:>6}{moves:>6}  {came:<16}{tie}").trim_end();
    }
    text
}

impl Move {
    pub(super) fn main(self) -> io::Result<ExitCode> {
        let Move { ask, program, thread, machine, token_file } = self;
        let is_json = ask.json;
        let target = Target { ask, program: Some(program), token_file };
        let watched = match target.find() {
            Ok(watched) => watched,
            Err(code) => return Ok(code),
        };
        let outcome = match watched.send_thread(thread, machine) {
            Ok(outcome) => outcome,
            Err(cause) => return Ok(failed(&cause)),
        };
        let is_done = outcome == DONE;
        if is_json {
            let why = if is_done { None } else { Some(&outcome) };
            print(
                &json!({"thread": format!("{thread:#x}"), "machine": machine, "done": is_done, "why": why}).to_string(),
            )?;
        } else if is_done {
            print(&format!("thread {thread:#x} is on machine {machine}"))?;
        } else {
            complain(plain(&outcome));
        }
        Ok(ExitCode::from(if is_done { 0 } else { NOT_WELL }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gossamer::view::MachineSample;
    use gossamer::view::snapshot::Seen;
    use gossamer::view::threads::ThreadsSample;

    #[test]
    fn threads_are_listed_by_their_ids_with_their_machines_and_ties() {
        let thread = |id: u64, tie: &str| ThreadSample {
            id: format!("{id:#x}"),
            function: "wo\x1brk".into(),
            busy: 990,
            moves: id as u32,
            came_from: (id == 1).then(|| (0, "undone".into())),
            tie: tie.into(),
        };
        let sample = |machine, threads| {
            let threads = ThreadsSample { threads, ..ThreadsSample::default() };
            MachineSample { machine, threads, ..MachineSample::default() }
        };
        let samples = [sample(0, vec![thread(3, "it is held")]), sample(1, vec![thread(1, "")])];
        let seen = samples.map(|sample| Seen { answers: true, sample, ..Seen::default() });
        let now = Snapshot::new(seen.into(), &[]);
        let text = table(&now);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["0x1", "wo?rk", "1", "99%", "1", "m0:", "undone"]);
        assert_eq!(lines[2], ["0x3", "wo?rk", "0", "99%", "3", "it", "is", "held"]);
        assert_eq!(object(&now)["threads"][1]["id"], "0x3");
        let none = Snapshot::new(vec![Seen { answers: true, ..Seen::default() }], &[]);
        assert!(table(&none).contains("no threads"));
    }

    #[test]
    fn ids_are_read_as_they_are_listed() {
        assert_eq!(parse_thread("0x6753000000010001"), Ok(0x6753_0000_0001_0001));
        assert_eq!(parse_thread("7"), Ok(7));
        assert!(parse_thread("seven").is_err() && parse_thread("0x").is_err());
    }
}
