//! How the larger examples start themselves once for each machine of a rack on this host, with the library that is
//! under `gossamer-launch`.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use gossamer::bootstrap::FabricChoice;
use gossamer_daemon::launch::{self, LaunchConfig};
use gossamer_daemon::options::RunOptions;

use crate::program::{Program, is_machine};
use crate::progress;

/// Arguments for the machines of a program.
#[derive(Clone, Debug, Args)]
pub struct RackOptions {
    /// Number of processes to start on this host, each a machine of the rack; 1 starts none: all in this process
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128))]
    pub local: Option<u16>,

    /// Workers in all processes together; without it as many as there are cores
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,

    /// The fabric between processes: shm, tcp, verbs or auto
    #[arg(long, value_name = "FABRIC", default_value = "auto")]
    pub fabric: FabricChoice,

    /// The terminal for the progress bar: passed to machine 0, since its own standard error is a pipe
    #[arg(long, hide = true, value_name = "TTY")]
    pub progress_on: Option<PathBuf>,
}

/// The machines to start.
#[derive(Debug)]
pub struct Machines {
    /// Program, for messages.
    pub program: Program,
    /// Number of machines, each a process.
    pub machines: u16,
    /// Workers in all of them together; without it as many as there are cores.
    pub threads: Option<usize>,
    /// The fabric between them.
    pub fabric: FabricChoice,
    /// The arguments of each.
    pub args: Vec<OsString>,
}

impl Machines {
    /// One machine of this program, without arguments.
    pub fn of(program: Program) -> Machines {
        Machines { program, machines: 1, threads: None, fabric: FabricChoice::Auto, args: Vec::new() }
    }
}

/// Starts this program once for each machine, and waits for its end.
///
/// # Errors
/// Fewer threads than machines; machines that cannot be started.
pub fn launch(start: &Machines) -> anyhow::Result<ExitCode> {
    let machines = start.machines;
    if let Some(threads) = start.threads.filter(|threads| *threads < usize::from(machines)) {
        bail!(
            "--threads {threads} is not enough for {machines} processes: give one for each, or fewer processes with \
             --local"
        );
    }
    let program = env::current_exe().context("where this program is")?.into();
    let options = RunOptions {
        threads: start.threads.map(|threads| u32::try_from(threads).unwrap_or(u32::MAX)),
        fabric: Some(start.fabric),
        no_prefix: true, // machine 0 alone prints
        must_join: true,
        ..RunOptions::default()
    };
    let config = LaunchConfig { options, ..LaunchConfig::new(program, start.args.clone(), machines) };
    let ended = launch::run(&config)?;
    for message in ended.messages() {
        start.program.complain(message);
    }
    Ok(ExitCode::from(ended.status()))
}

/// Runs `body`, which says whether all is well, as the first fiber of a rack: in this process, or, where several were
/// asked for, in the first of them, which get `args`.
///
/// # Errors
/// Machines that cannot be started; `--local` where a launcher has started this process.
pub fn run(
    program: Program,
    options: &RackOptions,
    args: Vec<OsString>,
    body: impl FnOnce() -> anyhow::Result<bool> + Send + 'static,
) -> anyhow::Result<ExitCode> {
    run_with(&gossamer::builder(), program, options, args, body)
}

/// Same as [`run`], with other settings of the rack.
///
/// # Errors
/// Those of [`run`].
pub fn run_with(
    builder: &gossamer::Builder,
    program: Program,
    options: &RackOptions,
    mut args: Vec<OsString>,
    body: impl FnOnce() -> anyhow::Result<bool> + Send + 'static,
) -> anyhow::Result<ExitCode> {
    let (machines, threads) = (options.local.unwrap_or(1), options.threads.map(usize::from));
    if is_machine() {
        ensure!(options.local.is_none(), "a launcher has started this process, as one of several: leave out --local");
    } else if machines > 1 {
        if let Some(terminal) = progress::terminal() {
            args.extend(["--progress-on".into(), terminal.into()]);
        }
        return launch(&Machines { machines, threads, fabric: options.fabric, args, ..Machines::of(program) });
    }
    Ok(program.on_rack_with(builder, threads.unwrap_or(0), body))
}
