//! `Trust::close`: the value is dropped once, where and when nobody has it; later requests of all kinds are refused.

mod common;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::{serve_until, text};
use trust::{
    Error, Latch, Shared, Threadpool, Trust, TrusteeReference, local_trustee, stats, together, try_together,
    try_together_then, wait_all,
};

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

/// This thread and a worker.
fn places(pool: &Threadpool) -> [TrusteeReference; 2] {
    [local_trustee(), pool.trustees()[0]]
}

/// A value that counts its drops, and the count.
fn counted() -> (Noted, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    (Noted(Arc::clone(&drops)), drops)
}

struct Noted(Arc<AtomicUsize>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A value whose destructor panics.
struct Bad;

impl Drop for Bad {
    fn drop(&mut self) {
        panic!("it does not go");
    }
}

fn dropped(drops: &AtomicUsize) -> usize {
    drops.load(Ordering::SeqCst)
}

/// Where a launched closure stands, with its value, until it is opened.
fn gate() -> Shared<AtomicBool> {
    Shared::new(AtomicBool::new(false))
}

fn stand(gate: &AtomicBool) {
    while !gate.load(Ordering::SeqCst) {
        trust::yield_now();
    }
}

fn open(gate: &AtomicBool) {
    gate.store(true, Ordering::SeqCst);
}

/// Outcome of a call that is told to a callback.
struct Told<T>(Rc<RefCell<Option<T>>>);

impl<T: 'static> Told<T> {
    fn new() -> (impl FnOnce(T) + 'static, Told<T>) {
        let told = Rc::new(RefCell::new(None));
        let tell = Rc::clone(&told);
        (move |outcome| *tell.borrow_mut() = Some(outcome), Told(told))
    }
    fn wait(self) -> T {
        serve_until(|| self.0.borrow().is_some());
        self.0.take().expect("just seen")
    }
}

fn is_closed<T: std::fmt::Debug>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Gone { was_closed: true, .. }))
}

#[test]
fn the_value_is_dropped_at_once_and_requests_of_each_kind_are_refused() {
    let _watch = watchdog!();
    let pool = pool(2);
    for place in places(&pool) {
        let before = stats(place).expect("it runs").properties_closed;
        let (value, drops) = counted();
        let trust = place.entrust(value);
        let other = trust.clone();
        trust.apply(|_| ());
        assert_eq!(trust.close(), Ok(()));
        assert_eq!(dropped(&drops), 1);
        assert_eq!(stats(place).expect("it runs").since(&Default::default()).properties_closed, before + 1);
        let run = |_: &mut Noted| -> u32 { panic!("it has run") };
        let outcome = other.call().apply(run).wait();
        assert!(is_closed(&outcome), "{outcome:?}");
        let said = outcome.expect_err("it is closed").to_string();
        assert!(said.contains("Noted` was closed, and the closure has not run"), "{said}");
        assert!(is_closed(&other.call().with(5).apply(|_, _: i32| 5).wait()));
        assert!(is_closed(&other.call().in_process().apply(|_| String::new()).wait()));
        assert!(is_closed(&other.call().apply(run).timeout(Duration::from_secs(60)).wait()));
        let panic = catch_unwind(AssertUnwindSafe(|| other.apply(run))).expect_err("it is closed");
        assert!(text(&*panic).contains("was closed"), "{}", text(&*panic));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(is_closed(&runtime.block_on(other.call().apply(run).into_future())));
        assert!(is_closed(&runtime.block_on(other.call().close().into_future())));
        // Not by a request that accepts a poisoned one, nor by another close.
        other.clear_poison();
        assert!(is_closed(&other.call().apply(run).wait()));
        assert!(is_closed(&other.call().close().wait()) && is_closed(&other.clone().close()));
        let told = Rc::new(RefCell::new(Vec::new()));
        let tell = Rc::clone(&told);
        other.call().apply(run).then(move |outcome| tell.borrow_mut().push(is_closed(&outcome)));
        wait_all();
        assert_eq!(*told.borrow(), [true]);
        drop(other);
        assert_eq!(dropped(&drops), 1);
    }
}

