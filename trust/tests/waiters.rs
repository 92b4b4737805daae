//! Fibers that wait beside each other, for one promise or one latched value: each of them can be aborted, and none is
//! left behind.

mod common;

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use trust::{Aborted, Error, JoinHandle, Latch, Promise, Threadpool, Trust};

const LONG: Duration = Duration::from_secs(3600);

/// Fibers that wait for one promise, each for this long.
fn waiting(count: usize, pending: &Rc<trust::Pending<u32>>) -> Vec<JoinHandle<Option<Result<u32, trust::Error>>>> {
    let wait = |_| {
        let pending = Rc::clone(pending);
        trust::spawn(move || pending.wait_timeout(LONG))
    };
    let fibers = (0..count).map(wait).collect();
    trust::yield_now();
    fibers
}

fn is_aborted<R>(fiber: JoinHandle<R>) -> bool {
    fiber.join().is_err_and(|payload| payload.is::<Aborted>())
}

#[test]
fn each_of_several_fibers_that_wait_for_one_promise_can_be_aborted() {
    let _watch = watchdog!();
    for aborted in 0..3 {
        let (promise, pending) = trust::promise();
        let pending = Rc::new(pending);
        let mut fibers = waiting(3, &pending);
        let fiber = fibers.remove(aborted);
        fiber.abort();
        assert!(is_aborted(fiber), "the {aborted}. of three");
        assert!(fibers.iter().all(|fiber| !fiber.is_finished()));
        promise.keep(7);
        let outcomes: Vec<_> = fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
        // One takes the value, the other finds that it was taken.
        assert!(outcomes.contains(&Some(Ok(7))) && outcomes.contains(&None), "{outcomes:?}");
    }
}

#[test]
fn fibers_with_other_limits_on_one_promise_do_not_keep_each_other() {
    let _watch = watchdog!();
    let (promise, pending) = trust::promise::<u32>();
    let pending = Rc::new(pending);
    let (short, other) = (Rc::clone(&pending), Rc::clone(&pending));
    let first = trust::spawn(move || short.wait_timeout(Duration::from_millis(20)));
    let chosen = trust::spawn(move || trust::select(&[&*other], Some(LONG)));
    let long = waiting(2, &pending);
    assert_eq!(first.join().unwrap(), None);
    let both = long.into_iter().map(|fiber| {
        fiber.abort();
        is_aborted(fiber)
    });
    assert!(both.collect::<Vec<_>>().into_iter().all(|is_it| is_it));
    promise.keep(1);
    assert_eq!(chosen.join().unwrap(), Some(0));
    assert_eq!(pending.try_take(), Some(Ok(1)));
}

/// A latch whose value went with a forgotten guard.
fn without_value(pool: &Threadpool) -> Trust<Latch<i32>> {
    let latch = pool.entrust(Latch::new(1));
    latch.apply(|latch| mem::forget(latch.try_lock()));
    latch
}

type Give = fn(&mut Latch<i32>);

/// Ways to give a latch a value again.
const GIVES: [(&str, Give); 3] = [
    ("assigned", |latch| *latch = Latch::new(2)),
    ("replaced, the old one forgotten", |latch| mem::forget(mem::replace(latch, Latch::new(2)))),
    ("swapped", |latch| {
        let mut other = Latch::new(2);
        mem::swap(latch, &mut other);
        KEPT.set(Some(other));
    }),
];

thread_local!(static KEPT: RefCell<Option<Latch<i32>>> = const { RefCell::new(None) });

#[test]
fn a_latch_that_is_replaced_lets_those_go_on_that_wait_for_its_value() {
    let _watch = watchdog!();
    for (give, (name, _)) in GIVES.into_iter().enumerate() {
        for apply_first in [false, true] {
            let pool = Threadpool::builder().workers(1).pin(false).build();
            let latch = without_value(&pool);
            let waits: Vec<_> = (0..3)
                .map(|_| {
                    let latch = latch.clone();
                    trust::spawn(move || latch.launch(|value| mem::replace(value, *value + 1)))
                })
                .collect();
            // All of them stand in line at the trustee.
            common::serve_until(|| trust::dump().to_string().matches("waits for the value of").count() == 3);
            if apply_first {
                latch.apply(|latch| assert!(latch.try_lock().is_none()));
            }
            latch.apply(move |latch| GIVES[give].1(latch));
            let mut values: Vec<_> = waits.into_iter().map(|fiber| fiber.join().unwrap()).collect();
            values.sort_unstable();
            assert_eq!(values, [2, 3, 4], "{name}");
            assert_eq!(latch.launch(|value| *value), 5);
        }
    }
}

