//! `apply` and `apply_then` between threads: the waiters, and the order of events.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use common::{serve_until, stand_until};
use fastrand::Rng;
use trust::{Shared, Threadpool, Trust};

fn pool() -> Threadpool {
    Threadpool::builder().workers(2).pin(false).build()
}

#[test]
fn apply_blocks_the_fiber_and_not_the_worker() {
    let _watch = watchdog!();
    let pool = pool();
    let property = pool.trustees()[1].entrust(0);
    let ran = Shared::new(AtomicBool::new(false));
    let held = ran.clone();
    let waiting = pool.spawn_on(0, move || {
        property.apply(move |v| {
            stand_until(|| held.load(Ordering::SeqCst));
            *v += 1;
            *v
        })
    });
    // This fiber is on the worker of the one that waits; only if that worker runs does the wait end.
    let other = pool.spawn_on(0, move || ran.store(true, Ordering::SeqCst));
    other.join().unwrap();
    assert_eq!(waiting.join().unwrap(), 1);
}

#[test]
fn a_plain_thread_serves_its_trustee_while_it_applies() {
    let _watch = watchdog!();
    let pool = pool();
    let here = trust::local_trustee().entrust(1);
    let there = pool.entrust(10);
    let sum = there.clone();
    let fiber = pool.spawn(move || {
        let mut total = 0;
        for _ in 0..100 {
            total += here.apply(|v| *v) + sum.apply(|v| *v);
        }
        total
    });
    for _ in 0..100 {
        there.apply(|_| ());
    }
    assert_eq!(fiber.join().unwrap(), 1100);
}

#[test]
fn apply_then_does_not_wait_for_its_result() {
    let _watch = watchdog!();
    let pool = pool();
    let property = pool.entrust(0);
    let go = Shared::new(AtomicBool::new(false));
    let seen = Rc::new(Cell::new(0));
    let held = go.clone();
    property.apply_then(move |_| stand_until(|| held.load(Ordering::SeqCst)), |()| ());
    for _ in 0..3 {
        let seen = Rc::clone(&seen);
        property.apply_then(|v| *v += 1, move |()| seen.set(seen.get() + 1));
    }
    assert_eq!(seen.get(), 0, "no result can have come: the trustee is held up");
    go.store(true, Ordering::SeqCst);
    serve_until(|| seen.get() == 3);
    assert_eq!(property.apply(|v| *v), 3);
}

#[test]
fn then_runs_on_the_client_thread_and_may_own_what_is_not_send() {
    let _watch = watchdog!();
    let pool = pool();
    let property = pool.entrust(7);
    let me = thread::current().id();
    let seen: Rc<RefCell<Vec<i32>>> = Rc::default();
    for _ in 0..100 {
        let seen = Rc::clone(&seen);
        property.apply_then(
            |v| {
                *v += 1;
                *v
            },
            move |v| {
                assert_eq!(thread::current().id(), me);
                seen.borrow_mut().push(v);
            },
        );
    }
    property.apply(|_| ());
    assert_eq!(*seen.borrow(), (8..108).collect::<Vec<_>>());
}

/// Requests of every kind, mixed at random; the property is the log of their order.
fn mixed_requests(log: &Trust<Vec<u32>>, from: u32, count: u32, seed: u64) {
    let mut random = Rng::with_seed(seed);
    let answered = Rc::new(Cell::new(0));
    for number in from..from + count {
        let answered_then = Rc::clone(&answered);
        let then = move |at: usize| {
            answered_then.set(answered_then.get() + 1);
            assert!(at > 0);
        };
        let push = move |log: &mut Vec<u32>| {
            log.push(number);
            log.len()
        };
        match random.usize(..20) {
            0 => then(log.apply(push)),
            1 => then(log.apply_with(
                |log, number: u32| {
                    log.push(number);
                    log.len()
                },
                number,
            )),
            2 => log
                .call()
                .with(vec![number])
                .apply(|log, number: Vec<u32>| {
                    log.extend(number);
                    log.len()
                })
                .then(move |result| then(result.unwrap())),
            3 => {
                let padding = [number; 60];
                log.apply_then(
                    move |log| {
                        log.push(padding[59]);
                        log.len()
                    },
                    then,
                );
            }
            4 => drop(log.clone()),
            _ => log.apply_then(push, then),
        }
        if random.usize(..100) == 0 {
            trust::yield_now();
        }
    }
    log.apply(|_| ());
}

/// Checks at the trustee: a vector does not travel.
fn expect_order(log: &[u32], fibers: u32) {
    for fiber in 0..fibers {
        let own: Vec<u32> = log.iter().copied().filter(|number| number / 1_000_000 == fiber).collect();
        assert!(own.is_sorted(), "requests of one client ran out of order");
        assert!(own.len() > 1000);
    }
}

#[test]
fn requests_of_one_client_run_in_order() {
    let _watch = watchdog!();
    let pool = pool();
    for seed in 0..5 {
        let log = pool.entrust(Vec::new());
        mixed_requests(&log, 0, 3_000, seed);
        log.apply(|log| expect_order(log, 1));
    }
}

