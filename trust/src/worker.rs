//! A worker: the loop of one OS thread, which is client and trustee at once, and what it knows.
//!
//! The loop ([`Worker::turn`]) in a few lines: take responses, run the fibers that are ready, serve requests,
//! send what is pending; with nothing to do, spin, then yield the core, then sleep (`idle.rs`).
//!
//! Invariants: (D1) delegated closures of one trustee run one at a time: in a batch one behind the other, and
//! one that is asked for while another runs is deferred until that one has returned; (D2) nothing suspends in
//! delegated context or in a callback; (D3) `turn` runs on the root only, so it is never entered twice.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, Ref, RefCell, UnsafeCell};
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use crate::client::{Outgoing, Room};
use crate::config::SLOTS;
use crate::count::Estate;
use crate::error::panic_text;
use crate::fiber::overflow::AltStack;
use crate::fiber::stack::StackError;
use crate::fiber::{Entry, FiberRef, Scheduler};
use crate::idle::Idle;
use crate::launch::Launches;
use crate::park::Parker;
use crate::property::{Header, Property};
use crate::registry::{self, Message, Shared, TrusteeId};
use crate::request::{Fault, Request, Response, Resuming};
use crate::slot::{Pair, Reader};
use crate::timer::Timers;
use crate::trustee::Incoming;

pub(crate) use crate::local::{try_with, with};

/// What a worker is told at its start.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) stack_bytes: usize,
    pub(crate) spin_ns: u64,
}

impl Default for Settings {
    fn default() -> Self {
        // A plain thread waits for little, and not for long before it sleeps.
        Settings { stack_bytes: crate::config::STACK_BYTES, spin_ns: crate::config::SPIN_NS }
    }
}

/// What runs on the thread now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Context {
    /// A fiber or the thread's own code: may wait.
    Free,
    /// A delegated closure.
    Delegated,
    /// The callback of an `apply_then`.
    Callback,
}

/// The worker of one thread.
pub(crate) struct Worker {
    pub(crate) id: TrusteeId,
    pub(crate) shared: Arc<Shared>,
    pub(crate) scheduler: Scheduler,
    pub(crate) timers: Timers,
    pub(crate) launches: Launches,
    pub(crate) idle: Idle,
    context: Cell<Context>,
    /// By index of the trustee. Whoever lets user code run while it holds an entry clones the `Rc`, for that
    /// code may connect to a new trustee of the same index.
    outgoing: UnsafeCell<Vec<Option<Rc<Outgoing>>>>,
    /// Indices of the pairs with something outstanding.
    active: RefCell<Vec<usize>>,
    incoming: RefCell<Vec<Rc<Incoming>>>,
    estate: Estate,
    poison: RefCell<HashMap<*mut Header, String>>,
    /// Non-blocking calls to this very trustee from delegated context or callbacks.
    deferred: RefCell<VecDeque<Box<dyn FnOnce(&Worker)>>>,
    /// There may be something deferred or dying.
    aftermath: Cell<bool>,
    in_aftermath: Cell<bool>,
    _alt_stack: AltStack,
}

impl Worker {
    pub(crate) fn new(settings: Settings, alt_stack: AltStack) -> Result<Self, StackError> {
        let scheduler = Scheduler::new(settings.stack_bytes)?;
        let shared = registry::register();
        Ok(Worker {
            id: shared.id,
            shared,
            scheduler,
            timers: Timers::default(),
            launches: Launches::default(),
            idle: Idle::new(settings.spin_ns),
            context: Cell::new(Context::Free),
            outgoing: UnsafeCell::default(),
            active: RefCell::default(),
            incoming: RefCell::default(),
            estate: Estate::default(),
            poison: RefCell::default(),
            deferred: RefCell::default(),
            aftermath: Cell::new(false),
            in_aftermath: Cell::new(false),
            _alt_stack: alt_stack,
        })
    }

    /// One turn of the loop. True if there was anything to do.
    pub(crate) fn turn(&self) -> bool {
        let mut busy = self.collect();
        busy |= self.timers.fire(self);
        if self.scheduler.run_ready() {
            busy = true;
            self.shared.counters.fiber_switches.add(self.scheduler.take_switches());
        }
        busy |= self.serve();
        busy |= self.read_mail();
        self.settle();
        self.flush();
        busy
    }

