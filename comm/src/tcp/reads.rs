//! Reader's end of reads of a peer's shares: pending queries, and the answers that come back by the same
//! socket. The thread that owns the connection takes them in, when it takes a read id.
//!
//! Here: bookkeeping and parsing. Not here: the socket (`sender.rs`), the other end (`serving.rs`). Reads
//! beyond the limit of bytes under way wait here, in parts.

use super::frame::{NUMBER_MASK, NUMBER_SHIFT, PART_BYTES, Question};
use super::serving::{IS_NOT_COMMITTED, IS_THERE, UNDER_WAY_BYTES_MAX, UNDER_WAY_MAX};
use crate::memory::WORD_BYTES;
use crate::share::{self, Landing, Outcome, PendingReads, ReadId, ShareId, ShareState};
use std::collections::VecDeque;
use std::ops::Range;

/// A part of a read.
#[derive(Debug, Clone, Copy)]
struct Part {
    read_id: ReadId,
    share: ShareId,
    offset: usize,
    /// Offset in the read.
    at: usize,
    bytes: usize,
}

/// Query of an answer.
#[derive(Debug)]
enum Asked {
    Part(Part),
    Map { count: usize },
}

/// The answer that is arriving.
#[derive(Debug)]
struct Coming {
    asked: Asked,
    bytes: usize,
    come_bytes: usize,
}

/// Reads of which at least this much comes in one part are received straight into the taker's buffer.
const DIRECT_BYTES: usize = 4 << 10;

/// Expected next bytes on the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expected {
    /// This many bytes of the head of a part of the read.
    Head(usize),
    /// The part's bytes for this range of the taker's buffer.
    Body(Range<usize>),
}

/// The peer sent an answer that fits no query.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nonsense;

/// Reads of one connection.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pub(super) pending: PendingReads<Landing>,
    /// Parts without a query yet: the rest of each read, in the order of their turns.
    waiting: VecDeque<Part>,
    asked: VecDeque<Asked>,
    asked_bytes: usize,
    head: [u8; WORD_BYTES],
    head_bytes: usize,
    coming: Option<Coming>,
    /// Received bytes of a map.
    map: Vec<u8>,
    state: Option<ShareState>,
}

impl Reads {
    /// Begins a read.
    pub(super) fn begin(&mut self, share: ShareId, offset: usize, bytes: usize) -> ReadId {
        let read_id = self.pending.add(Landing::new(share, offset, bytes));
        self.waiting.push_back(Part { read_id, share, offset, at: 0, bytes });
        read_id
    }

    /// Returns the next query that may be sent. Reads take turns, part by part, so that a short one does not
    /// wait for all of a long one.
    pub(super) fn next_question(&mut self) -> Option<Question> {
        let rest = *self.waiting.front()?;
        let part = Part { bytes: rest.bytes.min(PART_BYTES), ..rest };
        if self.asked_bytes + part.bytes > UNDER_WAY_BYTES_MAX || self.asked.len() >= UNDER_WAY_MAX {
            return None;
        }
        self.waiting.pop_front();
        if part.bytes < rest.bytes {
            let (offset, at) = (rest.offset + part.bytes, rest.at + part.bytes);
            self.waiting.push_back(Part { offset, at, bytes: rest.bytes - part.bytes, ..rest });
        }
        self.asked_bytes += part.bytes;
        self.asked.push_back(Asked::Part(part));
        Some(Question::Part { share: part.share, offset: part.offset, bytes: part.bytes })
    }

    /// Notes that a query about a map is sent.
    pub(super) fn ask_map(&mut self, count: usize) {
        self.state = None;
        self.asked.push_back(Asked::Map { count });
    }

    /// Returns the answer to the last query about a map, once it is there.
    pub(super) fn take_state(&mut self) -> Option<ShareState> {
        self.state.take()
    }

    /// Returns whether answers are due.
    pub(super) fn is_waiting(&self) -> bool {
        self.coming.is_some() || self.head_bytes > 0 || !self.asked.is_empty()
    }

    /// Takes in the result of a part. The rest of a failed read is not requested any more.
    fn land(&mut self, read_id: ReadId, at: usize, outcome: Outcome<'_>) {
        if !self.pending.land(read_id, at, outcome)
            && let Some(rest) = self.waiting.iter().position(|rest| rest.read_id == read_id)
            && let Some(rest) = self.waiting.remove(rest)
        {
            self.pending.land(read_id, rest.at, Outcome::Refused(rest.bytes));
        }
    }

