//! Reading files that live on other machines. An open file is a property at its place, a [`RemoteFile`] a trust of it;
//! bytes come in pieces of [`PIECE_BYTES`], some of them ahead of the reader.
//!
//! No worker blocks in the operating system: the trustee hands each piece to one of at most four threads of its process
//! (`helpers.rs`), which reads it and sends it to the waiter.
//!
//! Cost: opening is two requests and an answer; the length, and each piece, one request and an answer that carries it.
//! A reader has at most [`READ_AHEAD`] pieces requested at a time.
//!
//! Source: thesis 3 (reading from a file descriptor of any machine).

mod helpers;
mod reader;

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use trust::{Pending, Promise, Trust, promise};

use crate::rack::Place;
use reader::Pieces;
pub use reader::Reader;

/// Bytes of one request.
pub const PIECE_BYTES: usize = 256 << 10;
/// Pieces that a reader requests ahead.
pub const READ_AHEAD: usize = 4;

/// Reads all bytes of a file at a place.
///
/// # Errors
/// If it cannot be opened or read.
///
/// # Panics
/// Outside [`gossamer::main`](crate::main); if there is no such place; in delegated closures and callbacks, where
/// nothing may wait.
///
/// ```
/// gossamer::main(
///     || {
///         let place = gossamer::rack().places().last().unwrap();
///         let text = gossamer::file::read_to_string(place, "/proc/self/stat").unwrap();
///         assert!(text.starts_with(&std::process::id().to_string())); // one process here
///         let error = gossamer::file::read(place, "/no/such/file").unwrap_err();
///         assert!(error.to_string().starts_with("/no/such/file at m0w1 cannot be opened: No such file"));
///     },
///     2,
/// );
/// ```
pub fn read(place: Place, path: impl AsRef<Path>) -> Result<Vec<u8>, FileError> {
    let file = open(place, path)?;
    file.bytes(0, u64::MAX)
}

/// Reads a text file as [`read`] does.
///
/// # Errors
/// Same as [`read`]; also if it is not UTF-8.
///
/// ```
/// gossamer::main(
///     || {
///         let host = gossamer::file::read_to_string(gossamer::here(), "/proc/sys/kernel/ostype").unwrap();
///         assert_eq!(host.trim(), "Linux");
///     },
///     2,
/// );
/// ```
pub fn read_to_string(place: Place, path: impl AsRef<Path>) -> Result<String, FileError> {
    let path = path.as_ref();
    String::from_utf8(read(place, path)?).map_err(|error| FileError {
        place,
        path: path.to_owned(),
        doing: Doing::Read,
        kind: io::ErrorKind::InvalidData,
        cause: error.to_string(),
    })
}

/// Opens a file at a place, for reading.
///
/// # Errors
/// If it cannot be opened there, or is a directory.
///
/// # Panics
/// Same as [`read`].
///
/// ```
/// use std::io::BufRead;
/// gossamer::main(
///     || {
///         let place = gossamer::rack().places().last().unwrap();
///         let file = gossamer::file::open(place, "/proc/self/status").unwrap();
///         let name = file.reader().lines().next().unwrap().unwrap();
///         assert!(name.starts_with("Name:"));
///     },
///     2,
/// );
/// ```
pub fn open(place: Place, path: impl AsRef<Path>) -> Result<RemoteFile, FileError> {
    let path = path.as_ref().as_os_str().as_bytes().to_vec();
    let file = RemoteFile { place, open: crate::entrust_with(place, Open::default) };
    let (promise, opened) = promise();
    file.open.apply_with(move |open, path: ByteBuf| open.open(path.into_vec(), promise), ByteBuf::from(path));
    file.wait(opened, Doing::Open)?;
    Ok(file)
}

/// Open file at some place. Clones may travel: each machine can read it. The file is closed with the last clone.
#[derive(Debug, Clone)]
pub struct RemoteFile {
    place: Place,
    open: Trust<Open>,
}

impl RemoteFile {
    /// Returns the file's place.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let place = gossamer::rack().places().last().unwrap();
    ///         let file = gossamer::file::open(place, "/proc/self/stat").unwrap();
    ///         assert_eq!(file.place(), place);
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns its length in bytes, now.
    ///
    /// # Errors
    /// If the operating system does not report it.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let file = gossamer::file::open(gossamer::here(), std::env::current_exe().unwrap()).unwrap();
    ///         assert!(file.len().unwrap() > 0);
    ///         assert!(!file.is_empty().unwrap());
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn len(&self) -> Result<u64, FileError> {
        let (promise, len) = promise::<Outcome<u64>>();
        self.open.apply_then(
            move |open| open.help(Doing::Measure, promise, |file| file.metadata().map(|metadata| metadata.len())),
            |()| {},
        );
        self.wait(len, Doing::Measure)
    }

    /// Returns whether it is empty. As [`len`](Self::len).
    ///
    /// # Errors
    /// Same as [`len`](Self::len).
    ///
    /// Example: at [`len`](Self::len).
    pub fn is_empty(&self) -> Result<bool, FileError> {
        self.len().map(|len| len == 0)
    }