    /// Takes the responses that have come.
    fn collect(&self) -> bool {
        let mut any = false;
        let mut place = 0;
        loop {
            let Some(index) = self.active.borrow().get(place).copied() else { return any };
            // SAFETY: only this thread, and only for the look-up.
            let outgoing = unsafe { &*self.outgoing.get() }.get(index).and_then(Option::clone);
            let Some(outgoing) = outgoing else { unreachable!("a listed pair exists") };
            if self.call_back(|| outgoing.collect()) {
                any = true;
                self.mark_busy();
                while let Some(fiber) = outgoing.waiters.pop() {
                    self.scheduler.ready(fiber);
                }
            }
            if outgoing.is_outstanding() {
                place += 1;
            } else {
                outgoing.listed.set(false);
                let mut active = self.active.borrow_mut();
                if active.get(place) == Some(&index) {
                    active.swap_remove(place);
                }
            }
        }
    }

    /// Serves the batches that have come, and wakes their clients.
    pub(crate) fn serve(&self) -> bool {
        let mut any = false;
        let mut place = 0;
        loop {
            let Some(incoming) = self.incoming.borrow().get(place).map(Rc::clone) else { return any };
            // No more than a ring of batches: the fibers of this worker want their turn too.
            let served = (0..SLOTS).take_while(|_| incoming.serve(self)).count();
            if served > 0 {
                any = true;
                Parker::publish_fence();
                let _ = incoming.client.parker.wake();
            }
            place += 1;
        }
    }

    /// Takes responses and sends, without serving or running fibers: for the end.
    pub(crate) fn exchange(&self) -> bool {
        let any = self.collect();
        self.flush();
        any
    }

    pub(crate) fn has_outgoing(&self) -> bool {
        !self.active.borrow().is_empty()
    }

    /// Sends what is pending.
    fn flush(&self) {
        for &index in &*self.active.borrow() {
            if let Some(outgoing) = self.at(index) {
                outgoing.flush();
            }
        }
    }

    /// Handles what came by the inbox.
    pub(crate) fn read_mail(&self) -> bool {
        if !self.shared.has_mail() {
            return false;
        }
        self.mark_busy();
        for message in self.shared.take_mail() {
            self.handle(message);
        }
        self.forget_clients();
        true
    }

    pub(crate) fn handle(&self, message: Message) {
        match message {
            Message::Client(client, pair) => self.accept(client, pair),
            Message::Ready(fiber) => self.scheduler.ready(fiber),
            Message::Spawn(entry) => self.start_fiber(entry),
            // SAFETY: the trust that this is about keeps the property until its count says otherwise (C1).
            Message::Count(property, delta) => unsafe { self.count(property.0, delta) },
            Message::Nudge => {}
        }
    }

    pub(crate) fn accept(&self, client: Arc<Shared>, pair: Arc<Pair>) {
        self.incoming.borrow_mut().push(Rc::new(Incoming::new(client, pair)));
    }

    fn forget_clients(&self) {
        self.incoming.borrow_mut().retain(|incoming| !incoming.has_left());
    }

    pub(crate) fn incoming(&self) -> Ref<'_, Vec<Rc<Incoming>>> {
        self.incoming.borrow()
    }

    /// Is there anything a turn would act on? For the check before sleep.
    pub(crate) fn has_work(&self) -> bool {
        self.shared.has_mail()
            || self.scheduler.has_ready()
            || self.incoming.borrow().iter().any(|incoming| incoming.has_batch())
            || self.active.borrow().iter().any(|&index| self.at(index).is_some_and(Outgoing::has_news))
    }

    /// Is anything of this worker's own making unfinished?
    pub(crate) fn is_idle(&self) -> bool {
        self.scheduler.live() == 0
            && self.active.borrow().is_empty()
            && self.launches.awaited() == 0
            && !self.shared.has_mail()
    }

    /// Something is outstanding at another trustee.
    pub(crate) fn is_outstanding(&self) -> bool {
        !self.active.borrow().is_empty() || self.launches.awaited() > 0
    }

    #[inline(always)]
    pub(crate) fn mark_busy(&self) {
        if self.idle.marked() {
            self.idle.unmark(&self.shared);
        }
    }

    /// Waits until `done`: a fiber suspends (whoever makes it done makes it ready), the root runs the loop.
    pub(crate) fn wait_until(&self, done: impl Fn() -> bool) {
        if self.scheduler.current().is_some() {
            while !done() {
                self.scheduler.suspend();
            }
        } else {
            while !done() {
                if self.turn() { self.idle.reset() } else { self.idle.rest(self) }
            }
            self.idle.reset();
        }
    }

    /// The fiber that runs, or `None` on the root.
    #[inline(always)]
    pub(crate) fn fiber(&self) -> Option<FiberRef> {
        self.scheduler.current()
    }

    /// Lets a waiting fiber go on; the root sees for itself.
    #[inline(always)]
    pub(crate) fn resume(&self, fiber: Option<FiberRef>) {
        if let Some(fiber) = fiber {
            self.scheduler.ready(fiber);
        }
    }

    pub(crate) fn start_fiber(&self, entry: Entry) {
        self.shared.counters.fibers_spawned.add(1);
        if let Err(error) = self.scheduler.spawn(entry.run, entry.name) {
            eprintln!("trust: a fiber was not started: {error}");
        }
    }
}

