//! The data connections that this machine has made: each has a sign of life of its own, for a firewall, a NAT or a
//! path that drops the packets of one connection leaves the others alone. Not here: the other ends (`poller.rs`), the
//! heartbeats between machines (`control.rs`).
//!
//! A connection that its worker does not use gets a heartbeat, a frame, from the I/O thread. Its other end misses that
//! after the limit of silence; this one, that it is acknowledged in time (`TCP_USER_TIMEOUT`), as all that is sent: so
//! packets are known to go both ways. (Keepalive, which the system offers, has two probes in 3 s and repeats none: too
//! few where packets get lost.) A connection that fails raises an error on its socket; no worker may be there to see
//! it, so the I/O thread has these sockets in its epoll, without any event that it asks for: errors are told always.
//! Answers to reads of shares go the other way. Who waits for them knows that they are owed (`sender.rs`).
//!
//! The stream of frames belongs to the worker, who may be within one when a socket has taken a part of it only. Order,
//! by pair:
//! - T  The worker says that it sends, and looks whether a heartbeat is under way; the I/O thread says that one is, has
//!   all threads pass a barrier, and looks whether the worker sends. One of them sees the other: the I/O thread goes on
//!   without a heartbeat, the worker waits for its end. The barrier is a system call of the I/O thread (`membarrier`),
//!   so all of this costs the worker two stores and a load. Where there is no such call there are no heartbeats, and no
//!   other end misses what has never come.

use super::Limits;
use super::frame::{HEAD_BYTES, HEARTBEAT};
use super::incoming;
use crate::fabric::MachineId;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, send, sockopt};
use rustix::thread::{MembarrierCommand, membarrier};
use std::collections::HashMap;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Marks the tokens of these connections in the epoll; those of all others count up from 0.
const MARK: u64 = 1 << 63;

/// One of these connections, which its worker and the I/O thread share.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) stream: TcpStream,
    is_sending: AtomicBool,
    is_beating: AtomicBool,
    /// The worker has sent since the I/O thread looked last.
    was_used: AtomicBool,
    /// How much of a heartbeat the socket did not take: the worker sends it, and ends the beating.
    left_bytes: AtomicUsize,
}

impl Line {
    pub(super) fn new(stream: TcpStream) -> Line {
        let is = || AtomicBool::new(false);
        Line { stream, is_sending: is(), is_beating: is(), was_used: is(), left_bytes: AtomicUsize::new(0) }
    }

    /// The worker begins to send. What it has to send before, of a heartbeat.
    #[inline]
    pub(super) fn begin(&self) -> &'static [u8] {
        // Relaxed: pair T, by the barrier of `beat`; the fence keeps the compiler from changing the order.
        self.is_sending.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // Acquire, pairs with the Release in `beat`: its heartbeat is in the socket before this worker's frame.
        if self.is_beating.load(Ordering::Acquire) { self.wait_for_beat() } else { &[] }
    }

    #[cold]
    fn wait_for_beat(&self) -> &'static [u8] {
        // Acquire, pairs with the Release in `beat`, which ends within a system call that does not wait.
        while self.is_beating.load(Ordering::Acquire) {
            // Acquire, pairs with the Release in `beat`: from then on the line is the worker's alone.
            let left_bytes = self.left_bytes.load(Ordering::Acquire);
            if left_bytes > 0 {
                self.left_bytes.store(0, Ordering::Relaxed);
                // Relaxed: the worker goes on to send; the I/O thread looks at `is_sending` (pair T).
                self.is_beating.store(false, Ordering::Relaxed);
                return &HEARTBEAT[HEAD_BYTES - left_bytes..];
            }
            std::thread::yield_now();
        }
        &[]
    }

    /// The worker has sent all that it began.
    #[inline]
    pub(super) fn end(&self) {
        self.was_used.store(true, Ordering::Relaxed);
        // Release, pairs with the Acquire in `beat`: no part of a frame is missing in the socket.
        self.is_sending.store(false, Ordering::Release);
    }

    /// Says that a heartbeat is under way, if the worker does not use the line.
    fn announce(&self) -> bool {
        let was_used = self.was_used.load(Ordering::Relaxed);
        self.was_used.store(false, Ordering::Relaxed);
        // A worker that waits for the end of one heartbeat does not have to wait for another.
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
            // A full socket has signs of life enough in it; a broken one tells.
            false => match send(&self.stream, &HEARTBEAT, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(bytes) => bytes,
                Err(_) => HEAD_BYTES,
            },
        };
        if sent < HEAD_BYTES {
            // Release, pairs with the Acquire in `wait_for_beat`: the rest is the worker's.
            return self.left_bytes.store(HEAD_BYTES - sent, Ordering::Release);
        }
        // Release, pairs with the Acquire in `begin` and `wait_for_beat`.
        self.is_beating.store(false, Ordering::Release);
    }
}

