//! How `sssp` starts, as a rack of processes or as one, and how it ends. No searching here.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::ensure;
use clap::Parser;

use super::components::{self, Found as Components};
use super::options::{Options, Sssp};
use super::report::Report;
use super::{run, single};
use crate::machines;
use crate::program::{Program, is_machine, print, status};

const PROGRAM: Program = Program("sssp");

/// Runs `sssp` with the arguments of this process.
pub fn main() -> ExitCode {
    let options = Sssp::parse().options; // exits with status 2 and the usage where they are wrong
    PROGRAM.end(start(&options, &[]))
}

/// Runs `sssp`; a program that has it as one of its commands names that in `command`, for the machines that are
/// started.
///
/// # Errors
/// A graph or root that cannot be searched; machines that cannot be started.
pub fn start(options: &Options, command: &[&str]) -> anyhow::Result<ExitCode> {
    if options.single {
        ensure!(!is_machine(), "a launcher has started this process, as one of several: leave out --single");
        return found(options, single::run, components::single).map(status);
    }
    let mut args: Vec<OsString> = command.iter().map(Into::into).collect();
    args.extend(options.machine_args());
    let asked = options.clone();
    machines::run(PROGRAM, &options.rack, args, move || found(&asked, run::run, components::run))
}

type Find<R> = fn(&Options) -> anyhow::Result<R>;

/// Finds the distances. Returns whether all is right, once it is printed.
fn found(options: &Options, paths: Find<Report>, components: Find<Components>) -> anyhow::Result<bool> {
    if options.components {
        let found = components(options)?;
        print(&if options.json { format!("{:#}\n", found.json()) } else { found.to_string() })?;
        return Ok(true);
    }
    let report = paths(options)?;
    print(&if options.json { format!("{:#}\n", report.json()) } else { report.to_string() })?;
    Ok(report.is_valid())
}
