//! `run --detach`: the launcher continues in the background, in its own session. Its caller prints the program's number
//! and ends once the program runs.
//!
//! The caller starts this executable again with the same arguments, and [`VARIABLE`] as the mark. That process writes
//! the number to its standard output. Until then the two end together, and the caller has the process's messages and
//! status.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Signal, getppid, set_parent_process_death_signal, setsid};

use super::console::print;
use crate::outcome::FAILURE_STATUS;
use crate::wire::ProgramId;

/// Marks the process in the background; its value is the process id of the caller.
const VARIABLE: &str = "GOSSAMER_DETACHED";

/// Pipe for the number of the program.
static CALLER: Mutex<Option<File>> = Mutex::new(None);

/// Returns whether this process is the one in the background.
pub(super) fn is_background() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Starts the process in the background, and waits until the program runs. Called by the caller.
///
/// # Errors
/// A failed write to standard output, or no process can be started.
pub(super) fn start() -> io::Result<ExitCode> {
    let mut args = std::env::args_os();
    let mut command = Command::new("/proc/self/exe"); // also where the file was replaced meanwhile
    command.arg0(args.next().unwrap_or_else(|| "gossamer-launch".into())).args(args);
    command.env(VARIABLE, std::process::id().to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut background = command.spawn()?;
    let mut text = String::new();
    if let Some(mut told) = background.stdout.take() {
        told.read_to_string(&mut text)?;
    }
    if let Some(number) = text.strip_suffix('\n') {
        print(number)?;
        return Ok(ExitCode::SUCCESS);
    }
    let status = background.wait()?;
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILURE_STATUS)))
}

/// Leaves the terminal, and detaches from the caller's standard output. Called first in the process in the background.
///
/// # Errors
/// The system refuses, or the caller has gone.
pub(super) fn settle() -> io::Result<()> {
    setsid()?;
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let caller = std::env::var(VARIABLE).ok().and_then(|number| number.parse::<i32>().ok());
    if getppid().map(|parent| parent.as_raw_nonzero().get()) != caller {
        return Err(io::Error::other("whoever said --detach has gone")); // no signal would come
    }
    let told = File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?);
    *CALLER.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
    rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok(())
}

/// Tells the caller the program's number; from then on this process is silent and on its own.
pub(super) fn tell_caller(program: ProgramId) {
    let Some(mut caller) = CALLER.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stderr(null); // on failure it keeps the caller's
    }
    let _ = set_parent_process_death_signal(None); // on failure it ends when the caller does
    let _ = caller.write_all(format!("{program}\n").as_bytes()); // it has been killed just now
}
