//! A worker: the loop of one OS thread, which is client and trustee at once, and what it knows.
//!
//! The loop ([`Worker::turn`]) in a few lines: take responses, run the fibers that are ready (some of them, while
//! clients come), serve requests, send what is pending; with nothing to do, poll, give the core away or sleep (`idle.rs`).
//!
//! Invariants: (D1) delegated closures of one trustee run one at a time: in a batch one behind the other, and
//! one that is asked for while another runs is deferred until that one has returned; (D2) nothing suspends in
//! delegated context or in a callback; (D3) `turn` runs on the root only, so it is never entered twice.

#![allow(unsafe_code)]

use std::cell::{Cell, Ref, RefCell, UnsafeCell};
use std::collections::{HashMap, VecDeque};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use crate::client::Outgoing;
use crate::config::SLOTS;
use crate::count::Estate;
use crate::far::Far;
use crate::ffi::Outside;
use crate::fiber::overflow::AltStack;
use crate::fiber::stack::StackError;
use crate::fiber::{FiberQueue, FiberRef, NotMade, Origin, Scheduler};
use crate::idle::Idle;
use crate::launch::Launches;
use crate::occupancy;
use crate::property::Header;
use crate::reactor::Reactor;
use crate::registry::{self, Message, Shared, TrusteeId};
use crate::slot::Pair;
use crate::timer::Timers;
use crate::trustee::Incoming;
use crate::unwind::{give_up, quietly};

pub(crate) use crate::local::{existing, try_with, with};

/// What a worker is told at its start.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) stack_bytes: usize,
    pub(crate) spin_ns: u64,
}

impl Default for Settings {
    /// Those of threads that no pool has started.
    fn default() -> Self {
        // Under a quota nobody polls (`settings.rs`).
        let spin_ns = if crate::settings::Cores::here().quota.is_some() { 0 } else { crate::config::SPIN_NS };
        Settings { stack_bytes: crate::config::STACK_BYTES, spin_ns }
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
    /// An argument or result is written or read.
    Serialising,
    /// The process exits from the middle of a fiber or a turn: destructors of thread-locals run above it.
    Exiting,
}

/// How many fibers run, for each client, before clients are looked at again. Few: what they wait for is often what
/// would give them, and then this worker, work to do. Not fewer: to look costs a switch, and time for each client.
const FIBERS_PER_CLIENT: usize = 16;
/// For so many turns after one that served a client.
const CLIENTS_LAST_TURNS: u8 = 16;

/// A call that waits for the running closure to return.
pub(crate) type Deferred = Box<dyn FnOnce(&Worker)>;

/// The loop is under way. Nothing in it unwinds; if something does, those who ask this worker would wait for ever.
struct Looping<'a>(&'a Worker);

impl Drop for Looping<'_> {
    fn drop(&mut self) {
        let thread = crate::unwind::thread_name();
        give_up(format_args!(
            "a panic has left the loop of {:?}, on the thread {thread}: please report this",
            self.0.id
        ));
    }
}

/// The worker of one thread.
pub(crate) struct Worker {
    pub(crate) id: TrusteeId,
    /// The trustee whose properties may be touched directly: `id` until the end drops them, then nobody's.
    pub(crate) home: Cell<TrusteeId>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) scheduler: Scheduler,
    pub(crate) timers: Timers,
    pub(crate) reactor: Reactor,
    pub(crate) launches: Launches,
    pub(crate) idle: Idle,
    pub(crate) far: Far,
    pub(crate) outside: Outside,
    pub(crate) context: Cell<Context>,
    /// By index of the trustee. Whoever lets user code run while it holds an entry clones the `Rc`, for that
    /// code may connect to a new trustee of the same index.
    pub(crate) outgoing: UnsafeCell<Vec<Option<Rc<Outgoing>>>>,
    /// The one entry of that table and whose it is, if there is one alone: see `Worker::pair`.
    pub(crate) only: Cell<(TrusteeId, *const Outgoing)>,
    /// The pairs with something outstanding.
    pub(crate) active: RefCell<Vec<Rc<Outgoing>>>,
    /// How many turns ago it last served a client on this machine, as far as that matters; `u8::MAX` if never.
    served_turns_ago: Cell<u8>,
    /// The loop is on the stack.
    pub(crate) in_turn: Cell<bool>,
    /// Fibers have run since the thread's own code did.
    fibers_ran: Cell<bool>,
    pub(crate) incoming: RefCell<Vec<Rc<Incoming>>>,
    pub(crate) estate: Estate,
    pub(crate) poison: RefCell<HashMap<*mut Header, String>>,
    /// Non-blocking calls to this very trustee from delegated context or callbacks.
    pub(crate) deferred: RefCell<VecDeque<Deferred>>,
    /// There may be something deferred or dying.
    pub(crate) aftermath: Cell<bool>,
    pub(crate) in_aftermath: Cell<bool>,
    pub(crate) _alt_stack: AltStack,
}

