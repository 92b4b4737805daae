//! One slot: how a piece of a frame is written into it and read. A slot is written by one one-sided write, from some
//! offset to its end (thesis 3.2.7):
//!
//! ```text
//! .. not written .. | data | pad to 8 | consumed u64 | length u32, kind u8, total u56, note u32 | flag u64
//!                                      \------------------------ trailer -----------------------/
//! ```
//!
//! The length of the data gives the start of the write. *Consumed* is how many writes of the other direction the writer
//! has consumed, so that their slots may be written again. *Total* is the length of the whole frame, *note* a number of
//! its user. The *flag* is the number of the write, from 1. All numbers are in native byte order, except for the total,
//! which has its lowest byte first: all machines run the same program.
//!
//! Here: the trailer, and both directions between bytes and slot. Not here: the order of slots (`stream`), and the
//! meaning of frames (`trust::link`).
//!
//! Invariant: a trailer is read from a copy and checked as a whole before any of it is used.

use comm::{Region, WORD_BYTES};
use trust::link::Buffer;

/// Longest frame: as much as the trailer's bytes can express.
pub(super) const FRAME_BYTES_MAX: u64 = (1 << (8 * TOTAL_BYTES)) - 1;
const TOTAL_BYTES: usize = 7;

/// Bytes behind data and pad.
pub(super) const TRAILER_BYTES: usize = 32;

/// Kind of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A frame, complete.
    Whole = 1,
    /// A part of a frame that is larger than a slot; more follow.
    Piece = 2,
    /// The last part.
    Last = 3,
}

/// Trailer without its flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) consumed: u64,
    /// Bytes of data in this slot.
    pub(super) len: u32,
    pub(super) kind: Kind,
    /// Bytes of the frame.
    pub(super) total: u64,
    pub(super) note: u32,
}

/// Violation by a peer, or a frame that cannot be sent: in words for the user, behind "a write of m1w2: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Violation(pub(super) String);

impl Violation {
    pub(super) fn new(what: impl Into<String>) -> Violation {
        Violation(what.into())
    }
}

impl From<comm::Error> for Violation {
    fn from(error: comm::Error) -> Violation {
        Violation::new(error.to_string())
    }
}

impl Trailer {
    fn encode(&self, flag: u64) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..8].copy_from_slice(&self.consumed.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_ne_bytes());
        bytes[12] = self.kind as u8;
        bytes[13..13 + TOTAL_BYTES].copy_from_slice(&self.total.to_le_bytes()[..TOTAL_BYTES]);
        bytes[20..24].copy_from_slice(&self.note.to_ne_bytes());
        bytes[24..].copy_from_slice(&flag.to_ne_bytes());
        bytes
    }

    /// Decodes the trailer of a slot with room for so many bytes of data.
    pub(super) fn decode(bytes: &[u8; TRAILER_BYTES], room: usize) -> Result<Trailer, Violation> {
        let u32_at = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let kind = match bytes[12] {
            1 => Kind::Whole,
            2 => Kind::Piece,
            3 => Kind::Last,
            other => return Err(Violation::new(format!("a write of the unknown kind {other}"))),
        };
        let mut total = [0; 8];
        total[..TOTAL_BYTES].copy_from_slice(&bytes[13..13 + TOTAL_BYTES]);
        let (len, total) = (u32_at(8), u64::from_le_bytes(total));
        let fits = match kind {
            Kind::Whole => u64::from(len) == total,
            Kind::Piece => len > 0 && u64::from(len) < total,
            Kind::Last => u64::from(len) < total,
        };
        if len as usize > room || !fits {
            return Err(Violation::new(format!("a {kind:?} of {len} bytes, of {total}, in a slot of {room}")));
        }
        let consumed = bytes.first_chunk().map_or(0, |consumed| u64::from_ne_bytes(*consumed));
        Ok(Trailer { consumed, len, kind, total, note: u32_at(20) })
    }
}

/// Seals the bytes of `frame` from `start` on, as many as the trailer says: passes the bytes of the write, which end at
/// the slot's end, to `write`. The frame is unchanged afterwards.
pub(super) fn seal<R>(
    frame: &mut Buffer,
    start: usize,
    trailer: &Trailer,
    flag: u64,
    write: impl FnOnce(&[u8]) -> R,
) -> R {
    let frame_bytes = frame.len();
    let end = start + trailer.len as usize;
    // Pieces are multiples of a word long, except for the last of a frame: pad never overwrites data.
    let padded = start + (end - start).next_multiple_of(WORD_BYTES);
    frame.set_len(frame_bytes.max(padded + TRAILER_BYTES));
    let bytes = frame.bytes_mut();
    let mut behind = [0; TRAILER_BYTES];
    behind.copy_from_slice(&bytes[padded..padded + TRAILER_BYTES]);
    if padded > end {
        bytes[end..padded].fill(0);
    }
    bytes[padded..padded + TRAILER_BYTES].copy_from_slice(&trailer.encode(flag));
    let written = write(&bytes[start..padded + TRAILER_BYTES]);
    bytes[padded..padded + TRAILER_BYTES].copy_from_slice(&behind);
    frame.set_len(frame_bytes);
    written
}

