//! Streams of one worker to all workers of other machines, as `trust` uses them (`trust::link::Carrier`). Service
//! threads are workers here like any other.
//!
//! Each worker of another machine has two streams: one on which it is the trustee and this worker the client, one the
//! other way round. Flags are polled in two dense tables, so an idle turn costs a load and a comparison for each
//! stream.
//!
//! Invariants: an operation that leaves here lies in this program's read-only data (`Image::operation_at`). A violation
//! by a peer, or an error of the fabric, ends the program with a text that names both ends.

#![allow(unsafe_code)] // `Carrier` is a promise

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use comm::{Fabric, MachineId, WORD_BYTES, WorkerId};
use trust::TrusteeId;
use trust::link::{Buffer, Carrier, Operation};

use super::connections::Connection;
use super::gate::{AtGate, Gate};
use super::image::Image;
use super::slot::Violation;
use super::stream::FrameStream;
use crate::losses::record;
use crate::view::traffic::Sent;
use crate::{Place, fate};

/// Carrier of one worker; see the file's documentation.
pub(super) struct RackCarrier {
    fabric: Arc<dyn Fabric>,
    image: &'static Image,
    worker: WorkerId,
    own: Place,
    room_bytes: usize,
    ids: Vec<TrusteeId>,
    service: TrusteeId,
    services: Vec<TrusteeId>,
    peers: Vec<Peer>,
    connections: Vec<Rc<Connection>>,
    sent: Arc<Sent>,
    /// Flags of each peer's next request, and next answer.
    requests: Vec<Watch>,
    answers: Vec<Watch>,
    /// Streams with a frame that waits for room.
    stalled: Vec<(Role, usize)>,
    gate: AtGate<(Role, usize)>,
    /// Streams that may owe the peer an acknowledgement at the end of the turn.
    owing: Vec<(Role, usize)>,
}

/// Worker of another machine.
pub(super) struct Peer {
    pub(super) place: Place,
    /// Index of its machine's connection.
    pub(super) connection: usize,
    pub(super) as_client: FrameStream,
    pub(super) as_trustee: FrameStream,
}

/// Role of the own worker on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Trustee,
}

/// Flag that will show the next write: its word in the region, and its value before.
pub(super) struct Watch {
    word: usize,
    before: u64,
}

impl Watch {
    pub(super) fn of(stream: &FrameStream) -> Watch {
        let (offset, before) = stream.next_flag();
        Watch { word: offset / WORD_BYTES, before }
    }

    /// Has the flag changed, which is one of these words of the region?
    #[inline]
    pub(super) fn has_changed(&self, words: &[AtomicU64]) -> bool {
        // Acquire of [flag-last] (`comm::fabric`), as in `FrameStream::receive`; a peer's `Connection::write` is the
        // Release.
        words.get(self.word).is_none_or(|word| word.load(Ordering::Acquire) != self.before)
    }
}

impl RackCarrier {
    pub(super) fn new(
        fabric: Arc<dyn Fabric>,
        image: &'static Image,
        own: Place,
        room_bytes: usize,
        peers: Vec<Peer>,
        (service, services): (TrusteeId, Vec<TrusteeId>),
        connections: Vec<Rc<Connection>>,
    ) -> RackCarrier {
        RackCarrier {
            fabric,
            image,
            worker: WorkerId(own.worker),
            own,
            room_bytes,
            ids: peers.iter().map(|peer| peer.place.trustee_id()).collect(),
            service,
            services,
            requests: peers.iter().map(|peer| Watch::of(&peer.as_trustee)).collect(),
            sent: Sent::new(peers.iter().map(|peer| usize::from(peer.place.machine) + 1).max().unwrap_or(0)),
            answers: peers.iter().map(|peer| Watch::of(&peer.as_client)).collect(),
            peers,
            connections,
            stalled: Vec::new(),
            gate: AtGate::new(None),
            owing: Vec::new(),
        }
    }

    /// Frames to workers pass this gate.
    pub(super) fn behind(self, gate: Option<Gate>) -> RackCarrier {
        RackCarrier { gate: AtGate::new(gate), ..self }
    }

