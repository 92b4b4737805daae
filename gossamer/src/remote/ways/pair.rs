//! One peer at its thread: frames that wait here for room, and those that have come from it.

use std::collections::VecDeque;

use gossamer_ways::Violation as Breach;
use gossamer_ways::machine::{PAIR_BYTES_MAX, UnderWay};
use trust::link::Buffer;

use super::super::slot::{Kind as Part, Violation};
use super::direct::Direct;
use super::way::breach;
use super::wire::{Head, Kind, PIECE_BYTES, frame_bytes};

/// Most memory reserved for a frame before its bytes have come.
const RESERVED_BYTES_MAX: usize = 1 << 20;
/// Most buffers that a thread keeps, and the most bytes of one of them.
const BUFFERS_MAX: usize = 32;
const BUFFER_BYTES_MAX: usize = 2 * PIECE_BYTES;

/// Piece that has come.
pub(super) struct Letter {
    pub(super) head: Head,
    pub(super) data: Buffer,
}

/// Buffers of a thread to be used again: a frame that comes takes one, and gives it back when it is taken.
#[derive(Default)]
pub(super) struct Buffers(Vec<Buffer>);

impl Buffers {
    pub(super) fn take(&mut self) -> Buffer {
        self.0.pop().unwrap_or_default()
    }

    /// Returns a buffer with these bytes.
    pub(super) fn copy(&mut self, data: &[u8]) -> Buffer {
        let mut buffer = self.take();
        buffer.set_len(data.len());
        buffer.bytes_mut().copy_from_slice(data);
        buffer
    }

    pub(super) fn give_back(&mut self, mut buffer: Buffer) {
        buffer.trim(BUFFER_BYTES_MAX);
        if self.0.len() < BUFFERS_MAX {
            self.0.push(buffer);
        }
    }
}

/// State of a peer with which a thread has exchanged a frame. Arrays have requests first, then answers.
#[derive(Default)]
pub(super) struct Exchange {
    pub(super) incoming: [Incoming; 2],
    pub(super) outgoing: [Option<Outgoing>; 2],
    /// Bytes sent that the peer has not taken.
    pub(super) under_way: [UnderWay; 2],
    /// Batches sent, or begun, that have no answer.
    pub(super) awaited: u64,
    /// The own ring for it.
    pub(super) direct: Option<Box<Direct>>,
    /// Its ring for this thread, of which it has told last.
    pub(super) told: Option<u16>,
    /// Writes to shares of its machine that the last frame by the machine way has come behind.
    pub(super) share_writes: u64,
}

/// Frame with a part still to be sent.
pub(super) struct Outgoing {
    pub(super) frame: Buffer,
    pub(super) sent: usize,
    pub(super) note: u32,
}

/// Frames that have come.
#[derive(Default)]
pub(super) struct Incoming {
    frames: VecDeque<Received>,
    /// Frame of which the last piece has not come, with its length.
    partial: Option<(u64, Buffer)>,
    /// Bytes of the pieces in `frames`.
    kept: usize,
    /// Bytes taken that the peer has not been told of.
    owed: usize,
}

struct Received {
    frame: Buffer,
    note: u32,
    /// Bytes of its last piece, with the head.
    bytes: usize,
}

impl Exchange {
    /// Takes a letter of requests or answers. Returns whether a frame is complete with it.
    pub(super) fn take(&mut self, letter: Letter, buffers: &mut Buffers) -> Result<bool, Violation> {
        let incoming = &mut self.incoming[letter.head.kind as usize];
        // Also before its last piece: what is not complete has no other bound.
        if letter.head.kind == Kind::Answer && incoming.frames.len() as u64 >= self.awaited {
            return Err(Violation::new("an answer to nothing"));
        }
        incoming.take(letter, buffers)
    }

    /// Returns the bytes taken that the peer has not been told of, and counts them as told.
    pub(super) fn give(&mut self) -> [u32; 2] {
        self.incoming.each_mut().map(|incoming| std::mem::take(&mut incoming.owed) as u32)
    }

    /// Does the peer have to be told soon, though nothing else goes there?
    pub(super) fn owes_credit(&self) -> bool {
        self.incoming.iter().any(|incoming| incoming.owed >= PAIR_BYTES_MAX / 2)
    }
}

