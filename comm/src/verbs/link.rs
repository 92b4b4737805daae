//! Link: one lane's path to one peer, over one queue pair.
//!
//! Here: requests that are staged, posted and in flight, and the wake messages that the peer may need. Not
//! here: polling completions, which come for all links of a lane at once (`lane`).
//!
//! A write is copied into the staging ring, which is registered, and becomes a work request; requests are
//! chained and posted in one call, at `flush` at the latest. Only some requests report their completion
//! ("signed"); it frees all of the ring and of the queue up to it, since requests of a queue pair complete in
//! order.
//!
//! Wake messages. Only the peer can wake its threads, so a sleeper is woken by a message whose completion the
//! peer's I/O thread waits for. Awake threads need no message: a lane tells its peers, by a write to their
//! boards, that it sleeps, and waits for that write's completion before it looks for work for the last time.
//! This side looks at the board when it flushes, and once more at the completion of its writes. If the
//! sleeper's last look missed the write, then the write was placed after that look, so after the sleeper's
//! word was on the board: the second look finds it. A completion means that the other device has the bytes,
//! which is a moment before its processor sees them; `look_again`, twice a second, makes up for a look in
//! that moment, and for a worker that computes for long and does not poll.
//!
//! Where threads share a link, one may announce its sleep while another's looks are due: so the looks that are due are
//! made at every completion, until that of the last of their writes.

use super::board::{Board, Sleep};
use super::endpoint::Remote;
use super::peer_shares::PeerShares;
use super::raw::{QueuePair, WorkRequests};
use crate::error::Error;
use crate::ids::MachineId;
use crate::memory::WORD_BYTES;
use std::collections::VecDeque;
use std::sync::Arc;

/// Counters since the fabric was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of `Connection::write`.
    pub writes: u64,
    /// Bytes written by them.
    pub bytes: u64,
    /// Work requests, wake messages and the fabric's own included.
    pub requests: u64,
    /// Chains posted to the device.
    pub posts: u64,
    /// Requests that reported their completion.
    pub signed: u64,
    /// Wake messages sent to peers that slept.
    pub wake_messages: u64,
    /// Wake messages that only the look twice a second found missing: each has cost up to half a second.
    pub late_wake_messages: u64,
    /// Wake messages received.
    pub wake_messages_received: u64,
    /// Bytes of registered memory.
    pub registered_bytes: u64,
    /// Queue pairs.
    pub queue_pairs: u64,
}

impl Counts {
    /// Adds the sends of another link or lane.
    pub(super) fn add_sends(&mut self, other: &Counts) {
        self.writes += other.writes;
        self.bytes += other.bytes;
        self.requests += other.requests;
        self.posts += other.posts;
        self.signed += other.signed;
        self.wake_messages += other.wake_messages;
        self.late_wake_messages += other.late_wake_messages;
        self.registered_bytes += other.registered_bytes;
    }
}

/// Data of the link's other end.
#[derive(Debug, Clone, Copy)]
pub(super) struct RemoteEnd {
    pub(super) peer: MachineId,
    pub(super) region: Remote,
    pub(super) region_bytes: usize,
    /// This machine's part of the peer's board.
    pub(super) board: Remote,
    /// Start of the peer's board: its directory of shares.
    pub(super) directory: Remote,
    /// Number of lanes of the peer.
    pub(super) lanes: usize,
    /// Whether the flag must follow the rest in a separate write.
    pub(super) has_second_write: bool,
}

/// Bounds of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) queue_depth: u64,
    pub(super) signal_every: u64,
    pub(super) message_bytes: usize,
}

/// Result of a look for sleepers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WakeMessages {
    Added,
    None,
    /// A sleeper must be woken, once there is room for the message.
    NoRoom,
}

/// A signed request in flight.
struct Mark {
    request: u64,
    staged: u64,
}

pub(super) struct Link {
    pub(super) remote: RemoteEnd,
    /// Queue pair. Stands before the memory that it reads and writes (`work_requests`, `shares`): fields are dropped in
    /// this order.
    queue: Arc<QueuePair>,
    work_requests: WorkRequests,
    board: Arc<Board>,
    bounds: Bounds,
    staging_bytes: u64,
    /// Total of bytes staged, padding included, and of those free again.
    staged: u64,
    freed: u64,
    /// Total of requests written (those in `work_requests` included), and completed.
    written: u64,
    completed: u64,
    /// Requests and bytes at the last signed request.
    signed: (u64, u64),
    marks: VecDeque<Mark>,
    /// Park words to wake at the next flush.
    wakes: Vec<usize>,
    /// Park words to check again at completions, up to that of request `checked_at`, and those to check after a later
    /// request.
    checks: Vec<usize>,
    checked_at: Option<u64>,
    later: Vec<usize>,
    /// All park words woken since the last `look_again`.
    recent: Vec<usize>,
    /// Last sleep for which each of the peer's lanes was woken.
    woken: Vec<Sleep>,
    /// State of the peer's shares, once one was used.
    shares: Option<Box<PeerShares>>,
    pub(super) is_dead: bool,
    pub(super) counts: Counts,
}

