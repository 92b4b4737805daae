//! Batches of one thread to all threads of other machines by machine ways, as `trust` uses them
//! (`trust::link::Carrier`). The counterpart of the carrier by rings (`super::super::carrier`).
//!
//! A turn: looks at some of the ways, takes what is in the mailbox, goes on with frames that wait for room; at its end,
//! sees to the ways that it has used. Frames that had to wait there for those in flight leave at the end of the next
//! turn without any, or before the thread sleeps: it would do nothing meanwhile. Those of a machine's only worker leave
//! at once, for no others could go with them. Pairs that send much have direct ways (`direct`). Nothing here waits, but
//! for the connection of a worker's first direct way to a machine.

#![allow(unsafe_code)] // `Carrier` is a promise

mod direct;
mod incoming;

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use comm::WorkerId;
use gossamer_ways::Peer;
use gossamer_ways::ways::{Limits, Stamp, Way as Route, Ways as Order};
use rustix::time::{ClockId, clock_gettime};
use trust::TrusteeId;
use trust::link::{Buffer, Carrier, Operation};

use super::super::carrier::{Role, end_by};
use super::super::gate::{AtGate, Gate};
use super::super::image::Image;
use super::super::slot::{FRAME_BYTES_MAX, Kind as Part, Violation};
use super::Ways;
use super::mailbox::Mail;
use super::pair::{Buffers, Exchange, Letter, Outgoing};
use super::way::{Sight, Way};
use super::wire::{Head, Kind, PIECE_BYTES, frame_bytes};
use crate::losses::record;
use crate::view::traffic::Sent;
use crate::{Place, fate};
use direct::DirectWays;

/// Ways that a thread looks at in a turn.
const LOOKS: usize = 64;

/// Carrier of one thread; see the file's documentation.
pub(in super::super) struct WaysCarrier {
    ways: Arc<Ways>,
    image: &'static Image,
    own: Place,
    is_service: bool,
    /// No other worker of the machine adds frames that could leave with those of this thread.
    is_alone: bool,
    ids: Vec<TrusteeId>,
    services: Vec<TrusteeId>,
    /// By place.
    peers: Vec<Peer>,
    /// Place of each machine's first thread.
    first: Vec<usize>,
    /// Ways of pairs, and numbers of frames.
    order: Order<Letter>,
    directs: DirectWays,
    /// Writes of this thread to shares of other machines, by machine.
    share_writes: ShareWrites,
    start_ns: u64,
    /// Time since then in this turn, once somebody has asked for it.
    now_ns: Cell<Option<u64>>,
    /// By place; none to those with which there was no exchange.
    exchanges: Vec<Option<Box<Exchange>>>,
    /// Places with requests that have come, in order, and the number of answers that have.
    requests: Vec<usize>,
    answers: usize,
    stalled: Vec<(Role, usize)>,
    /// Places that may owe the peer a credit.
    owing: Vec<usize>,
    gate: AtGate<(Role, usize)>,
    sent: Arc<Sent>,
    /// Machines to whose ways this thread has to see at the end of the turn.
    used: Vec<u16>,
    /// By machine: it is among these.
    is_used: Vec<bool>,
    /// Frames have come or were added in this turn.
    is_busy: bool,
    /// The thread would sleep: what waits for other writes leaves at the end of this turn.
    is_idle: Cell<bool>,
    /// Way to be looked at next.
    next: usize,
    /// Memory to be used again.
    mail: Mail,
    ready: Vec<Letter>,
    buffers: Buffers,
}

/// Counts of one thread, by machine.
pub(super) type ShareWrites = Rc<[Cell<u64>]>;

/// Kind of a frame with what goes along.
#[derive(Clone, Copy)]
struct Content {
    kind: Kind,
    part: Part,
    note: u32,
}

impl Content {
    fn empty(kind: Kind) -> Content {
        Content { kind, part: Part::Whole, note: 0 }
    }
}

