//! `mixed`: one fabric made of several, each for some of the peers: `shm` for those on the own host, `verbs`
//! or `tcp` for the others. This is `fabric: auto`, once the fabric of each peer is chosen.
//!
//! Here: finding the part for a peer, and waiting for deaths in all parts at once. Not here: the choice of
//! parts, which is the caller's.
//!
//! To make one, on each machine:
//! 1. Open the part that maps memory first ([`ShmFabric::open_group`](crate::shm::ShmFabric::open_group),
//!    with the machines of this host) and take its
//!    [`shared_region`](crate::shm::ShmFabric::shared_region). With no other machine on this host,
//!    make a [`Region::anonymous`] instead.
//! 2. Open the others on that region. Every part reports [`Fabric::machines`] of the whole program, and must
//!    reach at least the peers it will be given.
//! 3. [`MixedFabric::new`] with the parts and the peers of each.
//!
//! Invariants
//! - All parts share the own region, so a worker sleeps on its one park word, with any writer. A part whose
//!   peers cannot wake by that word themselves has a thread that does. At most one part tells its peers that
//!   a thread sleeps (`verbs`); then its `park` is the one in use.
//! - The own shares belong to the own region. A range is committed when every part has prepared it.
//! - Each peer has one part; a connection is the part's own, with no layer between.

use crate::error::Error;
use crate::fabric::{Connection, Fabric};
use crate::ids::{Loss, MachineId, Wake, WorkerId};
use crate::liveness::Liveness;
use crate::memory::Region;
use crate::panics::or_report;
use crate::park;
use crate::share::{Share, ShareId};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A fabric, and the peers it serves.
pub struct Part {
    /// Fabric on the region that all parts share.
    pub fabric: Box<dyn Fabric>,
    /// Machines other than the own. The fabric may know more of them.
    pub peers: Vec<MachineId>,
}

/// One machine's end of several fabrics. Dropping it drops its parts, and so leaves gracefully.
pub struct MixedFabric {
    parts: Vec<Arc<dyn Fabric>>,
    /// Index of the part of each machine; `None` for the own.
    routes: Vec<Option<usize>>,
    deaths: Arc<Liveness>,
    /// One watcher for each part.
    watchers: Vec<JoinHandle<()>>,
}

impl MixedFabric {
    /// Combines the parts, and starts to watch each.
    ///
    /// # Errors
    /// [`Error::Bootstrap`] when the parts are not of one machine, one program and one region, or when a peer
    /// has no part or two; [`Error::System`] when no further thread can start.
    pub fn new(parts: Vec<Part>) -> Result<MixedFabric, Error> {
        let routes = routes(&parts)?;
        let parts: Vec<Arc<dyn Fabric>> = parts.into_iter().map(|part| Arc::from(part.fabric)).collect();
        let mut mixed = MixedFabric { parts, routes, deaths: Arc::default(), watchers: Vec::new() };
        for part in &mixed.parts {
            let (part, deaths) = (Arc::clone(part), Arc::clone(&mixed.deaths));
            let watcher =
                std::thread::Builder::new().name("comm-watch".to_owned()).spawn(move || watch(&*part, &deaths));
            mixed.watchers.push(watcher.map_err(Error::system("starting a thread that watches the peers"))?);
        }
        Ok(mixed)
    }

    fn part(&self, peer: MachineId) -> Result<&dyn Fabric, Error> {
        let index = self.routes.get(usize::from(peer.0)).copied().flatten();
        let (own, machines) = (self.machine(), self.machines());
        index.map(|index| &*self.parts[index]).ok_or(Error::NoSuchPeer { machine: peer, own, machines })
    }
}

/// Returns the part of each machine, if every peer has one.
fn routes(parts: &[Part]) -> Result<Vec<Option<usize>>, Error> {
    let Some(first) = parts.first().map(|part| &part.fabric) else {
        return Err(Error::bootstrap("a mixed fabric of no fabric"));
    };
    let (own, machines) = (first.machine(), first.machines());
    let mut routes = vec![None; usize::from(machines)];
    for (index, Part { fabric, peers }) in parts.iter().enumerate() {
        if fabric.machine() != own || fabric.machines() != machines {
            let (other, others) = (fabric.machine(), fabric.machines());
            return Err(Error::bootstrap(format!(
                "fabrics of {own} of {machines} and of {other} of {others} are put together"
            )));
        }
        if fabric.region().base() != first.region().base() || fabric.region().bytes() != first.region().bytes() {
            return Err(Error::bootstrap("fabrics with regions of their own are put together"));
        }
        for peer in peers {
            match routes.get_mut(usize::from(peer.0)) {
                Some(route @ None) if *peer != own => *route = Some(index),
                Some(Some(_)) => return Err(Error::bootstrap(format!("{peer} is to be reached by two fabrics"))),
                _ => return Err(Error::bootstrap(format!("{peer} is no peer of {own} in a program of {machines}"))),
            }
            fabric.region_bytes(*peer)?;
        }
    }
    if parts.iter().filter(|part| part.fabric.tells_sleep()).count() > 1 {
        return Err(Error::bootstrap("two fabrics that tell their peers who sleeps are put together"));
    }
    let unreached = (0..machines).map(MachineId).find(|peer| *peer != own && routes[usize::from(peer.0)].is_none());
    unreached.map_or(Ok(routes), |peer| Err(Error::bootstrap(format!("no fabric reaches {peer}"))))
}

