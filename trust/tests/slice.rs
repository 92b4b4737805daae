//! `TrustSlice`: many properties behind one handle.

mod common;

use std::thread;

use common::{Drops, serve_until};
use trust::{Error, Latch, Threadpool, local_trustee};

/// Many pages of properties for each of two trustees.
const MANY: usize = 100_000;

fn pool() -> Threadpool {
    Threadpool::builder().workers(2).pin(false).build()
}

#[test]
fn each_element_is_a_property_of_its_own() {
    let _watch = watchdog!();
    let pool = pool();
    let slice = pool.entrust_each((0..MANY as u64).map(|number| number * 3));
    let other = pool.entrust_each(vec![7u64; 3000]);
    assert_eq!((slice.len(), slice.is_empty()), (MANY, false));
    for (at, element) in slice.iter().enumerate().step_by(997) {
        assert_eq!(element.trustee(), pool.trustees()[at % 2]);
        assert_eq!(element.apply(move |n| std::mem::replace(n, 1)), at as u64 * 3);
        assert_eq!(slice.at(at).apply(|n| *n), 1);
    }
    let failed = slice.at(4).call().apply(|_| panic!("the fourth")).wait();
    assert!(matches!(failed, Err(Error::Panicked { .. })), "{failed:?}");
    assert!(slice.at(4).call().apply(|n| *n).wait().is_err());
    assert_eq!((slice.at(2).apply(|n| *n), slice.at(6).apply(|n| *n)), (6, 18));
    assert!(other.iter().all(|element| element.apply(|n| *n) == 7));
}

#[test]
fn elements_are_dropped_after_the_last_handle_and_the_last_trust() {
    let _watch = watchdog!();
    let pool = pool();
    let drops = Drops::default();
    let slice = pool.entrust_each((0..5000usize).map(|number| drops.value(number)));
    let kept = slice.at(4321).clone();
    let other = slice.clone();
    drop(slice);
    assert_eq!(other.at(17).apply(|value| value.value), 17);
    // By a thread that has no worker.
    thread::spawn(move || drop(other)).join().unwrap();
    serve_until(|| drops.count() == 4999);
    assert_eq!(kept.apply(|value| value.value), 4321);
    drop(kept);
    serve_until(|| drops.count() == 5000);
    // Their room is used again.
    let again = pool.entrust_each((0..5000usize).map(|number| drops.value(number)));
    assert!((0..5000).step_by(97).all(|at| again.at(at).apply(|value| value.value) == at));
}

#[test]
fn elements_are_latches_boxes_and_nothing_and_go_with_their_pool() {
    let _watch = watchdog!();
    let drops = Drops::default();
    let (large, nothing, latches) = {
        let pool = Threadpool::builder().workers(3).dedicated(2).pin(false).build();
        let large = pool.entrust_each((0..70).map(|number| drops.value([number; 3000])));
        let latches = pool.entrust_each((0..10).map(Latch::new));
        let nothing = pool.entrust_each(vec![(); 2000]);
        assert_eq!(large.at(69).apply(|value| value.value[2999]), 69);
        assert_eq!(latches.iter().map(|latch| latch.launch(|n| *n)).sum::<i32>(), 45);
        nothing.iter().for_each(|element| element.apply(|()| ()));
        assert!(large.iter().all(|element| element.trustee() != pool.trustees()[0]));
        (large, nothing, latches)
    };
    assert_eq!(drops.count(), 70);
    assert!(matches!(large.at(3).call().apply(|_| ()).wait(), Err(Error::Gone { .. })));
    drop((large, nothing, latches));
    assert_eq!(local_trustee().entrust(1).apply(|n| *n), 1);
}

#[test]
#[should_panic(expected = "element 3 of a slice of 3")]
fn there_is_no_element_behind_the_last() {
    let pool = pool();
    let _ = pool.entrust_each([1, 2, 3]).at(3).apply(|n| *n);
}
