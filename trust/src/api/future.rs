//! Trusts in async programs: a call returns a future, which the response wakes.
//!
//! The calling thread belongs to a foreign executor and runs no worker loop, so a call needs no worker and no slots. A
//! call is one allocation, [`Asked`], that holds the closure and room for the outcome. It reaches the trustee through
//! its stack of calls (`registry/calls.rs`); calls of one thread run in the order in which they were sent. The outcome
//! is written beside the closure, and the trustee's thread wakes the future's task. Nothing depends on which thread
//! polls the future. For a trustee of another machine the service thread of this machine makes the request.
//!
//! Back-pressure: a worker has a window of calls under way. A call that finds the window full is not sent: its future
//! keeps the call, waits for room when it is polled, and sends it then.
//!
//! Invariant: each sent call completes its future exactly once, with an outcome, or as gone when the call is dropped
//! unrun.

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
use crate::api::delegated::{Delegated, send_from_loop};
use crate::api::trust::Trust;
use crate::config::{ANSWER_SPINS, SPIN_LUCK_MAX, SPIN_PROBE_EVERY};
use crate::error::Error;
use crate::fiber::record;
use crate::ids::{self, TrusteeId};
use crate::property::Header;
use crate::registry::{self, CallHead, QueuedCall, Shared, Verdict};
use crate::remote;
use crate::request::{Called, Fault};
use crate::runtime::worker::reclaim::count;
use crate::runtime::worker::{self, Worker};
use crate::unwind::quietly;

/// Call and its outcome.
#[repr(C)]
struct Asked<P: 'static, C: Delegated<P>> {
    /// First field: the queue knows the call by it.
    head: CallHead,
    property: *mut Header,
    trustee: TrusteeId,
    /// Worker that counts the call in its window, or `NOBODY`.
    via: Cell<TrusteeId>,
    /// Whether the call counts as a trust of the property; true until it is run or refused.
    owns_trust: Cell<bool>,
    /// Closure; present until it is run or refused.
    call: UnsafeCell<Option<C>>,
    answer: Answer<Result<C::Output, Fault>>,
    kind: PhantomData<fn(P)>,
}

// SAFETY: the call and its cells move from the thread that makes it to the thread that runs it: only the holder of the
// unsent future or of the one `QueuedCall` touches them. `Answer` synchronises itself. Only the trustee dereferences
// the property.
unsafe impl<P, C: Delegated<P, Output: Send> + Send> Send for Asked<P, C> {}
// SAFETY: as above.
unsafe impl<P, C: Delegated<P, Output: Send> + Send> Sync for Asked<P, C> {}

impl<P: 'static, C: Delegated<P, Output: Send> + Send + 'static> Asked<P, C> {
    fn new(trust: &Trust<P>, call: C) -> Arc<Self> {
        let (property, trustee) = trust.parts();
        // A worker counts only its own properties.
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

    /// Runs or drops the call.
    ///
    /// # Safety
    /// The head is that of an `Asked` of this type; the queue's reference to it is taken over.
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

    /// Returns the trust by which the call is made: its own, or an uncounted one.
    fn take_trust(&self) -> MaybeCounted<P> {
        MaybeCounted {
            trust: ManuallyDrop::new(Trust::of(self.property, self.trustee)),
            is_counted: self.owns_trust.take(),
        }
    }
}

impl<P: 'static, C: Delegated<P>> Drop for Asked<P, C> {
    fn drop(&mut self) {
        if self.owns_trust.take() {
            // Never sent.
            drop(Trust::<P>::of(self.property, self.trustee));
        }
    }
}

/// Trust that may be uncounted.
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

/// Obligation to complete the call: with an outcome, or as gone when dropped.
struct Completion<P: 'static, C: Delegated<P>>(Arc<Asked<P, C>>);

impl<P: 'static, C: Delegated<P>> Completion<P, C> {
    fn complete(self, outcome: Result<C::Output, Fault>) {
        let this = ManuallyDrop::new(self);
        // SAFETY: read once: `this` is not dropped.
        Self::give(unsafe { std::ptr::read(&this.0) }, outcome);
    }

    fn give(asked: Arc<Asked<P, C>>, outcome: Result<C::Output, Fault>) {
        let via = asked.via.get();
        // SAFETY: `set` is called once: the one `Completion` of this call is consumed here.
        let waker = unsafe { asked.answer.set(outcome) };
        // If the future was dropped, the outcome is dropped here: user code.
        quietly(|| drop(asked));
        // The window is that of this thread's worker, or of a worker that has ended.
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

impl<P: 'static, C: Delegated<P>> Drop for Completion<P, C> {
    fn drop(&mut self) {
        Self::give(Arc::clone(&self.0), Err(Fault::Gone));
    }
}

/// Future's view of its call.
trait Awaited<U>: Send + Sync {
    fn answer(&self) -> &Answer<Result<U, Fault>>;
    /// Gives away the call, which has a place in the window of worker `via`.
    ///
    /// # Safety
    /// Called once, by the future.
    unsafe fn into_call(self: Arc<Self>, via: TrusteeId) -> QueuedCall;
}

