//! Longest delay of the drop of a property by others: clients that block outside the library, that compute in a fiber,
//! that end. In each test a trustee drops all properties released there while another thread does nothing for it.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{Counted, Drops, serve_until, stand_until};
use trust::{Error, Threadpool, Trust, TrusteeReference};

/// Number of properties that come and go.
const MANY: usize = 2_000;
/// Far longer than they take.
const LIMIT: Duration = limits::HANG;

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

/// Waits without serving.
fn comes_true(done: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !done() && start.elapsed() < LIMIT {
        thread::yield_now();
    }
    done()
}

/// Entrusts many properties to `there`, from a fiber on the pool's last worker, and lets them go. Are they all dropped?
fn are_dropped(pool: &Threadpool, there: TrusteeReference) -> bool {
    let drops = Drops::default();
    let inner = drops.clone();
    let fiber = pool.spawn_on(pool.trustees().len() - 1, move || {
        for _ in 0..MANY {
            let property = there.entrust(inner.value([0u8; 100]));
            property.apply(|property| property.value[0] += 1);
        }
    });
    let all = comes_true(|| drops.count() == MANY);
    all && comes_true(|| fiber.is_finished())
}

/// Actions of a thread before it blocks, and the trusts that it keeps.
type Before = fn(TrusteeReference) -> Vec<Trust<Counted<u32>>>;

fn entrusted(there: TrusteeReference, count: u32) -> Vec<Trust<Counted<u32>>> {
    (0..count).map(|number| there.entrust(Drops::default().value(number))).collect()
}

const BEFORE: [(&str, Before); 7] = [
    ("entrusts twice", |there| entrusted(there, 2)),
    ("entrusts often", |there| entrusted(there, 1_000)),
    ("clones", |there| {
        let first = entrusted(there, 1);
        (0..1_000).map(|_| first[0].clone()).collect()
    }),
    ("clones and drops", |there| {
        let kept = entrusted(there, 3);
        for _ in 0..1_000 {
            kept.iter().for_each(|trust| drop(trust.clone()));
        }
        kept
    }),
    ("asks and goes on", |there| {
        let kept = entrusted(there, 2);
        for trust in kept.iter().cycle().take(40) {
            trust.apply_then(|property| property.check(), |()| ());
        }
        kept
    }),
    ("asks, waits, asks", |there| {
        let kept = entrusted(there, 2);
        kept[0].apply_then(|property| property.check(), |()| ());
        kept[1].apply(|property| property.check());
        kept.iter().for_each(|trust| trust.apply_then(|property| property.check(), |()| ()));
        kept
    }),
    ("asks much in a closure of its own", |there| {
        let kept = entrusted(there, 1);
        let asks = kept[0].clone();
        trust::local_trustee().entrust(()).apply(move |()| {
            for _ in 0..2_000 {
                asks.apply_then(|property| property.check(), |()| ());
            }
        });
        kept
    }),
];

