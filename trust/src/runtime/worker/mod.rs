//! A worker: the loop and state of one OS thread, which is client and trustee at once.
//!
//! The loop ([`Worker::turn`]) in a few lines: take responses, run the fibers that are ready (some of them, while
//! clients come), serve requests, send pending requests; with nothing to do, poll, give the core away or sleep
//! (`idle.rs`).
//!
//! Invariants:
//! - [closures-take-turns] Delegated closures of one trustee run one at a time: in a batch one behind the other, and
//!   one that is asked for while another runs is deferred until that one has returned.
//! - [no-suspension] Nothing suspends in delegated context or in a callback.
//! - [turn-on-root] `turn` runs on the root only, so it is never entered twice.

#![allow(unsafe_code)]

pub(crate) mod beside;
mod census;
pub(crate) mod current;
pub(crate) mod end;
mod here;
pub(crate) mod idle;
pub(crate) mod launches;
pub(crate) mod lines;
mod marks;
mod messages;
mod not_made;
mod pairs;
pub(crate) mod reclaim;
pub(crate) mod report;
mod submit;
mod wait;

use std::cell::{Cell, Ref, RefCell};
use std::collections::{HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::config::{GIVE_WAY_EVERY, SLOTS};
use crate::fiber::overflow::AltStack;
use crate::fiber::record::Whom;
use crate::fiber::timer::Timers;
use crate::fiber::{NotStarted, Origin, Scheduler};
use crate::ids::TrusteeId;
use crate::local::client::Outgoing;
use crate::local::trustee::Incoming;
use crate::park::outside::Outside;
use crate::property::Header;
use crate::property::reclaim::PropertyTable;
use crate::reactor::Reactor;
use crate::registry::{self, Shared};
use crate::remote::{PeerClient, Remote};
use crate::request::{Host, Pair};
use crate::runtime::worker::beside::Beside;
use crate::runtime::worker::census::Questions;
use crate::runtime::worker::idle::Idle;
use crate::runtime::worker::launches::Launches;
use crate::runtime::worker::marks::Marks;
use crate::runtime::worker::pairs::Pairs;
use crate::trace;
use crate::unwind::{give_up, quietly};

pub(crate) use self::current::{existing, try_with, with};
pub(crate) use here::poisoned;
pub(crate) use not_made::NotMade;

/// Settings of a worker at its start.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) stack_bytes: usize,
    pub(crate) spin_ns: u64,
}

impl Default for Settings {
    /// Settings of threads that no pool has started.
    fn default() -> Self {
        // Under a quota no worker polls (`settings.rs`).
        let spin_ns = if crate::cores::Cores::here().quota.is_some() { 0 } else { crate::config::SPIN_NS };
        Settings { stack_bytes: crate::config::STACK_BYTES, spin_ns }
    }
}

/// Kind of code that runs on the thread now.
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

/// Fibers that run, for each client, before clients are looked at again. Small, because fibers often wait for answers
/// that would give the clients, and then this worker, work to do. Not smaller, because a look costs a switch, and time
/// for each client.
const FIBERS_PER_CLIENT: usize = 16;
/// Turns that the fiber limit stays on after serving a client.
const CLIENTS_LAST_TURNS: u8 = 16;

/// A call that waits for the running closure to return.
pub(crate) type Deferred = Box<dyn FnOnce()>;

/// Guard of the loop. Nothing in it unwinds; if something did, clients of this worker would wait for ever.
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
// The fields of each local call come first, in one line of the cache: calls at many seats touch that of each.
#[repr(C, align(64))]
pub(crate) struct Worker {
    pub(crate) id: TrusteeId,
    /// The trustee whose properties may be touched directly: `id` until the end drops them, then `NOBODY`.
    pub(crate) home: Cell<TrusteeId>,
    pub(crate) shared: Arc<Shared>,
    /// Calls on this very trustee before the one that looks whether others wait; below 0 while that is put off.
    calls_left: Cell<i64>,
    /// Of a seat, calls of its runner's fibers before the one that looks whether others wait; below 0 while that is put
    /// off. Also counts these calls (`Beside::counted_at`), which saves a store to another line.
    calls_left_beside: Cell<i64>,
    pub(crate) context: Cell<Context>,
    marks: Marks,
    in_aftermath: Cell<bool>,
    /// The loop is on the stack; of a seat, the fibers of its runner may call it.
    in_turn: Cell<bool>,
    /// Seats that its thread runs beside it.
    pub(crate) beside: Beside,
    pub(crate) scheduler: Scheduler,
    timers: Timers,
    pub(crate) reactor: Reactor,
    pub(crate) launches: Launches,
    pub(crate) idle: Idle,
    pub(crate) remote: Remote,
    questions: Questions,
    pub(crate) outside: Outside,
    pub(crate) pairs: Pairs,
    /// Turns since it last served a client on this machine, up to a limit; `u8::MAX` if never.
    served_turns_ago: Cell<u8>,
    /// Fibers have run since the thread's own code did.
    fibers_ran: Cell<bool>,
    /// Fibers that wait, in a trace.
    suspended: RefCell<trace::Suspended>,
    incoming: RefCell<Vec<Rc<Incoming>>>,
    property_table: PropertyTable<Incoming, PeerClient>,
    poison: RefCell<HashMap<*mut Header, String>>,
    /// Non-blocking calls to this very trustee from delegated context or callbacks.
    deferred: RefCell<VecDeque<Deferred>>,
    /// Runs the destructor of a value of before the loss of a machine, of which another trust may be alive.
    pub(crate) drops_old: Cell<bool>,
    /// Runs the other workers of the thread while this one waits in its end.
    meanwhile: RefCell<Option<Rc<dyn Fn()>>>,
    /// It has had a property whose value is not known to be `Send`.
    has_bound_values: Cell<bool>,
    /// The pointer that it was made with, which frees it; null before.
    made: Cell<*mut Worker>,
    _alt_stack: AltStack,
}

