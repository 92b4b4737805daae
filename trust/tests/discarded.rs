//! Unwanted values whose destructors panic or wait: of fibers that are not joined, of launched closures, of closures
//! that never run, of futures. The thread that drops them goes on, and so do waiters for other things.

mod common;

use std::future::Future;
use std::panic::panic_any;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::Duration;

use common::{Drops, PanicsOnDrop, join_and_serve, panic_of, serve_until, stand_until};
use trust::{Error, Latch, Shared, Threadpool, Trust, local_trustee};

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

/// Lets go of the handle before the fiber has run, so that its value is discarded by the fiber.
fn discard<R: Send + 'static>(pool: &Threadpool, f: impl FnOnce() -> R + Send + 'static) {
    let (send, receive) = mpsc::channel();
    let fiber = pool.spawn_on(0, move || {
        receive.recv().unwrap();
        f()
    });
    drop(fiber);
    send.send(()).unwrap();
}

#[test]
fn trap_07_a_discarded_result_that_panics_leaves_its_worker_at_work() {
    let _watch = watchdog!();
    let pool = pool(1);
    let asked = pool.entrust(1);
    for _ in 0..3 {
        discard(&pool, || PanicsOnDrop(true));
        assert_eq!(asked.call().apply(|n| *n).wait(), Ok(1));
    }
    // A panic whose payload panics when it is dropped, and a capture that does.
    discard(&pool, || panic_any(PanicsOnDrop(true)));
    let bomb = PanicsOnDrop(true);
    discard(&pool, move || {
        let _used = &bomb;
    });
    assert_eq!(asked.call().apply(|n| *n).wait(), Ok(1));
    drop(pool);
}

/// On the thread that waits for something else.
#[test]
fn trap_07_so_does_one_of_a_thread_s_own_fibers() {
    let _watch = watchdog!();
    let pool = pool(1);
    let asked = pool.entrust(1);
    let go = Shared::new(AtomicBool::new(false));
    let goes = go.clone();
    drop(trust::spawn_on(&local_trustee(), || PanicsOnDrop(true)));
    drop(trust::spawn(move || {
        goes.store(true, Ordering::SeqCst);
        PanicsOnDrop(true)
    }));
    asked.apply(move |_| stand_until(|| go.load(Ordering::SeqCst)));
    assert_eq!(trust::spawn(|| 2).join().unwrap(), 2);
}

#[test]
fn a_discarded_result_may_wait_when_it_is_dropped() {
    struct Waits(Trust<u32>, trust::JoinHandle<()>);
    impl Drop for Waits {
        fn drop(&mut self) {
            trust::yield_now();
            assert!(self.1.is_finished());
            self.0.apply(|n| *n += 1);
            trust::sleep(Duration::from_millis(1));
            self.0.apply(|n| *n += 1);
        }
    }
    let _watch = watchdog!();
    let (pool, other) = (pool(1), pool(1));
    let counted = other.entrust(0);
    for _ in 0..10 {
        let client = counted.clone();
        // The fiber that it starts stands behind it, and runs while it waits.
        discard(&pool, move || Waits(client, trust::spawn(|| ())));
    }
    serve_until(|| counted.apply(|n| *n) == 20);
    drop(pool);
    assert_eq!(counted.apply(|n| *n), 20);
}

#[test]
fn trap_07_a_launched_closure_s_result_that_panics_when_it_is_dropped() {
    let _watch = watchdog!();
    let pool = pool(2);
    let latch = pool.trustees()[0].entrust(Latch::new(1));
    let callbacks = Arc::new(AtomicUsize::new(0));
    let (first, counted) = (latch.clone(), Arc::clone(&callbacks));
    let client = move || {
        let counted = Arc::clone(&counted);
        first.launch_then(
            |_| PanicsOnDrop(true),
            move |_bomb| {
                counted.fetch_add(1, Ordering::SeqCst);
            },
        );
    };
    // From the trustee itself, and from another worker.
    pool.spawn_on(0, client.clone()).join().unwrap();
    pool.spawn_on(1, client).join().unwrap();
    serve_until(|| callbacks.load(Ordering::SeqCst) == 2);
    assert_eq!(latch.launch(|n| *n), 1);
    drop(latch);
    drop(pool);
}

