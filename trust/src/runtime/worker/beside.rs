//! Requests of a runner's own fibers to the seats that it runs: at once, without slots.
//!
//! As on a worker's own trustee, a closure that is asked for in free context runs before the call returns, in the
//! fiber that asks. Other requests take slots: those of callbacks and closures, and all kinds that have an order of
//! their own at the trustee ([`Request::RUNS_AT_ONCE`]).
//!
//! A pair has an order, so a request must not run before earlier ones that lie in slots. While none does, the pair is
//! *at rest*: it is here, and out of the runner's table of pairs. So a worker without seats pays nothing, as its
//! requests find their pairs in the table, and those of a runner that find none look here. The first request that
//! needs slots puts the pair into the table; the runner takes it out again at a turn's end, after all answers.
//!
//! A closure does not run while the seat is in a turn of its own, or in another closure: both run with the seat as the
//! worker of the thread, so that no request of theirs is one of the runner's. Nor does a seat move meanwhile: a closure
//! does not suspend, and seats move at a turn's end of the runner.
//!
//! A seat counts as in a turn whenever its runner does nothing for it (`Worker::run_for_runner`), so that requests of
//! closures wait for its next turn, which follows.

#![allow(unsafe_code)]

use std::any::Any;
use std::array;
use std::cell::{Cell, OnceCell, RefCell, UnsafeCell};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};
use std::rc::Rc;

use crate::config::GIVE_WAY_EVERY;
use crate::ids::TrusteeId;
use crate::local::client::Outgoing;
use crate::local::trustee::serve_one;
use crate::property::{Header, Property};
use crate::request::{Fault, Host, Request, Response, Resuming};
use crate::runtime::worker::{Context, Worker, current};
use crate::slot::{Body, Reader};
use crate::unwind::quietly;

/// Times that it may find nothing to give way to, before it gives way all the same: timers, moves, and clients of seats
/// that it has not asked wait for a turn.
const GIVE_WAY_AT_LEAST: u64 = 16;

/// The seats of a runner, as its own fibers reach them.
#[derive(Default)]
pub(crate) struct Beside {
    /// Those whose requests run at once.
    at_rest: AtRest,
    /// By index of the trustee.
    seats: RefCell<Vec<Option<Reached>>>,
    /// Number of seats whose pair is not at rest.
    asked: Cell<usize>,
    /// Looks so far.
    looks: Cell<u64>,
    /// It is a seat itself.
    is_seat: Cell<bool>,
    /// Of a seat, `Worker::calls_left_beside` when its calls were counted last.
    counted_at: Cell<i64>,
    /// Does the runner have something to do at its turn's end?
    has_moves: OnceCell<Box<dyn Fn() -> bool>>,
}

struct Reached {
    trustee: TrusteeId,
    worker: NonNull<Worker>,
    way: Way,
}

impl Reached {
    fn has_work(&self) -> bool {
        // SAFETY: this thread runs it, and nothing changes it meanwhile.
        let seat = unsafe { self.worker.as_ref() };
        seat.has_work() || seat.has_callbacks()
    }
}

/// A seat whose requests run at once now.
#[derive(Clone, Copy)]
pub(crate) struct AtOnce(NonNull<Worker>);

enum Way {
    /// At once. The pair with it, if there is one.
    AtRest(Option<Rc<Outgoing>>),
    /// By slots, as with any other trustee.
    Slots,
}

/// Seats that are found without a look at the table: as many as a tuned pool has without `trustees(n)`.
const NEAR: usize = 16;

/// The seats at rest, for each call looks here.
struct AtRest {
    /// Those that were found last, by index of the trustee modulo [`NEAR`]; else [`NOWHERE`].
    near: [Cell<Place>; NEAR],
    /// By index of the trustee; [`NOWHERE`] where no seat at rest has the index.
    table: UnsafeCell<Vec<Place>>,
}

/// Points to the id of a seat, its first field; may be used for the whole seat.
#[derive(Clone, Copy)]
struct Place(NonNull<TrusteeId>);

const _: () = assert!(std::mem::offset_of!(Worker, id) == 0);

/// Id of no seat.
static NOWHERE: TrusteeId = TrusteeId::NOBODY;

impl Place {
    fn nowhere() -> Place {
        Place(NonNull::from(&NOWHERE))
    }

    #[inline(always)]
    fn seat(self, trustee: TrusteeId) -> Option<AtOnce> {
        // SAFETY: it is `NOWHERE`, whose id no request has, or a seat that this thread runs: `stir` takes it out before
        // the seat leaves [seat-settled].
        (unsafe { self.0.read() } == trustee).then(|| AtOnce(self.0.cast()))
    }
}