    /// Calls `act` with one stream. A violation ends the program; `what` is its subject in the message.
    fn with<R>(
        &mut self,
        role: Role,
        place: usize,
        what: &str,
        act: impl FnOnce(&mut FrameStream, &dyn Fabric, &Connection) -> Result<R, Violation>,
    ) -> R {
        let peer = &mut self.peers[place];
        let connection = &self.connections[peer.connection];
        let stream = match role {
            Role::Client => &mut peer.as_client,
            Role::Trustee => &mut peer.as_trustee,
        };
        match act(stream, &*self.fabric, connection) {
            Ok(value) => value,
            Err(violation) => self.fail(place, what, &violation),
        }
    }

    #[cold]
    fn fail(&self, place: usize, what: &str, violation: &Violation) -> ! {
        end_by(&*self.fabric, self.own, what, self.peers[place].place, violation)
    }

    fn send_on(&mut self, role: Role, place: usize, what: &str, frame: &mut Buffer, note: u32) {
        self.sent.add(self.peers[place].place.machine, frame.len());
        if self.gate.is_there() && self.hold_back(role, place, frame, note) {
            return;
        }
        let stalls = self.with(role, place, what, |stream, fabric, connection| {
            stream.send(fabric.region(), connection, frame, note)?;
            Ok(stream.is_sending())
        });
        if stalls {
            self.stalled.push((role, place));
        }
    }

    /// Shows a frame to the gate, and holds it back if that says so.
    #[cold]
    fn hold_back(&mut self, role: Role, place: usize, frame: &mut Buffer, note: u32) -> bool {
        let peer = &self.peers[place];
        if self.services.contains(&peer.place.trustee_id()) || record::is_shut_out(peer.place.machine) {
            return false;
        }
        let is_held = self.gate.holds(frame.bytes(), (role, place));
        if is_held {
            self.with(role, place, "a message to", |stream, _, _| stream.hold(frame, note));
        }
        is_held
    }

    fn receive_on(&mut self, role: Role, place: usize, what: &str, into: &mut Buffer) -> Option<u32> {
        let (received, watch, owes) = self.with(role, place, what, |stream, fabric, _| {
            let received = stream.receive(fabric.region(), into)?;
            Ok((received, Watch::of(stream), stream.owes_ack()))
        });
        match role {
            Role::Client => self.answers[place] = watch,
            Role::Trustee => self.requests[place] = watch,
        }
        if owes {
            self.owing.push((role, place));
        }
        received
    }

    /// May a batch of this peer begin? Not before the last answer to it is sent; never if its machine was shut out.
    fn may_serve(&self, place: usize) -> bool {
        let Peer { place, as_trustee, .. } = &self.peers[place];
        !as_trustee.is_sending() && !record::is_shut_out(place.machine)
    }

    /// Returns the first of these flags, from that place on, that has changed.
    #[inline]
    fn find(&self, watched: &[Watch], from: usize, but: impl Fn(usize) -> bool) -> Option<usize> {
        let region = self.fabric.region();
        // A region is a whole number of words.
        let words = region.words(0, region.bytes()).unwrap_or_default();
        let rest = watched.get(from..)?;
        (from..).zip(rest).find(|(place, watch)| watch.has_changed(words) && !but(*place)).map(|(place, _)| place)
    }
}

/// Ends the program: `other` has sent what makes no sense, or cannot be reached. `what` is the subject of the message.
#[cold]
pub(super) fn end_by(fabric: &dyn Fabric, own: Place, what: &str, other: Place, violation: &Violation) -> ! {
    let cause = fabric.cause(MachineId(other.machine)).map_or(String::new(), |cause| format!(" ({cause})"));
    fate::end(&format!("{own}: {what} {other}: {violation}{cause}"))
}

// SAFETY: the handshake refuses a peer with another image (`hello`), so positions name the same operations on both
// sides; frames come as they were sent, in order and once: each write is seen whole when its number shows [flag-last],
// and pieces are put together in the order of their numbers (`stream`). A peer with the program's key that breaks
// this could write into the region as well.
unsafe impl Carrier for RackCarrier {
    fn peers(&self) -> &[TrusteeId] {
        &self.ids
    }

