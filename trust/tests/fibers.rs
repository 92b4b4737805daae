//! Fibers: start, order, join, sleep, names, overflow, and that they stay on their thread.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{is_child, run_child, serve_until, stderr, text};
use fastrand::Rng;
use trust::{Shared, Threadpool, local_trustee};

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

#[test]
fn ready_fibers_run_first_in_first_out() {
    let _watch = watchdog!();
    let log: Rc<RefCell<Vec<(u32, u32)>>> = Rc::default();
    let fibers: Vec<_> = (0..10)
        .map(|fiber| {
            let log = Rc::clone(&log);
            trust::spawn(move || {
                for turn in 0..5 {
                    log.borrow_mut().push((turn, fiber));
                    trust::yield_now();
                }
            })
        })
        .collect();
    assert!(log.borrow().is_empty(), "a fiber runs when its thread waits");
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    let expected: Vec<_> = (0..5).flat_map(|turn| (0..10).map(move |fiber| (turn, fiber))).collect();
    assert_eq!(*log.borrow(), expected);
}

#[test]
fn join_gives_the_value_or_the_panic_to_main_threads_plain_threads_and_fibers() {
    let _watch = watchdog!();
    let pool = pool(2);
    let check = |who: &str| {
        assert_eq!(pool.spawn(|| vec![1, 2, 3]).join().unwrap(), [1, 2, 3], "{who}");
        assert_eq!(text(&*pool.spawn(|| panic!("told")).join().unwrap_err()), "told", "{who}");
        assert_eq!(trust::spawn(|| 5).join().unwrap(), 5, "{who}");
    };
    check("this thread");
    thread::scope(|scope| {
        scope.spawn(|| check("a plain thread"));
    });
    let trustees = pool.trustees().to_vec();
    let fiber = pool.spawn_on(0, move || {
        let there = trust::spawn_on(&trustees[1], || String::from("there")).join().unwrap();
        let same = trust::spawn_on(&trustees[0], || String::from("same")).join().unwrap();
        let own = trust::spawn(|| Rc::new(7)).join().unwrap();
        let failed = trust::spawn_on(&trustees[1], || panic!("{}", 8)).join().unwrap_err();
        (there, same, *own, text(&*failed))
    });
    assert_eq!(fiber.join().unwrap(), ("there".to_owned(), "same".to_owned(), 7, "8".to_owned()));
}

#[test]
fn a_handle_is_joined_on_another_thread_or_dropped() {
    let _watch = watchdog!();
    let pool = pool(2);
    let ran = Shared::new(AtomicUsize::new(0));
    for _ in 0..50 {
        let handle = pool.spawn(|| thread::current().id());
        let joiner = thread::spawn(move || handle.join().unwrap());
        assert_ne!(joiner.join().unwrap(), thread::current().id());
        let handle = pool.spawn_on(0, || 9);
        assert_eq!(pool.spawn_on(1, move || handle.join().unwrap()).join().unwrap(), 9);
        let ran = ran.clone();
        drop(pool.spawn(move || ran.fetch_add(1, Ordering::SeqCst)));
    }
    serve_until(|| ran.load(Ordering::SeqCst) == 50);
    // A fiber of this thread, joined elsewhere while this thread serves.
    let handle = {
        let (send, receive) = std::sync::mpsc::channel();
        let here = local_trustee();
        let first = pool.spawn(move || send.send(trust::spawn_on(&here, || 11)).unwrap());
        first.join().unwrap();
        receive.recv().unwrap()
    };
    let joiner = pool.spawn(move || handle.join().unwrap());
    assert_eq!(joiner.join().unwrap(), 11);
    let finished = trust::spawn(|| ());
    assert!(!finished.is_finished());
    serve_until(|| finished.is_finished());
    finished.join().unwrap();
}

#[test]
fn trap_03_a_fiber_never_changes_its_thread() {
    let _watch = watchdog!();
    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }
    let pool = pool(4);
    let shared = pool.entrust(0u64);
    let fibers: Vec<_> = (0..64)
        .map(|number| {
            let (shared, worker) = (shared.clone(), pool.trustees()[number % 4]);
            pool.spawn_on(number % 4, move || {
                // Neither of these may be sent: both stay on the stack across every kind of wait.
                let (own, id) = (Rc::new(Cell::new(0u64)), thread::current().id());
                let mut random = Rng::with_seed(number as u64);
                for _ in 0..100 {
                    match random.usize(..5) {
                        0 => trust::yield_now(),
                        1 => trust::sleep(Duration::from_micros(random.u64(..200))),
                        2 => trust::spawn(|| ()).join().unwrap(),
                        _ => shared.apply(|v| *v += 1),
                    }
                    own.set(own.get() + 1);
                    OWN.set(OWN.get() + 1);
                    assert_eq!(thread::current().id(), id);
                    assert_eq!(local_trustee(), worker);
                }
                own.get()
            })
        })
        .collect();
    assert_eq!(fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<u64>(), 6400);
    for worker in 0..4 {
        assert_eq!(pool.spawn_on(worker, || OWN.get()).join().unwrap(), 1600);
    }
}

