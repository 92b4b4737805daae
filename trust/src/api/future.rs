//! Trusts in async programs (T16): a call gives a future, which is woken by the response.
//!
//! The calling thread belongs to somebody else's executor: nobody runs a worker's loop there. So it needs no worker and
//! no slots. A call is one allocation, [`Asked`], with the closure and room for the outcome. It goes to the trustee by
//! the stack of calls (`registry/calls.rs`) and is run in its turn, in the order in which one thread sent them; the
//! outcome is written beside it, and the future's task is woken from the trustee's thread. Nothing of it depends on
//! which thread polls the future. For a trustee of another machine the service thread of this one makes the request.
//!
//! Back-pressure: a worker has a window of calls under way. A call that finds it full is not sent: its future holds it,
//! waits for room when it is polled, and then sends it.
//!
//! Invariant: each call that was sent completes its future exactly once, with an outcome, or as gone when the call is
//! dropped unrun.

#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::future::Future;
use std::hint;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use crate::api::answer::Answer;
use crate::api::call::{Call, send_from_loop};
use crate::api::trust::Trust;
use crate::config::{ANSWER_SPINS, SPIN_LUCK_MAX, SPIN_PROBE_EVERY};
use crate::error::Error;
use crate::fiber::record;
use crate::ids::{self, TrusteeId};
use crate::property::Header;
use crate::registry::{self, CallHead, QueuedCall, Shared, Verdict};
use crate::remote;
use crate::request::Fault;
use crate::runtime::worker::reclaim::count;
use crate::runtime::worker::{self, Worker};
use crate::unwind::quietly;

/// A call and its outcome.
#[repr(C)]
struct Asked<P: 'static, C: Call<P>> {
    /// First: the queue knows the call by it.
    head: CallHead,
    property: *mut Header,
    trustee: TrusteeId,
    /// Whose window the call has a place in, or nobody's.
    via: Cell<TrusteeId>,
    /// It counts a trust of the property, up to when it is run or refused.
    owns_trust: Cell<bool>,
    /// Up to then, too.
    call: UnsafeCell<Option<C>>,
    answer: Answer<Result<C::Output, Fault>>,
    kind: PhantomData<fn(P)>,
}

// SAFETY: the call and what is said of it goes from the thread that makes it to the one that runs it: whoever has the
// unsent future, or the one `QueuedCall` there is, is alone to touch it. The answer sees to itself. Only the trustee
// looks behind the property.
unsafe impl<P, C: Call<P, Output: Send> + Send> Send for Asked<P, C> {}
// SAFETY: as above.
unsafe impl<P, C: Call<P, Output: Send> + Send> Sync for Asked<P, C> {}

impl<P: 'static, C: Call<P, Output: Send> + Send + 'static> Asked<P, C> {
    fn new(trust: &Trust<P>, call: C) -> Arc<Self> {
        let (property, trustee) = trust.parts();
        // A worker counts its own properties only.
        let own = if trustee.machine() == ids::machine() { property } else { std::ptr::null_mut() };
        Arc::new(Asked {
            head: CallHead::new(own, Self::act),
            property,
            trustee,
            via: Cell::new(TrusteeId::NOBODY),
            owns_trust: Cell::new(false),
            call: UnsafeCell::new(Some(call)),
            answer: Answer::new(),
            kind: PhantomData,
        })
    }

    /// # Safety
    /// The head is that of an `Asked` of this type; its queue's share in it is taken over.
    unsafe fn act(head: NonNull<CallHead>, verdict: Verdict) {
        // SAFETY: the head is the first field, its pointer that of `into_call`.
        let asked = unsafe { Arc::from_raw(head.cast::<Self>().as_ptr().cast_const()) };
        // SAFETY: this thread has the one `QueuedCall`.
        let call = unsafe { (*asked.call.get()).take() };
        let trust = asked.take_trust();
        let completion = Completion(asked);
        if let Some(call) = call
            && verdict == Verdict::Run
        {
            worker::with(|worker| {
                send_from_loop(call, &trust, worker, move |outcome| completion.complete(outcome));
            });
        }
    }