/// Takes some seconds: as long as the client's thread waits for the result. The property goes all the same.
#[test]
fn trap_07_nor_does_one_whose_client_is_not_there_any_more_keep_the_property() {
    let _watch = watchdog!();
    let (pool, drops) = (pool(1), Drops::default());
    let latch = pool.entrust(Latch::new(drops.value(())));
    let go = Shared::new(AtomicBool::new(false));
    let (goes, launched) = (go.clone(), latch.clone());
    let client = thread::spawn(move || {
        launched.launch_then(
            move |_| {
                while !goes.load(Ordering::SeqCst) {
                    trust::sleep(Duration::from_millis(1));
                }
                PanicsOnDrop(true)
            },
            |_| (),
        );
    });
    join_and_serve(client);
    go.store(true, Ordering::SeqCst);
    latch.launch(|_| ());
    drop(latch);
    serve_until(|| drops.count() == 1);
}

/// A closure that is launched on a poisoned property does not run. Its captures panic; its client is notified of the
/// poison, and can end.
#[test]
fn captures_that_panic_do_not_hide_that_a_latch_is_poisoned() {
    let _watch = watchdog!();
    let pool = pool(2);
    let latch = pool.trustees()[0].entrust(Latch::new(0));
    assert!(latch.call().apply(|_| panic!("poison")).wait().is_err());
    for client in [0, 1] {
        let latch = latch.clone();
        let told = pool.spawn_on(client, move || {
            let bomb = PanicsOnDrop(true);
            let waits = panic_of(|| {
                latch.launch(move |_| {
                    let _used = &bomb;
                })
            });
            let bomb = PanicsOnDrop(true);
            latch.launch_then(
                move |_| {
                    let _used = &bomb;
                },
                |()| panic!("there is no result"),
            );
            waits
        });
        let told = told.join().unwrap();
        assert!(told.contains("poisoned") && told.contains("(poison)"), "{told}");
    }
    drop(latch);
    drop(pool);
}

/// As before, for closures that stand in line when the holder of the value poisons it.
#[test]
fn nor_do_captures_of_closures_that_wait_for_the_value() {
    let _watch = watchdog!();
    let pool = pool(2);
    let latch = pool.trustees()[0].entrust(Latch::new(0));
    let go = Shared::new(AtomicBool::new(false));
    let (poisons, goes, runs) = (latch.clone(), go.clone(), Shared::new(AtomicBool::new(false)));
    let running = runs.clone();
    let first = pool.spawn_on(1, move || {
        panic_of(|| {
            poisons.launch(move |_| {
                runs.store(true, Ordering::SeqCst);
                while !goes.load(Ordering::SeqCst) {
                    trust::yield_now();
                }
                panic!("poison");
            })
        })
    });
    serve_until(|| running.load(Ordering::SeqCst));
    let spawned = trust::stats(pool.trustees()[0]).unwrap().fibers_spawned;
    let behind = [0, 1, 0, 1].map(|client| {
        let latch = latch.clone();
        let bomb = PanicsOnDrop(true);
        pool.spawn_on(client, move || {
            panic_of(|| {
                latch.launch(move |_| {
                    let _used = &bomb;
                })
            })
        })
    });
    // Two clients there, and four that stand in line.
    serve_until(|| trust::stats(pool.trustees()[0]).unwrap().fibers_spawned == spawned + 6);
    go.store(true, Ordering::SeqCst);
    assert_eq!(first.join().unwrap(), "poison");
    for told in behind.map(|fiber| fiber.join().unwrap()) {
        assert!(told.contains("poisoned"), "{told}");
    }
    // The value is back.
    latch.clear_poison();
    assert_eq!(latch.launch(|n| *n), 0);
    drop(latch);
    drop(pool);
}

/// Panics when it is woken; never holds anything.
fn panicking_waker() -> Waker {
    const TABLE: RawWakerVTable = RawWakerVTable::new(
        |_| RawWaker::new(std::ptr::null(), &TABLE),
        |_| panic!("wake"),
        |_| panic!("wake by reference"),
        |_| (),
    );
    #[expect(unsafe_code, reason = "a waker that misbehaves")]
    // SAFETY: the table's functions do nothing with the pointer.
    unsafe {
        Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE))
    }
}