impl Default for AtRest {
    fn default() -> Self {
        AtRest { near: array::from_fn(|_| Cell::new(Place::nowhere())), table: UnsafeCell::default() }
    }
}

impl AtRest {
    #[inline(always)]
    fn find(&self, trustee: TrusteeId) -> Option<AtOnce> {
        // SAFETY: only the thread that has the worker, and only for this look-up.
        let table = unsafe { &*self.table.get() };
        if table.is_empty() {
            return None; // as for all workers without seats
        }
        self.near[trustee.index() % NEAR].get().seat(trustee).or_else(|| self.find_afar(trustee))
    }

    #[cold]
    #[inline(never)]
    fn find_afar(&self, trustee: TrusteeId) -> Option<AtOnce> {
        // SAFETY: as in `find`.
        let table = unsafe { &*self.table.get() };
        let place = table.get(trustee.index())?;
        let seat = place.seat(trustee)?;
        self.near[trustee.index() % NEAR].set(*place);
        Some(seat)
    }

    fn set(&self, trustee: TrusteeId, seat: Option<AtOnce>) {
        // Also in place of another one, which the table has.
        self.near[trustee.index() % NEAR].set(Place::nowhere());
        // SAFETY: only the thread that has the worker, and only here; no code of users runs meanwhile.
        let table = unsafe { &mut *self.table.get() };
        if table.len() <= trustee.index() {
            table.resize(trustee.index() + 1, Place::nowhere());
        }
        table[trustee.index()] = seat.map_or(Place::nowhere(), |AtOnce(seat)| Place(seat.cast()));
    }
}

impl Worker {
    /// Sets how a fiber finds out that the runner has moves to do, for which it gives way.
    pub(crate) fn set_has_moves(&self, has_moves: impl Fn() -> bool + 'static) {
        let is_first = self.beside.has_moves.set(Box::new(has_moves)).is_ok();
        debug_assert!(is_first, "a worker has one runner");
    }

    /// Notes that this thread runs the seat from here on.
    pub(crate) fn reach_beside(&self, trustee: TrusteeId, worker: NonNull<Worker>) {
        let mut seats = self.beside.seats.borrow_mut();
        // Each seat looks at another time, so that many together look as often as one.
        let first_calls = seats.iter().flatten().count() as i64 * 101 % GIVE_WAY_EVERY;
        if seats.len() <= trustee.index() {
            seats.resize_with(trustee.index() + 1, || None);
        }
        seats[trustee.index()] = Some(Reached { trustee, worker, way: Way::Slots });
        drop(seats);
        // SAFETY: this thread has it from here on.
        let seat = unsafe { worker.as_ref() };
        seat.beside.is_seat.set(true);
        seat.set_calls_left_beside(first_calls);
        seat.in_turn.set(true);
        self.beside.asked.set(self.beside.asked.get() + 1);
        self.let_pairs_rest();
    }

    /// Notes that this thread is about to run the seat no more.
    pub(crate) fn leave_beside(&self, trustee: TrusteeId) {
        self.count_calls_at(trustee);
        self.stir(trustee);
        self.beside.seats.borrow_mut()[trustee.index()] = None;
        self.beside.asked.set(self.beside.asked.get() - 1);
    }

    /// Are there seats with which a pair is not at rest?
    pub(crate) fn has_asked_beside(&self) -> bool {
        self.beside.asked.get() > 0
    }

    /// After a turn of the seats: takes their answers, and lets the pairs rest that have no more to come. True if there
    /// were any.
    pub(crate) fn rest_beside(&self) -> bool {
        if !self.has_asked_beside() {
            return false;
        }
        // Callbacks make their requests as in a turn: they are sent behind those of the open batches.
        let any = self.in_own_turn(|| {
            let any = self.collect_again();
            self.settle();
            self.flush();
            any
        });
        self.let_pairs_rest();
        any
    }

    fn let_pairs_rest(&self) {
        for reached in self.beside.seats.borrow_mut().iter_mut().flatten() {
            if matches!(reached.way, Way::Slots) && !self.pairs.has_outstanding(reached.trustee) {
                reached.way = Way::AtRest(self.pairs.take(reached.trustee));
                self.beside.at_rest.set(reached.trustee, Some(AtOnce(reached.worker)));
                self.beside.asked.set(self.beside.asked.get() - 1);
            }
        }
    }