impl WaysCarrier {
    /// The carrier of this thread of the own machine.
    pub(in super::super) fn new(ways: Arc<Ways>, image: &'static Image, thread: u16, gate: Option<Gate>) -> Self {
        let (layout, own) = (&ways.layout, Place { machine: ways.own, worker: thread });
        let (mut peers, mut services, mut first) = (Vec::new(), Vec::new(), Vec::new());
        for machine in 0..layout.machines() {
            first.push(peers.len());
            if machine != own.machine {
                peers.extend((0..layout.threads(machine)).map(|worker| Peer { machine, worker }));
                services.push(layout.service(machine).trustee_id());
            }
        }
        let is_hidden = thread >= layout.workers()[usize::from(own.machine)];
        let limits = layout.limits(own.machine);
        let limits = if is_hidden { Limits { rings: 0, ..limits } } else { limits };
        WaysCarrier {
            image,
            own,
            is_service: own == layout.service(own.machine),
            is_alone: layout.workers()[usize::from(own.machine)] == 1,
            ids: peers.iter().map(|peer| place(*peer).trustee_id()).collect(),
            services,
            exchanges: peers.iter().map(|_| None).collect(),
            peers,
            first,
            order: Order::new(ways.rack.clone(), limits),
            directs: DirectWays::new(limits.rings),
            share_writes: (0..layout.machines()).map(|_| Cell::new(0)).collect(),
            start_ns: clock_ns(),
            now_ns: Cell::new(None),
            requests: Vec::new(),
            answers: 0,
            stalled: Vec::new(),
            owing: Vec::new(),
            gate: AtGate::new(gate),
            sent: Sent::new(usize::from(layout.machines())),
            used: Vec::new(),
            is_used: vec![false; usize::from(layout.machines())],
            is_busy: false,
            is_idle: Cell::new(false),
            next: usize::from(thread) % usize::from(layout.machines()),
            mail: Mail::default(),
            ready: Vec::new(),
            buffers: Buffers::default(),
            ways,
        }
    }

    #[cold]
    fn fail(&self, place: usize, what: &str, violation: &Violation) -> ! {
        end_by(&*self.ways.fabric, self.own, what, self::place(self.peers[place]), violation)
    }

    fn use_way(&mut self, machine: u16) {
        if !std::mem::replace(&mut self.is_used[usize::from(machine)], true) {
            self.used.push(machine);
        }
    }

    fn exchange(&mut self, place: usize) -> &mut Exchange {
        self.exchanges[place].get_or_insert_default()
    }

    pub(in super::super) fn share_writes(&self) -> ShareWrites {
        Rc::clone(&self.share_writes)
    }

    fn place_of(&self, peer: Peer) -> usize {
        self.first[usize::from(peer.machine)] + usize::from(peer.worker)
    }

    fn is_worker(&self, peer: Peer) -> bool {
        peer.worker < self.ways.layout.workers()[usize::from(peer.machine)]
    }

    fn now_ns(&self) -> u64 {
        let now_ns = self.now_ns.get().unwrap_or_else(|| clock_ns().wrapping_sub(self.start_ns));
        self.now_ns.set(Some(now_ns));
        now_ns
    }

    /// Adds a frame to its way, which has room: this piece of it.
    fn add(&mut self, place: usize, content: Content, frame: &mut Buffer, range: Range<usize>) {
        let Content { kind, part, note } = content;
        let peer = self.peers[place];
        let given = self.exchanges[place].as_mut().map_or([0; 2], |exchange| exchange.give());
        // A batch counts with its first piece. Hidden threads have no direct ways.
        let counts = kind.is_batch() && range.start == 0 && self.is_worker(peer);
        let bytes = if counts { frame_bytes(frame.len()) } else { 0 };
        let (way, Stamp { number, after }) = self.order.send(peer, bytes, self.now_ns());
        let (len, total) = (range.len() as u32, frame.len() as u64);
        let head = Head { kind, part, len, note, total, number, changes: after.is_some(), given };
        match way {
            Route::Machine => {
                let share_writes = self.share_writes[usize::from(peer.machine)].get();
                self.exchange(place).share_writes = share_writes;
                self.add_to_machine(peer, &head, &frame.bytes()[range]);
            }
            Route::Direct => self.write_directly(place, &head, frame, range),
        }
        if counts {
            self.post();
        }
    }

