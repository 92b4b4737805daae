//! Which way the frames of a worker take to another one, and their order at the receiver.
//!
//! A pair of workers begins on the *machine way*, which all workers of both machines share. A pair with large batches
//! gets a *direct way*: a ring at each of both, into which only the other writes. Control is by [`Notice`]s, which go
//! by the machine way, in order:
//!
//! ```text
//! one end                      the other end
//! Machine -> Asked    Open ->                        has made its ring and tells of it
//!                     <- Open  Machine -> Direct     likewise: each may write as soon as it has heard of the ring
//! Asked   -> Direct
//! Direct  -> Leaving  Close -> Direct -> Draining    names its last number there; later frames go by the machine way
//!                     <- Close                       likewise
//! Leaving -> Draining -> Machine                     all up to the peer's last number are here: the ring is free
//! ```
//!
//! The protocol is symmetric: two `Open` that cross are an answer to each other, as are two `Close`. A worker with too
//! many rings answers `Refuse`.
//!
//! Invariants, each searched in `search/`:
//! - frames of a pair are handed on in the order of their numbers, each once, whatever way they came;
//! - a frame is written into a ring only while that ring is there, and a ring is free only when nothing can come any
//!   more;
//! - a number that jumps is the first behind a change of way, and waits for those before it.
//!
//! Not here: how much may be under way (`machine`, and the ring itself).

mod demand;

use std::collections::VecDeque;
use std::hash::Hash;

use crate::machine::PAIR_BYTES_MAX;
use crate::{Peer, Rack, Table, Violation};
use demand::Demand;

/// Most frames of a pair that wait for earlier ones: no honest peer has more under way on a machine way, of requests
/// and of answers together, as each has 32 bytes at least. Of those on a direct way one waits here, and the others wait
/// in the ring ([`Ways::is_early`]).
const HELD_MAX: usize = 2 * PAIR_BYTES_MAX / 32;

/// Way of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// The one that the workers of two machines share.
    Machine,
    /// The ring of this pair alone.
    Direct,
}

/// Place of a frame among those of its pair, in its trailer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stamp {
    /// Its number, from 1.
    pub number: u64,
    /// Number of the frame before it, if that one went the other way: it has to come first.
    pub after: Option<u64>,
}

/// Message about the direct way of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Notice {
    /// The sender has a ring for the receiver, which may write into it from now on.
    Open,
    /// The sender has no ring to spare.
    Refuse,
    /// The sender writes no more directly.
    Close {
        /// The last number that it wrote directly, 0 for none.
        last: u64,
    },
}

/// Knobs of direct ways.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Full batches of a pair that open a direct way, within `within_ns`. One that the machine way has no room for does
    /// so at once.
    pub batches: u16,
    /// Bytes of a full batch. The other ones count for nothing: on the machine way many of them share a write. 0: each
    /// batch counts as one.
    pub full_bytes: usize,
    /// See `batches`, in nanoseconds.
    pub within_ns: u64,
    /// Most rings of a worker.
    pub rings: usize,
    /// A direct way without a full batch for so many nanoseconds is given back.
    pub unused_ns: u64,
}

impl Limits {
    /// Open MPI makes its fast boxes after 16 messages, too. From a full slot on, the bytes of a batch cost about as
    /// much as a write of its own.
    pub const DEFAULT: Limits = Limits {
        batches: 16,
        full_bytes: 8 << 10,
        within_ns: 100_000_000,
        rings: RINGS_MAX,
        unused_ns: 10_000_000_000,
    };

    /// The limits of a machine with so many workers: all their rings stay within half a gigabyte.
    pub fn of_machine(workers: u16) -> Limits {
        Limits { rings: RINGS_MAX.min(MACHINE_RINGS_MAX / usize::from(workers.max(1))), ..Limits::DEFAULT }
    }

    /// Full batches that a frame of so many bytes counts for.
    fn batches_of(&self, bytes: usize) -> u16 {
        if bytes > PAIR_BYTES_MAX {
            return self.batches;
        }
        match bytes.checked_div(self.full_bytes) {
            Some(batches) => u16::try_from(batches).unwrap_or(u16::MAX),
            None => u16::from(bytes > 0),
        }
    }
}

/// Most rings of a worker, and of all workers of a machine together: 16 slots of 8 KiB each, 452 MiB.
const RINGS_MAX: usize = 64;
const MACHINE_RINGS_MAX: usize = 3584;

