//! Receiving end: all incoming connections of a machine, and the handling of their bytes, so that writes
//! arrive whether or not workers poll.
//!
//! Here: taking over authenticated connections, storing the frames of data connections, and the end. Beside
//! it: `poller_lock.rs` (whether the I/O thread or a worker polls), `frame.rs` (the meaning of the bytes),
//! `incoming.rs` (connections until they are authenticated), `control.rs` (control connections: heartbeats,
//! graceful close, silence).
//!
//! No byte is trusted: a peer that sends invalid bytes is dead from then on, and no other peer suffers.
//! Nothing blocks: all sockets are read and written without waiting.

use super::Limits;
use super::breaks::Break;
use super::control::{ControlConnections, Received};
use super::frame::{Event, Intake};
use super::greeting::{Claim, Use};
use super::incoming::{Authenticated, Incoming, watch};
use super::outgoing;
use super::serving::Serving;
use super::shared::{Order, TcpShared};
use crate::deadline::deadline_after;
use crate::error::Error;
use crate::ids::{Loss, MachineId};
use crate::park;
use crate::secure::Key;
use rustix::event::epoll::EventFlags;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Reads from one connection before the others get their turn.
const READS_MAX: usize = 4;
/// Events that a worker takes at once.
const LOOK_EVENTS_MAX: usize = 16;
/// Time for the graceful close of a machine to arrive after one of its connections broke.
const CLOSE_WAIT: Duration = Duration::from_millis(500);
/// Rounds of a peer's heartbeats in which each of its unused connections has had its turn.
const ROUNDS: u64 = 3;
/// Time for the peers to acknowledge a graceful close.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

const WAKER: u64 = 0;
/// Token of the listener; those of connections are greater.
const LISTENER: u64 = 1;

pub(super) struct Poller {
    shared: Arc<TcpShared>,
    epoll: Arc<OwnedFd>,
    incoming: Incoming,
    data: HashMap<u64, Data>,
    control: ControlConnections,
    /// Workers of each machine that have their connection.
    accepted: HashSet<(MachineId, u16)>,
    scratch: Box<[u8]>,
    /// Deadline for the peers' acknowledgement of the graceful close.
    leaving: Option<Instant>,
    is_stopped: bool,
}

/// Result of a worker's look.
#[must_use]
pub(super) struct Looked {
    /// Bytes came, and were received.
    pub(super) has_received: bool,
    /// Events came that are left to the I/O thread.
    pub(super) is_for_io_thread: bool,
}

/// A data connection.
struct Data {
    peer: MachineId,
    worker: u16,
    stream: TcpStream,
    intake: Intake,
    /// The peer's queries about this machine's shares, after the first one.
    serving: Option<Box<Serving>>,
    /// The socket had no room for an answer.
    is_stuck: bool,
    /// Set by received bytes, cleared at each tick.
    was_heard: bool,
    /// A heartbeat has come, so more will, unless they are lost on the way.
    beats: bool,
    /// Length of the silence, and the peer's total of heartbeats when bytes last came.
    silent: Duration,
    beats_before: u64,
}

/// Reason to read a data connection no further.
enum End {
    /// The connection has ended, with the break if it is suspicious.
    Connection(Option<Break>),
    /// Its bytes show that the peer is no longer a correct machine of this program.
    Peer(String),
}

impl Data {
    fn new(peer: MachineId, worker: u16, stream: TcpStream) -> Data {
        let (intake, serving, silent) = (Intake::default(), None, Duration::ZERO);
        Data {
            peer,
            worker,
            stream,
            intake,
            serving,
            is_stuck: false,
            was_heard: false,
            beats: false,
            silent,
            beats_before: 0,
        }
    }

    /// Accounts for `passed` more time and a total of `beats` heartbeats of the peer. Returns whether this
    /// connection has had none for too long, although the peer's heartbeat thread has had several rounds:
    /// otherwise that thread is late with all.
    fn is_silent(&mut self, passed: Duration, beats: u64, limit: Duration) -> bool {
        if std::mem::take(&mut self.was_heard) || !self.beats {
            (self.silent, self.beats_before) = (Duration::ZERO, beats);
        } else {
            self.silent = self.silent.saturating_add(passed);
        }
        self.silent >= limit && beats.saturating_sub(self.beats_before) >= ROUNDS
    }

