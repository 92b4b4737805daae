//! `launch`: a delegated closure that runs in a fiber at the trustee, and may wait (T6, thesis 2.4.3).
//!
//! The request makes the fiber and is answered at once; the result comes as a request of its own, from the
//! trustee's worker to the client's, with the token under which the client keeps what is to be done with it.
//! While it runs, the fiber owns the latched value: it takes it out of the property's [`Latch`] and puts it
//! back, so that no two fibers have it, whatever plain `apply`s do to the latch meanwhile. Fibers that wait for
//! a value to come back stand in line by property, first come, first served.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fiber::FiberRef;
use crate::latch::Latch;
use crate::property::{Header, Property};
use crate::registry::TrusteeId;
use crate::request::{Fault, Ignore, Request, Response, Resuming, Serving, poisoned};
use crate::worker::{self, Worker};

/// The launches of one worker, as client and as trustee.
#[derive(Default)]
pub(crate) struct Launches {
    next_token: Cell<u64>,
    /// Client: what to do with results that are to come.
    awaited: RefCell<HashMap<u64, Awaited>>,
    /// Trustee: whose fibers are under way here.
    running: RefCell<HashMap<(TrusteeId, u64), ()>>,
    /// Trustee: fibers that wait for a latched value, by property.
    lines: RefCell<HashMap<*mut Header, VecDeque<FiberRef>>>,
}

struct Awaited {
    then: Box<dyn Any>,
    fail: fn(Box<dyn Any>, Fault),
}

type Callback<U> = Box<dyn FnOnce(Result<U, Fault>)>;

impl Launches {
    /// Results that have not come yet.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited.borrow().len()
    }

    fn expect<U: 'static>(&self, then: Callback<U>) -> u64 {
        let token = self.next_token.replace(self.next_token.get() + 1);
        let fail = |then: Box<dyn Any>, fault| {
            if let Ok(then) = then.downcast::<Callback<U>>() {
                then(Err(fault));
            }
        };
        self.awaited.borrow_mut().insert(token, Awaited { then: Box::new(then), fail });
        token
    }

    /// The result has come. A token that nobody awaits, or with a result of another type, is ignored.
    fn complete<U: 'static>(&self, token: u64, outcome: Result<U, Fault>) {
        let awaited = self.awaited.borrow_mut().remove(&token);
        if let Some(Ok(then)) = awaited.map(|awaited| awaited.then.downcast::<Callback<U>>()) {
            then(outcome);
        }
    }

    fn fail(&self, token: u64, fault: Fault) {
        let awaited = self.awaited.borrow_mut().remove(&token);
        if let Some(awaited) = awaited {
            (awaited.fail)(awaited.then, fault);
        }
    }

    /// The trustee ends: tells the clients of fibers that will not finish.
    pub(crate) fn abandon(&self, worker: &Worker) {
        for ((client, token), ()) in std::mem::take(&mut *self.running.borrow_mut()) {
            deliver_fault(worker, client, token, Fault::Gone);
        }
    }
}

/// Launches `f` on a property; `then` is called on this thread with the outcome.
pub(crate) fn launch<T, U, F>(worker: &Worker, trustee: TrusteeId, property: *mut Header, f: F, then: Callback<U>)
where
    T: 'static,
    U: Send + 'static,
    F: FnOnce(&mut T) -> U + Send + 'static,
{
    let token = worker.launches.expect(then);
    let request = Launch { f, token, property: std::marker::PhantomData };
    if trustee == worker.id {
        // SAFETY: the caller holds a trust of this property, whose trustee this is.
        let started = unsafe { request.start(worker, property, worker.id) };
        if let Err(fault) = started {
            worker.call_back(|| worker.launches.fail(token, fault));
        }
    } else {
        let may_wait = worker.context() == crate::worker::Context::Free;
        worker.submit(trustee, property, request, Accepted { token }, may_wait);
    }
}

struct Launch<T, F> {
    f: F,
    token: u64,
    property: std::marker::PhantomData<fn(&mut T)>,
}

impl<T, U, F> Launch<T, F>
where
    T: 'static,
    U: Send + 'static,
    F: FnOnce(&mut T) -> U + Send + 'static,
{
    /// # Safety
    /// The property is a live `Property<Latch<T>>` of this worker.
    unsafe fn start(self, worker: &Worker, property: *mut Header, client: TrusteeId) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe {
            if (*property).is_poisoned() {
                return Err(poisoned(property));
            }
            worker.count(property, 1);
        }
        let (f, token) = (self.f, self.token);
        worker.launches.running.borrow_mut().insert((client, token), ());
        let run = Box::new(move || {
            worker::with(|worker| {
                // SAFETY: the +1 above keeps the property until the fiber gives it back at its end.
                let outcome = unsafe { run_latched(worker, property, f) };
                worker.launches.running.borrow_mut().remove(&(client, token));
                deliver(worker, client, token, outcome);
                // SAFETY: as above.
                unsafe { worker.count(property, -1) };
                worker.settle();
            });
        });
        worker.shared.counters.fibers_spawned.add(1);
        worker.scheduler.spawn(run, None).map_err(|error| {
            worker.launches.running.borrow_mut().remove(&(client, token));
            // SAFETY: as above.
            unsafe { worker.count(property, -1) };
            Fault::Refused(error.to_string())
        })
    }
}