impl Worker {
    pub(crate) fn new(settings: Settings, alt_stack: AltStack) -> Result<Self, NotMade> {
        let scheduler = Scheduler::new(settings.stack_bytes)?;
        let shared = registry::register()?;
        let _ = shared.stacks.set(scheduler.footprint()); // fresh: not set before
        Ok(Worker {
            id: shared.id,
            home: Cell::new(shared.id),
            shared,
            calls_left: Cell::new(GIVE_WAY_EVERY - 1),
            calls_left_beside: Cell::default(),
            context: Cell::new(Context::Free),
            marks: Marks::default(),
            in_aftermath: Cell::new(false),
            in_turn: Cell::new(false),
            beside: Beside::default(),
            scheduler,
            timers: Timers::default(),
            reactor: Reactor::default(),
            launches: Launches::default(),
            idle: Idle::new(settings.spin_ns),
            remote: Remote::default(),
            questions: Questions::default(),
            outside: Outside::default(),
            pairs: Pairs::default(),
            served_turns_ago: Cell::new(u8::MAX),
            fibers_ran: Cell::new(false),
            suspended: RefCell::default(),
            incoming: RefCell::default(),
            property_table: PropertyTable::default(),
            poison: RefCell::default(),
            deferred: RefCell::default(),
            drops_old: Cell::new(false),
            meanwhile: RefCell::default(),
            has_bound_values: Cell::new(false),
            made: Cell::new(ptr::null_mut()),
            _alt_stack: alt_stack,
        })
    }

    /// Runs one turn of the loop. True if there was any work.
    pub(crate) fn turn(&self) -> bool {
        // Without tracing, its cost is this one branch a turn.
        if trace::is_on() { self.turn_traced() } else { self.turn_as::<false>() }
    }

    #[cold]
    #[inline(never)]
    fn turn_traced(&self) -> bool {
        self.turn_as::<true>()
    }

    #[inline(always)]
    fn turn_as<const TRACED: bool>(&self) -> bool {
        let looping = Looping(self);
        self.in_turn.set(true);
        let mut busy = self.collect_as::<TRACED>();
        if self.remote.is_attached() {
            let mut ready = if TRACED { self.scheduler.ready_count() } else { 0 };
            busy |= self.remote.collect_each(self, |trustee| self.answered::<TRACED>(&mut ready, trustee));
        }
        // Requests of callbacks to this trustee come before those of fibers from here on.
        self.settle();
        if self.timers.fire(&self.scheduler) {
            busy = true;
            self.idle.timer_fired();
            self.begin_if_due();
        }
        let start = TRACED.then(Instant::now);
        if self.run_fibers::<TRACED>() {
            busy = true;
            self.fibers_ran.set(true);
            let switches = self.scheduler.take_switches();
            self.shared.counters.fiber_switches.add(switches);
            self.idle.fibers_ran(switches);
            if let Some(start) = start {
                self.shared.trace.activity.note(trace::Kind::Fibers, start, switches);
            }
        }
        if self.serve_as::<TRACED>() {
            busy = true;
            self.served_turns_ago.set(0);
        }
        busy |= self.read_messages();
        if self.remote.is_attached() {
            busy |= self.traced::<TRACED>(|| self.remote.serve(self));
        }
        if self.reactor.is_active() {
            busy |= self.reactor.turn(&self.scheduler, self.idle.gives_way());
        }
        self.settle();
        self.flush();
        self.in_turn.set(false);
        std::mem::forget(looping);
        busy
    }

