//! What the command lines print. A line that cannot be written is an error: it is told on standard error, and the status
//! is not 0. Where nobody reads any more (`| head`), it is not told: the status says it, as that of `cat` does.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;

use crate::outcome::{CLOSED_STATUS, FAILURE_STATUS};
use crate::output::{Unwritten, write_all};
use crate::wire::Stream;

/// The arguments of this process, or what to exit with: after `--help` and `--version`, and where they are wrong.
pub(super) fn parse<P: Parser>(program: &str) -> Result<P, ExitCode> {
    P::try_parse().map_err(|error| {
        let written = error.print().and_then(|()| io::stdout().flush());
        match written {
            Err(trouble) if !error.use_stderr() => unwritten(program, trouble),
            // Wrong arguments: the status tells, also where standard error cannot.
            _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(FAILURE_STATUS)),
        }
    })
}

/// Writes a line to standard output, at once.
pub(super) fn print(line: &str) -> io::Result<()> {
    write(&format!("{line}\n"))
}

/// Writes text to standard output, at once.
pub(super) fn write(text: &str) -> io::Result<()> {
    Ok(write_all(rustix::stdio::stdout(), text.as_bytes())?)
}

/// Whether a line for standard error could not be written.
static HAS_LOST_A_LINE: AtomicBool = AtomicBool::new(false);

/// Writes a line to standard error. Where that cannot be, the status will tell ([`status`]).
pub(super) fn complain(message: impl std::fmt::Display) {
    let line = format!("gossamer-launch: {message}\n");
    if write_all(rustix::stdio::stderr(), line.as_bytes()).is_err() {
        HAS_LOST_A_LINE.store(true, Ordering::Relaxed); // a flag alone
    }
}

/// What to exit with: as `done` says, but with 0 only if all was written.
pub(super) fn status(program: &str, done: io::Result<ExitCode>) -> ExitCode {
    match done {
        Err(error) => unwritten(program, error),
        Ok(ExitCode::SUCCESS) if HAS_LOST_A_LINE.load(Ordering::Relaxed) => ExitCode::from(FAILURE_STATUS),
        Ok(code) => code,
    }
}

/// The status of a command whose standard output cannot be written.
fn unwritten(program: &str, error: io::Error) -> ExitCode {
    let unwritten = Unwritten { stream: Stream::Out, error };
    if unwritten.is_closed() {
        return ExitCode::from(CLOSED_STATUS);
    }
    let _ = write_all(rustix::stdio::stderr(), format!("{program}: {unwritten}\n").as_bytes()); // as in `complain`
    ExitCode::from(FAILURE_STATUS)
}
