//! Trustees that move between the workers of a pool.
//!
//! A *seat* is a trustee without a thread of its own: a whole [`Worker`], which one of the pool's workers, its
//! *runner*, runs beside itself, turn by turn. Its slots, property table, poison and inbox are where they are for any
//! worker, so clients and closures notice nothing of the runner, and trustees of other pools pay nothing for it. The
//! runner's own fibers reach its seats at once (`worker/beside.rs`).
//!
//! A seat moves at a turn's end, if nothing in it is bound to the thread ([`Worker::why_bound`]): its runner takes it
//! off its list and puts it into the inbox of the next one. Requests that come meanwhile lie in their slots until the
//! next runner's turn.
//!
//! Here: the seats as all threads see them, and the inboxes of runners. The runner's loop: `runner.rs`. Waking a
//! runner for its seats: `park/forward.rs`. When and where to move: `tune`.
//!
//! Invariant [seat-settled]: one thread at a time has a seat's worker: the runner that lists it, or the one that takes
//! it out of its inbox. It moves between turns, with no fiber, no callback or deferred call to come, no socket and no
//! value that is not known to be `Send`. Code that keeps parts of a `Send` value in thread-locals binds the trustee
//! itself (`link::bind_here`).

#![allow(unsafe_code)]

mod bound;
pub(crate) mod runner;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Instant;

pub use self::bound::Bound;
use crate::park::Parker;
use crate::park::forward::{Forward, Parkers};
use crate::registry::Shared;
use crate::runtime::worker::{NotMade, Settings, Worker};

/// A trustee that moves, as all threads see it.
pub(crate) struct Seat {
    pub(crate) shared: Arc<Shared>,
    forward: Arc<Forward<Runners>>,
    /// Longest time between two runners, in nanoseconds.
    pause_ns_max: AtomicU64,
    /// Reason why it did not move when it was asked last, or 0.
    bound: AtomicU8,
}

impl Seat {
    /// Index of its runner among the pool's workers.
    pub(crate) fn runner(&self) -> usize {
        self.forward.runner()
    }

    pub(crate) fn moves(&self) -> u64 {
        self.shared.counters.moves.get()
    }

    pub(crate) fn pause_ns_max(&self) -> u64 {
        self.pause_ns_max.load(Ordering::Relaxed)
    }

    /// Why it did not move when it was asked last.
    pub(crate) fn bound(&self) -> Option<Bound> {
        Bound::from_number(self.bound.load(Ordering::Relaxed))
    }

    /// Asks for a move to the worker with this index, which may undo a trial. Does not wait.
    pub(crate) fn ask_to_move(self: &Arc<Self>, to: usize, undoes: bool) -> Arc<Asked> {
        let asked = Arc::new(Asked { undoes, outcome: Mutex::default() });
        let leave = Leave { seat: Arc::clone(self), to, since: Instant::now(), asked: Arc::clone(&asked) };
        // A runner that the seat has left meanwhile passes it on; a pool that has ended answers nothing.
        if self.forward.parkers().send(self.runner(), Item::Leave(leave)).is_err() {
            asked.answer(Outcome::Ended);
        }
        asked
    }
}

/// Outcome of a move that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It is where it was asked to go.
    There,
    /// It stays where it is.
    Stays(Bound),
    /// The pool has ended.
    Ended,
}

/// A move that was asked for.
pub(crate) struct Asked {
    undoes: bool,
    outcome: Mutex<Option<Outcome>>,
}

