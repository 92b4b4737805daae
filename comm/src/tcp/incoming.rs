//! Incoming connections until both sides are authenticated: which of them are kept, and which are evicted.
//!
//! Here: the listener, handshakes under way. Beside it: `greeting.rs` (the steps of one handshake). Not here:
//! connections that are authenticated (`poller.rs`).
//!
//! Anybody may connect, so nobody gains by waiting, and nobody is waited for:
//! - who has shown nothing yet falls under the rule of [`Unauthenticated`]: a new one is always let in, and another
//!   goes for it;
//! - who has sent a claim has the key, or a recording of somebody who has. The flood of others does not touch it, and
//!   of each claim there are at most [`SAME_CLAIM_MAX`], so recordings do not add up;
//! - a peer that had to go connects again (`mod.rs`), with a new place in the order.

use super::descriptors;
use super::greeting::{Claim, IncomingHandshake, Progress, Use};
use crate::fabric::MachineId;
use crate::secure::{Key, Unauthenticated};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most connections that have shown nothing yet, where descriptors are plenty.
const UNAUTHENTICATED_MAX: usize = 256;
/// So many of these are kept where they are scarce.
const UNAUTHENTICATED_MIN: usize = 16;
/// The part of the descriptors that a process may have which goes to strangers at most.
const DESCRIPTORS_PART: u64 = 8;
/// Connections taken before others get their turn.
const ACCEPTS_MAX: usize = 64;
/// How long none is taken where the system has no room for one.
const PAUSE: Duration = Duration::from_millis(50);
/// Handshakes under way with the same claim. A peer has one, or some more of which it has given up all but the last.
const SAME_CLAIM_MAX: usize = 4;

/// Whom the listener turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Crowd {
    /// How many connections had to go for others, without having shown the key.
    pub(super) evicted: u64,
    /// Where the last of them came from.
    pub(super) address: IpAddr,
}

/// A connection whose other side is authenticated.
pub(super) struct Authenticated {
    pub(super) token: u64,
    pub(super) claim: Claim,
    pub(super) stream: TcpStream,
}

/// See the file.
pub(super) struct Incoming {
    key: Key,
    region_bytes: usize,
    listener: TcpListener,
    /// Since when no connections are taken, for want of room.
    paused: Option<Instant>,
    epoll: Arc<OwnedFd>,
    listener_token: u64,
    next_token: u64,
    handshakes: HashMap<u64, IncomingHandshake>,
    unauthenticated: Unauthenticated,
    unauthenticated_max: usize,
    /// Those that have sent a claim, the oldest first.
    claimed: HashMap<(MachineId, Use), VecDeque<u64>>,
    crowd: Option<Crowd>,
}

impl Incoming {
    /// `listener_token` is what `epoll` tells of the listener; greater ones are given to connections.
    pub(super) fn new(
        listener: TcpListener,
        key: Key,
        region_bytes: usize,
        epoll: Arc<OwnedFd>,
        listener_token: u64,
    ) -> std::io::Result<Incoming> {
        listener.set_nonblocking(true)?;
        watch(&epoll, &listener, listener_token)?;
        let descriptors = getrlimit(Resource::Nofile).maximum;
        let part = descriptors.map_or(UNAUTHENTICATED_MAX, |most| {
            usize::try_from(most / DESCRIPTORS_PART).unwrap_or(UNAUTHENTICATED_MAX)
        });
        Ok(Incoming {
            key,
            region_bytes,
            listener,
            paused: None,
            epoll,
            listener_token,
            next_token: listener_token + 1,
            handshakes: HashMap::new(),
            unauthenticated: Unauthenticated::default(),
            unauthenticated_max: part.clamp(UNAUTHENTICATED_MIN, UNAUTHENTICATED_MAX),
            claimed: HashMap::new(),
            crowd: None,
        })
    }