    fn add_to_machine(&mut self, to: Peer, head: &Head, data: &[u8]) {
        self.ways.add(self.own.worker, to, head, data);
        self.use_way(to.machine);
        self.is_busy = true;
    }

    /// Sends as much of a frame as the pair may have under way, from `sent` on. Returns the bytes sent so far, or
    /// `None` if that is nothing, not even an empty frame. The frame is unchanged afterwards.
    fn write(&mut self, role: Role, place: usize, frame: &mut Buffer, sent: usize, note: u32) -> Option<usize> {
        let (kind, total) = (kind_of(role), frame.len());
        let mut written = None;
        while written.is_none_or(|sent| sent < total) {
            let start = written.unwrap_or(sent);
            let len = (total - start).min(PIECE_BYTES);
            if !self.has_room(place) || !self.exchange(place).under_way[kind as usize].take(frame_bytes(len)) {
                break;
            }
            let part = match (start == 0, start + len == total) {
                (true, true) => Part::Whole,
                (_, true) => Part::Last,
                (_, false) => Part::Piece,
            };
            self.add(place, Content { kind, part, note }, frame, start..start + len);
            written = Some(start + len);
        }
        written
    }

    fn send_on(&mut self, role: Role, place: usize, frame: &mut Buffer, note: u32) {
        if frame.len() as u64 > FRAME_BYTES_MAX {
            let text = format!("a batch came to {} bytes; no more than {FRAME_BYTES_MAX} can travel", frame.len());
            self.fail(place, "a message to", &Violation::new(text));
        }
        self.sent.add(self.peers[place].machine, frame.len());
        if self.gate.is_there() && self.hold_back(role, place, frame) {
            return self.stall(role, place, Outgoing { frame: std::mem::take(frame), sent: 0, note });
        }
        let sent = self.write(role, place, frame, 0, note);
        // A frame of no bytes is sent all the same.
        if sent.is_none_or(|sent| sent < frame.len()) {
            self.stall(role, place, Outgoing { frame: std::mem::take(frame), sent: sent.unwrap_or(0), note });
            self.stalled.push((role, place));
        }
    }

    /// Keeps what could not leave yet, before which no other frame of the stream may be sent.
    fn stall(&mut self, role: Role, place: usize, rest: Outgoing) {
        let before = self.exchange(place).outgoing[kind_of(role) as usize].replace(rest);
        assert!(before.is_none(), "one frame at a time");
    }

    /// Shows a frame to the gate. Returns whether it has to wait there.
    #[cold]
    fn hold_back(&mut self, role: Role, place: usize, frame: &Buffer) -> bool {
        let is_free = self.services.contains(&self.ids[place]) || record::is_shut_out(self.peers[place].machine);
        !is_free && self.gate.holds(frame.bytes(), (role, place))
    }

    /// Goes on with a frame that waits. Returns whether it still does.
    fn go_on(&mut self, role: Role, place: usize) -> bool {
        let kind = kind_of(role) as usize;
        let rest = self.exchanges[place].as_mut().and_then(|exchange| exchange.outgoing[kind].take());
        let Some(mut rest) = rest else { return false };
        let sent = self.write(role, place, &mut rest.frame, rest.sent, rest.note);
        let is_done = sent.is_some_and(|sent| sent == rest.frame.len());
        if !is_done {
            rest.sent = sent.unwrap_or(rest.sent);
            self.stall(role, place, rest);
        }
        !is_done
    }

    fn is_sending(&self, role: Role, place: usize) -> bool {
        self.exchanges[place].as_ref().is_some_and(|exchange| exchange.outgoing[kind_of(role) as usize].is_some())
    }

