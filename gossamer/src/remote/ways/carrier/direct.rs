//! Direct ways of one thread, for pairs that send much: a ring at each of both workers, into which the other one
//! writes. Their frames have the numbers and the allowances of those on the machine way, so a pair may change its way
//! between any two frames. `gossamer_ways::ways` says when, and in which order frames are taken.
//!
//! ```text
//! post      notices of the state machine into the machine way; an own ring for each that opens a way
//! hear      notices of peers
//! settle    begins a way where both rings are there; frees the own ring where nothing can come any more
//! take      writes out of the own rings
//! ```
//!
//! A worker writes by a connection of its own, made with its first direct way to the machine. Writes are acknowledged
//! in those the other way, or in a frame that has nothing, when half of the slots are owed; the last slot is kept for
//! these. So all that is written into a ring is a numbered frame, and nothing comes behind the last one.
//!
//! A write to a share goes by the machine way. A message behind it has to do so, too: it gives the direct way back.

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use comm::{MachineId, Region, WorkerId};
use gossamer_ways::Peer;
use gossamer_ways::ways::{Notice, Way as Route};
use trust::link::Buffer;

use super::super::super::carrier::Watch;
use super::super::super::connections::Connection;
use super::super::super::layout::Layout;
use super::super::super::slot::Violation;
use super::super::super::stream::{FrameStream, Offsets};
use super::super::direct::{Direct, Line};
use super::super::pair::Letter;
use super::super::way::breach;
use super::super::wire::{self, Head, Kind};
use super::{Content, WaysCarrier, place};
use crate::losses::record;

/// Room for a frame, and for an acknowledgement besides.
const ROOM_WRITES: u64 = 2;
/// Turns from one look for ways that are not used to the next.
const TURNS: u32 = 16;

/// State of all direct ways of a worker.
pub(super) struct DirectWays {
    /// Own rings that are free; the last one is taken first.
    free: Vec<u16>,
    connections: Vec<(u16, Rc<Connection>)>,
    /// Flags of the next writes, with the places of their senders.
    watches: Vec<(usize, Watch)>,
    turns: u32,
    /// Memory to be used again.
    piece: Buffer,
}

impl DirectWays {
    pub(super) fn new(rings: usize) -> DirectWays {
        DirectWays {
            free: (0..rings as u16).rev().collect(),
            connections: Vec::new(),
            watches: Vec::new(),
            turns: 0,
            piece: Buffer::default(),
        }
    }
}

impl WaysCarrier {
    fn direct(&mut self, place: usize) -> Option<&mut Direct> {
        self.exchanges[place].as_mut()?.direct.as_deref_mut()
    }

    /// Does this end write directly?
    fn is_open(&self, place: usize) -> bool {
        let direct = self.exchanges[place].as_ref().and_then(|exchange| exchange.direct.as_ref());
        direct.is_some_and(|direct| direct.line.is_some() && !direct.is_closing)
    }

    fn region(&self) -> &Region {
        self.ways.fabric.region()
    }

    /// Has the way of a pair room for a frame?
    pub(super) fn has_room(&mut self, place: usize) -> bool {
        self.has_room_for(place, ROOM_WRITES)
    }

    fn has_room_for(&mut self, place: usize, writes: u64) -> bool {
        let peer = self.peers[place];
        let Some(exchange) = self.exchanges[place].as_mut() else { return true };
        let direct = exchange.direct.as_mut().filter(|direct| !direct.is_closing);
        let Some(Line { stream, .. }) = direct.and_then(|direct| direct.line.as_mut()) else { return true };
        if exchange.share_writes != self.share_writes[usize::from(peer.machine)].get() {
            let now_ns = self.now_ns();
            self.order.give_back(peer, now_ns);
            self.post();
            return true;
        }
        match stream.has_room_for(writes, self.ways.fabric.region()) {
            Ok(has_room) => has_room,
            Err(violation) => self.fail(place, "a write of", &violation),
        }
    }

