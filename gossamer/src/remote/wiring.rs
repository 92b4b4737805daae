//! All links and sources of a worker, and how it sleeps: made on the worker's own thread and given to `trust`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use comm::{Fabric, MachineId, WorkerId};
use trust::TrusteeId;
use trust::link::{Bell, Link, Source};

use super::image::Image;
use super::layout::Layout;
use super::link::FarLink;
use super::pair::{ClientHalf, SharedConnection, TrusteeHalf, Way};
use super::slot::{Direction, Violation};
use super::source::FarSource;
use crate::{Place, fate};

/// The two ends of a way, for telling what went wrong on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) own: Place,
    pub(super) other: Place,
}

impl Ends {
    /// Ends the program: `what` of the other end is wrong.
    pub(super) fn end(&self, what: &str, violation: &Violation) -> ! {
        fate::end(&format!("{}: {what} {}: {violation}", self.own, self.other))
    }
}

/// What all workers of this machine share.
#[derive(Clone)]
pub(crate) struct Wiring {
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) image: &'static Image,
}

impl Wiring {
    /// Attaches the calling worker, which is this one of the machine, to all workers of the other machines.
    pub(crate) fn attach(&self, worker: u16) -> Result<(), comm::Error> {
        let own = Place { machine: self.fabric.machine().0, worker };
        let mut links: Vec<(TrusteeId, Box<dyn Link>)> = Vec::new();
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        for (machine, &workers) in (0u16..).zip(self.layout.workers()).filter(|(machine, _)| *machine != own.machine) {
            let connection = self.fabric.connect(MachineId(machine), WorkerId(worker))?;
            let connection = Rc::new(RefCell::new(connection));
            for other in (0..workers).map(|worker| Place { machine, worker }) {
                let (client, trustee) = self.halves(&connection, own, other);
                let ends = Ends { own, other };
                links.push((other.trustee_id(), Box::new(FarLink::new(client, self.image, ends))));
                sources.push(Box::new(FarSource::new(trustee, other.trustee_id(), self.image, ends)));
            }
        }
        let offset = self.layout.park_word(worker);
        let bell = FabricBell { fabric: Arc::clone(&self.fabric), worker: WorkerId(worker), offset };
        trust::link::attach(links, sources, Some(Box::new(bell)));
        Ok(())
    }

    /// The half with which `own` is a client of `other`, and that with which it is its trustee.
    pub(super) fn halves(&self, connection: &SharedConnection, own: Place, other: Place) -> (ClientHalf, TrusteeHalf) {
        let way = |direction, to, from| Way {
            fabric: Arc::clone(&self.fabric),
            connection: Rc::clone(connection),
            direction,
            to,
            bell: self.layout.park_word(other.worker),
            from,
        };
        let layout = &self.layout;
        let client = way(Direction::Request, layout.request_slot(other, own), layout.answer_slot(own, other));
        let trustee = way(Direction::Answer, layout.answer_slot(other, own), layout.request_slot(own, other));
        (ClientHalf::new(client), TrusteeHalf::new(trustee))
    }
}

/// A worker's sleep, on its park word in the region, where other machines can end it.
struct FabricBell {
    fabric: Arc<dyn Fabric>,
    worker: WorkerId,
    offset: usize,
}

impl Bell for FabricBell {
    fn park(&self, limit: Option<Duration>, is_idle: &mut dyn FnMut() -> bool) {
        if let Err(error) = self.fabric.park(self.worker, self.offset, limit.unwrap_or(Duration::MAX), is_idle) {
            fate::end(&format!("a worker cannot sleep: {error}"));
        }
    }

    fn ring(&self) {
        if let Err(error) = self.fabric.ring(self.offset) {
            fate::end(&format!("a worker cannot be woken: {error}"));
        }
    }
}
