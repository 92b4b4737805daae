//! Lane: all traffic of one thread of this machine (a worker, or the thread that starts it), with all peers; or of all
//! threads with one peer (`lanes`). Its links share one completion queue, which its threads poll.
//!
//! Here: splitting writes into pieces, waiting for room, taking completions, telling peers who sleeps.
//! Not here: the counters of a link (`link`).
//!
//! A lock protects a lane: its own thread takes it, or all do, and twice a second the I/O thread if it is free.

use super::board::{Sleep, lane_word};
use super::endpoint::Remote;
use super::lanes::Polled;
use super::link::{Counts, Link};
use super::liveness::{VerbsLiveness, failure};
use super::raw::{self, Completion, CompletionQueue};
use crate::error::Error;
use crate::ids::MachineId;
use crate::memory::{self, WORD_BYTES};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The low bits of a completion's id number the request, the peer stands above them.
const PEER_SHIFT: u32 = 48;
/// Unsuccessful looks before a waiting thread yields.
const LOOKS: u32 = 64;

/// Returns the tag of the requests to a peer.
pub(super) fn tag_of(peer: MachineId) -> u64 {
    u64::from(peer.0) << PEER_SHIFT
}

pub(super) struct Lane {
    sends: Arc<CompletionQueue>,
    /// Links by machine, from machine `first` on.
    links: Vec<Option<Link>>,
    first: usize,
    liveness: Arc<VerbsLiveness>,
    /// Links that have wakes to look after, found at this poll and at the one before.
    due: Vec<usize>,
    next_due: Vec<usize>,
    /// Request with the announcement of a thread's last sleep, by thread, for each link.
    announced: BTreeMap<usize, Vec<u64>>,
}

impl Lane {
    pub(super) fn new(
        sends: Arc<CompletionQueue>,
        first: MachineId,
        links: Vec<Option<Link>>,
        liveness: Arc<VerbsLiveness>,
    ) -> Lane {
        let room = links.len();
        let (due, next_due) = (Vec::with_capacity(room), Vec::with_capacity(room));
        Lane { sends, links, first: usize::from(first.0), liveness, due, next_due, announced: BTreeMap::new() }
    }

    pub(super) fn link(&mut self, peer: MachineId) -> Option<&mut Link> {
        let index = usize::from(peer.0).checked_sub(self.first)?;
        self.links.get_mut(index)?.as_mut()
    }

    fn peer(&self, index: usize) -> MachineId {
        MachineId((self.first + index) as u16)
    }

    /// See `Connection::write`. The caller has checked that there is such a peer.
    pub(super) fn write(&mut self, peer: MachineId, source: &[u8], offset: usize) -> Result<(), Error> {
        let Some(link) = self.link(peer) else { return Ok(()) };
        let region_bytes = link.remote.region_bytes;
        memory::check_access(region_bytes, offset, source.len(), WORD_BYTES)?;
        if link.is_dead {
            return Ok(());
        }
        link.counts.writes += 1;
        link.counts.bytes += source.len() as u64;
        let (piece_bytes, remote) = (link.piece_bytes(), link.remote);
        let split = if remote.has_second_write { source.len() - WORD_BYTES } else { source.len() };
        let (body, flag) = source.split_at(split);
        let mut at = offset;
        for piece in body.chunks(piece_bytes) {
            self.push(peer, piece, remote.region.at(at))?;
            at += piece.len();
        }
        if !flag.is_empty() {
            self.push(peer, flag, remote.region.at(at))?;
        }
        Ok(())
    }

    /// Adds a write to a link, waiting for room. Nothing is written to a lost peer.
    pub(super) fn push(&mut self, peer: MachineId, source: &[u8], to: Remote) -> Result<(), Error> {
        let mut looks = 0;
        loop {
            let Some(link) = self.link(peer) else { return Ok(()) };
            if link.is_dead || link.try_write(source, to)? {
                return Ok(());
            }
            if link.post_signed().is_err() {
                self.kill(peer, "its queue pair takes no requests");
                return Ok(());
            }
            self.poll()?;
            give_way(&mut looks);
        }
    }

    /// See `Connection::wake`.
    pub(super) fn wake(&mut self, peer: MachineId, park_offset: usize) -> Result<(), Error> {
        let Some(link) = self.link(peer) else { return Ok(()) };
        memory::check_park_word(link.remote.region_bytes, park_offset)?;
        link.wake(park_offset);
        Ok(())
    }

    /// See `Connection::flush`.
    pub(super) fn flush(&mut self, peer: MachineId) -> Result<(), Error> {
        let Some(link) = self.link(peer) else { return Ok(()) };
        if link.flush().is_err() {
            self.kill(peer, "its queue pair takes no requests");
        }
        Ok(())
    }

    fn kill(&mut self, peer: MachineId, cause: &str) {
        if let Some(link) = self.link(peer).filter(|link| !link.is_dead) {
            link.is_dead = true;
            self.liveness.mark_lost(peer, cause);
        }
    }