fn note(offsets: &mut Vec<usize>, offset: usize) {
    if !offsets.contains(&offset) {
        offsets.push(offset);
    }
}

impl Link {
    pub(super) fn new(
        remote: RemoteEnd,
        queue: Arc<QueuePair>,
        work_requests: WorkRequests,
        board: Arc<Board>,
        bounds: Bounds,
    ) -> Link {
        let staging_bytes = work_requests.memory().region().bytes() as u64;
        let room = remote.lanes + 1;
        Link {
            remote,
            queue,
            work_requests,
            board,
            bounds,
            staging_bytes,
            staged: 0,
            freed: 0,
            written: 0,
            completed: 0,
            signed: (0, 0),
            marks: VecDeque::with_capacity(bounds.queue_depth as usize + 1),
            wakes: Vec::with_capacity(room),
            checks: Vec::with_capacity(room),
            checked_at: None,
            later: Vec::with_capacity(room),
            recent: Vec::with_capacity(room),
            woken: vec![Sleep::default(); remote.lanes],
            shares: None,
            is_dead: false,
            counts: Counts::default(),
        }
    }

    /// Returns the longest piece of a write: a quarter of the ring, so that one is copied while others travel.
    pub(super) fn piece_bytes(&self) -> usize {
        ((self.staging_bytes / 4) as usize).min(self.bounds.message_bytes) / WORD_BYTES * WORD_BYTES
    }

