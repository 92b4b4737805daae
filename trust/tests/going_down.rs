//! Properties, trusts and fibers that go while the thread, the pool or the process does, in any order.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use common::{Drops, is_child, run_child, serve_until, stderr};
use trust::{Latch, Threadpool, Trust, local_trustee};

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

#[test]
fn trap_12_properties_that_use_each_other_in_their_drop_while_the_trustee_ends() {
    let _watch = watchdog!();
    /// Does everything that is legal in a destructor, and some things that are not.
    struct Busy {
        others: Vec<Trust<Busy>>,
        other: Option<Trust<u64>>,
        value: common::Counted<u64>,
    }
    impl Drop for Busy {
        fn drop(&mut self) {
            for other in &self.others {
                other.apply_then(
                    |other| {
                        other.value.check();
                        other.value.value += 1;
                    },
                    |()| (),
                );
                other.call().apply(|other| other.value.check()).then(|_| ());
                other.clear_poison();
                assert!(catch_unwind(AssertUnwindSafe(|| other.apply(|_| ()))).is_err());
                drop(other.clone());
            }
            if let Some(other) = &self.other {
                other.apply_then(|v| *v += 1, |()| ());
            }
            let drops = Drops::default();
            drop(local_trustee().entrust(drops.value(())));
            local_trustee().entrust(drops.value(0)).apply_then(|v| v.check(), |()| ());
        }
    }
    let pool = pool(1);
    let (drops, other) = (Drops::default(), pool.entrust(0u64));
    const COUNT: usize = 8;
    for keeps in [false, true] {
        let before = drops.count();
        let (drops_there, other) = (drops.clone(), other.clone());
        let kept = thread::spawn(move || {
            let busy = |_| Busy { others: Vec::new(), other: Some(other.clone()), value: drops_there.value(0) };
            let all: Vec<Trust<Busy>> = (0..COUNT).map(|n| local_trustee().entrust(busy(n))).collect();
            for (place, one) in all.iter().enumerate() {
                for step in [1, 3] {
                    let other = all[(place + step) % COUNT].clone();
                    one.apply(move |one| one.others.push(other));
                }
            }
            if keeps { all } else { Vec::new() }
        })
        .join()
        .unwrap();
        assert_eq!(drops.count() - before, COUNT);
        drop(kept);
    }
    assert_eq!(other.apply(|v| *v), 2 * COUNT as u64);
}

#[test]
fn trap_12_a_pool_dropped_by_a_fiber_of_another_pool_and_by_a_property() {
    let _watch = watchdog!();
    let outer = pool(2);
    let inner = pool(2);
    let drops = Drops::default();
    let kept = inner.entrust(drops.value(1));
    assert_eq!(kept.apply(|v| v.value), 1);
    outer.spawn(move || drop(inner)).join().unwrap();
    assert_eq!(drops.count(), 1);
    assert!(kept.call().apply(|v| v.value).wait().is_err());
    let owned = pool(1);
    let of_owned = owned.entrust(drops.value(2));
    drop(outer.entrust(owned));
    serve_until(|| drops.count() == 2);
    drop(of_owned);
    drop(outer);
}

#[test]
fn trap_12_the_process_ends_in_whatever_state_its_fibers_are() {
    let _watch = watchdog!();
    if is_child() {
        let pool = Box::leak(Box::new(pool(2)));
        let property = pool.entrust(vec![1]);
        let latch = pool.entrust(Latch::new(0));
        for number in 0..50 {
            let (property, latch) = (property.clone(), latch.clone());
            drop(pool.spawn(move || {
                loop {
                    property.apply(move |v| v[0] = number);
                    latch.launch(|v| {
                        trust::yield_now();
                        *v += 1;
                    });
                    trust::sleep(Duration::from_micros(10));
                }
            }));
        }
        for _ in 0..100 {
            property.apply(|v| v.len());
        }
        // The main thread of the harness ends the process while all of this runs.
        return;
    }
    for _ in 0..5 {
        let output = run_child("trap_12_the_process_ends_in_whatever_state_its_fibers_are");
        assert!(output.status.success(), "{:?} {}", output.status, stderr(&output));
    }
}

#[test]
fn trap_12_a_fiber_may_end_the_process() {
    let _watch = watchdog!();
    if is_child() {
        let pool = pool(2);
        let kept = pool.entrust(String::from("kept"));
        let fiber = pool.spawn(move || {
            kept.apply(|_| ());
            std::process::exit(42);
        });
        let _: Result<(), _> = fiber.join();
        return;
    }
    let output = run_child("trap_12_a_fiber_may_end_the_process");
    assert_eq!(output.status.code(), Some(42), "{}", stderr(&output));
}