    /// Runs `f`, of this trustee, between two turns: as in one.
    fn in_own_turn<R>(&self, f: impl FnOnce() -> R) -> R {
        let before = self.in_turn.replace(true);
        debug_assert!(!before, "it is between two turns");
        self.assert_between_turns();
        let result = f();
        self.in_turn.set(false);
        result
    }

    /// Runs `f` of the runner for this seat. All other code that runs with the seat as the worker of the thread runs as
    /// in a turn, so that each closure need not note it.
    #[inline(always)]
    pub(crate) fn run_for_runner<R>(&self, f: impl FnOnce(&Worker) -> R) -> R {
        self.in_turn.set(false);
        let result = f(self);
        self.in_turn.set(true);
        result
    }

    #[inline(always)]
    fn assert_between_turns(&self) {
        debug_assert!(self.context.get() == Context::Free && !self.in_aftermath.get(), "it is between two turns");
        debug_assert!(self.in_turn.get() && self.home.get() == self.id, "its requests wait for a turn");
    }

    /// The seat of this trustee, if a request to it runs at once, of a kind that may.
    #[inline(never)]
    pub(crate) fn seat_at_once(&self, trustee: TrusteeId) -> Option<AtOnce> {
        (self.context() == Context::Free).then(|| self.seat_at_rest(trustee)).flatten()
    }

    /// Same as [`seat_at_once`](Self::seat_at_once), in free context.
    #[inline(always)]
    pub(crate) fn seat_at_rest(&self, trustee: TrusteeId) -> Option<AtOnce> {
        self.beside.at_rest.find(trustee)
    }

    /// Puts the pair with a seat back into the table, if it was at rest.
    pub(super) fn stir(&self, trustee: TrusteeId) {
        let mut seats = self.beside.seats.borrow_mut();
        let reached = seats.get_mut(trustee.index()).and_then(Option::as_mut);
        let Some(reached) = reached.filter(|reached| reached.trustee == trustee) else { return };
        if let Way::AtRest(pair) = std::mem::replace(&mut reached.way, Way::Slots) {
            self.beside.at_rest.set(trustee, None);
            self.beside.asked.set(self.beside.asked.get() + 1);
            if let Some(pair) = pair {
                self.pairs.put_back(pair);
            }
        }
    }

    /// Runs a closure on a property of a seat.
    ///
    /// # Safety
    /// This is the thread's own worker, and the seat that of [`seat_at_once`](Self::seat_at_once), called just now; the
    /// property is a live `Property<T>` of it.
    // Unoptimised code would have room on the stack for the closure in each function that it is moved into.
    #[inline(always)]
    pub(crate) unsafe fn run_beside<T, U>(
        &self,
        seat: AtOnce,
        property: *mut Header,
        f: impl FnOnce(&mut T) -> U,
    ) -> Result<U, Box<Fault>> {
        let mut f = ManuallyDrop::new(f);
        // SAFETY: the caller's promise; the closure is not used again.
        let fault = match unsafe { self.run_at(seat, property, &raw mut *f) } {
            Ok(value) => {
                self.after_call_beside(seat);
                return Ok(value);
            }
            Err(fault) => fault,
        };
        Err(self.after_fault_beside(seat, fault))
    }

    /// Runs the closure at this place on a property of a seat, without the calls that it puts off. By its address:
    /// unoptimised code would have room for it on the stack in each of the closures that it is moved into.
    ///
    /// # Safety
    /// As for [`run_beside`](Self::run_beside); the closure is moved out.
    #[inline(always)]
    unsafe fn run_at<T, U, F: FnOnce(&mut T) -> U>(
        &self,
        AtOnce(worker): AtOnce,
        property: *mut Header,
        f: *mut F,
    ) -> Result<U, Box<Fault>> {
        // SAFETY: this thread runs the seat [seat-settled].
        let seat = unsafe { worker.as_ref() };
        // SAFETY: the caller's promise.
        if unsafe { (*property).is_poisoned() } {
            // SAFETY: the caller gives the closure up; it is read once.
            return Err(refuse(worker, property, unsafe { f.read() }));
        }
        seat.assert_between_turns();
        seat.context.set(Context::Delegated);
        // SAFETY: the property is live, and no other closure of the seat runs: no turn of it is on the stack, as that
        // would be of the thread's worker, and its context was free. The closure as above.
        let call = || unsafe { f.read()(Property::<T>::value(property)) };
        // SAFETY: as above; `self` is the thread's own worker.
        let outcome = unsafe { current::run_beside(self, worker, call) };
        seat.context.set(Context::Free);
        outcome.map_err(|payload| seat.note_panic(property, payload))
    }

