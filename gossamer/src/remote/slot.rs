//! One slot: how bytes are put into it and taken out. A slot is written by one one-sided write, from some offset to its
//! end:
//!
//! ```text
//! .. not written .. | data | pad | cache: 4 x u64 (requests only) | start u16 | pad u8 | 0 u8 | count u16 | kind u8 | cached u8 | flag u64
//!                   ^ start, a multiple of 8                       \---------------------- 8 bytes -----------------------/
//! ```
//!
//! Here: the trailer, and both directions between bytes and slot. Not here: what the data mean (`frame`, `answer`), whose
//! turn it is (`pair`). All numbers are in native byte order: all machines run the same program.
//!
//! Invariant: a trailer is read from a copy and checked as a whole before anything of it is used.

use comm::{Region, WORD_BYTES};

/// Bytes of a slot, its trailer included.
pub const SLOT_BYTES: usize = 4096;
/// Closures that a batch names by an index (thesis 3.2.7).
pub(super) const CACHE: usize = 4;

const CACHE_BYTES: usize = CACHE * 8;
/// Start, pad, count, kind, cached, flag.
const HEAD_BYTES: usize = 16;

const _: () = assert!(SLOT_BYTES.is_multiple_of(64) && SLOT_BYTES <= u16::MAX as usize);
const _: () = assert!(CACHE_BYTES + HEAD_BYTES < SLOT_BYTES / 2);

/// Which way a slot is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Client to trustee.
    Request,
    /// Trustee to client.
    Answer,
}

impl Direction {
    /// Bytes behind the data.
    pub(super) const fn trailer_bytes(self) -> usize {
        match self {
            Direction::Request => CACHE_BYTES + HEAD_BYTES,
            Direction::Answer => HEAD_BYTES,
        }
    }

    /// Bytes of data that one slot can carry.
    pub(super) const fn room(self) -> usize {
        SLOT_BYTES - self.trailer_bytes()
    }
}

/// What one write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A frame, complete.
    Whole = 1,
    /// A part of a frame that is larger than a slot; more follow.
    Piece = 2,
    /// The last part.
    Last = 3,
    /// No data: the piece has been taken, send the next.
    Go = 4,
}

/// A trailer without its flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// Requests of the frame, or faults of the answer.
    pub(super) count: u16,
    /// How many of `cache` are used.
    pub(super) cached: u8,
    /// Positions of the closures that requests name by index.
    pub(super) cache: [u64; CACHE],
}

impl Head {
    pub(super) fn new(kind: Kind, count: u16) -> Head {
        Head { kind, count, cached: 0, cache: [0; CACHE] }
    }
}

/// What a peer wrote that it must not write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Violation(pub(super) String);

impl Violation {
    pub(super) fn new(what: impl Into<String>) -> Violation {
        Violation(what.into())
    }
}

/// Turns `data` into what is to be written, by adding pad and trailer, and says at which offset of the slot.
///
/// # Panics
/// If the data do not fit.
pub(super) fn seal(data: &mut Vec<u8>, direction: Direction, head: &Head, flag: u64) -> usize {
    let data_bytes = data.len();
    let padded = data_bytes.next_multiple_of(WORD_BYTES);
    assert!(padded <= direction.room(), "a slot was to take {data_bytes} bytes");
    let start = direction.room() - padded;
    data.resize(padded, 0);
    if direction == Direction::Request {
        for position in head.cache {
            data.extend_from_slice(&position.to_ne_bytes());
        }
    }
    data.extend_from_slice(&(start as u16).to_ne_bytes());
    data.extend_from_slice(&[(padded - data_bytes) as u8, 0]);
    data.extend_from_slice(&head.count.to_ne_bytes());
    data.extend_from_slice(&[head.kind as u8, head.cached]);
    data.extend_from_slice(&flag.to_ne_bytes());
    start
}

