//! `TrusteeReference`: names a trustee, entrusts values to it, starts fibers on its thread.

#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use crate::api::trust::Trust;
use crate::ids::{self, TrusteeId};
use crate::property::slab::PropertySlab;
use crate::property::{self, Header, Property};
use crate::registry;
use crate::request::{Fault, Response, Resuming};
use crate::runtime::worker::reclaim::Adopt;
use crate::runtime::worker::{self, Worker};
use crate::tasks::join::{self, JoinHandle};

/// Reference to a trustee: the part of a thread that holds properties and runs closures on them.
///
/// Every OS thread has a trustee, from its first use of this library until it ends.
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
    /// [`Error::Gone`](crate::Error::Gone). A value cannot go to a trustee of another machine of a rack program this
    /// way, as it may hold pointers: it is treated as if the trustee were gone, with a message on standard error
    /// (`gossamer::entrust_with` makes the value there).
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

    /// Same as [`entrust`](Self::entrust), but returns the value if this trustee is known to be gone, or is on another
    /// machine.
    pub(crate) fn try_entrust<T: Send + 'static>(&self, value: T) -> Result<Trust<T>, T> {
        worker::with(|worker| {
            if worker.home.get() == self.id {
                let property = Property::allocate(&worker.shared.slab, value);
                worker.adopt(property);
                return Ok(Trust::of(property, self.id));
            }
            let Some(slab) = self.slab(worker) else {
                return Err(value);
            };
            let property = Property::allocate(&slab, value);
            self.hand_over(worker, &slab, property);
            Ok(Trust::of(property, self.id))
        })
    }

    /// Entrusts values to this trustee, beside each other. Returns the trustee and the places of the properties, for
    /// [`Property::nth`]. If it is gone the values are dropped here, as by [`entrust`](Self::entrust).
    pub(super) fn entrust_run<T: Send + 'static>(&self, values: Vec<T>) -> (TrusteeId, Box<[*mut u8]>) {
        worker::with(|worker| {
            let is_here = worker.home.get() == self.id;
            let slab = if is_here { Some(Arc::clone(&worker.shared.slab)) } else { self.slab(worker) };
            let Some(slab) = slab else {
                return (TrusteeId::vacant(), Property::<T>::no_run(values.len()));
            };
            let count = values.len();
            let run = Property::allocate_run(&slab, values);
            for property in (0..count).map(|number| Property::<T>::nth(&run, number)) {
                self.hand_over(worker, &slab, property);
            }
            (self.id, run)
        })
    }

    /// Lets the trustee know of a new property in its slab.
    fn hand_over(&self, worker: &Worker, slab: &PropertySlab, property: *mut Header) {
        if worker.home.get() == self.id {
            return worker.adopt(property);
        }
        if ids::is_in_rack() {
            slab.announce(property);
        }
        worker.submit(self.id, property, Adopt, AdoptRefused(property), false);
    }

    /// Returns the slab of this trustee, if the trustee is or was on this machine. None otherwise: a trust that named a
    /// trustee of another machine, with a property of this machine, would be dereferenced there, or by the next owner
    /// of that id.
    fn slab(&self, worker: &Worker) -> Option<Arc<PropertySlab>> {
        if self.id.machine() != ids::machine() {
            crate::unwind::tell(format_args!(
                "a value cannot be entrusted to {:?} of another machine, for it may hold pointers: it was dropped; \
                 use `gossamer::entrust_with` to make it there",
                self.id
            ));
            return None;
        }
        let known = worker.pairs.find(self.id);
        known
            .map(|outgoing| Arc::clone(outgoing.slab()))
            .or_else(|| registry::find(self.id).map(|trustee| Arc::clone(&trustee.slab)))
    }

    /// Returns its id.
    ///
    /// ```
    /// let here = trust::local_trustee();
    /// assert_eq!(trust::TrusteeReference::from_id(here.id()), here);
    /// ```
    pub fn id(&self) -> TrusteeId {
        self.id
    }

    /// Returns whether it is the trustee of the calling thread.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(1);
    /// assert!(trust::local_trustee().is_local());
    /// assert!(!pool.trustees()[0].is_local());
    /// ```
    pub fn is_local(&self) -> bool {
        worker::try_with(|worker| worker.id == self.id).unwrap_or(false)
    }

    /// Returns the trustee with this id.
    ///
    /// ```
    /// use trust::{TrusteeId, TrusteeReference};
    /// let here = trust::local_trustee();
    /// let kept: u64 = here.id().to_bits(); // as a number, in a message say
    /// assert_eq!(TrusteeReference::from_id(TrusteeId::from_bits(kept)), here);
    /// ```
    pub fn from_id(id: TrusteeId) -> Self {
        TrusteeReference { id }
    }
}

impl fmt::Debug for TrusteeReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrusteeReference({:?})", self.id)
    }
}

/// Returns the trustee of the calling thread.
///
/// # Panics
/// In a destructor of a thread-local that runs after the thread's trustee has ended; on a thread that has none, where
/// the process has 65,536 trustees, the most it can have.
///
/// ```
/// let counter = trust::local_trustee().entrust(0);
/// let other = counter.clone();
/// let thread = std::thread::spawn(move || other.apply(|c| *c += 1));
/// while !thread.is_finished() {
///     trust::yield_now(); // serves
/// }
/// assert_eq!(counter.apply(|c| *c), 1);
/// ```
pub fn local_trustee() -> TrusteeReference {
    worker::with(|worker| TrusteeReference { id: worker.id })
}

/// Entrusts a value to the calling thread's trustee; it never leaves the thread, so it need not be `Send`. Legal
/// everywhere.
pub fn entrust_here<T: 'static>(value: T) -> Trust<T> {
    worker::with(|worker| {
        let property = Property::allocate(&worker.shared.slab, value);
        worker.adopt_bound(property);
        Trust::of(property, worker.id)
    })
}

/// Keeps the calling thread's trustee on the thread: it does not move from here on ([`Bound::Values`]). For values that
/// are `Send` by promise, and belong to the thread. Legal everywhere.
///
/// [`Bound::Values`]: crate::Bound::Values
pub fn bind_here() {
    worker::with(Worker::bind);
}

/// Starts a fiber on the thread of a trustee. Legal everywhere; does not wait.
///
/// If the trustee is gone, the handle's `join` returns that as an error.
///
/// ```
/// let pool = trust::Threadpool::new(2);
/// let fiber = trust::spawn_on(&pool.trustees()[1], trust::local_trustee);
/// assert_eq!(fiber.join().unwrap(), pool.trustees()[1]);
/// ```
pub fn spawn_on<F, R>(trustee: &TrusteeReference, f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    join::spawn_at(trustee.id(), f)
}

impl<T> Trust<T> {
    /// Returns the trustee of the property.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(2);
    /// let (number, text) = (pool.trustees()[1].entrust(1), pool.trustees()[1].entrust("one"));
    /// assert_eq!(number.trustee(), text.trustee());
    /// ```
    pub fn trustee(&self) -> TrusteeReference {
        TrusteeReference::from_id(self.parts().1)
    }
}

/// Property that its trustee did not accept: it is dropped here.
struct AdoptRefused(*mut Header);

impl Response for AdoptRefused {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        match fault {
            // SAFETY: `Adopt` puts `()`.
            None => unsafe { resuming.responses.take::<()>() },
            // SAFETY: the trustee never knew the property, and as it is gone no request will reach the property.
            Some(_) => unsafe { property::destroy(self.0) },
        }
    }
}
