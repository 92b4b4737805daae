//! The data connections that this machine has made: each has a sign of life of its own, for a firewall, a NAT or a
//! path that drops the packets of one connection leaves the others alone. Not here: those that were accepted
//! (`poller.rs`), the heartbeats between machines (`control.rs`).
//!
//! The signs of life are the system's, so they cost neither side's threads anything and stay out of the stream of frames,
//! which belongs to a worker: an idle connection is probed each second (keepalive; the answer shows that packets go both
//! ways), and what was sent has to be acknowledged within the limit of silence (`TCP_USER_TIMEOUT`). One side's probes
//! are enough, and the side that has made a connection sends them. A connection that fails so raises an error on its
//! socket; no worker may be there to see it, so the I/O thread has all of these sockets in its epoll, without any event
//! that it asks for: errors are told always.
//!
//! Answers to reads of shares go the other way. Who waits for them knows that they are owed (`sender.rs`).

use super::Limits;
use super::incoming;
use crate::fabric::MachineId;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::collections::HashMap;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Marks the tokens of these connections in the epoll; those of all others count up from 0.
const MARK: u64 = 1 << 63;
/// The shortest time that the system takes for keepalive.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// See the file. A connection whose worker has dropped it is closed, and of no interest.
#[derive(Debug, Default)]
pub(super) struct Made(Mutex<HashMap<u64, Weak<TcpStream>>>);

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
        stream: &Arc<TcpStream>,
    ) -> Result<(), Errno> {
        let token = MARK | u64::from(peer.0) << 16 | u64::from(worker);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(token, Arc::downgrade(stream));
        incoming::watch_for(epoll, stream, token, EventFlags::empty())
    }

    /// What has befallen the connection of this token, once; `None` where it has just been closed, or somebody else has
    /// taken note of the error.
    pub(super) fn take_error(&self, epoll: &OwnedFd, token: u64) -> Option<Errno> {
        let stream = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&token)?.upgrade()?;
        // It would be told again and again.
        let _ = epoll::delete(epoll, &*stream);
        sockopt::socket_error(&*stream).ok()?.err()
    }
}

/// Has the system give signs of life, and give up when there are none from the other side.
pub(super) fn keep_alive(stream: &TcpStream, limits: Limits) -> Result<(), Errno> {
    let timeout_ms = u32::try_from(limits.silence.as_millis()).unwrap_or(u32::MAX).max(1);
    sockopt::set_tcp_user_timeout(stream, timeout_ms)?;
    sockopt::set_tcp_keepidle(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    sockopt::set_socket_keepalive(stream, true)
}

/// Whether a connection broke because nothing came back on it.
pub(super) fn is_silence(error: Errno) -> bool {
    matches!(error, Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn tokens_tell_whose_connection_it_is() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let made = Made::default();
        made.watch(&epoll, (MachineId(u16::MAX), 3), &stream).unwrap();
        let tokens: Vec<u64> = made.0.lock().unwrap().keys().copied().collect();
        assert_eq!(tokens.iter().map(|token| peer_of(*token)).collect::<Vec<_>>(), [Some(MachineId(u16::MAX))]);
        assert_eq!(peer_of(u64::from(u32::MAX)), None);
        assert_eq!(made.take_error(&epoll, tokens[0]), None, "nothing has befallen it");
        assert_eq!(made.take_error(&epoll, tokens[0]), None, "it is told once");
    }

    #[test]
    fn the_system_gives_the_signs_of_life() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let limits = Limits { heartbeat: Duration::from_millis(250), silence: Duration::from_millis(2750) };
        keep_alive(&stream, limits).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), PROBE_INTERVAL);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), PROBE_INTERVAL);
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 2750);
    }
}