    /// Returns the expected next bytes, if those of this read come next and may go straight into its taker's buffer.
    pub(super) fn expected_of(&mut self, read_id: ReadId) -> Option<Expected> {
        let (asked, received) = match &self.coming {
            Some(coming) => (Some(&coming.asked), Some(coming.come_bytes)),
            None => (self.asked.front(), None),
        };
        let Some(Asked::Part(part)) = asked else { return None };
        let part = Some(*part).filter(|part| part.read_id == read_id && part.bytes >= DIRECT_BYTES)?;
        match received {
            None => Some(Expected::Head(WORD_BYTES - self.head_bytes)),
            Some(come_bytes) => {
                let next = part.at + come_bytes;
                self.pending.is_handed_until(read_id, next).then_some(Expected::Body(next..part.at + part.bytes))
            }
        }
    }

    /// Takes in the bytes received on the socket, the first `direct` of which, of the expected body, are in the taker's
    /// buffer.
    pub(super) fn take_in_after(&mut self, direct: usize, received: &[u8]) -> Result<(), Nonsense> {
        if let Some(Coming { asked: Asked::Part(part), bytes, come_bytes }) = &mut self.coming {
            *come_bytes += direct;
            self.pending.note_handed(part.read_id, direct);
            if come_bytes == bytes {
                self.coming = None;
            }
        }
        self.take_in(received)
    }

    /// Takes in the bytes received on the socket.
    pub(super) fn take_in(&mut self, mut received: &[u8]) -> Result<(), Nonsense> {
        while !received.is_empty() {
            let Some(coming) = &mut self.coming else {
                let (part, rest) = received.split_at(received.len().min(WORD_BYTES - self.head_bytes));
                self.head[self.head_bytes..self.head_bytes + part.len()].copy_from_slice(part);
                self.head_bytes += part.len();
                received = rest;
                if self.head_bytes == WORD_BYTES {
                    self.head_bytes = 0;
                    self.begin_answer(u64::from_le_bytes(self.head))?;
                }
                continue;
            };
            let (part, rest) = received.split_at(received.len().min(coming.bytes - coming.come_bytes));
            received = rest;
            let come_bytes = coming.come_bytes;
            coming.come_bytes += part.len();
            let landing = match coming.asked {
                Asked::Part(Part { read_id, at, .. }) => Some((read_id, at + come_bytes)),
                Asked::Map { .. } => None,
            };
            if coming.come_bytes == coming.bytes {
                self.coming = None;
            }
            match landing {
                Some((read_id, at)) => self.land(read_id, at, Outcome::Bytes(part)),
                None => {
                    self.map.extend_from_slice(part);
                    if self.coming.is_none() {
                        self.state = Some(state_of(&std::mem::take(&mut self.map))?);
                    }
                }
            }
        }
        Ok(())
    }

    fn begin_answer(&mut self, head: u64) -> Result<(), Nonsense> {
        let (status, bytes) = (head >> NUMBER_SHIFT, head & NUMBER_MASK);
        let bytes = usize::try_from(bytes).map_err(|_| Nonsense)?;
        let asked = self.asked.pop_front().ok_or(Nonsense)?;
        if let Asked::Part(part) = &asked {
            self.asked_bytes -= part.bytes;
        }
        match (&asked, status) {
            (Asked::Part(part), IS_NOT_COMMITTED) if bytes == 0 => {
                self.land(part.read_id, part.at, Outcome::Refused(part.bytes));
                return Ok(());
            }
            (Asked::Part(part), IS_THERE) if bytes == part.bytes => {}
            (Asked::Map { count }, IS_THERE)
                if bytes.is_multiple_of(WORD_BYTES) && (1..=1 + count).contains(&(bytes / WORD_BYTES)) => {}
            _ => return Err(Nonsense),
        }
        self.coming = Some(Coming { asked, bytes, come_bytes: 0 });
        Ok(())
    }
}

