//! `launch`: a delegated closure that runs in a fiber at the trustee, and may wait (T6, thesis 2.4.3).
//!
//! The request makes the fiber and is answered at once; the result comes as a request of its own, from the
//! trustee's worker to the client's, with the token under which the client keeps what is to be done with it.
//! While it runs, the fiber owns the latched value: it takes it out of the property's [`Latch`] and puts it
//! back, so that no two fibers have it, whatever plain `apply`s do to the latch meanwhile. Fibers that wait for
//! a value to come back stand in line by property, first come, first served.

#![allow(unsafe_code)]

use std::any::{Any, type_name};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::config::LAUNCHES_MAX;
use crate::deliver::{deliver, deliver_fault};
use crate::fiber::{FiberQueue, FiberRef, Origin};
use crate::held::Held;
use crate::job::Job;
use crate::latch::Latch;
use crate::property::{Header, Property};
use crate::registry::TrusteeId;
use crate::request::{Fault, Request, Response, Resuming, Serving, Target, poisoned};
use crate::unwind::quietly;
use crate::worker::{self, Context, Worker};

/// The launches of one worker, as client and as trustee.
#[derive(Default)]
pub(crate) struct Launches {
    next_token: Cell<u64>,
    /// Client: what to do with results that are to come.
    awaited: RefCell<HashMap<u64, Awaited>>,
    /// What to do with values that were promised (`promise.rs`). Apart from the launches, for nothing bounds how many fibers
    /// wait for one, and nobody else's end waits for it.
    promised: RefCell<HashMap<u64, Awaited>>,
    /// Client: fibers that wait for results to come.
    waiters: FiberQueue,
    /// Trustee: whose fibers are under way here.
    running: RefCell<HashSet<(TrusteeId, u64)>>,
    /// Trustee: fibers that wait for a latched value, by property.
    lines: RefCell<HashMap<*mut Header, VecDeque<FiberRef>>>,
}

struct Awaited {
    by: Asker,
    then: Box<dyn Any>,
    fail: fn(Box<dyn Any>, Fault),
}

/// Who has asked for a result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asker {
    Fiber(u64),
    /// The thread's own code.
    Root,
    /// A callback or a delegated closure, which waits for nothing.
    Closure,
}

impl Asker {
    /// Code that may wait, in this fiber or on the root.
    fn waiting(fiber: Option<u64>) -> Self {
        fiber.map_or(Asker::Root, Asker::Fiber)
    }

    fn here(worker: &Worker) -> Self {
        match worker.context() {
            Context::Free => Asker::waiting(worker.scheduler.current_id()),
            _ => Asker::Closure,
        }
    }
}

pub(crate) type Callback<U> = Box<dyn FnOnce(Result<U, Fault>)>;

impl Launches {
    /// Results that have not come yet.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited.borrow().len()
    }

    /// Tokens of the results that this fiber has asked for and that have not come yet.
    pub(crate) fn awaited_by(&self, fiber: Option<u64>) -> Vec<u64> {
        let by = Asker::waiting(fiber);
        self.awaited.borrow().iter().filter(|(_, awaited)| awaited.by == by).map(|(&token, _)| token).collect()
    }

    /// Waits until these results have come, and their callbacks have run.
    pub(crate) fn wait_for(&self, worker: &Worker, tokens: Vec<u64>) {
        for token in tokens {
            worker.wait_in(&self.waiters, || !self.awaited.borrow().contains_key(&token));
        }
    }

    /// Bounds the fibers that this client has under way: waits for some to end, where the caller may wait.
    pub(crate) fn wait_for_place(&self, worker: &Worker) {
        if self.awaited() >= LAUNCHES_MAX && worker.context() == Context::Free {
            worker.wait_in(&self.waiters, || self.awaited() < LAUNCHES_MAX);
        }
    }

    pub(crate) fn expect<U: 'static>(&self, then: Callback<U>) -> u64 {
        self.await_in(&self.awaited, then)
    }

    /// As `expect`, of a value that was promised.
    pub(crate) fn expect_promised<U: 'static>(&self, then: Callback<U>) -> u64 {
        self.await_in(&self.promised, then)
    }

    /// Nobody awaits the promised value any more.
    pub(crate) fn forget_promised(&self, token: u64) {
        let forgotten = self.promised.borrow_mut().remove(&token);
        drop(forgotten);
    }

    fn await_in<U: 'static>(&self, awaited: &RefCell<HashMap<u64, Awaited>>, then: Callback<U>) -> u64 {
        let token = self.next_token.replace(self.next_token.get() + 1);
        let fail = |then: Box<dyn Any>, fault| {
            if let Ok(then) = then.downcast::<Callback<U>>() {
                then(Err(fault));
            }
        };
        let by = worker::with(Asker::here);
        awaited.borrow_mut().insert(token, Awaited { by, then: Box::new(then), fail });
        token
    }

    fn take(&self, token: u64) -> Option<Awaited> {
        let launched = self.awaited.borrow_mut().remove(&token);
        if launched.is_some() {
            // They run when the callback has, which is the next thing to happen, and may panic.
            worker::with(|worker| worker.resume_all(&self.waiters));
        }
        launched.or_else(|| self.promised.borrow_mut().remove(&token))
    }

    /// The result has come. A token that nobody awaits, or with a result of another type, is ignored.
    pub(crate) fn complete<U: 'static>(&self, token: u64, outcome: Result<U, Fault>) {
        if let Some(Ok(then)) = self.take(token).map(|awaited| awaited.then.downcast::<Callback<U>>()) {
            then(outcome);
        }
    }

    /// Trustee: a fiber for this client is under way.
    pub(crate) fn note_running(&self, client: TrusteeId, token: u64) {
        self.running.borrow_mut().insert((client, token));
    }
    pub(crate) fn note_ended(&self, client: TrusteeId, token: u64) {
        self.running.borrow_mut().remove(&(client, token));
    }

    /// There will be no result.
    pub(crate) fn fail(&self, token: u64, fault: Fault) {
        if let Some(awaited) = self.take(token) {
            (awaited.fail)(awaited.then, fault);
        }
    }

    /// The trustee ends: tells the clients of fibers that did not begin.
    pub(crate) fn abandon(&self, worker: &Worker) {
        let running = std::mem::take(&mut *self.running.borrow_mut());
        for (client, token) in running {
            deliver_fault(worker, client, token, Fault::Gone);
        }
    }

    /// The client ends: nobody will be told. What the callbacks captured is dropped.
    pub(crate) fn close(&self) {
        for awaited in [&self.awaited, &self.promised] {
            loop {
                let token = awaited.borrow().keys().next().copied();
                let Some(token) = token else { break };
                let forgotten = awaited.borrow_mut().remove(&token);
                quietly(|| drop(forgotten));
            }
        }
    }
}

