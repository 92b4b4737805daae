//! One run of one of the project's own contenders: `gossamer-bench array-run`, alone or as the machines of a rack.
//!
//! Here: its options, and how it starts itself as several processes, with the library that is under `gossamer-launch`.
//! Not here: the work of the contenders (rack.rs, alone.rs).

use std::env;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use exchange::array::Job;
use gossamer::bootstrap::{FabricChoice, LAUNCHER};
use gossamer_daemon::launch::{self, LaunchConfig};
use gossamer_daemon::options::RunOptions;

use super::{alone, rack};

/// The means by which elements are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Contender {
    /// The array: `get`, `set`, `apply`.
    Array,
    /// The array, whole chunks: `views`.
    ArrayViews,
    /// The array, operations in bulk: `apply_all`.
    ArrayBulk,
    /// The array: `write_lock`, then `get` and `set`.
    ArrayLock,
    /// A `Vec` at each place, by `apply_then`.
    Trusts,
    /// A plain `Vec`.
    Vec,
    /// A copy of memory.
    Memcpy,
    /// Chunks with counted references.
    Counted,
}

/// Options of `array-run`.
#[derive(Clone, Debug, Args)]
pub struct ArrayRun {
    /// The means by which elements are accessed.
    #[arg(long)]
    contender: Contender,
    /// Processes.
    #[arg(long, default_value_t = 1)]
    processes: u16,
    /// Workers in all processes together.
    #[arg(long, default_value_t = 1)]
    workers: u32,
    /// The fabric between the processes: shm, tcp or auto.
    #[arg(long, default_value = "auto")]
    fabric: FabricChoice,
    #[command(flatten)]
    job: Job,
}

/// Runs the contender, or starts its machines.
///
/// # Errors
/// Options out of range; machines that could not be started or failed; wrong elements.
pub fn command(options: ArrayRun) -> Result<()> {
    options.job.check().map_err(anyhow::Error::msg)?;
    let workers = options.workers as usize;
    ensure!((1..=rack::WORKERS_MAX).contains(&workers), "--workers {workers}: 1 to {} are possible", rack::WORKERS_MAX);
    if matches!(options.contender, Contender::Vec | Contender::Memcpy | Contender::Counted) {
        println!("{}", alone::measure(options.contender, &options.job)?.line()?);
        return Ok(());
    }
    if options.processes > 1 && env::var_os(LAUNCHER).is_none() {
        return start(&options);
    }
    let measured = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&measured);
    let gsm_main = move || {
        let outcome = rack::measure(options.contender, options.job);
        *tell.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    };
    gossamer::main(gsm_main, workers);
    // Read after the fiber has ended; other machines do not get here.
    let measured = measured.lock().unwrap_or_else(PoisonError::into_inner).take();
    println!("{}", measured.ok_or_else(|| anyhow!("the run has no outcome"))??.line()?);
    Ok(())
}

fn start(options: &ArrayRun) -> Result<()> {
    let program = env::current_exe().context("where this program is")?.into();
    let contender = options.contender.to_possible_value().context("the name of a contender")?;
    let (processes, workers) = (options.processes.to_string(), options.workers.to_string());
    let own = ["array-run", "--contender", contender.get_name(), "--processes", &processes, "--workers", &workers];
    let args = own.map(str::to_owned).into_iter().chain(options.job.arguments()).map(Into::into).collect();
    let (threads, fabric) = (Some(options.workers), Some(options.fabric));
    let of_run = RunOptions { threads, fabric, no_prefix: true, must_join: true, ..RunOptions::default() };
    let config = LaunchConfig { options: of_run, ..LaunchConfig::new(program, args, options.processes) };
    let ended = launch::run(&config)?;
    if let Some(message) = ended.messages().first() {
        bail!("{message}");
    }
    ensure!(ended.status() == 0, "the machines ended with status {}", ended.status());
    Ok(())
}