    /// Returns whether all requests are completed.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_dead || (self.completed == self.written && self.wakes.is_empty() && self.later.is_empty())
    }

    /// Returns whether completions are to come, or sleepers are still to be looked for.
    pub(super) fn is_busy(&self) -> bool {
        !self.is_dead && (!self.marks.is_empty() || !self.later.is_empty())
    }

    pub(super) fn is_done(&self, request: u64) -> bool {
        self.is_dead || self.completed >= request
    }

    /// Adds a write of `source`, no longer than a piece. False: there is no room now; post, poll and try again.
    pub(super) fn try_write(&mut self, source: &[u8], to: Remote) -> Result<bool, Error> {
        let bytes = source.len() as u64;
        let start = self.staged % self.staging_bytes;
        let padding = if start + bytes > self.staging_bytes { self.staging_bytes - start } else { 0 };
        let is_full = self.staged + padding + bytes - self.freed > self.staging_bytes;
        if is_full || !self.has_room() {
            return Ok(false);
        }
        self.staged += padding;
        let offset = (self.staged % self.staging_bytes) as usize;
        self.work_requests.memory().region().publish(offset, source)?;
        self.work_requests.write(offset, source.len(), to.address, to.key)?;
        self.staged += bytes;
        self.written += 1;
        Ok(true)
    }

    /// Returns the state of the peer's shares.
    pub(super) fn shares(&mut self) -> Result<&mut PeerShares, Error> {
        match &mut self.shares {
            Some(shares) => Ok(shares),
            none => {
                let shares = PeerShares::new(self.work_requests.memory().domain())?;
                self.counts.registered_bytes += shares.ring().region().bytes() as u64;
                Ok(none.insert(Box::new(shares)))
            }
        }
    }

    /// Adds waiting reads, as many as there is room for.
    pub(super) fn add_reads(&mut self) -> Result<(), Error> {
        while self.has_room() && !self.is_dead {
            let Some(shares) = &mut self.shares else { return Ok(()) };
            let Some((from, bytes, offset)) = shares.next() else { return Ok(()) };
            self.work_requests.read(shares.ring(), offset, bytes, from.address, from.key)?;
            self.written += 1;
            shares.posted(self.written);
        }
        Ok(())
    }

    /// Returns whether one more request fits into the chain and, with it, into the queue.
    fn has_room(&self) -> bool {
        !self.work_requests.is_full() && self.written - self.completed < self.bounds.queue_depth
    }

    pub(super) fn wake(&mut self, park_offset: usize) {
        note(&mut self.wakes, park_offset);
        note(&mut self.recent, park_offset);
    }

    /// Adds a wake message for each lane of the peer that sleeps at `park_offset` and has not been sent one
    /// for this sleep yet.
    fn add_wake_messages(&mut self, park_offset: usize) -> WakeMessages {
        let mut found = WakeMessages::None;
        for lane in 0..self.remote.lanes {
            let sleep = self.board.sleep(self.remote.peer, lane);
            if !sleep.is_asleep_at(park_offset) || self.woken[lane] == sleep {
                continue;
            }
            if !self.has_room() {
                return WakeMessages::NoRoom;
            }
            self.woken[lane] = sleep;
            self.work_requests.wake_message(sleep.place());
            self.written += 1;
            self.counts.wake_messages += 1;
            found = WakeMessages::Added;
        }
        found
    }

    /// Turns wakes into wake messages where the peer sleeps, and into later looks where it does not.
    fn settle_wakes(&mut self) {
        for index in 0..self.wakes.len() {
            let offset = self.wakes[index];
            if self.add_wake_messages(offset) != WakeMessages::Added {
                note(&mut self.later, offset);
            }
        }
        self.wakes.clear();
    }

    /// Posts the chain. Asks for a completion where one is due: for a look for sleepers, or because a part of
    /// the queue or ring has none.
    ///
    /// # Errors
    /// The queue pair takes no more requests.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        if self.is_dead {
            return Ok(());
        }
        self.settle_wakes();
        let is_check_due = !self.later.is_empty() && self.checked_at.is_none();
        if is_check_due && self.work_requests.len() == 0 && self.written > self.completed {
            // The writes before the wake are posted already: a signed request behind them reports when they are done.
            self.try_write(&[1; WORD_BYTES], self.spare())?;
        }
        if is_check_due && self.written == self.completed {
            // Nothing is in flight: wakes for completed writes are checked at once.
            std::mem::swap(&mut self.checks, &mut self.later);
            self.check();
            self.checks.clear();
        } else if is_check_due && self.work_requests.len() > 0 {
            std::mem::swap(&mut self.checks, &mut self.later);
            self.checked_at = Some(self.written);
            return self.post(true);
        }
        let (request, staged) = self.signed;
        let bytes = self.staged - staged;
        let has_reads = self.shares.as_ref().and_then(|shares| shares.last_posted()).is_some_and(|read| read > request);
        let is_due = has_reads || self.written - request >= self.bounds.signal_every || bytes >= self.staging_bytes / 4;
        self.post(is_due)
    }

    /// Returns an unused word on the peer's board: the second word behind "left".
    fn spare(&self) -> Remote {
        self.remote.board.at(super::board::LEFT + 2 * WORD_BYTES)
    }

    /// Makes sure that a completion will come, for callers that wait for room or for all requests.
    pub(super) fn post_signed(&mut self) -> Result<(), Error> {
        if self.is_dead || (self.work_requests.len() == 0 && !self.marks.is_empty()) {
            return Ok(());
        }
        if self.work_requests.len() == 0
            && self.written > self.completed
            && !self.try_write(&[1; WORD_BYTES], self.spare())?
        {
            return Err(Error::verbs(format!("the queue to {} is full, and nothing is signed", self.remote.peer)));
        }
        self.post(true)
    }

    fn post(&mut self, is_signed: bool) -> Result<(), Error> {
        if self.work_requests.len() == 0 {
            return Ok(());
        }
        if is_signed {
            self.work_requests.sign_last(self.written);
            self.marks.push_back(Mark { request: self.written, staged: self.staged });
            self.signed = (self.written, self.staged);
            self.counts.signed += 1;
        }
        self.counts.posts += 1;
        self.counts.requests += self.work_requests.len() as u64;
        self.work_requests.post(&self.queue)
    }

    /// Takes the completion of request `request`: frees its room, and makes the looks that waited for it.
    pub(super) fn complete(&mut self, request: u64) {
        while let Some(mark) = self.marks.pop_front_if(|mark| mark.request <= request) {
            self.completed = mark.request;
            self.freed = mark.staged;
        }
        if let Some(shares) = &mut self.shares {
            shares.complete(self.completed);
        }
        if let Some(at) = self.checked_at {
            self.check();
            if at <= request {
                self.checked_at = None;
                self.checks.clear();
            }
        }
    }

    /// Looks once more for the park words in `checks`.
    fn check(&mut self) {
        for index in 0..self.checks.len() {
            let offset = self.checks[index];
            if self.add_wake_messages(offset) == WakeMessages::NoRoom {
                note(&mut self.later, offset);
            }
        }
    }

    /// Returns whether requests wait to be posted.
    pub(super) fn has_chain(&self) -> bool {
        self.work_requests.len() > 0
    }

    /// Returns whether there are wakes without a pending look.
    pub(super) fn has_later(&self) -> bool {
        !self.later.is_empty() && self.checked_at.is_none()
    }

    /// Looks once more after all recent wakes; see the top of this file.
    pub(super) fn look_again(&mut self) -> Result<(), Error> {
        let before = self.counts.wake_messages;
        for index in 0..self.recent.len() {
            let offset = self.recent[index];
            if self.add_wake_messages(offset) == WakeMessages::NoRoom {
                note(&mut self.later, offset);
            }
        }
        self.recent.clear();
        self.counts.late_wake_messages += self.counts.wake_messages - before;
        self.flush()
    }

    /// Posts the chain, the announcement of a sleep last, and requests its completion: at that point all
    /// wakes so far are checked once more. Returns the request to wait for.
    pub(super) fn post_announcement(&mut self) -> Result<u64, Error> {
        self.settle_wakes();
        self.later.drain(..).for_each(|offset| note(&mut self.checks, offset));
        self.checked_at = Some(self.written);
        self.post(true)?;
        Ok(self.written)
    }
}