    /// A number for a connection that no other has had.
    pub(super) fn new_token(&mut self) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        token
    }

    /// Whether this is a connection whose handshake is under way.
    pub(super) fn has(&self, token: u64) -> bool {
        self.handshakes.contains_key(&token)
    }

    /// Whom the listener turned away so far, if there were too many.
    pub(super) fn crowd(&self) -> Option<Crowd> {
        self.crowd
    }

    /// Whether the clock has to be looked at for it.
    pub(super) fn is_busy(&self) -> bool {
        !self.handshakes.is_empty() || self.paused.is_some()
    }

    /// Whatever depends on the clock.
    pub(super) fn keep_time(&mut self, now: Instant) -> Result<(), Errno> {
        let late = self.handshakes.iter().filter(|(_, handshake)| handshake.is_late(now));
        let late: Vec<u64> = late.map(|(token, _)| *token).collect();
        late.into_iter().for_each(|token| drop(self.remove(token)));
        match self.paused {
            Some(since) if now.duration_since(since) >= PAUSE => self.listen(true),
            _ => Ok(()),
        }
    }

    /// Takes new connections, for which others may have to go. Gives those that are authenticated at once.
    pub(super) fn accept(&mut self, is_wanted: &impl Fn(&Claim) -> bool) -> Result<Vec<Authenticated>, Errno> {
        let mut authenticated = Vec::new();
        for _ in 0..ACCEPTS_MAX {
            match descriptors::with_room(|| self.listener.accept()) {
                Ok((stream, address)) => authenticated.extend(self.add(stream, address.ip(), is_wanted)),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => break,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    // No descriptors: those of strangers are there to be had.
                    _ if self.is_out_of_descriptors(&error) && self.evict_beyond(0) => {}
                    // Tried again after a pause, not at once.
                    _ => {
                        self.listen(false)?;
                        break;
                    }
                },
            }
        }
        Ok(authenticated)
    }

    fn is_out_of_descriptors(&self, error: &std::io::Error) -> bool {
        matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::MFILE | Errno::NFILE))
    }

    fn add(
        &mut self,
        stream: TcpStream,
        address: IpAddr,
        is_wanted: &impl Fn(&Claim) -> bool,
    ) -> Option<Authenticated> {
        let token = self.new_token();
        // One that fails here has gone, or there is no memory for it: its side notices.
        watch(&self.epoll, &stream, token).ok()?;
        self.handshakes.insert(token, IncomingHandshake::new(stream));
        self.unauthenticated.insert(token, address);
        // A peer has mostly said by now what it is, and then has to fear no flood.
        let authenticated = self.advance(token, is_wanted);
        self.evict_beyond(self.unauthenticated_max);
        authenticated
    }

    /// Goes on with a handshake. Gives the connection when it is authenticated.
    pub(super) fn advance(&mut self, token: u64, is_wanted: &impl Fn(&Claim) -> bool) -> Option<Authenticated> {
        let handshake = self.handshakes.get_mut(&token)?;
        match handshake.advance(&self.key, self.region_bytes, is_wanted) {
            Progress::Waits => {
                if let Some(claim) = handshake.claim().filter(|_| self.unauthenticated.remove(token)) {
                    self.note_claim(token, claim);
                }
                None
            }
            Progress::Gone => {
                self.remove(token);
                None
            }
            Progress::Authenticated(claim) => Some(Authenticated { token, claim, stream: self.remove(token)?.stream }),
        }
    }

    /// The latest of a claim is the one that its peer waits for.
    fn note_claim(&mut self, token: u64, claim: Claim) {
        let same = self.claimed.entry((claim.from, claim.purpose)).or_default();
        same.push_back(token);
        if same.len() > SAME_CLAIM_MAX
            && let Some(oldest) = same.pop_front()
        {
            self.handshakes.remove(&oldest);
        }
    }

    fn remove(&mut self, token: u64) -> Option<IncomingHandshake> {
        let handshake = self.handshakes.remove(&token)?;
        if !self.unauthenticated.remove(token)
            && let Some(claim) = handshake.claim()
            && let Some(same) = self.claimed.get_mut(&(claim.from, claim.purpose))
        {
            same.retain(|other| *other != token);
            if same.is_empty() {
                self.claimed.remove(&(claim.from, claim.purpose));
            }
        }
        Some(handshake)
    }

    /// Whether somebody had to go.
    fn evict_beyond(&mut self, most: usize) -> bool {
        let Some(evicted) = self.unauthenticated.evict_beyond(most) else { return false };
        self.handshakes.remove(&evicted.number);
        let before = self.crowd.map_or(0, |crowd| crowd.evicted);
        self.crowd = Some(Crowd { evicted: before + 1, address: evicted.address });
        true
    }

    /// Whether the listener's queue is looked at.
    fn listen(&mut self, is_listening: bool) -> Result<(), Errno> {
        let flags = if is_listening { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        epoll::modify(&self.epoll, &self.listener, epoll::EventData::new_u64(self.listener_token), flags)?;
        self.paused = (!is_listening).then(Instant::now);
        Ok(())
    }

    /// Closes all of them.
    pub(super) fn clear(&mut self) {
        self.handshakes.clear();
        self.claimed.clear();
        self.unauthenticated = Unauthenticated::default();
    }
}

/// Watches a descriptor; it is watched no more when it is closed.
pub(super) fn watch(epoll: &OwnedFd, fd: impl AsFd, token: u64) -> Result<(), Errno> {
    watch_for(epoll, fd, token, epoll::EventFlags::IN)
}

/// The same, for these events; errors are told always.
pub(super) fn watch_for(epoll: &OwnedFd, fd: impl AsFd, token: u64, flags: epoll::EventFlags) -> Result<(), Errno> {
    epoll::add(epoll, fd, epoll::EventData::new_u64(token), flags)
}
