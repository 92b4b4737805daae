//! Sending end of one connection: the writes of one worker to one machine. Not here: making the connection
//! (`mod.rs`), the receiving end (`poller.rs`, `frame.rs`).
//!
//! Writes and wakes gather in a buffer of [`HELD_BYTES_MAX`] bytes, which goes out with one system call when
//! the worker flushes, or before it would overflow; a large write goes out at once, together with the held
//! frames, straight from its source. That is all the memory a connection takes, even with a slow receiver.
//!
//! Reads of shares go out like writes; their answers come back by the same socket, and are taken in here,
//! when a read id is taken (`reads.rs`).
//!
//! When the socket is full the worker waits until it has room: the other side's I/O thread reads regardless
//! of its workers, so the wait ends, or the peer turns out to be gone. Writes to a peer that is gone vanish:
//! `Fabric::lost` tells, not an error here.

use super::breaks::Break;
use super::frame::{self, FRAME_BYTES_MAX, Question};
use super::outgoing::Line;
use super::reads::{Expected, Reads};
use super::shared::TcpShared;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::fabric::Connection;
use crate::ids::MachineId;
use crate::memory::{self, WORD_BYTES};
use crate::share::{CachedShares, ReadId, ShareId, ShareState, Verdict};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, sendmsg};
use std::io::{IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most bytes that are held back.
const HELD_BYTES_MAX: usize = 128 << 10;
/// Writes of at least this length are not copied into the buffer.
const DIRECT_BYTES: usize = 32 << 10;
/// Interval at which a worker that waits for room checks whether the peer is gone.
const LIVENESS_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Size of the buffer for answers.
const ANSWER_BYTES: usize = 64 << 10;
/// Bytes of answers received before the worker's other fibers get their turn, and before further queries are sent.
const RECEIVED_BYTES_MAX: usize = 1 << 20;
/// Time that a dropped connection waits for answers that are no longer needed: left in the socket, they would
/// make its end look like a death.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct TcpConnection {
    peer: MachineId,
    region_bytes: usize,
    /// `None` when the peer is gone.
    line: Option<Arc<Line>>,
    held: Vec<u8>,
    /// Position in `held` of the last frame, if it is a wake for this park word: one is enough.
    last_wake: Option<usize>,
    shared: Arc<TcpShared>,
    /// State of the peer's shares, once one was used.
    shares: Option<Box<PeerShares>>,
    owed: Owed,
    /// Whether another worker goes on with the connection when this one is dropped.
    pub(super) is_passed_on: bool,
}

/// Start of the time in which answers are owed and none has come.
#[derive(Debug, Default)]
struct Owed {
    since: Option<Instant>,
    looked_at: Option<Instant>,
}

impl Owed {
    /// Called when nothing has come. Returns whether that has lasted for `limit`. A caller that has not
    /// looked for a quarter of `limit` has not waited either: the time starts anew.
    fn is_overdue(&mut self, now: Instant, limit: Duration) -> bool {
        let has_looked = self.looked_at.is_some_and(|at| now.duration_since(at) < limit / 4);
        self.looked_at = Some(now);
        let since = *self.since.insert(self.since.filter(|_| has_looked).unwrap_or(now));
        now.duration_since(since) >= limit
    }
}

/// A read that is being taken, and its buffer.
type Taken<'a> = (ReadId, &'a mut [u8]);

/// See [`TcpConnection`].
struct PeerShares {
    cached: CachedShares,
    reads: Reads,
    buffer: Box<[u8]>,
}

impl Default for PeerShares {
    fn default() -> PeerShares {
        let buffer = vec![0; ANSWER_BYTES].into_boxed_slice();
        PeerShares { cached: CachedShares::default(), reads: Reads::default(), buffer }
    }
}

impl TcpConnection {
    /// Makes one from an authenticated connection; or without one, for a peer that is gone.
    pub(super) fn new(
        peer: MachineId,
        region_bytes: usize,
        line: Option<Arc<Line>>,
        shared: Arc<TcpShared>,
    ) -> TcpConnection {
        TcpConnection {
            peer,
            region_bytes,
            line,
            held: Vec::new(),
            last_wake: None,
            shared,
            shares: None,
            owed: Owed::default(),
            is_passed_on: false,
        }
    }

