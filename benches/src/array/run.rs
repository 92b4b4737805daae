//! One run of one of the project's own contenders: `gossamer-bench array-run`, alone or as the machines of a rack, and
//! the examples `pagerank`, `components` and `heat`, each compared with plain threads, or one, after the clock.
//!
//! Not here: the work of the contenders (rack.rs, alone.rs).

use super::alone::{self, Means};
use super::{rack, store};
use crate::machines::{WORKERS_MAX, over_rack};
use crate::prelude::*;
use exchange::array::{Job, Outcome, Work};
use gossamer::bootstrap::FabricChoice;
use gossamer_examples::heaps::options::machine_args;
use gossamer_examples::heat;
use gossamer_examples::machines::{self, RackOptions};
use gossamer_examples::program;
use gossamer_examples::vertices::options::{Components, PageRank};
use gossamer_examples::vertices::report::{Found, Report};
use gossamer_examples::vertices::start::{label, rank};
use std::ffi::OsString;
use std::process::ExitCode;

/// Edges for each vertex.
pub const EDGE_FACTOR: u32 = 16;

/// Options of `array-run`.
#[derive(Clone, Debug, Args)]
pub struct ArrayRun {
    /// The means by which elements are accessed.
    #[arg(long)]
    contender: Means,
    /// Processes.
    #[arg(long, default_value_t = 1)]
    processes: u16,
    /// Workers in all processes together.
    #[arg(long, default_value_t = 1)]
    workers: u32,
    #[command(flatten)]
    job: Job,
}

/// Runs the contender, or starts its machines.
pub fn command(options: ArrayRun) -> Result<()> {
    let ArrayRun { contender, processes, workers, job } = options;
    job.check().map_err(anyhow::Error::msg)?;
    ensure!((1..=WORKERS_MAX as u32).contains(&workers), "--workers {workers}: 1 to {WORKERS_MAX} are possible");
    let outcome = match contender {
        Means::Vec | Means::Memcpy | Means::Counted => Some(alone::measure(contender, &job)?),
        _ => over_rack(processes, workers, FabricChoice::Auto, move || match job.work {
            Work::Gets | Work::Puts => store::measure(contender, job),
            _ => rack::measure(contender, job),
        })?,
    };
    tell(outcome)
}

fn tell(outcome: Option<Outcome>) -> Result<()> {
    if let Some(outcome) = outcome {
        println!("{}", outcome.line()?);
    }
    Ok(())
}

pub fn ranks_command(options: PageRank) -> Result<()> {
    let (rack, args) = (options.common.rack.clone(), named("array-ranks", options.machine_args()));
    example("array-ranks", &rack, args, move || outcome(&rank(&options)?))
}

pub fn labels_command(options: Components) -> Result<()> {
    let (rack, args) = (options.common.rack.clone(), named("array-labels", options.machine_args()));
    example("array-labels", &rack, args, move || outcome(&label(&options.common)?))
}

/// The arguments of a machine, behind the name of the command.
fn named(command: &str, args: Vec<OsString>) -> Vec<OsString> {
    [OsString::from(command)].into_iter().chain(args).collect()
}

fn outcome(report: &Report) -> Result<Outcome> {
    ensure!(report.verdict.is_some() && report.is_good(), "it is not as on one thread: {report}");
    let uses = if matches!(report.found, Found::Ranks(_)) { u64::from(report.rounds) } else { 1 };
    Ok(Outcome { ops: report.edges * uses, seconds: report.time.as_secs_f64() })
}

pub fn heat_command(options: heat::Options) -> Result<()> {
    let rack = options.common.rack.clone();
    example("array-heat", &rack, machine_args(), move || {
        let report = heat::spread(&options)?;
        ensure!(report.twin.is_some() && report.is_good(), "it is not as with plain threads: {}", report.text);
        Ok(Outcome { ops: report.count, seconds: report.time.as_secs_f64() })
    })
}

fn example(
    name: &'static str,
    rack: &RackOptions,
    args: Vec<OsString>,
    find: impl FnOnce() -> Result<Outcome> + Send + 'static,
) -> Result<()> {
    let status = machines::run(program::Program(name), rack, args, move || {
        tell(Some(find()?))?;
        Ok(true)
    })?;
    ensure!(status == ExitCode::SUCCESS, "{name} failed");
    Ok(())
}
