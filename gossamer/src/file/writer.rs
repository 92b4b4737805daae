//! Writing files at other places, with some pieces under way.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_bytes::ByteBuf;
use trust::Pending;
use trust::link::promise_at;

use super::error::{Doing, FileError, Outcome};
use super::{Mode, PIECE_BYTES, READ_AHEAD, RemoteFile};
use crate::rack::Place;

/// Writes a file at a place: makes it, or replaces its bytes.
///
/// # Errors
/// If it cannot be made or written. A part of the bytes may be written then.
///
/// # Panics
/// Same as [`read`](super::read).
///
/// ```
/// gossamer::main(
///     || {
///         let place = gossamer::rack().places().last().unwrap();
///         let path = std::env::temp_dir().join(format!("written-{}", std::process::id()));
///         gossamer::file::write(place, &path, "a line\n").unwrap();
///         assert_eq!(gossamer::file::read_to_string(place, &path).unwrap(), "a line\n");
///         std::fs::remove_file(&path).unwrap(); // one process here
///         let error = gossamer::file::write(place, "/no/such/folder/file", "").unwrap_err();
///         assert!(error.to_string().contains("cannot be opened: No such file or directory"), "{error}");
///     },
///     2,
/// );
/// ```
pub fn write(place: Place, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<(), FileError> {
    let mut writer = create(place, path)?;
    writer.put(bytes.as_ref())?;
    writer.close()
}

/// Makes a file at a place, or empties it, and returns its writer.
///
/// # Errors
/// If it cannot be made there, or is a folder.
///
/// # Panics
/// Same as [`read`](super::read).
///
/// ```
/// use std::io::Write;
/// gossamer::main(
///     || {
///         let place = gossamer::rack().places().last().unwrap();
///         let path = std::env::temp_dir().join(format!("created-{}", std::process::id()));
///         let mut writer = gossamer::file::create(place, &path).unwrap();
///         for number in 0..1000 {
///             writeln!(writer, "line {number}").unwrap();
///         }
///         writer.close().unwrap(); // all of it is written
///         assert_eq!(gossamer::file::read_to_string(place, &path).unwrap().lines().count(), 1000);
///         std::fs::remove_file(&path).unwrap(); // one process here
///     },
///     2,
/// );
/// ```
pub fn create(place: Place, path: impl AsRef<Path>) -> Result<Writer, FileError> {
    let file = RemoteFile::open(place, path.as_ref(), Mode::Write)?;
    Ok(Writer { file, offset: 0, piece: Vec::new(), under_way: VecDeque::new() })
}

/// Writer of a file of another machine, from its beginning on. Made by [`create`].
///
/// It collects pieces of [`PIECE_BYTES`], of which [`READ_AHEAD`] are under way at a time, so an error is that of an
/// earlier piece. [`close`](Self::close) waits for all of them; dropping the writer sends the last piece and tells no
/// error. `flush` waits likewise. The bytes are then in the file, as after `write(2)`: not yet safe from a power cut.
pub struct Writer {
    file: RemoteFile,
    /// Offset of `piece` in the file.
    offset: u64,
    piece: Vec<u8>,
    under_way: VecDeque<Pending<Outcome<()>>>,
}

impl Writer {
    /// Waits until all bytes are written.
    ///
    /// # Errors
    /// That of the first piece that could not be written, of those that have not been told.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait.
    ///
    /// Example: at [`create`].
    pub fn close(mut self) -> Result<(), FileError> {
        self.settle()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(PIECE_BYTES - self.piece.len()));
            self.piece.extend_from_slice(now);
            rest = later;
            if self.piece.len() == PIECE_BYTES {
                if self.under_way.len() == READ_AHEAD {
                    self.finish_first()?;
                }
                self.send();
            }
        }
        Ok(())
    }

    /// Sends the piece, without waiting.
    fn send(&mut self) {
        let piece = std::mem::take(&mut self.piece);
        if piece.is_empty() {
            return;
        }
        let (promise, written) = promise_at(self.file.place.trustee().id());
        let argument = (self.offset, ByteBuf::from(piece));
        self.offset += argument.1.len() as u64;
        let write = move |open: &mut super::Open, (offset, bytes): (u64, ByteBuf)| {
            open.help(Doing::Write, promise, move |file| file.write_all_at(&bytes, offset));
        };
        // Should the request fail, the promise is broken, which its waiter is told.
        self.file.open.call().with(argument).apply(write).then(|_| ());
        self.under_way.push_back(written);
    }

    fn finish_first(&mut self) -> Result<(), FileError> {
        self.under_way.pop_front().map_or(Ok(()), |written| self.file.wait(written, Doing::Write))
    }

    fn settle(&mut self) -> Result<(), FileError> {
        self.send();
        let mut outcome = Ok(());
        while !self.under_way.is_empty() {
            outcome = outcome.and(self.finish_first());
        }
        outcome
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(self.settle()?)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.send();
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("file", &self.file).finish_non_exhaustive()
    }
}