    /// Reads the `len` bytes from `offset` on; fewer if the file ends before.
    ///
    /// # Errors
    /// If they cannot be read.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let file = gossamer::file::open(gossamer::here(), std::env::current_exe().unwrap()).unwrap();
    ///         assert_eq!(file.read_at(1, 3).unwrap(), b"ELF");
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, FileError> {
        self.bytes(offset, len as u64)
    }

    /// Returns a reader from its beginning on, piece by piece, some pieces ahead: `Read` and `BufRead`, so also line by
    /// line.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         use std::io::BufRead;
    ///         let file = gossamer::file::open(gossamer::here(), "/proc/cpuinfo").unwrap();
    ///         println!("{}", file.reader().lines().next().unwrap().unwrap());
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn reader(&self) -> Reader {
        Reader::new(self.clone())
    }

    fn bytes(&self, offset: u64, len: u64) -> Result<Vec<u8>, FileError> {
        let mut pieces = Pieces::new(offset, len);
        let mut bytes = Vec::new();
        loop {
            let piece = pieces.next(self)?;
            if piece.is_empty() {
                return Ok(bytes);
            }
            if bytes.is_empty() {
                bytes = piece;
            } else {
                bytes.extend_from_slice(&piece);
            }
        }
    }

    /// Requests a piece, without waiting.
    fn ask(&self, offset: u64, len: usize) -> Pending<Outcome<ByteBuf>> {
        let (promise, piece) = promise();
        self.open.apply_then(
            move |open| open.help(Doing::Read, promise, move |file| read_piece(file, offset, len)),
            |()| {},
        );
        piece
    }

    fn wait<T: 'static>(&self, pending: Pending<Outcome<T>>, doing: Doing) -> Result<T, FileError> {
        match pending.wait() {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(Trouble { doing, os_error, cause, path })) => Err(FileError {
                place: self.place,
                path: PathBuf::from(OsString::from_vec(path.into_vec())),
                doing,
                kind: os_error.map_or(io::ErrorKind::Other, |code| io::Error::from_raw_os_error(code).kind()),
                cause,
            }),
            Err(error) => Err(FileError {
                place: self.place,
                path: PathBuf::new(),
                doing,
                kind: io::ErrorKind::Other,
                cause: error.to_string(),
            }),
        }
    }
}

/// Property: the file, once it is open.
#[derive(Debug, Default)]
struct Open {
    path: PathBuf,
    file: Arc<OnceLock<File>>,
}

type Outcome<T> = Result<T, Trouble>;

/// Error at the file's place.
#[derive(Debug, Serialize, Deserialize)]
struct Trouble {
    doing: Doing,
    os_error: Option<i32>,
    cause: String,
    path: ByteBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Doing {
    Open,
    Measure,
    Read,
}

impl Open {
    fn open(&mut self, path: Vec<u8>, promise: Promise<Outcome<()>>) {
        self.path = PathBuf::from(OsString::from_vec(path));
        let (path, file) = (self.path.clone(), Arc::clone(&self.file));
        helpers::run(move || {
            let opened = open_to_read(&path).map(|opened| {
                // Opened once, right after it was made.
                let _ = file.set(opened);
            });
            promise.keep_with(opened.map_err(|error| trouble(Doing::Open, &error, &path)));
        });
    }

    /// Runs `f` on a helper, which keeps the promise.
    fn help<T>(
        &self,
        doing: Doing,
        promise: Promise<Outcome<T>>,
        f: impl FnOnce(&File) -> io::Result<T> + Send + 'static,
    ) where
        T: Serialize + for<'de> Deserialize<'de> + 'static,
    {
        let (path, file) = (self.path.clone(), Arc::clone(&self.file));
        helpers::run(move || {
            let outcome = file.get().ok_or_else(|| io::Error::other("it is not open")).and_then(f);
            promise.keep_with(outcome.map_err(|error| trouble(doing, &error, &path)));
        });
    }
}

fn trouble(doing: Doing, error: &io::Error, path: &Path) -> Trouble {
    let path = ByteBuf::from(path.as_os_str().as_bytes().to_vec());
    Trouble { doing, os_error: error.raw_os_error(), cause: error.to_string(), path }
}

/// Opens without blocking: a pipe without a writer, for example, must not block the helper.
fn open_to_read(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    Ok(file)
}

fn read_piece(file: &File, offset: u64, len: usize) -> io::Result<ByteBuf> {
    let mut bytes = vec![0; len.min(PIECE_BYTES)];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(done);
    Ok(ByteBuf::from(bytes))
}

/// Error of opening or reading a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    place: Place,
    path: PathBuf,
    doing: Doing,
    kind: io::ErrorKind,
    cause: String,
}

impl FileError {
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
    /// Returns the kind of the error.
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

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = match self.doing {
            Doing::Open => "opened",
            Doing::Measure => "measured",
            Doing::Read => "read",
        };
        write!(f, "{} at {} cannot be {done}: {}", self.path.display(), self.place, self.cause)
    }
}

impl std::error::Error for FileError {}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> io::Error {
        io::Error::new(error.kind, error)
    }
}
