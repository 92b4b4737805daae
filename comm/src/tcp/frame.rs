//! Frames on a data connection: writes and wakes, one after the other. Here: their format, and [`Intake`],
//! which executes them on the region of the receiver. Not here: sockets.
//!
//! Beside them, reads of shares, whose answers come back on the same connection.
//!
//! A frame is a head of 8 bytes, little endian, `words << 40 | offset / 4`, and for a write its words
//! (`words` of them, at `offset`). A wake is a head with no words; its offset is that of the park
//! word. So everything on the connection is whole words, and the head of a small write costs 8 bytes.
//!
//! A heartbeat is a head with no words too, at an offset behind the longest region.
//!
//! Frames for shares begin with a head of no words at one of three other offsets there, and two more words,
//! `share << 56 | offset` and a number of bytes. A write then has its words; a read asks for that many bytes,
//! at most [`PART_BYTES`]; a query of the commit map asks for that many bytes of it, from the word `offset`
//! on. An answer is a word, `status << 56 | bytes`, and that many bytes; answers come in the order of the
//! queries (`serving.rs`, `reads.rs`).
//!
//! Invariants
//! - A write's last word is stored with `Release`, after all its other words: [flag-last] of `fabric.rs`. A write
//!   longer than a frame is split: only the last of its frames has its flag.
//! - Nothing is stored outside the region or share: a frame that does not fit is a [`Violation`], and nothing
//!   of such a write is stored. Nothing is stored where a share is not committed either: the sender has
//!   checked before, so such a write comes after a release, and is lost.

use crate::memory::{Region, WORD_BYTES};
use crate::share::{ASKED_WORDS, ShareId};
use std::fmt;
use std::sync::atomic::Ordering;

pub(super) const HEAD_BYTES: usize = 8;
const OFFSET_BITS: u32 = 40;
const OFFSET_UNIT: usize = 4;
/// Most words in one frame.
const WORDS_MAX: usize = (1 << (64 - OFFSET_BITS)) - 1;
/// Most bytes in one frame, without its head.
pub(super) const FRAME_BYTES_MAX: usize = WORDS_MAX * WORD_BYTES;
/// Number of reserved offsets behind the longest region, in units: they mark frames for shares.
const MARKS: usize = 16;
const SHARE_WRITE: u64 = (1 << OFFSET_BITS) - 1;
const SHARE_READ: u64 = SHARE_WRITE - 1;
const SHARE_MAP: u64 = SHARE_WRITE - 2;
const LIVES: u64 = SHARE_WRITE - 3;
/// A frame without effect.
pub(super) const HEARTBEAT: [u8; HEAD_BYTES] = LIVES.to_le_bytes();
/// Length of the longest region that frame offsets reach.
pub(super) const REGION_BYTES_MAX: usize = OFFSET_UNIT * ((1 << OFFSET_BITS) - MARKS);

pub(super) const SHARE_HEAD_BYTES: usize = 3 * WORD_BYTES;
/// Most bytes of one read query. A longer read is split into several.
pub(super) const PART_BYTES: usize = 64 << 10;
/// Position of the share's number in the second word of a head, and of the status in an answer.
pub(super) const NUMBER_SHIFT: u32 = 56;
pub(super) const NUMBER_MASK: u64 = (1 << NUMBER_SHIFT) - 1;

/// Returns the head of a write of `bytes` bytes to a share.
pub(super) fn share_write_head(share: ShareId, offset: usize, bytes: usize) -> [u8; SHARE_HEAD_BYTES] {
    share_head(SHARE_WRITE, share, offset, bytes)
}

fn share_head(mark: u64, share: ShareId, offset: usize, bytes: usize) -> [u8; SHARE_HEAD_BYTES] {
    let mut head = [0; SHARE_HEAD_BYTES];
    let words = [mark, u64::from(share.0) << NUMBER_SHIFT | offset as u64, bytes as u64];
    for (place, word) in head.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    head
}

/// Query about another machine's shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    /// Bytes of the share.
    Part { share: ShareId, offset: usize, bytes: usize },
    /// This many words of the commit map, from `first` on, after the length of the share.
    Map { share: ShareId, first: usize, count: usize },
}

