//! Data connections that this machine has made. Each has its own heartbeats, since a firewall, a NAT or a
//! path that drops the packets of one connection leaves the others alone. Not here: the other ends
//! (`poller.rs`), the heartbeats between machines (`control.rs`).
//!
//! A connection that its worker does not use gets a heartbeat frame from the I/O thread. The other end misses
//! it after the limit of silence; this end misses its acknowledgement (`TCP_USER_TIMEOUT`), as for all sent
//! bytes: so packets are known to go both ways. (The system's keepalive has two probes in 3 s and repeats
//! none: too few where packets get lost.) A failed connection raises an error on its socket; its worker may
//! not be there to see it, so the I/O thread has these sockets in its epoll, without any requested event:
//! errors are always reported. Answers to reads of shares go the other way. Their reader knows that they are
//! owed (`sender.rs`).
//!
//! The stream of frames belongs to the worker, which may be within a frame when a socket has taken only a
//! part of it. Order, by pair:
//! - [sending-or-beating] The worker sets "sending", and checks for a heartbeat under way; the I/O thread sets
//!   "heartbeat under way", has all threads pass a barrier, and checks for "sending". One of them sees the other: the
//!   I/O thread skips the heartbeat, or the worker waits for its end. The barrier is a system call of the I/O
//!   thread (`membarrier`), so all of this costs the worker two stores and a load. Where there is no such
//!   call there are no heartbeats, and the other end does not expect any, since it has never received one.

use super::Limits;
use super::control::{Round, Turn};
use super::frame::{HEAD_BYTES, HEARTBEAT};
use super::incoming;
use crate::ids::MachineId;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, send, sockopt};
use rustix::thread::{MembarrierCommand, membarrier};
use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bit that marks the tokens of these connections in the epoll; all other tokens count up from 0.
const MARK: u64 = 1 << 63;

/// One of these connections, shared by its worker and the I/O thread.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) stream: TcpStream,
    is_sending: AtomicBool,
    is_beating: AtomicBool,
    /// The worker has sent since the I/O thread last checked.
    was_used: AtomicBool,
    /// Bytes of a heartbeat that the socket did not take: the worker sends them, and clears `is_beating`.
    left_bytes: AtomicUsize,
}

impl Line {
    pub(super) fn new(stream: TcpStream) -> Line {
        let is = || AtomicBool::new(false);
        Line { stream, is_sending: is(), is_beating: is(), was_used: is(), left_bytes: AtomicUsize::new(0) }
    }

    /// Marks the beginning of a send by the worker. Returns the rest of a heartbeat, to be sent first.
    #[inline]
    pub(super) fn begin(&self) -> &'static [u8] {
        // Relaxed: [sending-or-beating], by the barrier of `beat`; the fence keeps the compiler from changing the
        // order.
        self.is_sending.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // Acquire, pairs with the Release in `beat`: its heartbeat is in the socket before this worker's frame.
        if self.is_beating.load(Ordering::Acquire) { self.wait_for_beat() } else { &[] }
    }

    #[cold]
    fn wait_for_beat(&self) -> &'static [u8] {
        // Acquire, pairs with the Release in `beat`, which ends within a system call that does not wait.
        while self.is_beating.load(Ordering::Acquire) {
            // Acquire, pairs with the Release in `beat`: from then on the line belongs to the worker alone.
            let left_bytes = self.left_bytes.load(Ordering::Acquire);
            if left_bytes > 0 {
                self.left_bytes.store(0, Ordering::Relaxed);
                // Relaxed: the worker continues to send; the I/O thread checks `is_sending` [sending-or-beating].
                self.is_beating.store(false, Ordering::Relaxed);
                return &HEARTBEAT[HEAD_BYTES - left_bytes..];
            }
            std::thread::yield_now();
        }
        &[]
    }

    /// Marks the end of a send: all frames are in the socket.
    #[inline]
    pub(super) fn end(&self) {
        self.was_used.store(true, Ordering::Relaxed);
        // Release, pairs with the Acquire in `beat`: no part of a frame is missing in the socket.
        self.is_sending.store(false, Ordering::Release);
    }

    /// Announces a heartbeat, if the worker does not use the line.
    fn announce(&self) -> bool {
        let was_used = self.was_used.load(Ordering::Relaxed);
        self.was_used.store(false, Ordering::Relaxed);
        // A worker that waits for the end of one heartbeat must not have to wait for another.
        let is_sending = self.is_sending.load(Ordering::Relaxed);
        if was_used || is_sending || self.is_beating.load(Ordering::Relaxed) {
            return false;
        }
        self.is_beating.store(true, Ordering::Relaxed);
        true
    }

    /// Sends a heartbeat, which was announced before a barrier.
    fn beat(&self) {
        // Acquire, pairs with the Release in `end`.
        let sent = match self.is_sending.load(Ordering::Acquire) {
            true => HEAD_BYTES,
            // A full socket has enough traffic in it; a broken one reports its error.
            false => match send(&self.stream, &HEARTBEAT, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(bytes) => bytes,
                Err(_) => HEAD_BYTES,
            },
        };
        if sent < HEAD_BYTES {
            // Release, pairs with the Acquire in `wait_for_beat`: the worker sends the rest.
            return self.left_bytes.store(HEAD_BYTES - sent, Ordering::Release);
        }
        // Release, pairs with the Acquire in `begin` and `wait_for_beat`.
        self.is_beating.store(false, Ordering::Release);
    }
}

