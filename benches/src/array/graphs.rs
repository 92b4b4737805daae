//! The examples `pagerank` and `components` as contenders of `array`: each run compared with one thread, after the
//! clock, and told as an outcome.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use exchange::array::Outcome;
use gossamer_examples::machines::{self, RackOptions};
use gossamer_examples::program::Program;
use gossamer_examples::vertices::options::{Components, PageRank};
use gossamer_examples::vertices::report::{Found, Report};
use gossamer_examples::vertices::start::{label, rank};

/// Edges for each vertex.
pub const EDGE_FACTOR: u32 = 16;

/// Ranks of a graph.
///
/// # Errors
/// As the example; ranks that are not those of one thread.
pub fn ranks_command(options: PageRank) -> Result<()> {
    let (rack, args) = (options.common.rack.clone(), options.machine_args());
    run("array-ranks", &rack, args, move || rank(&options))
}

/// Components of a graph.
///
/// # Errors
/// As the example; components that are not those of one thread.
pub fn labels_command(options: Components) -> Result<()> {
    let (rack, args) = (options.common.rack.clone(), options.machine_args());
    run("array-labels", &rack, args, move || label(&options.common))
}

fn run(
    name: &'static str,
    rack: &RackOptions,
    args: Vec<OsString>,
    find: impl FnOnce() -> Result<Report> + Send + 'static,
) -> Result<()> {
    let args = [OsString::from(name)].into_iter().chain(args).collect();
    let status = machines::run(Program(name), rack, args, move || {
        let report = find()?;
        ensure!(report.verdict.is_some() && report.is_good(), "it is not as on one thread: {report}");
        let uses = if matches!(report.found, Found::Ranks(_)) { u64::from(report.rounds) } else { 1 };
        println!("{}", Outcome { ops: report.edges * uses, seconds: report.time.as_secs_f64() }.line()?);
        Ok(true)
    })?;
    ensure!(status == ExitCode::SUCCESS, "{name} failed");
    Ok(())
}
