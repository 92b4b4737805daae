//! `gossamer-launch logs --output`: the output of a program, line by line as `run` shows it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};

use comm::secure::Keys;

use super::complain;
use crate::config::{Host, RackConfig};
use crate::output::{Lines, Target};
use crate::rack::output::{Answer, read};
use crate::signals;
use crate::wire::{ProgramId, Stream, Written};

/// Destination of the lines, and the lines that have begun.
struct Shown {
    stdout: Target,
    stderr: Target,
    /// Begun lines by host, machine and stream.
    begun: BTreeMap<(usize, u16, Stream), Lines>,
    failed: Option<(Stream, io::Error)>,
}

impl Shown {
    fn write(&mut self, stream: Stream, text: &[u8]) {
        let target = if stream == Stream::Out { &self.stdout } else { &self.stderr };
        if self.failed.is_none()
            && let Err(error) = target.write(text)
        {
            self.failed = Some((stream, error.into()));
        }
    }

    fn take(&mut self, number: usize, host: &Host, written: Written) {
        let Written { machine, stream, bytes } = written;
        let lines = self.begun.entry((number, machine, stream));
        let lines = lines.or_insert_with(|| Lines::new(&format!("m{machine}@{} | ", host.name)));
        let mut out = Vec::new();
        lines.push(&bytes, &mut out);
        self.write(stream, &out);
    }

    fn end(&mut self) {
        for ((_, _, stream), mut lines) in std::mem::take(&mut self.begun) {
            let mut out = Vec::new();
            lines.end(&mut out);
            self.write(stream, &out);
        }
    }
}

/// Shows the output; returns whether all hosts have answered and one of them knows the program.
///
/// # Errors
/// A failed write to standard output.
pub(super) fn show(
    rack: &RackConfig,
    keys: &Keys,
    hosts: &[Host],
    program: ProgramId,
    follow: bool,
) -> io::Result<bool> {
    let (stdout, stderr) = Target::standard();
    let shown = Mutex::new(Shown { stdout, stderr, begun: BTreeMap::new(), failed: None });
    let take = |number: usize, pieces: Vec<Written>, is_cut: bool| {
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if is_cut {
            complain(format_args!("host {}: some output before this is not kept any more", hosts[number].name));
        }
        pieces.into_iter().for_each(|written| shown.take(number, &hosts[number], written));
        shown.failed.is_none()
    };
    let told = read(rack, hosts, keys, program, follow, &take);
    let mut shown = shown.into_inner().unwrap_or_else(PoisonError::into_inner);
    shown.end();
    match shown.failed {
        Some((Stream::Out, error)) => return Err(error),
        Some((Stream::Err, _)) => return Ok(false), // standard error is gone: no place for the cause
        None => {}
    }
    for (host, told) in hosts.iter().zip(&told) {
        match told {
            Ok(Answer::All(exits)) => exits.iter().for_each(|(machine, status)| tell_exit(host, *machine, *status)),
            Ok(Answer::Unknown | Answer::Left) => {}
            Err(reason) => complain(format_args!("host {}: {reason}", host.name)),
        }
    }
    let is_found = told.iter().any(|told| matches!(told, Ok(Answer::All(_))));
    if !is_found {
        complain(format_args!("no host that answers remembers program {program}"));
    }
    Ok(is_found && told.iter().all(Result::is_ok))
}

fn tell_exit(host: &Host, machine: u16, status: i32) {
    let status = ExitStatus::from_raw(status);
    let host = &host.name;
    match (status.code(), status.signal()) {
        (Some(0), _) => {}
        (_, Some(signal)) => {
            complain(format_args!("machine {machine} on {host} was killed by {}", signals::describe(signal)));
        }
        (Some(code), _) => complain(format_args!("machine {machine} on {host} exited with status {code}")),
        (None, None) => complain(format_args!("machine {machine} on {host} ended in an unknown way ({status})")),
    }
}