/// Contexts, and calls on this very trustee.
impl Worker {
    #[inline(always)]
    pub(crate) fn context(&self) -> Context {
        self.context.get()
    }

    /// Refuses to wait where nothing may suspend (D2).
    #[inline(always)]
    pub(crate) fn assert_may_wait(&self, call: &str) {
        if self.context.get() != Context::Free {
            self.refuse_to_wait(call);
        }
    }

    #[cold]
    fn refuse_to_wait(&self, call: &str) -> ! {
        let place = match self.context.get() {
            Context::Callback => "the callback of an `apply_then`",
            _ => "a delegated closure",
        };
        panic!(
            "`{call}` waits, and nothing may wait inside {place}: use `apply_then`, or `launch` the closure \
             (it then runs in a fiber and may wait)"
        )
    }

    #[inline(always)]
    pub(crate) fn enter_delegated(&self) -> Context {
        self.context.replace(Context::Delegated)
    }
    #[inline(always)]
    pub(crate) fn leave_delegated(&self, before: Context) {
        self.context.set(before);
    }

    /// Runs a callback.
    #[inline(always)]
    pub(crate) fn call_back<R>(&self, f: impl FnOnce() -> R) -> R {
        let before = self.context.replace(Context::Callback);
        let result = f();
        self.context.set(before);
        result
    }

    /// Runs a closure on a property of this trustee, at once (T7).
    ///
    /// # Safety
    /// The property is a live `Property<T>` of this trustee; the context is `Free`.
    #[inline(always)]
    pub(crate) unsafe fn run_here<T, U>(&self, property: *mut Header, f: impl FnOnce(&mut T) -> U) -> Result<U, Fault> {
        // SAFETY: the caller's promise.
        if unsafe { (*property).is_poisoned() } {
            return Err(Fault::Poisoned(self.poison_text(property)));
        }
        self.context.set(Context::Delegated);
        // SAFETY: live, and no other closure runs (D1: the context was `Free`).
        let outcome = catch_unwind(AssertUnwindSafe(|| f(unsafe { Property::<T>::value(property) })));
        self.context.set(Context::Free);
        let outcome = outcome.map_err(|payload| {
            self.poison(property, &*payload);
            Fault::Panicked(payload)
        });
        self.settle();
        outcome
    }

    /// Puts off a call on this very trustee until the running closure has returned.
    pub(crate) fn defer(&self, call: Box<dyn FnOnce(&Worker)>) {
        self.deferred.borrow_mut().push_back(call);
        self.aftermath.set(true);
    }

    /// Does what had to wait for the end of delegated context: deferred calls, burials.
    #[inline(always)]
    pub(crate) fn settle(&self) {
        if self.aftermath.get() && self.context.get() == Context::Free && !self.in_aftermath.get() {
            self.settle_slow();
        }
    }

    #[cold]
    fn settle_slow(&self) {
        self.in_aftermath.set(true);
        loop {
            while let Some(call) = { self.deferred.borrow_mut().pop_front() } {
                call(self);
            }
            if !self.estate.bury(self) && self.deferred.borrow().is_empty() {
                break;
            }
        }
        self.in_aftermath.set(false);
        self.aftermath.set(self.estate.has_dying());
    }

    /// Counts trusts of a property of this trustee.
    ///
    /// # Safety
    /// The property is live.
    pub(crate) unsafe fn count(&self, property: *mut Header, delta: i32) {
        // SAFETY: the caller's promise; this is the trustee's thread.
        unsafe { self.estate.count(property, delta) };
        if self.estate.has_dying() {
            self.aftermath.set(true);
        }
    }

    pub(crate) fn adopt(&self, property: *mut Header) {
        self.estate.adopt(property);
    }

    pub(crate) fn estate(&self) -> &Estate {
        &self.estate
    }

    #[cold]
    pub(crate) fn poison(&self, property: *mut Header, payload: &(dyn Any + Send)) {
        // SAFETY: a closure has just run on it.
        unsafe { (*property).set_poisoned(true) };
        self.poison.borrow_mut().insert(property, panic_text(payload));
    }
    #[cold]
    pub(crate) fn poison_text(&self, property: *mut Header) -> String {
        self.poison.borrow().get(&property).cloned().unwrap_or_default()
    }
    pub(crate) fn forget_poison(&self, property: *mut Header) {
        self.poison.borrow_mut().remove(&property);
    }
}