    /// Flushes links with wake messages to send at once, and those with wakes to look after that no flush of
    /// a worker has covered since the last poll.
    fn follow_up(&mut self) -> Result<(), Error> {
        while let Some(index) = self.due.pop() {
            if self.links[index].as_ref().is_some_and(|link| link.has_later() || link.has_chain()) {
                self.flush(self.peer(index))?;
            }
        }
        while let Some(index) = self.next_due.pop() {
            if self.links[index].as_ref().is_some_and(Link::has_chain) {
                self.flush(self.peer(index))?;
            }
            if self.links[index].as_ref().is_some_and(Link::has_later) {
                self.due.push(index);
            }
        }
        Ok(())
    }

    /// Does the I/O thread's part for threads that do not poll.
    pub(super) fn look_again(&mut self) -> Result<(), Error> {
        self.poll()?;
        for index in 0..self.links.len() {
            let is_broken = self.links[index].as_mut().is_some_and(|link| !link.is_dead && link.look_again().is_err());
            if is_broken {
                self.kill(self.peer(index), "its queue pair takes no requests");
            }
        }
        Ok(())
    }

    /// Writes the sleep state of a thread to the boards of all peers.
    fn tell(&mut self, thread: usize, sleep: Sleep) -> Result<(), Error> {
        for index in 0..self.links.len() {
            let link = self.links[index].as_ref().filter(|link| !link.is_dead);
            let Some(remote) = link.map(|link| link.remote) else { continue };
            self.push(remote.peer, &sleep.0.to_ne_bytes(), remote.board.at(lane_word(thread)))?;
        }
        Ok(())
    }

    /// Tells the peers that a thread is about to sleep. It may sleep once `is_announced` returns true.
    pub(super) fn announce(&mut self, thread: usize, sleep: Sleep) -> Result<(), Error> {
        self.tell(thread, sleep)?;
        let mut requests = self.announced.remove(&thread).unwrap_or_else(|| vec![0; self.links.len()]);
        for (index, announced) in requests.iter_mut().enumerate() {
            match self.links[index].as_mut().filter(|link| !link.is_dead).map(Link::post_announcement) {
                Some(Ok(request)) => *announced = request,
                Some(Err(_)) => self.kill(self.peer(index), "its queue pair takes no requests"),
                None => {}
            }
        }
        self.announced.insert(thread, requests);
        Ok(())
    }

    /// Returns whether every peer has the announcement, as far as completions were polled.
    pub(super) fn is_announced(&self, thread: usize) -> bool {
        let requests = self.announced.get(&thread).map_or(&[][..], Vec::as_slice);
        let mut peers = self.links.iter().zip(requests);
        peers.all(|(link, request)| link.as_ref().is_none_or(|link| link.is_done(*request)))
    }

    /// Tells the peers that a thread is awake.
    pub(super) fn retract(&mut self, thread: usize, sleep: Sleep) -> Result<(), Error> {
        self.tell(thread, sleep)?;
        (0..self.links.len()).try_for_each(|index| self.flush(self.peer(index)))
    }

    /// Waits until all writes are with their peers, and all threads to be woken are awake, but not beyond the
    /// deadline.
    pub(super) fn drain(&mut self, deadline: Instant) -> Result<(), Error> {
        let mut looks = 0;
        loop {
            for index in 0..self.links.len() {
                let peer = self.peer(index);
                self.flush(peer)?;
                let Some(link) = self.links[index].as_mut().filter(|link| !link.is_quiet()) else { continue };
                if link.post_signed().is_err() {
                    self.kill(peer, "its queue pair takes no requests");
                }
            }
            self.poll()?;
            if self.links.iter().flatten().all(Link::is_quiet) || Instant::now() >= deadline {
                return Ok(());
            }
            give_way(&mut looks);
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.links.iter().flatten().for_each(|link| sum.add_sends(&link.counts));
        sum
    }
}

impl Polled for Lane {
    /// Takes the available completions, and posts the requests that follow from them.
    fn poll(&mut self) -> Result<(), Error> {
        let Lane { sends, links, first, liveness, next_due, .. } = self;
        sends.poll(&mut |completion: Completion| {
            let index = ((completion.id >> PEER_SHIFT) as usize).wrapping_sub(*first);
            let Some(link) = links.get_mut(index).and_then(Option::as_mut) else { return };
            if completion.status != raw::WC_SUCCESS {
                if !link.is_dead {
                    link.is_dead = true;
                    liveness.mark_lost(link.remote.peer, &failure(completion.status));
                }
                return;
            }
            link.complete(completion.id & ((1 << PEER_SHIFT) - 1));
            if (link.has_chain() || link.has_later()) && !next_due.contains(&index) {
                next_due.push(index);
            }
        })?;
        self.follow_up()
    }

    /// Returns whether completions are to come, or sleepers are still to be looked for.
    fn is_busy(&self) -> bool {
        self.links.iter().flatten().any(Link::is_busy)
    }
}

/// Counts an unsuccessful look, and yields after some.
pub(super) fn give_way(looks: &mut u32) {
    *looks += 1;
    if (*looks).is_multiple_of(LOOKS) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}
