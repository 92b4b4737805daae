//! Ends of threads that others have trusts of, and of clients with requests in flight: each request is served or
//! refused, once, and no thread hangs.

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use common::{Drops, PanicsOnDrop, Server, join_and_serve, panic_of, serve_until, stand_until};
use fastrand::Rng;
use trust::{Error, Latch, Shared, Threadpool, Trust, local_trustee};

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

/// A trust whose trustee has ended.
fn orphan<T: Send + 'static>(value: T) -> Trust<T> {
    thread::spawn(|| local_trustee().entrust(value)).join().unwrap()
}

#[test]
fn trap_06_every_call_through_a_trust_of_a_gone_trustee_gives_an_error() {
    let _watch = watchdog!();
    let drops = Drops::default();
    let gone = orphan(drops.value(vec![1u8]));
    assert_eq!(drops.count(), 1, "a trustee's properties go with it");
    assert!(matches!(gone.call().apply(|v| v.value.len()).wait(), Err(Error::Gone { .. })));
    for text in [panic_of(|| gone.apply(|v| v.value.len())), panic_of(|| gone.apply_with(|_, ()| (), ()))] {
        assert!(text.contains("gone") && text.contains("Vec<u8>"), "{text}");
    }
    let told = Rc::new(Cell::new(0));
    let tell = Rc::clone(&told);
    gone.call().apply(|_| ()).then(move |outcome| {
        assert!(matches!(outcome, Err(Error::Gone { .. })));
        tell.set(tell.get() + 1);
    });
    gone.apply_then(|_| (), |()| panic!("there is no result"));
    gone.call().with(()).apply(|_, ()| ()).then(|result| assert!(matches!(result, Err(Error::Gone { .. }))));
    serve_until(|| told.get() == 1);
    gone.clear_poison();
    drop(gone.clone());
    // Captures are dropped unrun.
    let (captured, canary) = (Drops::default(), Shared::new(Mutex::new(None)));
    *canary.lock().unwrap() = Some(captured.value(()));
    assert!(gone.call().apply(move |_| drop(canary)).wait().is_err());
    assert_eq!(captured.count(), 1);
    let trustee = gone.trustee();
    drop(gone);
    drop(trustee.entrust(drops.value(Vec::<u8>::new())));
    assert_eq!(drops.count(), 2, "a value that no trustee took is dropped");
    assert!(trust::stats(trustee).is_none());
    assert!(common::text(&*trust::spawn_on(&trustee, || ()).join().unwrap_err()).contains("ended"));
    let latch = orphan(Latch::new(1));
    assert!(panic_of(|| latch.launch(|v| *v)).contains("gone"));
    latch.launch_then(|v| *v, |_| panic!("there is no result"));
}

/// Clients hammer a trustee that ends: each request is either run and answered, or refused and not run.
#[test]
fn trap_06_requests_to_an_exiting_thread_are_served_or_refused() {
    let _watch = watchdog!();
    struct Served(u64, Arc<AtomicU64>);
    impl Drop for Served {
        fn drop(&mut self) {
            self.1.fetch_add(self.0, Ordering::SeqCst);
        }
    }
    const ROUNDS: u64 = if cfg!(debug_assertions) { 150 } else { 1500 };
    let pool = pool(2);
    let (mut refused, mut accepted) = (0, 0);
    for round in 0..ROUNDS {
        let (served, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (send, receive) = mpsc::channel();
        let (of_thread, stopped) = (Arc::clone(&served), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            send.send(local_trustee().entrust(Served(0, of_thread))).unwrap();
            serve_until(|| stopped.load(Ordering::SeqCst));
        });
        let property = receive.recv().unwrap();
        let fibers: Vec<_> = (0..4)
            .map(|fiber| {
                let (property, mut random) = (property.clone(), Rng::with_seed(round * 4 + fiber));
                pool.spawn(move || {
                    let (ok, gone) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)));
                    let mut asked = 0;
                    while gone.get() < 20 {
                        asked += 1;
                        let (ok, gone) = (Rc::clone(&ok), Rc::clone(&gone));
                        let note = move |outcome: Result<(), Error>| match outcome {
                            Ok(()) => ok.set(ok.get() + 1),
                            Err(Error::Gone { .. }) => gone.set(gone.get() + 1),
                            Err(other) => panic!("{other}"),
                        };
                        match random.usize(..4) {
                            0 => note(property.call().apply(|v| v.0 += 1).wait()),
                            1 => property.clone().call().apply(|v| v.0 += 1).then(note),
                            _ => property.call().apply(|v| v.0 += 1).then(note),
                        }
                        if asked % 64 == 0 {
                            trust::yield_now();
                        }
                    }
                    while ok.get() + gone.get() < asked {
                        trust::yield_now();
                    }
                    (ok.get(), gone.get())
                })
            })
            .collect();
        drop(property);
        for _ in 0..round % 50 {
            trust::yield_now();
        }
        stop.store(true, Ordering::SeqCst);
        let outcomes: Vec<_> = fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
        join_and_serve(thread);
        let ok: u64 = outcomes.iter().map(|outcome| outcome.0).sum();
        assert_eq!(served.load(Ordering::SeqCst), ok, "round {round}: run, but not answered, or the other way round");
        accepted += ok;
        refused += outcomes.iter().map(|outcome| outcome.1).sum::<u64>();
    }
    assert!(refused >= ROUNDS * 80 && accepted > 0);
}

