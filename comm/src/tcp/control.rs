//! Control connections of one machine, one to each peer, by which the machines check each other's liveness.
//! Not here: making them (`mod.rs`, `greeting.rs`), and the consequences of a death (`poller.rs`).
//!
//! They carry single bytes: periodic heartbeats, and a graceful close before an orderly end. A peer that is
//! silent for the limit, on every connection, is dead; so is one whose control connection ends without a
//! graceful close, which is how the death of a process shows at once.

use super::Limits;
use super::breaks::{explain, is_silence};
use crate::ids::MachineId;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const HEARTBEAT: u8 = b'h';
const GRACEFUL_CLOSE: u8 = b'f';
/// Largest number of heartbeats sent at once, on all connections of a machine, as long as each still gets its
/// own in time.
const BEATS_MAX: usize = 64;

/// Control connections of a machine.
pub(super) struct ControlConnections {
    limits: Limits,
    connections: HashMap<u64, ControlConnection>,
    tokens: HashMap<MachineId, u64>,
    last_beat: Instant,
    /// Number of heartbeat rounds so far.
    round: u64,
}

/// One round of heartbeats.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) number: u64,
    /// Number of rounds in which each connection has one turn.
    pub(super) turns: u64,
}

/// Turns of one connection, counted from its last one: while connections come and go, none is passed over.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Round of the last turn; for a connection that has had none, so chosen that those made at once spread.
    last: Option<u64>,
}

impl Turn {
    /// Returns whether a heartbeat is due. `place` is any number that differs between the connections.
    pub(super) fn is_due(&mut self, place: usize, round: Round) -> bool {
        let Round { number, turns } = round;
        let spread = (place as u64).checked_rem(turns).unwrap_or(0);
        let last = *self.last.get_or_insert(number.wrapping_sub(spread + 1));
        number.wrapping_sub(last) >= turns
    }

    /// Notes the heartbeat.
    pub(super) fn take(&mut self, round: Round) {
        self.last = Some(round.number);
    }
}

struct ControlConnection {
    peer: MachineId,
    stream: TcpStream,
    turn: Turn,
    /// Set by received bytes, cleared at each tick.
    was_heard: bool,
    /// Length of the silence, as far as this thread could have noticed (see [`ControlConnections::beat`]).
    silent: Duration,
    /// Heartbeats received.
    beats: u64,
}

/// Result of reading a control connection.
#[must_use]
pub(super) enum Received {
    /// Nothing.
    Nothing,
    /// A sign of life.
    Heartbeat,
    /// The peer leaves gracefully. This side closes the connection too, which is the acknowledgement.
    GracefulClose(MachineId),
    /// The connection was closed.
    End(MachineId),
    /// Nothing sent on the connection arrived for the limit of silence.
    Silent(MachineId),
    /// The connection broke, or brought an invalid byte.
    Broken(MachineId, String),
}

impl ControlConnections {
    pub(super) fn new(limits: Limits) -> ControlConnections {
        ControlConnections {
            limits,
            connections: HashMap::new(),
            tokens: HashMap::new(),
            last_beat: Instant::now(),
            round: 0,
        }
    }