    /// Takes in received bytes. Returns whether there were any.
    fn receive(
        &mut self,
        shared: &TcpShared,
        control: &mut ControlConnections,
        scratch: &mut [u8],
    ) -> Result<bool, End> {
        let (serving, beats, region) = (&mut self.serving, &mut self.beats, &shared.region);
        let mut event = |event| match event {
            // `Intake` has checked that there is such a word; if a wake fails for another reason, the
            // worker's sleep ends by itself.
            Event::Wake(offset) => {
                if let Ok(word) = region.word32(offset) {
                    let _ = park::wake(word);
                }
                Ok(())
            }
            Event::Question(question) => serving.get_or_insert_default().ask(question),
            Event::Heartbeat => {
                *beats = true;
                Ok(())
            }
        };
        for read in 0..READS_MAX {
            match recv(&self.stream, &mut *scratch, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {
                    let cut = || {
                        Break::Explained(format!("the connection of its worker {} ended within a write", self.worker))
                    };
                    return Err(End::Connection(self.intake.is_within_frame().then(cut)));
                }
                Ok((_, bytes)) => {
                    control.heard_of(self.peer);
                    self.was_heard = true;
                    if let Err(violation) = self.intake.take(&scratch[..bytes], region, &mut event) {
                        let worker = self.worker;
                        let cause =
                            format!("its worker {worker} sent what no machine of this program sends: {violation}");
                        return Err(End::Peer(cause));
                    }
                    if bytes < READ_BYTES {
                        return Ok(true);
                    }
                }
                Err(Errno::AGAIN) => return Ok(read > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(End::Connection(Some(Break::by(error)))),
            }
        }
        Ok(true)
    }

    /// Sends answers to the peer's queries, as far as the socket takes them.
    fn answer(&mut self, epoll: &OwnedFd, token: u64, shared: &TcpShared) -> Result<(), End> {
        let Some(serving) = &mut self.serving else { return Ok(()) };
        let was_stuck = self.is_stuck;
        let sent = serving.send(&self.stream, &shared.region).and_then(|is_all| {
            self.is_stuck = !is_all;
            let flags = if is_all { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
            match was_stuck == self.is_stuck {
                true => Ok(()),
                false => epoll::modify(epoll, &self.stream, epoll::EventData::new_u64(token), flags),
            }
        });
        sent.map_err(|error| End::Connection(Some(Break::by(error))))
    }
}

impl Poller {
    pub(super) fn new(
        shared: Arc<TcpShared>,
        key: Key,
        listener: TcpListener,
        limits: Limits,
    ) -> Result<Poller, Error> {
        let doing = "preparing to receive";
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system(doing))?);
        watch(&epoll, &shared.waker, WAKER).map_err(Error::system(doing))?;
        let incoming = Incoming::new(listener, key, shared.region.bytes(), Arc::clone(&epoll), LISTENER);
        Ok(Poller {
            shared,
            epoll,
            incoming: incoming.map_err(Error::system(doing))?,
            data: HashMap::new(),
            control: ControlConnections::new(limits),
            accepted: HashSet::new(),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            leaving: None,
            is_stopped: false,
        })
    }