    /// Makes room in the buffer for a frame of `bytes` bytes, fewer than the buffer's limit.
    fn make_room(&mut self, bytes: usize) -> Result<(), Error> {
        if self.held.len() + bytes > HELD_BYTES_MAX {
            self.flush()?;
        }
        let (needed, capacity) = (self.held.len() + bytes, self.held.capacity());
        if needed > capacity {
            // Doubled, but never past the limit.
            let target = (2 * capacity).clamp(needed, HELD_BYTES_MAX);
            self.held.reserve_exact(target - self.held.len());
        }
        Ok(())
    }

    /// Holds back a frame that is shorter than the buffer's limit.
    fn hold(&mut self, head: &[u8], source: &[u8]) -> Result<(), Error> {
        self.last_wake = None;
        self.make_room(head.len() + source.len())?;
        self.held.extend_from_slice(head);
        self.held.extend_from_slice(source);
        Ok(())
    }

    /// Sends the held frames, then one frame straight from `source`.
    fn send_directly(&mut self, head: &[u8], source: &[u8]) -> Result<(), Error> {
        let held = std::mem::take(&mut self.held);
        let sent = self.send(&mut [IoSlice::new(&held), IoSlice::new(head), IoSlice::new(source)]);
        self.held = held;
        self.held.clear();
        sent
    }