impl Asked {
    fn answer(&self, outcome: Outcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    /// The outcome, once there is one.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A seat's worker on its way to a runner.
struct Moving {
    worker: NonNull<Worker>,
    seat: Arc<Seat>,
    since: Instant,
    asked: Arc<Asked>,
}

// SAFETY: [seat-settled]; the lock of the inbox orders the two threads.
unsafe impl Send for Moving {}

/// A move to be done.
struct Leave {
    seat: Arc<Seat>,
    to: usize,
    since: Instant,
    asked: Arc<Asked>,
}

/// Seat to be made.
pub(crate) struct Make {
    settings: Settings,
    runners: Arc<Runners>,
    made: mpsc::Sender<Result<Arc<Seat>, NotMade>>,
}

enum Item {
    Make(Make),
    Leave(Leave),
    Come(Moving),
}

/// Inbox of a runner.
#[derive(Default)]
pub(crate) struct Inbox {
    items: Mutex<Items>,
    /// There are items.
    has: AtomicBool,
}

#[derive(Default)]
struct Items {
    waiting: Vec<Item>,
    /// The runner takes no more.
    closed: bool,
}

impl Inbox {
    fn put(&self, item: Item) -> Result<(), Item> {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        if items.closed {
            return Err(item);
        }
        items.waiting.push(item);
        // Relaxed: a runner that sees it takes the lock; one about to sleep sees it by the fences of the parker.
        self.has.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn has_any(&self) -> bool {
        self.has.load(Ordering::Relaxed)
    }

    fn take(&self, closes: bool) -> Vec<Item> {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.closed |= closes;
        self.has.store(false, Ordering::Relaxed);
        std::mem::take(&mut items.waiting)
    }
}

/// The workers of a pool that run seats.
pub(crate) struct Runners(Vec<(Arc<Shared>, Arc<Inbox>)>);

impl Parkers for Runners {
    fn parker(&self, worker: usize) -> &Parker {
        &self.0[worker].0.parker
    }
}

impl Runners {
    /// Makes the runners of workers that have begun, each with its inbox.
    pub(crate) fn new(workers: Vec<(Arc<Shared>, Arc<Inbox>)>) -> Arc<Runners> {
        Arc::new(Runners(workers))
    }

    /// Puts an item into a runner's inbox and wakes the runner; gives it back if the runner takes no more.
    fn send(&self, to: usize, item: Item) -> Result<(), Item> {
        let (worker, inbox) = &self.0[to];
        let mut refused = None;
        let _ = worker.parker.publish_if(|| {
            refused = inbox.put(item).err();
            refused.is_none()
        });
        refused.map_or(Ok(()), Err)
    }

    /// Makes a seat that this worker runs at first.
    ///
    /// # Errors
    /// The operating system has no memory for it, the process has no id for it, or the worker has ended (`None`).
    pub(crate) fn make(self: &Arc<Self>, runner: usize, settings: Settings) -> Result<Arc<Seat>, Option<NotMade>> {
        let (made, seat) = mpsc::channel();
        let make = Make { settings, runners: Arc::clone(self), made };
        self.send(runner, Item::Make(make)).map_err(|_| None)?;
        seat.recv().map_err(|_| None)?.map_err(Some)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::fiber::stack::child::{FINISHED, in_child};
    use crate::registry;

    #[test]
    fn a_process_without_ids_refuses_trustees_and_says_how_many_it_can_have() {
        const SELF: &str =
            concat!(module_path!(), "::a_process_without_ids_refuses_trustees_and_says_how_many_it_can_have");
        let output = in_child(SELF, || {
            // This thread has one.
            crate::local_trustee();
            registry::use_up_ids(4);
            let build = |trustees| crate::Threadpool::builder().workers(2).trustees(trustees).pin(false).try_build();
            // A thread that has none, and gets none to end the pool that was begun.
            let refused = std::thread::spawn(move || build(3).map(drop).expect_err("ids for four").to_string());
            let refused = refused.join().expect("it does not panic");
            assert!(refused.contains("has 65536 trustees") && refused.contains("use fewer trustees"), "{refused}");
            // The pool that was not made has given its ids back.
            let pool = build(2).expect("there are as many ids");
            assert_eq!(pool.trustees().len(), 2);
            let thread = std::thread::spawn(|| crate::local_trustee().id().index());
            let said = thread.join().expect_err("there is none for the thread");
            assert!(said.downcast_ref::<String>().is_some_and(|said| said.contains("has 65536 trustees")), "{said:?}");
        });
        assert_eq!(output.status.code(), Some(FINISHED), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn moves_are_counted_and_those_that_undo_a_trial() {
        let pool = crate::Threadpool::builder().workers(2).trustees(1).pin(false).build();
        let seat = &pool.seats()[0];
        for (to, undoes, outcome) in [(1, false, (1, 0)), (0, true, (2, 1)), (0, true, (2, 1)), (1, false, (3, 1))] {
            let asked = seat.ask_to_move(to, undoes);
            limits::wait_until("a move has an outcome", || asked.outcome().is_some());
            let counters = &seat.shared.counters;
            assert_eq!((counters.moves.get(), counters.moves_undone.get()), outcome);
        }
    }
}