impl Question {
    pub(super) fn to_bytes(self) -> [u8; SHARE_HEAD_BYTES] {
        match self {
            Question::Part { share, offset, bytes } => share_head(SHARE_READ, share, offset, bytes),
            Question::Map { share, first, count } => share_head(SHARE_MAP, share, first, WORD_BYTES * count),
        }
    }

    /// Returns the largest length of an answer, without its head.
    pub(super) fn answer_bytes(self) -> usize {
        match self {
            Question::Part { bytes, .. } => bytes,
            Question::Map { count, .. } => WORD_BYTES * (1 + count),
        }
    }
}

/// Request of a frame to its receiver, beyond stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Wake the thread that parks at this offset.
    Wake(usize),
    Question(Question),
    /// No request: the connection is live.
    Heartbeat,
}

/// Returns the head of a write of `bytes` bytes at `offset`, or with no bytes, of a wake.
pub(super) fn head(offset: usize, bytes: usize) -> [u8; HEAD_BYTES] {
    debug_assert!(bytes <= FRAME_BYTES_MAX && offset < REGION_BYTES_MAX);
    let head = ((bytes / WORD_BYTES) as u64) << OFFSET_BITS | (offset / OFFSET_UNIT) as u64;
    head.to_le_bytes()
}

fn parse_head(head: [u8; HEAD_BYTES]) -> (usize, usize) {
    let head = u64::from_le_bytes(head);
    let offset = head & ((1 << OFFSET_BITS) - 1);
    (offset as usize * OFFSET_UNIT, (head >> OFFSET_BITS) as usize * WORD_BYTES)
}

/// A frame that no correct machine of this program sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Violation {
    Region { offset: usize, bytes: usize, region_bytes: usize },
    Share { share: u8, offset: u64, bytes: u64 },
    Questions,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Region { offset, bytes: 0, region_bytes } => {
                write!(f, "it sent a wake for offset {offset}, where a region of {region_bytes} bytes has no park word")
            }
            Violation::Region { offset, bytes, region_bytes } => {
                write!(f, "it wrote {bytes} bytes at offset {offset} of a region of {region_bytes} bytes")
            }
            Violation::Share { share, offset, bytes } => {
                write!(f, "it named {bytes} bytes at offset {offset} of share {share}, which has none there")
            }
            Violation::Questions => write!(f, "it asked for more of a share than may be under way"),
        }
    }
}

/// Destination of the words that follow.
#[derive(Debug, Clone, Copy, Default)]
enum Target {
    #[default]
    Region,
    Share(ShareId),
    /// Nowhere, since they come after a release.
    Nowhere,
}

/// Receiving end of one connection: state of the current frame.
#[derive(Debug, Default)]
pub(super) struct Intake {
    /// The current word, and the number of its bytes received.
    word: [u8; WORD_BYTES],
    word_bytes: usize,
    /// Offset of the next word of the write, and the number of its bytes still to come; 0 between frames.
    offset: usize,
    left_bytes: usize,
    target: Target,
    /// Words of a head for a share, and the number of them received.
    share_head: [u64; 2],
    share_head_words: usize,
}

impl Intake {
    /// Executes the frames in `received`: stores into `region` and its machine's shares, and calls `event`
    /// for everything else, after the writes before it.
    pub(super) fn take(
        &mut self,
        mut received: &[u8],
        region: &Region,
        event: &mut impl FnMut(Event) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        if self.word_bytes > 0 {
            let bytes = received.len().min(WORD_BYTES - self.word_bytes);
            let (first, rest) = received.split_at(bytes);
            self.word[self.word_bytes..self.word_bytes + bytes].copy_from_slice(first);
            self.word_bytes += bytes;
            if self.word_bytes < WORD_BYTES {
                return Ok(());
            }
            self.word_bytes = 0;
            received = rest;
            let word = self.word;
            self.take_words(&word, region, event)?;
        }
        let whole_bytes = received.len() - received.len() % WORD_BYTES;
        let (words, rest) = received.split_at(whole_bytes);
        self.take_words(words, region, event)?;
        self.word[..rest.len()].copy_from_slice(rest);
        self.word_bytes = rest.len();
        Ok(())
    }

