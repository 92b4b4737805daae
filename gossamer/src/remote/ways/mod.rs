//! Machine ways, for large racks: all threads of two machines share one ring each way, in place of a ring for each pair
//! of threads. Memory, sockets and looks grow with the machines.
//!
//! Reading order, which is the way of one batch:
//!
//! 1. `carrier`: called by `trust`: batches of one thread, in pieces, as much as its pairs may have under way
//! 2. `pair`: one peer at its thread: what waits here, what has come, what was taken
//! 3. `way`: outbox and ring of two machines, seen to by whoever looks
//! 4. `wire`: frames in a write
//! 5. the `Mailbox` of the receiving thread (here), and its `carrier` again
//!
//! To the fabric a way is one more worker, behind all threads of the machine. It has no thread of its own: a thread
//! that looks deals out what came for all threads and wakes those that sleep. A write wakes the threads that have
//! frames in it. These may compute; so it wakes the service thread, too, which does not, and so sees to what others
//! leave. While there is traffic that one sleeps by the clock and need not be woken (`waker`).
//!
//! Invariants: a thread holds up its own frames alone: those for it wait in its mailbox, of which no pair has more than
//! 64 KiB. Order of a pair's frames is that of the outbox, the ring and the mailbox; their numbers are checked by the
//! receiving thread (`gossamer_ways::ways`). Nothing that a peer sends is trusted, as with rings.

mod carrier;
mod pair;
#[cfg(test)]
mod tests;
mod waker;
mod way;
mod wire;

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use comm::{Error, Fabric, MachineId, ReadId, ShareId, WorkerId};
use gossamer_ways::machine::{Frame, PAIR_BYTES_MAX};
use gossamer_ways::{Rack, Violation as Breach};

use super::carrier::end_by;
use super::connections::{self, Connection, SharePath};
use super::layout::Layout;
use super::slot::Violation;
use crate::losses::record;
pub(super) use carrier::WaysCarrier;
use waker::Doze;
pub(super) use waker::ServiceWaker;
use way::{Sight, Way, breach};
use wire::Letter;

/// The most bytes of a peer's frames in a mailbox: requests, answers, and credits, of which there are few.
const PEER_BYTES_MAX: usize = 3 * PAIR_BYTES_MAX;

/// Ways of this machine to all others; see the file's documentation.
pub(crate) struct Ways {
    fabric: Arc<dyn Fabric>,
    layout: Arc<Layout>,
    rack: Rack,
    own: u16,
    /// By machine; none to the own one.
    ways: Vec<Option<Way>>,
    /// By thread.
    mailboxes: Vec<Mailbox>,
    /// The most bytes in one of them, if all peers keep to what they may have under way.
    mail_bytes_max: usize,
    doze: Doze,
    /// Times that frames were dealt out.
    dealt: AtomicU64,
}

impl Ways {
    /// Connects to all other machines.
    pub(super) fn connect(fabric: &Arc<dyn Fabric>, layout: &Arc<Layout>) -> Result<Arc<Ways>, Error> {
        let own = fabric.machine().0;
        let threads: Vec<u16> = (0..layout.machines()).map(|machine| layout.threads(machine)).collect();
        let rack = Rack::new(&threads);
        let others: Vec<MachineId> = (0..layout.machines()).filter(|other| *other != own).map(MachineId).collect();
        let worker = WorkerId(threads[usize::from(own)]);
        let mut ways: Vec<Option<Way>> = threads.iter().map(|_| None).collect();
        for (MachineId(machine), made) in others.iter().zip(fabric.connect_all(&others, worker)?) {
            let way = Way::new(layout, rack.clone(), own, *machine, Connection::new(made));
            ways[usize::from(*machine)] = Some(way);
        }
        let mailboxes = (0..threads[usize::from(own)]).map(|_| Mailbox::default()).collect();
        let peers: usize = others.iter().map(|MachineId(other)| usize::from(threads[usize::from(*other)])).sum();
        let mail_bytes_max = peers * PEER_BYTES_MAX;
        let (fabric, layout, dealt) = (Arc::clone(fabric), Arc::clone(layout), AtomicU64::new(0));
        Ok(Arc::new(Ways { fabric, layout, rack, own, ways, mailboxes, mail_bytes_max, doze: Doze::default(), dealt }))
    }

    fn way(&self, machine: u16) -> Option<&Way> {
        self.ways.get(usize::from(machine))?.as_ref()
    }

    /// The ways to machines that were not shut out, some of them: from this one on, at most so many.
    fn living(&self, from: usize, count: usize) -> impl Iterator<Item = (u16, &Way)> {
        let ways = (0u16..).zip(&self.ways).skip(from).take(count);
        ways.filter_map(|(machine, way)| Some((machine, way.as_ref()?)))
            .filter(|(machine, _)| !record::is_shut_out(*machine))
    }

    fn mailbox(&self, thread: u16) -> &Mailbox {
        &self.mailboxes[usize::from(thread)]
    }

    /// Sees to the way to a machine, unless another thread does.
    fn see_to(&self, machine: u16, sight: Sight) {
        let Some(way) = self.way(machine) else { return };
        if record::is_shut_out(machine) {
            return way.lose();
        }
        match way.see_to(self, self.own, sight) {
            Ok(false) => {}
            Ok(true) => self.call_service(),
            Err(violation) => self.end(way, &violation),
        }
    }