/// State of a pair's direct way at one end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Link {
    /// There is none.
    Machine,
    /// Own ring made and told of; no answer yet.
    Asked,
    /// Both rings are there.
    Direct,
    /// This end writes no more directly; the other may.
    Leaving,
    /// Nor does the other, but frames up to this number may still come; it may have asked for a new way meanwhile.
    Draining { last: u64, asked_anew: bool },
}

/// Knowledge of a peer at one end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Pairing<F> {
    /// Last number sent, the last sent directly, and the last handed on.
    sent: u64,
    sent_directly: u64,
    handed_on: u64,
    demand: Demand,
    link: Link,
    last_way: Way,
    /// Frames that wait for earlier ones of the other way, if there are any.
    held: Option<Box<Held<F>>>,
}

/// Frames with their numbers, by the way they came.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Held<F> {
    machine: VecDeque<(u64, F)>,
    direct: VecDeque<(u64, F)>,
}

impl<F> Held<F> {
    fn of(&mut self, way: Way) -> &mut VecDeque<(u64, F)> {
        match way {
            Way::Machine => &mut self.machine,
            Way::Direct => &mut self.direct,
        }
    }
}

impl<F> Pairing<F> {
    fn new() -> Pairing<F> {
        Pairing {
            sent: 0,
            sent_directly: 0,
            handed_on: 0,
            demand: Demand::default(),
            link: Link::Machine,
            last_way: Way::Machine,
            held: None,
        }
    }

    /// Checks a frame against those before it, and hands on all whose turn it is.
    fn take(&mut self, way: Way, stamp: Stamp, frame: F, ready: &mut Vec<F>) -> Result<(), Violation> {
        let Stamp { number, after } = stamp;
        let may_come = match self.link {
            _ if way == Way::Machine => true,
            Link::Machine => false,
            Link::Draining { last, .. } => number <= last,
            Link::Asked | Link::Direct | Link::Leaving => true,
        };
        if !may_come {
            return Err(Violation::NotOpened);
        }
        let waiting = self.held.as_mut().map(|held| held.of(way)).filter(|held| !held.is_empty());
        let before = waiting.as_ref().and_then(|held| held.back()).map_or(self.handed_on, |(number, _)| *number);
        if number <= before {
            return Err(Violation::FromThePast(number));
        }
        let is_next = number - 1 == before;
        if !is_next && after != Some(number - 1) {
            return Err(Violation::Gap(number));
        }
        if is_next && waiting.is_none() {
            self.handed_on = number;
            ready.push(frame);
            self.release(ready);
        } else if waiting.is_some_and(|held| held.len() >= HELD_MAX) {
            return Err(Violation::TooMuch);
        } else {
            let none = || Box::new(Held { machine: VecDeque::new(), direct: VecDeque::new() });
            self.held.get_or_insert_with(none).of(way).push_back((number, frame));
        }
        Ok(())
    }

    /// Hands on the frames that have waited long enough.
    fn release(&mut self, ready: &mut Vec<F>) {
        let Some(held) = &mut self.held else { return };
        loop {
            let next = self.handed_on + 1;
            let is_next = |held: &&mut VecDeque<(u64, F)>| held.front().is_some_and(|(number, _)| *number == next);
            let Some((number, frame)) =
                [&mut held.machine, &mut held.direct].into_iter().find(is_next).and_then(VecDeque::pop_front)
            else {
                break;
            };
            self.handed_on = number;
            ready.push(frame);
        }
        if held.machine.is_empty() && held.direct.is_empty() {
            self.held = None;
        }
    }

    /// Last number that waits on the direct way.
    fn last_held_directly(&self) -> u64 {
        self.held.as_ref().and_then(|held| held.direct.back()).map_or(0, |(number, _)| *number)
    }
}

/// Bytes of what a worker knows of each peer that it has exchanged a frame with.
pub const PAIRING_BYTES: usize = size_of::<(Peer, Pairing<()>)>();
const _: () = assert!(PAIRING_BYTES <= 88, "a worker may have a hundred thousand of these");