    /// `received` is made of whole words.
    fn take_words(
        &mut self,
        mut received: &[u8],
        region: &Region,
        event: &mut impl FnMut(Event) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        loop {
            if self.left_bytes > 0 {
                if received.is_empty() {
                    return Ok(());
                }
                let (part, rest) = received.split_at(received.len().min(self.left_bytes));
                self.store(part, region)?;
                received = rest;
                continue;
            }
            let Some((head, rest)) = received.split_first_chunk::<HEAD_BYTES>() else {
                return Ok(());
            };
            received = rest;
            if self.share_head_words > 0 {
                self.take_share_head(u64::from_le_bytes(*head), region, event)?;
                continue;
            }
            let (offset, bytes) = parse_head(*head);
            if bytes == 0 && offset >= REGION_BYTES_MAX {
                if *head == HEARTBEAT {
                    event(Event::Heartbeat)?;
                    continue;
                }
                (self.share_head[0], self.share_head_words) = ((offset / OFFSET_UNIT) as u64, 1);
                continue;
            }
            let is_within = match bytes {
                0 => region.word32(offset).is_ok(),
                _ => region.words(offset, bytes).is_ok(),
            };
            if !is_within {
                return Err(Violation::Region { offset, bytes, region_bytes: region.bytes() });
            }
            match bytes {
                0 => event(Event::Wake(offset))?,
                _ => (self.target, self.offset, self.left_bytes) = (Target::Region, offset, bytes),
            }
        }
    }

    /// Takes the second or third word of a head for a share.
    fn take_share_head(
        &mut self,
        word: u64,
        region: &Region,
        event: &mut impl FnMut(Event) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        if self.share_head_words == 1 {
            (self.share_head[1], self.share_head_words) = (word, 2);
            return Ok(());
        }
        self.share_head_words = 0;
        let [mark, place] = self.share_head;
        let (share, at) = (ShareId((place >> NUMBER_SHIFT) as u8), place & NUMBER_MASK);
        let violation = Violation::Share { share: share.0, offset: at, bytes: word };
        let (Ok(offset), Ok(bytes)) = (usize::try_from(at), usize::try_from(word)) else { return Err(violation) };
        if mark == SHARE_MAP {
            let count = bytes / WORD_BYTES;
            if bytes % WORD_BYTES != 0 || !(1..=ASKED_WORDS).contains(&count) {
                return Err(violation);
            }
            return event(Event::Question(Question::Map { share, first: offset, count }));
        }
        let Some(open) = region.shares().get(share) else { return Err(violation) };
        if open.check(offset, bytes).is_err() {
            return Err(violation);
        }
        match mark {
            SHARE_WRITE => {
                let is_committed = open.is_committed(offset, bytes);
                self.target = if is_committed { Target::Share(share) } else { Target::Nowhere };
                (self.offset, self.left_bytes) = (offset, bytes);
            }
            SHARE_READ if bytes <= PART_BYTES => event(Event::Question(Question::Part { share, offset, bytes }))?,
            _ => return Err(violation),
        }
        Ok(())
    }

    /// Stores the received part of the current write.
    fn store(&mut self, part: &[u8], region: &Region) -> Result<(), Violation> {
        let (offset, bytes) = (self.offset, part.len());
        let is_last = bytes == self.left_bytes;
        match self.target {
            Target::Region => store_part(region, offset, part, is_last),
            Target::Share(share) => {
                region.shares().get(share).map_or(Ok(()), |share| store_part(share.data(), offset, part, is_last))
            }
            Target::Nowhere => Ok(()),
        }?;
        self.offset += bytes;
        self.left_bytes -= bytes;
        Ok(())
    }

    /// Returns the offset of the next word, and the number of bytes of the write still to come.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn progress(&self) -> (usize, usize) {
        (self.offset, self.left_bytes)
    }

    /// Returns whether part of a frame has been received and the rest has not.
    pub(super) fn is_within_frame(&self) -> bool {
        self.left_bytes > 0 || self.word_bytes > 0 || self.share_head_words > 0
    }
}

