//! What can go wrong with a durable trust.

use std::io;
use std::path::{Path, PathBuf};

/// Why a durable trust cannot be opened or a call on it had no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process, or another handle of this one, has the folder open.
    #[error("{folder} is in use: close it there first, or open another folder; nothing was changed")]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder holds a file that is not of a durable trust; or, where a snapshot is to go, any file.
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
    /// The folder holds values of another type.
    #[error(
        "{file}, offset 4096: the pool holds `{found}`, which this program's `{wanted}` cannot read: {difference}; \
         open it with the program that wrote it, export it there and import it here; nothing was changed"
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
    /// The file is of another version of this crate.
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
        /// Where it ends, or its good part does.
        offset: u64,
        /// What is missing.
        what: String,
    },
    /// A file holds what this crate did not write.
    #[error("{file}, offset {offset}: {what}; restore the folder from a snapshot; nothing was changed")]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// The folder is on a file system of the network.
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
    /// The system refused something.
    #[error("{}: cannot {what}: {source}; {}", place(.file, .offset), cure(.source))]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// Where in the file, of what is read and written.
        offset: Option<u64>,
        /// What was to be done.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Another program has removed, moved or replaced a file of an open pool. It comes as the cause of
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
    /// The pool is larger than the limit that it is opened with.
    #[error(
        "{file}: the pool takes {bytes} bytes, the limit is {limit}; open it with a greater `limit`; nothing was \
         changed"
    )]
    Limit {
        /// The image.
        file: PathBuf,
        /// What it takes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The system does not give so much address space.
    #[error(
        "no {bytes} bytes of address space: {source}; open it with a smaller `limit`, or raise the limit of the \
         process (`ulimit -v`)"
    )]
    Reservation {
        /// What was asked for.
        bytes: u64,
        /// Why not.
        source: io::Error,
    },
    /// The trustee is of another machine.
    #[error("the trustee is of another machine: open the pool there (`gossamer::spawn_on`), and take the handle here")]
    OtherMachine,
    /// The disk failed, or another program took files of the pool: nothing is made durable any more. What was not told
    /// durable may be lost.
    #[error("the durable trust is lost: {cause}")]
    Lost {
        /// What happened, what is safe, and what to do about it.
        cause: String,
    },
    /// The closure panicked; what it did is undone.
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
    /// The trustee's thread has ended. What was under way may be durable or not.
    #[error("the trustee of the durable trust is gone: keep its pool alive for as long as its handles are used")]
    Gone,
    /// An argument or result did not travel.
    #[error("a call on a durable trust failed: {cause}")]
    Call {
        /// What `trust` said.
        cause: String,
    },
}

impl Error {
    /// As the cause of what is lost.
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

/// What to do about it.
fn cure(source: &io::Error) -> &'static str {
    use io::ErrorKind::{FileTooLarge, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match source.kind() {
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