    /// Writes a piece of a frame, for which there is room. The frame is unchanged afterwards.
    pub(super) fn write_directly(&mut self, place: usize, head: &Head, frame: &mut Buffer, range: Range<usize>) {
        let ends = (self.own.worker, self.peers[place].worker);
        let total = frame.len();
        let mut scratch = std::mem::take(&mut self.directs.piece);
        let piece = if range.len() == total {
            &mut *frame
        } else {
            scratch.set_len(range.len());
            scratch.bytes_mut().copy_from_slice(&frame.bytes()[range]);
            &mut scratch
        };
        wire::append_head(piece, ends, head);
        let exchange = self.exchanges[place].as_mut();
        let line = exchange.and_then(|exchange| exchange.direct.as_mut()).and_then(|direct| direct.line.as_mut());
        let written = match line {
            Some(Line { stream, connection, .. }) => stream.send(self.ways.fabric.region(), connection, piece, 0),
            None => Err(Violation::new("there is no direct way")),
        };
        if let Err(violation) = written {
            self.fail(place, "a message to", &violation);
        }
        frame.set_len(total);
        self.directs.piece = scratch;
    }

    /// Tells peers what has become of direct ways.
    pub(super) fn post(&mut self) {
        while let Some((to, notice)) = self.order.next_notice() {
            let head = match notice {
                Notice::Open => {
                    let ring = self.make_ring(self.place_of(to));
                    Head::empty(Kind::Open, u32::from(ring), 0)
                }
                Notice::Refuse => Head::empty(Kind::Refuse, 0, 0),
                Notice::Close { last } => {
                    let place = self.place_of(to);
                    if let Some(direct) = self.direct(place) {
                        direct.is_closing = true;
                    }
                    Head::empty(Kind::Close, 0, last)
                }
            };
            self.add_to_machine(to, &head, &[]);
        }
    }

    /// Takes a ring for a peer, and clears it.
    fn make_ring(&mut self, place: usize) -> u16 {
        self.end_direct(place);
        let ring = self.directs.free.pop();
        let ring =
            ring.unwrap_or_else(|| self.fail(place, "a direct way to", &Violation::new("there is no free ring")));
        let first = self.ways.layout.direct_ring(self.own, usize::from(ring));
        if let Err(error) = self.ways.fabric.commit_region(first..first + Layout::DIRECT_BYTES) {
            self.fail(place, "a direct way to", &Violation::from(error));
        }
        for slot in 0..usize::from(Layout::DIRECT.per_pair) {
            let end = first + slot * Layout::DIRECT.stride_bytes() + Layout::DIRECT.bytes;
            // Relaxed: the peer hears of the ring by a write that comes later.
            match self.region().word(end - comm::WORD_BYTES) {
                Ok(flag) => flag.store(0, Ordering::Relaxed),
                Err(error) => self.fail(place, "a direct way to", &Violation::from(error)),
            }
        }
        self.exchange(place).direct = Some(Box::new(Direct::new(ring)));
        ring
    }

    /// Takes a notice of a peer.
    pub(super) fn hear(&mut self, place: usize, head: &Head) -> Result<(), Violation> {
        let peer = self.peers[place];
        let notice = match head.kind {
            Kind::Open => {
                let rings = if self.is_worker(peer) { self.ways.layout.limits(peer.machine).rings } else { 0 };
                if head.note as usize >= rings {
                    return Err(Violation::new(format!("ring {} of {rings}", head.note)));
                }
                self.exchange(place).told = Some(head.note as u16);
                Notice::Open
            }
            Kind::Refuse => Notice::Refuse,
            _ => Notice::Close { last: head.number },
        };
        let now_ns = self.now_ns();
        self.order.hear(peer, notice, now_ns).map_err(breach)?;
        self.settle(place)
    }

