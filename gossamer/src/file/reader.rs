//! Sequential reading, with some pieces requested ahead.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, Read};

use serde_bytes::ByteBuf;
use trust::Pending;

use super::error::{Doing, FileError, Outcome};
use super::{PIECE_BYTES, READ_AHEAD, RemoteFile};

/// Pieces of a range of a file, in order.
pub(super) struct Pieces {
    /// Offset of the next piece to request, and end of the last one.
    next: u64,
    end: u64,
    /// Reads under way, with the requested length.
    under_way: VecDeque<(Pending<Outcome<ByteBuf>>, usize)>,
}

impl Pieces {
    pub(super) fn new(offset: u64, len: u64) -> Pieces {
        Pieces { next: offset, end: offset.saturating_add(len), under_way: VecDeque::new() }
    }

    /// Returns the next piece; empty at the end.
    pub(super) fn next(&mut self, file: &RemoteFile) -> Result<Vec<u8>, FileError> {
        // A short file costs no more than its one piece; a reader that reads on gets more ahead.
        let ahead = if self.under_way.is_empty() && self.next == 0 { 1 } else { READ_AHEAD };
        while self.under_way.len() < ahead && self.next < self.end {
            let len = (self.end - self.next).min(PIECE_BYTES as u64);
            self.under_way.push_back((file.ask(self.next, len as usize), len as usize));
            self.next += len;
        }
        let Some((piece, asked)) = self.under_way.pop_front() else { return Ok(Vec::new()) };
        let piece = match file.wait(piece, Doing::Read) {
            Ok(piece) => piece.into_vec(),
            Err(error) => {
                self.stop();
                return Err(error);
            }
        };
        if piece.len() < asked {
            self.stop(); // the file ends here
        }
        Ok(piece)
    }

    fn stop(&mut self) {
        self.under_way.clear();
        self.end = self.next;
    }
}

/// Reader of a file of another machine. Made by [`RemoteFile::reader`].
///
/// The reader is done at the file's end, even if the file grows later. An error ends it likewise.
pub struct Reader {
    file: RemoteFile,
    pieces: Pieces,
    piece: Vec<u8>,
    /// Bytes of the piece that have been read.
    read: usize,
}

impl Reader {
    pub(super) fn new(file: RemoteFile) -> Reader {
        Reader { file, pieces: Pieces::new(0, u64::MAX), piece: Vec::new(), read: 0 }
    }
}

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.read == self.piece.len() {
            self.piece = self.pieces.next(&self.file)?;
            self.read = 0;
        }
        Ok(&self.piece[self.read..])
    }

    fn consume(&mut self, bytes: usize) {
        self.read = (self.read + bytes).min(self.piece.len());
    }
}

impl Read for Reader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(to)?;
        self.consume(read);
        Ok(read)
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("file", &self.file).finish_non_exhaustive()
    }
}
