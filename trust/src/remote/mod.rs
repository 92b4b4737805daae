//! A worker's state for other machines: as a client of their workers (`client`), as a trustee of theirs (`server`), and
//! the carrier (`carrier`) that takes batches there and back. The layout of a batch: `frame`; errors of requests:
//! `fault`.
//!
//! Invariant: the carrier is not borrowed while closures or callbacks run, for they may send.

#![allow(unsafe_code)]

mod carrier;
mod client;
mod fault;
mod frame;
mod numbers;
mod server;
#[cfg(all(test, not(loom), not(miri)))]
mod tests;

pub use carrier::Carrier;
pub(crate) use fault::RemoteFault;
pub(crate) use numbers::{forward, numbers_for, service, take_forwarded};
pub(crate) use server::PeerClient;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::config::REMOTE_KEPT_BYTES_MAX;
use crate::fiber::Waits;
use crate::ids::TrusteeId;
use crate::property::Header;
use crate::request::{Fault, Host, OperationOf, Request, Response};
use client::{Continuations, PeerTrustee};
use frame::{Malformed, Writer};
use numbers::Numbers;

/// Bytes that a carrier may put behind a batch without moving it.
pub(crate) const BEHIND_BYTES: usize = 64;

/// The worker that this state belongs to.
pub(crate) trait Local: Host + Waits {}
impl<W: Host + Waits> Local for W {}

/// A worker's state for other machines: nothing, or its peers.
#[derive(Default)]
pub(crate) struct Remote {
    peers: OnceCell<Box<Peers>>,
}

/// The workers of other machines, each a trustee and a client, named by their place at the carrier.
struct Peers {
    carrier: RefCell<Box<dyn Carrier>>,
    room_bytes: usize,
    trustees: Box<[PeerTrustee]>,
    clients: Box<[Rc<PeerClient>]>,
    /// The service thread of this machine, and of each other one.
    service: TrusteeId,
    services: Box<[TrusteeId]>,
    /// Number of requests made to each trustee.
    numbers: Arc<Numbers>,
    /// Places by machine and worker; those of lost machines are in no list.
    places: Vec<Vec<Cell<usize>>>,
    lost: RefCell<Vec<u16>>,
    /// Places of trustees with outstanding requests.
    active: RefCell<Vec<usize>>,
    /// Memory to be used again.
    writers: RefCell<Vec<Writer>>,
    continuations: RefCell<Vec<Continuations>>,
    incoming: Cell<Buffer>,
    answer: Cell<Buffer>,
    scratch: Cell<Vec<u8>>,
}

impl Peers {
    fn new(worker: TrusteeId, carrier: Box<dyn Carrier>) -> Peers {
        let ids = carrier.peers();
        let mut places: Vec<Vec<Cell<usize>>> = Vec::new();
        for (place, id) in ids.iter().enumerate() {
            let machine = usize::from(id.machine());
            places.resize_with(places.len().max(machine + 1), Vec::new);
            let row = &mut places[machine];
            row.resize(row.len().max(id.index() + 1), Cell::new(usize::MAX));
            row[id.index()].set(place);
        }
        Peers {
            room_bytes: carrier.room_bytes(),
            trustees: ids.iter().enumerate().map(|(place, &id)| PeerTrustee::new(id, place)).collect(),
            clients: ids.iter().map(|&id| Rc::new(PeerClient::new(id))).collect(),
            service: carrier.service(),
            services: carrier.services().into(),
            numbers: Numbers::new(worker, ids),
            places,
            lost: RefCell::default(),
            active: RefCell::default(),
            writers: RefCell::default(),
            continuations: RefCell::default(),
            incoming: Cell::default(),
            answer: Cell::default(),
            scratch: Cell::default(),
            carrier: RefCell::new(carrier),
        }
    }

    #[inline(always)]
    fn trustee(&self, id: TrusteeId) -> Option<&PeerTrustee> {
        let place = self.places.get(usize::from(id.machine()))?.get(id.index())?.get();
        self.trustees.get(place).filter(|peer| peer.trustee == id)
    }

    /// Puts a trustee among those with outstanding requests.
    #[inline(always)]
    fn list(&self, peer: &PeerTrustee) {
        if !peer.listed.replace(true) {
            self.active.borrow_mut().push(peer.place);
        }
    }

    /// The trustees of a machine.
    fn of(&self, machine: u16) -> impl Iterator<Item = &PeerTrustee> {
        self.trustees.iter().filter(move |peer| peer.trustee.machine() == machine)
    }

    /// Ends the program: bytes from this peer make no sense.
    #[cold]
    fn end(&self, place: usize, Malformed(what): Malformed) -> ! {
        self.carrier.borrow().end(place, what)
    }
}

