//! Why a program could not be started or watched. How a program that was started ended is [`crate::outcome`].

use std::ffi::OsString;
use std::io;

use crate::launch::MAX_LOCAL_MACHINES;
use crate::outcome::NOT_STARTED_STATUS;

/// What can go wrong before and while a program runs, other than the program itself.
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
    /// The plan of the program makes no sense.
    #[error(transparent)]
    Plan(#[from] gossamer::bootstrap::BootstrapError),
    /// The memory or the key of the program could not be made.
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
        io::ErrorKind::PermissionDenied => {
            "it is a folder, not executable (chmod +x), or in a folder closed to the user it runs as"
        }
        io::ErrorKind::ArgumentListTooLong => {
            "an argument or a variable is longer than 128 KiB, or all of them are too long: see ulimit -s"
        }
        io::ErrorKind::WouldBlock => "too many processes: see ulimit -u",
        _ => "is it a program for this machine?",
    }
}
