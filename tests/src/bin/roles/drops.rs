//! Drops that others might delay, and drops that must wait for others. A worker *computes* while it does nothing for
//! the library.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use gossamer::{Place, Trust};

/// Set while a worker of this machine computes; cleared to stop it.
static COMPUTES: AtomicBool = AtomicBool::new(false);
static RELEASED: AtomicBool = AtomicBool::new(false);
/// Properties that were dropped on this machine.
static DROPPED: AtomicUsize = AtomicUsize::new(0);
/// Trusts handed over by a thread without links.
static HANDED: Mutex<Option<(Trust<Kept>, Trust<Kept>)>> = Mutex::new(None);

/// Longer than anything here takes.
const LIMIT: Duration = limits::HANG;

struct Kept;

impl Drop for Kept {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

/// Computes until another worker of this machine ends it. False if none did.
fn compute() -> bool {
    let start = Instant::now();
    COMPUTES.store(true, Ordering::SeqCst);
    while !RELEASED.load(Ordering::SeqCst) && start.elapsed() < LIMIT {
        std::hint::spin_loop();
    }
    COMPUTES.store(false, Ordering::SeqCst);
    RELEASED.swap(false, Ordering::SeqCst)
}

/// Ends the computation, from a place with an idle worker.
fn release(at: Place) {
    gossamer::spawn_on(at, || RELEASED.store(true, Ordering::SeqCst)).join().unwrap();
}

/// Waits until a worker beside `at` computes.
fn until_computing(at: Place) {
    while !gossamer::spawn_on(at, || COMPUTES.load(Ordering::SeqCst)).join().unwrap() {
        gossamer::yield_now();
    }
}

/// Waits until this many properties of this machine were dropped.
fn until_dropped(count: usize) {
    let start = Instant::now();
    while DROPPED.load(Ordering::SeqCst) < count && start.elapsed() < LIMIT {
        gossamer::yield_now();
    }
    assert_eq!(DROPPED.load(Ordering::SeqCst), count);
}

/// Returns two workers of each other machine that has them: one to compute, and one that does not.
fn others() -> Vec<(Place, Place)> {
    let machines = 1..gossamer::rack().machines().len() as u16;
    machines.map(|machine| (Place::of(machine, 0), Place::of(machine, 1))).collect()
}

/// Properties of this machine are dropped while a worker of each other machine computes: one that has used the trustee
/// before, and one that has not.
pub fn computing() {
    const MANY: usize = 300;
    let home = Place::of(0, 1);
    let number = gossamer::entrust_on(home, 0u64);
    for has_asked in [false, true] {
        for (busy, _) in others() {
            let number = number.clone();
            if has_asked {
                gossamer::spawn_on(busy, move || number.apply(|n| *n += 1)).join().unwrap();
            }
        }
        let computing: Vec<_> = others()
            .into_iter()
            .map(|(busy, idle)| {
                let fiber = gossamer::spawn_on(busy, compute);
                until_computing(idle);
                fiber
            })
            .collect();
        let before = DROPPED.load(Ordering::SeqCst);
        for _ in 0..MANY {
            gossamer::entrust_with(home, || Kept).apply(|_| ());
        }
        let start = Instant::now();
        let dropped = || DROPPED.load(Ordering::SeqCst) - before;
        while dropped() < MANY && start.elapsed() < LIMIT / 2 {
            number.apply(|_| ());
        }
        assert_eq!(dropped(), MANY, "while others compute");
        others().into_iter().for_each(|(_, idle)| release(idle));
        assert!(computing.into_iter().all(|fiber| fiber.join().unwrap()), "they have computed all the time");
    }
}

/// A clone's count waits at a worker that computes while another worker drops the original: the clone keeps its
/// property.
pub fn waiting() {
    let home = Place::of(0, 1);
    for (busy, idle) in others() {
        for _ in 0..5 {
            let (kept, probe) = (gossamer::entrust_with(home, || Kept), gossamer::entrust_on(home, 0u64));
            let before = DROPPED.load(Ordering::SeqCst);
            let slow = probe.clone();
            let fiber = gossamer::spawn_on(busy, move || {
                // A batch that stays under way as long as its machine likes, so that later requests wait.
                slow.apply_then(|_| compute(), |_| ());
                gossamer::spawn(gossamer::yield_now).join().unwrap();
                let clone = kept.clone();
                gossamer::spawn_on(idle, move || drop(kept)).join().unwrap();
                (compute(), clone.call().apply(|_| ()).wait().is_ok())
            });
            until_computing(Place::of(0, 0));
            until_computing(idle);
            release(Place::of(0, 0));
            // Requests behind the drop have been served: so has the drop.
            for _ in 0..20 {
                let probe = probe.clone();
                gossamer::spawn_on(idle, move || probe.apply(|n| *n += 1)).join().unwrap();
            }
            assert_eq!(DROPPED.load(Ordering::SeqCst), before, "a trust is left at {busy}");
            release(idle);
            assert_eq!(fiber.join().unwrap(), (true, true), "the worker has computed, and its trust is good");
            until_dropped(before + 1);
        }
    }
}

/// Same as `waiting`, with a clone made by a thread without links; some worker must send its counts.
pub fn linkless() {
    let home = Place::of(0, 1);
    for (one, other) in others() {
        // Either may be the worker that serves such threads.
        for (busy, idle) in [(one, other), (other, one)].into_iter().cycle().take(6) {
            let (kept, probe) = (gossamer::entrust_with(home, || Kept), gossamer::entrust_on(home, 0u64));
            let before = DROPPED.load(Ordering::SeqCst);
            let fiber = gossamer::spawn_on(busy, move || {
                let thread = thread::spawn(move || {
                    let clone = kept.clone();
                    *HANDED.lock().unwrap_or_else(PoisonError::into_inner) = Some((kept, clone));
                });
                thread.join().unwrap();
                compute()
            });
            until_computing(idle);
            let back = probe.clone();
            let clone = gossamer::spawn_on(idle, move || {
                let handed = HANDED.lock().unwrap_or_else(PoisonError::into_inner).take();
                let (kept, clone) = handed.expect("it was handed over before that worker computed");
                drop(kept);
                (0..20).for_each(|_| back.apply(|n| *n += 1));
                clone
            });
            let clone = clone.join().unwrap();
            assert_eq!(DROPPED.load(Ordering::SeqCst), before, "a trust is left at {idle}");
            assert!(clone.call().apply(|_| ()).wait().is_ok());
            drop(clone);
            release(idle);
            assert!(fiber.join().unwrap());
            until_dropped(before + 1);
        }
    }
}

/// Workers of this machine that compute until the end of the test.
static COMPUTING: AtomicUsize = AtomicUsize::new(0);
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Progress of all machines: number of workers that compute, or are about to, and whether the test is over.
type Stage = (usize, bool);

/// Runs `test` on machine 0 while all workers of all other machines compute. A thread without links on each of these
/// gets a trust from `hand`, if it returns one.
fn while_all_others_compute(hand: impl Fn() -> Option<Trust<Kept>>, test: impl FnOnce()) {
    let stage = gossamer::entrust_on(Place::of(0, 0), (0, false));
    let places = gossamer::rack().places().filter(|place| place.machine != 0);
    let fibers = places.map(|place| {
        let (kept, stage) = (if place.worker == 0 { hand() } else { None }, stage.clone());
        gossamer::spawn_on(place, move || {
            let theirs = stage.clone();
            let beside = (place.worker == 0).then(|| thread::spawn(move || beside_computing(&theirs, kept)));
            // Earlier requests of this worker are served too.
            stage.apply(|(computing, _)| *computing += 1);
            COMPUTING.fetch_add(1, Ordering::SeqCst);
            let start = Instant::now();
            while !IS_OVER.load(Ordering::SeqCst) && start.elapsed() < LIMIT {
                std::hint::spin_loop();
            }
            let is_over = IS_OVER.load(Ordering::SeqCst);
            if COMPUTING.fetch_sub(1, Ordering::SeqCst) == 1 {
                IS_OVER.store(false, Ordering::SeqCst); // for the next time
            }
            if let Some(thread) = beside {
                thread.join().expect("it does not panic");
            }
            is_over
        })
    });
    let fibers: Vec<_> = fibers.collect();
    let all = fibers.len();
    while stage.apply(|(computing, _)| *computing) < all {
        gossamer::yield_now();
    }
    test();
    stage.apply(|(_, is_over)| *is_over = true);
    assert!(fibers.into_iter().all(|fiber| fiber.join().unwrap()), "they have computed all the time");
}

/// Runs on a thread without links: clones at once, drops when all workers of its machine compute, and releases them
/// when the test is over.
fn beside_computing(stage: &Trust<Stage>, kept: Option<Trust<Kept>>) {
    let clone = kept.clone();
    let rack = gossamer::rack();
    let workers = usize::from(rack.machines()[usize::from(rack.machine())].workers);
    while COMPUTING.load(Ordering::SeqCst) < workers {
        thread::yield_now();
    }
    drop(kept);
    if let Some(clone) = clone {
        wait(clone.apply_async(|_| ()));
    }
    while !wait(stage.apply_async(|(_, is_over)| *is_over)) {
        thread::yield_now();
    }
    IS_OVER.store(true, Ordering::SeqCst);
}

/// Waits for a future, on a thread with nothing else to do.
fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// Properties of this machine are dropped while all workers of all other machines compute.
pub fn computing_alone() {
    const MANY: usize = 300;
    while_all_others_compute(
        || None,
        || {
            for _ in 0..MANY {
                gossamer::entrust_with(Place::of(0, 0), || Kept).apply(|_| ());
            }
            until_dropped(MANY);
            // Uses a question to the machines, rather than to their workers.
            let own = gossamer::stats().remote;
            assert!(gossamer::rack_stats().remote > own, "the others have said that they compute");
        },
    );
}

/// The same for properties with their last trust on a thread without links, on a machine whose workers all compute.
pub fn linkless_alone() {
    for round in 1..=5 {
        let others = gossamer::rack().machines().len() - 1;
        let hand = || Some(gossamer::entrust_with(Place::of(0, 0), || Kept));
        while_all_others_compute(hand, || until_dropped(round * others));
    }
}
