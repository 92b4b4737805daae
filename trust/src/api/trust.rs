//! `Trust<T>`: the handle, and the client's side of a plain request from start to finish.
//!
//! There are two entry points: `request` waits for the outcome, `post` hands it to a callback. Each takes the local
//! shortcut if the trustee is this thread, else submits one request (its format: `request/mod.rs`; its route:
//! `client.rs`). Public calls: `plain.rs`, `latched.rs`, `call.rs`.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::apply::Apply;
use crate::ids::TrusteeId;
use crate::property::Header;
use crate::request::{Called, Fault, Host, Ignore, Request, Serving, Target, Then};
use crate::runtime::worker::beside::AtOnce;
use crate::runtime::worker::reclaim::count;
use crate::runtime::worker::{self, Context, Worker};
use crate::tasks::reply::Reply;
use crate::unwind::quietly;

/// Counted handle to a property of type `T`, which lives on its trustee's thread.
///
/// Clone it for each thread or fiber that needs the property, capture it in delegated closures, keep it in other
/// properties. The property is dropped on its trustee's thread after the last trust. Neither cloning nor dropping
/// waits, wherever it happens. A trust is 16 bytes.
///
/// The property is dropped as soon as its trustee knows that the last trust is gone and has run all requests for it.
/// Only an unsent request for this very property delays that: at most for the longest stretch in which no fiber of the
/// requesting thread, nor that thread's own code, waits (clones, drops and entrusts by a thread's own code are sent at
/// once). Computations and waits of other threads do not matter. On a rack the drop may also wait for a worker of
/// another machine that computes with requests to the same trustee unsent.
///
/// A delegated closure runs while nothing else touches the property. It may do anything but wait; it may capture plain
/// values and other trusts, but no references or pointers ([`NoRef`](crate::NoRef)): values that hold those travel
/// serialised, with [`apply_with`](Trust::apply_with).
///
/// # Calls
///
/// [`apply`](Trust::apply) waits for the closure's result; [`apply_then`](Trust::apply_then) calls a callback with it,
/// [`apply_async`](Trust::apply_async) returns a future of it, [`apply_with`](Trust::apply_with) takes an argument.
/// [`launch`](Trust::launch) and [`launch_then`](Trust::launch_then) are for a [`Latch`](crate::Latch): the closure
/// runs in a fiber of the trustee and may wait with the value in hand. These panic, or tell standard error, if there is
/// no result. [`call`](Trust::call) gives the error, in every combination of one from each row:
///
/// | part | one of |
/// |---|---|
/// | begin | [`.call()`](Trust::call) |
/// | argument | none, or [`.with(argument)`](crate::Call::with), serialised |
/// | values | without pointers, or any of this process: [`.in_process()`](crate::Call::in_process), no argument |
/// | closure | [`.apply(..)`], [`.launch(..)`], [`.launch_held(..)`]; instead of one: [`.close()`] |
/// | limit | none, or [`.timeout(time)`](crate::ReadyCall::timeout) |
/// | way to the result | [`.wait()`](crate::ReadyCall::wait), [`.then(callback)`](crate::ReadyCall::then), `.await` |
///
/// [`.apply(..)`]: crate::Call::apply
/// [`.launch(..)`]: crate::Call::launch
/// [`.launch_held(..)`]: crate::Call::launch_held
/// [`.close()`]: crate::Call::close
///
/// - All calls reach properties of this process and, on a rack, of other machines. The captures of a closure and the
///   result of one without an argument travel as they lie in memory; an argument and its result travel serialised, so
///   values that hold pointers may pass.
/// - Calls [`in_process`](crate::Call::in_process) take any `Send` value along and back, and end with
///   [`Error::Apart`](crate::Error::Apart) if the property is on another machine.
/// - [`launch_held`](crate::Call::launch_held) may give the value up for a while ([`Held`](crate::Held)).
/// - On several latched values at once: [`together`](crate::together), in forms of its own. One closure on each of many
///   properties: [`apply_each`](crate::apply_each).
///
/// ```
/// let counter = trust::local_trustee().entrust(17);
/// counter.apply(|c| *c += 1);
/// assert_eq!(counter.apply(|c| *c), 18);
/// ```
///
/// Source: thesis 2.3.1, 2.4.
pub struct Trust<T> {
    property: *mut Header,
    trustee: TrusteeId,
    kind: PhantomData<fn(T) -> T>,
}

const _: () = assert!(size_of::<Trust<String>>() == 16);

