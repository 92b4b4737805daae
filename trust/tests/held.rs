//! `Held`: a launched closure gives its value up for a while.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{panic_of, serve_until};
use trust::{Error, Latch, Pending, Promise, Threadpool, Trust, TrusteeReference, local_trustee, promise};

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

/// This thread and a worker.
fn places(pool: &Threadpool) -> [TrusteeReference; 2] {
    [local_trustee(), pool.trustees()[0]]
}

/// Place where a test tells a waiting closure to go on.
type Gate = Trust<Vec<Promise<()>>>;

fn pass(gate: &Gate) -> Pending<()> {
    let (promise, pending) = promise();
    gate.apply(move |gate| gate.push(promise));
    pending
}

fn open(gate: &Gate) {
    serve_until(|| gate.apply(|gate| !gate.is_empty()));
    gate.apply(|gate| gate.drain(..).for_each(|promise| promise.keep(())));
}

#[test]
fn others_have_the_value_while_it_is_released_and_only_then() {
    let _watch = watchdog!();
    let pool = pool(2);
    for place in places(&pool) {
        let gate: Gate = pool.trustees()[1].entrust(Vec::new());
        let log = place.entrust(Latch::new(vec![0u32]));
        let (holder, waits) = (log.clone(), gate.clone());
        let fiber = pool.spawn(move || {
            holder
                .call()
                .launch_held(move |log| {
                    trust::yield_now(); // with the value
                    log.push(1);
                    log.released(|| pass(&waits).wait()).unwrap();
                    log.push(4);
                    log.iter().fold(0, |sum, n| sum * 10 + n)
                })
                .wait()
                .unwrap()
        });
        serve_until(|| !gate.apply(|gate| gate.is_empty()));
        log.launch(|log| log.push(2));
        log.launch(|log| {
            trust::yield_now();
            log.push(3);
        });
        open(&gate);
        assert_eq!(fiber.join().unwrap(), 1234);
    }
}

#[test]
fn it_comes_back_behind_those_who_waited_before() {
    let _watch = watchdog!();
    let pool = pool(2);
    let gate: Gate = pool.trustees()[1].entrust(Vec::new());
    let log = pool.trustees()[0].entrust(Latch::new(String::new()));
    let (first, waits) = (log.clone(), gate.clone());
    let first = pool.spawn(move || {
        first
            .call()
            .launch_held(move |log| {
                log.push('a');
                log.released(|| pass(&waits).wait()).unwrap();
                log.push('d');
            })
            .wait()
            .unwrap()
    });
    serve_until(|| !gate.apply(|gate| gate.is_empty()));
    let (second, waits) = (log.clone(), gate.clone());
    let second = pool.spawn(move || {
        second.launch(move |log| {
            log.push('b');
            pass(&waits).wait().unwrap();
            log.push('c');
        });
    });
    serve_until(|| gate.apply(|gate| gate.len()) == 2);
    gate.apply(|gate| gate.remove(0).keep(())); // the first wants it again, and the second has it
    gate.apply(|gate| gate.remove(0).keep(()));
    first.join().unwrap();
    second.join().unwrap();
    assert_eq!(log.call().with(()).launch(|log, ()| log.clone()).wait().unwrap(), "abcd");
}

#[test]
fn a_panic_while_it_is_released_finds_the_value_back_in_place() {
    let _watch = watchdog!();
    let pool = pool(1);
    for place in places(&pool) {
        let latch = place.entrust(Latch::new(7));
        let seen = latch
            .call()
            .launch_held(|value| {
                let panic = catch_unwind(AssertUnwindSafe(|| value.released(|| panic!("outside"))));
                assert!(panic.is_err());
                **value
            })
            .wait()
            .unwrap();
        assert_eq!(seen, 7);
        let other = latch.clone();
        let panicked = other.call().launch_held(|value| value.released(|| -> u8 { panic!("and not caught") })).wait();
        assert!(matches!(panicked, Err(Error::Panicked { panic, .. }) if panic == "and not caught"));
        let panic = panic_of(|| latch.launch(|value| *value));
        assert!(panic.contains("poisoned") && panic.contains("and not caught"), "{panic}");
        latch.clear_poison();
        assert_eq!(latch.launch(|value| *value), 7);
    }
}

#[test]
fn poison_meets_who_released_the_value() {
    let _watch = watchdog!();
    let pool = pool(2);
    let gate: Gate = pool.trustees()[1].entrust(Vec::new());
    let latch = pool.trustees()[0].entrust(Latch::new(1));
    let (holder, waits) = (latch.clone(), gate.clone());
    let fiber = pool.spawn(move || {
        holder.call().launch_held(move |value| value.released(|| pass(&waits).wait()).is_ok()).wait().unwrap()
    });
    serve_until(|| !gate.apply(|gate| gate.is_empty()));
    let other = latch.clone();
    assert_eq!(panic_of(move || other.launch(|_| -> u8 { panic!("the other") })), "the other");
    open(&gate);
    let panic = common::text(&*fiber.join().unwrap_err());
    assert!(panic.contains("poisoned") && panic.contains("the other"), "{panic}");
    assert!(matches!(latch.call().apply(|_| ()).wait(), Err(Error::Poisoned { panic, .. }) if panic == "the other"));
}

#[test]
fn a_latch_that_is_replaced_meanwhile_gives_its_new_value() {
    let _watch = watchdog!();
    let pool = pool(2);
    let gate: Gate = pool.trustees()[1].entrust(Vec::new());
    let latch = pool.trustees()[0].entrust(Latch::new(1));
    let (holder, waits) = (latch.clone(), gate.clone());
    let fiber = pool.spawn(move || {
        holder
            .call()
            .launch_held(move |value| {
                value.released(|| pass(&waits).wait()).unwrap();
                **value
            })
            .wait()
            .unwrap()
    });
    serve_until(|| !gate.apply(|gate| gate.is_empty()));
    latch.apply(|latch| *latch = Latch::new(2));
    open(&gate);
    assert_eq!(fiber.join().unwrap(), 2);
}