/// Reads the trailer of the slot with room for data from `offset` on, after its flag has been seen.
pub(super) fn trailer(region: &Region, offset: usize, room: usize) -> Result<Trailer, Violation> {
    let mut bytes = [0; TRAILER_BYTES];
    region.read(offset + room, &mut bytes)?;
    Trailer::decode(&bytes, room)
}

/// Appends the data of that slot.
pub(super) fn take(
    region: &Region,
    offset: usize,
    room: usize,
    trailer: &Trailer,
    into: &mut Buffer,
) -> Result<(), Violation> {
    let len = trailer.len as usize;
    let start = room - len.next_multiple_of(WORD_BYTES);
    let before = into.len();
    into.set_len(before + len);
    Ok(region.read(offset + start, &mut into.bytes_mut()[before..])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn buffer(data: &[u8]) -> Buffer {
        let mut buffer = Buffer::default();
        buffer.set_len(data.len());
        buffer.bytes_mut().copy_from_slice(data);
        buffer
    }

    #[test]
    fn an_empty_frame_is_its_trailer() {
        let trailer = Trailer { consumed: 3, len: 0, kind: Kind::Whole, total: 0, note: 9 };
        let written = seal(&mut buffer(&[]), 0, &trailer, 7, <[u8]>::to_vec);
        assert_eq!((written.len(), &written[24..]), (TRAILER_BYTES, &7u64.to_ne_bytes()[..]));
        assert_eq!(Trailer::decode(written.first_chunk().unwrap(), 100).unwrap(), trailer);
    }

    #[test]
    fn a_frame_may_be_longer_than_32_bits_tell() {
        for total in [u64::from(u32::MAX), 1 << 32, (5 << 32) + 3, FRAME_BYTES_MAX] {
            for (kind, len) in [(Kind::Piece, 96), (Kind::Last, 3)] {
                let trailer = Trailer { consumed: 1, len, kind, total, note: 9 };
                assert_eq!(Trailer::decode(&trailer.encode(7), 100).unwrap(), trailer);
            }
            let whole = Trailer { consumed: 1, len: (total as u32).min(96), kind: Kind::Whole, total, note: 0 };
            assert!(Trailer::decode(&whole.encode(7), 100).is_err(), "{total} bytes in one slot");
        }
    }

    proptest! {
        #[test]
        fn what_is_sealed_is_parsed_and_the_frame_is_left_as_it_was(
            data in prop::collection::vec(any::<u8>(), 1..300),
            (words, from) in (0usize..40, 0usize..40),
            (consumed, note, flag) in (any::<u64>(), any::<u32>(), any::<u64>()),
        ) {
            let start = (from * 8).min(data.len() / 8 * 8);
            let len = (words * 8).min(data.len() - start);
            let is_last = start + len == data.len();
            let kind = if len == data.len() { Kind::Whole } else if is_last { Kind::Last } else { Kind::Piece };
            prop_assume!(len > 0 || kind != Kind::Piece);
            let trailer = Trailer { consumed, len: len as u32, kind, total: data.len() as u64, note };
            let mut frame = buffer(&data);
            let written = seal(&mut frame, start, &trailer, flag, <[u8]>::to_vec);
            prop_assert_eq!(frame.bytes(), &data[..]);
            prop_assert!(written.len().is_multiple_of(8));
            let (body, tail) = written.split_last_chunk::<TRAILER_BYTES>().unwrap();
            prop_assert_eq!(&body[..len], &data[start..start + len]);
            prop_assert_eq!(&tail[24..], &flag.to_ne_bytes()[..]);
            prop_assert_eq!(Trailer::decode(tail, 304).unwrap(), trailer);
        }

        /// For every trailer, the bytes read as data lie in the slot.
        #[test]
        fn any_trailer_is_an_error_or_in_range(
            mut bytes in any::<[u8; TRAILER_BYTES]>(),
            kind in 0u8..5,
            small in any::<bool>(),
        ) {
            bytes[12] = kind;
            if small {
                bytes[13..16].fill(0);
                bytes[9..12].fill(0);
            }
            if let Ok(trailer) = Trailer::decode(&bytes, 160) {
                prop_assert!(trailer.len <= 160 && u64::from(trailer.len) <= trailer.total);
            }
        }
    }
}
