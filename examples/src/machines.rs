//! How the larger examples start themselves once for each machine of a rack on this host, with the library that is under
//! `gossamer-launch`.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use gossamer::bootstrap::FabricChoice;
use gossamer_daemon::launch::{self, LaunchConfig};
use gossamer_daemon::supervisor::Policy;

/// What to start.
#[derive(Debug)]
pub struct Machines {
    /// The program's name, for messages.
    pub name: &'static str,
    /// How many machines, each a process.
    pub machines: u16,
    /// Workers in all of them together; without it as many as there are cores.
    pub threads: Option<usize>,
    /// What carries requests between them.
    pub fabric: FabricChoice,
    /// The arguments of each.
    pub args: Vec<OsString>,
}

impl Machines {
    /// One machine of this program, without arguments.
    pub fn of(name: &'static str) -> Machines {
        Machines { name, machines: 1, threads: None, fabric: FabricChoice::Auto, args: Vec::new() }
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
            "--threads {threads} is not enough for {machines} processes: give one for each, or fewer processes with --local"
        );
    }
    let program = env::current_exe().context("where this program is")?.into();
    let config = LaunchConfig {
        threads: start.threads.map(|threads| u32::try_from(threads).unwrap_or(u32::MAX)),
        fabric: start.fabric,
        prefix: false, // machine 0 alone prints
        policy: Policy { must_join: true, ..Policy::default() },
        ..LaunchConfig::new(program, start.args.clone(), machines)
    };
    let ended = launch::run(&config)?;
    for message in ended.messages() {
        let _ = writeln!(io::stderr(), "{}: {message}", start.name); // nobody reads it: the status still tells
    }
    Ok(ExitCode::from(ended.status()))
}