impl Worker {
    pub(crate) fn new(settings: Settings, alt_stack: AltStack) -> Result<Self, StackError> {
        let scheduler = Scheduler::new(settings.stack_bytes)?;
        let shared = registry::register();
        Ok(Worker {
            id: shared.id,
            home: Cell::new(shared.id),
            shared,
            scheduler,
            timers: Timers::default(),
            reactor: Reactor::default(),
            launches: Launches::default(),
            idle: Idle::new(settings.spin_ns),
            far: Far::default(),
            outside: Outside::default(),
            context: Cell::new(Context::Free),
            outgoing: UnsafeCell::default(),
            only: Cell::new((TrusteeId::NOBODY, ptr::null())),
            active: RefCell::default(),
            served_turns_ago: Cell::new(u8::MAX),
            in_turn: Cell::new(false),
            fibers_ran: Cell::new(false),
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
        let looping = Looping(self);
        self.in_turn.set(true);
        let mut busy = self.collect();
        if self.far.is_attached() {
            busy |= self.far.collect(self);
        }
        // What callbacks have asked of this trustee comes before what fibers ask of it from here on.
        self.settle();
        if self.timers.fire(self) {
            busy = true;
            self.idle.timer_fired();
        }
        if self.scheduler.run_ready(self.fibers_of_turn()) {
            busy = true;
            self.fibers_ran.set(true);
            self.shared.counters.fiber_switches.add(self.scheduler.take_switches());
        }
        if self.serve() {
            busy = true;
            self.served_turns_ago.set(0);
        }
        busy |= self.read_mail();
        if self.far.is_attached() {
            busy |= self.far.serve(self);
        }
        if self.reactor.is_active() {
            busy |= self.reactor.turn(self);
        }
        self.settle();
        self.flush();
        self.in_turn.set(false);
        std::mem::forget(looping);
        busy
    }

    /// How many fibers may run before clients get their turn.
    fn fibers_of_turn(&self) -> usize {
        let turns = self.served_turns_ago.get();
        if turns >= CLIENTS_LAST_TURNS {
            return usize::MAX;
        }
        self.served_turns_ago.set(turns + 1);
        FIBERS_PER_CLIENT * self.incoming.borrow().len().max(1)
    }

    /// Does the thread's own code run, with nobody below it who will send what is pending?
    #[inline(always)]
    pub(crate) fn is_outside_loop(&self) -> bool {
        self.scheduler.current().is_none() && !self.in_turn.get()
    }

    /// May the worker be ended now? Not in the middle of a closure, a fiber or a turn, as when the process exits
    /// from there.
    pub(crate) fn may_end(&self) -> bool {
        self.context.get() == Context::Free && self.is_outside_loop() && !self.in_aftermath.get()
    }

    /// Takes the responses that have come.
    fn collect(&self) -> bool {
        let mut any = false;
        let mut place = 0;
        loop {
            let Some(outgoing) = self.active.borrow().get(place).map(Rc::clone) else {
                return any;
            };
            if self.call_back(|| outgoing.collect()) {
                any = true;
                self.mark_busy();
                self.resume_all(&outgoing.waiters);
            }
            if outgoing.is_outstanding() {
                place += 1;
            } else {
                outgoing.listed.set(false);
                let mut active = self.active.borrow_mut();
                if active.get(place).is_some_and(|at| Rc::ptr_eq(at, &outgoing)) {
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
            let Some(incoming) = self.incoming.borrow().get(place).map(Rc::clone) else {
                return any;
            };
            // No more than a ring of batches: the fibers of this worker want their turn too.
            let serve = || (0..SLOTS).take_while(|_| incoming.serve(self)).count() > 0;
            any |= incoming.client.parker.publish_if(serve).is_some();
            place += 1;
        }
    }

    /// Takes responses and sends, without serving or running fibers: for the end.
    pub(crate) fn exchange(&self) -> bool {
        let any = self.collect() | self.far.collect(self);
        self.flush();
        any
    }

    /// Sends what is pending.
    fn flush(&self) {
        for outgoing in &*self.active.borrow() {
            outgoing.flush();
        }
        if self.far.is_attached() {
            self.far.flush(self);
        }
    }

    /// Handles what came by the inbox.
    pub(crate) fn read_mail(&self) -> bool {
        if !self.shared.has_mail() {
            return false;
        }
        self.mark_busy();
        self.handle_all(self.shared.take_mail());
        self.forget_clients();
        true
    }

    /// Handles messages. Nothing is buried meanwhile: those that are still to come may count a trust (`count.rs`).
    pub(crate) fn handle_all(&self, messages: VecDeque<Message>) {
        let before = self.in_aftermath.replace(true);
        for message in messages {
            self.handle(message);
        }
        self.in_aftermath.set(before);
    }

    fn handle(&self, message: Message) {
        match message {
            Message::Client(client, pair) => self.accept(client, pair),
            Message::Ready(fiber) => self.scheduler.ready(fiber),
            Message::Spawn(entry) => self.start_fiber(entry.run, None, entry.origin),
            // SAFETY: the trust that this is about keeps the property until its count says otherwise (C1).
            Message::Count(property, delta) => unsafe { self.count(property.0, delta) },
            Message::Adopt(property) => self.adopt_from_afar(property.0),
            Message::Forward => crate::far::forward_counts(self),
            Message::Ask(property, call) => {
                if let Some(property) = property {
                    // SAFETY: as for `Count`: whoever sent this had a trust of it.
                    unsafe { self.count(property.0, 1) };
                }
                self.defer(call);
            }
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
            || self.active.borrow().iter().any(|outgoing| outgoing.has_news())
            || self.far.has_work()
    }

    /// Is anything of this worker's own making unfinished?
    pub(crate) fn is_idle(&self) -> bool {
        self.scheduler.live() == 0
            && self.active.borrow().is_empty()
            && self.launches.awaited() == 0
            && !self.far.is_outstanding()
            && !self.shared.has_mail()
    }

    /// Is something outstanding at one of these trustees?
    pub(crate) fn is_outstanding_at(&self, at: impl Fn(TrusteeId) -> bool) -> bool {
        self.active.borrow().iter().any(|outgoing| at(outgoing.trustee) && outgoing.is_outstanding())
    }

    /// For the end: is there something that this thread has asked of others and must see through?
    pub(crate) fn is_awaiting(&self) -> bool {
        self.is_sending() || self.launches.awaited() > 0
    }

    /// For the end: is there something that is not sent, or not answered where somebody waits for it?
    pub(crate) fn is_sending(&self) -> bool {
        self.active.borrow().iter().any(|outgoing| outgoing.must_be_seen_through()) || self.far.is_outstanding()
    }

    /// For the end: is there something of its own that the loop would bring forward?
    pub(crate) fn has_own_work(&self) -> bool {
        self.is_awaiting() || self.scheduler.live() > 0 || self.shared.has_mail()
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
            self.outside.leave(self);
            while !done() {
                if self.turn() { self.idle.reset() } else { self.idle.rest(self) }
            }
            self.idle.reset();
            occupancy::leave(self.id.index());
            self.leave_loop();
            self.outside.enter(self);
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

    /// Lets all that wait in a queue go on.
    #[inline(always)]
    pub(crate) fn resume_all(&self, queue: &FiberQueue) {
        while let Some(fiber) = queue.pop() {
            self.scheduler.ready(fiber);
        }
    }

    pub(crate) fn start_fiber(&self, run: Box<dyn FnOnce()>, name: Option<Box<str>>, origin: Origin) {
        self.shared.counters.fibers_spawned.add(1);
        if let Err(NotMade { error, run }) = self.scheduler.spawn(run, name, origin) {
            crate::unwind::tell(format_args!("a fiber was not started: {error}"));
            self.drop_unrun(run);
        }
    }

    /// Drops what will not run. Its captures are the user's: nothing in their destructors may wait here, and a panic ends here.
    pub(crate) fn drop_unrun<F>(&self, run: F) {
        let before = self.enter_delegated();
        quietly(|| drop(run));
        self.leave_delegated(before);
    }

    /// The thread's own code goes on. Its fibers may have come by thread-locals that go before the worker does.
    #[inline]
    pub(crate) fn leave_loop(&self) {
        if self.scheduler.begun() > 0 && self.fibers_ran.replace(false) {
            crate::local::watch_end(self);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn clients_get_their_turn_between_fibers() {
        // In a thread of its own, which has no clients yet.
        let thread = std::thread::spawn(|| {
            thread_local!(static RAN: Cell<usize> = const { Cell::new(0) });
            thread_local!(static STOP: Cell<bool> = const { Cell::new(false) });
            let turn = || {
                RAN.set(0);
                crate::worker::with(Worker::turn);
                RAN.get()
            };
            let started = (0..200).map(|_| {
                crate::spawn(|| {
                    while !STOP.get() {
                        RAN.set(RAN.get() + 1);
                        crate::yield_now();
                    }
                })
            });
            let handles: Vec<_> = started.collect();
            assert_eq!(turn(), 200, "all that are ready, where nobody is served");
            let here = crate::local_trustee().entrust(0);
            let remote = |trust: crate::Trust<u32>| std::thread::spawn(move || trust.apply(|calls| *calls += 1));
            let clients: Vec<_> = (0..2).map(|_| remote(here.clone())).collect();
            // Of each client its call, and that its trust has gone.
            let start = Instant::now();
            while crate::worker::with(|worker| worker.shared.counters.requests_served.get()) < 4 {
                turn();
                assert!(start.elapsed() < Duration::from_secs(60), "the clients do not come");
            }
            clients.into_iter().for_each(|client| client.join().expect("it was answered"));
            let pairs = crate::worker::with(|worker| {
                worker.served_turns_ago.set(0);
                worker.incoming.borrow().len().max(1)
            });
            let later: Vec<usize> = std::iter::repeat_with(turn).take(1000).take_while(|&ran| ran < 200).collect();
            assert_eq!(later, [FIBERS_PER_CLIENT * pairs; CLIENTS_LAST_TURNS as usize]);
            STOP.set(true);
            handles.into_iter().for_each(|handle| handle.join().expect("it does not panic"));
            assert_eq!(here.apply(|calls| *calls), 2);
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
    #[test]
    fn trap_07_a_loop_that_unwinds_ends_the_process_and_says_whose_it_was() {
        const SELF: &str =
            concat!(module_path!(), "::trap_07_a_loop_that_unwinds_ends_the_process_and_says_whose_it_was");
        let output = crate::fiber::stack::child::in_child(SELF, || {
            let pool = crate::Threadpool::builder().workers(1).pin(false).name("unlucky").build();
            // Nothing does that: the loop finds its list of clients borrowed.
            drop(pool.spawn(|| {
                let worker: &'static Worker = crate::worker::with(|worker| {
                    // SAFETY: the worker lives as long as the process, which it is about to end.
                    unsafe { &*ptr::from_ref(worker) }
                });
                std::mem::forget(worker.incoming.borrow_mut());
            }));
            std::mem::forget(pool);
            std::thread::sleep(Duration::from_secs(20));
        });
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(libc::SIGABRT), "{said}");
        assert!(said.contains("left the loop of m0w0, on the thread `unlucky-0`"), "{said}");
    }
}
