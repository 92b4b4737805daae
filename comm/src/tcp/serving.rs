//! Queries of a peer about this machine's shares, and their answers: sent by the thread that polls, without waiting.
//!
//! A long part goes straight from the share to the socket, when that takes it; short ones gather in a buffer, for one
//! system call. So a connection holds [`GATHERED_BYTES_MAX`] bytes, for any number of queries; and that number is
//! bounded here, since a peer may send anything. A reader keeps below the bound by itself (`reads.rs`), so no I/O
//! thread ever waits for another.

use super::frame::{NUMBER_SHIFT, Question, Violation};
use crate::memory::{Region, WORD_BYTES};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most bytes, and most queries, that a reader has under way on a connection.
pub(super) const UNDER_WAY_BYTES_MAX: usize = 4 << 20;
pub(super) const UNDER_WAY_MAX: usize = 1024;
/// Bytes that one query of a commit map adds, which goes ahead of waiting reads.
const SLACK_BYTES: usize = 64 << 10;

/// Parts of at least this length are sent straight from the share.
const DIRECT_BYTES: usize = 4 << 10;
/// Most bytes of answers that gather for one system call.
const GATHERED_BYTES_MAX: usize = 16 << 10;
/// Bytes sent on a connection before the others get their turn.
const SENT_BYTES_MAX: usize = 1 << 20;

/// Status of an answer: the bytes follow, or there are none.
pub(super) const IS_THERE: u64 = 0;
pub(super) const IS_NOT_COMMITTED: u64 = 1;

/// Pending queries of one connection.
#[derive(Debug, Default)]
pub(super) struct Serving {
    questions: VecDeque<Question>,
    /// Bytes of the answers to those.
    asked_bytes: usize,
    /// Answers that are being sent, and the number of their bytes sent.
    gathered: Vec<u8>,
    sent_bytes: usize,
    /// The part that follows them.
    body: Option<Body>,
}

/// Bytes of a share that are still to be sent.
#[derive(Debug)]
struct Body {
    data: Arc<Region>,
    offset: usize,
    bytes: usize,
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

