//! `close`: the end of a property ahead of its trusts. Its value is dropped at the trustee, and its later requests are
//! refused. When the value may be dropped: `property/reclaim.rs`.
//!
//! Where nobody has the value it is dropped by the request itself. Else a fiber at the trustee waits for it in the line
//! of the latch, as a launched closure does, and the outcome comes as that of a launch.

#![allow(unsafe_code)]

use std::any::type_name;
use std::marker::PhantomData;

use crate::fiber::record::{Awaited, Whom};
use crate::fiber::{FiberRef, Origin};
use crate::ids::TrusteeId;
use crate::property::Header;
use crate::request::{ANYWHERE, Fault, Ignore, Request, Response, Resuming, Serving, Target};
use crate::runtime::worker::launches::Callback;
use crate::runtime::worker::lines::{Standing, Waiter};
use crate::runtime::worker::{self, Context, Worker};
use crate::tasks::deliver::{Deliver, call_back, deliver_fault};
use crate::tasks::launch::refused;
use crate::unwind::quietly;

/// Closes a property; `then` is called on this thread with the outcome. Returns the token of the wait.
pub(crate) fn close<T: 'static>(worker: &Worker, trustee: TrusteeId, property: *mut Header, then: Callback<()>) -> u64 {
    let is_here = trustee == worker.home.get();
    if !is_here {
        // At its own trustee a worker closes in the middle of its loop, too, where nothing may wait.
        worker.launches.wait_for_place(worker);
    }
    let token = worker.launches.expect(trustee, then);
    if !is_here {
        let may_wait = worker.context() == Context::Free;
        let request = Close::<T> { token, property: PhantomData };
        worker.submit(trustee, property, request, Closing { token }, may_wait);
    } else if worker.context() == Context::Free {
        // SAFETY: the caller holds a trust of this property, whose trustee this is; the context is free, so no closure
        // runs.
        unsafe { close_here::<T>(worker, property, token) };
        worker.settle();
    } else {
        // SAFETY: as above. The count keeps the property until the call has run.
        unsafe { worker.count(property, 1) };
        worker.defer(Box::new(move || {
            worker::with(|worker| {
                // SAFETY: as above; deferred calls run in free context.
                unsafe {
                    close_here::<T>(worker, property, token);
                    worker.count(property, -1);
                }
            });
        }));
    }
    token
}

/// # Safety
/// Same as [`begin`].
unsafe fn close_here<T: 'static>(worker: &Worker, property: *mut Header, token: u64) {
    // SAFETY: the caller's promise.
    match unsafe { begin::<T>(worker, property, worker.id, token) } {
        Ok(true) => call_back(worker, || worker.launches.complete(token, Ok(()))),
        Ok(false) => {}
        Err(fault) => call_back(worker, || worker.launches.fail(token, fault)),
    }
}

/// Closes a property of this worker. Returns whether its value was dropped: if not, a fiber waits for it, and tells the
/// client.
///
/// # Errors
/// [`Fault::Closed`], [`Fault::Panicked`] by the destructor, [`Fault::Refused`] if there is no memory for the fiber.
///
/// # Safety
/// The property is live and of this worker; no closure runs.
unsafe fn begin<T: 'static>(
    worker: &Worker,
    property: *mut Header,
    client: TrusteeId,
    token: u64,
) -> Result<bool, Fault> {
    // SAFETY: the caller's promise.
    let header = unsafe { &*property };
    if header.is_closed() {
        return Err(Fault::Closed);
    }
    header.close();
    if !header.is_in_use() {
        // SAFETY: the caller's promise, and just seen.
        return unsafe { worker.drop_closed_value(property) }.map(|()| true).map_err(Fault::Panicked);
    }
    // SAFETY: the caller's promise.
    unsafe { worker.count(property, 1) };
    worker.launches.note_running(client, token, deliver_fault);
    let run = Box::new(move || {
        worker::with(|worker| {
            let outcome = wait_for_drop::<T>(worker, property);
            // SAFETY: counted above.
            if !unsafe { (*property).is_dropped() } {
                worker.note_closing(property); // dropped when the value is back
            }
            quietly(|| tell(worker, client, token, outcome));
            // Only after the outcome was sent: a thread that ends reports the launches under way to their clients.
            worker.launches.note_ended(client, token);
            // SAFETY: counted above.
            unsafe { worker.count(property, -1) };
            worker.settle();
        });
    });
    worker.shared.counters.fibers_spawned.add(1);
    let whom = Whom::Client(client, token);
    let started = worker.scheduler.spawn(run, None, Origin::Internal("the close of a property"), whom);
    started.map(|()| false).map_err(|not_started| {
        worker.launches.note_ended(client, token);
        worker.note_closing(property); // dropped when the value is back
        // SAFETY: counted above.
        unsafe { worker.count(property, -1) };
        refused(not_started)
    })
}

