//! `Trust<T>`: the client's side of every call, start to finish.
//!
//! All calls are shells over two ways in: `request` waits for the outcome, `post` hands it to a callback. Each
//! takes the local shortcut where the trustee is this thread (T7), else submits one request (`request.rs`
//! says what a request is, `client.rs` where it goes). The calls on a latched property: `latched.rs`.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::count::Count;
use crate::error::Error;
use crate::far;
use crate::noref::NoRef;
use crate::property::Header;
use crate::reference::TrusteeReference;
use crate::registry::{self, Message, PropertyRef, TrusteeId};
use crate::reply::Reply;
use crate::request::{Apply, Fault, Ignore, Request, Serving, Target, Then};
use crate::serial;
use crate::unwind::quietly;
use crate::worker::{self, Context, Worker};

/// A counted handle to a property of type `T`, which lives on its trustee's thread.
///
/// Clone it for each thread or fiber that needs the property, capture it in delegated closures, keep it in
/// other properties. The property is dropped on its trustee's thread after the last trust. Neither cloning nor
/// dropping waits, wherever it happens. A trust is 16 bytes.
///
/// When the property is dropped: as soon as its trustee knows that the last trust is gone and has run all requests
/// for it. Only a request for this very property that is not sent yet delays it: at most for the longest stretch in which no
/// fiber of the requesting thread, nor that thread's own code, waits (what a thread's own code clones, drops or entrusts is
/// sent at once). What others compute or wait for meanwhile does not matter. On a rack it may also have to wait for a worker
/// of another machine that computes with requests to the same trustee unsent.
///
/// A delegated closure runs while nothing else touches the property. It may do anything but wait; it may
/// capture plain values and other trusts, but no references or pointers ([`NoRef`]): what has those travels
/// serialised, with [`apply_with`](Trust::apply_with).
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
// closures on the property run on its trustee's thread alone, so a shared trust shares nothing of `T`.
unsafe impl<T> Send for Trust<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Trust<T> {}
#[cfg(noref_auto)]
// SAFETY: the address is only ever followed by the trustee that it belongs to, which the id names.
unsafe impl<T> NoRef for Trust<T> {}
impl<T> UnwindSafe for Trust<T> {}
impl<T> RefUnwindSafe for Trust<T> {}
impl<T> Unpin for Trust<T> {}