    pub(super) fn epoll(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.epoll)
    }

    /// Handles one event, whose cause may be gone.
    pub(super) fn handle(&mut self, token: u64) -> Result<(), Errno> {
        match token {
            WAKER => {
                self.shared.waker.clear();
                self.obey();
            }
            LISTENER => self.welcome()?,
            token if outgoing::peer_of(token).is_some() => self.check_outgoing(token),
            token if self.incoming.has(token) => self.greet(token),
            token => {
                self.take(token);
            }
        }
        Ok(())
    }

    /// Takes the bytes received on authenticated connections.
    pub(super) fn look(&mut self) -> Looked {
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut looked = Looked { has_received: false, is_for_io_thread: false };
        let mut events = [const { MaybeUninit::uninit() }; LOOK_EVENTS_MAX];
        // A failure here fails for the I/O thread too, which reports it.
        if let Ok((events, _)) = epoll::wait(&*self.epoll, &mut events, Some(&AT_ONCE)) {
            for event in events {
                match event.data.u64() {
                    WAKER | LISTENER => looked.is_for_io_thread = true,
                    token if outgoing::peer_of(token).is_some() || self.incoming.has(token) => {
                        looked.is_for_io_thread = true;
                    }
                    token => looked.has_received |= self.take(token),
                }
            }
        }
        looked
    }

    /// Reads an authenticated connection, and answers its queries. Returns whether there were any bytes.
    fn take(&mut self, token: u64) -> bool {
        let Some(data) = self.data.get_mut(&token) else {
            return self.receive(token);
        };
        let peer = data.peer;
        let received = data.receive(&self.shared, &mut self.control, &mut self.scratch);
        // All that shares cost on a connection that never uses one.
        let received = match data.serving.is_some() {
            true => {
                received.and_then(|has_received| data.answer(&self.epoll, token, &self.shared).map(|()| has_received))
            }
            false => received,
        };
        match received {
            Ok(has_received) => has_received,
            Err(End::Connection(how)) => {
                if let Some(how) = how {
                    self.shared.suspect(peer, how);
                }
                self.data.remove(&token);
                true
            }
            Err(End::Peer(cause)) => {
                self.mark_dead(peer, cause);
                true
            }
        }
    }

    /// Returns the time between two clock checks while no timeout is near.
    pub(super) fn tick(&self) -> Duration {
        self.control.tick()
    }

    /// Returns whether the end is reached: the peers have acknowledged the graceful close, or their time is over.
    pub(super) fn is_over(&self) -> bool {
        let has_left = self.leaving.is_some_and(|deadline| self.control.is_empty() || Instant::now() >= deadline);
        self.is_stopped || has_left
    }

    /// Closes all connections.
    pub(super) fn close(&mut self) {
        self.incoming.clear();
        self.data.clear();
        self.control.clear();
    }

    /// Executes orders.
    fn obey(&mut self) {
        for order in self.shared.take_orders() {
            match order {
                Order::Control(peer, stream) => self.add_control(peer, stream),
                Order::Leave => {
                    self.control.close_gracefully();
                    self.leaving = Some(deadline_after(LEAVE_TIMEOUT));
                }
                Order::Stop => self.is_stopped = true,
            }
        }
    }

    /// Does the work that depends on the clock. Returns whether the next check should be soon.
    pub(super) fn keep_time(&mut self) -> Result<bool, Errno> {
        let now = Instant::now();
        self.incoming.keep_time(now)?;
        if let Some(passed) = self.control.take_tick(now) {
            self.beat(passed);
        }
        let (dead, is_open) = self.shared.dead_suspects(CLOSE_WAIT);
        for (peer, how) in dead {
            let cause = match how {
                Break::Explained(cause) => cause,
                Break::Silent => self.cause_of_silence(peer),
            };
            self.shared.liveness.mark_lost(peer, Loss::Died, cause);
            // The control connection stays: a close would look to a live peer like the death of this machine,
            // and be reported as the cause.
            self.data.retain(|_, data| data.peer != peer);
        }
        Ok(is_open || self.incoming.is_busy() || self.leaving.is_some())
    }

    /// Sends heartbeats on all connections, and looks for silent ones.
    fn beat(&mut self, passed: Duration) {
        let round = self.control.round(self.control.count() + self.shared.outgoing.count());
        for (peer, silence) in self.control.beat(passed, round) {
            let silence_s = silence.as_secs_f32();
            let cause =
                format!("nothing was heard of it for {silence_s:.1} s: its host is cut off, or it stands still");
            self.mark_dead(peer, cause);
        }
        self.shared.outgoing.beat(round);
        for data in self.data.values_mut() {
            if data.is_silent(passed, self.control.beats_of(data.peer), self.shared.silence) {
                self.shared.suspect(data.peer, Break::Silent);
            }
        }
    }

    /// Handles an error of a data connection that this side has made, and whose worker may not be there to see it.
    fn check_outgoing(&mut self, token: u64) {
        let Some(peer) = outgoing::peer_of(token) else { return };
        // None: it was closed, or its worker has seen and reported the error.
        if let Some(error) = self.shared.outgoing.take_error(&self.epoll, token) {
            self.shared.suspect(peer, Break::by(error));
        }
    }

    /// Returns the reason why a connection to a peer is silent, in words for the user.
    fn cause_of_silence(&self, peer: MachineId) -> String {
        let silence_s = self.shared.silence.as_secs_f32();
        if !self.control.is_heard(peer) {
            return format!(
                "its host does not answer any more, it is down or cut off (nothing came for {silence_s:.1} s)"
            );
        }
        let port = self.shared.address(peer).map_or_else(|_| String::new(), |address| format!(" to {address}"));
        format!(
            "the packets of one connection{port} are lost on the way: nothing came back on it for {silence_s:.1} s, \
             though other connections of the two machines work; a firewall or NAT between them drops that connection, \
             or the path drops long packets (MTU)"
        )
    }

    /// Accepts new connections.
    fn welcome(&mut self) -> Result<(), Errno> {
        let before = self.incoming.crowd();
        let authenticated = self.incoming.accept(&is_wanted(&self.shared, &self.accepted, &self.control))?;
        authenticated.into_iter().for_each(|connection| self.accept(connection));
        let crowd = self.incoming.crowd();
        if crowd != before {
            self.shared.set_crowd(crowd);
        }
        Ok(())
    }

    /// Continues a handshake.
    fn greet(&mut self, token: u64) {
        let authenticated = self.incoming.advance(token, &is_wanted(&self.shared, &self.accepted, &self.control));
        authenticated.into_iter().for_each(|connection| self.accept(connection));
    }

    /// Takes over an authenticated connection.
    fn accept(&mut self, Authenticated { token, claim, stream }: Authenticated) {
        // Checked again: of two connections with one claim, the other may be accepted by now.
        if !is_wanted(&self.shared, &self.accepted, &self.control)(&claim) {
            return;
        }
        match claim.purpose {
            Use::Control => {
                self.control.add(token, claim.from, stream);
                self.shared.arrived(claim.from, claim.region_bytes as usize);
                self.receive(token);
            }
            Use::Data { worker } => {
                self.accepted.insert((claim.from, worker));
                // An answer to a read that waits for the acknowledgement of the one before is 40 ms late. If
                // the option is refused, answers are late.
                let _ = stream.set_nodelay(true);
                self.data.insert(token, Data::new(claim.from, worker, stream));
                self.take(token);
            }
        }
    }

    /// Takes over a control connection that this side has made.
    fn add_control(&mut self, peer: MachineId, stream: TcpStream) {
        let token = self.incoming.new_token();
        match watch(&self.epoll, &stream, token) {
            Ok(()) => self.control.add(token, peer, stream),
            Err(error) => self.mark_dead(peer, format!("it cannot be listened to: {}", std::io::Error::from(error))),
        }
    }

    /// Reads a control connection. Returns whether there was anything.
    fn receive(&mut self, token: u64) -> bool {
        match self.control.receive(token) {
            Received::Nothing => return false,
            Received::Heartbeat => {}
            Received::GracefulClose(peer) => self.shared.liveness.mark_lost(peer, Loss::Left, ""),
            Received::End(_) if self.leaving.is_some() => {}
            Received::End(peer) => {
                self.mark_dead(peer, "its connection closed without a graceful close: its process has ended".to_owned())
            }
            Received::Silent(peer) => self.mark_dead(peer, self.cause_of_silence(peer)),
            Received::Broken(peer, reason) => self.mark_dead(peer, reason),
        }
        true
    }

    /// Marks a peer dead, with the cause.
    fn mark_dead(&mut self, peer: MachineId, cause: String) {
        self.shared.liveness.mark_lost(peer, Loss::Died, cause);
        self.forget(peer);
    }

    /// Shuts out a peer that was declared dead. It makes no new connection either: it counts as lost.
    pub(super) fn shut_out(&mut self, peer: MachineId) {
        self.mark_dead(peer, "it was declared dead".to_owned());
        self.shared.outgoing.shut(peer);
    }

    /// Drops all connections of a peer.
    fn forget(&mut self, peer: MachineId) {
        self.control.remove(peer);
        self.data.retain(|_, data| data.peer != peer);
    }
}

#[cfg(test)]
impl Poller {
    /// Returns the number of data connections that were ever accepted.
    pub(super) fn accepted(&self) -> usize {
        self.accepted.len()
    }

    /// Returns for each accepted data connection whether it sends without delay.
    pub(super) fn accepted_nodelays(&self) -> Vec<bool> {
        self.data.values().map(|data| data.stream.nodelay().unwrap()).collect()
    }
}

/// Returns a test for claims: the claimed identity is a machine of this program that has no such connection yet.
fn is_wanted<'a>(
    shared: &'a TcpShared,
    accepted: &'a HashSet<(MachineId, u16)>,
    control: &'a ControlConnections,
) -> impl Fn(&Claim) -> bool + use<'a> {
    move |claim| {
        let is_here = claim.to == shared.machine && claim.machines == shared.machines();
        let is_served = shared.is_served(claim.from);
        let is_new = match claim.purpose {
            Use::Control => claim.from < shared.machine && !control.has(claim.from),
            Use::Data { worker } => !accepted.contains(&(claim.from, worker)),
        };
        let fits = usize::try_from(claim.region_bytes).is_ok();
        is_here && is_served && is_new && fits
    }
}