// SAFETY: a trust is an address that only the trustee follows, and an id. `entrust` asks for `T: Send`, and
// closures on the property run on the thread that has its trustee's worker, one at a time [seat-settled], so a shared
// trust shares nothing of `T`.
unsafe impl<T> Send for Trust<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Trust<T> {}
#[cfg(noref_auto)]
// SAFETY: only the trustee that the id names ever dereferences the address.
unsafe impl<T> crate::noref::NoRef for Trust<T> {}
#[cfg(noref_auto)]
// SAFETY: an address and an id, neither of which changes; the property itself is not inside.
unsafe impl<T> crate::noref::Frozen for Trust<T> {}
impl<T> UnwindSafe for Trust<T> {}
impl<T> RefUnwindSafe for Trust<T> {}
impl<T> Unpin for Trust<T> {}

impl<T: 'static> Trust<T> {
    /// Accepts a poisoned property as it is: later requests run again. Of no effect on a closed one. Does not wait;
    /// takes effect in the order of this thread's requests to the trustee. Futures ([`apply_async`](Self::apply_async))
    /// take another way and may arrive first: wait for a request before you make one. On a thread without a worker it
    /// takes effect in the order of the futures. There it does not wait for room as these do, so repeated calls that
    /// outrun the trustee use up memory.
    ///
    /// ```
    /// let number = trust::local_trustee().entrust(7);
    /// assert!(number.call().apply(|n| assert!(*n > 9)).wait().is_err());
    /// number.clear_poison();
    /// assert_eq!(number.apply(|n| *n), 7);
    /// ```
    pub fn clear_poison(&self) {
        let cleared = worker::existing(|worker| {
            if self.is_at(worker) {
                // SAFETY: live: `self` is a trust of it.
                unsafe { clear_poison(worker, self.property) };
            } else {
                worker.submit(self.trustee, self.property, ClearPoison, Ignore, false);
            }
        });
        if cleared.is_none() {
            self.clear_poison_elsewhere();
        }
    }

    /// Returns whether the trustee is this worker's.
    #[inline(always)]
    pub(crate) fn is_at(&self, worker: &Worker) -> bool {
        worker.home.get() == self.trustee
    }

    /// Returns whether the property is poisoned or closed. On the trustee's thread only.
    pub(super) fn is_poisoned(&self) -> bool {
        // SAFETY: live: `self` is a trust of it, or a request for it is under way.
        unsafe { (*self.property).is_poisoned() }
    }

    /// Runs `f` at the trustee and waits. `finish` turns the outcome into the return value, once in each branch:
    /// joined, the outcome would pass through memory, written in pieces and read back as a whole, and that failed
    /// store-to-load forwarding costs more than everything else here.
    #[inline(always)]
    pub(super) fn request<const STAYS: bool, U, F, R>(
        &self,
        call: Called,
        f: F,
        finish: impl FnOnce(Result<U, Box<Fault>>) -> R,
    ) -> R
    where
        F: FnOnce(&mut T) -> U + 'static,
        U: 'static,
    {
        worker::with(|worker| {
            worker.assert_call_may_wait(call);
            if self.is_at(worker) {
                // SAFETY: a trust of this trustee; the context is free.
                return match unsafe { worker.run_alone(self.property, f) } {
                    Ok(value) => {
                        worker.after_run_here();
                        finish(Ok(value))
                    }
                    Err(fault) => {
                        worker.after_run_here();
                        finish(Err(Box::new(fault)))
                    }
                };
            }
            match worker.seat_at_rest(self.trustee) {
                Some(seat) => finish(self.request_beside(worker, f, seat)),
                None => finish(self.request_by_slots::<STAYS, _, _>(worker, f)),
            }
        })
    }

    /// Part of `request` for a seat that runs it at once. The fault is boxed, so that small results are returned in
    /// registers.
    // As `Worker::run_alone`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn request_beside<U, F>(&self, worker: &Worker, f: F, seat: AtOnce) -> Result<U, Box<Fault>>
    where
        F: FnOnce(&mut T) -> U + 'static,
        U: 'static,
    {
        // SAFETY: a trust of this trustee; the context is free, and the seat was found just now.
        unsafe { worker.run_beside(seat, self.property, f) }
    }

    /// Waiting part of `request`.
    #[inline(never)]
    fn request_by_slots<const STAYS: bool, U, F>(&self, worker: &Worker, f: F) -> Result<U, Box<Fault>>
    where
        F: FnOnce(&mut T) -> U + 'static,
        U: 'static,
    {
        let reply = Reply::new();
        let request = Apply::<T, F, STAYS>::new(f);
        worker.submit_by_slots(self.trustee, self.property, request, Then::new(reply.answer()), true);
        reply.wait(worker).map_err(Box::new)
    }

    #[inline(always)]
    pub(super) fn post<const STAYS: bool, U, F, H>(&self, f: F, then: H)
    where
        F: FnOnce(&mut T) -> U + 'static,
        U: 'static,
        H: FnOnce(Result<U, Fault>) + 'static,
    {
        worker::with(|worker| self.post_from::<STAYS, _, _, _>(worker, f, then));
    }

    #[inline(always)]
    pub(super) fn post_from<const STAYS: bool, U, F, H>(&self, worker: &Worker, f: F, then: H)
    where
        F: FnOnce(&mut T) -> U + 'static,
        U: 'static,
        H: FnOnce(Result<U, Fault>) + 'static,
    {
        if self.is_at(worker) {
            self.post_here(worker, f, then);
            return;
        }
        let may_wait = worker.context() == Context::Free;
        if may_wait && let Some(seat) = worker.seat_at_rest(self.trustee) {
            // SAFETY: a trust of this trustee; the context is free, and the seat was found just now.
            unsafe { worker.post_beside(seat, self.property, f, then) };
            return;
        }
        let (request, response) = (Apply::<T, F, STAYS>::new(f), Then::new(then));
        worker.submit_by_slots(self.trustee, self.property, request, response, may_wait);
    }

    // As `Worker::run_alone`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn post_here<U, F, H>(&self, worker: &Worker, f: F, then: H)
    where
        F: FnOnce(&mut T) -> U + 'static,
        U: 'static,
        H: FnOnce(Result<U, Fault>) + 'static,
    {
        if worker.context() == Context::Free {
            // SAFETY: a trust of this trustee; the context is free.
            unsafe { run_and_call_back(worker, self.property, f, then) };
        } else {
            // The clone keeps the property alive until the call has run.
            let kept = self.clone();
            worker.defer(Box::new(move || {
                if kept.is_poisoned() {
                    worker::with(|worker| {
                        let fault = worker.refusal(kept.property);
                        worker.call_back(|| quietly(|| then(Err(fault))));
                        worker.enter_drop_of_deferred();
                    });
                    return;
                }
                // SAFETY: as above; deferred calls run in free context.
                worker::with(|worker| unsafe { run_and_call_back(worker, kept.property, f, then) });
            }));
        }
    }
}

