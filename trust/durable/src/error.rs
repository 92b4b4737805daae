//! Errors of a durable trust.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why a durable trust cannot be opened, or a call on it has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process, or another handle of this one, has the folder open.
    #[error("{folder} is in use: close it there first, or open another folder; nothing was changed")]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder holds no pool, or does not exist, and [`Builder::create`](crate::Builder::create) forbids to create
    /// one.
    #[error("{folder} holds no pool: check the path, or let opening create one (`create(true)`); nothing was changed")]
    NoPool {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder holds a file that does not belong to a durable trust; for the target of a snapshot, any file.
    #[error(
        "{folder} holds `{file}`: open an empty folder, or one that a durable trust has made; a snapshot goes into an \
         empty one; nothing was changed"
    )]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// The first such file.
        file: String,
    },
    /// The folder holds values of another type. [`Durable::migrate`](crate::Durable::migrate) makes a value of the new
    /// type from that of the old one.
    #[error(
        "{file}, offset 4096: the pool holds `{found}`, which this program's `{wanted}` cannot read: {difference}; \
         open it with the program that wrote it, or change its type with `Durable::migrate`; nothing was changed"
    )]
    OtherType {
        /// The image.
        file: PathBuf,
        /// The type in the file.
        found: String,
        /// The type of the program.
        wanted: String,
        /// The first difference, by field.
        difference: String,
    },
    /// The file was written by another version of the file format.
    #[error(
        "{file}, offset 8: format {found}, this program knows {known}; open it with the program that wrote it; nothing \
         was changed"
    )]
    Version {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The version of this crate.
        known: u32,
    },
    /// A file is shorter than it must be.
    #[error("{file} ends at offset {offset}, before {what}; restore the folder from a snapshot; nothing was changed")]
    Truncated {
        /// The file.
        file: PathBuf,
        /// End of the file, or of its valid part.
        offset: u64,
        /// The missing part.
        what: String,
    },
    /// A file holds bytes that this crate did not write.
    #[error("{file}, offset {offset}: {what}; restore the folder from a snapshot; nothing was changed")]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Offset in the file.
        offset: u64,
        /// The fault.
        what: String,
    },
    /// The folder is on a network file system.
    #[error(
        "{folder} is on {kind}: neither its locks nor its syncs can be relied on; open a folder of a local file \
         system; nothing was changed"
    )]
    Network {
        /// The folder.
        folder: PathBuf,
        /// The file system.
        kind: &'static str,
    },
    /// An operating system call failed.
    #[error("{}: cannot {what}: {error}; {}", place(.file, .offset), cure(.error))]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// Offset in the file, for reads and writes.
        offset: Option<u64>,
        /// The operation that failed.
        what: &'static str,
        /// The system's error. It is in the text, so it is no source of this one.
        error: io::Error,
    },
    /// Another program removed, moved or replaced a file of an open pool. Reported as the cause of
    /// [`Lost`](Self::Lost).
    #[error(
        "{file} is not the pool's file any more: another program removed, moved or replaced it; what was acknowledged \
         is in the pool's files: if these were moved, put them back into one folder; if they were removed it is gone \
         with them, so restore a snapshot; leave the files of an open pool alone"
    )]
    Removed {
        /// The file.
        file: PathBuf,
    },
    /// The pool is larger than the `limit` that it is opened with.
    #[error(
        "{file}: the pool takes {bytes} bytes, the limit is {limit}; open it with a greater `limit`; nothing was \
         changed"
    )]
    Limit {
        /// The image.
        file: PathBuf,
        /// Bytes that the pool takes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The system refuses to reserve that much address space.
    #[error(
        "no {bytes} bytes of address space: {error}; open it with a smaller `limit`, or raise the limit of the \
         process (`ulimit -v`)"
    )]
    Reservation {
        /// Bytes requested.
        bytes: u64,
        /// The system's error. It is in the text, so it is no source of this one.
        error: io::Error,
    },
    /// The trustee is on another machine.
    #[error("the trustee is of another machine: open the pool there (`gossamer::spawn_on`), and take the handle here")]
    OtherMachine,
    /// The disk failed, or another program took files of the pool: nothing more is made durable. Changes that were not
    /// acknowledged as durable may be lost.
    #[error("the durable trust is lost: {cause}")]
    Lost {
        /// The event, the data that is safe, and the remedy.
        cause: String,
    },
    /// The closure panicked; its changes were undone.
    #[error("a transaction on a durable `{property}` panicked and was undone: {panic}")]
    Panicked {
        /// Type of the root.
        property: &'static str,
        /// The panic's message.
        panic: String,
    },
    /// The pool was closed.
    #[error("the durable trust was closed")]
    Closed,
    /// The trustee's thread has ended, or its machine was lost. Calls in flight may or may not be durable: the pool has
    /// them or not when it is opened again.
    #[error(
        "the trustee of the durable trust is gone: its thread has ended, or its machine was lost; keep its pool alive \
         for as long as its handles are used, or open its folder again"
    )]
    Gone,
    /// No result was on disk in time. The call is not withdrawn: the closure may run later, or has run, and its changes
    /// are committed.
    #[error("a call on a durable trust has no result in time; its closure may run later, or has run")]
    TimedOut,
    /// An argument or result could not be serialised or sent.
    #[error("a call on a durable trust failed: {cause}")]
    Call {
        /// The error of `trust`.
        cause: String,
    },
}

impl Error {
    /// Returns the text for the `cause` of a loss.
    pub(crate) fn cause(self) -> String {
        match self {
            Error::Lost { cause } => cause,
            Error::Removed { .. } => self.to_string(),
            _ => format!("{self}; what was acknowledged is safe; open the folder anew once the cause is gone"),
        }
    }
}

fn place(file: &Path, offset: &Option<u64>) -> String {
    match offset {
        Some(offset) => format!("{}, offset {offset}", file.display()),
        None => file.display().to_string(),
    }
}

/// Returns the remedy for an error of the system.
fn cure(error: &io::Error) -> &'static str {
    use io::ErrorKind::{FileTooLarge, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded => "make room on its file system",
        FileTooLarge => "raise the limit of the size of files (`ulimit -f`), or use another file system",
        PermissionDenied | ReadOnlyFilesystem => "let this program write there, or open another folder",
        NotFound => "leave the folder to this program while it is open; restore it from a snapshot",
        _ => {
            "see what the system's log (`dmesg`) says of the disk; restore the folder from a snapshot if it cannot be \
             read"
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Chains of errors are printed with all their sources.
    #[test]
    fn a_cause_is_told_once() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let errors = [
            Error::Io { file: "log-0".into(), offset: Some(4096), what: "write to it", error: full() },
            Error::Reservation { bytes: 7, error: full() },
        ];
        for error in errors {
            assert_eq!(error.to_string().matches(&full().to_string()).count(), 1, "{error}");
            assert!(std::error::Error::source(&error).is_none());
        }
    }
}
