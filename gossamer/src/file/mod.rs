//! Files that live on other machines, and their folders. An open file is a property at its place, a [`RemoteFile`] a
//! trust of it; bytes go in pieces of [`PIECE_BYTES`], some of them ahead of the reader or behind the writer.
//!
//! No worker blocks in the operating system: the trustee hands each piece to one of at most four threads of its process
//! (`helpers.rs`), which reads or writes it and tells the waiter.
//!
//! Cost: opening is two requests and an answer; the length, and each piece, one request and an answer. A reader or a
//! writer has at most [`READ_AHEAD`] pieces under way at a time.
//!
//! Source: thesis 3 (reading from a file descriptor of any machine).

mod error;
mod folder;
mod helpers;
mod reader;
mod writer;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use trust::link::{entrust_remote, promise_at};
use trust::{Pending, Promise, Trust};

use crate::rack::Place;
use error::{Doing, Outcome, Trouble};
use reader::Pieces;

pub use error::FileError;
pub use folder::{Entry, EntryKind, read_dir};
pub use reader::Reader;
pub use writer::{Writer, create, write};

/// Bytes of one request.
pub const PIECE_BYTES: usize = 256 << 10;
/// Pieces that a reader has under way, and a writer.
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
    RemoteFile::open(place, path.as_ref(), Mode::Read)
}

/// Returns the path as it travels: it may have bytes that are no UTF-8.
fn bytes_of(path: &Path) -> ByteBuf {
    ByteBuf::from(path.as_os_str().as_bytes().to_vec())
}

/// Open file at some place. Clones may travel: each machine can read it. The file is closed with the last clone.
#[derive(Debug, Clone)]
pub struct RemoteFile {
    place: Place,
    open: Trust<Open>,
}

impl RemoteFile {
    fn open(place: Place, path: &Path, mode: Mode) -> Result<RemoteFile, FileError> {
        let open = FileError::of_place(place, path, Doing::Open, entrust_remote(place.trustee(), Open::default))?;
        let file = RemoteFile { place, open };
        let (promise, opened) = promise_at(place.trustee().id());
        let open = move |open: &mut Open, path: ByteBuf| open.open(path.into_vec(), mode, promise);
        FileError::of_place(place, path, Doing::Open, file.open.call().with(bytes_of(path)).apply(open).wait())?;
        file.wait(opened, Doing::Open)?;
        Ok(file)
    }

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
        let (promise, len) = promise_at::<Outcome<u64>>(self.place.trustee().id());
        // Should the request fail, the promise is broken, which its waiter is told.
        let measure =
            move |open: &mut Open| open.help(Doing::Measure, promise, |file| file.metadata().map(|found| found.len()));
        self.open.call().apply(measure).then(|_| ());
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
        let (promise, piece) = promise_at(self.place.trustee().id());
        let read = move |open: &mut Open| open.help(Doing::Read, promise, move |file| read_piece(file, offset, len));
        // As in `len`.
        self.open.call().apply(read).then(|_| ());
        piece
    }

    fn wait<T: 'static>(&self, pending: Pending<Outcome<T>>, doing: Doing) -> Result<T, FileError> {
        FileError::from_outcome(self.place, doing, pending.wait())
    }
}

/// Property: the file, once it is open.
#[derive(Debug, Default)]
struct Open {
    path: PathBuf,
    file: Arc<OnceLock<File>>,
}

#[derive(Debug, Clone, Copy)]
enum Mode {
    Read,
    /// Makes the file, or empties it.
    Write,
}

impl Open {
    fn open(&mut self, path: Vec<u8>, mode: Mode, promise: Promise<Outcome<()>>) {
        self.path = PathBuf::from(OsString::from_vec(path));
        let (path, file) = (self.path.clone(), Arc::clone(&self.file));
        helpers::run(move || {
            let opened = open_at_place(&path, mode).map(|opened| {
                // Opened once, right after it was made.
                let _ = file.set(opened);
            });
            promise.keep_with(opened.map_err(|error| Trouble::new(Doing::Open, &error, &path)));
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
            promise.keep_with(outcome.map_err(|error| Trouble::new(doing, &error, &path)));
        });
    }
}

/// Opens without blocking: a pipe without a writer, for example, must not block the helper.
fn open_at_place(path: &Path, mode: Mode) -> io::Result<File> {
    let mut options = OpenOptions::new();
    match mode {
        Mode::Read => options.read(true),
        Mode::Write => options.write(true).create(true).truncate(true),
    };
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
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