/// Parses an answer about a map: the length first.
fn state_of(answer: &[u8]) -> Result<ShareState, Nonsense> {
    let mut words = answer.as_chunks::<WORD_BYTES>().0.iter().map(|word| u64::from_le_bytes(*word));
    let bytes = words.next().and_then(|bytes| usize::try_from(bytes).ok());
    // No bytes: the share is not open.
    let bytes = bytes.filter(|bytes| *bytes == 0 || share::is_length(*bytes)).ok_or(Nonsense)?;
    Ok(ShareState { bytes, bits: words.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MachineId, SHARE_BYTES_MAX, SHARE_UNIT_BYTES as UNIT};

    const SHARE: ShareId = ShareId(1);

    fn answer(status: u64, bytes: &[u8]) -> Vec<u8> {
        [&(status << NUMBER_SHIFT | bytes.len() as u64).to_le_bytes(), bytes].concat()
    }

    fn take(reads: &mut Reads, read_id: ReadId, bytes: usize) -> Result<Option<Vec<u8>>, crate::Error> {
        let mut into = vec![0; bytes];
        let is_there = reads.pending.take(read_id, &mut into, MachineId(1), || false)?;
        Ok(is_there.then_some(into))
    }

    /// A read of up to one part; a longer one has a frame each way for each part.
    #[test]
    fn a_read_is_one_frame_each_way() {
        let mut reads = Reads::default();
        for bytes in [8, 4096, PART_BYTES] {
            let read_id = reads.begin(SHARE, 64, bytes);
            let asked: Vec<Question> = std::iter::from_fn(|| reads.next_question()).collect();
            assert_eq!(asked, [Question::Part { share: SHARE, offset: 64, bytes }]);
            reads.take_in(&answer(IS_THERE, &vec![7; bytes])).unwrap();
            assert!(!reads.is_waiting(), "nothing more is to come");
            assert_eq!(take(&mut reads, read_id, bytes).unwrap(), Some(vec![7; bytes]));
        }
    }

    #[test]
    fn a_short_read_does_not_wait_for_all_of_a_long_one() {
        let mut reads = Reads::default();
        reads.begin(SHARE, 0, UNDER_WAY_BYTES_MAX);
        reads.begin(SHARE, UNIT, 8);
        let asked: Vec<usize> = std::iter::from_fn(|| reads.next_question())
            .map(|question| match question {
                Question::Part { bytes, .. } => bytes,
                _ => unreachable!("only parts were asked for"),
            })
            .collect();
        assert_eq!(asked[..3], [PART_BYTES, 8, PART_BYTES]);
    }

    #[test]
    fn a_long_read_goes_in_parts_within_bounds() {
        let mut reads = Reads::default();
        let bytes = 2 * UNDER_WAY_BYTES_MAX + 8;
        let read_id = reads.begin(SHARE, 64, bytes);
        let first: Vec<Question> = std::iter::from_fn(|| reads.next_question()).collect();
        assert_eq!(first.len(), UNDER_WAY_BYTES_MAX / PART_BYTES);
        let mut questions: VecDeque<Question> = first.into();
        let (mut offset, mut byte) = (64, 0u8);
        while let Some(Question::Part { offset: at, bytes, .. }) = questions.pop_front() {
            assert_eq!(at, offset);
            offset += bytes;
            byte = byte.wrapping_add(1);
            for piece in answer(IS_THERE, &vec![byte; bytes]).chunks(10_007) {
                reads.take_in(piece).unwrap();
            }
            questions.extend(reads.next_question());
        }
        assert!(!reads.is_waiting());
        let read = take(&mut reads, read_id, bytes).unwrap().unwrap();
        assert!(read.iter().enumerate().all(|(at, byte)| *byte == (1 + at / PART_BYTES) as u8));
    }

    #[test]
    fn long_parts_come_straight_into_the_buffer_of_their_taker() {
        let mut reads = Reads::default();
        let (long, short) = (reads.begin(SHARE, 0, 2 * PART_BYTES), reads.begin(SHARE, 0, 8));
        assert_eq!(std::iter::from_fn(|| reads.next_question()).count(), 3);
        let (first, between, last) =
            (answer(IS_THERE, &[1; PART_BYTES]), answer(IS_THERE, &[2; 8]), answer(IS_THERE, &[3; PART_BYTES]));
        let mut into = vec![0; 2 * PART_BYTES];
        assert_eq!(reads.expected_of(long), Some(Expected::Head(8)));
        reads.take_in(&first[..8]).unwrap();
        assert_eq!(reads.expected_of(short), None);
        assert_eq!(reads.expected_of(long), Some(Expected::Body(0..PART_BYTES)));
        into[..1000].fill(1);
        reads.take_in_after(1000, &[]).unwrap();
        assert_eq!(reads.expected_of(long), Some(Expected::Body(1000..PART_BYTES)));
        into[1000..PART_BYTES].fill(1);
        reads.take_in_after(PART_BYTES - 1000, &between[..8]).unwrap();
        assert_eq!((reads.expected_of(long), reads.expected_of(short)), (None, None), "8 bytes of another read");
        reads.take_in(&between[8..]).unwrap();
        reads.take_in(&last[..3]).unwrap();
        assert_eq!(reads.expected_of(long), Some(Expected::Head(5)));
        // Some of it comes while another read is taken.
        reads.take_in(&last[3..2000]).unwrap();
        assert_eq!(reads.expected_of(long), None, "the buffer lacks bytes before those");
        reads.pending.hand_over(long, &mut into).unwrap();
        let rest = PART_BYTES + 1992..2 * PART_BYTES;
        assert_eq!(reads.expected_of(long), Some(Expected::Body(rest.clone())));
        into[rest.clone()].fill(3);
        reads.take_in_after(rest.len(), &[]).unwrap();
        assert!(!reads.is_waiting());
        assert!(reads.pending.take(long, &mut into, MachineId(1), || false).unwrap());
        assert!(into == [[1; PART_BYTES], [3; PART_BYTES]].concat());
        assert_eq!(take(&mut reads, short, 8).unwrap().unwrap(), [2; 8]);
    }

    #[test]
    fn one_part_that_is_refused_is_the_end_of_its_read_alone() {
        let mut reads = Reads::default();
        let (long, short) = (reads.begin(SHARE, 0, PART_BYTES + 8), reads.begin(SHARE, 0, 8));
        assert_eq!(std::iter::from_fn(|| reads.next_question()).count(), 3);
        reads.ask_map(2);
        reads.take_in(&answer(IS_THERE, &[1; PART_BYTES])).unwrap();
        // The short one had its turn before the rest of the long one.
        reads.take_in(&answer(IS_THERE, &[2; 8])).unwrap();
        reads.take_in(&answer(IS_NOT_COMMITTED, &[])).unwrap();
        assert!(reads.take_state().is_none());
        reads.take_in(&answer(IS_THERE, &[UNIT.to_le_bytes(), [3; 8], [4; 8]].concat())).unwrap();
        let state = reads.take_state().unwrap();
        assert_eq!((state.bytes, state.bits), (UNIT, vec![u64::from_ne_bytes([3; 8]), u64::from_ne_bytes([4; 8])]));
        assert!(matches!(take(&mut reads, long, PART_BYTES + 8), Err(crate::Error::NotCommitted { .. })));
        assert_eq!(take(&mut reads, short, 8).unwrap().unwrap(), [2; 8]);
    }

    #[test]
    fn the_rest_of_a_read_that_is_refused_is_not_asked_for() {
        let mut reads = Reads::default();
        let long = reads.begin(SHARE, 0, SHARE_BYTES_MAX);
        let asked = std::iter::from_fn(|| reads.next_question()).count();
        let short = reads.begin(SHARE, 8, 8);
        assert_eq!(asked, UNDER_WAY_BYTES_MAX / PART_BYTES);
        reads.take_in(&answer(IS_NOT_COMMITTED, &[])).unwrap();
        assert_eq!(reads.next_question(), Some(Question::Part { share: SHARE, offset: 8, bytes: 8 }));
        for part in 1..asked {
            assert!(reads.pending.is_waiting(long).unwrap(), "{part} of {asked} are under way");
            // Later parts of the failed read are ignored, whether they have bytes or are refused.
            let (status, bytes) = if part % 2 == 0 { (IS_NOT_COMMITTED, 0) } else { (IS_THERE, PART_BYTES) };
            reads.take_in(&answer(status, &vec![1; bytes])).unwrap();
        }
        assert!(!reads.pending.is_waiting(long).unwrap() && reads.pending.is_waiting(short).unwrap());
        reads.take_in(&answer(IS_THERE, &[2; 8])).unwrap();
        assert_eq!(take(&mut reads, short, 8).unwrap().unwrap(), [2; 8]);
    }

    #[test]
    fn what_was_not_asked_is_nonsense() {
        let too_long = answer(IS_THERE, &[0; 16]);
        for (is_map, wire) in [
            (false, too_long.clone()),
            (false, answer(IS_THERE, &[])),
            (false, answer(IS_NOT_COMMITTED, &[0; 8])),
            (false, answer(2, &[0; 8])),
            (true, answer(IS_THERE, &[0; 24])),
            (true, answer(IS_THERE, &[])),
            (true, answer(IS_THERE, &[0; 4])),
            (true, answer(IS_NOT_COMMITTED, &[])),
            (true, answer(IS_THERE, &(UNIT + 8).to_le_bytes())),
            (true, answer(IS_THERE, &(SHARE_BYTES_MAX + UNIT).to_le_bytes())),
            (true, answer(IS_THERE, &[0xff; 16])),
        ] {
            let mut reads = Reads::default();
            assert_eq!(reads.take_in(&too_long), Err(Nonsense), "nothing was asked");
            match is_map {
                true => reads.ask_map(1),
                false => drop((reads.begin(SHARE, 0, 8), reads.next_question())),
            }
            assert_eq!(reads.take_in(&wire), Err(Nonsense), "{wire:?}");
        }
    }
}