#[test]
fn a_waker_that_panics_leaves_the_trustee_at_work() {
    let _watch = watchdog!();
    let pool = pool(1);
    let asked = pool.entrust(1);
    let waker = panicking_waker();
    for poisoned in [false, true] {
        let (go, goes) = (Shared::new(AtomicBool::new(false)), Shared::new(AtomicBool::new(false)));
        let (waits, begins) = (go.clone(), goes.clone());
        asked
            .call()
            .apply(move |_| {
                begins.store(true, Ordering::SeqCst);
                stand_until(|| waits.load(Ordering::SeqCst));
                assert!(!poisoned, "poison");
            })
            .then(|_| ());
        serve_until(|| goes.load(Ordering::SeqCst));
        // On a poisoned property the closure is dropped unrun, and its captures panic: so the waker is woken in an
        // unwinding.
        let bomb = PanicsOnDrop(poisoned);
        let mut future = asked
            .call()
            .apply(move |n| {
                let _used = &bomb;
                *n
            })
            .into_future();
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        go.store(true, Ordering::SeqCst);
        let next = asked.call().apply(|n| *n).wait();
        assert!(if poisoned { matches!(next, Err(Error::Poisoned { .. })) } else { next == Ok(1) }, "{next:?}");
        let outcome = loop {
            if let Poll::Ready(outcome) = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
                break outcome;
            }
            trust::yield_now();
        };
        assert_eq!(outcome.is_err(), poisoned, "{outcome:?}");
    }
    drop(pool);
}

/// Notes whether it could wait where it was dropped.
struct Asks([u8; 1_000]);

static ASKS_DROPPED: AtomicUsize = AtomicUsize::new(0);
static COULD_WAIT: AtomicUsize = AtomicUsize::new(0);

impl Drop for Asks {
    fn drop(&mut self) {
        COULD_WAIT.fetch_add(usize::from(trust::may_wait()), Ordering::SeqCst);
        ASKS_DROPPED.fetch_add(1 + usize::from(self.0[7]), Ordering::SeqCst);
    }
}

/// Sends a closure on a poisoned property, which will not run.
fn send_to_poisoned(to: &Trust<u32>) {
    let asks = Asks([0; 1_000]);
    let never = move |_: &mut u32| {
        let _used = &asks;
    };
    to.call().apply(never).then(|outcome| assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}"));
}

/// Where a closure was put off, or came from an async program, its captures are dropped in the loop of a worker: a
/// destructor that waited there would hang it.
#[test]
fn trap_01_captures_of_closures_that_do_not_run_cannot_wait_in_the_loop() {
    let _watch = watchdog!();
    let own = local_trustee().entrust(0);
    assert!(own.call().apply(|_| panic!("poison")).wait().is_err());
    let outer = local_trustee().entrust(own.clone());
    outer.apply(|own| send_to_poisoned(own));
    assert_eq!(ASKS_DROPPED.load(Ordering::SeqCst), 1);
    let pool = pool(1);
    let there = pool.entrust(0);
    assert!(there.call().apply(|_| panic!("poison")).wait().is_err());
    let asks = Asks([0; 1_000]);
    drop(there.apply_async(move |_| {
        let _used = &asks;
    }));
    serve_until(|| ASKS_DROPPED.load(Ordering::SeqCst) == 2);
    // In a fiber, whose stack is small, from inside a closure of its own trustee.
    let fiber = pool.spawn(move || {
        let outer = local_trustee().entrust(there);
        outer.apply(|there| send_to_poisoned(there));
    });
    fiber.join().unwrap();
    assert_eq!(ASKS_DROPPED.load(Ordering::SeqCst), 3);
    assert_eq!(COULD_WAIT.load(Ordering::SeqCst), 0);
}

/// A capture that panics there leaves the worker at work, and its client is notified all the same.
#[test]
fn trap_07_nor_does_a_panic_of_them_hide_that_the_property_is_poisoned() {
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let _watch = watchdog!();
    let own = local_trustee().entrust(0);
    assert!(own.call().apply(|_| panic!("poison")).wait().is_err());
    let outer = local_trustee().entrust(own);
    outer.apply(|own: &mut Trust<i32>| {
        let bomb = PanicsOnDrop(true);
        let never = move |_: &mut i32| {
            let _used = &bomb;
        };
        own.call().apply(never).then(|outcome| {
            assert!(matches!(outcome, Err(Error::Poisoned { .. })));
            TOLD.fetch_add(1, Ordering::SeqCst);
        });
    });
    assert_eq!(TOLD.load(Ordering::SeqCst), 1);
}