#[test]
fn sleepers_wake_in_the_order_of_their_times_and_not_before() {
    let _watch = watchdog!();
    let order: Rc<RefCell<Vec<Instant>>> = Rc::default();
    let start = Instant::now();
    let fibers: Vec<_> = [30u64, 10, 20, 5, 40]
        .into_iter()
        .map(|ms| {
            let order = Rc::clone(&order);
            trust::spawn(move || {
                // The thread may be held up before the next fiber begins.
                let due = Instant::now() + Duration::from_millis(ms);
                trust::sleep(Duration::from_millis(ms));
                assert!(Instant::now() >= due);
                order.borrow_mut().push(due);
            })
        })
        .collect();
    trust::sleep(Duration::from_millis(5));
    assert!(start.elapsed() >= Duration::from_millis(5));
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert!(order.borrow().is_sorted(), "{order:?}");
    assert_eq!(order.borrow().len(), 5);
}

/// The timer of a sleep that is over before it has begun must not resume the fiber in the middle of something else.
#[test]
fn sleeps_of_no_length_are_resumed_once() {
    let _watch = watchdog!();
    let pool = pool(2);
    let property = pool.trustees()[1].entrust(0u64);
    let fibers: Vec<_> = (0..50)
        .map(|_| {
            let property = property.clone();
            pool.spawn_on(0, move || {
                for turn in 0..100u64 {
                    trust::sleep(Duration::from_nanos(turn % 3));
                    let before = property.apply(|v| std::mem::replace(v, *v + 1));
                    assert!(before < 5_000);
                    trust::spawn(|| trust::sleep(Duration::ZERO)).join().unwrap();
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(property.apply(|v| *v), 5_000);
}

#[test]
fn a_sleeper_does_not_hold_its_worker_up() {
    let _watch = watchdog!();
    let pool = pool(1);
    let sleeper = pool.spawn(|| trust::sleep(Duration::from_secs(3600)));
    let property = pool.entrust(1);
    for _ in 0..100 {
        assert_eq!(property.apply(|v| *v), 1);
    }
    assert_eq!(pool.spawn(|| 3).join().unwrap(), 3);
    assert!(!sleeper.is_finished());
    // The pool waits for its fibers: this one would keep it for an hour.
    std::mem::forget(pool);
}

#[test]
fn a_fiber_uses_the_stack_it_was_promised() {
    let _watch = watchdog!();
    #[inline(never)]
    fn fill(depth: usize, log: &Mutex<usize>) -> u64 {
        let block = std::hint::black_box([depth as u64; 128]);
        *log.lock().unwrap() += 1;
        if depth == 0 { block[0] } else { fill(depth - 1, log) + std::hint::black_box(&block)[127] }
    }
    let pool = Threadpool::builder().workers(1).stack_bytes(4 << 20).pin(false).build();
    let sum = pool.spawn(|| fill(700, &Mutex::new(0))).join().unwrap();
    assert_eq!(sum, (0..=700).sum::<u64>());
}

#[test]
fn a_panic_unwinds_on_the_smallest_stack() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(1).stack_bytes(16 << 10).pin(false).build();
    for number in 0..10 {
        let fiber = pool.spawn(move || std::panic::resume_unwind(Box::new(number)));
        let payload: Result<(), _> = fiber.join();
        assert_eq!(payload.unwrap_err().downcast_ref(), Some(&number));
    }
}

#[inline(never)]
fn overflow(depth: u64) -> u64 {
    let block = std::hint::black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { overflow(depth + 1) + std::hint::black_box(&block)[0] }
}

#[test]
fn a_stack_overflow_is_reported_with_the_fiber_s_name() {
    let _watch = watchdog!();
    if is_child() {
        let fiber = trust::spawn_named("the deep one", || overflow(0));
        let _ = fiber.join();
        unreachable!("it has overflowed");
    }
    let output = run_child("a_stack_overflow_is_reported_with_the_fiber_s_name");
    let text = stderr(&output);
    assert!(!output.status.success());
    for word in ["'the deep one'", "overflowed its stack", "bytes", "stack_bytes"] {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
}

#[test]
fn a_stack_overflow_in_a_delegated_closure_or_a_launched_one_is_reported() {
    let _watch = watchdog!();
    if is_child() {
        let pool = pool(1);
        let latch = pool.entrust(trust::Latch::new(0u64));
        latch.launch(|v| *v = overflow(0));
        unreachable!("it has overflowed");
    }
    let output = run_child("a_stack_overflow_in_a_delegated_closure_or_a_launched_one_is_reported");
    assert!(!output.status.success());
    assert!(stderr(&output).contains("overflowed its stack"), "{}", stderr(&output));
}

#[test]
fn many_fibers_on_many_workers_all_end() {
    let _watch = watchdog!();
    let pool = pool(4);
    let count = pool.entrust(0u64);
    let fibers: Vec<_> = (0..5_000)
        .map(|number| {
            let count = count.clone();
            pool.spawn(move || {
                if number % 3 == 0 {
                    trust::yield_now();
                }
                count.apply(|c| *c += 1);
                number
            })
        })
        .collect();
    assert_eq!(fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<u64>(), 5_000 * 4_999 / 2);
    assert_eq!(count.apply(|c| *c), 5_000);
}
