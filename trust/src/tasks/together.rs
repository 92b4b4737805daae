//! `together`: one closure on several latched values at once, of one or several trustees.
//!
//! The closure runs at the *last* trustee, in the order of ids, among those that have one of the values. The values of
//! the others are lent to that one (`runtime/worker/lines.rs`), trustee by trustee in this order: the call travels
//! upwards, takes a share of each value, and stands in line for a value that it cannot get, which takes no fiber. It
//! returns by the same route, gives the shares back, and tells the client last: once the client has the result, all
//! values are free, or lent to other calls.
//!
//! - If the values of the last trustee are free the closure runs on them in place, and the result is the response to
//!   the request that brought the call. So a call for values of one trustee is one request and allocates nothing.
//!   Values of the thread's own trustee take no request at all.
//! - If the call has to stand in line the response says so ([`Visited::Moved`]), and the result comes back by a
//!   request.
//!
//! A call lies on the stack of the waiting caller, or in a box; its address is sent.
//!
//! Invariants:
//! - [one-call-order] A call waits only for a property that comes after all those of which it has a share, in one order
//!   for all: so calls never wait for each other in a cycle. A fiber that holds a launched value would add an edge of
//!   its own; it is refused.
//! - [call-keeps-property] A trust of each property lives until the client is notified: the waiting caller's, or the
//!   call's own.
//! - [call-owner] At any time one thread owns the call, the one to which its address was sent last, and no other thread
//!   accesses it. The client is notified exactly once, even if threads end on the way: a refused request that carried a
//!   call gives the call back to its sender ([`Return`]); a call dropped in a line or on its way back continues its way
//!   back by itself, through the inbox if need be ([`reliable`]). A response is not relied on to reach a worker that is
//!   about to leave: it may be long until it is sent.
//! - [value-thread] A value is touched by the thread of the trustee that has it or to which it is lent [lent-to-one],
//!   and only between closures [closures-take-turns]: a call moves on in a request of its own, in free context, in a
//!   continuation, or deferred.
//! - [poison-all] A closure that panicked poisons all its properties: those of its own trustee at once; the lent ones
//!   are refused there until their trustees have poisoned them (`Lines::spoil`).

#![allow(unsafe_code)]

mod borrow;
mod call;
#[cfg(all(test, not(loom), not(miri)))]
mod model;
mod reliable;
mod route;
#[cfg(all(test, not(loom), not(miri)))]
mod tests;

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use self::borrow::{borrow_others, run_and_return};
use self::call::{At, Call, Stop, Visited};
pub(crate) use self::route::Route;
use self::route::{Client, refusal};
use crate::error::Error;
use crate::fiber::record::Awaited;
use crate::ids::{self, TrusteeId};
use crate::property::{Header, Property};
use crate::registry::report::Gathered;
use crate::request::{Fault, Host, Response, Resuming};
use crate::runtime::worker::launches::Callback;
use crate::runtime::worker::lines::{Forget, LatchKind, Released, release_orphan};
use crate::runtime::worker::reclaim::count;
use crate::runtime::worker::{self, Context, Worker};
use crate::tasks::latch::Latch;
use crate::tasks::reply::Reply;
use crate::unwind::{AbortOnUnwind, quietly};

/// Most values that a caller borrows itself, one after the other; with more its call travels.
const BORROWED_MAX: usize = 2;

/// Most values of an array or a tuple with which the closure travels together with all that it needs.
const VISITED_MAX: usize = 4;

/// Returns the kind of latches of `T`. The values travel between threads: the caller ensures `T: Send`.
pub(crate) const fn kind_of<T: 'static>() -> &'static LatchKind {
    &LatchKind {
        name: std::any::type_name::<Latch<T>>,
        // SAFETY: live, of this type, and nothing borrows it [call-keeps-property], [value-thread], here and below.
        get: |property| unsafe { Property::<Latch<T>>::value(property).get().map(|value| NonNull::from(value).cast()) },
        // SAFETY: as above.
        take: |property| unsafe {
            let value = Property::<Latch<T>>::value(property).take()?;
            Some(NonNull::from(Box::leak(value)).cast())
        },
        // SAFETY: as above; `take` leaked the box.
        put_back: |property, value| unsafe {
            let value = Box::from_raw(value.cast::<T>().as_ptr());
            let replaced = Property::<Latch<T>>::value(property).put_back(value);
            if replaced.is_some() {
                // User code, which may not wait here. A value that panics when dropped is reported by the panic hook.
                worker::with(|worker| worker.delegated(|| quietly(|| drop(replaced))));
            }
        },
        // SAFETY: `take` leaked the box.
        drop: |value| unsafe { drop(Box::from_raw(value.cast::<T>().as_ptr())) },
    }
}

/// One of the properties of a call.
#[derive(Clone, Copy)]
pub struct Part {
    trustee: TrusteeId,
    property: *mut Header,
    kind: &'static LatchKind,
    /// Value of the share, or the value in place while the closure runs.
    value: NonNull<()>,
    /// Index of the closure's argument.
    argument: usize,
}

