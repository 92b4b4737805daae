//! `run --detach`: the launcher goes on in the background, in a session of its own, and its caller ends when the
//! program runs, with its number.
//!
//! The caller starts this executable again with the same arguments, and [`VARIABLE`] to say so. What that process says
//! on its standard output is the number. Until then the two end together, and the caller has its messages and its
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

/// Tells a process that it is the one in the background, and whose child it is.
const VARIABLE: &str = "GOSSAMER_DETACHED";

/// Where the number of the program is to be told.
static CALLER: Mutex<Option<File>> = Mutex::new(None);

/// Whether this process is the one in the background.
pub(super) fn is_background() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// The caller: starts the other, and waits until the program runs.
///
/// # Errors
/// That of standard output, or where no process can be started.
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

/// The one in the background, before all else: leaves the terminal, and writes nothing to the caller's standard output.
///
/// # Errors
/// When the system refuses, or the caller has gone.
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

/// The program runs: from here on nobody hears this process, and it goes on alone.
pub(super) fn tell_caller(program: ProgramId) {
    let Some(mut caller) = CALLER.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stderr(null); // refused: it keeps the caller's
    }
    let _ = set_parent_process_death_signal(None); // refused: it ends when the caller does
    let _ = caller.write_all(format!("{program}\n").as_bytes()); // it has been killed just now
}