/// The ways of one worker to all others.
#[derive(Clone, Debug)]
pub struct Ways<F> {
    rack: Rack,
    limits: Limits,
    /// Those that a frame or a notice went to or came from.
    pairs: Table<Peer, Pairing<F>>,
    /// Peers for which this end has a ring.
    rings: Vec<Peer>,
    /// Notices to be sent by the machine way, in this order.
    notices: VecDeque<(Peer, Notice)>,
}

impl<F> Ways<F> {
    /// The ways of a worker of this rack, none of them direct.
    pub fn new(rack: Rack, limits: Limits) -> Ways<F> {
        Ways { rack, limits, pairs: Table::default(), rings: Vec::new(), notices: VecDeque::new() }
    }

    fn pair(&mut self, peer: Peer) -> &mut Pairing<F> {
        self.pairs.entry(peer).or_insert_with(Pairing::new)
    }

    /// Returns the way of the next frame to a peer.
    pub fn way(&self, to: Peer) -> Way {
        match self.pairs.get(&to) {
            Some(pair) if pair.link == Link::Direct => Way::Direct,
            _ => Way::Machine,
        }
    }

    /// Has this end a ring for the peer?
    pub fn has_ring(&self, peer: Peer) -> bool {
        self.pairs.get(&peer).is_some_and(|pair| pair.link != Link::Machine)
    }

    /// Does a frame that came directly wait for those before it? The next ones may wait in the ring.
    pub fn is_early(&self, peer: Peer) -> bool {
        self.pairs.get(&peer).is_some_and(|pair| pair.last_held_directly() > 0)
    }

    /// Returns the way and the place of the next frame to a peer, of so many bytes, which has to be sent now. Bytes of
    /// 0 do not count as a batch.
    pub fn send(&mut self, to: Peer, bytes: usize, now_ns: u64) -> (Way, Stamp) {
        let limits = self.limits;
        let pair = self.pair(to);
        let batches = limits.batches_of(bytes);
        pair.demand.note(batches, now_ns, limits.within_ns);
        pair.sent += 1;
        let way = if pair.link == Link::Direct { Way::Direct } else { Way::Machine };
        let after = (way != pair.last_way).then_some(pair.sent - 1);
        pair.last_way = way;
        let stamp = Stamp { number: pair.sent, after };
        if way == Way::Direct {
            pair.sent_directly = pair.sent;
        }
        // Not by a frame that does not count: the count may be one of long ago.
        if batches > 0 && pair.link == Link::Machine && pair.demand.batches() >= limits.batches {
            self.ask(to, now_ns);
        }
        (way, stamp)
    }

    /// Takes a frame of so many bytes that has come, and appends all whose turn it is to `ready`.
    pub fn receive(
        &mut self,
        from: Peer,
        (way, stamp): (Way, Stamp),
        (frame, bytes): (F, usize),
        now_ns: u64,
        ready: &mut Vec<F>,
    ) -> Result<(), Violation> {
        self.known(from)?;
        let limits = self.limits;
        let pair = self.pair(from);
        pair.take(way, stamp, frame, ready)?;
        if way == Way::Direct {
            pair.demand.note(limits.batches_of(bytes), now_ns, limits.within_ns);
        }
        if matches!(pair.link, Link::Draining { .. }) {
            self.end_of_drain(from, now_ns);
        }
        Ok(())
    }

    /// Takes a notice that has come.
    pub fn hear(&mut self, from: Peer, notice: Notice, now_ns: u64) -> Result<(), Violation> {
        self.known(from)?;
        let within_ns = self.limits.within_ns;
        let pair = self.pair(from);
        match (pair.link, notice) {
            (Link::Machine, Notice::Open) => self.answer(from, now_ns),
            (Link::Asked, Notice::Open) => pair.link = Link::Direct,
            (Link::Asked, Notice::Refuse) => {
                pair.demand.pause(now_ns, within_ns);
                self.free(from);
            }
            (Link::Draining { last, asked_anew: false }, Notice::Open) => {
                pair.link = Link::Draining { last, asked_anew: true };
            }
            (Link::Direct | Link::Leaving, Notice::Close { last }) => {
                if pair.last_held_directly() > last {
                    return Err(Violation::NotOpened);
                }
                if pair.link == Link::Direct {
                    // The peer has a reason, which may last.
                    pair.demand.pause(now_ns, within_ns);
                    self.close(from);
                }
                self.pair(from).link = Link::Draining { last, asked_anew: false };
                self.end_of_drain(from, now_ns);
            }
            _ => return Err(Violation::Notice),
        }
        Ok(())
    }

