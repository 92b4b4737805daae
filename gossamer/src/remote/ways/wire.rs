//! Frames in a write of a machine way, one behind the other, each behind a head and padded to a multiple of 8 bytes:
//!
//! ```text
//! from u16, to u16 | kind u8, part u8, change u8, 0 u8 | length u32, note u32 | total u64 | number u64 | given 2 x u32
//! ```
//!
//! *From* and *to* are threads of the two machines. A frame that is longer than [`PIECE_BYTES`] goes in pieces;
//! *length* is that of the piece, *total* that of the whole. The *number* is that of the piece among all between the
//! two threads in this direction. *Given* are the bytes of requests and of answers in the other direction that the
//! sender has taken since it last said so: the other end may send as many more (`gossamer_ways::machine::Allowance`).
//! A *credit* has nothing else. *Change* is 1 if the frame before went the other way. Numbers are in native byte order.
//!
//! On a direct way, a write is one piece, with its head behind it. A frame there that has nothing is an
//! acknowledgement of writes. Three kinds are no frames of the pair but notices about its direct way, by the machine
//! way alone: *open*, whose note is a ring of the sender, *refuse*, and *close*, whose number is the last one that went
//! directly.
//!
//! Invariant: a head is read from a copy and checked as a whole before any of it is used.

use gossamer_ways::machine::PAIR_BYTES_MAX;
use trust::link::Buffer;

use super::super::slot::{FRAME_BYTES_MAX as WHOLE_BYTES_MAX, Kind as Part, Violation};

/// Bytes before a piece.
pub(super) const HEAD_BYTES: usize = 40;
/// Most bytes of a piece: a batch that goes in one piece by rings does so here, and a pair has several under way.
pub(super) const PIECE_BYTES: usize = (8 << 10) - HEAD_BYTES;
/// Bytes of a piece with its head, at most.
const FRAME_BYTES_MAX: usize = HEAD_BYTES + PIECE_BYTES;

// A receiver says what it has taken when that is half of what a pair may have under way. So a sender without room for a
// piece has more under way than the receiver keeps to itself.
const _: () = assert!(PIECE_BYTES.is_multiple_of(8) && FRAME_BYTES_MAX < PAIR_BYTES_MAX / 2);

/// Content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A batch of requests.
    Request = 0,
    /// The answers to a batch.
    Answer = 1,
    /// Nothing.
    Credit = 2,
    /// Nothing, on a direct way.
    Ack = 3,
    /// See `gossamer_ways::ways::Notice`.
    Open = 4,
    Refuse = 5,
    Close = 6,
}

impl Kind {
    /// Has it bytes?
    pub(super) fn is_batch(self) -> bool {
        matches!(self, Kind::Request | Kind::Answer)
    }
}

/// Head of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) part: Part,
    /// Bytes of this piece.
    pub(super) len: u32,
    pub(super) note: u32,
    /// Bytes of the whole.
    pub(super) total: u64,
    pub(super) number: u64,
    /// The frame before went the other way.
    pub(super) changes: bool,
    /// Bytes of requests and of answers.
    pub(super) given: [u32; 2],
}

impl Head {
    /// A head without bytes.
    pub(super) fn empty(kind: Kind, note: u32, number: u64) -> Head {
        Head { kind, part: Part::Whole, len: 0, note, total: 0, number, changes: false, given: [0; 2] }
    }
}

/// Piece in a write.
pub(super) struct Piece<'a> {
    /// Threads of the two machines; not checked.
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) head: Head,
    pub(super) data: &'a [u8],
}

/// Returns the bytes of a piece in a write.
pub(super) fn frame_bytes(len: usize) -> usize {
    HEAD_BYTES + len.next_multiple_of(8)
}

fn encode((from, to): (u16, u16), head: &Head) -> [u8; HEAD_BYTES] {
    let Head { kind, part, len, note, total, number, changes, given } = *head;
    let mut head = [0; HEAD_BYTES];
    head[..2].copy_from_slice(&from.to_ne_bytes());
    head[2..4].copy_from_slice(&to.to_ne_bytes());
    (head[4], head[5], head[6]) = (kind as u8, part as u8, u8::from(changes));
    head[8..12].copy_from_slice(&len.to_ne_bytes());
    head[12..16].copy_from_slice(&note.to_ne_bytes());
    head[16..24].copy_from_slice(&total.to_ne_bytes());
    head[24..32].copy_from_slice(&number.to_ne_bytes());
    head[32..36].copy_from_slice(&given[0].to_ne_bytes());
    head[36..].copy_from_slice(&given[1].to_ne_bytes());
    head
}

/// Appends a piece to a write, with a head of its length.
pub(super) fn append(write: &mut Buffer, ends: (u16, u16), head: &Head, data: &[u8]) {
    let start = write.len();
    write.set_len(start + frame_bytes(data.len()));
    let bytes = &mut write.bytes_mut()[start..];
    let (to_head, rest) = bytes.split_at_mut(HEAD_BYTES);
    let (to_data, pad) = rest.split_at_mut(data.len());
    to_head.copy_from_slice(&encode(ends, head));
    to_data.copy_from_slice(data);
    pad.fill(0);
}