    #[cold]
    fn end(&self, way: &Way, violation: &Violation) -> ! {
        let own = self.layout.service(self.own);
        end_by(&*self.fabric, own, "the machine way to", way.other(&self.layout), violation)
    }

    fn note_dealt(&self) {
        // Relaxed: no more than a sign of traffic.
        self.dealt.fetch_add(1, Ordering::Relaxed);
    }

    /// Has a thread to see to a way, though nothing comes?
    fn is_in_arrears(&self) -> bool {
        self.living(0, usize::MAX).any(|(_, way)| way.is_in_arrears())
    }

    /// Puts a frame into the mailbox of its thread.
    fn put(&self, frame: Frame<Letter>) -> Result<(), Violation> {
        if self.mailbox(frame.pair.to.worker).put(frame, self.mail_bytes_max) {
            Ok(())
        } else {
            Err(breach(Breach::TooMuch))
        }
    }

    /// Wakes a thread of this machine that has something in its mailbox.
    fn wake(&self, thread: u16) -> Result<(), Violation> {
        self.fabric.wake(self.layout.park_word(thread))?;
        if thread == self.layout.service(self.own).worker {
            self.doze.end();
        }
        Ok(())
    }

    /// Makes the service thread see to what is left, soon: at once if it sleeps until woken.
    fn call_service(&self) {
        // An error is reported by a thread that sleeps.
        let _ = self.fabric.wake(self.layout.park_word(self.layout.service(self.own).worker));
    }

    /// Gives the calling worker its paths to the shares of the other machines.
    pub(super) fn keep_paths(self: &Arc<Self>) {
        for (machine, _) in (0u16..).zip(&self.ways).filter(|(_, way)| way.is_some()) {
            connections::keep(MachineId(machine), Rc::new(WayPath { ways: Arc::clone(self), machine }));
        }
    }
}

/// Path to the shares of a machine, by its way: frames that are added later go behind what is written.
struct WayPath {
    ways: Arc<Ways>,
    machine: u16,
}

impl WayPath {
    fn way(&self) -> Result<&Way, Error> {
        let (machine, own, machines) = (MachineId(self.machine), MachineId(self.ways.own), self.ways.layout.machines());
        self.ways.way(self.machine).ok_or(Error::NoSuchPeer { machine, own, machines })
    }

    fn with<R>(&self, access: impl FnOnce(&Connection) -> Result<R, Error>) -> Result<R, Error> {
        self.way()?.with_connection(access)
    }
}

impl SharePath for WayPath {
    fn write_share(&self, share: ShareId, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.with(|connection| {
            connection.write_share(share, offset, bytes)?;
            connection.flush()
        })
    }

    fn read_share(&self, share: ShareId, offset: usize, bytes: usize) -> Result<ReadId, Error> {
        self.with(|connection| {
            let read_id = connection.read_share(share, offset, bytes)?;
            connection.flush()?;
            Ok(read_id)
        })
    }

    fn take(&self, read_id: ReadId, into: &mut [u8]) -> Result<bool, Error> {
        // Asked again and again: it does not keep others from the way.
        self.way()?.try_with_connection(|connection| connection.take(read_id, into)).unwrap_or(Ok(false))
    }
}

/// Frames for one thread that it has not looked at.
#[derive(Default)]
struct Mailbox {
    has_some: AtomicBool,
    mail: Mutex<Mail>,
}

#[derive(Default)]
struct Mail {
    frames: Vec<Frame<Letter>>,
    bytes: usize,
}

impl Mailbox {
    /// `false`: there would be more than so many bytes.
    fn put(&self, frame: Frame<Letter>, bytes_max: usize) -> bool {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        mail.bytes += frame.bytes;
        let fits = mail.bytes <= bytes_max;
        mail.frames.push(frame);
        drop(mail);
        // Release, pairs with the Acquire in `has_some`; the frames themselves are under the lock.
        self.has_some.store(true, Ordering::Release);
        fits
    }

    #[inline]
    fn has_some(&self) -> bool {
        // Acquire, pairs with the Release in `put`.
        self.has_some.load(Ordering::Acquire)
    }

    /// Takes all frames; leaves `empty` in their place.
    fn take(&self, empty: Vec<Frame<Letter>>) -> Vec<Frame<Letter>> {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: under the lock. A frame that comes later sets it again.
        self.has_some.store(false, Ordering::Relaxed);
        mail.bytes = 0;
        std::mem::replace(&mut mail.frames, empty)
    }
}

/// Threads to be woken, each once.
#[derive(Default)]
struct Wakes(Vec<u16>);

impl Wakes {
    fn add(&mut self, thread: u16) {
        if self.0.last() != Some(&thread) {
            self.0.push(thread);
        }
    }

    fn each(mut self, mut wake: impl FnMut(u16) -> Result<(), Violation>) -> Result<(), Violation> {
        self.0.sort_unstable();
        self.0.dedup();
        self.0.into_iter().try_for_each(&mut wake)
    }
}