/// Calls of several values stand in the same lines.
#[test]
fn a_latch_that_is_replaced_lets_calls_of_several_values_go_on() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(2).pin(false).build();
    let (one, other) = (without_value(&pool), pool.entrust(Latch::new(10)));
    let (gives, told) = (one.clone(), Rc::new(RefCell::new(None)));
    let tell = Rc::clone(&told);
    trust::together_then((&one, &other), |(one, other)| *one + *other, move |sum| *tell.borrow_mut() = Some(sum));
    one.apply(|_| ());
    gives.apply(|latch| *latch = Latch::new(5));
    common::serve_until(|| told.borrow().is_some());
    assert_eq!(told.take(), Some(15));
}

/// Runs when its thread ends.
struct Last(Option<Box<dyn FnOnce()>>);

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(last) = self.0.take() {
            last();
        }
    }
}

thread_local!(static LAST: RefCell<Last> = const { RefCell::new(Last(None)) });

/// Runs the first in a fiber of a pool, and the closure it returns when the pool's thread ends, after its worker.
fn at_the_end<F: FnOnce() + 'static>(first: impl FnOnce() -> F + Send + 'static) {
    let pool = Threadpool::builder().workers(1).pin(false).build();
    pool.spawn(|| LAST.set(Last(Some(Box::new(first()))))).join().unwrap();
    drop(pool);
}

#[test]
fn a_promise_that_is_made_while_a_thread_ends_is_not_taken_for_one_of_the_worker_before() {
    let _watch = watchdog!();
    let other = Threadpool::builder().workers(1).pin(false).build();
    let there = other.trustees()[0];
    let (tell, told) = mpsc::channel();
    at_the_end(move || {
        // As many as the next worker of the thread will have made.
        let before: Vec<_> = (0..3).map(|_| trust::promise::<u32>()).collect();
        move || {
            let made: Vec<_> = (0..3).map(|_| trust::promise::<u32>()).collect();
            drop(before);
            for (promise, pending) in made {
                drop(trust::spawn_on(&there, move || promise.keep(7)));
                tell.send(pending.wait_timeout(LONG)).unwrap();
            }
        }
    });
    assert_eq!(told.iter().collect::<Vec<_>>(), vec![Some(Ok(7)); 3]);
}

#[test]
fn a_promised_value_is_gone_with_the_worker_that_would_have_been_told() {
    let _watch = watchdog!();
    let other = Threadpool::builder().workers(1).pin(false).build();
    let kept = other.entrust(Vec::<Promise<u32>>::new());
    let (tell, told) = mpsc::channel();
    let keeps = kept.clone();
    at_the_end(move || {
        let (promise, pending) = trust::promise();
        keeps.apply(move |kept| kept.push(promise));
        let (unused, selected) = trust::promise::<u32>();
        keeps.apply(move |kept| kept.push(unused));
        move || tell.send((trust::select(&[&selected], Some(LONG)), pending.wait())).unwrap()
    });
    let (selected, waited) = told.recv().unwrap();
    assert!(selected == Some(0) && matches!(waited, Err(Error::Gone { .. })), "{selected:?} {waited:?}");
    // There is no waiter to be notified any more.
    kept.apply(|kept| kept.drain(..).for_each(|promise| promise.keep(1)));
}

#[test]
fn values_of_trustees_that_are_gone_are_not_one() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let (before, gone) = (pool.entrust(Latch::new(1)), pool.trustees()[0]);
    drop(pool);
    let here = trust::local_trustee().entrust(Latch::new(1));
    // A value entrusted late is dropped soon, and the next value may lie in its place.
    let late = move || {
        trust::yield_now();
        gone.entrust(Latch::new(1))
    };
    let is_gone = |outcome: Result<i32, Error>| matches!(outcome, Err(Error::Gone { .. }));
    for _ in 0..100 {
        assert!(is_gone(trust::try_together((&late(), &late()), |(one, other)| *one + *other)));
        assert!(is_gone(trust::try_together((&late(), &here, &late()), |(one, _, other)| *one + *other)));
        assert!(is_gone(trust::try_together((&before, &late()), |(one, other)| *one + *other)));
    }
    // A thread that knows nothing of that trustee.
    let stranger = move || trust::try_together((&late(), &late()), |(one, other)| *one + *other);
    assert!(is_gone(common::join_and_serve(std::thread::spawn(stranger))));
    assert!(matches!(trust::try_together((&here, &here.clone()), |_| 0), Err(Error::Twice { .. })));
}