/// Requests to other trustees.
impl Worker {
    #[inline(always)]
    fn at(&self, index: usize) -> Option<&Outgoing> {
        // SAFETY: only this thread, and only for this look-up; entries are boxed, see the field.
        unsafe { &*self.outgoing.get() }.get(index)?.as_deref()
    }

    /// Sends a request. If there is no room and `may_wait`, the caller waits, else the request is queued.
    #[inline(always)]
    pub(crate) fn submit<C: Request, R: Response>(
        &self,
        trustee: TrusteeId,
        property: *mut Header,
        request: C,
        response: R,
        may_wait: bool,
    ) {
        let mut request = std::mem::ManuallyDrop::new(request);
        let mut response = std::mem::ManuallyDrop::new(response);
        loop {
            if let Some(outgoing) = self.at(trustee.index()).filter(|outgoing| outgoing.trustee == trustee) {
                // SAFETY: on true both were moved out; they are not used again.
                if unsafe { outgoing.try_push(property, &raw mut *request, &raw mut *response) } {
                    return;
                }
            }
            match self.find_room::<C, R>(trustee, may_wait) {
                Room::Made => {}
                Room::Full => {
                    let Some(outgoing) = self.at(trustee.index()) else { unreachable!("full, so it exists") };
                    let (request, response) = (
                        std::mem::ManuallyDrop::into_inner(request),
                        std::mem::ManuallyDrop::into_inner(response),
                    );
                    return outgoing.enqueue(property, request, response);
                }
                Room::Gone => {
                    drop(std::mem::ManuallyDrop::into_inner(request));
                    let response = std::mem::ManuallyDrop::into_inner(response);
                    let mut resuming = Resuming { responses: Reader::empty(), next: std::ptr::null_mut() };
                    // SAFETY: with a fault no response is read.
                    return self.call_back(|| unsafe { response.resume(&mut resuming, Some(Fault::Gone)) });
                }
            }
        }
    }

    /// Connects, moves on to the next slot, or waits.
    #[inline(never)]
    fn find_room<C, R>(&self, trustee: TrusteeId, may_wait: bool) -> Room {
        loop {
            let Some(outgoing) = self.at(trustee.index()).filter(|outgoing| outgoing.trustee == trustee) else {
                if self.connect(trustee) {
                    continue;
                }
                return Room::Gone;
            };
            if !outgoing.listed.replace(true) {
                self.active.borrow_mut().push(trustee.index());
            }
            match outgoing.make_room::<C, R>() {
                Room::Full if may_wait => self.wait_for_room(trustee),
                room => return room,
            }
        }
    }

    #[cold]
    fn wait_for_room(&self, trustee: TrusteeId) {
        let waits = || self.at(trustee.index()).filter(|outgoing| outgoing.trustee == trustee && outgoing.is_full());
        match self.fiber() {
            Some(fiber) => {
                if let Some(outgoing) = waits() {
                    outgoing.waiters.push(fiber);
                    self.scheduler.suspend();
                }
            }
            None => self.wait_until(|| waits().is_none()),
        }
    }

    /// Makes the pair for this trustee. False if the trustee is gone.
    #[cold]
    fn connect(&self, trustee: TrusteeId) -> bool {
        let Some(peer) = registry::find(trustee) else { return false };
        let pair = Pair::new();
        if peer.send(Message::Client(Arc::clone(&self.shared), Arc::clone(&pair))).is_err() {
            return false;
        }
        let index = trustee.index();
        // SAFETY: only this thread; no reference into the table is held across this call.
        let old = unsafe {
            let table = &mut *self.outgoing.get();
            if table.len() <= index {
                table.resize_with(index + 1, || None);
            }
            table[index].replace(Rc::new(Outgoing::new(peer, pair)))
        };
        if let Some(old) = old {
            self.retire(index, &old);
        }
        true
    }

    /// The trustee that had this index before is closed: whatever was meant for it fails.
    fn retire(&self, index: usize, old: &Outgoing) {
        if old.listed.get() {
            self.active.borrow_mut().retain(|&active| active != index);
        }
        while let Some(fiber) = old.waiters.pop() {
            self.scheduler.ready(fiber);
        }
        self.call_back(|| old.abandon_if_outstanding());
    }

    /// Leaves all trustees.
    pub(crate) fn leave(&self) {
        // SAFETY: as in `connect`.
        for outgoing in unsafe { std::mem::take(&mut *self.outgoing.get()) }.into_iter().flatten() {
            if outgoing.is_outstanding() {
                // The trustee may still write into its answers and these into fibers: keep all of it.
                std::mem::forget(outgoing);
            } else {
                outgoing.leave();
            }
        }
    }
}