impl Remote {
    /// Gives this worker its carrier. Called once.
    pub(crate) fn attach(&self, worker: TrusteeId, carrier: Box<dyn Carrier>) {
        let _ = self.peers.set(Box::new(Peers::new(worker, carrier)));
        numbers::attached(worker);
    }

    #[inline(always)]
    pub(crate) fn is_attached(&self) -> bool {
        self.peers.get().is_some()
    }

    /// This worker of another machine, which is not lost, as a client.
    pub(crate) fn client(&self, machine: u16, worker: u16) -> Option<Rc<PeerClient>> {
        let peers = self.peers.get()?;
        let place = peers.places.get(usize::from(machine))?.get(usize::from(worker))?.get();
        peers.clients.get(place).cloned()
    }

    /// The service thread of this machine, if there are others.
    pub(crate) fn service(&self) -> Option<TrusteeId> {
        self.peers.get().map(|peers| peers.service)
    }

    /// The service threads of the other machines that are not lost.
    pub(crate) fn services(&self) -> Vec<TrusteeId> {
        let Some(peers) = self.peers.get() else { return Vec::new() };
        let lost = peers.lost.borrow();
        peers.services.iter().copied().filter(|service| !lost.contains(&service.machine())).collect()
    }

    pub(crate) fn is_lost(&self, machine: u16) -> bool {
        self.peers.get().is_some_and(|peers| peers.lost.borrow().contains(&machine))
    }

    pub(crate) fn is_outstanding(&self) -> bool {
        self.peers.get().is_some_and(|peers| peers.trustees.iter().any(PeerTrustee::is_outstanding))
    }

    /// Returns the place of each trustee with outstanding requests, and the number of batches written for it so far.
    pub(crate) fn written_in_all(&self) -> Vec<(usize, u64)> {
        let Some(peers) = self.peers.get() else { return Vec::new() };
        peers.active.borrow().iter().map(|&place| (place, peers.trustees[place].written_in_all())).collect()
    }

    /// Waits until this many batches have been answered, and their continuations have run.
    pub(crate) fn wait_for_answers(&self, worker: &impl Local, written: &[(usize, u64)]) {
        let Some(peers) = self.peers.get() else { return };
        written.iter().for_each(|&(place, batches)| peers.trustees[place].wait_for_answers(worker, batches));
    }

    /// Is there anything to collect or to serve?
    pub(crate) fn has_work(&self) -> bool {
        self.peers.get().is_some_and(|peers| peers.carrier.borrow().has_work())
    }

    /// Takes responses.
    pub(crate) fn collect(&self, worker: &impl Local) -> bool {
        self.collect_each(worker, |_| ())
    }

    /// The same, and calls `collected` after the answers of each trustee.
    pub(crate) fn collect_each(&self, worker: &impl Local, mut collected: impl FnMut(TrusteeId)) -> bool {
        let Some(peers) = self.peers.get() else { return false };
        peers.carrier.borrow_mut().turn();
        let (mut any, mut at) = (false, 0);
        loop {
            let Some(place) = peers.active.borrow().get(at).copied() else { return any };
            let peer = &peers.trustees[place];
            any |= peer.collect(worker, peers);
            collected(peer.trustee);
            if peer.is_outstanding() {
                at += 1;
            } else {
                peer.listed.set(false);
                peers.active.borrow_mut().swap_remove(at);
            }
        }
    }

    /// Serves requests.
    pub(crate) fn serve(&self, worker: &impl Local) -> bool {
        let Some(peers) = self.peers.get() else { return false };
        let (mut any, mut from) = (false, 0);
        loop {
            let next = peers.carrier.borrow().find_requests(from);
            let Some(place) = next else { return any };
            any |= server::serve(worker, peers, place);
            from = place + 1;
        }
    }

    /// Sends pending requests, and the batches that the carrier held back.
    pub(crate) fn flush(&self, worker: &impl Local) {
        let Some(peers) = self.peers.get() else { return };
        for &place in &*peers.active.borrow() {
            peers.trustees[place].flush(worker, peers);
        }
        peers.carrier.borrow_mut().flush();
    }

    /// Sends pending requests to this trustee, if there is room for one more batch, before the turn ends.
    pub(crate) fn send_now(&self, worker: &impl Local, trustee: TrusteeId) {
        if let Some(peers) = self.peers.get()
            && let Some(peer) = peers.trustee(trustee)
        {
            peer.send_now(worker, peers);
            peers.carrier.borrow_mut().flush();
        }
    }