/// The trailer in `bytes`, which are `trailer_bytes` long, and where the data lie in the slot: offset, length.
pub(super) fn parse(bytes: &[u8], direction: Direction) -> Result<(Head, usize, usize), Violation> {
    let (head, cache) = match (direction, bytes.len()) {
        (Direction::Request, len) if len == direction.trailer_bytes() => (&bytes[CACHE_BYTES..], &bytes[..CACHE_BYTES]),
        (Direction::Answer, len) if len == direction.trailer_bytes() => (bytes, &[][..]),
        (_, len) => return Err(Violation::new(format!("a trailer of {len} bytes"))),
    };
    let start = usize::from(u16::from_ne_bytes([head[0], head[1]]));
    let (pad, reserved) = (usize::from(head[2]), head[3]);
    let count = u16::from_ne_bytes([head[4], head[5]]);
    let cached = head[7];
    let kind = match head[6] {
        1 => Kind::Whole,
        2 => Kind::Piece,
        3 => Kind::Last,
        4 => Kind::Go,
        other => return Err(Violation::new(format!("a write of the unknown kind {other}"))),
    };
    let room = direction.room();
    if !start.is_multiple_of(WORD_BYTES) || start > room || pad >= WORD_BYTES || pad > room - start || reserved != 0 {
        return Err(Violation::new(format!("data from {start} with {pad} bytes of padding, in {room} bytes")));
    }
    if usize::from(cached) > CACHE || (direction == Direction::Answer && cached != 0) {
        return Err(Violation::new(format!("{cached} closures in a cache of {CACHE}")));
    }
    let mut positions = [0; CACHE];
    for (position, word) in positions.iter_mut().zip(cache.as_chunks::<8>().0) {
        *position = u64::from_ne_bytes(*word);
    }
    Ok((Head { kind, count, cached, cache: positions }, start, room - start - pad))
}

/// Takes the write out of the slot at `offset`, whose flag has been seen: appends its data to `into`.
pub(super) fn take(
    region: &Region,
    offset: usize,
    direction: Direction,
    into: &mut Vec<u8>,
) -> Result<Head, Violation> {
    let mut buffer = [0; Direction::Request.trailer_bytes()];
    let trailer = &mut buffer[..direction.trailer_bytes()];
    let read = |at, part: &mut [u8]| region.read(at, part).map_err(|error| Violation::new(error.to_string()));
    read(offset + direction.room(), trailer)?;
    let (head, start, bytes) = parse(trailer, direction)?;
    let before = into.len();
    into.resize(before + bytes, 0);
    read(offset + start, &mut into[before..])?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_answer_is_its_trailer() {
        let mut bytes = Vec::new();
        let offset = seal(&mut bytes, Direction::Answer, &Head::new(Kind::Whole, 0), 7);
        assert_eq!((bytes.len(), offset + bytes.len()), (HEAD_BYTES, SLOT_BYTES));
        assert_eq!(bytes[8..], 7u64.to_ne_bytes());
    }

    proptest! {
        #[test]
        fn what_is_sealed_is_parsed(
            data in prop::collection::vec(any::<u8>(), 0..200),
            fill in prop::bool::ANY,
            (count, cached, cache) in (any::<u16>(), 0..=4u8, any::<[u64; 4]>()),
            (request, flag) in (any::<bool>(), any::<u64>()),
        ) {
            let direction = if request { Direction::Request } else { Direction::Answer };
            let mut data = data;
            if fill {
                data.resize(direction.room(), 3);
            }
            let head = if request {
                Head { kind: Kind::Last, count, cached, cache }
            } else {
                Head::new(Kind::Piece, count)
            };
            let mut sealed = data.clone();
            let offset = seal(&mut sealed, direction, &head, flag);
            prop_assert_eq!(offset + sealed.len(), SLOT_BYTES);
            prop_assert!(offset.is_multiple_of(8) && sealed.len().is_multiple_of(8));
            prop_assert_eq!(&sealed[sealed.len() - 8..], flag.to_ne_bytes());
            let trailer = sealed.len() - direction.trailer_bytes();
            let (parsed, start, bytes) = parse(&sealed[trailer..], direction).unwrap();
            prop_assert_eq!(parsed, head);
            prop_assert_eq!(&sealed[start - offset..start - offset + bytes], &data[..]);
        }

        /// Whatever a trailer says, what is taken for data lies in the slot.
        #[test]
        fn any_trailer_is_an_error_or_in_range(bytes in any::<[u8; 48]>(), request in any::<bool>()) {
            let direction = if request { Direction::Request } else { Direction::Answer };
            if let Ok((_, start, len)) = parse(&bytes[..direction.trailer_bytes()], direction) {
                prop_assert!(start + len <= direction.room());
            }
        }
    }
}
