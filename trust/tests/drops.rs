//! Destructors that panic: of properties, captures, results, replaced values. Requests behind them in a batch get their
//! own responses all the same.

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::{Drops, PanicsOnDrop, serve_until};
use trust::{Error, Latch, Shared, Threadpool, TrusteeReference, local_trustee};

fn pool() -> Threadpool {
    Threadpool::builder().workers(2).pin(false).build()
}

/// This thread, where the local shortcut serves, and a worker.
fn places(pool: &Threadpool) -> [TrusteeReference; 2] {
    [local_trustee(), pool.trustees()[0]]
}

#[test]
fn a_panic_in_the_drop_of_a_property() {
    let _watch = watchdog!();
    let pool = pool();
    let drops = Drops::default();
    for place in places(&pool) {
        let neighbour = place.entrust(1);
        for _ in 0..10 {
            let before = drops.count();
            drop(place.entrust((PanicsOnDrop(true), drops.value(()))));
            serve_until(|| drops.count() == before + 1);
        }
        assert_eq!(neighbour.apply(|v| *v), 1);
    }
    // And where the trustee goes first.
    let inner = drops.clone();
    let kept = thread::spawn(move || {
        let rest = local_trustee().entrust(inner.value(()));
        let bad = local_trustee().entrust((PanicsOnDrop(true), inner.value(())));
        let more = local_trustee().entrust(inner.value(()));
        (rest, bad, more)
    })
    .join()
    .unwrap();
    assert_eq!(drops.count(), 23);
    assert!(kept.1.call().apply(|_| ()).wait().is_err());
}

#[test]
fn a_panic_in_the_drop_of_what_a_closure_captured() {
    let _watch = watchdog!();
    let pool = pool();
    for place in places(&pool) {
        let property = place.entrust(0);
        let bomb = PanicsOnDrop(true);
        let outcome = property.call().apply(move |_| drop(bomb)).wait();
        assert!(matches!(outcome, Err(Error::Panicked { .. })));
        // Poisoned: this closure is dropped unrun. Its neighbours in the batch must get their own responses.
        let healthy = place.entrust(0u32);
        let answers = Rc::new(Cell::new(0u32));
        for round in 0..100u32 {
            let expect = |fails: bool, value: u32| {
                let answers = Rc::clone(&answers);
                move |outcome: Result<u32, Error>| {
                    assert_eq!(outcome.is_err(), fails, "{outcome:?}");
                    assert!(fails || outcome == Ok(value), "{outcome:?}");
                    answers.set(answers.get() + 1);
                }
            };
            let bomb = PanicsOnDrop(round % 2 == 0);
            healthy.call().apply(move |_| round).then(expect(false, round));
            let call = || {
                property
                    .call()
                    .apply(move |_| {
                        let _bomb = &bomb;
                        0
                    })
                    .then(expect(true, 0));
            };
            let _ = catch_unwind(AssertUnwindSafe(call));
            healthy.call().apply(move |_| round + 1).then(expect(false, round + 1));
            healthy.call().apply(move |_| panic!("own")).then(expect(true, 0));
            healthy.clear_poison();
            healthy.call().apply(move |_| round + 2).then(expect(false, round + 2));
        }
        let least = if place.is_local() { 450 } else { 500 };
        serve_until(|| answers.get() >= least);
        assert_eq!(healthy.apply(|v| *v), 0);
    }
}

/// A result that serialises, and whose drop panics.
#[derive(serde::Serialize, serde::Deserialize)]
struct Bomb {
    #[serde(skip)]
    _fuse: Option<Fuse>,
    number: u32,
}

#[derive(Default)]
struct Fuse;

impl Drop for Fuse {
    fn drop(&mut self) {
        panic!("fuse");
    }
}

#[test]
fn a_panic_in_the_drop_of_a_serialised_result() {
    let _watch = watchdog!();
    let pool = pool();
    let property = pool.trustees()[0].entrust(0u32);
    let answered = Rc::new(Cell::new(0u32));
    for round in 0..100 {
        let (first, second) = (Rc::clone(&answered), Rc::clone(&answered));
        property.call().with(round).apply(|_, n: u32| Bomb { _fuse: Some(Fuse), number: n }).then(move |result| {
            let bomb: Bomb = result.unwrap();
            assert_eq!(bomb.number, round);
            first.set(first.get() + 1);
        });
        property.clear_poison();
        property.call().apply(move |_| round + 7).then(move |outcome| {
            assert_eq!(outcome, Ok(round + 7), "another request's response");
            second.set(second.get() + 1);
        });
    }
    property.apply(|_| ());
    assert!(answered.get() >= 100);
}

#[test]
fn trap_07_a_replaced_latch_s_value_may_panic_when_it_is_dropped_in_the_fiber() {
    let _watch = watchdog!();
    let pool = pool();
    for place in places(&pool) {
        let latch = place.entrust(Latch::new(PanicsOnDrop(false)));
        let ran = Shared::new(AtomicUsize::new(0));
        let (again, counted) = (latch.clone(), ran.clone());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            latch.launch(move |value| {
                value.0 = true;
                again.apply(|latch| *latch = Latch::new(PanicsOnDrop(false)));
                counted.fetch_add(1, Ordering::SeqCst);
            });
        }));
        drop(outcome);
        assert_eq!(ran.load(Ordering::SeqCst), 1);
        latch.clear_poison();
        assert!(latch.launch(|value| !value.0), "the new value is in place");
    }
}
