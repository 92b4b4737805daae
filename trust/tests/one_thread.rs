//! Several trustees of one thread: the worker of a pool, and those that move and that it runs beside itself. Values
//! that belong to the thread are shared by the code of all of them.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::effort;
use limits::wait_until;
use trust::link::ask_to_move;
use trust::{Bound, Latch, Pending, Promise, Threadpool, Trust, local_trustee, spawn_on};

fn pool(workers: usize, trustees: usize) -> Threadpool {
    Threadpool::builder().workers(workers).trustees(trustees).pin(false).spin(Duration::ZERO).build()
}

/// Fibers of the worker and of both trustees wait for the same latch: each is woken by fibers of the others.
#[test]
fn a_fiber_is_woken_by_another_trustee_of_its_thread() {
    watchdog!();
    thread_local!(static LATCH: Rc<Latch<u64>> = Rc::new(Latch::new(0)));
    let pool = pool(1, 2);
    let rounds = effort(50, 2_000);
    let holds = move || {
        let latch = LATCH.with(Rc::clone);
        let thread = thread::current().id();
        let own = local_trustee();
        for round in 0..rounds {
            let mut held = latch.lock();
            *held += 1;
            if round % 8 == 0 {
                trust::sleep(Duration::from_micros(50));
            } else {
                trust::yield_now();
            }
            drop(held);
            assert_eq!((thread::current().id(), local_trustee()), (thread, own));
        }
    };
    let mut fibers = Vec::new();
    for _ in 0..2 {
        fibers.push(pool.spawn_on(0, holds));
        fibers.extend(pool.trustees().iter().map(|trustee| spawn_on(trustee, holds)));
    }
    fibers.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
    let sum = pool.spawn_on(0, || *LATCH.with(Rc::clone).lock()).join().expect("it does not panic");
    assert_eq!(sum, 6 * rounds);
}

/// A promise that a trustee has made is awaited and dropped by fibers of its worker.
#[test]
fn a_promise_of_one_trustee_is_awaited_and_dropped_by_another() {
    watchdog!();
    thread_local!(static PENDING: RefCell<Option<Pending<u64>>> = const { RefCell::new(None) });
    let pool = pool(2, 1);
    let value = pool.entrust(None::<Promise<u64>>);
    let makes = |value: &Trust<Option<Promise<u64>>>| {
        value.apply(|kept| {
            let (promise, pending) = trust::promise();
            *kept = Some(promise);
            PENDING.set(Some(pending));
        });
    };
    makes(&value);
    let awaited = pool.spawn_on(0, || PENDING.take().expect("it was made").wait());
    thread::sleep(Duration::from_millis(10));
    value.apply(|kept| kept.take().expect("it was made").keep(7));
    assert_eq!(awaited.join().expect("it does not panic"), Ok(7));

    makes(&value);
    let asked = ask_to_move(&pool, 0, 1);
    wait_until("it has an outcome", || asked.outcome().is_some());
    assert_eq!(asked.outcome(), Some(Err(Some(Bound::Answers))));
    pool.spawn_on(0, || drop(PENDING.take())).join().expect("it does not panic");
    let moves = || {
        let asked = ask_to_move(&pool, 0, 1);
        wait_until("it has an outcome", || asked.outcome().is_some());
        asked.outcome() == Some(Ok(()))
    };
    wait_until("it moves", moves);
    assert!(value.apply(|kept| kept.is_some()));
}

/// A value whose destructor asks the own trustee of the worker: the end of the pool serves both.
#[test]
fn the_end_of_a_trustee_serves_its_worker() {
    watchdog!();
    struct Asks(Trust<u64>, Arc<AtomicU64>);
    impl Drop for Asks {
        fn drop(&mut self) {
            let told = Arc::clone(&self.1);
            self.0.apply_then(
                |value| *value += 1,
                move |()| {
                    told.fetch_add(1, Ordering::Relaxed);
                },
            );
        }
    }
    let start = Instant::now();
    let told = Arc::new(AtomicU64::new(0));
    let pool = pool(1, 2);
    let own = pool.spawn_on(0, || local_trustee().entrust(0)).join().expect("it does not panic");
    let asks = pool.trustees()[1].entrust(Asks(own, Arc::clone(&told)));
    asks.apply(|_| ());
    drop(pool);
    assert_eq!(told.load(Ordering::Relaxed), 1);
    assert!(start.elapsed() < limits::bound(Duration::from_secs(3)));
}
