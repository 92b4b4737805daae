//! The runner's side: a worker of a pool that runs seats beside itself.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Asked, Bound, Inbox, Item, Leave, Make, Moving, Outcome, Seat};
use crate::config::{EXIT_WAIT_MS, SLOTS};
use crate::deadline::deadline_after;
use crate::park::forward::{Forward, ForwardWaker};
use crate::runtime::worker::Worker;
use crate::runtime::worker::current;
use crate::runtime::worker::idle::Sleeper;
use crate::trace;

/// Time for which a move waits for fibers and answers of the seat.
const SETTLES_WITHIN: Duration = Duration::from_millis(20);

/// A seat with its worker, on the thread that runs it.
struct Seated {
    worker: NonNull<Worker>,
    seat: Arc<Seat>,
}

impl Seated {
    /// Runs `f` with the seat's worker as that of the thread.
    fn run<R>(&self, f: impl FnOnce(&Worker) -> R) -> R {
        // SAFETY: made by `current::make`, and freed only when it is off the list; this thread has it [seat-settled].
        unsafe { current::run_as(self.worker, |worker| worker.run_for_runner(f)) }
    }
}

/// Turns of the seats in one turn of their runner, besides the first, that bring pairs with them to rest: one for each
/// slot.
const SEAT_TURNS_MAX: usize = SLOTS;

/// A worker that runs seats.
pub(crate) struct Runner<'a> {
    worker: &'a Worker,
    index: usize,
    inbox: Arc<Inbox>,
    seated: Rc<RefCell<Vec<Seated>>>,
    /// Moves that are to be done at a turn's end.
    leaving: RefCell<Vec<Leave>>,
}

impl<'a> Runner<'a> {
    /// The runner of the pool's worker with this index.
    pub(crate) fn new(worker: &'a Worker, index: usize, inbox: Arc<Inbox>) -> Self {
        let asked = Arc::clone(&inbox);
        worker.set_has_moves(move || asked.has_any());
        Runner { worker, index, inbox, seated: Rc::default(), leaving: RefCell::default() }
    }

