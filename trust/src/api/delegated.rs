//! Closures on their way to a property, of all kinds: plain or launched, with an argument or without, to any machine or
//! within the process ([`Delegated`]), and how results come back without errors.
//!
//! Not here: the public builder (`call.rs`), the local shortcut, the encoding of requests.

use std::any::type_name;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::trust::Trust;
use crate::fiber::record::Awaited;
use crate::fiber::timer::Waiter;
use crate::ids::TrusteeId;
use crate::request::{Called, Fault, Host};
use crate::runtime::worker::{self, Worker};
use crate::serial;
use crate::serial::parcel::Parcel;
use crate::tasks::deliver::call_back;
use crate::tasks::held::Held;
use crate::tasks::job::{Plain, Serialised};
use crate::tasks::latch::Latch;
use crate::tasks::launch::launch;
use crate::tasks::one_shot::OneShot;
use crate::tasks::reply::Reply;

/// Closure on its way to a property of type `P`. Public only because types of the public builder name it.
#[allow(private_bounds, private_interfaces)] // No other crate can name the trait, so none calls its methods.
pub trait Delegated<P: 'static>: Sized {
    /// Result of the closure.
    type Output: 'static;
    /// Type that errors name: the property, or the value in its latch.
    type Value: 'static;

    /// Name of the call in messages.
    const NAME: &'static str;

    /// Whether `send` runs the closure itself when called at the trustee's own worker, rather than starting something
    /// that may have to wait.
    const RUNS_HERE: bool;
    /// Whether the call is refused on a poisoned property.
    const HEEDS_POISON: bool = true;

    /// Sends the call from this worker, or runs it if this worker is the trustee's. `then` is called on this thread
    /// with the outcome. Returns the description of the wait, for a fiber that may wait long.
    fn send(
        self,
        trust: &Trust<P>,
        worker: &Worker,
        then: impl FnOnce(Result<Self::Output, Fault>) + 'static,
    ) -> Option<Awaited>;

    /// Does the caller's part of the work for a call that another thread of this machine will send.
    fn prepare(&mut self, _trustee: TrusteeId) {}

    /// Sends the call, waits for the outcome and turns it into the return value.
    ///
    /// The caller location is taken in here: taken in the caller, unoptimised builds would keep one more copy of the
    /// closure on the fiber's stack.
    #[inline(always)]
    #[track_caller]
    fn wait<R>(
        self,
        trust: &Trust<P>,
        name: &'static str,
        finish: impl FnOnce(Result<Self::Output, Box<Fault>>, Called) -> R,
    ) -> R {
        let call = Called::here(name);
        let outcome = worker::with(|worker| {
            worker.assert_call_may_wait(call);
            let reply = Reply::new();
            match self.send(trust, worker, reply.answer()) {
                Some(awaited) => worker.scheduler.waiting(awaited, || reply.wait(worker)),
                None => reply.wait(worker),
            }
        });
        finish(outcome.map_err(Box::new), call)
    }

    /// Sends the call and waits for the outcome, at most for `time`. A later outcome is dropped.
    #[track_caller]
    fn wait_up_to(self, trust: &Trust<P>, name: &'static str, time: Duration) -> Option<Result<Self::Output, Fault>> {
        let call = Called::here(name);
        worker::with(|worker| {
            worker.assert_call_may_wait(call);
            // No deadline if the clock cannot represent it.
            let end = Instant::now().checked_add(time);
            if !Self::RUNS_HERE && !worker.launches.wait_for_place_until(worker, end) {
                return None;
            }
            let slot = Rc::new(OneShot::new(Waiter::default()));
            let given = Rc::clone(&slot);
            // If no slot is free the call is queued: waiting for one might exceed `time`.
            send_from_loop(self, trust, worker, move |outcome| given.set(outcome));
            worker.settle();
            let awaited = Awaited::Answer(type_name::<P>());
            worker.wait_unless_aborted(awaited, end, &slot.waiter, || slot.is_set());
            worker.heed_abort();
            slot.take()
        })
    }

    /// Sends the call; `then` is called with the outcome.
    #[inline(always)]
    fn then(self, trust: &Trust<P>, then: impl FnOnce(Result<Self::Output, Fault>) + 'static) {
        worker::with(|worker| {
            self.send(trust, worker, then);
        });
    }
}