    /// Number of fibers that may run before clients get their turn.
    fn fibers_of_turn(&self) -> usize {
        let turns = self.served_turns_ago.get();
        if turns >= CLIENTS_LAST_TURNS {
            return usize::MAX;
        }
        self.served_turns_ago.set(turns + 1);
        FIBERS_PER_CLIENT * self.incoming.borrow().len().max(1)
    }

    /// Does the thread's own code run, with no loop below it that would send pending requests?
    #[inline(always)]
    pub(crate) fn is_outside_loop(&self) -> bool {
        self.scheduler.current().is_none() && !self.in_turn.get()
    }

    /// May the worker be ended now? Not in the middle of a closure, a fiber or a turn, as when the process exits from
    /// there.
    pub(crate) fn may_end(&self) -> bool {
        self.context.get() == Context::Free && self.is_outside_loop() && !self.in_aftermath.get()
    }

    #[inline(always)]
    fn run_fibers<const TRACED: bool>(&self) -> bool {
        let at_most = self.fibers_of_turn();
        if !TRACED {
            return self.scheduler.run_ready(at_most);
        }
        self.suspended.borrow_mut().begin(trace::session());
        self.scheduler.run_ready_traced(at_most, |fiber, waits| self.suspended.borrow_mut().note(fiber, waits))
    }

    /// Traces the waits that this trustee's answers have ended: those of the fibers that have become ready since there
    /// were so many.
    #[inline(always)]
    fn answered<const TRACED: bool>(&self, ready: &mut usize, trustee: TrusteeId) {
        if !TRACED {
            return;
        }
        for fiber in self.scheduler.ready_ids(*ready) {
            if let Some(start) = self.suspended.borrow_mut().take(fiber) {
                self.shared.trace.waits.note_wait(start, fiber, trustee);
            }
        }
        *ready = self.scheduler.ready_count();
    }

    /// Takes the responses that have come.
    fn collect(&self) -> bool {
        self.collect_as::<false>()
    }

    #[inline(always)]
    fn collect_as<const TRACED: bool>(&self) -> bool {
        let mut ready = if TRACED { self.scheduler.ready_count() } else { 0 };
        let mut any = false;
        let mut place = 0;
        loop {
            let Some(outgoing) = self.pairs.active(place) else {
                return any;
            };
            if self.call_back(|| outgoing.collect()) {
                any = true;
                self.mark_busy();
                self.scheduler.resume_all(&outgoing.waiters);
                self.answered::<TRACED>(&mut ready, outgoing.trustee);
            }
            if outgoing.is_outstanding() {
                place += 1;
            } else {
                self.pairs.unlist(&outgoing, place);
            }
        }
    }

    /// Takes the responses that have come since the turn.
    pub(crate) fn collect_again(&self) -> bool {
        if trace::is_on() { self.collect_as::<true>() } else { self.collect() }
    }

    /// Serves the batches that have come, and wakes their clients.
    pub(crate) fn serve(&self) -> bool {
        self.serve_as::<false>()
    }

    fn serve_as<const TRACED: bool>(&self) -> bool {
        let mut any = false;
        let mut place = 0;
        loop {
            let Some(incoming) = self.incoming.borrow().get(place).map(Rc::clone) else {
                return any;
            };
            // No more than a ring of batches: the fibers of this worker want their turn too.
            let serve = || (0..SLOTS).take_while(|_| incoming.serve(self)).count() > 0;
            any |= self.traced::<TRACED>(|| incoming.client.parker.publish_if(serve).is_some());
            place += 1;
        }
    }

    /// Serves, and traces the number of requests and the time.
    #[inline(always)]
    fn traced<const TRACED: bool>(&self, serve: impl FnOnce() -> bool) -> bool {
        if !TRACED {
            return serve();
        }
        let served = &self.shared.counters.requests_served;
        let (start, before) = (Instant::now(), served.get());
        let any = serve();
        if any {
            self.shared.trace.activity.note(trace::Kind::Batch, start, served.get().wrapping_sub(before));
        }
        any
    }

    /// Takes responses and sends, without serving or running fibers: for the end.
    pub(crate) fn exchange(&self) -> bool {
        let any = self.collect() | self.remote.collect(self);
        self.flush();
        any
    }

    /// Sends pending requests.
    fn flush(&self) {
        self.pairs.flush();
        if self.remote.is_attached() {
            self.remote.flush(self);
        }
    }

    pub(crate) fn accept(&self, client: Arc<Shared>, pair: Arc<Pair>) {
        self.incoming.borrow_mut().push(Rc::new(Incoming::new(client, pair)));
    }

    fn forget_clients(&self) {
        self.incoming.borrow_mut().retain(|incoming| {
            let has_left = incoming.has_left();
            if has_left {
                end::settle_owed(incoming.pair());
            }
            !has_left
        });
    }

