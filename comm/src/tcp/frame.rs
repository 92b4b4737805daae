//! What goes over a data connection: writes and wakes, one after the other. Here: how they look, and
//! [`Intake`], which carries them out on the region of whoever receives them. Not here: sockets.
//!
//! A frame is a head of 8 bytes, little endian, `words << 40 | offset / 4`, and for a write its words
//! (`words` of them, at `offset`). A wake is a head with no words; its offset is that of the park
//! word. So everything on the connection is whole words, and the head of a small write costs 8 bytes.
//!
//! Invariants
//! - A write's last word is stored with `Release`, after all its other words: pair W of `fabric.rs`.
//!   A write longer than a frame is cut: only the last of its frames has its flag.
//! - Nothing is stored outside the region: a frame that does not fit in it is a [`Violation`], and of
//!   such a write nothing is stored.

use crate::memory::{Region, WORD_BYTES};
use std::fmt;
use std::sync::atomic::Ordering;

pub(super) const HEAD_BYTES: usize = 8;
const OFFSET_BITS: u32 = 40;
const OFFSET_UNIT: usize = 4;
/// Most words in one frame.
const WORDS_MAX: usize = (1 << (64 - OFFSET_BITS)) - 1;
/// Most bytes in one frame, without its head.
pub(super) const FRAME_BYTES_MAX: usize = WORDS_MAX * WORD_BYTES;
/// Longest region that offsets of frames reach.
pub(super) const REGION_BYTES_MAX: usize = OFFSET_UNIT << OFFSET_BITS;

/// The head of a write of `bytes` bytes at `offset`, or with no bytes, of a wake.
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

/// A frame that no machine of this program would send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Violation {
    offset: usize,
    bytes: usize,
    region_bytes: usize,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { offset, bytes, region_bytes } = self;
        match bytes {
            0 => {
                write!(f, "it sent a wake for offset {offset}, where a region of {region_bytes} bytes has no park word")
            }
            _ => write!(f, "it wrote {bytes} bytes at offset {offset} of a region of {region_bytes} bytes"),
        }
    }
}

/// The receiving end of one connection: what came so far of the frame that is coming.
#[derive(Debug, Default)]
pub(super) struct Intake {
    /// The word that is coming, and how many of its bytes are here.
    word: [u8; WORD_BYTES],
    word_bytes: usize,
    /// Where the next word of the write goes, and how many bytes of it are to come; none between
    /// frames.
    offset: usize,
    left_bytes: usize,
}

impl Intake {
    /// Carries out what `received` holds: stores into `region`, and calls `wake` with the offset of
    /// each park word, behind the writes before it.
    pub(super) fn take(
        &mut self,
        mut received: &[u8],
        region: &Region,
        wake: &mut impl FnMut(usize),
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
            self.take_words(&word, region, wake)?;
        }
        let whole_bytes = received.len() - received.len() % WORD_BYTES;
        let (words, rest) = received.split_at(whole_bytes);
        self.take_words(words, region, wake)?;
        self.word[..rest.len()].copy_from_slice(rest);
        self.word_bytes = rest.len();
        Ok(())
    }

    /// `received` is whole words.
    fn take_words(
        &mut self,
        mut received: &[u8],
        region: &Region,
        wake: &mut impl FnMut(usize),
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
            let (offset, bytes) = parse_head(*head);
            let is_within = match bytes {
                0 => region.word32(offset).is_ok(),
                _ => region.words(offset, bytes).is_ok(),
            };
            if !is_within {
                return Err(Violation { offset, bytes, region_bytes: region.bytes() });
            }
            match bytes {
                0 => wake(offset),
                _ => (self.offset, self.left_bytes) = (offset, bytes),
            }
        }
    }

    /// Stores what came of the write that is coming.
    fn store(&mut self, part: &[u8], region: &Region) -> Result<(), Violation> {
        let (offset, bytes) = (self.offset, part.len());
        let outside = |_| Violation { offset, bytes, region_bytes: region.bytes() };
        if bytes == self.left_bytes {
            // Its last word, the flag, goes last, with the Release of pair W.
            region.publish(offset, part).map_err(outside)?;
        } else {
            let words = region.words(offset, bytes).map_err(outside)?;
            let (values, _) = part.as_chunks::<WORD_BYTES>();
            for (word, value) in words.iter().zip(values) {
                // Relaxed: no flag, so nobody looks at it before the flag has come.
                word.store(u64::from_ne_bytes(*value), Ordering::Relaxed);
            }
        }
        self.offset += bytes;
        self.left_bytes -= bytes;
        Ok(())
    }

    /// Where the next word goes, and how many bytes of the write are to come.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn progress(&self) -> (usize, usize) {
        (self.offset, self.left_bytes)
    }

    /// Whether part of a frame is here and the rest is not.
    pub(super) fn is_within_frame(&self) -> bool {
        self.left_bytes > 0 || self.word_bytes > 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::fuzz::{REGION_BYTES, real_frames};
    use super::*;
    use crate::fuzz;
    use rand::Rng;

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
                intake.take(piece, &region, &mut |offset| woken.push(offset)).unwrap();
            }
            assert_eq!(woken, wakes);
            assert!(!intake.is_within_frame());
            assert!(words_of(&region) == words_of(&expected));
        });
    }

    #[test]
    fn frames_outside_the_region_store_nothing() {
        let region = Region::anonymous(64).unwrap();
        for (offset, bytes) in [(64, 8), (56, 16), (0, 72), (4, 8), (REGION_BYTES_MAX - 8, 8), (0, FRAME_BYTES_MAX)] {
            let mut wire = head(offset, bytes).to_vec();
            wire.extend([0xff; 128]);
            let taken = Intake::default().take(&wire, &region, &mut |_| panic!("no wake"));
            assert_eq!(taken, Err(Violation { offset, bytes, region_bytes: 64 }));
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
            intake.take(&[*byte], &region, &mut |_| {}).unwrap();
            assert_eq!(region.word(32).unwrap().load(Ordering::Acquire), 0);
        }
        assert!(intake.is_within_frame());
        intake.take(&[*last], &region, &mut |_| {}).unwrap();
        assert_eq!(region.word(32).unwrap().load(Ordering::Acquire), u64::MAX);
    }
}