/// Closure of `apply`, for any machine or within the process ([`Request::STAYS`](crate::request::Request::STAYS)).
pub(crate) struct Closure<F, const STAYS: bool>(pub(crate) F);

impl<T, U, F, const STAYS: bool> Delegated<T> for Closure<F, STAYS>
where
    T: 'static,
    U: 'static,
    F: FnOnce(&mut T) -> U + 'static,
{
    type Output = U;
    type Value = T;
    const NAME: &'static str = "apply";
    const RUNS_HERE: bool = true;

    fn send(self, trust: &Trust<T>, worker: &Worker, then: impl FnOnce(Result<U, Fault>) + 'static) -> Option<Awaited> {
        trust.post_from::<STAYS, _, _, _>(worker, self.0, then);
        None
    }
    #[inline(always)]
    #[track_caller]
    fn wait<R>(
        self,
        trust: &Trust<T>,
        name: &'static str,
        finish: impl FnOnce(Result<U, Box<Fault>>, Called) -> R,
    ) -> R {
        let call = Called::here(name);
        trust.request::<STAYS, _, _, _>(call, self.0, |outcome| finish(outcome, call))
    }
    #[inline(always)]
    fn then(self, trust: &Trust<T>, then: impl FnOnce(Result<U, Fault>) + 'static) {
        trust.post::<STAYS, _, _, _>(self.0, then);
    }
}

/// Closure of `apply_with`.
pub(crate) struct ClosureWith<A, U, F> {
    f: F,
    argument: A,
    result: PhantomData<fn() -> U>,
}

impl<A, U, F> ClosureWith<A, U, F> {
    pub(crate) fn new(f: F, argument: A) -> Self {
        ClosureWith { f, argument, result: PhantomData }
    }
}

impl<T, A, U, F> Delegated<T> for ClosureWith<A, U, F>
where
    T: 'static,
    A: Serialize + DeserializeOwned + 'static,
    U: Serialize + DeserializeOwned + 'static,
    F: FnOnce(&mut T, A) -> U + 'static,
{
    type Output = U;
    type Value = T;
    const NAME: &'static str = "apply";
    const RUNS_HERE: bool = true;

    fn send(self, trust: &Trust<T>, worker: &Worker, then: impl FnOnce(Result<U, Fault>) + 'static) -> Option<Awaited> {
        let ClosureWith { f, argument, .. } = self;
        if trust.is_at(worker) {
            trust.post_here(worker, move |value: &mut T| f(value, argument), then);
        } else {
            let (property, trustee) = trust.parts();
            serial::submit(worker, trustee, property, f, &argument, then);
        }
        None
    }
}

/// Closure of `launch` and `launch_held`, for any machine or within the process, as [`Closure`].
pub(crate) struct Launched<F, const STAYS: bool>(pub(crate) F);

