//! Errors of files: as their place sends them, and as callers get them.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::rack::Place;

/// Result at the file's place.
pub(super) type Outcome<T> = Result<T, Trouble>;

/// Error at the file's place.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Trouble {
    doing: Doing,
    os_error: Option<i32>,
    cause: String,
    path: ByteBuf,
}

impl Trouble {
    pub(super) fn new(doing: Doing, error: &io::Error, path: &Path) -> Trouble {
        let path = ByteBuf::from(path.as_os_str().as_bytes().to_vec());
        Trouble { doing, os_error: error.raw_os_error(), cause: error.to_string(), path }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Doing {
    Open,
    Measure,
    Read,
    List,
    Write,
}

impl Doing {
    fn done(self) -> &'static str {
        match self {
            Doing::Open => "opened",
            Doing::Measure => "measured",
            Doing::Read => "read",
            Doing::List => "listed",
            Doing::Write => "written",
        }
    }
}

/// Error of opening, reading, writing or listing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} at {place} cannot be {}: {cause}", path.display(), doing.done())]
pub struct FileError {
    pub(super) place: Place,
    pub(super) path: PathBuf,
    pub(super) doing: Doing,
    pub(super) kind: io::ErrorKind,
    pub(super) cause: String,
}

impl FileError {
    /// Makes the caller's error of an outcome at the place.
    pub(super) fn from_outcome<T>(
        place: Place,
        doing: Doing,
        outcome: Result<Outcome<T>, trust::Error>,
    ) -> Result<T, FileError> {
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(Trouble { doing, os_error, cause, path })) => Err(FileError {
                place,
                path: PathBuf::from(OsString::from_vec(path.into_vec())),
                doing,
                kind: os_error.map_or(io::ErrorKind::Other, |code| io::Error::from_raw_os_error(code).kind()),
                cause,
            }),
            Err(error) => Err(FileError::unreached(place, Path::new(""), doing, &error)),
        }
    }

    /// Makes the caller's error of a request to the place.
    pub(super) fn of_place<T>(
        place: Place,
        path: &Path,
        doing: Doing,
        outcome: Result<T, trust::Error>,
    ) -> Result<T, FileError> {
        outcome.map_err(|error| FileError::unreached(place, path, doing, &error))
    }

    fn unreached(place: Place, path: &Path, doing: Doing, error: &trust::Error) -> FileError {
        let kind = if crate::losses::record::is_lost(place.machine) {
            io::ErrorKind::ConnectionAborted
        } else {
            io::ErrorKind::Other
        };
        FileError { place, path: path.to_owned(), doing, kind, cause: error.to_string() }
    }

    /// Returns the file's place.
    ///
    /// Example: at [`kind`](Self::kind).
    pub fn place(&self) -> Place {
        self.place
    }
    /// Returns its path there.
    ///
    /// Example: at [`kind`](Self::kind).
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Returns the kind of the error: `ConnectionAborted` if the machine was lost.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let error = gossamer::file::open(gossamer::here(), "/no/such/file").unwrap_err();
    ///         assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    ///         assert_eq!((error.place(), error.path().to_str()), (gossamer::here(), Some("/no/such/file")));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn kind(&self) -> io::ErrorKind {
        self.kind
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> io::Error {
        io::Error::new(error.kind, error)
    }
}
