//! Value that the holder of a promise gives later: one request's closure may leave the promise in a property, and
//! another's keep it. The basis of channels, barriers and condition variables.
//!
//! A promise is the client's id and a token under which the client keeps the waiter, as for a launched closure's result
//! (`launch.rs`, `deliver.rs`); keeping it is one request to the client's worker. A token that is no longer awaited, or
//! a value of an unexpected type, is ignored, so a promise is harmless wherever it ends up. Nothing here delays the end
//! of a worker; a waiting fiber does, as always.

#![allow(unsafe_code)]

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::fiber::record::Awaited;
use crate::ids::TrusteeId;
use crate::noref::NoRef;
use crate::property::Header;
use crate::registry::{self, Message};
use crate::request::{ANYWHERE, Fault, Ignore, Request, Serving, Target};
use crate::runtime::worker::{self, Context, Worker};
use crate::serial;
use crate::serial::parcel::Parcel;
use crate::tasks::carry::carry;
use crate::tasks::deliver::{Deliver, call_back, deliver_fault, pack_token, unpack_token};
use crate::tasks::one_shot::OneShot;
use crate::tasks::select::{Waiters, sealed, wait_for_any};
use crate::unwind::quietly;

/// Makes a promise of a `T`, and the [`Pending`] that waits for it.
///
/// The [`Promise`] may travel: capture it in a closure, keep it in a property, give it to a fiber of another machine.
/// Its holder [keeps](Promise::keep) it when the value is ready. The [`Pending`] stays on this thread. Legal
/// everywhere.
///
/// ```
/// use trust::{Promise, promise};
///
/// let pool = trust::Threadpool::new(2);
/// let waiting = pool.entrust(Vec::<Promise<u32>>::new());
/// let (promise, number) = promise();
/// waiting.apply(move |waiting| waiting.push(promise));          // leaves it with the trustee
/// pool.spawn(move || waiting.apply(|waiting| waiting.pop().unwrap().keep(7)));
/// assert_eq!(number.wait(), Ok(7));
/// ```
///
/// Cost: making it sends nothing; keeping it is one request to this thread's worker, and so is dropping it unkept.
pub fn promise<T: 'static>() -> (Promise<T>, Pending<T>) {
    make(None)
}

/// Makes a promise as [`promise`] does, that nobody but this trustee will keep: where a program outlives the loss of
/// machines, the loss of another one does not end the wait.
///
/// ```
/// let (promise, number) = trust::link::promise_at(trust::local_trustee().id());
/// promise.keep(7);
/// assert_eq!(number.wait(), Ok(7));
/// ```
pub fn promise_at<T: 'static>(keeper: TrusteeId) -> (Promise<T>, Pending<T>) {
    make(Some(keeper))
}

/// Calls `then`, as callbacks are called, if the machine of this trustee is lost: by a program that outlives that, and
/// only while the result is kept.
///
/// ```
/// let watch = trust::link::watch_loss(trust::local_trustee().id(), || unreachable!("it lives"));
/// drop(watch);
/// ```
pub fn watch_loss(of: TrusteeId, then: impl FnOnce() + 'static) -> LossWatch {
    worker::with(|worker| {
        let token = worker.launches.expect_promised::<()>(Some(of), Box::new(move |_| then()));
        LossWatch(PromiseId { client: worker.id, token })
    })
}

/// Watch on the loss of a machine: see [`watch_loss`].
#[must_use = "the watch ends when this is dropped"]
#[derive(Debug)]
pub struct LossWatch(PromiseId);

impl Drop for LossWatch {
    fn drop(&mut self) {
        forget(self.0);
    }
}

/// Ends the wait for a promised value.
fn forget(id: PromiseId) {
    // A thread may have a new worker after the first one ended, with its own tokens.
    worker::existing(|worker| {
        if worker.id == id.client {
            worker.launches.forget_promised(id.token);
        } else {
            // Of another trustee of this thread, or of one that has ended.
            let forget = move || worker::with(|worker| worker.launches.forget_promised(id.token));
            registry::with(id.client, |client| drop(client.send(Message::Run(Box::new(forget)))));
        }
    });
}

fn make<T: 'static>(keeper: Option<TrusteeId>) -> (Promise<T>, Pending<T>) {
    let slot = Rc::new(OneShot::new(Waiters::default()));
    worker::with(|worker| {
        let settles = Settles(Rc::clone(&slot));
        let token = worker.launches.expect_promised(keeper, Box::new(move |outcome| settles.0.set(outcome)));
        let id = PromiseId { client: worker.id, token };
        (Promise { id, value: PhantomData }, Pending { id, slot })
    })
}