impl Incoming {
    fn take(&mut self, letter: Letter, buffers: &mut Buffers) -> Result<bool, Violation> {
        let Letter { head: Head { part, len, note, total, .. }, data } = letter;
        let bytes = frame_bytes(len as usize);
        if self.kept + self.owed + bytes > PAIR_BYTES_MAX {
            return Err(breach(Breach::TooMuch));
        }
        let out_of_turn = || Violation::new(format!("a {part:?} that was not its turn"));
        let frame = match (part, self.partial.take()) {
            (Part::Whole, None) => data,
            (Part::Piece, None) => {
                let mut frame = data;
                // The peer's total is not trusted before the bytes have come.
                frame.reserve(total.min(RESERVED_BYTES_MAX as u64) as usize);
                self.partial = Some((total, frame));
                self.owed += bytes;
                return Ok(false);
            }
            (Part::Piece | Part::Last, Some((whole, mut frame))) => {
                let before = frame.len();
                let now = before + data.len();
                if whole != total || now as u64 > total || (now as u64 == total) != (part == Part::Last) {
                    return Err(out_of_turn());
                }
                frame.set_len(now);
                frame.bytes_mut()[before..].copy_from_slice(data.bytes());
                buffers.give_back(data);
                if part == Part::Piece {
                    self.partial = Some((whole, frame));
                    self.owed += bytes;
                    return Ok(false);
                }
                frame
            }
            (Part::Whole, Some(_)) | (Part::Last, None) => return Err(out_of_turn()),
        };
        self.kept += bytes;
        self.frames.push_back(Received { frame, note, bytes });
        Ok(true)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.frames.len()
    }

    /// Takes the oldest complete frame, and returns its note.
    pub(super) fn next(&mut self, into: &mut Buffer, buffers: &mut Buffers) -> Option<u32> {
        let Received { frame, note, bytes } = self.frames.pop_front()?;
        self.kept -= bytes;
        self.owed += bytes;
        buffers.give_back(std::mem::replace(into, frame));
        Some(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(kind: Kind, part: Part, len: usize, total: u64) -> Letter {
        let mut data = Buffer::default();
        data.set_len(len);
        data.bytes_mut().fill(len as u8);
        Letter {
            head: Head { kind, part, len: len as u32, note: 3, total, number: 1, changes: false, given: [0; 2] },
            data,
        }
    }

    #[test]
    fn pieces_are_put_together_and_owed() {
        let (mut exchange, mut into, buffers) = (Exchange::default(), Buffer::default(), &mut Buffers::default());
        assert_eq!(exchange.take(letter(Kind::Request, Part::Piece, 16, 24), buffers).ok(), Some(false));
        assert_eq!((exchange.give(), exchange.incoming[0].is_empty()), ([frame_bytes(16) as u32, 0], true));
        assert_eq!(exchange.take(letter(Kind::Request, Part::Last, 8, 24), buffers).ok(), Some(true));
        assert_eq!(exchange.take(letter(Kind::Request, Part::Whole, 4, 4), buffers).ok(), Some(true));
        assert_eq!(exchange.give(), [0, 0], "nobody has taken it");
        assert_eq!(exchange.incoming[0].next(&mut into, buffers), Some(3));
        assert_eq!(into.bytes(), [[16; 8], [16; 8], [8; 8]].concat());
        assert_eq!(exchange.give(), [frame_bytes(8) as u32, 0]);
        assert_eq!((exchange.incoming[0].next(&mut into, buffers), into.bytes()), (Some(3), &[4; 4][..]));
        assert_eq!(exchange.incoming[0].next(&mut into, buffers), None);
    }

    #[test]
    fn a_peer_that_lies_is_refused() {
        let refused = |letters: &[(Kind, Part, usize, u64)], text: &str| {
            let mut exchange = Exchange { awaited: 1, ..Exchange::default() };
            let mut take = |letter| exchange.take(letter, &mut Buffers::default());
            let taken = letters.iter().map(|(kind, part, len, total)| take(letter(*kind, *part, *len, *total)));
            let violation = taken.filter_map(Result::err).next().expect(text);
            assert!(violation.0.contains(text), "{violation}");
        };
        let (request, answer) = (Kind::Request, Kind::Answer);
        refused(&[(request, Part::Last, 8, 16)], "not its turn");
        refused(&[(request, Part::Piece, 8, 16), (request, Part::Whole, 8, 8)], "not its turn");
        refused(&[(request, Part::Piece, 8, 16), (request, Part::Last, 8, 24)], "not its turn");
        refused(&[(request, Part::Piece, 8, 16), (request, Part::Piece, 8, 16)], "not its turn");
        refused(&[(answer, Part::Whole, 0, 0), (answer, Part::Whole, 0, 0)], "an answer to nothing");
        refused(&[(request, Part::Whole, 8000, 8000); 9], "more than may be under way");
    }
}