    /// Looks for writes that have come: the service thread on all ways, and for what others have left.
    fn look(&mut self) {
        let ways = Arc::clone(&self.ways);
        if self.is_service {
            let sight = Sight { thread: self.own.worker, early: true, acknowledges: true };
            ways.arrears.machines().chain(ways.news(0, usize::MAX)).for_each(|machine| ways.see_to(machine, sight));
            return;
        }
        let from = self.next;
        self.next = if from + LOOKS < ways.ways.len() { from + LOOKS } else { 0 };
        for machine in ways.news(from, LOOKS) {
            // Acknowledged at the end of the turn, mostly by a write.
            ways.see_to(machine, Sight { thread: self.own.worker, early: false, acknowledges: false });
            self.use_way(machine);
        }
    }

    /// Has a write come that this thread has to take before it sleeps?
    fn has_news(&self) -> bool {
        let ways = &self.ways;
        ways.news(0, usize::MAX).filter_map(|machine| ways.way(machine)).any(|way| way.has_news_for_sleeper(ways))
    }

    fn receive(&mut self, kind: Kind, place: usize, into: &mut Buffer) -> Option<u32> {
        let exchange = self.exchanges[place].as_mut()?;
        let incoming = &mut exchange.incoming[kind as usize];
        let note = incoming.next(into, &mut self.buffers)?;
        if kind == Kind::Answer {
            exchange.awaited -= 1;
            self.answers -= 1;
        } else if incoming.is_empty()
            && let Ok(at) = self.requests.binary_search(&place)
        {
            self.requests.remove(at);
        }
        if exchange.owes_credit() {
            self.owing.push(place);
        }
        Some(note)
    }

    /// May a batch of this peer begin? Not before the last answer to it is sent; never if its machine was shut out.
    fn may_serve(&self, place: usize) -> bool {
        !self.is_sending(Role::Trustee, place) && !record::is_shut_out(self.peers[place].machine)
    }

    #[cfg(test)]
    pub(super) fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Sees to the ways that were used.
    fn see_to_used(&mut self, early: bool) {
        let (ways, is_used) = (&self.ways, &mut self.is_used);
        let sight = Sight { thread: self.own.worker, early, acknowledges: true };
        self.used.retain(|machine| {
            ways.see_to(*machine, sight);
            let is_used = &mut is_used[usize::from(*machine)];
            *is_used = ways.way(*machine).is_some_and(Way::is_in_arrears);
            *is_used
        });
        // This thread may compute for long before it comes again.
        if !self.used.is_empty() {
            ways.call_service();
        }
    }
}

/// Returns the time in steps of some milliseconds, which is read more quickly than the exact one.
fn clock_ns() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn place(peer: Peer) -> Place {
    Place { machine: peer.machine, worker: peer.worker }
}

/// Frames that the own thread sends in this role.
fn kind_of(role: Role) -> Kind {
    match role {
        Role::Client => Kind::Request,
        Role::Trustee => Kind::Answer,
    }
}

// SAFETY: the handshake refuses a peer with another image (`hello`), so positions name the same operations on both
// sides; frames come as they were sent, in order and once: each write of a way is seen whole when its number shows
// [flag-last], it is taken by one thread, which holds the way's lock, and put into the mailboxes in its order; a direct
// ring has one writer, and is given to another when all that the first one wrote has been taken; frames of both ways
// are taken in the order of their numbers, in which pieces are put together. A peer with the program's key that breaks
// this could write into the region as well.
unsafe impl Carrier for WaysCarrier {
    fn peers(&self) -> &[TrusteeId] {
        &self.ids
    }

    fn service(&self) -> TrusteeId {
        self.ways.layout.service(self.own.machine).trustee_id()
    }

    fn services(&self) -> &[TrusteeId] {
        &self.services
    }

    fn room_bytes(&self) -> usize {
        PIECE_BYTES
    }

    fn position(&self, operation: &'static Operation) -> u64 {
        self.image.position(operation).unwrap_or_else(|violation| fate::end(&violation.to_string()))
    }

