//! The control connections of one machine, one to each peer: by them the machines know that they
//! live. Not here: making them (`mod.rs`, `greeting.rs`), what follows from a death (`poller.rs`).
//!
//! What goes over them is single bytes: a heartbeat now and then, and a graceful close before an orderly end. A
//! peer of which nothing is heard for the limit, on any connection, is dead; so is one whose control connection
//! ends without a graceful close, which is how the death of a process shows at once.

use super::Limits;
use super::made;
use super::shared::Break;
use crate::fabric::MachineId;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const HEARTBEAT: u8 = b'h';
const GRACEFUL_CLOSE: u8 = b'f';

/// See the file.
pub(super) struct ControlConnections {
    limits: Limits,
    connections: HashMap<u64, ControlConnection>,
    tokens: HashMap<MachineId, u64>,
    last_beat: Instant,
}

struct ControlConnection {
    peer: MachineId,
    stream: TcpStream,
    /// Set when something comes, and looked at when the clock is.
    was_heard: bool,
    last_heard: Instant,
}

/// What a control connection brought.
#[must_use]
pub(super) enum Heard {
    /// Nothing.
    Nothing,
    /// It lives.
    Heartbeat,
    /// The peer leaves in order. Its connection is closed here too, by which it knows.
    GracefulClose(MachineId),
    /// The connection was closed.
    End(MachineId),
    /// Nothing that was said on the connection arrived for the limit of silence.
    Silent(MachineId),
    /// The connection broke, or brought nonsense.
    Broken(MachineId, String),
}

impl ControlConnections {
    pub(super) fn new(limits: Limits) -> ControlConnections {
        ControlConnections { limits, connections: HashMap::new(), tokens: HashMap::new(), last_beat: Instant::now() }
    }

    pub(super) fn add(&mut self, token: u64, peer: MachineId, stream: TcpStream) {
        self.tokens.insert(peer, token);
        self.connections
            .insert(token, ControlConnection { peer, stream, was_heard: false, last_heard: Instant::now() });
    }

    pub(super) fn has(&self, peer: MachineId) -> bool {
        self.tokens.contains_key(&peer)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    pub(super) fn remove(&mut self, peer: MachineId) {
        if let Some(token) = self.tokens.get(&peer) {
            self.connections.remove(token);
        }
    }

    pub(super) fn clear(&mut self) {
        self.connections.clear();
    }

    /// Time between two heartbeats, which is also how often the clock is looked at.
    pub(super) fn tick(&self) -> Duration {
        self.limits.heartbeat.min(self.limits.silence / 4)
    }

    /// Something came of a peer by another connection.
    pub(super) fn heard_of(&mut self, peer: MachineId) {
        if let Some(link) = self.tokens.get(&peer).and_then(|token| self.connections.get_mut(token)) {
            link.was_heard = true;
        }
    }

    /// Whether a peer has given a sign of life lately, by any connection.
    pub(super) fn is_heard(&self, peer: MachineId, now: Instant) -> bool {
        let link = self.tokens.get(&peer).and_then(|token| self.connections.get(token));
        link.is_some_and(|link| link.was_heard || now.duration_since(link.last_heard) < self.limits.silence / 2)
    }

    /// Sends heartbeats when it is time. Gives the peers that have been silent for too long.
    pub(super) fn beat(&mut self, now: Instant) -> Vec<(MachineId, Duration)> {
        let since = now.duration_since(self.last_beat);
        if since < self.tick() {
            return Vec::new();
        }
        // When this thread itself stood still for long, that is no silence of the peers: what they
        // sent meanwhile has been read by now, and whoever is late gets one more tick.
        let was_away = since > self.limits.silence / 2;
        self.last_beat = now;
        for link in self.connections.values_mut() {
            if std::mem::take(&mut link.was_heard) || was_away {
                link.last_heard = now;
            }
            // A full socket has heartbeats enough in it; a broken one shows when it is read.
            let _ = send(&link.stream, &[HEARTBEAT], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
        let silence = |link: &ControlConnection| (link.peer, now.duration_since(link.last_heard));
        self.connections.values().map(silence).filter(|(_, silence)| *silence >= self.limits.silence).collect()
    }

    /// Tells all peers that this machine leaves. They close their ends.
    pub(super) fn close_gracefully(&mut self) {
        for link in self.connections.values() {
            // Who does not get it takes the end of the connection for a death, as it may.
            let _ = send(&link.stream, &[GRACEFUL_CLOSE], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            let _ = link.stream.shutdown(Shutdown::Write);
        }
    }

    /// Reads a control connection.
    pub(super) fn hear(&mut self, token: u64) -> Heard {
        let Some(link) = self.connections.get_mut(&token) else {
            return Heard::Nothing;
        };
        let peer = link.peer;
        let mut buffer = [0; 256];
        let heard = match recv(&link.stream, &mut buffer, RecvFlags::DONTWAIT) {
            // A process that ends with something unread resets its connections.
            Ok((_, 0)) | Err(Errno::CONNRESET) => Heard::End(peer),
            Ok((_, bytes)) => {
                link.was_heard = true;
                match buffer[..bytes].iter().find(|byte| **byte != HEARTBEAT) {
                    None => return Heard::Heartbeat,
                    Some(&GRACEFUL_CLOSE) => Heard::GracefulClose(peer),
                    Some(byte) => Heard::Broken(peer, format!("it said {byte:#04x} where only heartbeats belong")),
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => return Heard::Nothing,
            // Other connections may tell that the peer lives: it is asked before this one is forgotten.
            Err(error) if made::is_silence(error) => return Heard::Silent(peer),
            Err(error) => Heard::Broken(peer, explain(error)),
        };
        self.connections.remove(&token);
        heard
    }
}

impl Break {
    /// How a connection broke that fails with this.
    pub(super) fn by(error: Errno) -> Break {
        if made::is_silence(error) { Break::Silent } else { Break::Told(explain(error)) }
    }
}

/// Why a connection broke, in words for the user.
pub(super) fn explain(error: Errno) -> String {
    format!("the connection to it broke: {}", std::io::Error::from(error))
}