    pub(crate) fn incoming(&self) -> Ref<'_, Vec<Rc<Incoming>>> {
        self.incoming.borrow()
    }

    /// Is there work for a turn? For the check before sleep.
    pub(crate) fn has_work(&self) -> bool {
        self.shared.has_messages()
            || self.scheduler.has_ready()
            || self.incoming.borrow().iter().any(|incoming| incoming.has_batch())
            || self.pairs.any_active(Outgoing::has_responses)
            || self.remote.has_work()
    }

    /// Is all of this worker's own work done?
    pub(crate) fn is_idle(&self) -> bool {
        self.scheduler.live() == 0
            && !self.pairs.any_active(|_| true)
            && self.launches.awaited() == 0
            && !self.remote.is_outstanding()
            && !self.shared.has_messages()
    }

    /// Has it served a client on this machine in its last turn?
    pub(crate) fn has_just_served(&self) -> bool {
        self.served_turns_ago.get() == 0
    }

    /// Notes that its thread has served a client, of another worker that it runs.
    pub(crate) fn note_served(&self) {
        self.served_turns_ago.set(0);
    }

    pub(crate) fn has_bound_values(&self) -> bool {
        self.has_bound_values.get()
    }

    /// May code of users that is not `Send` still run for a request or a result?
    pub(crate) fn has_callbacks(&self) -> bool {
        self.pairs.any_active(|_| true)
            || self.launches.has_callbacks()
            || !self.deferred.borrow().is_empty()
            || self.timers.next_in().is_some()
    }

    /// Is a request outstanding at one of these trustees?
    pub(crate) fn is_outstanding_at(&self, at: impl Fn(TrusteeId) -> bool) -> bool {
        self.pairs.any_active(|outgoing| at(outgoing.trustee) && outgoing.is_outstanding())
    }

    /// Returns whether requests of this thread must be completed before its end.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.is_sending() || self.launches.awaited() > 0
    }

    /// Returns whether requests are not sent, or not answered while a waiter needs the answer.
    pub(crate) fn is_sending(&self) -> bool {
        self.pairs.any_active(Outgoing::must_be_seen_through) || self.remote.is_outstanding()
    }

    /// Returns whether there is work of its own that the loop would advance.
    pub(crate) fn has_own_work(&self) -> bool {
        self.is_awaiting() || self.scheduler.live() > 0 || self.shared.has_messages()
    }

    pub(crate) fn start_fiber(&self, run: Box<dyn FnOnce()>, name: Option<Box<str>>, origin: Origin, whom: Whom) {
        self.shared.counters.fibers_spawned.add(1);
        if let Err(NotStarted { error, run }) = self.scheduler.spawn(run, name, origin, whom) {
            crate::unwind::tell(format_args!("a fiber was not started: {error}"));
            self.drop_unrun(run);
        }
    }

    /// Drops a call that will not run. Its captures are the user's: nothing in their destructors may wait here, and a
    /// panic ends here.
    #[cold]
    #[inline(never)]
    pub(crate) fn drop_unrun<F>(&self, run: F) {
        let mut run = ManuallyDrop::new(run);
        // By its address: moved from closure to closure, large captures would take several times their size of a
        // fiber's stack.
        let at: *mut F = &raw mut *run;
        // SAFETY: it is dropped here, once.
        self.delegated(|| quietly(|| unsafe { at.drop_in_place() }));
    }

    /// Leaves the loop for the thread's own code. Its fibers may have borrowed thread-locals that go before the worker
    /// does.
    #[inline]
    pub(crate) fn leave_loop(&self) {
        if self.scheduler.begun() > 0 && self.fibers_ran.replace(false) {
            crate::runtime::worker::current::watch_end(self);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn clients_get_their_turn_between_fibers() {
        // In a thread of its own, which has no clients yet.
        let thread = std::thread::spawn(|| {
            thread_local!(static RAN: Cell<usize> = const { Cell::new(0) });
            thread_local!(static STOP: Cell<bool> = const { Cell::new(false) });
            let turn = || {
                RAN.set(0);
                crate::runtime::worker::with(Worker::turn);
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
            // For each client its call, and the end of its trust.
            let start = Instant::now();
            while crate::runtime::worker::with(|worker| worker.shared.counters.requests_served.get()) < 4 {
                turn();
                assert!(start.elapsed() < limits::HANG, "the clients do not come");
            }
            clients.into_iter().for_each(|client| client.join().expect("it was answered"));
            let pairs = crate::runtime::worker::with(|worker| {
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
            // No program does that: the loop finds its list of clients borrowed.
            drop(pool.spawn(|| {
                let worker: &'static Worker = crate::runtime::worker::with(|worker| {
                    // SAFETY: the worker lives as long as the process, which it is about to end.
                    unsafe { &*std::ptr::from_ref(worker) }
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