/// Setter of a promised value; settles it as gone if the worker that keeps it ends.
struct Settles<T>(Rc<OneShot<Result<T, Fault>, Waiters>>);

impl<T> Drop for Settles<T> {
    fn drop(&mut self) {
        if !self.0.is_set() {
            self.0.set(Err(Fault::Gone));
        }
    }
}

/// Name of a promise, the same on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PromiseId {
    client: TrusteeId,
    token: u64,
}

impl PromiseId {
    /// Returns the machine of the thread that waits for the value.
    ///
    /// ```
    /// assert_eq!(trust::promise::<u32>().1.id().machine(), 0); // a process that is no machine of a rack
    /// ```
    #[must_use]
    pub fn machine(self) -> u16 {
        self.client.machine()
    }
}

/// Obligation to give a value to the holder of the [`Pending`]. See [`promise`].
///
/// Dropped unkept, it tells the holder that there will be no value.
pub struct Promise<T> {
    id: PromiseId,
    value: PhantomData<fn(T)>,
}

#[cfg(noref_auto)]
// SAFETY: an id and a token, which mean the same everywhere; the type is only a mark.
unsafe impl<T> NoRef for Promise<T> {}

impl<T: 'static> Promise<T> {
    /// Gives the value. Legal everywhere, also inside delegated closures and callbacks; where it may wait, it waits
    /// while every slot to the client is full. A value that is no longer awaited is dropped there.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(1);
    /// let (promise, number) = trust::promise();
    /// pool.spawn(move || promise.keep(7));
    /// assert_eq!(number.wait(), Ok(7));
    /// ```
    pub fn keep(self, value: T)
    where
        T: NoRef + Send,
    {
        let id = self.leave();
        carry(id.client, move |worker| {
            if id.client == worker.id {
                call_back(worker, || worker.launches.complete(id.token, Ok(value)));
            } else {
                send(worker, id.client, Deliver::<T, ANYWHERE> { token: id.token, value });
            }
        });
    }

    /// Same as [`keep`](Self::keep), for values that travel serialised, as with
    /// [`Trust::apply_with`](crate::Trust::apply_with). On the awaiting thread itself the value is not serialised. A
    /// value that does not serialise, or is larger than 1 GiB, or 64 MiB to another machine, gives the waiter an error.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(1);
    /// let (promise, name) = trust::promise();
    /// pool.spawn(move || promise.keep_with(String::from("Ada")));
    /// assert_eq!(name.wait().as_deref(), Ok("Ada"));
    /// ```
    pub fn keep_with(self, value: T)
    where
        T: Serialize + DeserializeOwned,
    {
        let id = self.leave();
        if worker::existing(|worker| worker.id == id.client) == Some(true) {
            return worker::with(|worker| {
                call_back(worker, || worker.launches.complete(id.token, Ok(value)));
            });
        }
        // Serialising and dropping the value is the value's code, not that of the enclosing closure.
        let encode = AssertUnwindSafe(|| serial::encode(&value, serial::limit_bytes(id.client)));
        let bytes = catch_unwind(encode).unwrap_or_else(|panic| Err(Fault::Panicked(panic)));
        quietly(|| drop(value));
        carry(id.client, move |worker| match bytes {
            Ok(bytes) if id.client == worker.id => {
                let value = serial::decode_guarded::<T>(bytes);
                call_back(worker, || worker.launches.complete(id.token, value));
            }
            Ok(bytes) => send(worker, id.client, Kept::<T> { token: id.token, bytes, value: PhantomData }),
            Err(fault) => deliver_fault(worker, id.client, id.token, fault),
        });
    }
}

impl<T> Promise<T> {
    /// Returns its name.
    ///
    /// ```
    /// let (promise, number) = trust::promise::<u32>();
    /// assert_eq!(promise.id(), number.id());
    /// ```
    pub fn id(&self) -> PromiseId {
        self.id
    }

    /// Ends the promise without notice, for a maker that knows by other means that the value is not needed. A waiter
    /// waits for ever.
    ///
    /// ```
    /// let (promise, number) = trust::promise::<u32>();
    /// promise.discard();
    /// assert!(number.try_take().is_none());
    /// ```
    pub fn discard(self) {
        self.leave();
    }

    fn leave(self) -> PromiseId {
        ManuallyDrop::new(self).id
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let id = self.id;
        carry(id.client, move |worker| deliver_fault(worker, id.client, id.token, Fault::Gone));
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Promise<{}>({} of {:?})", type_name::<T>(), self.id.token, self.id.client)
    }
}