    /// The trust that the call is made by: one of its own, or one that nobody counts.
    fn take_trust(&self) -> MaybeCounted<P> {
        MaybeCounted {
            trust: ManuallyDrop::new(Trust::of(self.property, self.trustee)),
            is_counted: self.owns_trust.take(),
        }
    }
}

impl<P: 'static, C: Call<P>> Drop for Asked<P, C> {
    fn drop(&mut self) {
        if self.owns_trust.take() {
            // Never sent.
            drop(Trust::<P>::of(self.property, self.trustee));
        }
    }
}

/// A trust that may be somebody else's.
struct MaybeCounted<P> {
    trust: ManuallyDrop<Trust<P>>,
    is_counted: bool,
}

impl<P> Deref for MaybeCounted<P> {
    type Target = Trust<P>;
    fn deref(&self) -> &Trust<P> {
        &self.trust
    }
}

impl<P> Drop for MaybeCounted<P> {
    fn drop(&mut self) {
        if self.is_counted {
            // SAFETY: not used after this.
            unsafe { ManuallyDrop::drop(&mut self.trust) };
        }
    }
}

/// Whoever has the outcome, or drops this without one.
struct Completion<P: 'static, C: Call<P>>(Arc<Asked<P, C>>);

impl<P: 'static, C: Call<P>> Completion<P, C> {
    fn complete(self, outcome: Result<C::Output, Fault>) {
        let this = ManuallyDrop::new(self);
        // SAFETY: read once: `this` is not dropped.
        Self::give(unsafe { std::ptr::read(&this.0) }, outcome);
    }

    fn give(asked: Arc<Asked<P, C>>, outcome: Result<C::Output, Fault>) {
        let via = asked.via.get();
        // SAFETY: there was one `Completion` of this call, which is gone.
        let waker = unsafe { asked.answer.set(outcome) };
        // Whoever has dropped the future has left the outcome to be dropped here: the user's code.
        quietly(|| drop(asked));
        // Its window is that of this thread's worker, or of one that has ended.
        worker::existing(|worker| {
            if worker.id == via {
                worker.shared.calls.window.leave();
            }
        });
        if let Some(waker) = waker {
            // The executor's code, on the trustee's thread or in a destructor.
            quietly(|| waker.wake());
        }
    }
}

impl<P: 'static, C: Call<P>> Drop for Completion<P, C> {
    fn drop(&mut self) {
        Self::give(Arc::clone(&self.0), Err(Fault::Gone));
    }
}

/// What a future knows of its call.
trait Awaited<U>: Send + Sync {
    fn answer(&self) -> &Answer<Result<U, Fault>>;
    /// Gives the call away, which has a place in the window of this worker.
    ///
    /// # Safety
    /// Once, by the future.
    unsafe fn into_call(self: Arc<Self>, via: TrusteeId) -> QueuedCall;
}

impl<P: 'static, C: Call<P, Output: Send> + Send + 'static> Awaited<C::Output> for Asked<P, C> {
    fn answer(&self) -> &Answer<Result<C::Output, Fault>> {
        &self.answer
    }

    unsafe fn into_call(self: Arc<Self>, via: TrusteeId) -> QueuedCall {
        self.via.set(via);
        let asked = Arc::into_raw(self).cast_mut();
        // SAFETY: never null. `act` may be called once, with this share; the caller gives this away once.
        unsafe { QueuedCall::new(NonNull::new_unchecked(asked).cast()) }
    }
}

/// The future's half.
pub(super) struct Pending<U> {
    asked: Arc<dyn Awaited<U>>,
    unsent: Option<Unsent>,
    /// Nothing else is under way there, so the outcome may come at once.
    may_spin: bool,
}

/// A call that has found the window full.
struct Unsent {
    worker: Arc<Shared>,
    /// Among those who wait for room.
    number: Option<u64>,
}

impl Drop for Unsent {
    fn drop(&mut self) {
        let window = &self.worker.calls.window;
        if let Some(number) = self.number
            && !window.forget(number)
        {
            window.pass_on();
        }
    }
}

