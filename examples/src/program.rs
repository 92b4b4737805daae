//! How the larger examples begin and end: alone or on a rack, their messages, and their exit status.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

/// A program, by its name.
#[derive(Clone, Copy, Debug)]
pub struct Program(pub &'static str);

impl Program {
    /// Ends the program; an error is reported.
    pub fn end(self, outcome: anyhow::Result<ExitCode>) -> ExitCode {
        outcome.unwrap_or_else(|error| {
            self.complain(format_args!("{error:#}"));
            ExitCode::FAILURE
        })
    }

    /// Whether all is well; an error is reported.
    pub fn is_well(self, outcome: anyhow::Result<bool>) -> bool {
        outcome.unwrap_or_else(|error| {
            self.complain(format_args!("{error:#}"));
            false
        })
    }

    /// Runs `body`, which says whether all is well, as the first fiber of the rack: on machine 0, the only one where
    /// this returns.
    pub fn on_rack(self, threads: usize, body: impl FnOnce() -> anyhow::Result<bool> + Send + 'static) -> ExitCode {
        self.on_rack_with(&gossamer::builder(), threads, body)
    }

    /// Same as [`on_rack`](Self::on_rack), with other settings of the rack.
    pub fn on_rack_with(
        self,
        builder: &gossamer::Builder,
        threads: usize,
        body: impl FnOnce() -> anyhow::Result<bool> + Send + 'static,
    ) -> ExitCode {
        let is_good = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&is_good);
        let gsm_main = move || tell.store(self.is_well(body()), Ordering::Relaxed); // read after the fiber has ended
        builder.clone().main(gsm_main, threads);
        status(is_good.load(Ordering::Relaxed))
    }

    /// One line on standard error, in one write.
    pub fn complain(self, message: impl Display) {
        let line = format!("{}: {message}\n", self.0);
        let _ = io::stderr().write_all(line.as_bytes()); // nobody reads it: the status still tells
    }
}

/// Has a launcher or a process manager started this process, as one of several?
pub fn is_machine() -> bool {
    gossamer::is_one_of_several()
}

/// The exit status.
pub fn status(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the results.
///
/// # Errors
/// They cannot be written. That nobody wants to read them is none.
pub fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("standard output"),
        _ => Ok(()),
    }
}
