//! `wait_all`: it suspends, it waits for all requests sent before and for nothing else, with any outcome of them.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::{join_and_serve, serve_until};
use trust::{Latch, Shared, Threadpool, Trust, local_trustee, spawn, stats, wait_all};

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

fn counters(pool: &Threadpool) -> Vec<Trust<u64>> {
    pool.trustees().iter().map(|trustee| trustee.entrust(0)).collect()
}

/// Sends to each in turn and waits for all. Returns the number of callbacks that had run by then.
fn send_and_wait(counters: &[Trust<u64>], each: u64) -> u64 {
    let answers = Rc::new(Cell::new(0));
    for _ in 0..each {
        for counter in counters {
            let answers = Rc::clone(&answers);
            counter.apply_then(|count| *count += 1, move |()| answers.set(answers.get() + 1));
        }
    }
    wait_all();
    answers.get()
}

#[test]
fn every_callback_has_run_when_it_returns() {
    let _watch = watchdog!();
    wait_all(); // nothing was sent
    let pool = pool(3);
    let mut counters = counters(&pool);
    counters.push(local_trustee().entrust(0));
    let total = 4 * 700;
    assert_eq!(send_and_wait(&counters, 700), total, "a thread of its own");
    wait_all();
    let fibers: Vec<_> = (0..12)
        .map(|fiber| {
            let counters = counters.clone();
            // Several to a worker: each has its own requests, and is not woken for those of others only.
            pool.spawn_on(fiber % 2, move || (0..5).map(|_| send_and_wait(&counters, 140)).sum::<u64>())
        })
        .collect();
    fibers.into_iter().for_each(|fiber| assert_eq!(fiber.join().unwrap(), total));
    assert!(counters.iter().all(|counter| counter.apply(|count| *count) == 700 * 13));
}

#[test]
fn it_sleeps_while_it_waits() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(2).pin(false).spin(Duration::ZERO).build();
    let latch = pool.trustees()[1].entrust(Latch::new(0));
    let slow = move || {
        let before = stats(local_trustee()).unwrap();
        let came = Rc::new(Cell::new(false));
        let answered = Rc::clone(&came);
        latch.launch_then(|_| trust::sleep(Duration::from_millis(100)), move |()| answered.set(true));
        wait_all();
        assert!(came.get());
        stats(local_trustee()).unwrap().since(&before)
    };
    let done = pool.spawn_on(0, slow).join().unwrap();
    assert!(done.parked_ns > 50_000_000 && done.polls < 1000 && done.fiber_switches < 100, "{done}");
}

#[test]
fn what_is_sent_meanwhile_does_not_prolong_it() {
    let _watch = watchdog!();
    let pool = pool(2);
    let counter = pool.trustees()[1].entrust(0u64);
    pool.spawn_on(0, move || {
        let stop = Rc::new(Cell::new(false));
        let (stopped, busy) = (Rc::clone(&stop), counter.clone());
        // At each moment some request of this thread is active.
        let sender = spawn(move || {
            while !stopped.get() {
                (0..100).for_each(|_| busy.apply_then(|count| *count += 1, |()| ()));
                trust::yield_now();
            }
        });
        for _ in 0..100 {
            assert_eq!(send_and_wait(std::slice::from_ref(&counter), 10), 10);
        }
        stop.set(true);
        sender.join().unwrap();
    })
    .join()
    .unwrap();
}

/// One may end only when the other goes on.
#[test]
fn launches_of_other_fibers_are_not_waited_for() {
    let _watch = watchdog!();
    let pool = pool(2);
    let latch = pool.trustees()[1].entrust(Latch::new(0));
    let counter = pool.trustees()[1].entrust(0u64);
    let go = Shared::new(AtomicBool::new(false));
    pool.spawn_on(0, move || {
        let ends_when_told = go.clone();
        let launched = spawn(move || {
            latch.launch(move |_| {
                while !ends_when_told.load(Ordering::Relaxed) {
                    trust::sleep(Duration::from_millis(1));
                }
            });
        });
        trust::yield_now();
        assert_eq!(send_and_wait(std::slice::from_ref(&counter), 10), 10);
        assert!(!launched.is_finished());
        go.store(true, Ordering::Relaxed);
        launched.join().unwrap();
    })
    .join()
    .unwrap();
}

