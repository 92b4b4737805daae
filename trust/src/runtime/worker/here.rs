//! Calls on the worker's own trustee: the local shortcut, the calls allowed inside a closure, and the calls put off
//! until its end.

#![allow(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use crate::config::GIVE_WAY_EVERY;
use crate::error::panic_text;
use crate::ids;
use crate::local::trustee::Incoming;
use crate::property::reclaim::PropertyTable;
use crate::property::{Header, Property};
use crate::remote::PeerClient;
use crate::request::{Called, Fault, Host};
use crate::runtime::worker::{Context, Deferred, Worker};
use crate::stats::Counters;
use crate::unwind::quietly;

/// Returns the fault for a request of a property that is poisoned or closed.
#[cold]
pub(crate) fn poisoned(property: *mut Header) -> Fault {
    super::with(|worker| worker.refusal(property))
}

impl Host for Worker {
    #[inline(always)]
    fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    #[inline(always)]
    fn mark_busy(&self) {
        if self.marks.is_quiet() {
            self.leave_quiet();
        }
    }

    #[inline(always)]
    fn delegated<R>(&self, run: impl FnOnce() -> R) -> R {
        let before = self.context.replace(Context::Delegated);
        let result = run();
        self.context.set(before);
        result
    }

    #[inline(always)]
    fn call_back<R>(&self, run: impl FnOnce() -> R) -> R {
        struct Restore<'a>(&'a Worker, Context);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.context.set(self.1);
            }
        }
        let _restore = Restore(self, self.context.replace(Context::Callback));
        run()
    }

    #[cold]
    fn poison(&self, property: *mut Header, payload: &(dyn Any + Send)) {
        // SAFETY: a closure has just run on it.
        let header = unsafe { &*property };
        if header.is_closed() {
            return; // a launched closure had its value when it was closed
        }
        header.set_poisoned(true);
        // Reports name the first panic: a fiber may meet the poison while it holds the value.
        self.poison.borrow_mut().entry(property).or_insert_with(|| panic_text(payload));
    }

    #[inline(always)]
    fn has_many_properties(&self) -> bool {
        self.property_table.is_large()
    }

    fn knows(&self, property: *mut Header) -> bool {
        self.property_table.knows(property) || self.shared.slab.is_announced(property)
    }
}

impl Worker {
    #[inline(always)]
    pub(crate) fn context(&self) -> Context {
        self.context.get()
    }

    /// Panics where nothing may suspend [no-suspension].
    #[inline(always)]
    pub(crate) fn assert_may_wait(&self, call: &str) {
        if self.context.get() != Context::Free {
            self.refuse_to_wait(call, None);
        }
    }

    /// Same as [`assert_may_wait`](Self::assert_may_wait), and names the place of the call.
    #[inline(always)]
    pub(crate) fn assert_call_may_wait(&self, call: Called) {
        if self.context.get() != Context::Free {
            self.refuse_to_wait(call.name, Some(call.at));
        }
    }

    #[cold]
    fn refuse_to_wait(&self, call: &str, at: Option<&Location<'_>>) -> ! {
        let at = at.map_or_else(String::new, |at| format!(" (`{call}` at {at})"));
        let place = match self.context.get() {
            Context::Callback => "the callback of an `apply_then`",
            Context::Serialising => "the serialisation of an argument or result",
            Context::Exiting => {
                panic!(
                    "`{call}` waits, and the process exits from the middle of a fiber: a destructor of a thread-local \
                     cannot wait any more"
                )
            }
            _ => "a delegated closure",
        };
        panic!(
            "`{call}` waits, and nothing may wait inside {place}: use `apply_then`, or `launch` the closure \
             (it then runs in a fiber and may wait){at}"
        )
    }

    /// Enters serialisation: nothing may wait while a value is written or read either. Returns the context to be
    /// restored.
    #[inline(always)]
    pub(crate) fn enter_serialising(&self) -> Context {
        let before = self.context.get();
        if before == Context::Free {
            self.context.set(Context::Serialising);
        }
        before
    }