    /// Sends all of `parts`, in order.
    fn send(&mut self, parts: &mut [IoSlice<'_>]) -> Result<(), Error> {
        let Some(line) = &self.line else { return Ok(()) };
        let sent = match line.begin() {
            [] => self.send_all(parts),
            first => self.send_all(&mut [IoSlice::new(first)]).and_then(|()| self.send_all(parts)),
        };
        if let Some(line) = &self.line {
            line.end();
        }
        sent
    }

    fn send_all(&mut self, mut parts: &mut [IoSlice<'_>]) -> Result<(), Error> {
        // Skips empty ones at the front.
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let Some(Line { stream, .. }) = self.line.as_deref() else {
                return Ok(());
            };
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(stream, parts, &mut SendAncillaryBuffer::default(), flags) {
                Ok(bytes) => IoSlice::advance_slices(&mut parts, bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait_for_room()?,
                Err(error @ (Errno::BADF | Errno::FAULT | Errno::INVAL | Errno::NOMEM | Errno::NOBUFS)) => {
                    return Err(Error::system(format!("sending to {}", self.peer))(error));
                }
                // All other errors mean that the peer cannot be reached.
                Err(error) => self.give_up(error),
            }
        }
        Ok(())
    }

    /// Waits, with a full socket, until it has room or the peer is gone.
    #[cold]
    fn wait_for_room(&mut self) -> Result<(), Error> {
        while let Some(Line { stream, .. }) = self.line.as_deref() {
            if self.shared.is_gone(self.peer) {
                self.line = None;
                return Ok(());
            }
            match poll(&mut [PollFd::new(stream, PollFlags::OUT)], Some(&LIVENESS_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(Error::system(format!("waiting for room to {}", self.peer))(error)),
            }
        }
        Ok(())
    }

    /// Gives up a broken connection. The I/O thread finds out whether the peer has died or left.
    #[cold]
    fn give_up(&mut self, error: Errno) {
        self.give_up_for(Break::by(error));
    }

    #[cold]
    fn give_up_for(&mut self, how: Break) {
        self.shared.suspect(self.peer, how);
        self.line = None;
    }

    /// Runs `body` with the state of the peer's shares.
    fn with_shares<R>(&mut self, body: impl FnOnce(&mut TcpConnection, &mut PeerShares) -> R) -> R {
        let mut shares = self.shares.take().unwrap_or_default();
        let result = body(self, &mut shares);
        self.shares = Some(shares);
        result
    }

    /// Reads words of a commit map from the peer, and waits for the answer of its I/O thread; `None` if it is gone.
    fn ask(&mut self, reads: &mut Reads, buffer: &mut [u8], question: Question) -> Result<Option<ShareState>, Error> {
        if self.line.is_none() {
            return Ok(None);
        }
        let Question::Map { count, .. } = question else { return Ok(None) };
        self.hold(&question.to_bytes(), &[])?;
        reads.ask_map(count);
        self.flush()?;
        while self.line.is_some() {
            self.receive(reads, buffer, None);
            if let Some(state) = reads.take_state() {
                return Ok(Some(state));
            }
            self.wait_for_answers()?;
        }
        Ok(None)
    }

    /// Takes in the answers that the socket has, up to a limit.
    fn receive(&mut self, reads: &mut Reads, buffer: &mut [u8], mut taken: Option<Taken<'_>>) {
        let mut received_bytes = 0;
        while let Some(Line { stream, .. }) = self.line.as_deref().filter(|_| reads.is_waiting())
            && received_bytes < RECEIVED_BYTES_MAX
        {
            let expected = taken.as_ref().and_then(|(read_id, _)| reads.expected_of(*read_id));
            match receive_once(stream, buffer, expected, &mut taken) {
                Ok((0, 0)) => {
                    self.give_up_for(Break::Explained("it closed a connection on which it owed answers".to_owned()))
                }
                Ok((direct, bytes)) => {
                    self.owed = Owed::default();
                    received_bytes += direct + bytes;
                    if reads.take_in_after(direct, &buffer[..bytes]).is_err() {
                        let cause = "it sent answers that no machine of this program sends";
                        self.give_up_for(Break::Explained(cause.to_owned()));
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if self.owed.is_overdue(Instant::now(), self.shared.silence) {
                        self.give_up_for(Break::Silent);
                    }
                    return;
                }
                Err(error) => self.give_up(error),
            }
        }
    }

    /// Sleeps until there is something to take in, or for a moment; finds out whether the peer is gone.
    #[cold]
    fn wait_for_answers(&mut self) -> Result<(), Error> {
        let Some(Line { stream, .. }) = self.line.as_deref() else { return Ok(()) };
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&LIVENESS_INTERVAL)) {
            Ok(0) if self.shared.is_gone(self.peer) => self.line = None,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::system(format!("waiting for answers of {}", self.peer))(error)),
        }
        Ok(())
    }

    /// Sends the queries that may go out.
    fn send_questions(&mut self, reads: &mut Reads) -> Result<(), Error> {
        if self.line.is_some() {
            while let Some(question) = reads.next_question() {
                self.hold(&question.to_bytes(), &[])?;
            }
        }
        Ok(())
    }

    /// Takes in answers, and sends the queries that have waited for them.
    fn go_on_reading(&mut self, shares: &mut PeerShares, taken: Taken<'_>) -> Result<(), Error> {
        self.flush()?;
        self.receive(&mut shares.reads, &mut shares.buffer, Some(taken));
        self.send_questions(&mut shares.reads)?;
        self.flush()
    }
}

/// Receives once: into the taker's buffer if its bytes come next, else into `buffer`. Returns the number of bytes in
/// each.
fn receive_once(
    stream: &TcpStream,
    buffer: &mut [u8],
    expected: Option<Expected>,
    taken: &mut Option<Taken<'_>>,
) -> Result<(usize, usize), Errno> {
    match (expected, taken) {
        (Some(Expected::Body(range)), Some((_, into))) => {
            // With the head of the next answer, so that its bytes may be received like these.
            let (room, next) = (&mut into[range], &mut buffer[..WORD_BYTES]);
            let room_bytes = room.len();
            let parts = &mut [IoSliceMut::new(room), IoSliceMut::new(next)];
            let bytes = recvmsg(stream, parts, &mut RecvAncillaryBuffer::default(), RecvFlags::DONTWAIT)?.bytes;
            let direct = bytes.min(room_bytes);
            Ok((direct, bytes - direct))
        }
        (Some(Expected::Head(bytes)), _) => {
            recv(stream, &mut buffer[..bytes], RecvFlags::DONTWAIT).map(|(_, bytes)| (0, bytes))
        }
        _ => recv(stream, buffer, RecvFlags::DONTWAIT).map(|(_, bytes)| (0, bytes)),
    }
}

#[cfg(test)]
impl TcpConnection {
    /// Returns the memory that the held frames take.
    pub(super) fn held_capacity(&self) -> usize {
        self.held.capacity()
    }

    /// Returns false once the peer is known to be gone.
    pub(super) fn is_connected(&self) -> bool {
        self.line.is_some()
    }
}

impl Connection for TcpConnection {
    fn peer(&self) -> MachineId {
        self.peer
    }