/// Holds a thread up in the standard library, until the guard is dropped.
fn blocked<R>(before: impl FnOnce() -> R + Send + 'static, test: impl FnOnce()) -> R
where
    R: Send + 'static,
{
    let (go, wait) = mpsc::channel::<()>();
    let (told, is_blocked) = mpsc::channel();
    let thread = thread::spawn(move || {
        let kept = before();
        told.send(()).unwrap();
        let _ = wait.recv();
        kept
    });
    is_blocked.recv().unwrap();
    test();
    drop(go);
    thread.join().unwrap()
}

#[test]
fn drops_go_on_while_a_client_s_own_code_blocks() {
    let _watch = watchdog!(300);
    let pool = pool(2);
    let there = pool.trustees()[0];
    for (name, before) in BEFORE {
        drop(blocked(
            move || before(there),
            || assert!(are_dropped(&pool, there), "a thread {name} and blocks in a channel"),
        ));
    }
}

#[test]
fn drops_go_on_while_a_client_waits_for_a_lock() {
    let _watch = watchdog!(120);
    let pool = pool(2);
    let there = pool.trustees()[0];
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock().unwrap();
    let (waits, kept) = (Arc::clone(&lock), mpsc::channel());
    let thread = thread::spawn(move || {
        let trusts = entrusted(there, 3);
        let clones = [trusts[0].clone(), trusts[1].clone()];
        kept.0.send(()).unwrap();
        drop(waits.lock().unwrap());
        drop((trusts, clones));
    });
    kept.1.recv().unwrap();
    assert!(are_dropped(&pool, there));
    drop(held);
    thread.join().unwrap();
}

/// Properties that a thread's own code releases are dropped, though it never comes back to the library.
#[test]
fn what_a_thread_lets_go_before_it_blocks_is_dropped() {
    let _watch = watchdog!(120);
    let pool = pool(1);
    let there = pool.trustees()[0];
    for count in [1, 2, 3, 1_000] {
        let drops = Drops::default();
        let inner = drops.clone();
        blocked(
            move || {
                let trusts: Vec<_> = (0..count).map(|number| there.entrust(inner.value(number))).collect();
                drop(trusts.clone());
                drop(trusts);
            },
            || assert!(comes_true(|| drops.count() == count), "{} of {count}", drops.count()),
        );
    }
}

/// A fiber computes with requests that are not sent yet: they delay the drop of their own properties only.
#[test]
fn a_fiber_that_computes_delays_only_what_it_has_asked_for() {
    let _watch = watchdog!(120);
    let pool = pool(3);
    let there = pool.trustees()[0];
    let (computes, ran) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let go = Arc::new(AtomicBool::new(false));
    let drops = Drops::default();
    let property = there.entrust(drops.value(7u32));
    let (asked, note, wait, count) = (property.clone(), Arc::clone(&computes), Arc::clone(&go), Arc::clone(&ran));
    let fiber = pool.spawn_on(1, move || {
        let clone = asked.clone();
        for _ in 0..3 {
            let count = trust::Shared::new(Arc::clone(&count));
            asked.apply_then(
                move |property| {
                    property.check();
                    count.fetch_add(1, Ordering::SeqCst);
                },
                |()| (),
            );
        }
        // Elsewhere, so that no message of this client tells the trustee of it.
        thread::spawn(move || drop((asked, clone))).join().unwrap();
        note.store(true, Ordering::SeqCst);
        stand_until(|| wait.load(Ordering::SeqCst));
    });
    assert!(comes_true(|| computes.load(Ordering::SeqCst)));
    drop(property);
    assert!(are_dropped(&pool, there), "a fiber elsewhere computes");
    assert_eq!(drops.count(), 0, "three requests are yet to run");
    go.store(true, Ordering::SeqCst);
    fiber.join().unwrap();
    serve_until(|| drops.count() == 1);
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}

/// A fiber that is held up may have more requests than the slots hold: counts do not wait for it.
#[test]
fn drops_go_on_while_a_fiber_with_many_counts_computes() {
    let _watch = watchdog!(120);
    let pool = pool(3);
    let there = pool.trustees()[0];
    let (computes, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (note, wait) = (Arc::clone(&computes), Arc::clone(&go));
    let fiber = pool.spawn_on(1, move || {
        let mut kept = entrusted(there, 700);
        kept.extend(kept.clone());
        kept.truncate(1_000);
        note.store(true, Ordering::SeqCst);
        stand_until(|| wait.load(Ordering::SeqCst));
    });
    assert!(comes_true(|| computes.load(Ordering::SeqCst)));
    assert!(are_dropped(&pool, there));
    go.store(true, Ordering::SeqCst);
    fiber.join().unwrap();
}

/// Keeps a trustee from looking, until the flag is set.
fn hold_up(property: &Trust<u32>) -> Arc<AtomicBool> {
    let go = Arc::new(AtomicBool::new(false));
    let wait = trust::Shared::new(Arc::clone(&go));
    property.apply_then(move |_| stand_until(|| wait.load(Ordering::SeqCst)), |()| ());
    go
}

/// A thread ends while its trustee is held up: does that trustee drop the properties released afterwards, and those
/// that the thread has released? `work` returns the number of properties it has made and released.
fn ends_with(work: fn(TrusteeReference, &[Trust<u32>], &Drops) -> usize) {
    let pool = pool(2);
    let there = pool.trustees()[0];
    let held = there.entrust(0);
    let (a, b) = (there.entrust(1), there.entrust(2));
    held.apply(|_| ());
    let go = hold_up(&held);
    let drops = Drops::default();
    let (inner, trusts) = (drops.clone(), [a.clone(), b.clone()]);
    let made = thread::spawn(move || {
        trust::local_trustee(); // a client with slots
        let (in_fiber, too) = (inner.clone(), trusts.clone());
        let fiber = trust::spawn(move || work(there, &too, &in_fiber));
        fiber.join().unwrap() + work(there, &trusts, &inner)
    })
    .join()
    .unwrap();
    go.store(true, Ordering::SeqCst);
    assert!(are_dropped(&pool, there), "after a client has ended");
    assert!(comes_true(|| drops.count() == made), "{} of {made}", drops.count());
    assert_eq!((a.apply(|v| *v), b.apply(|v| *v)), (1, 2));
}

#[test]
fn a_client_ends_with_clones_and_drops_under_way() {
    let _watch = watchdog!(120);
    ends_with(|_, trusts, _| {
        for _ in 0..500 {
            trusts.iter().for_each(|trust| drop(trust.clone()));
        }
        0
    });
}

#[test]
fn a_client_ends_with_clones_under_way_that_end_elsewhere() {
    let _watch = watchdog!(120);
    ends_with(|_, trusts, _| {
        let clones: Vec<_> = (0..500).flat_map(|_| trusts.to_vec()).collect();
        thread::spawn(move || drop(clones)).join().unwrap();
        0
    });
}

#[test]
fn a_client_ends_with_drops_under_way() {
    let _watch = watchdog!(120);
    ends_with(|_, trusts, _| {
        let clones = trusts.to_vec();
        // Made elsewhere, dropped here.
        let clones = thread::spawn(move || (0..500).flat_map(|_| clones.clone()).collect::<Vec<_>>()).join().unwrap();
        drop(clones);
        0
    });
}

#[test]
#[ignore = "takes ten seconds: `cargo dev stress`"]
fn stress_a_client_ends_with_new_properties_under_way() {
    let _watch = watchdog!(120);
    ends_with(|there, _, drops| {
        let made: Vec<_> = (0..300).map(|_| there.entrust(drops.value(()))).collect();
        drop(made);
        300
    });
}

/// Requests that a client cannot send before its time is over fail, and are no longer waited for.
#[test]
#[ignore = "takes ten seconds: `cargo dev stress`"]
fn stress_a_client_ends_with_closures_that_found_no_slot() {
    let _watch = watchdog!(120);
    const ASKED: usize = 2_000;
    let pool = pool(2);
    let there = pool.trustees()[0];
    let held = there.entrust(0);
    held.apply(|_| ());
    let go = hold_up(&held);
    let (drops, failed, ran) = (Drops::default(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (inner, note) = (drops.clone(), trust::Shared::new(Arc::clone(&failed)));
    let count = trust::Shared::new(Arc::clone(&ran));
    thread::spawn(move || {
        let asked = there.entrust(inner.value(()));
        trust::local_trustee().entrust(()).apply(move |()| {
            for _ in 0..ASKED {
                let (note, count) = (note.clone(), count.clone());
                let run = move |property: &mut Counted<()>| {
                    property.check();
                    count.fetch_add(1, Ordering::SeqCst);
                };
                asked.call().apply(run).then(move |outcome| {
                    assert!(matches!(outcome, Err(Error::Gone { .. })), "{outcome:?}");
                    note.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
    })
    .join()
    .unwrap();
    go.store(true, Ordering::SeqCst);
    assert!(are_dropped(&pool, there), "after a client has ended");
    assert!(comes_true(|| drops.count() == 1));
    // Sent requests have run, with no client to be notified.
    let (failed, ran) = (failed.load(Ordering::SeqCst), ran.load(Ordering::SeqCst));
    assert!(failed > 0 && failed + ran == ASKED, "{failed} failed, {ran} ran");
}