    pub(super) fn add(&mut self, token: u64, peer: MachineId, stream: TcpStream) {
        self.tokens.insert(peer, token);
        let (turn, silent) = (Turn::default(), Duration::ZERO);
        self.connections.insert(token, ControlConnection { peer, stream, turn, was_heard: false, silent, beats: 0 });
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

    /// Returns the time between two heartbeats, which is also the interval of the clock checks.
    pub(super) fn tick(&self) -> Duration {
        self.limits.heartbeat.min(self.limits.silence / 4)
    }

    /// Notes bytes of a peer on another connection.
    pub(super) fn heard_of(&mut self, peer: MachineId) {
        if let Some(link) = self.tokens.get(&peer).and_then(|token| self.connections.get_mut(token)) {
            link.was_heard = true;
        }
    }

    /// Returns whether a peer has given a sign of life lately, by any connection.
    pub(super) fn is_heard(&self, peer: MachineId) -> bool {
        let link = self.tokens.get(&peer).and_then(|token| self.connections.get(token));
        link.is_some_and(|link| link.was_heard || link.silent < self.limits.silence / 2)
    }

    /// Returns, if it is time for heartbeats, the time to count as possible silence.
    ///
    /// This thread accounts for its own delay first. It runs late where its host has more work than cores,
    /// and so do the threads of the peers; their bytes may lie here unread. So of the time between two ticks
    /// at most one and a half ticks count as silence.
    pub(super) fn take_tick(&mut self, now: Instant) -> Option<Duration> {
        let (since, tick) = (now.duration_since(self.last_beat), self.tick());
        if since < tick {
            return None;
        }
        self.last_beat = now;
        self.round += 1;
        Some(since.min(tick.saturating_add(tick / 2)))
    }

    /// Returns the current round, for so many connections: all get a heartbeat in it, or with many connections
    /// those whose turn it is.
    pub(super) fn round(&self, connections: usize) -> Round {
        let rounds_max = (self.limits.silence.as_nanos() / 2 / self.tick().as_nanos().max(1)).max(1);
        let turns = connections.div_ceil(BEATS_MAX).max(1) as u64;
        Round { number: self.round, turns: turns.min(u64::try_from(rounds_max).unwrap_or(u64::MAX)) }
    }

    /// Sends heartbeats to the peers whose turn it is. Returns those that have been silent for too long, after
    /// `passed` more time.
    pub(super) fn beat(&mut self, passed: Duration, round: Round) -> Vec<(MachineId, Duration)> {
        for (number, link) in self.connections.values_mut().enumerate() {
            match std::mem::take(&mut link.was_heard) {
                true => link.silent = Duration::ZERO,
                false => link.silent = link.silent.saturating_add(passed),
            }
            if link.turn.is_due(number, round) {
                link.turn.take(round);
                // A full socket has enough heartbeats in it; a broken one shows when it is read.
                let _ = send(&link.stream, &[HEARTBEAT], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
        }
        let silent = self.connections.values().filter(|link| link.silent >= self.limits.silence);
        silent.map(|link| (link.peer, link.silent)).collect()
    }

    /// Returns the number of heartbeats received from a peer.
    pub(super) fn beats_of(&self, peer: MachineId) -> u64 {
        self.tokens.get(&peer).and_then(|token| self.connections.get(token)).map_or(0, |link| link.beats)
    }

    /// Returns the number of peers.
    pub(super) fn count(&self) -> usize {
        self.connections.len()
    }

    /// Tells all peers that this machine leaves. They close their ends.
    pub(super) fn close_gracefully(&mut self) {
        for link in self.connections.values() {
            // A peer that misses it may take the end of the connection for a death.
            let _ = send(&link.stream, &[GRACEFUL_CLOSE], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            let _ = link.stream.shutdown(Shutdown::Write);
        }
    }

    /// Reads a control connection.
    pub(super) fn receive(&mut self, token: u64) -> Received {
        let Some(link) = self.connections.get_mut(&token) else {
            return Received::Nothing;
        };
        let peer = link.peer;
        let mut buffer = [0; 256];
        let received = match recv(&link.stream, &mut buffer, RecvFlags::DONTWAIT) {
            // A process that ends with unread bytes resets its connections.
            Ok((_, 0)) | Err(Errno::CONNRESET) => Received::End(peer),
            Ok((_, bytes)) => {
                link.was_heard = true;
                link.beats += bytes as u64;
                match buffer[..bytes].iter().find(|byte| **byte != HEARTBEAT) {
                    None => return Received::Heartbeat,
                    Some(&GRACEFUL_CLOSE) => Received::GracefulClose(peer),
                    Some(byte) => Received::Broken(peer, format!("it said {byte:#04x} where only heartbeats belong")),
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
            // Other connections may show that the peer lives: the caller checks before it drops this one.
            Err(error) if is_silence(error) => return Received::Silent(peer),
            Err(error) => Received::Broken(peer, explain(error)),
        };
        self.connections.remove(&token);
        received
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    const PEER: MachineId = MachineId(1);

    /// Makes one control connection, and the peer's end of it.
    fn connected(limits: Limits) -> (ControlConnections, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut control = ControlConnections::new(limits);
        control.add(7, PEER, stream);
        (control, listener.accept().unwrap().0)
    }

    fn beat(control: &mut ControlConnections, now: Instant) -> Vec<(MachineId, Duration)> {
        control.take_tick(now).map_or_else(Vec::new, |passed| control.beat(passed, control.round(1)))
    }

    fn limits() -> Limits {
        Limits { heartbeat: Duration::from_millis(250), silence: Duration::from_millis(2750) }
    }

    #[test]
    fn each_of_many_connections_has_its_turn_in_time() {
        for (connections, rounds) in [(1, 1), (64, 1), (65, 2), (256, 4), (100_000, 5)] {
            let mut control = ControlConnections::new(limits());
            let mut turns: Vec<(Turn, u32)> = (0..connections).map(|_| Default::default()).collect();
            for _ in 0..20 * rounds {
                control.round += 1;
                let round = control.round(connections);
                for (place, (turn, count)) in turns.iter_mut().enumerate() {
                    if turn.is_due(place, round) {
                        turn.take(round);
                        *count += 1;
                    }
                }
            }
            assert!(turns.iter().all(|(_, count)| *count == 20), "{connections} connections");
        }
    }

    /// The order of a map changes with its growth: no connection loses its turn by that.
    #[test]
    fn connections_keep_their_turns_while_others_are_made() {
        let mut control = ControlConnections::new(limits());
        let mut all: HashMap<u64, (Turn, u64)> = HashMap::new();
        for number in 1..200 {
            control.round += 1;
            let round = control.round(all.len());
            for (place, (turn, last)) in all.values_mut().enumerate() {
                if turn.is_due(place, round) {
                    turn.take(round);
                    *last = number;
                }
                assert!(number - *last < 5, "a connection without a heartbeat since round {last}, in round {number}");
            }
            all.extend((0..7).map(|new| (7 * number + new, (Turn::default(), number))));
        }
        assert_eq!(control.round(all.len()).turns, 5);
    }

    #[test]
    fn a_silent_peer_is_told_in_time_and_later_by_who_is_late() {
        for (between, looks) in [(250, 11), (375, 8), (2000, 8), (60_000, 8)] {
            let (mut control, _peer) = connected(limits());
            let start = control.last_beat;
            let at = |look: u32| start + look * Duration::from_millis(between);
            for look in 1..looks {
                assert!(beat(&mut control, at(look)).is_empty(), "look {look} of those each {between} ms");
                assert!(beat(&mut control, at(look)).is_empty(), "it is not time");
            }
            assert_eq!(beat(&mut control, at(looks)).len(), 1, "looks each {between} ms");
        }
    }

    #[test]
    fn a_peer_that_is_heard_begins_anew() {
        let (mut control, mut peer) = connected(limits());
        let start = control.last_beat;
        for look in 1..100 {
            if look % 10 == 0 {
                peer.write_all(&[HEARTBEAT]).unwrap();
                let is_there = || control.receive(7);
                let mut is_there = is_there;
                while !matches!(is_there(), Received::Heartbeat) {
                    std::thread::yield_now();
                }
            }
            assert!(beat(&mut control, start + look * Duration::from_millis(250)).is_empty(), "look {look}");
            assert_eq!(control.is_heard(PEER), look % 10 < 6 && look > 9 || look < 6, "look {look}");
        }
    }
}