/// # Safety
/// Same as [`Worker::run_alone`].
#[inline(always)]
unsafe fn run_and_call_back<T, U>(
    worker: &Worker,
    property: *mut Header,
    f: impl FnOnce(&mut T) -> U,
    then: impl FnOnce(Result<U, Fault>),
) {
    // Each branch by itself, as in `request`. A callback that panics is reported by the panic hook, as when the
    // response comes through a slot. SAFETY: the caller's promise.
    match unsafe { worker.run_alone(property, f) } {
        Ok(value) => drop(worker.call_back(|| quietly(|| then(Ok(value))))),
        Err(fault) => drop(worker.call_back(|| quietly(|| then(Err(fault))))),
    }
    worker.after_run_here();
}

impl<T> Trust<T> {
    /// Makes a trust of a property that already counts it.
    pub(crate) fn of(property: *mut Header, trustee: TrusteeId) -> Self {
        Trust { property, trustee, kind: PhantomData }
    }

    pub(crate) fn parts(&self) -> (*mut Header, TrusteeId) {
        (self.property, self.trustee)
    }
}

impl<T> Clone for Trust<T> {
    fn clone(&self) -> Self {
        count(self.trustee, self.property, 1);
        Trust { property: self.property, trustee: self.trustee, kind: PhantomData }
    }
}

impl<T> Drop for Trust<T> {
    fn drop(&mut self) {
        count(self.trustee, self.property, -1);
    }
}

impl<T> fmt::Debug for Trust<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trust<{}>({:?} at {:?})", std::any::type_name::<T>(), self.property, self.trustee)
    }
}

/// Request that accepts a poisoned property.
struct ClearPoison;

impl Request for ClearPoison {
    const TARGET: Target = Target::AnyProperty;
    const RUNS_AT_ONCE: bool = true;

    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        // SAFETY: [property-live].
        worker::with(|worker| unsafe { clear_poison(worker, property) });
        serving.out.put(());
    }
}

unsafe fn clear_poison(worker: &Worker, property: *mut Header) {
    // SAFETY: the caller has a trust of it, or a request for it.
    unsafe { (*property).set_poisoned(false) };
    worker.forget_poison(property);
}