    /// Runs a closure on a property of this trustee, at once. Calls put off meanwhile, with their own callbacks, wait
    /// for [`after_run_here`](Self::after_run_here), which the caller calls after its callback.
    ///
    /// # Safety
    /// The property is a live `Property<T>` of this trustee; the context is `Free`.
    // Unoptimised, the frames of requests to other trustees would have room for this one's copies of the closure too.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) unsafe fn run_alone<T, U>(
        &self,
        property: *mut Header,
        f: impl FnOnce(&mut T) -> U,
    ) -> Result<U, Fault> {
        // SAFETY: the caller's promise.
        if unsafe { (*property).is_poisoned() } {
            return Err(self.refusal(property));
        }
        self.shared.counters.requests_run_here.add(1);
        self.context.set(Context::Delegated);
        // SAFETY: live, and no other closure runs ([closures-take-turns]: the context was `Free`).
        let outcome = catch_unwind(AssertUnwindSafe(|| f(unsafe { Property::<T>::value(property) })));
        self.context.set(Context::Free);
        outcome.map_err(|payload| {
            self.poison(property, &*payload);
            Fault::Panicked(payload)
        })
    }

    /// Counts a local call, run in free context. [`run_alone`](Self::run_alone) counts its own.
    #[inline(always)]
    pub(crate) fn count_run_here(&self) {
        self.shared.counters.requests_run_here.add(1);
        self.after_run_here();
    }

    /// Runs the calls put off, and lets others have their turn now and then.
    #[inline(always)]
    pub(crate) fn after_run_here(&self) {
        self.settle();
        // Not by the counter of calls: deferred calls, which must not give way, may have all of its multiples.
        let left = self.calls_left.get().wrapping_sub(1);
        self.calls_left.set(left);
        if left < 0 {
            self.give_way();
        }
    }

    /// Gives clients and ready fibers their turn, also where the thread only calls its own trustee.
    #[cold]
    fn give_way(&self) {
        if self.in_aftermath.get() {
            return; // at the end of the next call
        }
        self.calls_left.set(GIVE_WAY_EVERY - 1);
        let others_wait = self.others_have_work()
            || self.scheduler.has_ready()
            || self.shared.has_messages()
            || self.incoming.borrow().iter().any(|client| client.has_batch());
        if !others_wait {
            return;
        }
        if self.fiber().is_some() {
            self.scheduler.yield_to_root();
        } else {
            self.turn();
            self.leave_loop();
        }
    }

    /// Puts off a call on this very trustee until the running closure has returned.
    pub(crate) fn defer(&self, call: Deferred) {
        self.deferred.borrow_mut().push_back(call);
        self.marks.set_aftermath(true);
    }

    /// Sets delegated context for the drop of a deferred call that will not run: destructors of captures are the user's
    /// code, and this is the worker's loop, or a fiber that has not asked for them. `settle_slow` restores the context.
    pub(crate) fn enter_drop_of_deferred(&self) {
        debug_assert!(self.in_aftermath.get() && self.context.get() == Context::Free, "for deferred calls");
        self.context.set(Context::Delegated);
    }

    /// Runs the work put off until the end of delegated context: deferred calls, reclamations.
    #[inline(always)]
    pub(crate) fn settle(&self) {
        if self.marks.has_aftermath() && self.context.get() == Context::Free && !self.in_aftermath.get() {
            self.settle_slow();
        }
    }

    /// Takes back that it has no work of its own.
    #[cold]
    fn leave_quiet(&self) {
        self.marks.set_quiet(false);
        self.shared.quiet.leave();
    }

    #[cold]
    fn settle_slow(&self) {
        self.in_aftermath.set(true);
        loop {
            while let Some(call) = { self.deferred.borrow_mut().pop_front() } {
                quietly(call);
                // See `enter_drop_of_deferred`.
                self.context.set(Context::Free);
            }
            if !self.property_table.reclaim(self) && self.deferred.borrow().is_empty() {
                break;
            }
        }
        self.in_aftermath.set(false);
        self.marks.set_aftermath(self.property_table.has_work());
    }

    /// Counts trusts of a property of this trustee.
    ///
    /// # Safety
    /// The property is live.
    pub(crate) unsafe fn count(&self, property: *mut Header, delta: i32) {
        // SAFETY: the caller's promise; this is the trustee's thread.
        unsafe { self.property_table.count(property, delta) };
        if self.property_table.has_unreferenced() {
            self.marks.set_aftermath(true);
        }
    }

    /// Notes a closed property whose value is in use: it is dropped when that is over.
    pub(crate) fn note_closing(&self, property: *mut Header) {
        self.property_table.note_closing(property);
        self.marks.set_aftermath(true);
    }

    pub(crate) fn adopt(&self, property: *mut Header) {
        self.property_table.adopt(property);
    }

    /// Notes that the trustee has values that do not leave this thread.
    pub(crate) fn bind(&self) {
        self.has_bound_values.set(true);
    }

    /// Adopts a property that was made on this thread, and whose value is not known to be `Send`.
    pub(crate) fn adopt_bound(&self, property: *mut Header) {
        self.bind();
        self.adopt(property);
    }

    /// Adopts a property that another thread has entrusted to this trustee.
    pub(crate) fn adopt_from_elsewhere(&self, property: *mut Header) {
        self.adopt(property);
        if ids::is_in_rack() {
            self.shared.slab.arrived(property);
        }
    }

    pub(crate) fn property_table(&self) -> &PropertyTable<Incoming, PeerClient> {
        &self.property_table
    }

    /// Returns the fault for a request of a property of this trustee that is poisoned or closed.
    #[cold]
    pub(crate) fn refusal(&self, property: *mut Header) -> Fault {
        // SAFETY: live: the request, or the caller's trust, keeps it.
        if unsafe { (*property).is_closed() } {
            return Fault::Closed;
        }
        Fault::Poisoned(self.poison.borrow().get(&property).cloned().unwrap_or_default())
    }
    pub(crate) fn forget_poison(&self, property: *mut Header) {
        self.poison.borrow_mut().remove(&property);
    }
}