/// The calls of launched closures and of `together`.
#[test]
fn latched_calls_of_each_kind_are_refused() {
    let _watch = watchdog!();
    let pool = pool(2);
    let [here, there] = places(&pool);
    let above = pool.trustees()[1];
    for place in [here, there] {
        let (value, drops) = counted();
        let closed = place.entrust(Latch::new(value));
        let others = [here, there, above].map(|place| place.entrust(Latch::new(5)));
        assert_eq!(closed.call().close().wait(), Ok(()));
        assert_eq!(dropped(&drops), 1);
        assert!(is_closed(&closed.call().launch(|_| ()).wait()));
        assert!(is_closed(&closed.call().launch_held(|_| ()).wait()));
        assert!(is_closed(&closed.call().with(1).launch(|_, _: i32| ()).wait()));
        for other in &others {
            assert!(is_closed(&try_together((&closed, other), |_| ())));
            assert!(is_closed(&try_together((other, &closed), |_| ())));
            assert_eq!(other.launch(|n| *n), 5, "its value has come back");
            let by = other.clone();
            let (one, two) = (closed.clone(), other.clone());
            // From the property's own thread, and from a third one.
            for caller in [there, above] {
                let (one, two) = (one.clone(), two.clone());
                let call = move || is_closed(&try_together((&one, &two), |_| ()));
                assert!(trust::spawn_on(&caller, call).join().unwrap());
            }
            try_together_then((&one, &two), |_| (), |outcome| assert!(is_closed(&outcome)));
            wait_all();
            assert_eq!(by.launch(|n| *n), 5);
        }
        assert_eq!(together((&others[0], &others[2]), |(a, b)| *a + *b), 10);
    }
}

#[test]
fn a_launched_closure_keeps_its_value_and_those_that_wait_do_not_run() {
    let _watch = watchdog!();
    let pool = pool(2);
    for place in places(&pool) {
        let (value, drops) = counted();
        let latch = place.entrust(Latch::new(value));
        let gate = gate();
        let stands = gate.clone();
        let holder = latch.call().launch(move |value: &mut Noted| {
            stand(&stands);
            dropped(&value.0)
        });
        let (tell, is_held) = Told::new();
        holder.then(tell);
        serve_until(|| latch.apply(|latch| latch.try_lock().is_none()));
        let (tell, waited) = Told::new();
        latch.call().launch(|_| panic!("it has run")).then(tell);
        let (tell, closed) = Told::new();
        latch.call().close().then(tell);
        assert!(is_closed(&latch.call().apply(|_| ()).wait()), "from now on");
        assert!(is_closed(&latch.call().close().wait()), "another one waits for nothing");
        assert!(latch.call().close().timeout(Duration::from_millis(1)).wait().is_err());
        assert_eq!(dropped(&drops), 0);
        open(&gate);
        assert_eq!(is_held.wait(), Ok(0), "it is whole up to its end");
        let waited: Result<(), Error> = waited.wait();
        assert!(is_closed(&waited), "{waited:?}");
        assert_eq!(closed.wait(), Ok(()));
        assert_eq!(dropped(&drops), 1, "when the close is told");
    }
}

#[test]
fn a_value_that_is_released_is_dropped_and_its_holder_told() {
    let _watch = watchdog!();
    let pool = pool(2);
    for place in places(&pool) {
        let (value, drops) = counted();
        let latch = place.entrust(Latch::new(value));
        let closes = latch.clone();
        // The holder of the value closes its property while it has given the value up.
        let outcome = latch.call().launch_held(move |held| {
            let first = catch_unwind(AssertUnwindSafe(|| held.released(move || closes.close()).unwrap()));
            let panic = first.expect_err("there is no value any more");
            let again = catch_unwind(AssertUnwindSafe(|| dropped(&held.0)));
            (text(&*panic).contains("was closed"), again.is_err())
        });
        assert_eq!(outcome.wait(), Ok((true, true)));
        assert_eq!(dropped(&drops), 1);
    }
}

