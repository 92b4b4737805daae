//! Carrier and waker of a thread: made on that thread, a worker or the service thread, and given to `trust`.

#![allow(unsafe_code)] // `Waker` is a promise

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use comm::{Fabric, MachineId, WorkerId};
use trust::link::Waker;

use super::carrier::{Peer, RackCarrier};
use super::connections::{self, Connection, SharePath};
use super::gate;
use super::image::Image;
use super::layout::Layout;
use super::stream::{AckWords, FrameStream, Offsets};
use super::ways::{ServiceWaker, Ways, WaysCarrier};
use crate::losses::record;
use crate::{Place, fate};

/// Objects that all threads of this machine share.
#[derive(Clone)]
pub(crate) struct Wiring {
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) image: &'static Image,
    /// In place of rings.
    pub(crate) ways: Option<Arc<Ways>>,
}

impl Wiring {
    /// Makes the machine ways, where the layout has them.
    pub(crate) fn new(
        fabric: Arc<dyn Fabric>,
        layout: Arc<Layout>,
        image: &'static Image,
    ) -> Result<Wiring, comm::Error> {
        let ways = if layout.has_ways() { Some(Ways::connect(&fabric, &layout)?) } else { None };
        Ok(Wiring { fabric, layout, image, ways })
    }

    /// Attaches the calling thread, which is this one of the machine, to all threads of the other machines.
    pub(crate) fn attach(&self, worker: u16) -> Result<(), comm::Error> {
        let offset = self.layout.park_word(worker);
        let waker = FabricWaker { fabric: Arc::clone(&self.fabric), worker: WorkerId(worker), offset };
        match &self.ways {
            None => trust::link::attach(Some(Box::new(self.carrier(worker)?)), Some(Box::new(waker))),
            Some(ways) => {
                let carrier = Box::new(self.ways_carrier(ways, worker));
                ways.keep_paths(&carrier.share_writes());
                let waker: Box<dyn Waker> = match self.is_service(worker) {
                    true => Box::new(ServiceWaker::new(Arc::clone(ways))),
                    false => Box::new(waker),
                };
                trust::link::attach(Some(carrier), Some(waker));
            }
        }
        // Those that were noted before the workers were told: this one had no peers to lose then.
        record::after(0).into_iter().for_each(trust::link::lose);
        Ok(())
    }

    fn is_service(&self, worker: u16) -> bool {
        let own = self.fabric.machine().0;
        Place { machine: own, worker } == self.layout.service(own)
    }

    pub(super) fn ways_carrier(&self, ways: &Arc<Ways>, worker: u16) -> WaysCarrier {
        let gate = gate::get().filter(|_| !self.is_service(worker));
        WaysCarrier::new(Arc::clone(ways), self.image, worker, gate)
    }

    /// Makes the streams of this thread to all threads of the other machines.
    pub(super) fn carrier(&self, worker: u16) -> Result<RackCarrier, comm::Error> {
        let own = Place { machine: self.fabric.machine().0, worker };
        let (mut peers, mut services, mut connections) = (Vec::new(), Vec::new(), Vec::new());
        let others: Vec<MachineId> =
            (0..self.layout.machines()).filter(|machine| *machine != own.machine).map(MachineId).collect();
        for (MachineId(machine), made) in others.iter().zip(self.fabric.connect_all(&others, WorkerId(worker))?) {
            let machine = *machine;
            services.push(self.layout.service(machine).trustee_id());
            let connection = connections.len();
            let new = Rc::new(Connection::new(made));
            connections::keep(MachineId(machine), Rc::clone(&new) as Rc<dyn SharePath>);
            connections.push(new);
            for place in (0..self.layout.threads(machine)).map(|worker| Place { machine, worker }) {
                let (as_client, as_trustee) = self.streams(own, place);
                peers.push(Peer { place, connection, as_client, as_trustee });
            }
        }
        let (fabric, room_bytes) = (Arc::clone(&self.fabric), self.layout.slots().room_bytes());
        let gate = gate::get().filter(|_| !self.is_service(worker));
        let services = (self.layout.service(own.machine).trustee_id(), services);
        Ok(RackCarrier::new(fabric, self.image, own, room_bytes, peers, services, connections).behind(gate))
    }

    /// Makes the stream on which `own` is a client of `other`, and that on which it is its trustee.
    pub(super) fn streams(&self, own: Place, other: Place) -> (FrameStream, FrameStream) {
        let (layout, park_word) = (&self.layout, self.layout.park_word(other.worker));
        let as_client = Offsets {
            from: layout.answer_slots(own, other),
            to: layout.request_slots(other, own),
            acks: AckWords::new(layout.request_ack(own, other), layout.answer_ack(other, own)),
            park_word,
        };
        let as_trustee = Offsets {
            from: layout.request_slots(own, other),
            to: layout.answer_slots(other, own),
            acks: AckWords::new(layout.answer_ack(own, other), layout.request_ack(other, own)),
            park_word,
        };
        (
            FrameStream::new(layout.slots_of(own, other), as_client),
            FrameStream::new(layout.slots_of(own, other), as_trustee),
        )
    }
}

/// Waker of a worker, which sleeps on its park word in the region, where other machines can wake it.
struct FabricWaker {
    fabric: Arc<dyn Fabric>,
    worker: WorkerId,
    offset: usize,
}

// SAFETY: neither function calls the library.
unsafe impl Waker for FabricWaker {
    fn park(&self, limit: Option<Duration>, is_idle: &mut dyn FnMut() -> bool) {
        if let Err(error) = self.fabric.park(self.worker, self.offset, limit.unwrap_or(Duration::MAX), is_idle) {
            fate::end(&format!("a worker cannot sleep: {error}"));
        }
    }

    fn wake(&self) {
        if let Err(error) = self.fabric.wake(self.offset) {
            fate::end(&format!("a worker cannot be woken: {error}"));
        }
    }
}