    fn service(&self) -> TrusteeId {
        self.service
    }

    fn services(&self) -> &[TrusteeId] {
        &self.services
    }

    fn room_bytes(&self) -> usize {
        self.room_bytes
    }

    fn position(&self, operation: &'static Operation) -> u64 {
        self.image.position(operation).unwrap_or_else(|violation| fate::end(&violation.to_string()))
    }

    fn operation_at(&self, position: u64) -> Option<&'static Operation> {
        self.image.operation_at(position).ok()
    }

    fn can_send(&mut self, place: usize) -> bool {
        self.with(Role::Client, place, "a write of", |stream, fabric, _| stream.can_send(fabric.region()))
    }

    fn send(&mut self, place: usize, batch: &mut Buffer, requests: u32) {
        self.send_on(Role::Client, place, "a request to", batch, requests);
    }

    fn receive_answer(&mut self, place: usize, into: &mut Buffer) -> Option<u32> {
        self.receive_on(Role::Client, place, "an answer of", into)
    }

    fn find_requests(&self, from: usize) -> Option<usize> {
        self.find(&self.requests, from, |place| !self.may_serve(place))
    }

    fn receive_requests(&mut self, place: usize, into: &mut Buffer) -> Option<u32> {
        if !self.may_serve(place) {
            return None;
        }
        self.receive_on(Role::Trustee, place, "a request of", into)
    }

    fn answer(&mut self, place: usize, answer: &mut Buffer, faults_bytes: u32) {
        self.send_on(Role::Trustee, place, "an answer to", answer, faults_bytes);
    }

    fn turn(&mut self) {
        if let Err(error) = self.fabric.poll(self.worker) {
            fate::end(&format!("{}: {error}", self.own));
        }
        self.gate.let_go(|stream| self.stalled.push(stream));
        for at in (0..self.stalled.len()).rev() {
            let (role, place) = self.stalled[at];
            let stalls = self.with(role, place, "a large message to", |stream, fabric, connection| {
                stream.go_on(fabric.region(), connection)?;
                Ok(stream.is_sending())
            });
            if !stalls {
                self.stalled.swap_remove(at);
            }
        }
    }

    fn flush(&mut self) {
        for (role, place) in std::mem::take(&mut self.owing) {
            self.with(role, place, "an acknowledgement to", |stream, _, connection| {
                if stream.owes_ack() { stream.send_ack(connection) } else { Ok(()) }
            });
        }
        for connection in 0..self.connections.len() {
            if let Err(error) = self.connections[connection].flush() {
                let place = self.peers.iter().position(|peer| peer.connection == connection).unwrap_or_default();
                self.fail(place, "what was sent to", &Violation::from(error));
            }
        }
    }

    fn has_work(&self) -> bool {
        let goes_on = |&(role, place): &(Role, usize)| {
            let peer = &self.peers[place];
            let stream = if role == Role::Client { &peer.as_client } else { &peer.as_trustee };
            stream.can_go_on(self.fabric.region())
        };
        self.find_requests(0).is_some()
            || self.find(&self.answers, 0, |_| false).is_some()
            || self.stalled.iter().any(goes_on)
            || self.gate.has_work()
    }

    fn lose(&mut self, machine: u16) {
        let region = self.fabric.region();
        let words = region.words(0, region.bytes()).unwrap_or_default();
        for (place, _) in self.peers.iter().enumerate().filter(|(_, peer)| peer.place.machine == machine) {
            // The machine is shut out, so these flags stay as they are: none will be seen to change.
            for watch in [&mut self.requests[place], &mut self.answers[place]] {
                // Relaxed: nothing behind the flag is read.
                watch.before = words.get(watch.word).map_or(watch.before, |word| word.load(Ordering::Relaxed));
            }
        }
        let peers = &self.peers;
        self.stalled.retain(|(_, place)| peers[*place].place.machine != machine);
        self.gate.lose(|(_, place)| peers[place].place.machine == machine);
        self.owing.retain(|(_, place)| peers[*place].place.machine != machine);
    }

    fn end(&self, place: usize, what: &str) -> ! {
        self.fail(place, "a message of", &Violation::new(what))
    }
}