// SAFETY: addresses dereferenced only by their trustee, or by the trustee the value is lent to [value-thread], of
// values that are `Send`.
unsafe impl Send for Part {}

impl Part {
    /// Makes the part of a trust of a latch.
    pub(crate) fn new<T: Send + 'static>((property, trustee): (*mut Header, TrusteeId), argument: usize) -> Part {
        Part { trustee, property, kind: kind_of::<T>(), value: NonNull::dangling(), argument }
    }

    fn name(&self) -> &'static str {
        (self.kind.name)()
    }

    /// Returns the property and its trustee.
    pub(crate) fn place(&self) -> (*mut Header, TrusteeId) {
        (self.property, self.trustee)
    }
}

/// Properties of one call: an array if their number is known, else a `Vec`.
pub(crate) trait Parts: AsRef<[Part]> + AsMut<[Part]> + Clone + Send + 'static {
    /// Stops that a visit to the last trustee takes along.
    type Stops: AsRef<[Stop]> + Send + 'static;
    /// Most of them; 0 if the call itself travels.
    const STOPS_MAX: usize;
    fn stops(&self, stop: impl Fn(usize, &Part) -> Stop) -> Self::Stops;
}

impl<const N: usize> Parts for [Part; N] {
    type Stops = [Stop; N];
    const STOPS_MAX: usize = if N <= VISITED_MAX { N } else { 0 };
    fn stops(&self, stop: impl Fn(usize, &Part) -> Stop) -> [Stop; N] {
        std::array::from_fn(|place| stop(place, &self[place]))
    }
}

impl Parts for Vec<Part> {
    type Stops = [Stop; 0];
    const STOPS_MAX: usize = 0;
    fn stops(&self, _: impl Fn(usize, &Part) -> Stop) -> [Stop; 0] {
        []
    }
}

/// Checks that all of these are on this machine.
///
/// # Errors
/// [`Error::Apart`].
pub(crate) fn assert_here(parts: &[Part]) -> Result<(), Error> {
    let apart = parts.iter().find(|part| part.trustee.machine() != ids::machine());
    apart.map_or(Ok(()), |part| Err(Error::Apart { property: part.name() }))
}

/// Closure on the values, which are given in the order of its arguments.
pub(crate) trait Job: Send + 'static {
    type Output: Send + 'static;
    /// Returns the kind of latch that holds this argument.
    fn kind(argument: usize) -> &'static LatchKind;
    /// # Safety
    /// The values are those of the parts of the call, and nothing else accesses them.
    unsafe fn run(self, values: &[NonNull<()>]) -> Self::Output;
}

/// Reason why there is no result, and the type of the property concerned.
pub(crate) struct Failure {
    pub(crate) fault: Fault,
    property: &'static str,
}

impl Failure {
    /// Makes the failure of a call that no trustee knows any more.
    pub(crate) fn lost(fault: Fault) -> Failure {
        Failure { fault, property: "a latch" }
    }

    fn of(part: Option<&Part>, fault: Fault) -> Failure {
        Failure { fault, property: part.map_or("a latch", Part::name) }
    }

    fn of_kind(kind: &LatchKind, fault: Fault) -> Failure {
        Failure { fault, property: (kind.name)() }
    }

    /// Returns the payload of the closure's panic, if the failure is one.
    fn payload(&self) -> Option<&(dyn Any + Send)> {
        match &self.fault {
            Fault::Panicked(payload) => Some(&**payload),
            _ => None,
        }
    }

    pub(crate) fn into_error(self) -> Error {
        self.fault.into_error_of(self.property)
    }
}

pub(crate) type Outcome<U> = Result<U, Box<Failure>>;

/// Makes the token that stands for a waiting client in reports.
fn token_of(reply: *const ()) -> u64 {
    reply.addr() as u64
}

/// Makes the report of a call that stands in line.
fn gathered(client: TrusteeId, token: u64, has: &[Part], on: &'static LatchKind) -> Gathered {
    let has = has.iter().map(|part| (part.trustee, part.property.addr())).collect();
    Gathered { client, token, has, on: (on.name)() }
}

/// # Safety
/// Same as [`Job::run`].
#[inline(always)]
pub(crate) unsafe fn run_on<J: Job>(
    worker: &Worker,
    job: J,
    values: &[NonNull<()>],
) -> Result<J::Output, Box<dyn Any + Send>> {
    // SAFETY: the caller's promise.
    worker.delegated(|| catch_unwind(AssertUnwindSafe(|| unsafe { job.run(values) })))
}

#[cold]
fn poisoned(worker: &Worker, property: *mut Header, kind: &LatchKind) -> Box<Failure> {
    Box::new(Failure::of_kind(kind, worker.refusal(property)))
}

