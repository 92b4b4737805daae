//! Errors of starting and watching a program. The end of a started program is in [`crate::outcome`].

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::options::MAX_LOCAL_MACHINES;
use crate::outcome::NOT_STARTED_STATUS;

/// Failure before or during a program's run, other than the program's own.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The number of machines is 0 or too big.
    #[error("cannot start {0} machines on one host: from 1 to {MAX_LOCAL_MACHINES} are possible")]
    Machines(u16),
    /// The program was not found, or may not be executed.
    #[error("cannot start {}: {source}{}", program.display(), start_hint(program, source))]
    Program {
        /// The program as given.
        program: OsString,
        /// The cause.
        source: io::Error,
    },
    /// The working folder cannot be entered.
    #[error("cannot enter {} (--folder): {trouble}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        trouble: String,
    },
    /// The plan of the program makes no sense.
    #[error(transparent)]
    Plan(#[from] gossamer::bootstrap::BootstrapError),
    /// The memory or the key of the program could not be made.
    #[error(transparent)]
    Memory(#[from] comm::Error),
    /// The system refused a call that a program needs.
    #[error("cannot {task}: {source}")]
    System {
        /// The task that failed.
        task: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl LaunchError {
    /// Returns the exit status of the launcher where this error has one of its own.
    #[must_use]
    pub fn status(&self) -> Option<u8> {
        match self {
            LaunchError::Program { source, .. } if is_of_host(source) => None,
            LaunchError::Program { .. } => Some(NOT_STARTED_STATUS),
            _ => None,
        }
    }

    pub(crate) fn system<E: Into<io::Error>>(task: &'static str) -> impl Fn(E) -> LaunchError {
        move |error| LaunchError::System { task, source: error.into() }
    }
}

/// Returns whether this host, or the parent of this process, lets nothing be started, and the program is not to blame.
fn is_of_host(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::NOSPC | Errno::SRCH | Errno::PERM)
    )
}

/// Returns the hint for a program that cannot be started, in brackets; may be empty.
fn start_hint(program: &OsString, error: &io::Error) -> String {
    let is_path = program.as_encoded_bytes().contains(&b'/');
    let hint = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) if is_path => "is the path right, and the interpreter of a script there?",
        Some(Errno::NOENT) => "it is not in PATH; a program in this folder is written ./PROGRAM",
        Some(Errno::ACCESS) => {
            "it is a folder, not executable (chmod +x), or in a folder closed to the user it runs as"
        }
        Some(Errno::TOOBIG) => {
            "an argument or a variable is longer than 128 KiB, or all of them are too long: see ulimit -s"
        }
        Some(Errno::AGAIN) => "too many processes: see ulimit -u",
        Some(Errno::MFILE) => "of this process: see ulimit -n, and LimitNOFILE= of the daemon's unit",
        Some(Errno::NFILE) => "of this host: see fs.file-max",
        Some(Errno::NOMEM) => "of this host: see dmesg and free",
        Some(Errno::TXTBSY) => "it is being written",
        Some(Errno::NOEXEC | Errno::INVAL | Errno::LIBBAD) => "is it a program for this machine?",
        _ => return String::new(),
    };
    format!(" ({hint})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_blamed_for_its_own_faults_alone() {
        let of = |number: i32| {
            let error = LaunchError::Program { program: "./p".into(), source: io::Error::from_raw_os_error(number) };
            (error.to_string(), error.status())
        };
        for (number, words, status) in [
            (libc::ENOENT, "is the path right", Some(NOT_STARTED_STATUS)),
            (libc::EACCES, "chmod +x", Some(NOT_STARTED_STATUS)),
            (libc::ENOEXEC, "is it a program for this machine?", Some(NOT_STARTED_STATUS)),
            (libc::ELOOP, "levels of symbolic links", Some(NOT_STARTED_STATUS)),
            (libc::EMFILE, "Too many open files", None),
            (libc::EMFILE, "ulimit -n", None),
            (libc::ENFILE, "fs.file-max", None),
            (libc::ENOMEM, "free", None),
            (libc::EAGAIN, "ulimit -u", None),
        ] {
            let (text, found) = of(number);
            assert!(text.contains(words) && found == status, "{number}: {text}, {found:?}");
            assert!(number == libc::ENOEXEC || !text.contains("for this machine"), "{text}");
        }
    }
}