    /// Runs worker and seats until `stop`, then ends the seats.
    pub(crate) fn work(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            if self.turn() {
                self.worker.idle.reset();
            } else {
                self.worker.idle.rest_with(self.worker, self);
            }
        }
        self.end();
    }

    /// Runs one turn of the worker and of each seat. True if there was any work.
    fn turn(&self) -> bool {
        let mut busy = self.worker.turn() | self.turn_of_seats();
        // Before fibers make more requests: these would take slots, too, and theirs behind them, for ever.
        for _ in 0..SEAT_TURNS_MAX {
            if !self.worker.has_asked_beside() || !self.turn_of_seats() {
                break;
            }
        }
        if self.inbox.has_any() {
            self.read_inbox();
            busy = true;
        }
        if !self.leaving.borrow().is_empty() {
            self.leave_settled();
        }
        busy
    }

    /// Runs one turn of each seat, and takes their answers to the worker.
    fn turn_of_seats(&self) -> bool {
        let mut busy = false;
        for seated in &*self.seated.borrow() {
            busy |= seated.run(|seat| {
                let any = seat.turn();
                seat.count_calls_beside();
                if seat.has_just_served() {
                    self.worker.note_served();
                }
                any
            });
        }
        busy | self.worker.rest_beside()
    }

    fn read_inbox(&self) {
        for item in self.inbox.take(false) {
            match item {
                Item::Make(make) => self.make(make),
                Item::Leave(leave) => self.leaving.borrow_mut().push(leave),
                Item::Come(moving) => self.seat(moving),
            }
        }
    }

    fn make(&self, make: Make) {
        let Make { settings, runners, made } = make;
        let seat = current::make(settings).map(|worker| {
            // SAFETY: just made, and this thread has it.
            let shared = Arc::clone(unsafe { &worker.as_ref().shared });
            let forward = Arc::new(Forward::new(self.index, runners));
            let first = shared.parker.set_waker(Box::new(ForwardWaker(Arc::clone(&forward))));
            debug_assert!(first, "it is new");
            let (pause_ns_max, bound) = (AtomicU64::new(0), AtomicU8::new(0));
            let seat = Arc::new(Seat { shared, forward, pause_ns_max, bound });
            self.add(Seated { worker, seat: Arc::clone(&seat) });
            seat
        });
        let _ = made.send(seat);
    }

    /// Takes a seat over.
    fn seat(&self, Moving { worker, seat, since, asked }: Moving) {
        seat.shared.thread.set_to_this_thread();
        let seated = Seated { worker, seat };
        seated.run(|worker| worker.scheduler.enter_thread());
        let pause_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        seated.seat.pause_ns_max.fetch_max(pause_ns, Ordering::Relaxed);
        // The thread that has the seat is the writer of its counters and its trace.
        let shared = &seated.seat.shared;
        shared.counters.moves.add(1);
        shared.counters.moves_undone.add(u64::from(asked.undoes));
        if trace::is_on() {
            shared.trace.activity.note(trace::Kind::Move, since, self.index as u64);
        }
        self.add(seated);
        asked.answer(Outcome::There);
    }

    /// Lets those seats go that are to go and have settled. One that does not settle in time stays.
    fn leave_settled(&self) {
        self.leaving.borrow_mut().retain(|leave| {
            let Leave { seat, to, since, asked } = leave;
            let Some(place) = self.place(seat) else {
                // It has gone meanwhile.
                let again = Leave { seat: Arc::clone(seat), to: *to, since: *since, asked: Arc::clone(asked) };
                if seat.forward.parkers().send(seat.runner(), Item::Leave(again)).is_err() {
                    asked.answer(Outcome::Ended);
                }
                return false;
            };
            if *to == self.index {
                asked.answer(Outcome::There);
                return false;
            }
            match self.seated.borrow()[place].run(Worker::why_bound) {
                Some(bound) if bound.is_lasting() || since.elapsed() > SETTLES_WITHIN => {
                    self.stay(seat, asked, bound);
                    return false;
                }
                Some(_) => return true,
                None => {}
            }
            self.leave(place, *to, asked);
            false
        });
    }

    /// Lists a seat that this thread has from here on.
    fn add(&self, seated: Seated) {
        self.worker.reach_beside(seated.seat.shared.id, seated.worker);
        self.seated.borrow_mut().push(seated);
    }

    /// Takes the seat at this place off the list.
    fn remove(&self, place: usize) -> Seated {
        let seated = self.seated.borrow_mut().swap_remove(place);
        self.worker.leave_beside(seated.seat.shared.id);
        seated
    }

    fn place(&self, seat: &Arc<Seat>) -> Option<usize> {
        self.seated.borrow().iter().position(|seated| Arc::ptr_eq(&seated.seat, seat))
    }

    fn stay(&self, seat: &Seat, asked: &Asked, bound: Bound) {
        seat.bound.store(bound.number(), Ordering::Relaxed);
        seat.shared.counters.moves_refused.add(1);
        asked.answer(Outcome::Stays(bound));
    }

    /// Sends the seat at this place, which has settled, to another runner.
    fn leave(&self, place: usize, to: usize, asked: &Arc<Asked>) {
        let Seated { worker, seat } = self.remove(place);
        seat.bound.store(0, Ordering::Relaxed);
        let forward = Arc::clone(&seat.forward);
        // From here on, so that other moves of it that are asked for wait there until it has come.
        forward.set_runner(to);
        let moving = Moving { worker, seat, since: Instant::now(), asked: Arc::clone(asked) };
        // The pool is at its end.
        if let Err(Item::Come(Moving { worker, seat, .. })) = forward.parkers().send(to, Item::Come(moving)) {
            seat.forward.set_runner(self.index);
            self.add(Seated { worker, seat });
            asked.answer(Outcome::Ended);
        }
    }

    /// Ends the seats, after the worker's own fibers, which may need them.
    fn end(&self) {
        let deadline = deadline_after(Duration::from_millis(EXIT_WAIT_MS));
        let is_needed = || self.worker.scheduler.begun() > 0 || self.worker.has_own_work() && Instant::now() < deadline;
        while is_needed() {
            if !self.turn() && !self.let_missed_on() {
                self.park(Some(Duration::from_millis(1)));
            }
        }
        for item in self.inbox.take(true) {
            match item {
                Item::Come(moving) => self.seat(moving),
                Item::Leave(leave) => leave.asked.answer(Outcome::Ended),
                Item::Make(_) => {}
            }
        }
        self.leaving.take().into_iter().for_each(|leave| leave.asked.answer(Outcome::Ended));
        loop {
            let Some(last) = self.seated.borrow().len().checked_sub(1) else { break };
            let seated = self.remove(last);
            let (own, others) = (NonNull::from(self.worker), Rc::clone(&self.seated));
            seated.run(|worker| worker.set_meanwhile(Rc::new(move || run_each(own, &others))));
            // SAFETY: as in `run`; it is off the list.
            unsafe { current::end_other(seated.worker) }
        }
    }
}

/// Runs one turn of the runner's own worker, and of each seat.
fn run_each(own: NonNull<Worker>, seated: &RefCell<Vec<Seated>>) {
    // SAFETY: the thread's own worker, which is in no turn, on the root: that of a seat that ends.
    let _ = unsafe { current::run_as(own, Worker::turn) };
    for seated in &*seated.borrow() {
        seated.run(Worker::turn);
    }
}

impl Sleeper for Runner<'_> {
    fn mark(&self) {
        self.worker.mark();
        self.seated.borrow().iter().for_each(|seated| seated.run(Worker::mark));
    }

    fn let_missed_on(&self) -> bool {
        let of_seats = self.seated.borrow().iter().fold(false, |any, seated| seated.run(Worker::let_missed_on) | any);
        self.worker.let_missed_on() | of_seats
    }

    fn next_in(&self) -> Option<Duration> {
        let of_seats = self.seated.borrow().iter().filter_map(|seated| seated.run(Worker::next_in)).min();
        self.worker.next_in().into_iter().chain(of_seats).min()
    }

    fn park(&self, limit: Option<Duration>) -> bool {
        let seated = self.seated.borrow();
        let has_work = |worker: &Worker| worker.has_work() || worker.reactor.cannot_sleep();
        seated.iter().for_each(|seated| seated.seat.shared.parker.arm_only());
        let slept = self.worker.shared.parker.park(limit, || {
            has_work(self.worker)
                || self.inbox.has_any()
                || !self.leaving.borrow().is_empty()
                || seated.iter().any(|seated| !seated.seat.shared.parker.is_armed() || seated.run(has_work))
        });
        for seated in &*seated {
            seated.seat.shared.parker.disarm();
            if slept {
                seated.run(|worker| worker.reactor.look_next());
            }
        }
        if slept {
            self.worker.reactor.look_next();
        }
        slept
    }
}
