//! How `sssp` starts, as a rack of processes or as one, and how it ends. No searching here.

use std::env;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use clap::Parser;

use super::components::{self, Found as Components};
use super::options::{Options, Sssp};
use super::report::Report;
use super::{run, single};
use crate::machines::{self, Machines};
use crate::progress;

/// Runs `sssp` with the arguments of this process.
pub fn main() -> ExitCode {
    let options = Sssp::parse().options; // exits with status 2 and the usage where they are wrong
    match start(&options, &[]) {
        Ok(status) => status,
        Err(error) => {
            complain(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs `sssp`; a program that has it as one of its commands names that in `command`, for the machines that are started.
///
/// # Errors
/// A graph or root that cannot be searched; machines that cannot be started.
pub fn start(options: &Options, command: &[&str]) -> anyhow::Result<ExitCode> {
    let is_machine = env::var_os(gossamer::bootstrap::LAUNCHER).is_some();
    let machines = options.local.unwrap_or(1);
    if is_machine {
        let is_alone = options.single || options.local.is_some();
        ensure!(!is_alone, "a launcher has started this process, as one of several: leave out --local and --single");
    } else if options.single {
        return found(options, single::run, components::single).map(status);
    } else if machines > 1 {
        let mut args: Vec<OsString> = command.iter().map(Into::into).collect();
        args.extend(options.machine_args());
        if let Some(terminal) = progress::terminal() {
            args.extend(["--progress-on".into(), terminal.into()]);
        }
        let (threads, fabric) = (options.threads.map(usize::from), options.fabric);
        return machines::launch(&Machines { machines, threads, fabric, args, ..Machines::of("sssp") });
    }
    // The first fiber of the rack runs on machine 0, the only one where `gossamer::main` returns.
    let is_good = Arc::new(AtomicBool::new(false));
    let (tell, options) = (Arc::clone(&is_good), options.clone());
    let threads = options.threads.map_or(0, usize::from);
    let gsm_main = move || match found(&options, run::run, components::run) {
        Ok(is_good) => tell.store(is_good, Ordering::Relaxed), // read after the fiber has ended
        Err(error) => complain(format_args!("{error:#}")),
    };
    gossamer::main(gsm_main, threads);
    Ok(status(is_good.load(Ordering::Relaxed)))
}

fn status(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

type Find<R> = fn(&Options) -> anyhow::Result<R>;

/// Finds what was asked for. Whether all is right, once it is printed.
fn found(options: &Options, paths: Find<Report>, components: Find<Components>) -> anyhow::Result<bool> {
    if options.components {
        let found = components(options)?;
        print(if options.json { format!("{:#}\n", found.json()) } else { found.to_string() })?;
        return Ok(true);
    }
    let report = paths(options)?;
    print(if options.json { format!("{:#}\n", report.json()) } else { report.to_string() })?;
    Ok(report.is_valid())
}

fn print(text: String) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("standard output"),
        _ => Ok(()), // written, or nobody wants to read it
    }
}

fn complain(message: std::fmt::Arguments<'_>) {
    let line = format!("sssp: {message}\n");
    let _ = io::stderr().write_all(line.as_bytes()); // nobody reads it: the status still tells
}