impl<T, U, F, const STAYS: bool> Delegated<Latch<T>> for Launched<F, STAYS>
where
    T: 'static,
    U: Send + 'static,
    F: FnOnce(&mut Held<'_, T>) -> U + Send + 'static,
{
    type Output = U;
    type Value = T;
    const NAME: &'static str = "launch";
    const RUNS_HERE: bool = false;

    fn send(
        self,
        trust: &Trust<Latch<T>>,
        worker: &Worker,
        then: impl FnOnce(Result<U, Fault>) + 'static,
    ) -> Option<Awaited> {
        let (property, trustee) = trust.parts();
        Some(Awaited::Result(launch(worker, trustee, property, Plain::<F, STAYS>(self.0), Box::new(then))))
    }
}

/// Closure of `launch` and `launch_held` with an argument.
pub(crate) struct LaunchedWith<A, U, F> {
    f: F,
    argument: Argument<A>,
    result: PhantomData<fn() -> U>,
}

/// Argument of a launched closure, serialised here or on the thread that sends it.
enum Argument<A> {
    Value(A),
    Parcel(Result<Parcel, Fault>),
}

impl<A: Serialize> Argument<A> {
    fn into_parcel(self, trustee: TrusteeId) -> Result<Parcel, Fault> {
        match self {
            Argument::Value(value) => serial::encode(&value, serial::limit_bytes(trustee)),
            Argument::Parcel(parcel) => parcel,
        }
    }
}

impl<A, U, F> LaunchedWith<A, U, F> {
    pub(crate) fn new(f: F, argument: A) -> Self {
        LaunchedWith { f, argument: Argument::Value(argument), result: PhantomData }
    }
}

impl<T, A, U, F> Delegated<Latch<T>> for LaunchedWith<A, U, F>
where
    T: 'static,
    A: Serialize + DeserializeOwned + 'static,
    U: Serialize + DeserializeOwned + 'static,
    F: FnOnce(&mut Held<'_, T>, A) -> U + Send + 'static,
{
    type Output = U;
    type Value = T;
    const NAME: &'static str = "launch";
    const RUNS_HERE: bool = false;

    fn prepare(&mut self, trustee: TrusteeId) {
        if let Argument::Value(value) = &self.argument {
            self.argument = Argument::Parcel(serial::encode(value, serial::limit_bytes(trustee)));
        }
    }

    fn send(
        self,
        trust: &Trust<Latch<T>>,
        worker: &Worker,
        then: impl FnOnce(Result<U, Fault>) + 'static,
    ) -> Option<Awaited> {
        let (property, trustee) = trust.parts();
        let LaunchedWith { f, argument, .. } = self;
        match argument.into_parcel(trustee) {
            Ok(argument) => {
                let job = Serialised::<A, U, F> { f, argument, types: PhantomData };
                let then = |outcome: Result<Result<Parcel, Fault>, Fault>| {
                    then(outcome.and_then(|parcel| parcel.and_then(serial::decode_guarded)));
                };
                Some(Awaited::Result(launch::<T, _>(worker, trustee, property, job, Box::new(then))))
            }
            Err(fault) => {
                call_back(worker, || then(Err(fault)));
                None
            }
        }
    }
}

/// Sends a call from the loop of a worker that can reach the property; nothing may wait there.
pub(super) fn send_from_loop<P: 'static, C: Delegated<P>>(
    call: C,
    trust: &Trust<P>,
    worker: &Worker,
    then: impl FnOnce(Result<C::Output, Fault>) + 'static,
) {
    if C::RUNS_HERE && trust.is_at(worker) {
        if C::HEEDS_POISON && trust.is_poisoned() {
            // Drops the captures where the loop must not wait.
            worker.drop_unrun(call);
            let fault = worker.refusal(trust.parts().0);
            return call_back(worker, || then(Err(fault)));
        }
        call.send(trust, worker, then);
    } else {
        // In a callback's context a request is queued instead of waited for.
        worker.call_back(|| {
            call.send(trust, worker, then);
        });
    }
}

/// Returns the result of a waiting call, or resumes the panic or fault in the caller.
#[inline(always)]
pub(super) fn resumed<T, U>(outcome: Result<U, Box<Fault>>, call: Called) -> U {
    match outcome {
        Ok(value) => value,
        Err(fault) => fault.resume_call::<T>(call),
    }
}

/// Calls back with the result of a call; a fault is reported on standard error instead.
///
/// `name` is of the call. Callers write it inside of their callback: a callback that captured it would be two words
/// longer, in every request.
#[inline(always)]
pub(super) fn result_or_report<T, U>(name: &'static str, outcome: Result<U, Fault>, then: impl FnOnce(U)) {
    match outcome {
        Ok(value) => then(value),
        Err(fault) => fault.report::<T>(name),
    }
}
