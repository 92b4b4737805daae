//! Unauthenticated incoming connections: which are kept, and which are evicted.
//!
//! Here: the listener, handshakes under way. Beside it: `greeting.rs` (the steps of one handshake). Not here:
//! authenticated connections (`poller.rs`).
//!
//! Anybody may connect, so waiting earns no place, and the listener waits for no connection:
//! - a connection that has proven nothing yet falls under the rule of [`Unauthenticated`]: a new one is
//!   always accepted, and beyond the limit another is closed for it;
//! - a connection that has sent a claim has the key, or a recording of a key holder. Floods of others do not
//!   touch it, and each claim has at most [`SAME_CLAIM_MAX`] of them, so recordings do not add up;
//! - a peer that was evicted connects again (`mod.rs`), with a new place in the order.

use super::greeting::{Claim, IncomingHandshake, Progress, Use};
use crate::descriptors;
use crate::ids::MachineId;
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

/// Most connections without a claim, where descriptors are plenty.
const UNAUTHENTICATED_MAX: usize = 256;
/// Most connections without a claim, where descriptors are scarce.
const UNAUTHENTICATED_MIN: usize = 16;
/// Strangers get at most one in this many of the process' descriptors.
const DESCRIPTORS_PART: u64 = 8;
/// Connections accepted before other events get their turn.
const ACCEPTS_MAX: usize = 64;
/// Pause of accepting when the system has no room for a connection.
const PAUSE: Duration = Duration::from_millis(50);
/// Most handshakes under way with the same claim. A peer has one, or some more of which it has given up all
/// but the last.
const SAME_CLAIM_MAX: usize = 4;

/// Connections that the listener evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Crowd {
    /// Number of connections that were evicted without having proven the key.
    pub(super) evicted: u64,
    /// Address of the last of them.
    pub(super) address: IpAddr,
}

/// A connection whose other side is authenticated.
pub(super) struct Authenticated {
    pub(super) token: u64,
    pub(super) claim: Claim,
    pub(super) stream: TcpStream,
}

/// Listener, and the handshakes under way.
pub(super) struct Incoming {
    key: Key,
    region_bytes: usize,
    listener: TcpListener,
    /// Start of the current pause of accepting, for lack of room.
    paused: Option<Instant>,
    epoll: Arc<OwnedFd>,
    listener_token: u64,
    next_token: u64,
    handshakes: HashMap<u64, IncomingHandshake>,
    unauthenticated: Unauthenticated,
    unauthenticated_max: usize,
    /// Connections that have sent a claim, the oldest first.
    claimed: HashMap<(MachineId, Use), VecDeque<u64>>,
    crowd: Option<Crowd>,
}

impl Incoming {
    /// `listener_token` is the listener's token in `epoll`; connections get greater ones.
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

    /// Returns a fresh number for a connection.
    pub(super) fn new_token(&mut self) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        token
    }

    /// Returns whether this is a connection whose handshake is under way.
    pub(super) fn has(&self, token: u64) -> bool {
        self.handshakes.contains_key(&token)
    }

    /// Returns the connections evicted so far, if any.
    pub(super) fn crowd(&self) -> Option<Crowd> {
        self.crowd
    }

    /// Returns whether a timeout is pending.
    pub(super) fn is_busy(&self) -> bool {
        !self.handshakes.is_empty() || self.paused.is_some()
    }

    /// Does the work that depends on the clock.
    pub(super) fn keep_time(&mut self, now: Instant) -> Result<(), Errno> {
        let late = self.handshakes.iter().filter(|(_, handshake)| handshake.is_late(now));
        let late: Vec<u64> = late.map(|(token, _)| *token).collect();
        late.into_iter().for_each(|token| drop(self.remove(token)));
        match self.paused {
            Some(since) if now.duration_since(since) >= PAUSE => self.listen(true),
            _ => Ok(()),
        }
    }

    /// Accepts new connections, which may evict others. Returns those that are authenticated at once.
    pub(super) fn accept(&mut self, is_wanted: &impl Fn(&Claim) -> bool) -> Result<Vec<Authenticated>, Errno> {
        let mut authenticated = Vec::new();
        for _ in 0..ACCEPTS_MAX {
            match descriptors::with_room(|| self.listener.accept()) {
                Ok((stream, address)) => authenticated.extend(self.add(stream, address.ip(), is_wanted)),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => break,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    // No descriptors: a stranger gives up its own.
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
        // A connection that fails here has gone, or there is no memory for it: its side notices.
        watch(&self.epoll, &stream, token).ok()?;
        self.handshakes.insert(token, IncomingHandshake::new(stream));
        self.unauthenticated.insert(token, address);
        // A peer has usually sent its claim by now, and then a flood cannot evict it.
        let authenticated = self.advance(token, is_wanted);
        self.evict_beyond(self.unauthenticated_max);
        authenticated
    }

    /// Continues a handshake. Returns the connection when it is authenticated.
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

    /// Keeps the latest of a claim: that is the one its peer waits for.
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

    /// Evicts one connection beyond `most`; returns whether there was one.
    fn evict_beyond(&mut self, most: usize) -> bool {
        let Some(evicted) = self.unauthenticated.evict_beyond(most) else { return false };
        self.handshakes.remove(&evicted.number);
        let before = self.crowd.map_or(0, |crowd| crowd.evicted);
        self.crowd = Some(Crowd { evicted: before + 1, address: evicted.address });
        true
    }

    /// Starts or stops watching the listener's queue.
    fn listen(&mut self, is_listening: bool) -> Result<(), Errno> {
        let flags = if is_listening { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        epoll::modify(&self.epoll, &self.listener, epoll::EventData::new_u64(self.listener_token), flags)?;
        self.paused = (!is_listening).then(Instant::now);
        Ok(())
    }

    /// Closes all handshakes.
    pub(super) fn clear(&mut self) {
        self.handshakes.clear();
        self.claimed.clear();
        self.unauthenticated = Unauthenticated::default();
    }
}

/// Watches a descriptor; closing it ends that.
pub(super) fn watch(epoll: &OwnedFd, fd: impl AsFd, token: u64) -> Result<(), Errno> {
    watch_for(epoll, fd, token, epoll::EventFlags::IN)
}

/// Watches a descriptor for these events; errors are always reported.
pub(super) fn watch_for(epoll: &OwnedFd, fd: impl AsFd, token: u64, flags: epoll::EventFlags) -> Result<(), Errno> {
    epoll::add(epoll, fd, epoll::EventData::new_u64(token), flags)
}