/// Data connections that this machine has made. One that its worker has dropped is closed, and ignored. Those of the
/// thread that starts the machine, which sends a few bytes, are kept for the next worker that needs one to the peer.
#[derive(Debug, Default)]
pub(super) struct OutgoingConnections {
    watched: Mutex<HashMap<u64, Watched>>,
    /// One for each peer at most; none are kept after the end of the fabric.
    spares: Mutex<Spares>,
}

#[derive(Debug)]
struct Watched {
    line: Weak<Line>,
    turn: Turn,
}

#[derive(Debug, Default)]
struct Spares {
    lines: HashMap<MachineId, Arc<Line>>,
    are_over: bool,
}

/// Returns the peer of the connection of this token; `None` if it is none of these.
pub(super) fn peer_of(token: u64) -> Option<MachineId> {
    (token & MARK != 0).then_some(MachineId((token >> 16) as u16))
}

impl OutgoingConnections {
    fn watched(&self) -> MutexGuard<'_, HashMap<u64, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spares(&self) -> MutexGuard<'_, Spares> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a connection that its worker has dropped, with nothing under way on it. It stays watched.
    pub(super) fn keep_spare(&self, peer: MachineId, line: Arc<Line>) {
        let mut spares = self.spares();
        if !spares.are_over {
            spares.lines.entry(peer).or_insert(line);
        }
    }

    /// Returns the kept connection to a peer, if there is one.
    pub(super) fn take_spare(&self, peer: MachineId) -> Option<Arc<Line>> {
        self.spares().lines.remove(&peer)
    }

    /// Closes the kept connections, and keeps no more.
    pub(super) fn close_spares(&self) {
        *self.spares() = Spares { lines: HashMap::new(), are_over: true };
    }

    /// Watches the connection of `worker` to `peer`.
    pub(super) fn watch(
        &self,
        epoll: &OwnedFd,
        (peer, worker): (MachineId, u16),
        line: &Arc<Line>,
    ) -> Result<(), Errno> {
        let token = MARK | u64::from(peer.0) << 16 | u64::from(worker);
        self.watched().insert(token, Watched { line: Arc::downgrade(line), turn: Turn::default() });
        incoming::watch_for(epoll, &line.stream, token, EventFlags::empty())
    }

    /// Shuts the connections to a peer: writes to it vanish, and no answer of it comes.
    pub(super) fn shut(&self, peer: MachineId) {
        let watched = self.watched();
        let lines = watched.iter().filter(|(token, _)| peer_of(**token) == Some(peer));
        for line in lines.filter_map(|(_, watched)| watched.line.upgrade()) {
            let _ = line.stream.shutdown(Shutdown::Both); // fails if the peer has closed it
        }
    }

    /// Returns the number of connections.
    pub(super) fn count(&self) -> usize {
        self.watched().len()
    }

    /// Sends heartbeats on unused connections whose turn it is.
    pub(super) fn beat(&self, round: Round) {
        let mut lines = Vec::new();
        {
            let mut all = self.watched();
            all.retain(|_, watched| watched.line.strong_count() > 0);
            for (place, Watched { line, turn }) in all.values_mut().enumerate() {
                // The turn of a connection in use passes to the next round.
                if turn.is_due(place, round)
                    && let Some(line) = line.upgrade().filter(|line| line.announce())
                {
                    turn.take(round);
                    lines.push(line);
                }
            }
        }
        if lines.is_empty() {
            return;
        }
        match has_passed_barrier() {
            true => lines.iter().for_each(|line| line.beat()),
            // Release: as in `Line::beat`, pairs with the Acquire in `begin`.
            false => lines.iter().for_each(|line| line.is_beating.store(false, Ordering::Release)),
        }
    }