/// See the file. A connection whose worker has dropped it is closed, and of no interest.
#[derive(Debug, Default)]
pub(super) struct Made(Mutex<HashMap<u64, Weak<Line>>>);

/// Whose connection a token is; `None` if it is none of these.
pub(super) fn peer_of(token: u64) -> Option<MachineId> {
    (token & MARK != 0).then_some(MachineId((token >> 16) as u16))
}

impl Made {
    /// Watches the connection of `worker` to `peer`.
    pub(super) fn watch(
        &self,
        epoll: &OwnedFd,
        (peer, worker): (MachineId, u16),
        line: &Arc<Line>,
    ) -> Result<(), Errno> {
        let token = MARK | u64::from(peer.0) << 16 | u64::from(worker);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(token, Arc::downgrade(line));
        incoming::watch_for(epoll, &line.stream, token, EventFlags::empty())
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Gives those a sign of life that are not used and for which `is_due`.
    pub(super) fn beat(&self, mut is_due: impl FnMut(usize) -> bool) {
        let mut lines = Vec::new();
        {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, line| line.strong_count() > 0);
            let due = all.values().enumerate().filter(|(number, _)| is_due(*number));
            lines.extend(due.filter_map(|(_, line)| line.upgrade()));
        }
        lines.retain(|line| line.announce());
        if lines.is_empty() {
            return;
        }
        match has_passed_barrier() {
            true => lines.iter().for_each(|line| line.beat()),
            // Release: as in `Line::beat`, pairs with the Acquire in `begin`.
            false => lines.iter().for_each(|line| line.is_beating.store(false, Ordering::Release)),
        }
    }

    /// What has befallen the connection of this token, once; `None` where it has just been closed, or somebody else has
    /// taken note of the error.
    pub(super) fn take_error(&self, epoll: &OwnedFd, token: u64) -> Option<Errno> {
        let line = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&token)?.upgrade()?;
        // It would be told again and again.
        let _ = epoll::delete(epoll, &line.stream);
        sockopt::socket_error(&line.stream).ok()?.err()
    }
}

/// Whether all threads of the process have passed a full barrier. The first call registers the process.
fn has_passed_barrier() -> bool {
    let pass = || membarrier(MembarrierCommand::PrivateExpedited);
    pass().or_else(|_| membarrier(MembarrierCommand::RegisterPrivateExpedited).and_then(|()| pass())).is_ok()
}

/// Has the system give up what is not acknowledged in time.
pub(super) fn limit_silence(stream: &TcpStream, limits: Limits) -> Result<(), Errno> {
    let timeout_ms = u32::try_from(limits.silence.as_millis()).unwrap_or(u32::MAX).max(1);
    sockopt::set_tcp_user_timeout(stream, timeout_ms)
}

/// Whether a connection broke because nothing came back on it.
pub(super) fn is_silence(error: Errno) -> bool {
    matches!(error, Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN)
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
        let made = Made::default();
        made.watch(&epoll, (MachineId(u16::MAX), 3), &line).unwrap();
        let tokens: Vec<u64> = made.0.lock().unwrap().keys().copied().collect();
        assert_eq!(tokens.iter().map(|token| peer_of(*token)).collect::<Vec<_>>(), [Some(MachineId(u16::MAX))]);
        assert_eq!(peer_of(u64::from(u32::MAX)), None);
        assert_eq!(made.take_error(&epoll, tokens[0]), None, "nothing has befallen it");
        assert_eq!(made.count(), 0, "it is told once");
    }

    /// Frames that are sent in many parts, while heartbeats are sent as fast as can be: none comes between the parts of
    /// one.
    #[test]
    fn no_heartbeat_comes_within_a_frame() {
        const FRAMES: u64 = 2_000;
        const PARTS: usize = 3;
        let (line, mut other) = line();
        let made = Made::default();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        made.watch(&epoll, (MachineId(1), 0), &line).unwrap();
        let (beats, sent) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let (beats, sent, made) = (&beats, &sent, &made);
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
                // Some for each frame: more would only fill the socket.
                let mut before = usize::MAX;
                while !reader.is_finished() {
                    let now = sent.load(Ordering::Relaxed);
                    if now == before {
                        std::thread::yield_now();
                    } else {
                        (0..2).for_each(|_| made.beat(|_| true));
                        before = now;
                    }
                }
            });
            let all = |bytes: &[u8]| std::io::Write::write_all(&mut &line.stream, bytes).unwrap();
            for frame in 1..=FRAMES {
                all(line.begin());
                (0..PARTS).for_each(|_| all(&frame.to_le_bytes()));
                line.end();
                sent.store(frame as usize, Ordering::Relaxed);
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
