//! Queries of a peer about this machine's shares, and their answers: sent by the thread that polls, without waiting.
//!
//! Bytes are copied when the socket takes them, a part at a time, so a connection holds one part, for any
//! number of queries; and that number is bounded here, since a peer may send anything. A reader keeps below
//! the bound by itself (`reads.rs`), so no I/O thread ever waits for another.

use super::frame::{NUMBER_SHIFT, Question, Violation};
use crate::memory::{Region, WORD_BYTES};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::atomic::Ordering;

/// Most bytes, and most queries, that a reader has under way on a connection.
pub(super) const UNDER_WAY_BYTES_MAX: usize = 1 << 20;
pub(super) const UNDER_WAY_MAX: usize = 1024;
/// Bytes that one query of a commit map adds, which goes ahead of waiting reads.
const SLACK_BYTES: usize = 64 << 10;

/// Status of an answer: the bytes follow, or there are none.
pub(super) const IS_THERE: u64 = 0;
pub(super) const IS_NOT_COMMITTED: u64 = 1;

/// Pending queries of one connection.
#[derive(Debug, Default)]
pub(super) struct Serving {
    questions: VecDeque<Question>,
    /// Bytes of the answers to those.
    asked_bytes: usize,
    /// The answer that is being sent, and the number of its bytes sent.
    answer: Vec<u8>,
    sent_bytes: usize,
}

impl Serving {
    /// Adds a query.
    pub(super) fn ask(&mut self, question: Question) -> Result<(), Violation> {
        self.asked_bytes += question.answer_bytes();
        self.questions.push_back(question);
        if self.asked_bytes > UNDER_WAY_BYTES_MAX + SLACK_BYTES || self.questions.len() > UNDER_WAY_MAX + 1 {
            return Err(Violation::Questions);
        }
        Ok(())
    }

    /// Sends as much as the socket takes. Returns whether that is everything.
    pub(super) fn send(&mut self, stream: &TcpStream, region: &Region) -> Result<bool, Errno> {
        loop {
            if self.sent_bytes == self.answer.len() {
                let Some(question) = self.questions.pop_front() else {
                    // A connection without further reads holds no buffer.
                    self.answer = Vec::new();
                    self.sent_bytes = 0;
                    return Ok(true);
                };
                self.asked_bytes -= question.answer_bytes();
                self.sent_bytes = 0;
                answer(question, region, &mut self.answer);
            }
            match send(stream, &self.answer[self.sent_bytes..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(bytes) => self.sent_bytes += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Writes the answer to a query.
fn answer(question: Question, region: &Region, into: &mut Vec<u8>) {
    into.clear();
    match question {
        Question::Part { share, offset, bytes } => {
            let share = region.shares().get(share).filter(|share| share.is_committed(offset, bytes));
            let Some(share) = share else {
                into.extend((IS_NOT_COMMITTED << NUMBER_SHIFT).to_le_bytes());
                return;
            };
            into.extend((IS_THERE << NUMBER_SHIFT | bytes as u64).to_le_bytes());
            into.resize(WORD_BYTES + bytes, 0);
            // Inside, and whole words: checked when the query came.
            let read = share.data().read(offset, &mut into[WORD_BYTES..]);
            debug_assert!(read.is_ok());
        }
        Question::Map { share, first, count } => {
            let share = region.shares().get(share);
            let bits = share.map_or(&[][..], |share| share.bits_from(first, count));
            into.extend((IS_THERE << NUMBER_SHIFT | (WORD_BYTES * (1 + bits.len())) as u64).to_le_bytes());
            into.extend((share.map_or(0, |share| share.bytes()) as u64).to_le_bytes());
            // Acquire, pairs with the Release in `share::map::set` [bit-after-pages].
            into.extend(bits.iter().flat_map(|word| word.load(Ordering::Acquire).to_le_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::PART_BYTES;
    use super::*;
    use crate::ShareId;

    #[test]
    fn a_peer_that_asks_for_too_much_is_found() {
        let part = |bytes| Question::Part { share: ShareId(0), offset: 0, bytes };
        let mut serving = Serving::default();
        for _ in 0..UNDER_WAY_BYTES_MAX / PART_BYTES {
            serving.ask(part(PART_BYTES)).unwrap();
        }
        serving.ask(Question::Map { share: ShareId(0), first: 0, count: 512 }).unwrap();
        assert!((0..2).any(|_| serving.ask(part(PART_BYTES)).is_err()), "bytes");
        let mut serving = Serving::default();
        assert!((0..UNDER_WAY_MAX).all(|_| serving.ask(part(8)).is_ok()));
        assert!((0..2).any(|_| serving.ask(part(8)).is_err()), "questions");
    }

    /// A socket with little room takes an answer piece by piece, and all of it in the end.
    #[test]
    fn what_the_socket_does_not_take_waits_for_it() {
        use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
        use std::io::Read;
        use std::net::TcpListener;

        const UNITS: usize = 16;
        let share = ShareId(0);
        let region = Region::anonymous(64).unwrap();
        region.shares().open(share, UNITS * PART_BYTES, |_| Ok(())).unwrap();
        let open = region.shares().get(share).unwrap();
        open.commit(0..UNITS * PART_BYTES, |_| Ok(())).unwrap();
        open.words().iter().enumerate().for_each(|(at, word)| word.store(at as u64, Ordering::Relaxed));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        set_socket_send_buffer_size(&stream, 8192).unwrap();
        set_socket_recv_buffer_size(&reader, 8192).unwrap();
        let mut serving = Serving::default();
        for unit in 0..UNITS {
            serving.ask(Question::Part { share, offset: unit * PART_BYTES, bytes: PART_BYTES }).unwrap();
        }
        assert!(!serving.send(&stream, &region).unwrap(), "a MiB fits a small socket");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !serving.send(&stream, &region).unwrap() {
                    std::thread::yield_now();
                }
            });
            let mut answer = vec![0; WORD_BYTES + PART_BYTES];
            for unit in 0..UNITS {
                reader.read_exact(&mut answer).unwrap();
                let words: Vec<u64> = answer.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
                let first = (unit * PART_BYTES / WORD_BYTES) as u64;
                assert_eq!(words[0], PART_BYTES as u64);
                assert!(words[1..].iter().copied().eq(first..first + words.len() as u64 - 1), "unit {unit}");
            }
        });
    }
}