    /// Follows the state of a pair's direct way.
    pub(super) fn settle(&mut self, place: usize) -> Result<(), Violation> {
        self.post();
        let peer = self.peers[place];
        let Some(exchange) = self.exchanges[place].as_mut() else { return Ok(()) };
        let Some(direct) = exchange.direct.as_mut() else { return Ok(()) };
        if direct.line.is_some() && !direct.is_closing {
            return Ok(());
        }
        if !self.order.has_ring(peer) {
            self.end_direct(place);
        } else if direct.line.is_none()
            && self.order.way(peer) == Route::Direct
            && let Some(to) = exchange.told.take()
        {
            let ring = direct.ring;
            let line = self.connect(peer, ring, to)?;
            self.directs.watches.push((place, Watch::of(&line.stream)));
            if let Some(direct) = self.direct(place) {
                direct.line = Some(line);
            }
        }
        Ok(())
    }

    fn connect(&mut self, peer: Peer, ring: u16, to: u16) -> Result<Line, Violation> {
        let layout = &self.ways.layout;
        let offsets = Offsets {
            from: layout.direct_ring(self.own, usize::from(ring)),
            to: layout.direct_ring(place(peer), usize::from(to)),
            acks: None,
            park_word: layout.park_word(peer.worker),
        };
        let stream = FrameStream::new(Layout::DIRECT, offsets).of_whole_frames();
        let known = self.directs.connections.iter().find(|(machine, _)| *machine == peer.machine);
        let connection = match known {
            Some((_, connection)) => Rc::clone(connection),
            None => {
                let (fabric, worker) = (&self.ways.fabric, WorkerId(self.own.worker));
                // It may take a moment, in which this thread does not poll.
                fabric.will_park(worker);
                let made = Rc::new(Connection::new(fabric.connect(MachineId(peer.machine), worker)?));
                self.directs.connections.push((peer.machine, Rc::clone(&made)));
                made
            }
        };
        Ok(Line::new(stream, connection))
    }

    /// Frees the ring for a peer, if there is one.
    pub(super) fn end_direct(&mut self, place: usize) {
        let direct = self.exchanges[place].as_mut().and_then(|exchange| exchange.direct.take());
        if let Some(direct) = direct {
            self.directs.free.push(direct.ring);
            self.directs.watches.retain(|(watched, _)| *watched != place);
        }
    }

    /// Takes what has come directly, and gives back ways that are not used.
    pub(super) fn take_direct(&mut self) {
        if self.order.rings() == 0 {
            return;
        }
        self.directs.turns += 1;
        if self.directs.turns >= TURNS {
            self.directs.turns = 0;
            let now_ns = self.now_ns();
            self.order.give_back_unused(now_ns);
            self.post();
        }
        // From the last one on, for the ring may be freed.
        let mut below = usize::MAX;
        while let Some((at, place)) = self.find_direct(below) {
            if let Err(violation) = self.take_ring(place) {
                self.fail(place, "a direct message of", &violation);
            }
            below = at;
        }
    }

    /// Returns the last of so many rings to which a write has come, with the place of its sender.
    #[inline]
    pub(super) fn find_direct(&self, below: usize) -> Option<(usize, usize)> {
        let region = self.region();
        // A region is a whole number of words.
        let words = region.words(0, region.bytes()).unwrap_or_default();
        let mut rings = self.directs.watches.iter().enumerate().take(below).rev();
        let has_come = |(place, watch): &(usize, Watch)| {
            watch.has_changed(words) && !record::is_shut_out(self.peers[*place].machine)
        };
        rings.find(|(_, ring)| has_come(ring)).map(|(at, (place, _))| (at, *place))
    }