    /// Sends as much as the socket takes, up to a limit. Returns whether that is everything.
    pub(super) fn send(&mut self, stream: &TcpStream, region: &Region) -> Result<bool, Errno> {
        let mut sent_bytes = 0;
        while sent_bytes < SENT_BYTES_MAX {
            if self.has_sent_gathered() {
                if self.questions.is_empty() {
                    // A connection without further reads holds no buffer.
                    (self.gathered, self.sent_bytes) = (Vec::new(), 0);
                    return Ok(true);
                }
                self.gather(region);
            }
            match self.send_some(stream) {
                Ok(bytes) => {
                    self.note_sent(bytes);
                    sent_bytes += bytes;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(self.has_sent_gathered() && self.questions.is_empty())
    }

    fn has_sent_gathered(&self) -> bool {
        self.sent_bytes == self.gathered.len() && self.body.is_none()
    }

    fn send_some(&self, stream: &TcpStream) -> Result<usize, Errno> {
        let gathered = &self.gathered[self.sent_bytes..];
        match &self.body {
            Some(Body { data, offset, bytes }) => data.send(stream, gathered, *offset, *bytes),
            None => send(stream, gathered, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
        }
    }

    fn note_sent(&mut self, bytes: usize) {
        let of_gathered = bytes.min(self.gathered.len() - self.sent_bytes);
        self.sent_bytes += of_gathered;
        if let Some(body) = &mut self.body {
            body.offset += bytes - of_gathered;
            body.bytes -= bytes - of_gathered;
            self.body.take_if(|body| body.bytes == 0);
        }
    }

    /// Prepares the next answers: short ones together, up to the first part that is sent from its share.
    fn gather(&mut self, region: &Region) {
        self.gathered.clear();
        self.sent_bytes = 0;
        while self.body.is_none() && self.gathered.len() < GATHERED_BYTES_MAX {
            let Some(question) = self.questions.pop_front() else { return };
            self.asked_bytes -= question.answer_bytes();
            self.body = answer(question, region, &mut self.gathered);
        }
    }
}

/// Adds the answer to a query, or its head alone, if the bytes that it returns follow.
fn answer(question: Question, region: &Region, into: &mut Vec<u8>) -> Option<Body> {
    match question {
        Question::Part { share, offset, bytes } => {
            let share = region.shares().get(share).filter(|share| share.is_committed(offset, bytes));
            let Some(share) = share else {
                into.extend((IS_NOT_COMMITTED << NUMBER_SHIFT).to_le_bytes());
                return None;
            };
            into.extend((IS_THERE << NUMBER_SHIFT | bytes as u64).to_le_bytes());
            if bytes >= DIRECT_BYTES {
                return Some(Body { data: Arc::clone(share.data()), offset, bytes });
            }
            let start = into.len();
            into.resize(start + bytes, 0);
            // Inside, and whole words: checked when the query came.
            let read = share.data().read(offset, &mut into[start..]);
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
    None
}

#[cfg(test)]
mod tests {
    use super::super::frame::PART_BYTES;
    use super::*;
    use crate::ShareId;
    use std::io::Read;
    use std::net::TcpListener;

    const SHARE: ShareId = ShareId(0);

    /// A machine with one share of this many parts, whose words are their numbers.
    fn region_of(parts: usize) -> Region {
        let region = Region::anonymous(64).unwrap();
        region.shares().open(SHARE, parts * PART_BYTES, |_| Ok(())).unwrap();
        let open = region.shares().get(SHARE).unwrap();
        open.commit(0..parts * PART_BYTES, |_| Ok(())).unwrap();
        open.words().iter().enumerate().for_each(|(at, word)| word.store(at as u64, Ordering::Relaxed));
        region
    }

    fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, reader)
    }

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

        const UNITS: usize = 16;
        let region = region_of(UNITS);
        let (stream, mut reader) = sockets();
        set_socket_send_buffer_size(&stream, 8192).unwrap();
        set_socket_recv_buffer_size(&reader, 8192).unwrap();
        let mut serving = Serving::default();
        for unit in 0..UNITS {
            serving.ask(Question::Part { share: SHARE, offset: unit * PART_BYTES, bytes: PART_BYTES }).unwrap();
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

    /// Short answers, long ones and refusals, in the order of their queries.
    #[test]
    fn answers_of_all_kinds_follow_each_other() {
        let region = region_of(2);
        let (stream, mut reader) = sockets();
        let asked = [8, DIRECT_BYTES, 16, 24, PART_BYTES, DIRECT_BYTES - 8, 0, 8];
        let mut serving = Serving::default();
        for (number, bytes) in asked.into_iter().enumerate() {
            // A share that is not open has no committed bytes.
            let share = if bytes == 0 { ShareId(1) } else { SHARE };
            serving.ask(Question::Part { share, offset: 8 * number, bytes: bytes.max(8) }).unwrap();
        }
        assert!(serving.send(&stream, &region).unwrap(), "the socket has room for all");
        drop(stream);
        for (number, bytes) in asked.into_iter().enumerate() {
            let mut answer = vec![0; WORD_BYTES + bytes];
            reader.read_exact(&mut answer).unwrap();
            let words: Vec<u64> = answer.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let status = if bytes == 0 { IS_NOT_COMMITTED } else { IS_THERE };
            assert_eq!(words[0], status << NUMBER_SHIFT | bytes as u64, "answer {number}");
            assert!(words[1..].iter().copied().eq((number as u64..).take(bytes / WORD_BYTES)), "answer {number}");
        }
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "nothing follows");
    }

    #[test]
    fn others_have_their_turn_amid_long_answers() {
        let parts = 2 * SENT_BYTES_MAX / PART_BYTES;
        let region = region_of(parts);
        let (stream, mut reader) = sockets();
        let mut serving = Serving::default();
        for part in 0..parts {
            serving.ask(Question::Part { share: SHARE, offset: part * PART_BYTES, bytes: PART_BYTES }).unwrap();
        }
        std::thread::scope(|scope| {
            let reads = scope.spawn(move || {
                reader.read_exact(&mut vec![0; parts * (WORD_BYTES + PART_BYTES)]).unwrap();
            });
            assert!(!serving.send(&stream, &region).unwrap(), "all at once");
            assert!(serving.questions.len() >= parts / 2 - 1, "{} are left", serving.questions.len());
            while !serving.send(&stream, &region).unwrap() {
                std::thread::yield_now();
            }
            reads.join().unwrap();
        });
    }
}