    /// Poisons the property, as a closure has panicked on it. Returns the fault.
    #[cold]
    #[inline(never)]
    fn note_panic(&self, property: *mut Header, payload: Box<dyn Any + Send>) -> Box<Fault> {
        self.poison(property, &*payload);
        Box::new(Fault::Panicked(payload))
    }

    /// Runs a closure on a property of a seat, and the callback with its result.
    ///
    /// # Safety
    /// As for [`run_beside`](Self::run_beside).
    // As `Worker::run_alone`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) unsafe fn post_beside<T, U, F: FnOnce(&mut T) -> U, H: FnOnce(Result<U, Fault>)>(
        &self,
        seat: AtOnce,
        property: *mut Header,
        f: F,
        then: H,
    ) {
        let (mut f, mut then) = (ManuallyDrop::new(f), ManuallyDrop::new(then));
        // Each branch by itself, as in `Trust::request`. SAFETY: the caller's promise; neither is used again.
        match unsafe { self.run_at(seat, property, &raw mut *f) } {
            // SAFETY: the callback is read once.
            Ok(value) => self.call_back_beside(seat, || unsafe { ptr::read(&raw mut *then)(Ok(value)) }),
            // SAFETY: as above.
            Err(fault) => unsafe { self.post_fault_beside(seat, fault, &raw mut *then) },
        }
    }

    /// Calls back with the fault of a call.
    ///
    /// # Safety
    /// The callback is moved out.
    #[cold]
    #[inline(never)]
    unsafe fn post_fault_beside<U, H: FnOnce(Result<U, Fault>)>(&self, seat: AtOnce, fault: Box<Fault>, then: *mut H) {
        // SAFETY: the caller's promise.
        self.call_back_beside(seat, || unsafe { then.read()(Err(*fault)) });
    }

    /// Runs a callback, in free context, and what follows a call. A panic is reported by the panic hook.
    #[inline(always)]
    fn call_back_beside(&self, seat: AtOnce, then: impl FnOnce()) {
        debug_assert!(self.context.get() == Context::Free, "it has called at once");
        self.context.set(Context::Callback);
        quietly(then);
        self.context.set(Context::Free);
        // Calls on its own trustee that the callback has made come before those that follow.
        self.settle();
        self.after_call_beside(seat);
    }

    /// Runs a request at a seat, and its response.
    ///
    /// # Safety
    /// As for [`run_beside`](Self::run_beside); `property` is as [`Request::run`] demands, and the response fits the
    /// request's output.
    #[inline(never)]
    pub(crate) unsafe fn serve_beside<C: Request, R: Response>(
        &self,
        seat: AtOnce,
        property: *mut Header,
        request: C,
        response: R,
    ) {
        let mut body = MaybeUninit::<Body>::uninit();
        let body = body.as_mut_ptr();
        let run = |seat: &Worker| {
            // SAFETY: the caller's promise; the body is this call's.
            unsafe { serve_one(seat, property, request, self.id, body) };
        };
        // SAFETY: as in `run_at`.
        unsafe { current::run_as(seat.0, run) };
        // SAFETY: this call's; `serve_one` has written it.
        let mut resuming = Resuming { responses: unsafe { Reader::new(body) }, next: ptr::null_mut() };
        let fault = resuming.responses.take_faults().pop().map(|(_, fault)| fault);
        // A panic of a callback is reported by the panic hook. SAFETY: the response to this request.
        self.call_back(|| quietly(|| unsafe { response.resume(&mut resuming, fault) }));
        // Calls on its own trustee that the callback has made come before those that follow.
        self.settle();
        if R::IS_AWAITED {
            self.after_call_beside(seat);
        } else {
            // A trust is dropped where its owner may not expect to suspend.
            settle_at(seat);
        }
    }

    /// Runs the calls put off at the seat, and lets others have their turn now and then.
    #[inline(always)]
    fn after_call_beside(&self, seat: AtOnce) {
        settle_at(seat);
        // SAFETY: this thread runs the seat [seat-settled].
        let left = &unsafe { seat.0.as_ref() }.calls_left_beside;
        left.set(left.get().wrapping_sub(1));
        if left.get() < 0 {
            self.give_way_beside(seat);
        }
    }

    /// Counts, at a seat, the calls that have run at once since the last time.
    pub(crate) fn count_calls_beside(&self) {
        let left = self.calls_left_beside.get();
        let made = self.beside.counted_at.get().wrapping_sub(left);
        // Below 0 in the callback of a call that was refused.
        if made > 0 {
            self.beside.counted_at.set(left);
            self.shared.counters.requests_run_here.add(made.cast_unsigned());
        }
    }

    /// Sets how many calls remain to the next look, after all before were counted.
    fn set_calls_left_beside(&self, calls: i64) {
        self.calls_left_beside.set(calls);
        self.beside.counted_at.set(calls);
    }

    /// Same as [`count_calls_beside`](Self::count_calls_beside), at this trustee, if it is this seat or a seat of this
    /// runner.
    pub(crate) fn count_calls_at(&self, trustee: TrusteeId) {
        if trustee == self.id {
            return self.count_calls_beside();
        }
        let seats = self.beside.seats.borrow();
        let reached = seats.get(trustee.index()).and_then(Option::as_ref);
        if let Some(reached) = reached.filter(|reached| reached.trustee == trustee) {
            // SAFETY: this thread runs it.
            unsafe { reached.worker.as_ref() }.count_calls_beside();
        }
    }

    /// Same as [`after_call_beside`](Self::after_call_beside), where the call has no result.
    #[cold]
    #[inline(never)]
    fn after_fault_beside(&self, seat: AtOnce, fault: Box<Fault>) -> Box<Fault> {
        self.after_call_beside(seat);
        fault
    }

    /// Gives the seats, their clients and ready fibers their turn, also where a fiber only calls seats at once.
    #[cold]
    fn give_way_beside(&self, AtOnce(seat): AtOnce) {
        if self.in_aftermath.get() {
            return; // at the end of the next call
        }
        // SAFETY: this thread runs the seat [seat-settled].
        let seat = unsafe { seat.as_ref() };
        seat.count_calls_beside();
        seat.set_calls_left_beside(GIVE_WAY_EVERY - 1);
        let looks = self.beside.looks.get().wrapping_add(1);
        self.beside.looks.set(looks);
        let is_due = looks.is_multiple_of(GIVE_WAY_AT_LEAST);
        if self.fiber().is_some() && (is_due || self.has_moves_or_work_at_one(looks) || self.has_work()) {
            self.scheduler.yield_to_root();
        }
    }

    /// Has the thread other workers that may have work? For fibers that call their own trustee without end.
    pub(super) fn others_have_work(&self) -> bool {
        self.beside.is_seat.get() || self.has_work_beside()
    }

    fn has_work_beside(&self) -> bool {
        let seats = self.beside.seats.borrow();
        self.has_moves_beside() || seats.iter().flatten().any(Reached::has_work)
    }

    /// Same as [`has_work_beside`](Self::has_work_beside), for one seat, another one at each look: what clients write
    /// is expensive to read.
    fn has_moves_or_work_at_one(&self, look: u64) -> bool {
        let seats = self.beside.seats.borrow();
        let here = || seats.iter().flatten();
        let next = look % here().count().max(1) as u64;
        self.has_moves_beside() || here().nth(next as usize).is_some_and(Reached::has_work)
    }

    fn has_moves_beside(&self) -> bool {
        self.beside.has_moves.get().is_some_and(|has_moves| has_moves())
    }
}

