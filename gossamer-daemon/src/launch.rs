//! Starts the machines of a program on this host: for each a process, its memory, its control channel and its streams;
//! then hands them to [`crate::watch`]. What happens after the start is not here.
//!
//! Invariants: a machine inherits nothing but its streams and what its ticket hands it; a machine is killed by the kernel
//! when the launcher dies, however that happens; if one machine cannot be started, those before it are gone when
//! [`run`] returns.
#![allow(unsafe_code)] // pre_exec

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use comm::shm;
use gossamer::bootstrap::{FabricChoice, Plan, Ticket};
use gossamer::control::Control;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::input;
use crate::outcome::{NOT_STARTED_STATUS, Outcome};
use crate::output::{Forwarding, Source};
use crate::signals::Signals;
use crate::watch::{Bounds, Machine, Watch};

/// The most machines that are started on one host.
pub const MAX_LOCAL_MACHINES: u16 = 128;

/// What to start, and how.
#[derive(Debug, Clone)]
pub struct LaunchConfig {
    /// A path, or a name to be found in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// How many machines, from 1 to [`MAX_LOCAL_MACHINES`].
    pub machines: u16,
    /// Workers in all machines together; `None`: the program decides.
    pub threads: Option<usize>,
    /// Whether the machine's name goes before each line of output (with one machine it never does).
    pub prefix: bool,
    /// How long ending may take.
    pub bounds: Bounds,
}

/// Why a program could not be started or watched.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The number of machines is 0 or too big.
    #[error("cannot start {0} machines on one host: from 1 to {MAX_LOCAL_MACHINES} are possible")]
    Machines(u16),
    /// The program was not found, or may not be executed.
    #[error("cannot start {}: {source} ({})", program.display(), start_hint(program, source))]
    Program {
        /// As it was given.
        program: OsString,
        /// Why.
        source: io::Error,
    },
    /// The memory of the program could not be made.
    #[error(transparent)]
    Memory(#[from] comm::Error),
    /// The system refused something that a program needs.
    #[error("cannot {task}: {source}")]
    System {
        /// What was to be done.
        task: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl LaunchError {
    /// The exit status for the launcher where this error has one of its own.
    #[must_use]
    pub fn status(&self) -> Option<u8> {
        matches!(self, LaunchError::Program { .. }).then_some(NOT_STARTED_STATUS)
    }

    pub(crate) fn system<E: Into<io::Error>>(task: &'static str) -> impl Fn(E) -> LaunchError {
        move |error| LaunchError::System { task, source: error.into() }
    }
}

fn start_hint(program: &OsString, error: &io::Error) -> &'static str {
    let is_path = program.as_encoded_bytes().contains(&b'/');
    match error.kind() {
        io::ErrorKind::NotFound if is_path => "is the path right, and the interpreter of a script there?",
        io::ErrorKind::NotFound => "it is not in PATH; a program in this folder is written ./PROGRAM",
        io::ErrorKind::PermissionDenied => "it is a folder, or not executable: chmod +x",
        io::ErrorKind::WouldBlock => "too many processes: see ulimit -u",
        _ => "is it a program for this machine?",
    }
}

/// Runs a program from its start to its end. To be called from a thread that stays alive meanwhile, best the main one:
/// the kernel ties the machines' lives to it.
///
/// # Errors
/// When the program cannot be started or watched; none of its machines is left then.
pub fn run(config: &LaunchConfig) -> Result<Outcome, LaunchError> {
    if config.machines == 0 || config.machines > MAX_LOCAL_MACHINES {
        return Err(LaunchError::Machines(config.machines));
    }
    let signals = Signals::catch().map_err(LaunchError::system("catch signals"))?; // first: none may be missed
    let memory = shm::create(config.machines)?;
    let threads = config.threads.map(|threads| u32::try_from(threads).unwrap_or(u32::MAX));
    let plan = Plan::local(config.machines, FabricChoice::Shm, threads);
    let mut machines = Vec::new();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    for index in 0..config.machines {
        let (mut child, control) = start(config, &plan, index, &memory)?; // what is in `machines` is killed on drop
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        machines.push(Machine::new(index, child, control)?);
        let prefix = prefix(config, index);
        stdout.extend(streams.1.map(|stream| Source::new(stream, &prefix)));
        stderr.extend(streams.2.map(|stream| Source::new(stream, &prefix)));
        if let Some(stdin) = streams.0 {
            input::forward(stdin).map_err(LaunchError::system("start the thread for standard input"))?;
        }
    }
    drop(memory); // from here on it lives and dies with the machines
    let forwarding = Forwarding::start(stdout, stderr).map_err(LaunchError::system("start the threads for output"))?;
    let outcome = Watch::new(machines, config.bounds).run(&signals)?;
    forwarding.finish(&signals);
    Ok(outcome)
}

fn prefix(config: &LaunchConfig, index: u16) -> String {
    if !config.prefix || config.machines == 1 {
        return String::new();
    }
    let width = format!("m{}", config.machines - 1).len();
    format!("{:<width$} | ", format!("m{index}"))
}

fn start(
    config: &LaunchConfig,
    plan: &Plan,
    index: u16,
    memory: &shm::Segments,
) -> Result<(Child, Control), LaunchError> {
    let mut command = Command::new(&config.program);
    command.args(&config.args).process_group(0);
    command.stdin(if index == 0 { input::for_machine_0() } else { Stdio::null() });
    if config.machines > 1 {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let launcher = rustix::process::getpid();
    // SAFETY: between fork and exec only async-signal-safe things may happen: `die_with` makes two system calls, prctl
    // and getppid, and neither allocates nor locks.
    unsafe { command.pre_exec(move || die_with(launcher)) };
    let ticket = Ticket { machine: index, plan, memory: Some(memory) };
    let control = ticket.hand_to(&mut command).map_err(LaunchError::system("create a control channel"))?;
    let child = command.spawn();
    let child = child.map_err(|source| LaunchError::Program { program: config.program.clone(), source })?;
    Ok((child, control))
}

/// In the child: lets the kernel kill it when the launcher dies.
fn die_with(launcher: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(launcher) {
        return Err(Errno::SRCH.into()); // it died before the line above: nobody would end this process
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(machines: u16, prefix: bool) -> LaunchConfig {
        let bounds = Bounds::default();
        LaunchConfig { program: "true".into(), args: Vec::new(), machines, threads: None, prefix, bounds }
    }

    #[test]
    fn names_are_aligned_and_left_out_when_asked() {
        assert_eq!(prefix(&config(2, true), 1), "m1 | ");
        assert_eq!(prefix(&config(11, true), 9), "m9  | ");
        assert_eq!(prefix(&config(11, true), 10), "m10 | ");
        assert_eq!(prefix(&config(2, false), 1), "");
        assert_eq!(prefix(&config(1, true), 0), "");
    }

    #[test]
    fn the_number_of_machines_is_checked_by_the_library_too() {
        for machines in [0, MAX_LOCAL_MACHINES + 1, u16::MAX] {
            assert!(matches!(run(&config(machines, true)), Err(LaunchError::Machines(_))));
        }
    }
}