/// Appends a head of its length to a piece that goes directly.
pub(super) fn append_head(piece: &mut Buffer, ends: (u16, u16), head: &Head) {
    let len = piece.len();
    piece.set_len(frame_bytes(len));
    let behind = &mut piece.bytes_mut()[len..];
    let (pad, to_head) = behind.split_at_mut(behind.len() - HEAD_BYTES);
    pad.fill(0);
    to_head.copy_from_slice(&encode(ends, head));
}

/// Takes the head off a piece that came directly between these two threads.
pub(super) fn take_head(piece: &mut Buffer, ends: (u16, u16)) -> Result<Head, Violation> {
    let Some((padded, bytes)) = piece.bytes().split_last_chunk::<HEAD_BYTES>() else {
        return Err(Violation::new("a direct write without a head"));
    };
    let (told, head) = (ends_of(bytes), decode(bytes)?);
    if told != ends || !(head.kind.is_batch() || matches!(head.kind, Kind::Credit | Kind::Ack)) {
        let Head { kind, .. } = head;
        return Err(Violation::new(format!("a direct write of the kind {kind:?}, of thread {} to {}", told.0, told.1)));
    }
    if (head.len as usize).next_multiple_of(8) != padded.len() {
        return Err(Violation::new(format!("a piece of {} bytes in {}", head.len, padded.len())));
    }
    piece.set_len(head.len as usize);
    Ok(head)
}

fn ends_of(head: &[u8; HEAD_BYTES]) -> (u16, u16) {
    let u16_at = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    (u16_at(0), u16_at(2))
}

/// Takes the first piece off a write; `None`: there is none left.
pub(super) fn next<'a>(write: &mut &'a [u8]) -> Result<Option<Piece<'a>>, Violation> {
    let Some((head, behind)) = write.split_first_chunk::<HEAD_BYTES>() else {
        return if write.is_empty() { Ok(None) } else { Err(Violation::new("a write that ends within a head")) };
    };
    let ((from, to), head) = (ends_of(head), decode(head)?);
    if head.kind == Kind::Ack {
        return Err(Violation::new("an acknowledgement of direct writes"));
    }
    let len = head.len as usize;
    let Some((padded, rest)) = behind.split_at_checked(len.next_multiple_of(8)) else {
        return Err(Violation::new(format!("a piece of {len} bytes, of which {} are there", behind.len())));
    };
    *write = rest;
    Ok(Some(Piece { from, to, head, data: &padded[..len] }))
}

fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Head, Violation> {
    let u32_at = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap_or(&[0; 4]));
    let u64_at = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap_or(&[0; 8]));
    let kind = match bytes[4] {
        0 => Kind::Request,
        1 => Kind::Answer,
        2 => Kind::Credit,
        3 => Kind::Ack,
        4 => Kind::Open,
        5 => Kind::Refuse,
        6 => Kind::Close,
        other => return Err(Violation::new(format!("a frame of the unknown kind {other}"))),
    };
    let (len, total) = (u32_at(8), u64_at(16));
    let (part, fits) = match bytes[5] {
        1 => (Part::Whole, u64::from(len) == total),
        2 => (Part::Piece, len > 0 && u64::from(len) < total && kind.is_batch()),
        3 => (Part::Last, u64::from(len) < total && kind.is_batch()),
        other => return Err(Violation::new(format!("a frame of the unknown part {other}"))),
    };
    let given = [u32_at(32), u32_at(36)];
    // A receiver sends a credit for no less, so that there are few.
    if kind == Kind::Credit && given.iter().all(|given| (*given as usize) < PAIR_BYTES_MAX / 2) {
        return Err(Violation::new(format!("a credit of {given:?} bytes")));
    }
    if len as usize > PIECE_BYTES || total > WHOLE_BYTES_MAX || !fits || (!kind.is_batch() && len > 0) {
        return Err(Violation::new(format!("a {part:?} of {len} bytes, of {total}, of a {kind:?}")));
    }
    let changes = match bytes[6] {
        0 => false,
        1 => true,
        other => return Err(Violation::new(format!("a frame with the change {other}"))),
    };
    Ok(Head { kind, part, len, note: u32_at(12), total, number: u64_at(24), changes, given })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(number: u64, len: usize, total: u64, part: Part) -> Head {
        let (len, given) = (len as u32, [number as u32, u32::MAX]);
        Head { kind: Kind::Answer, part, len, note: 9, total, number, changes: number.is_multiple_of(2), given }
    }

    /// Returns the pieces of a write.
    fn pieces(mut write: &[u8]) -> Result<Vec<Piece<'_>>, Violation> {
        std::iter::from_fn(|| next(&mut write).transpose()).collect()
    }

    proptest! {
        #[test]
        fn what_is_appended_is_found(sizes in prop::collection::vec((0..PIECE_BYTES, any::<(u16, u16)>()), 0..8)) {
            let mut write = Buffer::default();
            let mut sent = Vec::new();
            for (number, (size, ends)) in (1..).zip(sizes) {
                let data: Vec<u8> = (0..size).map(|at| (at as u64 + number) as u8).collect();
                let (part, total) = match number % 3 {
                    0 => (Part::Whole, size as u64),
                    1 => (Part::Last, size as u64 + 7),
                    _ => (if size == 0 { Part::Whole } else { Part::Piece }, if size == 0 { 0 } else { 1 << 40 }),
                };
                let head = head(number, size, total, part);
                let before = write.len();
                append(&mut write, ends, &head, &data);
                prop_assert_eq!(write.len() - before, frame_bytes(size));
                sent.push((ends, head, data));
            }
            let found = pieces(write.bytes()).unwrap();
            prop_assert_eq!(found.len(), sent.len());
            for (found, (ends, head, data)) in found.iter().zip(&sent) {
                prop_assert_eq!(((found.from, found.to), found.head, found.data), (*ends, *head, &data[..]));
            }
        }

        /// Any bytes are refused, or give frames that lie in them.
        #[test]
        fn damage_is_refused_or_in_range(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            small in any::<bool>(),
        ) {
            if small {
                bytes.chunks_mut(HEAD_BYTES).filter(|head| head.len() == HEAD_BYTES).for_each(|head| {
                    (head[4], head[5], head[6]) = (head[4] % 7, 1, head[6] % 2);
                    head[9..12].fill(0);
                    (head[8], head[16]) = (head[8] % 64, head[8] % 64);
                    head[17..24].fill(0);
                });
            }
            if let Ok(pieces) = pieces(&bytes) {
                prop_assert_eq!(pieces.iter().map(|piece| frame_bytes(piece.data.len())).sum::<usize>(), bytes.len());
            }
        }
    }

    #[test]
    fn a_head_goes_behind_a_piece_and_is_taken_off() {
        for len in [0, 1, 8, 13, PIECE_BYTES] {
            let mut piece = Buffer::default();
            piece.set_len(len);
            piece.bytes_mut().fill(5);
            let sent = head(4, len, len as u64, Part::Whole);
            append_head(&mut piece, (2, 3), &sent);
            assert_eq!(piece.len(), frame_bytes(len));
            assert_eq!(take_head(&mut piece, (2, 3)).unwrap(), sent);
            assert_eq!(piece.bytes(), vec![5; len]);
        }
        let refused = |ends, change: fn(&mut Buffer), text: &str| {
            let mut piece = Buffer::default();
            piece.set_len(8);
            append_head(&mut piece, ends, &head(4, 8, 8, Part::Whole));
            change(&mut piece);
            let violation = take_head(&mut piece, (2, 3)).expect_err(text);
            assert!(violation.0.contains(text), "{violation}");
        };
        refused((3, 2), |_| (), "of the kind Answer, of thread 3 to 2");
        refused((2, 3), |piece| piece.set_len(HEAD_BYTES - 1), "without a head");
        refused((2, 3), |piece| (piece.bytes_mut()[16], piece.bytes_mut()[24]) = (9, 9), "a piece of 9 bytes in 8");
        refused((2, 3), |piece| *piece = notice(), "of the kind Close");
    }

    fn notice() -> Buffer {
        let mut piece = Buffer::default();
        append_head(&mut piece, (2, 3), &Head::empty(Kind::Close, 0, 7));
        piece
    }

    #[test]
    fn heads_that_make_no_sense_are_refused() {
        let refused = |change: fn(&mut [u8]), text: &str| {
            let mut write = Buffer::default();
            append(&mut write, (0, 0), &head(1, 8, 8, Part::Whole), &[7; 8]);
            change(write.bytes_mut());
            let violation = pieces(write.bytes()).err().expect(text);
            assert!(violation.0.contains(text), "{violation}");
        };
        refused(|bytes| bytes[4] = 7, "unknown kind 7");
        refused(|bytes| bytes[6] = 2, "the change 2");
        refused(|bytes| (bytes[4], bytes[8], bytes[16]) = (3, 0, 0), "an acknowledgement of direct writes");
        refused(|bytes| bytes[5] = 0, "unknown part 0");
        refused(|bytes| bytes[16] = 9, "a Whole of 8 bytes, of 9");
        refused(|bytes| bytes[4] = 2, "of a Credit");
        refused(|bytes| bytes[4] = 4, "of a Open");
        refused(|bytes| (bytes[8], bytes[16]) = (9, 9), "a piece of 9 bytes, of which 8 are there");
        refused(|bytes| (bytes[9], bytes[17]) = (0x20, 0x20), "a Whole of 8200 bytes");
        assert!(pieces(&[0; HEAD_BYTES - 1]).is_err_and(|violation| violation.0.contains("within a head")));
    }
}
