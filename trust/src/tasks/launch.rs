//! `launch`: a delegated closure that runs in a fiber at the trustee, and may wait (thesis 2.4.3).
//!
//! The request starts the fiber and is answered at once; the result comes as a separate request, from the trustee's
//! worker to the client's, with the token under which the client keeps the callback. While it runs, the fiber owns the
//! latched value: it takes the value out of the property's [`Latch`] and puts it back, so no two fibers have it, even
//! if a plain `apply` replaces the latch meanwhile. Fibers that wait for a value to come back stand in line by
//! property, first come, first served.

#![allow(unsafe_code)]

use std::any::type_name;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::fiber::record::Whom;
use crate::fiber::{NotStarted, Origin};
use crate::ids::TrusteeId;
use crate::property::Header;
use crate::request::{Fault, Host, Request, Response, Resuming, Serving, Target};
use crate::runtime::worker::launches::Callback;
use crate::runtime::worker::{self, Context, Worker, poisoned};
use crate::tasks::deliver::{call_back, deliver_fault};
use crate::tasks::held::{Held, put_back, wait_for_value};
use crate::tasks::job::Job;
use crate::tasks::latch::Latch;
use crate::unwind::quietly;

/// Launches a job on a property; `then` is called on this thread with the outcome. Returns the token of the wait.
pub(crate) fn launch<T: 'static, J: Job<T>>(
    worker: &Worker,
    trustee: TrusteeId,
    property: *mut Header,
    job: J,
    then: Callback<J::Output>,
) -> u64 {
    worker.launches.wait_for_place(worker);
    let token = worker.launches.expect(trustee, then);
    let request = Launch { job, token, property: std::marker::PhantomData };
    if trustee == worker.home.get() {
        // SAFETY: the caller holds a trust of this property, whose trustee this is.
        let started = unsafe { request.start(worker, property, worker.id) };
        if let Err(fault) = started {
            call_back(worker, || worker.launches.fail(token, fault));
        }
    } else {
        let may_wait = worker.context() == Context::Free;
        worker.submit(trustee, property, request, Accepted { token }, may_wait);
    }
    token
}

/// Sends the outcome to the client.
pub(crate) fn deliver<T, J: Job<T>>(worker: &Worker, client: TrusteeId, token: u64, outcome: Result<J::Output, Fault>) {
    if client == worker.id {
        return call_back(worker, || worker.launches.complete(token, outcome));
    }
    match outcome {
        Ok(output) => J::deliver(worker, client, token, output),
        Err(fault) => deliver_fault(worker, client, token, fault),
    }
}

/// Makes the fault of a fiber that could not be started. Its closure is dropped first, for that is user code.
pub(crate) fn refused(NotStarted { error, run }: NotStarted) -> Fault {
    quietly(|| drop(run));
    Fault::Refused(error.to_string())
}

struct Launch<T, J> {
    job: J,
    token: u64,
    property: std::marker::PhantomData<fn(&mut T)>,
}

impl<T: 'static, J: Job<T>> Launch<T, J> {
    /// # Safety
    /// The property is a live `Property<Latch<T>>` of this worker.
    unsafe fn start(self, worker: &Worker, property: *mut Header, client: TrusteeId) -> Result<(), Fault> {
        let (job, token) = (self.job, self.token);
        // SAFETY: the caller's promise.
        unsafe {
            if (*property).is_poisoned() {
                // A capture that panics when dropped is reported by the hook: the client gets the poison in any case.
                quietly(|| drop(job));
                return Err(poisoned(property));
            }
            worker.count(property, 1);
        }
        worker.launches.note_running(client, token, deliver_fault);
        let run = Box::new(move || {
            worker::with(|worker| {
                // SAFETY: the +1 above keeps the property until the fiber gives it back at its end.
                let outcome = unsafe { run_latched(worker, property, |held: &mut Held<'_, T>| job.run(held)) };
                // An undelivered value may panic when it is dropped.
                quietly(|| deliver::<T, J>(worker, client, token, outcome));
                // Only after the outcome was sent: a thread that ends reports the launches under way to their clients.
                worker.launches.note_ended(client, token);
                // SAFETY: as above.
                unsafe { worker.count(property, -1) };
                worker.settle();
            });
        });
        worker.shared.counters.fibers_spawned.add(1);
        let whom = Whom::Client(client, token);
        worker.scheduler.spawn(run, None, Origin::Launched(type_name::<T>()), whom).map_err(|not_started| {
            worker.launches.note_ended(client, token);
            // SAFETY: as above.
            unsafe { worker.count(property, -1) };
            refused(not_started)
        })
    }
}

impl<T: 'static, J: Job<T>> Request for Launch<T, J> {
    const STAYS: bool = J::STAYS;
    const TARGET: Target = Target::property_of::<Latch<T>>();
    const PACKED_BYTES: Option<usize> = match J::PACKED_BYTES {
        Some(bytes) => Some(bytes + 8),
        None => None,
    };

    fn pack(self, to: &mut Vec<u8>) {
        self.job.pack(to);
        to.extend_from_slice(&self.token.to_ne_bytes());
    }

    unsafe fn unpack(from: &[u8]) -> Option<Self> {
        let (job, token) = from.split_last_chunk::<8>()?;
        // SAFETY: the caller's promise.
        let job = unsafe { J::unpack(job)? };
        Some(Launch { job, token: u64::from_ne_bytes(*token), property: std::marker::PhantomData })
    }

    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        // SAFETY: [property-live].
        match worker::with(|worker| unsafe { self.start(worker, property, serving.client) }) {
            Ok(()) => serving.out.put(()),
            Err(fault) => serving.fault(fault),
        }
    }
}

/// Runs in the fiber: takes the value out of the latch in turn, runs `f` on it, puts it back.
///
/// # Safety
/// The property is a live `Property<Latch<T>>` of this worker, and is kept until this returns.
unsafe fn run_latched<T, U>(
    worker: &Worker,
    property: *mut Header,
    f: impl FnOnce(&mut Held<'_, T>) -> U,
) -> Result<U, Fault> {
    let value = match wait_for_value::<T>(worker, property) {
        Ok(value) => value,
        Err(fault) => {
            quietly(|| drop(f));
            return Err(fault);
        }
    };
    let mut held = Held::new(property, value);
    worker.scheduler.note_holding(property.cast_const().cast());
    // SAFETY: the launch's count keeps the property.
    let outcome = if unsafe { (*property).is_poisoned() } {
        // As in `start`: the value goes back in any case.
        quietly(|| drop(f));
        Err(poisoned(property))
    } else {
        catch_unwind(AssertUnwindSafe(|| f(&mut held))).map_err(|payload| {
            // A closure that released the value and did not get it again has left nothing half-changed.
            if held.has_value() {
                worker.poison(property, &*payload);
            }
            Fault::Panicked(payload)
        })
    };
    worker.scheduler.note_holding(ptr::null());
    if let Some(value) = held.into_value() {
        // SAFETY: as above.
        unsafe { put_back(worker, property, value) };
    }
    outcome
}

/// Response to `Launch`: the trustee has started the fiber, or failed to.
pub(crate) struct Accepted {
    pub(crate) token: u64,
}

impl Response for Accepted {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        match fault {
            // SAFETY: `Launch` puts `()`.
            None => unsafe { resuming.responses.take::<()>() },
            Some(fault) => worker::with(|worker| worker.launches.fail(self.token, fault)),
        }
    }
}