#[test]
fn requests_of_each_of_many_fibers_run_in_order() {
    let _watch = watchdog!();
    let pool = pool();
    let log = pool.trustees()[1].entrust(Vec::new());
    let fibers: Vec<_> = (0..8)
        .map(|fiber| {
            let log = log.clone();
            pool.spawn_on(0, move || mixed_requests(&log, fiber * 1_000_000, 1_500, u64::from(fiber)))
        })
        .collect();
    for fiber in fibers {
        fiber.join().unwrap();
    }
    log.apply(|log| expect_order(log, 8));
}

#[test]
fn apply_then_is_legal_inside_closures_and_queues_there_in_order() {
    let _watch = watchdog!();
    const COUNT: u32 = 20_000;
    let pool = pool();
    let log = pool.trustees()[1].entrust(Vec::<u32>::new());
    let relay = pool.trustees()[0].entrust(log.clone());
    let answered = Shared::new(AtomicUsize::new(0));
    let count = answered.clone();
    // Far more than the slots hold, all in one delegated closure: nothing may wait there.
    relay.apply(move |log| {
        for number in 0..COUNT {
            let count = count.clone();
            log.apply_then(
                move |log| log.push(number),
                move |()| {
                    count.fetch_add(1, Ordering::SeqCst);
                },
            );
        }
    });
    serve_until(|| answered.load(Ordering::SeqCst) == COUNT as usize);
    log.apply(|log| assert!(log.iter().copied().eq(0..COUNT), "queued requests ran out of order"));
    let queued = trust::stats(pool.trustees()[0]).unwrap().requests_queued;
    assert!(queued > 0, "the slots cannot hold {COUNT} requests");
}

#[test]
fn callbacks_of_the_own_trustee_come_in_order_too() {
    thread_local!(static SEEN: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) });
    let outer = trust::local_trustee().entrust(());
    let inner = outer.clone();
    let see = |number| SEEN.with_borrow_mut(|seen| seen.push(number));
    outer.apply_then(move |()| inner.apply_then(|()| (), move |()| see(2)), move |()| see(1));
    assert_eq!(SEEN.take(), [1, 2]);
}

#[test]
fn what_follows_queued_requests_runs_behind_them() {
    let _watch = watchdog!();
    let pool = pool();
    let log = pool.trustees()[1].entrust(Vec::<u32>::new());
    let here = trust::local_trustee().entrust(());
    for round in 0..20 {
        let inside = log.clone();
        here.apply(move |()| {
            for number in 0..500 {
                inside.apply_then(move |log| log.push(number), |()| ());
            }
        });
        log.apply_then(|log| log.push(500), |()| ());
        log.apply(|log| log.push(501));
        log.apply(move |log| {
            assert!(log.iter().copied().eq(0..502), "round {round}: {:?}", log.len());
            log.clear();
        });
    }
}

#[test]
fn a_callback_may_delegate_on() {
    let _watch = watchdog!();
    fn hop(a: Trust<u32>, b: Trust<u32>, left: u32, done: Rc<Cell<bool>>) {
        if left == 0 {
            return done.set(true);
        }
        let next = b.clone();
        a.clone().apply_then(|v| *v += 1, move |()| hop(next, a, left - 1, done));
    }
    let pool = pool();
    let (a, b) = (pool.entrust(0), pool.entrust(0));
    let done = Rc::new(Cell::new(false));
    hop(a.clone(), b.clone(), 1000, Rc::clone(&done));
    serve_until(|| done.get());
    assert_eq!((a.apply(|v| *v), b.apply(|v| *v)), (500, 500));
}

#[test]
fn outside_closures_a_full_pending_queue_lets_other_fibers_run() {
    let _watch = watchdog!();
    let pool = pool();
    let property = pool.trustees()[1].entrust(0u64);
    let go = Shared::new(AtomicBool::new(false));
    let held = go.clone();
    let flood = property.clone();
    let flooding = pool.spawn_on(0, move || {
        flood.apply_then(move |_| stand_until(|| held.load(Ordering::SeqCst)), |()| ());
        for _ in 0..10_000 {
            flood.apply_then(|v| *v += 1, |()| ());
        }
        trust::stats(trust::local_trustee()).unwrap().requests_queued
    });
    // Runs only if the flood gives the worker up; ends it only then.
    pool.spawn_on(0, move || go.store(true, Ordering::SeqCst)).join().unwrap();
    assert_eq!(flooding.join().unwrap(), 0, "a caller that may wait does not queue");
    assert_eq!(
        pool.spawn_on(0, {
            let p = property.clone();
            move || p.apply(|v| *v)
        })
        .join()
        .unwrap(),
        10_000
    );
}

#[test]
fn trap_02_a_callback_outlives_its_caller() {
    let _watch = watchdog!();
    let pool = pool();
    let property = pool.entrust(5);
    let seen = Rc::new(Cell::new(0));
    fn ask(property: &Trust<i32>, seen: &Rc<Cell<i32>>) {
        let local = [property.clone(), property.clone()];
        let see = Rc::clone(seen);
        property.apply_then(|v| *v, move |v| see.set(v + local.len() as i32));
    }
    ask(&property, &seen);
    drop(property);
    serve_until(|| seen.get() == 7);
}