/// Sends a call that has a place.
fn send<U>(asked: &Arc<dyn Awaited<U>>, worker: &Shared) {
    // SAFETY: the callers have just made it, or have it in `Unsent`, which they give up.
    let call = unsafe { Arc::clone(asked).into_call(worker.id) };
    // One that is refused is dropped, and completes its future as gone.
    drop(worker.send_call(call));
}

impl<U> Pending<U> {
    /// Sends the call if it is unsent and there is room; else the task is woken when there may be.
    fn poll_sent(&mut self, context: &TaskContext<'_>) -> Poll<()> {
        while let Some(unsent) = &mut self.unsent {
            let window = &unsent.worker.calls.window;
            if window.try_enter() {
                if let Some(number) = unsent.number.take() {
                    window.forget(number);
                }
                send(&self.asked, &unsent.worker);
                self.unsent = None;
            } else {
                unsent.number = window.wait(unsent.number, context.waker());
                if unsent.number.is_some() {
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(())
    }

    pub(super) fn poll(&mut self, context: &TaskContext<'_>) -> Poll<Result<U, Fault>> {
        if self.poll_sent(context).is_pending() {
            return Poll::Pending;
        }
        if std::mem::take(&mut self.may_spin) {
            spin_for(self.asked.answer());
        }
        // SAFETY: the future's task alone polls.
        unsafe { self.asked.answer().poll(context.waker()) }.map(|outcome| match outcome {
            Some(outcome) => outcome,
            None => panic!("a future of a trust was polled after it had given its result"),
        })
    }
}

thread_local! {
    /// How often it has been of use lately, on this thread, to look for an outcome before the task is left.
    static LUCK: Cell<u32> = const { Cell::new(SPIN_LUCK_MAX) };
    static CHANCES: Cell<u32> = const { Cell::new(0) };
}

/// Waits a moment for an outcome that a trustee who polls gives in less time than it takes to wake a task.
fn spin_for<V>(answer: &Answer<V>) {
    let luck = LUCK.get();
    if luck == 0 {
        let chances = CHANCES.replace(CHANCES.get().wrapping_add(1));
        if !chances.is_multiple_of(SPIN_PROBE_EVERY) {
            return;
        }
    }
    let came = (0..ANSWER_SPINS).any(|_| {
        hint::spin_loop();
        answer.is_set()
    });
    LUCK.set(if came { (luck + 1).min(SPIN_LUCK_MAX) } else { luck.saturating_sub(1) });
}

/// A future of a call: its docs and name, what it gives, what that makes of a fault, and the method of `Result` that
/// does so.
macro_rules! future {
    ($(#[$doc:meta])* $Future:ident<$U:ident> -> $Output:ty, $OfFault:ty, $make:ident) => {
        $(#[$doc])*
        #[must_use = "a closure for which there was no room is not sent before this is polled: await it"]
        pub struct $Future<$U> {
            pending: Pending<$U>,
            of_fault: fn(Fault) -> $OfFault,
        }

        impl<$U: Send + 'static> $Future<$U> {
            /// Of a call with this outcome.
            pub(super) fn new<P: 'static>(
                trust: &Trust<P>,
                call: impl Call<P, Output = $U> + Send + 'static,
                of_fault: fn(Fault) -> $OfFault,
            ) -> Self {
                $Future { pending: trust.ask(call), of_fault }
            }
        }

        impl<$U> Future for $Future<$U> {
            type Output = $Output;

            fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<$Output> {
                let this = self.get_mut();
                this.pending.poll(context).map(|outcome| outcome.$make(this.of_fault))
            }
        }

        impl<$U> fmt::Debug for $Future<$U> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($Future)).field("complete", &self.pending.asked.answer().is_set()).finish()
            }
        }
    };
}