fn send<C: Request>(worker: &Worker, client: TrusteeId, request: C) {
    worker.submit(client, std::ptr::null_mut(), request, Ignore, worker.context() == Context::Free);
}

/// Serialised value on its way to the waiter.
struct Kept<T> {
    token: u64,
    bytes: Parcel,
    value: PhantomData<fn(T)>,
}

impl<T: DeserializeOwned + 'static> Request for Kept<T> {
    const TARGET: Target = Target::Nothing;
    const PACKED_BYTES: Option<usize> = None;

    fn pack(self, to: &mut Vec<u8>) {
        pack_token(self.token, self.bytes.into_message(), to);
    }

    unsafe fn unpack(from: &[u8]) -> Option<Self> {
        // SAFETY: the caller's promise.
        let (token, bytes) = unsafe { unpack_token(from) }?;
        Some(Kept { token, bytes, value: PhantomData })
    }

    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        let value = serial::decode_guarded::<T>(self.bytes);
        worker::with(|worker| call_back(worker, || worker.launches.complete(self.token, value)));
        serving.out.put(());
    }
}

/// Value that was promised. See [`promise`].
///
/// If this is dropped, the value of the promise is discarded.
pub struct Pending<T> {
    id: PromiseId,
    slot: Rc<OneShot<Result<T, Fault>, Waiters>>,
}

impl<T: 'static> Pending<T> {
    /// Waits for the value. Meanwhile a fiber lets others run; a thread's own code serves its trustee and runs its
    /// fibers.
    ///
    /// # Errors
    /// [`Error::Gone`] if the promise was dropped unkept; [`Error::Codec`], [`Error::TooLarge`] or [`Error::Panicked`]
    /// if the value could not travel.
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    ///
    /// ```
    /// let (promise, number) = trust::promise::<u32>();
    /// drop(promise); // it will never be kept
    /// assert!(matches!(number.wait(), Err(trust::Error::Gone { .. })));
    /// ```
    pub fn wait(self) -> Result<T, Error> {
        worker::with(|worker| {
            worker.assert_may_wait("Pending::wait");
            if !self.slot.is_set() {
                let (awaited, waiter) = (Awaited::Promise(type_name::<T>()), &self.slot.waiter.own);
                worker.wait_unless_aborted(awaited, None, waiter, || self.slot.is_set());
                worker.heed_abort();
            }
        });
        match self.slot.take() {
            Some(outcome) => outcome.map_err(Fault::into_error::<T>),
            // `try_take` has taken it.
            None => Err(Fault::Gone.into_error::<T>()),
        }
    }

    /// Same as [`wait`](Self::wait), for at most `time`; then `None`, and the value may still come.
    ///
    /// ```
    /// use std::time::Duration;
    /// let (promise, number) = trust::promise();
    /// assert!(number.wait_timeout(Duration::from_millis(1)).is_none());
    /// promise.keep(7);
    /// assert_eq!(number.wait_timeout(Duration::from_secs(60)), Some(Ok(7)));
    /// ```
    pub fn wait_timeout(&self, time: Duration) -> Option<Result<T, Error>> {
        worker::with(|worker| {
            worker.assert_may_wait("Pending::wait_timeout");
            if !self.slot.is_set() {
                // Several fibers may wait here. No deadline if the clock cannot represent it.
                wait_for_any(worker, Awaited::Promise(type_name::<T>()), &[self], Instant::now().checked_add(time));
            }
        });
        self.try_take()
    }

    /// Returns the value, if it has come and was not taken yet. Does not wait.
    ///
    /// ```
    /// let (promise, number) = trust::promise();
    /// assert_eq!(number.try_take(), None);
    /// promise.keep(7);
    /// assert_eq!(number.try_take(), Some(Ok(7)));
    /// ```
    pub fn try_take(&self) -> Option<Result<T, Error>> {
        self.slot.take().map(|outcome| outcome.map_err(Fault::into_error::<T>))
    }
}

impl<T> Pending<T> {
    /// Returns the promise's name.
    ///
    /// ```
    /// let (promise, number) = trust::promise::<u32>();
    /// let waits_for = number.id();
    /// assert_eq!(promise.id(), waits_for);
    /// ```
    pub fn id(&self) -> PromiseId {
        self.id
    }
}

impl<T: 'static> sealed::Source for Pending<T> {
    fn is_settled(&self) -> bool {
        self.slot.is_set()
    }
    #[expect(private_interfaces, reason = "as in the trait")]
    fn waiters(&self) -> &Waiters {
        &self.slot.waiter
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        forget(self.id);
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("settled", &self.slot.is_set()).finish()
    }
}