    /// Returns the next notice to be sent by the machine way.
    pub fn next_notice(&mut self) -> Option<(Peer, Notice)> {
        self.notices.pop_front()
    }

    /// Gives back the direct way to this peer, and opens none for a while.
    pub fn give_back(&mut self, peer: Peer, now_ns: u64) {
        let within_ns = self.limits.within_ns;
        let pair = self.pair(peer);
        if pair.link == Link::Direct {
            pair.demand.pause(now_ns, within_ns);
            self.close(peer);
        }
    }

    /// Gives back the direct ways that have had no full batch for long.
    pub fn give_back_unused(&mut self, now_ns: u64) {
        let unused_ns = self.limits.unused_ns;
        let is_unused = |peer: &Peer| {
            let pair = self.pairs.get(peer);
            pair.is_some_and(|pair| pair.link == Link::Direct && pair.demand.unused_ns(now_ns) >= unused_ns)
        };
        let unused: Vec<Peer> = self.rings.iter().copied().filter(is_unused).collect();
        unused.into_iter().for_each(|peer| self.close(peer));
    }

    /// Forgets the workers of a machine that is lost. Their rings are free.
    pub fn lose(&mut self, machine: u16) {
        self.pairs.retain(|peer, _| peer.machine != machine);
        self.rings.retain(|peer| peer.machine != machine);
        self.notices.retain(|(peer, _)| peer.machine != machine);
    }

    /// Number of rings that this worker has.
    pub fn rings(&self) -> usize {
        self.rings.len()
    }

    fn known(&self, peer: Peer) -> Result<(), Violation> {
        if self.rack.has(peer) { Ok(()) } else { Err(Violation::NoSuchWorker(peer)) }
    }

    /// Asks for a direct way; without a ring to spare, gives one back that is used less.
    fn ask(&mut self, peer: Peer, now_ns: u64) {
        if self.rings.len() < self.limits.rings {
            self.make_ring(peer, Link::Asked);
        } else {
            self.give_back_least_used(now_ns);
            let within_ns = self.limits.within_ns;
            self.pair(peer).demand.pause(now_ns, within_ns);
        }
    }

    /// Answers a peer that asks for a direct way.
    fn answer(&mut self, peer: Peer, now_ns: u64) {
        if self.rings.len() < self.limits.rings {
            self.make_ring(peer, Link::Direct);
            let within_ns = self.limits.within_ns;
            // It has not been used yet, which is not for long.
            self.pair(peer).demand.begin(now_ns, within_ns);
        } else {
            self.notices.push_back((peer, Notice::Refuse));
            self.give_back_least_used(now_ns);
        }
    }

    fn make_ring(&mut self, peer: Peer, link: Link) {
        self.rings.push(peer);
        self.pair(peer).link = link;
        self.notices.push_back((peer, Notice::Open));
    }

    /// Gives back the direct way with the fewest full batches, if a pair that has that few would not get one.
    fn give_back_least_used(&mut self, now_ns: u64) {
        let Limits { batches, within_ns, .. } = self.limits;
        let uses = |peer: &Peer| {
            let pair = self.pairs.get(peer).filter(|pair| pair.link == Link::Direct)?;
            Some((pair.demand.batches_lately(now_ns, within_ns), *peer))
        };
        if let Some((fewest, peer)) = self.rings.iter().filter_map(uses).min()
            && fewest < batches
        {
            self.close(peer);
        }
    }

    fn close(&mut self, peer: Peer) {
        let pair = self.pair(peer);
        pair.link = Link::Leaving;
        let last = pair.sent_directly;
        self.notices.push_back((peer, Notice::Close { last }));
    }

    /// Frees the ring if all that was written into it has been handed on, and answers what was asked meanwhile.
    fn end_of_drain(&mut self, peer: Peer, now_ns: u64) {
        let pair = self.pair(peer);
        let Link::Draining { last, asked_anew } = pair.link else { return };
        if pair.handed_on < last {
            return;
        }
        self.free(peer);
        if asked_anew {
            self.answer(peer, now_ns);
        }
    }

    fn free(&mut self, peer: Peer) {
        self.pair(peer).link = Link::Machine;
        self.rings.retain(|ring| *ring != peer);
    }
}

#[cfg(test)]
mod tests;
