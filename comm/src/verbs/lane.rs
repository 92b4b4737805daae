//! Lane: all traffic of one thread of this machine (a worker, or the thread that starts it), with all peers.
//! Its links share one completion queue, which it polls itself.
//!
//! Here: splitting writes into pieces, waiting for room, taking completions, telling peers its sleep state.
//! Not here: the counters of a link (`link`).
//!
//! A lock protects a lane: its own thread takes it, and twice a second the I/O thread if it is free.

use super::board::{Sleep, lane_word};
use super::endpoint::Remote;
use super::link::{Counts, Link};
use super::liveness::{VerbsLiveness, failure};
use super::raw::{self, Completion, CompletionQueue};
use crate::error::Error;
use crate::ids::MachineId;
use crate::memory::{self, WORD_BYTES};
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
    index: usize,
    sends: Arc<CompletionQueue>,
    /// Links by machine.
    links: Vec<Option<Link>>,
    liveness: Arc<VerbsLiveness>,
    /// Machines whose links have wakes to look after, found at this poll and at the one before.
    due: Vec<usize>,
    next_due: Vec<usize>,
    sleeps: u32,
    /// Request with the announcement of the current sleep, for each link.
    announced: Vec<u64>,
}

impl Lane {
    pub(super) fn new(
        index: usize,
        sends: Arc<CompletionQueue>,
        links: Vec<Option<Link>>,
        liveness: Arc<VerbsLiveness>,
    ) -> Lane {
        let room = links.len();
        let (due, next_due) = (Vec::with_capacity(room), Vec::with_capacity(room));
        Lane { index, sends, links, liveness, due, next_due, sleeps: 0, announced: vec![0; room] }
    }

    pub(super) fn link(&mut self, peer: MachineId) -> Option<&mut Link> {
        self.links.get_mut(usize::from(peer.0)).and_then(Option::as_mut)
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

    /// Takes the available completions, and posts the requests that follow from them.
    pub(super) fn poll(&mut self) -> Result<(), Error> {
        let Lane { sends, links, liveness, next_due, .. } = self;
        sends.poll(&mut |completion: Completion| {
            let peer = (completion.id >> PEER_SHIFT) as usize;
            let Some(link) = links.get_mut(peer).and_then(Option::as_mut) else { return };
            if completion.status != raw::WC_SUCCESS {
                if !link.is_dead {
                    link.is_dead = true;
                    liveness.mark_lost(link.remote.peer, &failure(completion.status));
                }
                return;
            }
            link.complete(completion.id & ((1 << PEER_SHIFT) - 1));
            if (link.has_chain() || link.has_later()) && !next_due.contains(&peer) {
                next_due.push(peer);
            }
        })?;
        self.follow_up()
    }

    /// Flushes links with wake messages to send at once, and those with wakes to look after that no flush of
    /// the worker has covered since the last poll.
    fn follow_up(&mut self) -> Result<(), Error> {
        while let Some(peer) = self.due.pop() {
            if self.links[peer].as_ref().is_some_and(|link| link.has_later() || link.has_chain()) {
                self.flush(MachineId(peer as u16))?;
            }
        }
        while let Some(peer) = self.next_due.pop() {
            if self.links[peer].as_ref().is_some_and(Link::has_chain) {
                self.flush(MachineId(peer as u16))?;
            }
            if self.links[peer].as_ref().is_some_and(Link::has_later) {
                self.due.push(peer);
            }
        }
        Ok(())
    }

    /// Does the I/O thread's part for a thread that does not poll.
    pub(super) fn look_again(&mut self) -> Result<(), Error> {
        self.poll()?;
        for peer in 0..self.links.len() {
            let is_broken = self.links[peer].as_mut().is_some_and(|link| !link.is_dead && link.look_again().is_err());
            if is_broken {
                self.kill(MachineId(peer as u16), "its queue pair takes no requests");
            }
        }
        Ok(())
    }

    /// Writes `sleep` to the boards of all peers.
    fn tell(&mut self, sleep: Sleep) -> Result<(), Error> {
        for peer in 0..self.links.len() {
            let Some(remote) = self.links[peer].as_ref().filter(|link| !link.is_dead).map(|link| link.remote) else {
                continue;
            };
            self.push(remote.peer, &sleep.0.to_ne_bytes(), remote.board.at(lane_word(self.index)))?;
        }
        Ok(())
    }

    /// Tells the peers that this lane is about to sleep. It may sleep once `poll_announced` returns true.
    pub(super) fn announce(&mut self, park_offset: usize) -> Result<(), Error> {
        self.sleeps = self.sleeps.wrapping_add(1);
        self.tell(Sleep::asleep(self.sleeps, park_offset)?)?;
        for peer in 0..self.links.len() {
            match self.links[peer].as_mut().filter(|link| !link.is_dead).map(Link::post_announcement) {
                Some(Ok(request)) => self.announced[peer] = request,
                Some(Err(_)) => self.kill(MachineId(peer as u16), "its queue pair takes no requests"),
                None => {}
            }
        }
        Ok(())
    }

    /// Polls once; returns whether every peer has the announcement. The caller waits for a moment between two calls.
    pub(super) fn poll_announced(&mut self) -> Result<bool, Error> {
        self.poll()?;
        let mut peers = self.links.iter().zip(&self.announced);
        Ok(peers.all(|(link, request)| link.as_ref().is_none_or(|link| link.is_done(*request))))
    }

    /// Tells the peers that this lane is awake.
    pub(super) fn retract(&mut self) -> Result<(), Error> {
        self.tell(Sleep::awake(self.sleeps))?;
        (0..self.links.len()).try_for_each(|peer| self.flush(MachineId(peer as u16)))
    }

    /// Waits until all writes are with their peers, and all threads to be woken are awake, but not beyond the
    /// deadline.
    pub(super) fn drain(&mut self, deadline: Instant) -> Result<(), Error> {
        let mut looks = 0;
        loop {
            for peer in 0..self.links.len() {
                self.flush(MachineId(peer as u16))?;
                let Some(link) = self.links[peer].as_mut().filter(|link| !link.is_quiet()) else { continue };
                if link.post_signed().is_err() {
                    self.kill(MachineId(peer as u16), "its queue pair takes no requests");
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

/// Counts an unsuccessful look, and yields after some.
pub(super) fn give_way(looks: &mut u32) {
    *looks += 1;
    if (*looks).is_multiple_of(LOOKS) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}