    fn write(&mut self, source: &[u8], remote_offset: usize) -> Result<(), Error> {
        memory::check_access(self.region_bytes, remote_offset, source.len(), WORD_BYTES)?;
        if self.line.is_none() {
            return Ok(());
        }
        if source.len() < DIRECT_BYTES {
            return self.hold(&frame::head(remote_offset, source.len()), source);
        }
        self.last_wake = None;
        let pieces = source.chunks(FRAME_BYTES_MAX).enumerate();
        pieces
            .map(|(number, piece)| (remote_offset + number * FRAME_BYTES_MAX, piece))
            .try_for_each(|(offset, piece)| self.send_directly(&frame::head(offset, piece.len()), piece))
    }

    fn wake(&mut self, park_offset: usize) -> Result<(), Error> {
        memory::check_park_word(self.region_bytes, park_offset)?;
        if self.line.is_none() || self.last_wake == Some(park_offset) {
            return Ok(());
        }
        self.make_room(frame::HEAD_BYTES)?;
        self.held.extend_from_slice(&frame::head(park_offset, 0));
        self.last_wake = Some(park_offset);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.held.is_empty() {
            return Ok(());
        }
        self.last_wake = None;
        let held = std::mem::take(&mut self.held);
        let sent = self.send(&mut [IoSlice::new(&held)]);
        self.held = held;
        self.held.clear();
        sent
    }

    fn write_share(&mut self, share: ShareId, offset: usize, source: &[u8]) -> Result<(), Error> {
        let verdict = self.with_shares(|connection, PeerShares { cached, reads, buffer }| {
            cached.require_committed((connection.peer, share), (offset, source.len()), |first, count| {
                connection.ask(reads, buffer, Question::Map { share, first, count })
            })
        });
        if verdict? == Verdict::Gone || self.line.is_none() {
            return Ok(());
        }
        let head = frame::share_write_head(share, offset, source.len());
        match source.len() < DIRECT_BYTES {
            true => self.hold(&head, source),
            false => {
                self.last_wake = None;
                self.send_directly(&head, source)
            }
        }
    }

    fn read_share(&mut self, share: ShareId, offset: usize, bytes: usize) -> Result<ReadId, Error> {
        self.with_shares(|connection, PeerShares { cached, reads, buffer }| {
            // Nothing comes from a peer that is gone, which `take` reports.
            let _ = cached.require_inside((connection.peer, share), (offset, bytes), |first, count| {
                connection.ask(reads, buffer, Question::Map { share, first, count })
            })?;
            let read_id = reads.begin(share, offset, bytes);
            connection.send_questions(reads)?;
            Ok(read_id)
        })
    }

    fn take(&mut self, read_id: ReadId, into: &mut [u8]) -> Result<bool, Error> {
        self.with_shares(|connection, shares| {
            if shares.reads.pending.is_waiting(read_id)? {
                shares.reads.pending.hand_over(read_id, into)?;
                connection.go_on_reading(shares, (read_id, into))?;
            }
            let is_gone = || connection.line.is_none() || connection.shared.is_gone(connection.peer);
            shares.reads.pending.take(read_id, into, connection.peer, is_gone)
        })
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        // Held frames count as written: they arrive as if the connection lived on.
        let is_flushed = self.flush().is_ok();
        let Some(mut shares) = self.shares.take() else {
            // No answers are under way, so another worker may go on with it.
            let line = self.line.take().filter(|_| is_flushed && self.is_passed_on);
            return line.into_iter().for_each(|line| self.shared.outgoing.keep_spare(self.peer, line));
        };
        let PeerShares { reads, buffer, .. } = &mut *shares;
        let deadline = Deadline::after(DRAIN_TIMEOUT);
        while self.line.is_some() && reads.is_waiting() && !deadline.left().is_zero() {
            self.receive(reads, buffer, None);
            if reads.is_waiting() && self.wait_for_answers().is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_overdue_for_who_has_looked_for_them() {
        let (start, limit) = (Instant::now(), Duration::from_secs(4));
        let at = |quarters: u32| start + quarters * Duration::from_millis(900);
        let mut owed = Owed::default();
        assert!((0..5).all(|quarter| !owed.is_overdue(at(quarter), limit)));
        assert!(owed.is_overdue(at(5), limit));
        let mut owed = Owed::default();
        assert!(!owed.is_overdue(at(0), limit));
        assert!(!owed.is_overdue(at(50), limit), "it has computed meanwhile");
        assert!(!owed.is_overdue(at(51), limit));
    }
}