impl<T, U, F> Request for Launch<T, F>
where
    T: 'static,
    U: Send + 'static,
    F: FnOnce(&mut T) -> U + Send + 'static,
{
    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        // SAFETY: C1.
        match worker::with(|worker| unsafe { self.start(worker, property, serving.client) }) {
            Ok(()) => serving.out.put(()),
            Err(fault) => serving.fault(fault),
        }
    }
}

/// In the fiber: takes the value out of the latch in turn, runs `f` on it, puts it back.
unsafe fn run_latched<T, U>(worker: &Worker, property: *mut Header, f: impl FnOnce(&mut T) -> U) -> Result<U, Fault> {
    let mut value = wait_for_value::<T>(worker, property);
    // SAFETY: the launch's count keeps the property.
    let outcome = if unsafe { (*property).is_poisoned() } {
        Err(poisoned(property))
    } else {
        catch_unwind(AssertUnwindSafe(|| f(&mut value))).map_err(|payload| {
            worker.poison(property, &*payload);
            Fault::Panicked(payload)
        })
    };
    // SAFETY: as above; in a fiber no closure runs (D1), so the short borrow is unique.
    drop(unsafe { Property::<Latch<T>>::value(property) }.put_back(value));
    wake_next(worker, property);
    outcome
}

/// Lets the first fiber of a line try. The line stays, so that newcomers stand behind it.
fn wake_next(worker: &Worker, property: *mut Header) {
    let next = worker.launches.lines.borrow_mut().get_mut(&property).and_then(VecDeque::pop_front);
    worker.resume(next);
}

fn wait_for_value<T>(worker: &Worker, property: *mut Header) -> Box<T> {
    // SAFETY: as in `run_latched`.
    let take = || unsafe { Property::<Latch<T>>::value(property) }.take();
    let lines = &worker.launches.lines;
    if !lines.borrow().contains_key(&property)
        && let Some(value) = take()
    {
        return value;
    }
    let Some(me) = worker.fiber() else { unreachable!("a launched closure runs in a fiber") };
    lines.borrow_mut().entry(property).or_default().push_back(me);
    loop {
        worker.scheduler.suspend();
        if let Some(value) = take() {
            let mut lines = lines.borrow_mut();
            if lines.get(&property).is_some_and(VecDeque::is_empty) {
                lines.remove(&property);
            }
            return value;
        }
        // Someone replaced the latch and had its turn: still the first.
        lines.borrow_mut().entry(property).or_default().push_front(me);
    }
}

fn deliver<U: Send + 'static>(worker: &Worker, client: TrusteeId, token: u64, outcome: Result<U, Fault>) {
    if client == worker.id {
        return worker.call_back(|| worker.launches.complete(token, outcome));
    }
    match outcome {
        Ok(value) => worker.submit(client, std::ptr::null_mut(), Deliver { token, value }, Ignore, true),
        Err(fault) => deliver_fault(worker, client, token, fault),
    }
}

fn deliver_fault(worker: &Worker, client: TrusteeId, token: u64, fault: Fault) {
    if client == worker.id {
        return worker.call_back(|| worker.launches.fail(token, fault));
    }
    worker.submit(client, std::ptr::null_mut(), DeliverFault { token, fault }, Ignore, false);
}

/// The trustee has made the fiber, or has not.
struct Accepted {
    token: u64,
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

/// A launched closure's result on its way to the client.
struct Deliver<U> {
    token: u64,
    value: U,
}

impl<U: 'static> Request for Deliver<U> {
    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        worker::with(|worker| {
            let complete = || worker.launches.complete(self.token, Ok(self.value));
            // A callback that panics has said so; the trustee's side is not concerned.
            let _ = catch_unwind(AssertUnwindSafe(|| worker.call_back(complete)));
        });
        serving.out.put(());
    }
}

/// Why a launched closure has no result.
struct DeliverFault {
    token: u64,
    fault: Fault,
}

impl Request for DeliverFault {
    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        worker::with(|worker| {
            let fail = || worker.launches.fail(self.token, self.fault);
            let _ = catch_unwind(AssertUnwindSafe(|| worker.call_back(fail)));
        });
        serving.out.put(());
    }
}