/// Gives back a share of a value of this worker's trustee.
fn release(worker: &Worker, trustee: TrusteeId, property: *mut Header, is_spoiled: bool) {
    // SAFETY: live [call-keeps-property], or this worker is at its end and knows of no loan any more; nothing borrows
    // it [value-thread].
    match unsafe { worker.launches.lines.release(worker, property, is_spoiled) } {
        Released::Done => {}
        Released::Unknown => release_orphan(worker, trustee, property),
        Released::Spoiled(to) => {
            // SAFETY: as above. The call's own trusts may be gone before the answer comes.
            unsafe { worker.count(property, 1) };
            let forget = Forget { lender: worker.id, property };
            worker.submit(to, ptr::null_mut(), forget, Forgotten { property }, false);
        }
    }
}

/// Runs the closure on the values and waits for the outcome.
///
/// # Safety
/// Each part is of a live property `Latch<T>` of its kind with `T: Send`, with a trust that lives until this returns;
/// the job's values are of these types. The context is free.
pub(crate) unsafe fn together_and_wait<P: Parts, J: Job>(
    worker: &Worker,
    mut route: Route<P>,
    job: J,
) -> Outcome<J::Output> {
    if route.is_all_here(worker) && route.finds_free(&worker).map_err(|part| refusal(worker, &part))? {
        let outcome = route.run(worker, job);
        worker.count_run_here();
        return outcome;
    }
    wait_for_earlier(worker, route.parts.as_ref());
    let mut refused = None;
    if route.others_before(worker).is_some_and(|others| others <= BORROWED_MAX) {
        match borrow_others(worker, &mut route)
            .and_then(|()| route.finds_free(&worker).map_err(|part| refusal(worker, &part)))
        {
            Ok(true) if route.find_poisoned(&worker).is_ok() => return run_and_return(worker, &route, job),
            Ok(_) => {}
            Err(failure) => refused = Some(failure),
        }
    }
    let reply = Reply::new();
    route.client = Client::Waits(worker.id, reply.address());
    let mut call = Call { route, job: Some(job), outcome: None };
    let is_refused = refused.is_some();
    if let Some(failure) = refused {
        call.refuse(worker, failure);
    }
    let call = UnsafeCell::new(call);
    // SAFETY: not null; it stays until the reply is there, when it belongs to this frame again [call-owner].
    let at = At(unsafe { NonNull::new_unchecked(call.get()) });
    let guard = AbortOnUnwind;
    if is_refused {
        at.go_back(worker)
    } else {
        at.go_on(worker)
    }
    worker.settle();
    let told = worker.scheduler.waiting(Awaited::Together(token_of(reply.address())), || reply.wait(worker));
    std::mem::forget(guard);
    match told {
        Ok(()) => call.into_inner().outcome.unwrap_or_else(|| unreachable!("it was told the outcome")),
        Err(fault) => Err(Box::new(Failure::lost(fault))),
    }
}

/// Runs the closure on the values; `then` is called on this thread with the outcome.
///
/// # Safety
/// Same as [`together_and_wait`], but in any context.
pub(crate) unsafe fn together_and_call_back<P: Parts, J: Job>(
    worker: &Worker,
    mut route: Route<P>,
    job: J,
    then: Callback<Outcome<J::Output>>,
) {
    let is_free = worker.context() == Context::Free;
    if is_free {
        worker.launches.wait_for_place(worker);
        wait_for_earlier(worker, route.parts.as_ref());
    }
    route.parts.as_ref().iter().for_each(|part| count(part.trustee, part.property, 1));
    route.client = Client::Token(worker.id, worker.launches.expect(worker.id, then));
    let is_here = route.is_all_here(worker);
    let is_first_elsewhere = route.next().is_some_and(|part| part.trustee != worker.home.get());
    let at = At(NonNull::from(Box::leak(Box::new(Call { route, job: Some(job), outcome: None }))));
    if is_free && is_here {
        if let Visited::Done = at.arrive(worker) {
            at.go_back(worker);
        }
        worker.count_run_here();
    } else if is_free {
        at.go_on(worker);
        worker.settle();
    } else if is_first_elsewhere {
        // Keeps its order among the requests sent there; touches nothing here.
        at.go_on(worker);
    } else {
        worker.launches.lines.go_on_later(worker, at.caller());
    }
}

/// Waits until this thread's earlier requests are answered, at the trustees where the order of requests does not put
/// the call behind them: all but the first trustee that it is sent to from here.
fn wait_for_earlier(worker: &Worker, parts: &[Part]) {
    let mut first = None;
    for (at, part) in parts.iter().enumerate() {
        let is_new = part.trustee != worker.home.get() && (at == 0 || parts[at - 1].trustee != part.trustee);
        if is_new && first.replace(part.trustee).is_some() {
            worker.wait_for_answers_of(part.trustee);
        }
    }
}

/// Response to `Forget`: the value goes back to its latch.
struct Forgotten {
    property: *mut Header,
}

impl Response for Forgotten {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        if fault.is_none() {
            // SAFETY: `Forget` puts `()`.
            unsafe { resuming.responses.take::<()>() }
        }
        worker::with(|worker| {
            release(worker, worker.id, self.property, false);
            if worker.home.get() == worker.id {
                // SAFETY: counted as this was sent, so it is live.
                unsafe { worker.count(self.property, -1) };
            }
        });
    }
}