impl<P: 'static, C: Delegated<P, Output: Send> + Send + 'static> Awaited<C::Output> for Asked<P, C> {
    fn answer(&self) -> &Answer<Result<C::Output, Fault>> {
        &self.answer
    }

    unsafe fn into_call(self: Arc<Self>, via: TrusteeId) -> QueuedCall {
        self.via.set(via);
        let asked = Arc::into_raw(self).cast_mut();
        // SAFETY: never null. `act` may be called once, with this reference; the caller gives the call away once.
        unsafe { QueuedCall::new(NonNull::new_unchecked(asked).cast()) }
    }
}

/// Future's half of a call.
pub(super) struct Pending<U> {
    asked: Arc<dyn Awaited<U>>,
    unsent: Option<Unsent>,
    /// Nothing else is under way at that worker, so the outcome may come at once.
    may_spin: bool,
}

/// Call that found the window full.
struct Unsent {
    worker: Arc<Shared>,
    /// Its number among the waiters for room.
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

/// Sends a call that has a place in the window.
fn send<U>(asked: &Arc<dyn Awaited<U>>, worker: &Shared) {
    // SAFETY: the callers have just made the call, or hold it in `Unsent`, which they give up.
    let call = unsafe { Arc::clone(asked).into_call(worker.id) };
    // A refused call is dropped, and completes its future as gone.
    drop(worker.send_call(call));
}

impl<U> Pending<U> {
    /// Returns whether the call has been sent.
    pub(super) fn is_sent(&self) -> bool {
        self.unsent.is_none()
    }

    /// Sends the call if it is unsent and there is room; otherwise the task is woken when there may be room.
    pub(super) fn poll_sent(&mut self, context: &TaskContext<'_>) -> Poll<()> {
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
    /// Spin budget of this thread: how often spinning for an outcome has paid off lately.
    static LUCK: Cell<u32> = const { Cell::new(SPIN_LUCK_MAX) };
    static CHANCES: Cell<u32> = const { Cell::new(0) };
}

/// Spins briefly for an outcome, which a polling trustee gives in less time than waking a task takes.
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

/// Future of a call: its docs and name, its output, the type made from a fault and from what the future knows of the
/// call, and the method of `Result` that applies it.
macro_rules! future {
    ($(#[$doc:meta])* $Future:ident<$U:ident> -> $Output:ty, ($Call:ty) -> $OfFault:ty, $make:ident) => {
        $(#[$doc])*
        #[must_use = "a closure for which there was no room is not sent before this is polled: await it"]
        pub struct $Future<$U> {
            pending: Pending<$U>,
            call: $Call,
            of_fault: fn(Fault, $Call) -> $OfFault,
        }

        impl<$U: Send + 'static> $Future<$U> {
            /// Makes the future of a call with this outcome.
            pub(super) fn new<P: 'static>(
                trust: &Trust<P>,
                delegated: impl Delegated<P, Output = $U> + Send + 'static,
                call: $Call,
                of_fault: fn(Fault, $Call) -> $OfFault,
            ) -> Self {
                $Future { pending: trust.ask(delegated), call, of_fault }
            }
        }

        impl<$U> Future for $Future<$U> {
            type Output = $Output;

            fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<$Output> {
                let this = self.get_mut();
                this.pending.poll(context).map(|outcome| outcome.$make(|fault| (this.of_fault)(fault, this.call)))
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
    /// Future of [`Trust::apply_async`]. Dropping it discards the result; the closure still runs,
    /// unless there was no room to send it yet.
    ApplyFuture<U> -> U, (Called) -> U, unwrap_or_else
}
future! {
    /// Future of a [`ReadyCall`](crate::ReadyCall). Dropping it is as for [`ApplyFuture`].
    CallFuture<U> -> Result<U, Error>, (()) -> Error, map_err
}

impl<U> CallFuture<U> {
    /// Polls for the sending alone, for futures built on this one that get the result another way: ready once the call
    /// has been sent, after which this future may be dropped. Until then this future owns the call, and dropping it
    /// takes the call back.
    #[doc(hidden)]
    pub fn poll_sent(&mut self, context: &TaskContext<'_>) -> Poll<()> {
        self.pending.poll_sent(context)
    }

    /// Returns whether the call has been sent.
    #[doc(hidden)]
    pub fn is_sent(&self) -> bool {
        self.pending.is_sent()
    }
}

impl<T: 'static> Trust<T> {
    /// Sends a call, or keeps it if there is no room.
    pub(super) fn ask<C: Delegated<T, Output: Send> + Send + 'static>(&self, mut call: C) -> Pending<C::Output> {
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

    /// Same as `ask`, on a thread other than the trustee's. A call that `may_wait` is not sent if there is no room.
    fn ask_elsewhere<C: Delegated<T, Output: Send> + Send + 'static>(
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
                    // With other calls under way, the executor has other tasks to run meanwhile.
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
            // SAFETY: not sent, and no other thread has it.
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

impl<T: 'static> Delegated<T> for ClearPoison {
    type Output = ();
    type Value = T;
    const NAME: &'static str = "clear_poison";
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