/// Stores a part of a write.
fn store_part(memory: &Region, offset: usize, part: &[u8], is_last: bool) -> Result<(), Violation> {
    let bytes = part.len();
    let outside = |_| Violation::Region { offset, bytes, region_bytes: memory.bytes() };
    if is_last {
        // The last word, the flag, is stored last, with the Release of [flag-last].
        return memory.publish(offset, part).map_err(outside);
    }
    let words = memory.words(offset, bytes).map_err(outside)?;
    let (values, _) = part.as_chunks::<WORD_BYTES>();
    for (word, value) in words.iter().zip(values) {
        // Relaxed: this is no flag, so no reader loads it before it has seen the flag.
        word.store(u64::from_ne_bytes(*value), Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fuzz::{REGION_BYTES, real_frames};
    use super::*;
    use crate::fuzz;
    use rand::Rng;
    use std::sync::Arc;

    fn words_of(region: &Region) -> Vec<u64> {
        region.words(0, region.bytes()).unwrap().iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn heads_survive_the_wire() {
        for (offset, bytes) in [(0, 8), (8, 0), (12, 0), (REGION_BYTES_MAX - 8, FRAME_BYTES_MAX), (1 << 33, 64)] {
            assert_eq!(parse_head(head(offset, bytes)), (offset, bytes));
        }
    }

    #[test]
    fn frames_in_any_pieces_are_carried_out() {
        let (region, expected) = (Region::anonymous(REGION_BYTES).unwrap(), Region::anonymous(REGION_BYTES).unwrap());
        let mut intake = Intake::default();
        fuzz::run("pieces of frames", |random| {
            let (wire, wakes) = real_frames(random, &expected);
            let mut woken = Vec::new();
            for piece in wire.chunks(random.random_range(1..100)) {
                let mut wake = |event| {
                    let Event::Wake(offset) = event else { panic!("{event:?}") };
                    woken.push(offset);
                    Ok(())
                };
                intake.take(piece, &region, &mut wake).unwrap();
            }
            assert_eq!(woken, wakes);
            assert!(!intake.is_within_frame());
            assert!(words_of(&region) == words_of(&expected));
        });
    }

    #[test]
    fn a_heartbeat_in_any_pieces_between_frames_asks_for_nothing() {
        let region = Region::anonymous(REGION_BYTES).unwrap();
        let wire = [&HEARTBEAT[..], &head(8, 8), &[7; 8], &HEARTBEAT, &head(12, 0), &HEARTBEAT].concat();
        for bytes in 1..wire.len() {
            let (mut intake, mut events) = (Intake::default(), Vec::new());
            for piece in wire.chunks(bytes) {
                let mut note = |event| {
                    events.push(event);
                    Ok(())
                };
                intake.take(piece, &region, &mut note).unwrap();
            }
            assert_eq!(events, [Event::Heartbeat, Event::Heartbeat, Event::Wake(12), Event::Heartbeat]);
            assert!(!intake.is_within_frame());
        }
        assert_eq!(words_of(&region).iter().filter(|word| **word != 0).count(), 1);
    }

    #[test]
    fn frames_outside_the_region_store_nothing() {
        let region = Region::anonymous(64).unwrap();
        for (offset, bytes) in [(64, 8), (56, 16), (0, 72), (4, 8), (REGION_BYTES_MAX - 8, 8), (0, FRAME_BYTES_MAX)] {
            let mut wire = head(offset, bytes).to_vec();
            wire.extend([0xff; 128]);
            let taken = Intake::default().take(&wire, &region, &mut |_| panic!("no wake"));
            assert_eq!(taken, Err(Violation::Region { offset, bytes, region_bytes: 64 }));
        }
        for offset in [64, 1 << 20] {
            let taken = Intake::default().take(&head(offset, 0), &region, &mut |_| panic!("no wake"));
            assert!(taken.unwrap_err().to_string().contains("sent a wake"));
        }
        assert!(words_of(&region).iter().all(|word| *word == 0));
    }

    #[test]
    fn the_flag_is_stored_with_the_last_byte() {
        let region = Region::anonymous(64).unwrap();
        let mut intake = Intake::default();
        let wire = [&head(16, 24)[..], &[0xff; 24]].concat();
        let (last, rest) = wire.split_last().unwrap();
        for byte in rest {
            intake.take(&[*byte], &region, &mut |_| Ok(())).unwrap();
            assert_eq!(region.word(32).unwrap().load(Ordering::Acquire), 0);
        }
        assert!(intake.is_within_frame());
        intake.take(&[*last], &region, &mut |_| Ok(())).unwrap();
        assert_eq!(region.word(32).unwrap().load(Ordering::Acquire), u64::MAX);
    }

    /// Returns a region whose machine has share 2, of four units, the second of which is committed.
    fn with_share() -> Region {
        let region = Region::anonymous(64).unwrap();
        region.shares().open(ShareId(2), 4 * UNIT, |_| Ok(())).unwrap();
        region.shares().get(ShareId(2)).unwrap().commit(UNIT..2 * UNIT, |_| Ok(())).unwrap();
        region
    }

    const UNIT: usize = crate::SHARE_UNIT_BYTES;

    #[test]
    fn what_concerns_shares_is_carried_out_in_any_pieces() {
        let region = with_share();
        let share = Arc::clone(region.shares().get(ShareId(2)).unwrap());
        let part = Question::Part { share: ShareId(2), offset: UNIT, bytes: 4096 };
        let map = Question::Map { share: ShareId(7), first: 3, count: 5 };
        let body: Vec<u8> = (0..200).collect();
        let mut wire = Vec::new();
        wire.extend(share_write_head(ShareId(2), UNIT + 16, body.len()));
        wire.extend(&body);
        wire.extend(part.to_bytes());
        wire.extend(head(8, 0));
        // Not committed: it is dropped, and the next frame is found.
        wire.extend(share_write_head(ShareId(2), 2 * UNIT - 8, 16));
        wire.extend([0xff; 16]);
        wire.extend(map.to_bytes());
        wire.extend(head(16, 8));
        wire.extend([0xee; 8]);
        for piece_bytes in [1, 7, 8, 24, 33, 1000] {
            share.words().iter().take(2 * UNIT / 8).for_each(|word| word.store(0, Ordering::Relaxed));
            let (mut intake, mut events) = (Intake::default(), Vec::new());
            for piece in wire.chunks(piece_bytes) {
                let mut event = |event| {
                    events.push(event);
                    Ok(())
                };
                intake.take(piece, &region, &mut event).unwrap();
            }
            assert!(!intake.is_within_frame());
            assert_eq!(events, [Event::Question(part), Event::Wake(8), Event::Question(map)], "{piece_bytes}");
            let mut copy = vec![0; body.len()];
            share.data().read(UNIT + 16, &mut copy).unwrap();
            assert_eq!(copy, body);
            assert_eq!(share.words()[2 * UNIT / 8 - 1].load(Ordering::Relaxed), 0, "a late write was stored");
            assert_eq!(region.word(16).unwrap().load(Ordering::Acquire), u64::from_ne_bytes([0xee; 8]));
        }
    }

    #[test]
    fn frames_outside_a_share_are_violations() {
        let region = with_share();
        let end = 4 * UNIT;
        let refused = |wire: &[u8]| {
            let taken = Intake::default().take(wire, &region, &mut |event| panic!("{event:?}"));
            assert!(matches!(taken, Err(Violation::Share { .. })), "{taken:?}");
            assert!(!taken.unwrap_err().to_string().is_empty());
        };
        for (share, offset, bytes) in [(2, end, 8), (2, end - 8, 16), (2, 0, end + 8), (2, 4, 8), (2, 0, 12), (2, 0, 0)]
            .into_iter()
            .chain([(0, 0, 8), (8, 0, 8), (255, 0, 8), (2, NUMBER_MASK as usize - 7, 16), (2, 8, usize::MAX - 7)])
        {
            refused(&share_head(SHARE_WRITE, ShareId(share), offset, bytes));
            refused(&share_head(SHARE_READ, ShareId(share), offset, bytes));
        }
        refused(&share_head(SHARE_READ, ShareId(2), 0, PART_BYTES + 8));
        for bytes in [0, 4, 8 * ASKED_WORDS + 8, usize::MAX - 7] {
            refused(&share_head(SHARE_MAP, ShareId(2), 0, bytes));
        }
        for mark in REGION_BYTES_MAX as u64 / 4..LIVES {
            refused(&share_head(mark, ShareId(2), UNIT, 8));
        }
    }
}