#[test]
fn a_closure_that_closes_the_property_whose_value_it_has_is_told_of_the_deadlock() {
    let _watch = watchdog!();
    let pool = pool(1);
    let (value, drops) = counted();
    let latch = pool.entrust(Latch::new(value));
    let closes = latch.clone();
    let close = move |value: &mut Noted| (matches!(closes.close(), Err(Error::Deadlock { .. })), dropped(&value.0));
    assert_eq!(latch.call().launch(close).wait(), Ok((true, 0)));
    serve_until(|| dropped(&drops) == 1);
    assert!(is_closed(&latch.call().launch(|_| ()).wait()));
}

#[test]
fn a_call_of_together_keeps_the_value_that_is_lent_to_it() {
    let _watch = watchdog!();
    let pool = pool(2);
    let [low, high] = [0, 1].map(|n| pool.trustees()[n]);
    for round in 0..20 {
        let (value, drops) = counted();
        let lent = low.entrust(Latch::new(value));
        let other = high.entrust(Latch::new(0));
        // The lent value goes to the trustee of the other one, which is out for a while.
        let gate = gate();
        let stands = gate.clone();
        other.launch_then(move |_| stand(&stands), |()| ());
        serve_until(|| other.apply(|latch| latch.try_lock().is_none()));
        let (tell, has_run) = Told::new();
        let call = |(lent, _): (&mut Noted, &mut i32)| dropped(&lent.0);
        try_together_then((&lent, &other), call, tell);
        if round % 2 == 0 {
            serve_until(|| lent.call().apply(|latch| latch.try_lock().is_none()).wait().unwrap());
        }
        let (tell, closed) = Told::new();
        lent.call().close().then(tell);
        open(&gate);
        let outcome = has_run.wait();
        assert!(outcome == Ok(0) || is_closed(&outcome), "{outcome:?}");
        assert!(round % 2 == 1 || outcome == Ok(0), "it was lent: {outcome:?}");
        assert_eq!((closed.wait(), dropped(&drops)), (Ok(()), 1));
        assert_eq!(other.launch(|n| *n), 0);
    }
}

/// A closure puts another latch in the place of one whose value is out, so two closures have a value of one property.
#[test]
fn values_of_a_latch_that_was_replaced_are_dropped_once() {
    let _watch = watchdog!();
    let pool = pool(1);
    let (value, drops) = counted();
    let latch = pool.entrust(Latch::new(value));
    let mut opens = Vec::new();
    let mut ends = Vec::new();
    for round in 0..2 {
        let gate = gate();
        let stands = gate.clone();
        let (tell, end) = Told::new();
        latch
            .call()
            .launch(move |value: &mut Noted| {
                stand(&stands);
                dropped(&value.0)
            })
            .then(tell);
        serve_until(|| latch.apply(|latch| latch.try_lock().is_none()));
        opens.push(gate);
        ends.push(end);
        if round == 0 {
            let second = Noted(Arc::clone(&drops));
            latch
                .call()
                .in_process()
                .apply(move |latch| drop(std::mem::replace(latch, Latch::new(second))))
                .wait()
                .unwrap();
        }
    }
    // The first one gives its value back; the other still has its own.
    open(&opens.remove(0));
    assert_eq!(ends.remove(0).wait(), Ok(0));
    assert_eq!(latch.call().close().wait(), Ok(()));
    assert_eq!(dropped(&drops), 1, "of the value that was back");
    open(&opens.remove(0));
    assert_eq!(ends.remove(0).wait(), Ok(1));
    serve_until(|| dropped(&drops) == 2);
}

#[test]
fn a_poisoned_property_is_closed_and_a_panic_of_the_destructor_told() {
    let _watch = watchdog!();
    let pool = pool(1);
    for place in places(&pool) {
        let (value, drops) = counted();
        let poisoned = place.entrust(value);
        assert!(poisoned.call().apply(|_| panic!("poison")).wait().is_err());
        assert_eq!(poisoned.call().close().wait(), Ok(()));
        assert!(is_closed(&poisoned.call().apply(|_| ()).wait()));
        assert_eq!(dropped(&drops), 1);
        let bad = place.entrust(Bad);
        match bad.call().close().wait() {
            Err(Error::Panicked { panic, .. }) => assert_eq!(panic, "it does not go"),
            other => panic!("{other:?}"),
        }
        assert!(is_closed(&bad.call().apply(|_| ()).wait()) && is_closed(&bad.close()));
    }
}