    fn operation_at(&self, position: u64) -> Option<&'static Operation> {
        self.image.operation_at(position).ok()
    }

    fn can_send(&mut self, place: usize) -> bool {
        let under_way = self.exchanges[place].as_ref().map(|exchange| exchange.under_way[Kind::Request as usize]);
        let room = under_way.unwrap_or_default().room();
        room >= frame_bytes(PIECE_BYTES) && !self.is_sending(Role::Client, place) && self.has_room(place)
    }

    fn send(&mut self, place: usize, batch: &mut Buffer, requests: u32) {
        self.exchange(place).awaited += 1;
        self.send_on(Role::Client, place, batch, requests);
    }

    fn receive_answer(&mut self, place: usize, into: &mut Buffer) -> Option<u32> {
        if self.answers == 0 { None } else { self.receive(Kind::Answer, place, into) }
    }

    fn find_requests(&self, from: usize) -> Option<usize> {
        let first = self.requests.partition_point(|place| *place < from);
        self.requests[first..].iter().copied().find(|place| self.may_serve(*place))
    }

    fn receive_requests(&mut self, place: usize, into: &mut Buffer) -> Option<u32> {
        if self.may_serve(place) { self.receive(Kind::Request, place, into) } else { None }
    }

    fn answer(&mut self, place: usize, answer: &mut Buffer, faults_bytes: u32) {
        self.send_on(Role::Trustee, place, answer, faults_bytes);
    }

    fn turn(&mut self) {
        if let Err(error) = self.ways.fabric.poll(WorkerId(self.own.worker)) {
            fate::end(&format!("{}: {error}", self.own));
        }
        self.now_ns.set(None);
        self.look();
        // Before the mailbox: frames of the machine way that come behind these would wait for them.
        self.take_direct();
        self.take_mail();
        self.gate.let_go(|stream| self.stalled.push(stream));
        for at in (0..self.stalled.len()).rev() {
            let (role, place) = self.stalled[at];
            if !self.go_on(role, place) {
                self.stalled.swap_remove(at);
            }
        }
    }

    fn flush(&mut self) {
        for place in std::mem::take(&mut self.owing) {
            if self.pay(place) {
                self.owing.push(place);
            }
        }
        let (is_idle, is_busy) = (self.is_idle.take(), std::mem::take(&mut self.is_busy));
        let early = self.is_alone || is_idle || !is_busy;
        if !self.used.is_empty() {
            self.see_to_used(early);
        }
        self.flush_direct();
    }

    fn has_work(&self) -> bool {
        let could_send = |machine: &u16| self.ways.way(*machine).is_some_and(Way::could_send);
        if self.used.iter().any(could_send) {
            self.is_idle.set(true);
            return true;
        }
        self.ways.mailbox(self.own.worker).has_some()
            || self.answers > 0
            || self.find_requests(0).is_some()
            || self.gate.has_work()
            || self.find_direct(usize::MAX).is_some()
            || self.has_news()
    }

    fn lose(&mut self, machine: u16) {
        self.ways.lose(machine);
        self.lose_direct(machine);
        let peers = &self.peers;
        let is_lost = |place: &usize| peers[*place].machine == machine;
        (0..peers.len()).filter(is_lost).for_each(|place| self.exchanges[place] = None);
        self.requests.retain(|place| !is_lost(place));
        let kept = self.exchanges.iter().flatten();
        self.answers = kept.map(|exchange| exchange.incoming[Kind::Answer as usize].count()).sum();
        self.stalled.retain(|(_, place)| !is_lost(place));
        self.owing.retain(|place| !is_lost(place));
        self.used.retain(|used| *used != machine);
        self.is_used[usize::from(machine)] = false;
        self.gate.lose(|(_, place)| is_lost(&place));
        self.order.lose(machine);
    }

    fn end(&self, place: usize, what: &str) -> ! {
        self.fail(place, "a message of", &Violation::new(what))
    }
}

impl Drop for WaysCarrier {
    /// Frames of this thread leave without it.
    fn drop(&mut self) {
        self.see_to_used(true);
    }
}