    /// This machine is lost: nothing of it is served or collected any more. Its trustees are found no more; the
    /// requests to them that were sent fail as lost, all others as never sent.
    pub(crate) fn lose(&self, worker: &impl Local, machine: u16) {
        let Some(peers) = self.peers.get() else { return };
        if peers.lost.borrow().contains(&machine) {
            return;
        }
        peers.lost.borrow_mut().push(machine);
        peers.places.get(usize::from(machine)).into_iter().flatten().for_each(|place| place.set(usize::MAX));
        peers.carrier.borrow_mut().lose(machine);
        peers.active.borrow_mut().retain(|place| peers.trustees[*place].trustee.machine() != machine);
        peers.of(machine).for_each(|peer| peer.lose(worker, peers, machine));
    }

    /// Adds a request for a trustee of another machine, or returns the reason why it cannot be sent.
    ///
    /// # Safety
    /// If it is sent the values behind `request` and `response` have been moved out. The response must fit the
    /// request's output (see [`Response`]).
    #[inline(never)]
    pub(crate) unsafe fn submit<C: Request, R: Response + 'static>(
        &self,
        worker: &impl Local,
        trustee: TrusteeId,
        property: *mut Header,
        request: *mut C,
        response: *mut R,
        may_wait: bool,
    ) -> Result<(), Fault> {
        if const { C::STAYS } {
            return Err(Fault::Apart);
        }
        let Some((peers, peer)) = self.peers.get().and_then(|peers| Some((peers, peers.trustee(trustee)?))) else {
            return Err(self.not_sent(worker, trustee, may_wait));
        };
        if may_wait && peer.wait_for_place(worker) {
            return Err(Fault::Gone);
        }
        if const { C::IS_FLAT } {
            // SAFETY: the caller's promise; nothing is moved as long as it does not fit.
            while !unsafe { peer.try_push(peers, property, request, response) } {
                peer.close(worker, peers);
            }
        } else {
            let mut packed = peers.scratch.take();
            packed.clear();
            // SAFETY: the caller's promise; each is read once.
            let (request, response) = unsafe { (request.read(), response.read()) };
            request.pack(&mut packed);
            peer.push_packed(worker, peers, property, OperationOf::<C>::INLINE, &packed, response);
            peers.put_back(packed);
        }
        peer.note_submitted(worker, peers);
        Ok(())
    }

    /// Same as [`submit`](Self::submit), with a request that `pack` writes in its packed form.
    pub(crate) fn submit_packed<C: Request, R: Response + 'static>(
        &self,
        worker: &impl Local,
        trustee: TrusteeId,
        property: *mut Header,
        pack: impl FnOnce(&mut Vec<u8>) -> Result<(), Fault>,
        response: R,
        may_wait: bool,
    ) -> Result<(), (R, Fault)> {
        let Some((peers, peer)) = self.peers.get().and_then(|peers| Some((peers, peers.trustee(trustee)?))) else {
            return Err((response, self.not_sent(worker, trustee, may_wait)));
        };
        let mut packed = peers.scratch.take();
        packed.clear();
        let outcome = match pack(&mut packed) {
            Ok(()) if may_wait && peer.wait_for_place(worker) => {
                // SAFETY: [request-read-once]: just packed, and not sent.
                unsafe { (OperationOf::<C>::INLINE.drop_packed)(&packed) };
                Err((response, Fault::Gone))
            }
            Ok(()) => {
                peer.push_packed(worker, peers, property, OperationOf::<C>::INLINE, &packed, response);
                peer.note_submitted(worker, peers);
                Ok(())
            }
            Err(fault) => Err((response, fault)),
        };
        peers.put_back(packed);
        outcome
    }

    /// Returns the reason why a request for this trustee cannot be sent. A fiber yields, for requests that never wait
    /// would hold up all others of its worker: to a machine that lives they wait while much is under way.
    #[cold]
    fn not_sent(&self, worker: &impl Local, trustee: TrusteeId, may_wait: bool) -> Fault {
        if may_wait && worker.scheduler().current().is_some() {
            worker.scheduler().yield_now();
        }
        self.why_not(trustee)
    }

    fn why_not(&self, trustee: TrusteeId) -> Fault {
        match self.peers.get() {
            Some(peers) if peers.lost.borrow().contains(&trustee.machine()) => Fault::Gone,
            Some(_) => Fault::Refused(format!("{trustee:?} is not a worker of this rack program")),
            None => Fault::Refused(format!(
                "{trustee:?} is on another machine, which only the workers of a rack program can reach: \
                 do this in a fiber (`gossamer::spawn`) rather than in a thread of your own"
            )),
        }
    }
}

impl Peers {
    fn put_back(&self, scratch: Vec<u8>) {
        if scratch.capacity() <= REMOTE_KEPT_BYTES_MAX {
            self.scratch.set(scratch);
        }
    }
}