/// The holder of the value ends before the close waits for it, or after.
#[test]
fn a_panic_of_the_destructor_is_told_where_the_value_was_out() {
    let _watch = watchdog!();
    let pool = pool(1);
    for place in places(&pool) {
        for waits in [false, true] {
            let latch = place.entrust(Latch::new(Bad));
            let gate = gate();
            let stands = gate.clone();
            latch.launch_then(move |_| stand(&stands), |()| ());
            serve_until(|| latch.apply(|latch| latch.try_lock().is_none()));
            if !waits {
                open(&gate);
            }
            let (tell, closed) = Told::new();
            latch.call().close().then(tell);
            open(&gate);
            match closed.wait() {
                Err(Error::Panicked { panic, .. }) => assert_eq!(panic, "it does not go"),
                other => panic!("{other:?}, at {place:?}, {waits}"),
            }
        }
    }
}

/// The payload of a destructor's panic has a destructor, which would wait.
#[test]
fn payloads_of_destructors_wait_for_nothing() {
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            trust::yield_now();
        }
    }
    struct Worse;
    impl Drop for Worse {
        fn drop(&mut self) {
            std::panic::panic_any(Waits);
        }
    }
    let _watch = watchdog!();
    let pool = pool(1);
    for place in places(&pool) {
        let bad = place.entrust(Latch::new(Worse));
        let gate = gate();
        let stands = gate.clone();
        bad.launch_then(move |_| stand(&stands), |()| ());
        let (value, drops) = counted();
        let other = place.entrust(value);
        let (tell, closed) = Told::new();
        bad.call().close().then(tell);
        open(&gate);
        assert!(closed.wait().is_err());
        drop(other);
        serve_until(|| dropped(&drops) == 1);
    }
}

#[test]
fn a_close_waits_for_no_value_that_a_forgotten_guard_has() {
    let _watch = watchdog!();
    let pool = pool(1);
    for place in places(&pool) {
        let latch = place.entrust(Latch::new(5));
        latch.apply(|latch| std::mem::forget(latch.try_lock()));
        let (tell, waited) = Told::new();
        latch.call().launch(|n: &mut i32| *n).then(tell);
        let (tell, closed) = Told::new();
        latch.call().close().then(tell);
        let waited: Result<i32, Error> = waited.wait();
        assert!(is_closed(&waited), "{waited:?}");
        assert_eq!(closed.wait(), Ok(()));
    }
}

#[test]
fn close_waits_where_something_may_wait_and_is_sent_anywhere() {
    let _watch = watchdog!();
    let pool = pool(1);
    for place in places(&pool) {
        let (value, drops) = counted();
        let own = place.entrust((value, 0));
        let closes = own.clone();
        // Within a closure on the property itself: it has the value up to its end.
        let refused = own.apply(move |(value, number)| {
            let other = closes.clone();
            let waits = catch_unwind(AssertUnwindSafe(|| other.close())).is_err();
            closes.call().close().then(|outcome| assert_eq!(outcome, Ok(())));
            closes.call().apply(|_| panic!("it is closed")).then(|outcome: Result<(), _>| assert!(is_closed(&outcome)));
            *number = 1;
            (waits, dropped(&value.0), *number)
        });
        assert_eq!(refused, (true, 0, 1));
        serve_until(|| dropped(&drops) == 1);
        assert!(is_closed(&own.call().apply(|_| ()).wait()));
        // In a callback.
        let (value, drops) = counted();
        let trust = place.entrust(value);
        let closes = trust.clone();
        trust.apply_then(|_| (), move |()| closes.call().close().then(|outcome| assert_eq!(outcome, Ok(()))));
        wait_all();
        serve_until(|| dropped(&drops) == 1);
        assert!(is_closed(&trust.close()));
    }
}