    /// Returns the error of the connection of this token, once; `None` where it has just been closed, or its
    /// worker has already taken the error.
    pub(super) fn take_error(&self, epoll: &OwnedFd, token: u64) -> Option<Errno> {
        let line = self.watched().remove(&token)?.line.upgrade()?;
        // Otherwise epoll would report it again and again.
        let _ = epoll::delete(epoll, &line.stream);
        sockopt::socket_error(&line.stream).ok()?.err()
    }
}

/// Makes all threads of the process pass a full barrier; returns whether they did. The first call registers
/// the process.
fn has_passed_barrier() -> bool {
    let pass = || membarrier(MembarrierCommand::PrivateExpedited);
    pass().or_else(|_| membarrier(MembarrierCommand::RegisterPrivateExpedited).and_then(|()| pass())).is_ok()
}

/// Makes the system give up a connection whose bytes are not acknowledged in time.
pub(super) fn limit_silence(stream: &TcpStream, limits: Limits) -> Result<(), Errno> {
    let timeout_ms = u32::try_from(limits.silence.as_millis()).unwrap_or(u32::MAX).max(1);
    sockopt::set_tcp_user_timeout(stream, timeout_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    fn line() -> (Arc<Line>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Arc::new(Line::new(stream)), listener.accept().unwrap().0)
    }

    #[test]
    fn tokens_tell_whose_connection_it_is() {
        let (line, _other) = line();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let outgoing = OutgoingConnections::default();
        outgoing.watch(&epoll, (MachineId(u16::MAX), 3), &line).unwrap();
        let tokens: Vec<u64> = outgoing.watched().keys().copied().collect();
        assert_eq!(tokens.iter().map(|token| peer_of(*token)).collect::<Vec<_>>(), [Some(MachineId(u16::MAX))]);
        assert_eq!(peer_of(u64::from(u32::MAX)), None);
        assert_eq!(outgoing.take_error(&epoll, tokens[0]), None, "nothing has befallen it");
        assert_eq!(outgoing.count(), 0, "it is told once");
    }

    /// Frames are sent in many parts, while heartbeats are sent as fast as possible: none comes between the
    /// parts of a frame.
    #[test]
    fn no_heartbeat_comes_within_a_frame() {
        const FRAMES: u64 = 2_000;
        const PARTS: usize = 3;
        const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);
        let (line, mut other) = line();
        let outgoing = OutgoingConnections::default();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        outgoing.watch(&epoll, (MachineId(1), 0), &line).unwrap();
        let (beats, sent) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let (beats, sent, outgoing) = (&beats, &sent, &outgoing);
            let reader = scope.spawn(move || {
                let mut part = |frame: u64| {
                    let mut word = [0; 8];
                    loop {
                        other.read_exact(&mut word).unwrap();
                        if word != HEARTBEAT {
                            break assert_eq!(u64::from_le_bytes(word), frame);
                        }
                        beats.fetch_add(1, Ordering::Relaxed);
                    }
                };
                for frame in 1..=FRAMES {
                    part(frame);
                    let before = beats.load(Ordering::Relaxed);
                    (1..PARTS).for_each(|_| part(frame));
                    assert_eq!(beats.load(Ordering::Relaxed), before, "within frame {frame}");
                }
            });
            scope.spawn(move || {
                // A few for each frame: more would only fill the socket.
                let mut before = usize::MAX;
                while !reader.is_finished() {
                    let now = sent.load(Ordering::Relaxed);
                    if now == before {
                        std::thread::yield_now();
                    } else {
                        (0..2).for_each(|_| outgoing.beat(Round { number: 0, turns: 0 }));
                        before = now;
                    }
                }
            });
            let all = |bytes: &[u8]| std::io::Write::write_all(&mut &line.stream, bytes).unwrap();
            let start = std::time::Instant::now();
            for frame in 1..=FRAMES {
                all(line.begin());
                (0..PARTS).for_each(|_| all(&frame.to_le_bytes()));
                line.end();
                sent.store(frame as usize, Ordering::Relaxed);
                // All frames may go before the other thread has its first turn.
                while beats.load(Ordering::Relaxed) == 0 && has_passed_barrier() && start.elapsed() < LIMIT {
                    std::thread::yield_now();
                }
                if frame % 10 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        assert!(beats.load(Ordering::Relaxed) > 0 || !has_passed_barrier(), "no heartbeat came");
    }

    #[test]
    fn the_rest_of_a_heartbeat_is_the_workers() {
        let (line, _other) = line();
        assert!(line.announce() && !line.announce(), "one at a time");
        line.left_bytes.store(3, Ordering::Release); // as if the socket had taken five
        assert_eq!(line.begin(), &HEARTBEAT[5..]);
        line.end();
        assert_eq!(line.begin(), &[0; 0]);
        line.end();
        assert!(!line.announce() && line.announce(), "it was in use, and then is not");
    }
}
