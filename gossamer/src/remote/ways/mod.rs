//! Machine ways, for large racks: all threads of two machines share one ring each way, in place of a ring for each pair
//! of threads. Memory, sockets and looks grow with the machines.
//!
//! Reading order, which is the way of one batch:
//!
//! 1. `carrier`: called by `trust`: batches of one thread, in pieces, as much as its pairs may have under way
//! 2. `pair`: one peer at its thread: what waits here, what has come, what was taken
//! 3. by a direct way: `carrier/direct`, a ring of the pair, and the other thread's `carrier` again. Else:
//! 4. `way`: outbox and ring of two machines, seen to by whoever looks; `outbox`: the frames there; `wire`: their bytes
//! 5. the `mailbox` of the receiving thread, and its `carrier` again
//!
//! To the fabric a way is one more worker, behind all threads of the machine. It has no thread of its own: a thread
//! that looks deals out what came for all threads and wakes those that sleep. A write wakes the threads that have
//! frames in it. These may compute; so it wakes the service thread, too, which does not, and so sees to what others
//! leave. While there is traffic that one sleeps by the clock and need not be woken (`waker`).
//!
//! Invariants: a thread holds up its own frames alone: those for it wait in its mailbox, of which no pair has more than
//! 64 KiB. Order of a pair's frames is that of the outbox, the ring and the mailbox; their numbers are checked by the
//! receiving thread, whichever way they come (`gossamer_ways::ways`). Nothing that a peer sends is trusted, as with
//! rings.

mod arrears;
mod carrier;
mod direct;
mod mailbox;
mod news;
mod outbox;
mod pair;
#[cfg(test)]
mod tests;
mod waker;
mod way;
mod wire;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use comm::{Error, Fabric, MachineId, ReadId, ShareId, WorkerId};
use gossamer_ways::machine::PAIR_BYTES_MAX;
use gossamer_ways::{Peer, Rack};

use super::carrier::end_by;
use super::connections::{self, Connection, SharePath};
use super::layout::Layout;
use super::slot::Violation;
use crate::losses::record;
use arrears::Arrears;
use carrier::ShareWrites;
pub(super) use carrier::WaysCarrier;
pub(crate) use direct::direct_ways;
use mailbox::Mailbox;
use news::News;
use waker::Doze;
pub(super) use waker::ServiceWaker;
use way::{Sight, Way};
use wire::Head;

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
    news: News,
    arrears: Arrears,
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
            let way = Way::new(layout, own, *machine, Connection::new(made));
            ways[usize::from(*machine)] = Some(way);
        }
        let mailboxes = (0..threads[usize::from(own)]).map(|_| Mailbox::default()).collect();
        let peers: usize = others.iter().map(|MachineId(other)| usize::from(threads[usize::from(*other)])).sum();
        let mail_bytes_max = peers * PEER_BYTES_MAX;
        Ok(Arc::new(Ways {
            fabric: Arc::clone(fabric),
            layout: Arc::clone(layout),
            rack,
            own,
            news: News::new(layout, own),
            arrears: Arrears::new(ways.len()),
            ways,
            mailboxes,
            mail_bytes_max,
            doze: Doze::default(),
            dealt: AtomicU64::new(0),
        }))
    }

    fn way(&self, machine: u16) -> Option<&Way> {
        self.ways.get(usize::from(machine))?.as_ref()
    }

    /// The machines with news that were not shut out, of so many from this one on.
    fn news(&self, from: usize, count: usize) -> impl Iterator<Item = u16> {
        self.news.find(self.fabric.region(), from, count).filter(|machine| !record::is_shut_out(*machine))
    }

    fn mailbox(&self, thread: u16) -> &Mailbox {
        &self.mailboxes[usize::from(thread)]
    }

    /// Adds a frame of a thread of this machine to its way.
    fn add(&self, from: u16, to: Peer, head: &Head, data: &[u8]) {
        if let Some(way) = self.way(to.machine) {
            way.add((from, to.worker), head, data);
            self.arrears.set(to.machine);
        }
    }

    /// Sees to the way to a machine, unless another thread does.
    fn see_to(&self, machine: u16, sight: Sight) {
        let Some(way) = self.way(machine) else { return };
        if record::is_shut_out(machine) {
            return self.lose(machine);
        }
        match way.see_to(self, sight) {
            Ok(false) => {}
            Ok(true) => self.leave_to_service(machine),
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

    /// Wakes a thread of this machine that has something in its mailbox.
    fn wake(&self, thread: u16) -> Result<(), Violation> {
        self.fabric.wake(self.layout.park_word(thread))?;
        if thread == self.layout.service(self.own).worker {
            self.doze.end();
        }
        Ok(())
    }

    /// Drops what has not left for a machine that is lost.
    fn lose(&self, machine: u16) {
        self.way(machine).into_iter().for_each(Way::lose);
        self.arrears.clear(machine);
    }

    /// Makes the service thread see to a way.
    fn leave_to_service(&self, machine: u16) {
        self.arrears.set(machine);
        self.call_service();
    }

    /// Makes the service thread see to what is left, soon: at once if it sleeps until woken.
    fn call_service(&self) {
        // An error is reported by a thread that sleeps.
        let _ = self.fabric.wake(self.layout.park_word(self.layout.service(self.own).worker));
    }

    /// Gives the calling worker its paths to the shares of the other machines, which count its writes there.
    pub(super) fn keep_paths(self: &Arc<Self>, writes: &ShareWrites) {
        for (machine, _) in (0u16..).zip(&self.ways).filter(|(_, way)| way.is_some()) {
            let path = WayPath { ways: Arc::clone(self), machine, writes: Rc::clone(writes) };
            connections::keep(MachineId(machine), Rc::new(path));
        }
    }
}

/// Path to the shares of a machine, by its way: frames that are added later go behind what is written.
struct WayPath {
    ways: Arc<Ways>,
    machine: u16,
    writes: ShareWrites,
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
        let writes = &self.writes[usize::from(self.machine)];
        writes.set(writes.get() + 1);
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