impl<T: 'static> Trust<T> {
    /// Applies `f` to the property and returns its result. Other fibers run meanwhile; on a thread's own stack
    /// the thread serves its trustee and runs its fibers meanwhile.
    ///
    /// # Panics
    /// With the panic of `f` if `f` panics; if the property is poisoned or its trustee gone (see
    /// [`try_apply`](Self::try_apply)); inside a delegated closure or a callback, where nothing may wait.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(1);
    /// let list = pool.entrust(Vec::new());
    /// list.apply(|l| l.push(3));
    /// assert_eq!(list.apply(|l| l.len()), 1);
    /// ```
    ///
    /// Source: thesis 2.4.1.
    #[inline]
    pub fn apply<U, F>(&self, f: F) -> U
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        self.request("apply", f, |outcome| outcome.unwrap_or_else(|fault| fault.resume::<T>()))
    }

    /// As [`apply`](Self::apply), for callers who want to handle poison, a gone trustee or a panic of `f`.
    ///
    /// # Errors
    /// [`Error::Panicked`], [`Error::Poisoned`], [`Error::Gone`].
    ///
    /// # Panics
    /// Inside a delegated closure or a callback, where nothing may wait.
    ///
    /// ```
    /// let t = trust::local_trustee().entrust(1);
    /// assert!(t.try_apply(|_| { if true { panic!("no") } }).is_err());
    /// assert!(matches!(t.try_apply(|v| *v), Err(trust::Error::Poisoned { .. })));
    /// t.clear_poison();
    /// assert_eq!(t.try_apply(|v| *v), Ok(1));
    /// ```
    #[inline]
    pub fn try_apply<U, F>(&self, f: F) -> Result<U, Error>
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        self.request("try_apply", f, |outcome| outcome.map_err(Fault::into_error::<T>))
    }

    /// Applies `f` to the property and goes on at once; `then` is called with the result, on this thread, when
    /// this thread next takes responses. Legal everywhere, also inside delegated closures and callbacks.
    ///
    /// Requests of one thread to one trustee run in the order they were made, those of `apply` included. While
    /// every slot to the trustee is full, a caller that may wait does so (memory stays bounded); inside
    /// delegated closures and callbacks the request is queued instead. While an earlier batch is unanswered, requests
    /// gather to the next one, which is sent when this thread takes the answer: so before it blocks outside the library (in a
    /// channel of the standard library, say) on the effect of a request, a thread waits for it with
    /// [`apply`](Self::apply). If there is no result (the closure
    /// panicked, the property is poisoned, the trustee gone) that is reported on standard error and `then` is
    /// dropped; [`try_apply_then`](Self::try_apply_then) gives it to `then`. Nothing may wait inside `then`.
    /// Where the trustee is this thread both run at once, inside closures and callbacks as soon as those return.
    ///
    /// ```
    /// # use std::{cell::Cell, rc::Rc};
    /// let pool = trust::Threadpool::new(1);
    /// let number = pool.entrust(17);
    /// let seen = Rc::new(Cell::new(0));
    /// let see = Rc::clone(&seen);
    /// number.apply_then(|n| { *n += 1; *n }, move |n| see.set(n));
    /// number.apply(|_| ());                       // in order, so the callback has run
    /// assert_eq!(seen.get(), 18);
    /// ```
    ///
    /// Source: thesis 2.4.2.
    #[inline]
    pub fn apply_then<U, F, H>(&self, f: F, then: H)
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        H: FnOnce(U) + 'static,
    {
        self.post(f, move |outcome: Result<U, Fault>| match outcome {
            Ok(value) => then(value),
            Err(fault) => fault.report::<T>("apply_then"),
        });
    }

    /// As [`apply_then`](Self::apply_then), but `then` is also given the error if there is no result.
    #[inline]
    pub fn try_apply_then<U, F, H>(&self, f: F, then: H)
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        H: FnOnce(Result<U, Error>) + 'static,
    {
        self.post(f, move |outcome: Result<U, Fault>| then(outcome.map_err(Fault::into_error::<T>)));
    }

    /// As [`apply`](Self::apply), with an argument that travels serialised, as does the result: so `String`,
    /// `Vec`, maps and all that serde knows may pass, trusts inside them too. Nothing may wait while a value is written or
    /// read.
    ///
    /// # Panics
    /// As [`apply`](Self::apply); also if the argument or result does not serialise, or is larger than
    /// 1 GiB, or 64 MiB to or from another machine.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// let table = trust::local_trustee().entrust(HashMap::new());
    /// table.apply_with(|t, (key, value): (String, u32)| { t.insert(key, value); }, ("one".into(), 1));
    /// assert_eq!(table.apply_with(|t, key: String| t.get(&key).copied(), "one".into()), Some(1));
    /// ```
    ///
    /// Source: thesis 2.4.3.3.
    pub fn apply_with<A, U, F>(&self, f: F, argument: A) -> U
    where
        F: FnOnce(&mut T, A) -> U + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + 'static,
        U: Serialize + DeserializeOwned + 'static,
    {
        let outcome = worker::with(|worker| {
            worker.assert_may_wait("apply_with");
            if self.is_at(worker) {
                // SAFETY: a trust of this trustee; the context is free.
                return unsafe { worker.run_here(self.property, |value| f(value, argument)) };
            }
            let reply = Reply::new();
            serial::submit(worker, self.trustee, self.property, f, &argument, reply.answer());
            reply.wait(worker)
        });
        outcome.unwrap_or_else(|fault| fault.resume::<T>())
    }

    /// As [`apply_then`](Self::apply_then), with argument and result as in [`apply_with`](Self::apply_with).
    pub fn apply_with_then<A, U, F, H>(&self, f: F, argument: A, then: H)
    where
        F: FnOnce(&mut T, A) -> U + NoRef + Send + 'static,
        A: Serialize + DeserializeOwned + 'static,
        U: Serialize + DeserializeOwned + 'static,
        H: FnOnce(U) + 'static,
    {
        let then = move |outcome: Result<U, Fault>| match outcome {
            Ok(value) => then(value),
            Err(fault) => fault.report::<T>("apply_with_then"),
        };
        worker::with(|worker| {
            if self.is_at(worker) {
                self.post_here(worker, move |value: &mut T| f(value, argument), then);
            } else {
                serial::submit(worker, self.trustee, self.property, f, &argument, then);
            }
        });
    }

    /// The trustee of the property.
    pub fn trustee(&self) -> TrusteeReference {
        TrusteeReference::from_id(self.trustee)
    }

    /// Accepts a poisoned property as it is: later requests run again. Does not wait; takes effect in the order
    /// of this thread's requests to the trustee, or, on a thread that has no worker, in that of its futures
    /// ([`apply_async`](Self::apply_async)).
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
            self.send_unanswered(Trust::clear_poison);
        }
    }

    /// What it is a trust of, and where that is.
    #[inline(always)]
    pub(crate) fn is_at(&self, worker: &Worker) -> bool {
        worker.home.get() == self.trustee
    }

    /// `finish` makes of the outcome what the caller returns; in each branch for itself, for where they joined the outcome would go
    /// through memory, in pieces and back as a whole, for which a processor waits longer than all else takes.
    #[inline(always)]
    fn request<U, F, R>(&self, call: &str, f: F, finish: impl FnOnce(Result<U, Fault>) -> R) -> R
    where
        F: FnOnce(&mut T) -> U + 'static,
        U: 'static,
    {
        worker::with(|worker| {
            worker.assert_may_wait(call);
            if self.is_at(worker) {
                // SAFETY: a trust of this trustee; the context is free.
                return match unsafe { worker.run_alone(self.property, f) } {
                    Ok(value) => {
                        worker.after_run_here();
                        finish(Ok(value))
                    }
                    Err(fault) => {
                        worker.after_run_here();
                        finish(Err(fault))
                    }
                };
            }
            finish(self.request_there(worker, f))
        })
    }

    /// The part of `request` that waits. A function of its own, so that the local shortcut stays small and is inlined.
    #[inline(never)]
    fn request_there<U, F>(&self, worker: &Worker, f: F) -> Result<U, Fault>
    where
        F: FnOnce(&mut T) -> U + 'static,
        U: 'static,
    {
        let reply = Reply::new();
        worker.submit(self.trustee, self.property, Apply::new(f), Then::new(reply.answer()), true);
        reply.wait(worker)
    }

    #[inline(always)]
    fn post<U, F, H>(&self, f: F, then: H)
    where
        F: FnOnce(&mut T) -> U + 'static,
        U: 'static,
        H: FnOnce(Result<U, Fault>) + 'static,
    {
        worker::with(|worker| {
            if self.is_at(worker) {
                self.post_here(worker, f, then);
            } else {
                let may_wait = worker.context() == Context::Free;
                worker.submit(self.trustee, self.property, Apply::new(f), Then::new(then), may_wait);
            }
        });
    }

    #[inline(always)]
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
            // The clone keeps the property until the call has run.
            let kept = self.clone();
            // SAFETY: as above; deferred calls run in free context.
            worker.defer(Box::new(move |worker| unsafe { run_and_call_back(worker, kept.property, f, then) }));
        }
    }
}