/// Body of a watcher: notes each peer of this part that dies, until the watch ends.
fn watch(part: &dyn Fabric, deaths: &Liveness) {
    let mut known = Vec::new();
    let watch = || {
        loop {
            match part.watch(&known, Duration::MAX) {
                Ok(Some(peer)) => {
                    deaths.mark_lost(peer, Loss::Died, part.cause(peer).unwrap_or_default());
                    known.push(peer);
                }
                Ok(None) => return,
                Err(error) => return deaths.fail(error),
            }
        }
    };
    or_report(watch, |panic| deaths.fail(Error::system("watching the peers")(std::io::Error::other(panic))));
}

impl Fabric for MixedFabric {
    fn machine(&self) -> MachineId {
        self.parts[0].machine()
    }

    fn machines(&self) -> u16 {
        self.parts[0].machines()
    }

    fn region(&self) -> &Region {
        self.parts[0].region()
    }

    fn region_bytes(&self, peer: MachineId) -> Result<usize, Error> {
        self.part(peer)?.region_bytes(peer)
    }

    fn connect(&self, peer: MachineId, worker: WorkerId) -> Result<Box<dyn Connection>, Error> {
        self.part(peer)?.connect(peer, worker)
    }

    fn connect_all(&self, peers: &[MachineId], worker: WorkerId) -> Result<Vec<Box<dyn Connection>>, Error> {
        peers.iter().try_for_each(|peer| self.part(*peer).map(drop))?;
        let mut connections: Vec<_> = peers.iter().map(|_| None).collect();
        for (index, part) in self.parts.iter().enumerate() {
            let is_here = |peer: &MachineId| self.routes.get(usize::from(peer.0)) == Some(&Some(index));
            let places: Vec<usize> = (0..peers.len()).filter(|place| is_here(&peers[*place])).collect();
            let here: Vec<MachineId> = places.iter().map(|place| peers[*place]).collect();
            for (place, connection) in places.into_iter().zip(part.connect_all(&here, worker)?) {
                connections[place] = Some(connection);
            }
        }
        Ok(connections.into_iter().flatten().collect())
    }

    fn park(
        &self,
        worker: WorkerId,
        offset: usize,
        timeout: Duration,
        is_idle: &mut dyn FnMut() -> bool,
    ) -> Result<Wake, Error> {
        self.will_park(worker);
        match self.parts.iter().find(|part| part.tells_sleep()) {
            Some(part) => part.park(worker, offset, timeout, is_idle),
            None => park::park(self.region().word32(offset)?, timeout, is_idle),
        }
    }

    fn will_park(&self, worker: WorkerId) {
        self.parts.iter().for_each(|part| part.will_park(worker));
    }

    fn poll(&self, worker: WorkerId) -> Result<(), Error> {
        self.parts.iter().try_for_each(|part| part.poll(worker))
    }

    fn commit_region(&self, range: Range<usize>) -> Result<(), Error> {
        // The parts have one region: memory for it comes from the part that made it.
        self.parts.iter().try_for_each(|part| part.commit_region(range.clone()))
    }

    fn mapped(&self, machine: MachineId, share: ShareId) -> Result<Option<Arc<Share>>, Error> {
        let part = if machine == self.machine() { &*self.parts[0] } else { self.part(machine)? };
        part.mapped(machine, share)
    }

    /// Every part prepares it: the own shares, like the own region, belong to all of them.
    fn prepare_share(&self, share: &Share, range: Range<usize>) -> Result<(), Error> {
        self.parts.iter().try_for_each(|part| part.prepare_share(share, range.clone()))
    }

    fn cause(&self, peer: MachineId) -> Option<String> {
        self.part(peer).ok()?.cause(peer)
    }

    fn lost(&self, peer: MachineId) -> Result<Option<Loss>, Error> {
        self.part(peer)?.lost(peer)
    }

    fn watch(&self, known: &[MachineId], timeout: Duration) -> Result<Option<MachineId>, Error> {
        self.deaths.watch(known, timeout)
    }

    fn fence(&self, peer: MachineId, timeout: Duration) -> Result<(), Error> {
        self.part(peer)?.fence(peer, timeout)
    }

    fn end_watch(&self) {
        self.deaths.end_watch();
        self.parts.iter().for_each(|part| part.end_watch());
    }
}

impl Drop for MixedFabric {
    fn drop(&mut self) {
        self.end_watch();
        for watcher in self.watchers.drain(..) {
            // A watcher that panicked has already reported it.
            let _ = watcher.join();
        }
    }
}

impl fmt::Debug for MixedFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MixedFabric").field("machine", &self.machine()).field("routes", &self.routes).finish()
    }
}

#[cfg(test)]
mod tests;