    /// Takes writes out of the ring for a peer. One that waits for frames of the machine way stops the others.
    pub(in super::super) fn take_ring(&mut self, place: usize) -> Result<(), Violation> {
        let peer = self.peers[place];
        for _ in 0..Layout::DIRECT.per_pair {
            let exchange = self.exchanges[place].as_mut();
            let Some(direct) = exchange.and_then(|exchange| exchange.direct.as_mut()) else { break };
            if direct.is_early {
                direct.is_early = self.order.is_early(peer);
                if direct.is_early {
                    break;
                }
            }
            let Some(Line { stream, .. }) = direct.line.as_mut() else { break };
            let mut data = self.buffers.take();
            if stream.receive(self.ways.fabric.region(), &mut data)?.is_none() {
                self.buffers.give_back(data);
                break;
            }
            let head = wire::take_head(&mut data, (peer.worker, self.own.worker))?;
            self.sort(place, Route::Direct, Letter { head, data })?;
            // The frames behind it follow it at once, or wait with it.
            if head.changes
                && let Some(direct) = self.direct(place)
            {
                direct.is_early = true;
            }
        }
        if let Some(Line { stream, .. }) = self.direct(place).and_then(|direct| direct.line.as_mut()) {
            let (watch, owes) = (Watch::of(stream), stream.owes_ack());
            if let Some((_, known)) = self.directs.watches.iter_mut().find(|(watched, _)| *watched == place) {
                *known = watch;
            }
            if owes {
                self.owing.push(place);
            }
        }
        Ok(())
    }

    /// Gives a peer the credits and acknowledgements that it is owed. Returns whether some have to wait for room.
    pub(super) fn pay(&mut self, place: usize) -> bool {
        let owes_credit = self.exchanges[place].as_ref().is_some_and(|exchange| exchange.owes_credit());
        if owes_credit && self.has_room(place) {
            self.add_empty(place, Kind::Credit);
            return false;
        }
        // A peer that has been told of the end of the way, or is about to be, needs none.
        let is_direct = self.order.way(self.peers[place]) == Route::Direct;
        let line = self
            .direct(place)
            .filter(|_| is_direct)
            .filter(|direct| !direct.is_closing)
            .and_then(|direct| direct.line.as_mut());
        let owes_ack = line.is_some_and(|line| line.stream.owes_ack());
        if owes_ack && self.has_room_for(place, 1) && self.is_open(place) {
            self.add_empty(place, Kind::Ack);
            return owes_credit && self.exchanges[place].as_ref().is_some_and(|exchange| exchange.owes_credit());
        }
        owes_credit || owes_ack
    }

    fn add_empty(&mut self, place: usize, kind: Kind) {
        let mut nothing = std::mem::take(&mut self.directs.piece);
        nothing.set_len(0);
        self.add(place, Content::empty(kind), &mut nothing, 0..0);
        self.directs.piece = nothing;
    }

    /// Sends what was written.
    pub(super) fn flush_direct(&mut self) {
        let flushed = self.directs.connections.iter().find_map(|(machine, connection)| {
            let error = connection.flush().err()?;
            Some((*machine, error))
        });
        if let Some((machine, error)) = flushed {
            self.fail(self.first[usize::from(machine)], "what was sent to", &Violation::from(error));
        }
    }

    /// Drops the direct ways to a machine that is lost.
    pub(super) fn lose_direct(&mut self, machine: u16) {
        for place in 0..self.peers.len() {
            if self.peers[place].machine == machine {
                self.end_direct(place);
            }
        }
        self.directs.connections.retain(|(known, _)| *known != machine);
    }
}

#[cfg(test)]
impl WaysCarrier {
    pub(in super::super) fn direct_ways(&self) -> usize {
        self.directs.watches.len()
    }

    /// Sets the clock forward.
    pub(in super::super) fn pass(&mut self, time: std::time::Duration) {
        self.start_ns = self.start_ns.wrapping_sub(time.as_nanos() as u64);
        self.now_ns.set(None);
    }

    /// Other rules, before anything is sent.
    pub(in super::super) fn set_limits(&mut self, limits: gossamer_ways::ways::Limits) {
        self.order = gossamer_ways::ways::Ways::new(self.ways.rack.clone(), limits);
    }

    pub(in super::super) fn give_back(&mut self, place: usize) {
        let (peer, now_ns) = (self.peers[place], self.now_ns());
        self.order.give_back(peer, now_ns);
        self.post();
    }
}