#[test]
fn trap_06_fibers_that_wait_for_room_are_told_when_the_trustee_ends() {
    let _watch = watchdog!();
    let pool = pool(1);
    let server = Server::start();
    let property = server.trustee.entrust(0u64);
    let go = Shared::new(AtomicBool::new(false));
    let held = go.clone();
    property.apply_then(move |_| stand_until(|| held.load(Ordering::SeqCst)), |()| ());
    trust::yield_now();
    let answered = Shared::new(AtomicUsize::new(0));
    const FIBERS: usize = 50;
    const EACH: usize = 100;
    let fibers: Vec<_> = (0..FIBERS)
        .map(|_| {
            let (property, answered) = (property.clone(), answered.clone());
            pool.spawn(move || {
                for _ in 0..EACH {
                    let answered = answered.clone();
                    property.call().apply(|v| *v += 1).then(move |_| {
                        answered.fetch_add(1, Ordering::SeqCst);
                    });
                }
                property.call().apply(|_| ()).wait().is_ok()
            })
        })
        .collect();
    // By now the fibers stand in line: one that runs behind them all has run.
    pool.spawn(|| ()).join().unwrap();
    server.stop();
    go.store(true, Ordering::SeqCst);
    for fiber in fibers {
        let _ = fiber.join().unwrap();
    }
    assert_eq!(answered.load(Ordering::SeqCst), FIBERS * EACH);
    server.end();
}

#[test]
fn trap_06_what_a_client_asked_before_it_ended_is_done() {
    let _watch = watchdog!();
    let pool = pool(1);
    for asked in [1u64, 10, 1_000, 20_000] {
        let property = pool.entrust(0u64);
        let client = property.clone();
        thread::spawn(move || {
            let seen = Rc::new(Cell::new(0));
            for _ in 0..asked {
                let seen = Rc::clone(&seen);
                client.apply_then(|v| *v += 1, move |()| seen.set(seen.get() + 1));
            }
        })
        .join()
        .unwrap();
        assert_eq!(property.apply(|v| *v), asked);
    }
}