/// The thread's own code asked for one of them, a callback for the other, which ends only when that code goes on.
#[test]
fn launches_of_callbacks_are_not_waited_for() {
    let _watch = watchdog!();
    let pool = pool(1);
    let latch = pool.entrust(Latch::new(0));
    let counter = pool.entrust(0u64);
    let go = Shared::new(AtomicBool::new(false));
    let thread = thread::spawn(move || {
        let ended = Rc::new(Cell::new(false));
        let (ends_when_told, sees_it) = (go.clone(), Rc::clone(&ended));
        counter.apply_then(
            |count| *count += 1,
            move |()| {
                let waits = move |_: &mut i32| {
                    while !ends_when_told.load(Ordering::Relaxed) {
                        trust::sleep(Duration::from_millis(1));
                    }
                };
                latch.launch_then(waits, move |()| sees_it.set(true));
            },
        );
        wait_all();
        wait_all();
        assert!(!ended.get(), "it was launched, and is waited for by nobody");
        go.store(true, Ordering::Relaxed);
        serve_until(|| ended.get());
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// More than one thread may have active, so that the fiber waits for some in between.
#[test]
fn all_its_own_launches_are_waited_for() {
    const LAUNCHES: usize = 5000;
    let _watch = watchdog!();
    let pool = pool(2);
    let latch = pool.trustees()[1].entrust(Latch::new(0));
    let launch_all = move || {
        let ended = Rc::new(Cell::new(0));
        for _ in 0..LAUNCHES {
            let ended = Rc::clone(&ended);
            latch.launch_then(
                |count| {
                    trust::yield_now();
                    *count += 1;
                },
                move |()| ended.set(ended.get() + 1),
            );
        }
        wait_all();
        ended.get()
    };
    assert_eq!(launch_all.clone()(), LAUNCHES, "a thread of its own");
    assert_eq!(pool.spawn_on(0, launch_all).join().unwrap(), LAUNCHES);
}

#[test]
fn a_fiber_with_too_many_launches_under_way_sleeps() {
    /// Most launches of one thread at a time.
    const LAUNCHES: usize = 4096;
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(2).pin(false).spin(Duration::ZERO).build();
    let latch = pool.trustees()[1].entrust(Latch::new(0));
    let go = Shared::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let first = go.clone();
    let fiber = pool.spawn_on(0, move || {
        latch.launch_then(
            move |_| {
                while !first.load(Ordering::Relaxed) {
                    trust::sleep(Duration::from_millis(1));
                }
            },
            |()| (),
        );
        (1..LAUNCHES).for_each(|_| latch.launch_then(|count| *count += 1, |()| ()));
        let before = stats(local_trustee()).unwrap();
        tell.send(()).unwrap();
        latch.launch_then(|count| *count += 1, |()| ());
        stats(local_trustee()).unwrap().since(&before)
    });
    told.recv().unwrap();
    // Not for synchronisation: there is no place for this long.
    thread::sleep(Duration::from_millis(100));
    go.store(true, Ordering::Relaxed);
    let done = fiber.join().unwrap();
    assert!(done.parked_ns > 50_000_000 && done.fiber_switches < 100 && done.polls < 1000, "{done}");
}

#[test]
fn panics_end_the_wait_as_answers_do() {
    let _watch = watchdog!();
    let pool = pool(2);
    let (there, poisoned) = (pool.trustees()[1].entrust(0u64), pool.trustees()[1].entrust(0u64));
    let latch = pool.trustees()[1].entrust(Latch::new(0));
    let outcome = pool.spawn_on(0, move || {
        let ran = Rc::new(Cell::new(0));
        let ends = |ran: &Rc<Cell<u64>>| {
            let ran = Rc::clone(ran);
            move |()| ran.set(ran.get() + 1)
        };
        poisoned.apply_then(|_| panic!("a closure of this test"), |()| ());
        there.apply_then(|_| (), |()| panic!("a callback of this test"));
        there.apply_then(|_| (), ends(&ran));
        poisoned.apply_then(|_| (), |()| unreachable!("it is poisoned"));
        wait_all();
        assert_eq!(ran.get(), 1);
        latch.launch_then(|_| (), |()| panic!("the callback of a launch of this test"));
        wait_all();
        latch.launch_then(|_| panic!("a launched closure of this test"), |()| ());
        wait_all();
        there.apply_then(|_| (), ends(&ran));
        wait_all();
        ran.get()
    });
    assert_eq!(outcome.join().unwrap(), 2);
}

/// A thread that has not served ends while others wait for it: it serves them last, or refuses.
#[test]
fn a_trustee_that_goes_ends_the_wait() {
    let _watch = watchdog!();
    let pool = pool(1);
    let (tell, told) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let trustee = thread::spawn(move || {
        tell.send(local_trustee().entrust(0u64)).unwrap();
        ended.recv().unwrap();
    });
    let gone: Trust<u64> = told.recv().unwrap();
    let last = gone.clone();
    let waits = move || {
        last.apply_then(|count| *count += 1, |()| ());
        wait_all();
    };
    let waiting = pool.spawn(waits.clone());
    let alone = thread::spawn(waits);
    // It is not to end before they wait for it, or they would have an easy time.
    serve_until(|| stats(pool.trustees()[0]).unwrap().requests_sent > 0);
    assert!(!waiting.is_finished());
    end.send(()).unwrap();
    waiting.join().unwrap();
    join_and_serve(alone);
    join_and_serve(trustee);
    gone.apply_then(|count| *count += 1, |()| unreachable!("its trustee is gone"));
    wait_all();
}

#[test]
fn a_thread_that_has_sent_nothing_has_nothing_to_wait_for() {
    let _watch = watchdog!();
    thread::spawn(|| {
        wait_all();
        wait_all();
    })
    .join()
    .unwrap();
}
