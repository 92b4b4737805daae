//! `TrusteeReference`: a trustee by name, and entrusting to it.

#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use crate::count::Adopt;
use crate::homes::Homes;
use crate::property::{self, Header, Property};
use crate::registry::{self, TrusteeId};
use crate::request::{Fault, Response, Resuming};
use crate::trust::Trust;
use crate::worker::{self, Worker};

/// A trustee: the part of a thread that holds properties and runs closures on them.
///
/// Every OS thread has one, from the first time that it uses this library until it ends.
///
/// Source: thesis 2.3.2.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TrusteeReference {
    id: TrusteeId,
}

impl TrusteeReference {
    /// Entrusts a value to this trustee. Does not wait, and is legal everywhere.
    ///
    /// If the trustee is gone the value is dropped here, and requests through the trust fail with
    /// [`Error::Gone`](crate::Error::Gone). To a trustee of another machine of a rack program a value cannot go this way, as it
    /// may hold pointers: then it is as if the trustee were gone, and standard error tells (`gossamer::entrust_with` makes
    /// the value there).
    ///
    /// ```
    /// let pool = trust::Threadpool::new(2);
    /// let here = trust::local_trustee().entrust(1);
    /// let there = pool.trustees()[1].entrust(2);
    /// assert_eq!(here.apply(|v| *v) + there.apply(|v| *v), 3);
    /// ```
    pub fn entrust<T: Send + 'static>(&self, value: T) -> Trust<T> {
        self.try_entrust(value).unwrap_or_else(|value| {
            drop(value);
            Trust::of(std::ptr::null_mut(), TrusteeId::vacant())
        })
    }

    /// As [`entrust`](Self::entrust); gives the value back where this trustee is known to be gone, or of another machine.
    pub(crate) fn try_entrust<T: Send + 'static>(&self, value: T) -> Result<Trust<T>, T> {
        worker::with(|worker| {
            if worker.home.get() == self.id {
                let property = Property::allocate(&worker.shared.homes, value);
                worker.adopt(property);
                return Ok(Trust::of(property, self.id));
            }
            let Some(homes) = self.homes(worker) else {
                return Err(value);
            };
            let property = Property::allocate(&homes, value);
            if registry::is_in_rack() {
                homes.announce(property);
            }
            worker.submit(self.id, property, Adopt, AdoptRefused(property), false);
            Ok(Trust::of(property, self.id))
        })
    }

    /// The homes of this trustee, if it is on this machine, or was. A trust that names another one, with a property that only
    /// this machine has, would be followed there, or by whoever gets that id later.
    fn homes(&self, worker: &Worker) -> Option<Arc<Homes>> {
        if self.id.machine() != registry::machine() {
            crate::unwind::tell(format_args!(
                "a value cannot be entrusted to {:?} of another machine, for it may hold pointers: it was dropped; \
                 use `gossamer::entrust_with` to make it there",
                self.id
            ));
            return None;
        }
        let known = worker.at(self.id.index()).filter(|outgoing| outgoing.trustee == self.id);
        known
            .map(|outgoing| Arc::clone(outgoing.homes()))
            .or_else(|| registry::find(self.id).map(|trustee| Arc::clone(&trustee.homes)))
    }

    /// Its id.
    pub fn id(&self) -> TrusteeId {
        self.id
    }

    /// Is it the trustee of the calling thread?
    pub fn is_local(&self) -> bool {
        worker::try_with(|worker| worker.id == self.id).unwrap_or(false)
    }

    /// The trustee with this id.
    pub fn from_id(id: TrusteeId) -> Self {
        TrusteeReference { id }
    }
}

impl fmt::Debug for TrusteeReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrusteeReference({:?})", self.id)
    }
}

/// The trustee of the calling thread.
///
/// # Panics
/// In a destructor of a thread-local that runs after the thread's trustee has ended.
pub fn local_trustee() -> TrusteeReference {
    worker::with(|worker| TrusteeReference { id: worker.id })
}

/// Entrusts a value to the calling thread's trustee; it never leaves the thread, so it need not be `Send`. Legal everywhere.
pub fn entrust_here<T: 'static>(value: T) -> Trust<T> {
    worker::with(|worker| {
        let property = Property::allocate(&worker.shared.homes, value);
        worker.adopt(property);
        Trust::of(property, worker.id)
    })
}

/// A property that its trustee did not take: it is dropped here.
struct AdoptRefused(*mut Header);

impl Response for AdoptRefused {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        match fault {
            // SAFETY: `Adopt` puts `()`.
            None => unsafe { resuming.responses.take::<()>() },
            // SAFETY: the trustee has never known it, and as it is gone no request will reach it.
            Some(_) => unsafe { property::destroy(self.0) },
        }
    }
}