/// # Safety
/// As [`Worker::run_here`].
#[inline(always)]
unsafe fn run_and_call_back<T, U>(
    worker: &Worker,
    property: *mut Header,
    f: impl FnOnce(&mut T) -> U,
    then: impl FnOnce(Result<U, Fault>),
) {
    // Each branch for itself, as in `request`. A callback that panics has said so through the panic hook, as when the response
    // came by a slot.
    // SAFETY: the caller's promise.
    match unsafe { worker.run_alone(property, f) } {
        Ok(value) => drop(worker.call_back(|| quietly(|| then(Ok(value))))),
        Err(fault) => drop(worker.call_back(|| quietly(|| then(Err(fault))))),
    }
    worker.after_run_here();
}

impl<T> Trust<T> {
    /// A trust of a property that was made for it.
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

pub(crate) fn count(trustee: TrusteeId, property: *mut Header, delta: i32) {
    let counted = worker::existing(|worker| {
        if worker.home.get() == trustee {
            // SAFETY: a trust of this trustee keeps it live up to here.
            unsafe { worker.count(property, delta) };
            worker.settle();
        } else if trustee.machine() == worker.id.machine() || worker.far.is_attached() {
            worker.submit(trustee, property, Count(delta), Ignore, false);
        } else {
            far::forward(trustee, property, delta);
        }
    });
    // The thread has no worker yet, or in destructors of thread-locals none any more: the inbox takes it, if the trustee
    // is still there. So threads of others (an async program's) may clone and drop trusts without becoming trustees.
    if counted.is_some() {
        return;
    }
    if trustee.machine() != registry::machine() {
        far::forward(trustee, property, delta);
    } else if let Some(trustee) = registry::find(trustee) {
        let _ = trustee.send(Message::Count(PropertyRef(property), delta));
    }
}

impl<T> fmt::Debug for Trust<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trust<{}>({:?} at {:?})", std::any::type_name::<T>(), self.property, self.trustee)
    }
}

/// Accepts a poisoned property.
struct ClearPoison;

impl Request for ClearPoison {
    const TARGET: Target = Target::AnyProperty;

    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        // SAFETY: C1.
        worker::with(|worker| unsafe { clear_poison(worker, property) });
        serving.out.put(());
    }
}

unsafe fn clear_poison(worker: &Worker, property: *mut Header) {
    // SAFETY: the caller has a trust of it, or a request for it.
    unsafe { (*property).set_poisoned(false) };
    worker.forget_poison(property);
}