future! {
    /// The result of [`Trust::apply_async`] and its kin. Dropping it discards the result; the closure runs all the
    /// same, unless there was no room for it yet.
    ApplyFuture<U> -> U, U, unwrap_or_else
}
future! {
    /// The result of [`Trust::try_apply_async`] and its kin. Dropping it is as for [`ApplyFuture`].
    TryApplyFuture<U> -> Result<U, Error>, Error, map_err
}

impl<U> TryApplyFuture<U> {
    /// For futures that are made of this one and get the result by another way: ready once the call has been sent,
    /// after which this may be dropped. Up to then the call is this future's, and dropping it takes the call back.
    #[doc(hidden)]
    pub fn poll_sent(&mut self, context: &TaskContext<'_>) -> Poll<()> {
        self.pending.poll_sent(context)
    }

    /// Has the call been sent?
    #[doc(hidden)]
    pub fn is_sent(&self) -> bool {
        self.pending.unsent.is_none()
    }
}

impl<T: 'static> Trust<T> {
    /// Sends a call, or keeps it for want of room.
    pub(super) fn ask<C: Call<T, Output: Send> + Send + 'static>(&self, mut call: C) -> Pending<C::Output> {
        call.prepare(self.parts().1);
        let asked = Asked::new(self, call);
        let is_here = worker::existing(|worker| self.is_at(worker)).unwrap_or(false);
        if is_here {
            let asked: Arc<dyn Awaited<C::Output>> = asked;
            // SAFETY: just made.
            unsafe { Arc::clone(&asked).into_call(TrusteeId::NOBODY) }.run();
            return Pending { asked, unsent: None, may_spin: false };
        }
        self.ask_elsewhere(asked, true)
    }

    /// As `ask`, on another thread than the trustee's. A call that `may_wait` is not sent if there is no room.
    fn ask_elsewhere<C: Call<T, Output: Send> + Send + 'static>(
        &self,
        asked: Arc<Asked<T, C>>,
        may_wait: bool,
    ) -> Pending<C::Output> {
        let (property, trustee) = self.parts();
        let is_remote = trustee.machine() != ids::machine();
        let worker = if is_remote { remote::service() } else { Some(trustee) };
        let mut pending = Pending { asked: Arc::clone(&asked) as Arc<_>, unsent: None, may_spin: false };
        let sent = worker.and_then(|id| {
            registry::with(id, |worker| {
                let has_place = !may_wait || worker.calls.window.try_enter();
                if is_remote {
                    remote::forward(trustee, property, 1);
                    asked.owns_trust.set(true);
                }
                if has_place {
                    if !may_wait {
                        worker.calls.window.enter();
                    }
                    // One that others are under way beside has others' tasks to go on with.
                    pending.may_spin = !is_remote && !worker.calls.has_any();
                    send(&pending.asked, worker);
                } else {
                    if !is_remote {
                        count(trustee, property, 1);
                        asked.owns_trust.set(true);
                    }
                    pending.unsent = Some(Unsent { worker: Arc::clone(worker), number: None });
                }
            })
        });
        if sent.is_none() {
            let fault = if is_remote {
                let text = format!("{:?} is on another machine, and no worker here can reach one", trustee);
                Fault::Refused(text)
            } else {
                Fault::Gone
            };
            // SAFETY: not sent, and in nobody else's hands.
            drop(unsafe { (*asked.call.get()).take() });
            Completion(asked).complete(Err(fault));
        }
        pending
    }

    /// Accepts a poisoned property, on a thread without a worker, in the order of its futures.
    pub(super) fn clear_poison_elsewhere(&self) {
        let asked = Asked::new(self, ClearPoison);
        drop(self.ask_elsewhere(asked, false));
    }
}

/// `clear_poison` as a call.
struct ClearPoison;

impl<T: 'static> Call<T> for ClearPoison {
    type Output = ();
    const RUNS_HERE: bool = true;
    const HEEDS_POISON: bool = false;

    fn send(
        self,
        trust: &Trust<T>,
        _: &Worker,
        then: impl FnOnce(Result<(), Fault>) + 'static,
    ) -> Option<record::Awaited> {
        trust.clear_poison();
        then(Ok(()));
        None
    }
}