/// Sends the outcome to the client.
fn tell(worker: &Worker, client: TrusteeId, token: u64, outcome: Result<(), Fault>) {
    match outcome {
        Err(fault) => deliver_fault(worker, client, token, fault),
        Ok(()) if client == worker.id => call_back(worker, || worker.launches.complete(token, Ok(()))),
        Ok(()) => {
            let done = Deliver::<(), ANYWHERE> { token, value: () };
            worker.submit(client, std::ptr::null_mut(), done, Ignore, true);
        }
    }
}

/// Waits, behind the waiters that there are, until nobody has the value of a closed property, and drops it. The count
/// of the calling fiber keeps the property.
///
/// # Errors
/// [`Fault::Panicked`] by the destructor; [`Fault::Deadlock`]: the value is dropped when it is back.
fn wait_for_drop<T: 'static>(worker: &Worker, property: *mut Header) -> Result<(), Fault> {
    let Some(fiber) = worker.fiber() else { unreachable!("it runs in a fiber") };
    // SAFETY: the count keeps the property, here and below.
    let header = unsafe { &*property };
    let lines = &worker.launches.lines;
    let me = Standing { fiber, has_value: is_back };
    while !header.is_dropped() {
        if !header.is_in_use() {
            // SAFETY: closed, not in use, not dropped; in a fiber no closure runs.
            return unsafe { worker.drop_closed_value(property) }.map_err(Fault::Panicked);
        }
        // SAFETY: as above.
        unsafe {
            lines.push(property, Waiter::Fiber(me));
            // The value may have come back unnoticed: see `let_missed_on`.
            if is_back(property) {
                lines.let_next(worker, property);
            }
        }
        let awaited = Awaited::Value { property: property.addr(), on: value_name::<T>() };
        let wait = || {
            worker.scheduler.suspend();
            worker.scheduler.take_verdict().map_or(Ok(()), |why| Err(Fault::Deadlock(why.into())))
        };
        // SAFETY: the lines are those of this thread's worker, and a fiber that has left a line is woken by nobody.
        unsafe {
            worker.scheduler.waiting_until_revoked(awaited, Some((property.cast_const().cast(), leave_line)), wait)?;
            lines.end_turn(property);
        }
    }
    Ok(())
}

/// Returns the type of the value in a latch.
fn value_name<T>() -> &'static str {
    let latch = type_name::<T>();
    latch.split_once("Latch<").and_then(|(_, value)| value.strip_suffix('>')).unwrap_or(latch)
}

/// Returns whether no launched closure has the value.
///
/// # Safety
/// The property is live and of this worker.
unsafe fn is_back(property: *mut Header) -> bool {
    // SAFETY: the caller's promise.
    unsafe { !(*property).is_held() }
}

/// Takes a fiber out of a property's line. False if it is not there.
unsafe fn leave_line(property: *const (), fiber: FiberRef) -> bool {
    let standing = Standing { fiber, has_value: is_back };
    // SAFETY: the fiber has a count of the property.
    worker::with(|worker| unsafe { worker.launches.lines.leave(property.cast_mut().cast(), standing) })
}

/// Request that closes a property.
struct Close<T> {
    token: u64,
    property: PhantomData<fn(T)>,
}

impl<T: 'static> Request for Close<T> {
    const TARGET: Target = Target::property_of::<T>();

    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        // SAFETY: [property-live], [closures-take-turns].
        match worker::with(|worker| unsafe { begin::<T>(worker, property, serving.client, self.token) }) {
            Ok(is_dropped) => serving.out.put(is_dropped),
            Err(fault) => serving.fault(fault),
        }
    }
}

/// Response to `Close`.
struct Closing {
    token: u64,
}

impl Response for Closing {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        let token = self.token;
        let is_dropped = match fault {
            // SAFETY: `Close` puts it.
            None => unsafe { resuming.responses.take::<bool>() },
            Some(fault) => return worker::with(|worker| worker.launches.fail(token, fault)),
        };
        if is_dropped {
            worker::with(|worker| worker.launches.complete(token, Ok(())));
        }
    }
}