/// Requests that come while the trustee drops its properties are refused: those that have a slot by the trustee, the
/// rest by the client. Some have captures that panic when they are dropped.
#[test]
fn trap_06_refused_captures_are_dropped_once_and_may_panic() {
    let _watch = watchdog!();
    struct Slow(Shared<AtomicBool>, Shared<AtomicBool>);
    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
            stand_until(|| self.1.load(Ordering::SeqCst));
        }
    }
    for asked in [1usize, 2, 10, 100, 500] {
        let (in_drop, go) = (Shared::new(AtomicBool::new(false)), Shared::new(AtomicBool::new(false)));
        let server = Server::start();
        let property = server.trustee.entrust(0u64);
        let slow = server.trustee.entrust(Slow(in_drop.clone(), go.clone()));
        slow.apply(|_| ());
        server.stop();
        serve_until(|| in_drop.load(Ordering::SeqCst));
        let (refused, drops) = (Shared::new(AtomicUsize::new(0)), Drops::default());
        let captured = Shared::new((Mutex::new(()), drops.clone()));
        // Inside a closure nothing waits for room: requests without a slot are queued.
        let (to, told) = (property.clone(), refused.clone());
        local_trustee().entrust(()).apply(move |()| {
            for number in 0..asked {
                let counted = Shared::new(Mutex::new(captured.1.value(())));
                let (bomb, told) = (PanicsOnDrop(number % 3 == 0), told.clone());
                to.call()
                    .apply(move |v| {
                        let _captured = (&counted, &bomb);
                        *v += 1;
                    })
                    .then(move |outcome| {
                        assert!(matches!(outcome, Err(Error::Gone { .. })));
                        told.fetch_add(1, Ordering::SeqCst);
                        assert!(number % 5 != 0, "callback {number}");
                    });
            }
        });
        trust::yield_now();
        go.store(true, Ordering::SeqCst);
        serve_until(|| refused.load(Ordering::SeqCst) == asked);
        assert_eq!(drops.count(), asked, "each capture is dropped once");
        server.end();
        drop((property, slow));
    }
}

#[test]
fn trap_04_a_thread_finishes_its_fibers_before_it_ends() {
    let _watch = watchdog!();
    let pool = pool(1);
    let property = pool.entrust(0);
    let go = Shared::new(AtomicBool::new(false));
    let held = go.clone();
    property.apply_then(move |_| stand_until(|| held.load(Ordering::SeqCst)), |()| ());
    trust::yield_now();
    let client = property.clone();
    let finished = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&finished);
    let (about_to_end, ends) = mpsc::channel();
    let thread = thread::spawn(move || {
        for _ in 0..10 {
            let (client, noted) = (client.clone(), Arc::clone(&noted));
            trust::spawn(move || {
                let on_the_stack = [7u64; 64];
                let got = client.apply(move |v| {
                    *v += 1;
                    on_the_stack
                });
                assert_eq!(got, on_the_stack);
                noted.fetch_add(1, Ordering::SeqCst);
            });
        }
        trust::yield_now();
        about_to_end.send(()).unwrap();
        trust::finish();
    });
    ends.recv().unwrap();
    go.store(true, Ordering::SeqCst);
    join_and_serve(thread);
    assert_eq!(finished.load(Ordering::SeqCst), 10);
    assert_eq!(property.apply(|v| *v), 10);
}

/// An error that is there before the fiber has begun to wait must not resume it in the middle of something else.
#[test]
fn trap_04_an_error_that_is_there_at_once_resumes_nobody() {
    let _watch = watchdog!();
    let pool = pool(2);
    let (gone, gone_latch) = (orphan(0u64), orphan(Latch::new(0u64)));
    let poisoned = pool.trustees()[0].entrust(Latch::new(0u64));
    assert!(poisoned.call().apply(|_| panic!("first")).wait().is_err());
    let alive = pool.trustees()[1].entrust(0u64);
    let fibers: Vec<_> = (0..20)
        .map(|_| {
            let (gone, gone_latch, poisoned) = (gone.clone(), gone_latch.clone(), poisoned.clone());
            let alive = alive.clone();
            pool.spawn_on(0, move || {
                for _ in 0..50 {
                    assert!(gone.call().apply(|v| *v).wait().is_err());
                    assert!(catch_unwind(AssertUnwindSafe(|| gone_latch.launch(|v| *v))).is_err());
                    assert!(catch_unwind(AssertUnwindSafe(|| poisoned.launch(|v| *v))).is_err());
                    assert!(catch_unwind(AssertUnwindSafe(|| gone.apply_with(|v, ()| *v, ()))).is_err());
                    // A second resumption would end this wait too early, or find the fiber gone.
                    let on_the_stack = [1u64; 32];
                    assert_eq!(
                        alive.apply(move |v| {
                            *v += on_the_stack[31];
                            on_the_stack
                        }),
                        on_the_stack
                    );
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(alive.apply(|v| *v), 1_000);
}