/// Launches a job on a property; `then` is called on this thread with the outcome.
pub(crate) fn launch<T: 'static, J: Job<T>>(
    worker: &Worker,
    trustee: TrusteeId,
    property: *mut Header,
    job: J,
    then: Callback<J::Output>,
) {
    worker.launches.wait_for_place(worker);
    let token = worker.launches.expect(then);
    let request = Launch { job, token, property: std::marker::PhantomData };
    if trustee == worker.home.get() {
        // SAFETY: the caller holds a trust of this property, whose trustee this is.
        let started = unsafe { request.start(worker, property, worker.id) };
        if let Err(fault) = started {
            crate::deliver::call_back(worker, || worker.launches.fail(token, fault));
        }
    } else {
        let may_wait = worker.context() == crate::worker::Context::Free;
        worker.submit(trustee, property, request, Accepted { token }, may_wait);
    }
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
                // Captures that panic have said so: the client is told of the poison in any case.
                quietly(|| drop(job));
                return Err(poisoned(property));
            }
            worker.count(property, 1);
        }
        worker.launches.note_running(client, token);
        let run = Box::new(move || {
            worker::with(|worker| {
                // SAFETY: the +1 above keeps the property until the fiber gives it back at its end.
                let outcome = unsafe { run_latched(worker, property, |held: &mut Held<'_, T>| job.run(held)) };
                // A value that nobody takes may panic when it is dropped.
                quietly(|| deliver::<T, J>(worker, client, token, outcome));
                // Not before the outcome is on its way: a thread that ends tells the clients of what is under way.
                worker.launches.note_ended(client, token);
                // SAFETY: as above.
                unsafe { worker.count(property, -1) };
                worker.settle();
            });
        });
        worker.shared.counters.fibers_spawned.add(1);
        worker.scheduler.spawn(run, None, Origin::Launched(type_name::<T>())).map_err(|not_made| {
            worker.launches.note_ended(client, token);
            // SAFETY: as above.
            unsafe { worker.count(property, -1) };
            not_made.into_fault()
        })
    }
}

impl<T: 'static, J: Job<T>> Request for Launch<T, J> {
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
        // SAFETY: C1.
        match worker::with(|worker| unsafe { self.start(worker, property, serving.client) }) {
            Ok(()) => serving.out.put(()),
            Err(fault) => serving.fault(fault),
        }
    }
}

/// In the fiber: takes the value out of the latch in turn, runs `f` on it, puts it back.
///
/// # Safety
/// The property is a live `Property<Latch<T>>` of this worker, and is kept until this returns.
unsafe fn run_latched<T, U>(
    worker: &Worker,
    property: *mut Header,
    f: impl FnOnce(&mut Held<'_, T>) -> U,
) -> Result<U, Fault> {
    let mut held = Held::new(property, wait_for_value::<T>(worker, property));
    // SAFETY: the launch's count keeps the property.
    let outcome = if unsafe { (*property).is_poisoned() } {
        // As above, in `start`: the value goes back in any case.
        quietly(|| drop(f));
        Err(poisoned(property))
    } else {
        catch_unwind(AssertUnwindSafe(|| f(&mut held))).map_err(|payload| {
            worker.poison(property, &*payload);
            Fault::Panicked(payload)
        })
    };
    // SAFETY: as above.
    unsafe { put_back(worker, property, held.into_value()) };
    outcome
}

/// Puts a latched value back and lets the next fiber have it.
///
/// # Safety
/// The property is a live `Property<Latch<T>>` of this worker, and the value was taken from it.
pub(crate) unsafe fn put_back<T>(worker: &Worker, property: *mut Header, value: Box<T>) {
    // SAFETY: live; in a fiber no closure runs (D1), so the short borrow is unique.
    let replaced = unsafe { Property::<Latch<T>>::value(property) }.put_back(value);
    wake_next(worker, property);
    // A value that panics when it is dropped has said so; this is a fiber's entry (trap 7).
    quietly(|| drop(replaced));
}

/// Lets the first fiber of a line try. The line stays, so that newcomers stand behind it.
fn wake_next(worker: &Worker, property: *mut Header) {
    let next = worker.launches.lines.borrow_mut().get_mut(&property).and_then(VecDeque::pop_front);
    worker.resume(next);
}

/// Waits for a latched value, in turn. In a fiber whose launch keeps the property.
pub(crate) fn wait_for_value<T>(worker: &Worker, property: *mut Header) -> Box<T> {
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

/// The trustee has made the fiber, or has not.
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