/// Drops the closure of a request of a seat's property, which is poisoned or closed. Returns the fault.
#[cold]
#[inline(never)]
fn refuse<F>(worker: NonNull<Worker>, property: *mut Header, f: F) -> Box<Fault> {
    let refuse = |seat: &Worker| {
        seat.mark_busy();
        seat.assert_between_turns();
        // It does not run, so it is not counted; but it brings the next look nearer, as any call.
        seat.beside.counted_at.set(seat.beside.counted_at.get().wrapping_sub(1));
        let fault = seat.refusal(property);
        seat.drop_unrun(f);
        Box::new(fault)
    };
    // SAFETY: as in `Worker::run_at`.
    unsafe { current::run_as(worker, refuse) }
}

/// Runs the calls put off at a seat, and notes that it is not quiet. After the call is early enough: the fiber that
/// calls keeps its runner from being quiet, so the pool is not.
#[inline(always)]
fn settle_at(seat: AtOnce) {
    // SAFETY: this thread runs the seat [seat-settled].
    if unsafe { seat.0.as_ref() }.marks.any() {
        settle_at_slow(seat);
    }
}

#[cold]
#[inline(never)]
fn settle_at_slow(AtOnce(worker): AtOnce) {
    let settle = |seat: &Worker| {
        seat.mark_busy();
        seat.settle();
    };
    // SAFETY: as in `Worker::run_at`: callbacks do not suspend.
    unsafe { current::run_as(worker, settle) }
}