/// The destructor uses other properties, and the property itself.
#[test]
fn a_destructor_may_send_requests() {
    struct Tells(Trust<Vec<bool>>, Option<Trust<Tells>>);
    impl Drop for Tells {
        fn drop(&mut self) {
            let log = self.0.clone();
            if let Some(own) = &self.1 {
                own.call().apply(|_| ()).then(move |outcome| {
                    let is_refused = outcome.is_err();
                    log.apply_then(move |log| log.push(is_refused), |()| ());
                });
            }
        }
    }
    let _watch = watchdog!();
    let pool = pool(1);
    for place in places(&pool) {
        let log = local_trustee().entrust(Vec::new());
        let tells = place.entrust(Tells(log.clone(), None));
        let own = tells.clone();
        tells.apply(move |tells| tells.1 = Some(own));
        assert_eq!(tells.close(), Ok(()));
        serve_until(|| log.apply(|log| log.len()) == 1);
        assert_eq!(log.apply(|log| log.clone().first().copied()), Some(true));
    }
}

#[test]
fn a_pool_that_ends_drops_what_is_closed_and_what_is_not_once() {
    let _watch = watchdog!();
    let pool = pool(1);
    let (value, drops) = counted();
    let held = pool.entrust(Latch::new(value));
    let (other, others) = counted();
    let closed = pool.entrust(other);
    let gate = gate();
    let stands = gate.clone();
    held.launch_then(move |_| stand(&stands), |()| ());
    serve_until(|| held.apply(|latch| latch.try_lock().is_none()));
    let (tell, outcome) = Told::new();
    held.call().close().then(tell);
    assert_eq!(closed.call().close().wait(), Ok(()));
    open(&gate);
    drop(pool);
    assert_eq!(outcome.wait(), Ok(()), "the closure and the close came to their ends");
    assert_eq!((dropped(&drops), dropped(&others)), (1, 1));
    assert!(matches!(closed.close(), Err(Error::Gone { was_closed: false, .. })));
}

/// Closed properties do not use up memory: their slots are freed with their trusts.
#[test]
fn the_slots_of_closed_properties_are_used_again() {
    let _watch = watchdog!();
    let here = local_trustee();
    let bytes = || trust::link::memory(here).expect("it runs").properties_bytes;
    let close = || {
        let trusts: Vec<_> = (0..1000).map(|n| here.entrust([n; 20])).collect();
        trusts.iter().for_each(|trust| assert_eq!(trust.call().close().wait(), Ok(())));
    };
    close();
    let before = bytes();
    (0..20).for_each(|_| close());
    assert!(bytes() <= before, "{} bytes, and {before} after the first round", bytes());
}

/// Many threads use, clone and close the same properties.
#[test]
fn each_value_is_dropped_once_whoever_closes_it() {
    let _watch = watchdog!();
    let pool = pool(2);
    let rounds = common::effort(40, 1000);
    for _ in 0..rounds {
        let (values, drops): (Vec<_>, Vec<_>) = (0..8).map(|_| counted()).unzip();
        let trusts: Vec<_> = values.into_iter().map(|value| pool.entrust(Latch::new(value))).collect();
        let fibers: Vec<_> = (0..8)
            .map(|number| {
                let trusts = trusts.clone();
                pool.spawn(move || {
                    for (at, trust) in trusts.iter().enumerate() {
                        let next = &trusts[(at + 1) % trusts.len()];
                        match (number + at) % 4 {
                            0 => drop(trust.call().launch(|_| trust::yield_now()).wait()),
                            1 => drop(try_together((trust, next), |_| ())),
                            2 => drop(trust.call().apply(|latch| latch.try_lock().is_some()).wait()),
                            _ => drop(trust.call().close().wait()),
                        }
                    }
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert!(trusts.iter().all(|trust| is_closed(&trust.call().launch(|_| ()).wait())));
        drop(trusts);
        assert!(drops.iter().all(|drops| dropped(drops) == 1));
    }
}
