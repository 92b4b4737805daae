//! The table of calls: each row in each form, with a result, a panic, and a property that is poisoned.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gossamer::{Error, Latch};

use super::ground::{Witness, beside, ended, none_is_lost, panics_with, remote, spots, until};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(1000);

/// Waits in a fiber for a future; returns its outcome.
fn wait<F: Future>(future: F) -> F::Output {
    let (future, outcome) = (RefCell::new(Box::pin(future)), RefCell::new(None));
    until(|| {
        let polled = future.borrow_mut().as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(value) = polled {
            *outcome.borrow_mut() = Some(value);
        }
        outcome.borrow().is_some()
    });
    outcome.into_inner().expect("it is ready")
}

/// Returns the argument of a form's callback.
fn called_back<U: 'static>(call: impl FnOnce(Box<dyn FnOnce(U)>)) -> Option<U> {
    let given = Rc::new(RefCell::new(None));
    let give = Rc::clone(&given);
    call(Box::new(move |value| *give.borrow_mut() = Some(value)));
    gossamer::wait_all();
    let given = given.take();
    if given.is_none() {
        none_is_lost(); // the loss was reported, and the callback dropped
    }
    given
}

/// One row: a closure that divides a hundred by the value, in all ways that give errors, and in those of the forms that
/// panic which there are: with a wait, with a callback, with a future.
macro_rules! row {
    (
        $test:ident, $property:expr, $reset:expr, $number:ident: $call:expr
        $(, wait $wait:expr)? $(, then $then:ident $callback:expr)? $(, future $future:expr)?
    ) => {
        pub fn $test() {
            for place in spots() {
                let $number = gossamer::entrust_with(place, || $property);
                assert_eq!($call.wait(), Ok(25), "{place}");
                assert_eq!($call.timeout(LONG).wait(), Ok(25));
                assert_eq!(called_back(|then| $call.then(then)), Some(Ok(25)));
                assert_eq!(wait($call.into_future()), Ok(25));
                $(assert_eq!($wait, 25, "{place}");)?
                $(assert_eq!(called_back(|$then| $callback), Some(25));)?
                $(assert_eq!(wait($future), 25);)?

                let reset = |to: u64| {
                    $number.clear_poison();
                    $number.apply($reset(to));
                };
                let panicked = |outcome: Result<u64, Error>| {
                    assert!(matches!(outcome, Err(Error::Panicked { .. })), "{place}: {outcome:?}");
                    true
                };
                reset(0);
                assert!(panicked($call.wait()), "{place}");
                reset(0);
                assert!(panicked($call.timeout(LONG).wait()));
                reset(0);
                assert!(called_back(|then| $call.then(then)).is_some_and(panicked));
                reset(0);
                assert!(panicked(wait($call.into_future())), "{place}");
                $(
                    reset(0);
                    panics_with("divide by zero", || $wait);
                )?
                $(
                    reset(0);
                    assert_eq!(called_back(|$then| $callback), None);
                )?
                $(
                    reset(0);
                    panics_with("divide by zero", || wait($future));
                )?

                let poisoned = |outcome: Result<u64, Error>| {
                    assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{place}: {outcome:?}");
                    true
                };
                assert!(poisoned($call.wait()));
                assert!(poisoned($call.timeout(LONG).wait()));
                assert!(called_back(|then| $call.then(then)).is_some_and(poisoned));
                assert!(poisoned(wait($call.into_future())), "{place}");
                $(panics_with("divide by zero", || $wait);)?
                $(assert_eq!(called_back(|$then| $callback), None);)?
                $(panics_with("divide by zero", || wait($future));)?

                reset(4);
                assert_eq!($call.wait(), Ok(25));
            }
        }
    };
}

fn plain(to: u64) -> impl FnOnce(&mut u64) + gossamer::NoRef + Send + 'static {
    move |number| *number = to
}

fn latched(to: u64) -> impl FnOnce(&mut Latch<u64>) + gossamer::NoRef + Send + 'static {
    move |latch| *latch = Latch::new(to)
}

/// Parses a number: the text travels serialised, there and back.
fn parse(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// The text that travels along.
fn hundred() -> String {
    "100".to_owned()
}

row!(apply_in_each_form, 4u64, plain, number: number.call().apply(|n| 100 / *n),
    wait number.apply(|n| 100 / *n),
    then then number.apply_then(|n| 100 / *n, then),
    future number.apply_async(|n| 100 / *n));
row!(apply_with_in_each_form, 4u64, plain, number:
    number.call().with(hundred()).apply(|n, text| parse(&text) / *n),
    wait number.apply_with(|n, text: String| parse(&text) / *n, hundred()));
row!(launch_in_each_form, Latch::new(4u64), latched, number:
    number.call().launch(|n| { gossamer::yield_now(); 100 / *n }),
    wait number.launch(|n| { gossamer::yield_now(); 100 / *n }),
    then then number.launch_then(|n| { gossamer::yield_now(); 100 / *n }, then));
row!(launch_with_in_each_form, Latch::new(4u64), latched, number:
    number.call().with(hundred()).launch(|n, text| { gossamer::yield_now(); parse(&text) / *n }));
row!(launch_held_in_each_form, Latch::new(4u64), latched, number:
    number.call().launch_held(|n| { n.released(gossamer::yield_now); 100 / **n }));
row!(launch_held_with_in_each_form, Latch::new(4u64), latched, number:
    number.call().with(hundred()).launch_held(|n, text| { n.released(gossamer::yield_now); parse(&text) / **n }));

/// Closure whose type is known at run time.
type Job = dyn FnOnce(&mut Vec<String>) -> usize + Send;

/// Any `Send` values go to a property of this process and come back as they are.
pub fn in_process_in_each_form() {
    let text = Arc::new("far".to_owned());
    for place in [gossamer::here(), beside()] {
        let names = gossamer::entrust_with(place, || Latch::new(Vec::<String>::new()));
        let add = |name: &str| {
            let (name, text) = (name.to_owned(), Arc::clone(&text));
            move |names: &mut Vec<String>| {
                names.push(name);
                (names.clone(), text)
            }
        };
        let launched = names.call().in_process().launch(add("a")).wait();
        assert_eq!(launched, Ok((vec!["a".to_owned()], Arc::clone(&text))), "{place}");
        assert!(Arc::ptr_eq(&launched.expect("it was compared").1, &text), "the value itself came back");
        let plain = gossamer::entrust_with(place, Vec::<String>::new);
        assert_eq!(plain.call().in_process().apply(add("b")).timeout(LONG).wait().map(|(all, _)| all.len()), Ok(1));
        let called = called_back(|then| plain.call().in_process().apply(add("c")).then(then));
        assert_eq!(called.map(|result| result.map(|(all, _)| all.concat())), Some(Ok("bc".to_owned())));
        let future = plain.call().in_process().apply(add("d")).into_future();
        assert_eq!(wait(future).map(|(all, _)| all.concat()), Ok("bcd".to_owned()), "{place}");
        let job: Box<Job> = Box::new(|names| names.len());
        assert_eq!(plain.call().in_process().apply(job).wait(), Ok(3), "a closure is a value too");
    }
}

/// A call with values of this process does not leave it: every form has the error, and each value is dropped here.
pub fn in_process_is_refused_elsewhere() {
    if remote().machine == gossamer::here().machine {
        return; // there is no other machine
    }
    let dropped = gossamer::entrust_with(gossamer::here(), || 0);
    let number = gossamer::entrust_with(remote(), || 4u64);
    let latched = gossamer::entrust_with(remote(), || Latch::new(4u64));
    let witness = || Box::new(Witness(dropped.clone()));
    let on_number = || {
        let witness = witness();
        move |number: &mut u64| {
            *number = 0;
            drop(witness);
        }
    };
    let refused = |outcome: Result<(), Error>| {
        let error = outcome.expect_err("it is on another machine");
        assert!(matches!(error, Error::Apart { property: "u64" }), "{error}");
        assert!(error.to_string().contains("`in_process`"), "{error}");
    };
    refused(number.call().in_process().apply(on_number()).wait());
    refused(number.call().in_process().apply(on_number()).timeout(LONG).wait());
    refused(called_back(|then| number.call().in_process().apply(on_number()).then(then)).expect("it calls back"));
    refused(wait(number.call().in_process().apply(on_number()).into_future()));
    refused(latched.call().in_process().launch(on_number()).wait());
    refused(latched.call().in_process().launch(on_number()).timeout(LONG).wait());
    refused(called_back(|then| latched.call().in_process().launch(on_number()).then(then)).expect("it calls back"));
    refused(wait(latched.call().in_process().launch(on_number()).into_future()));
    ended(&dropped, 8);
    assert_eq!((number.apply(|n| *n), latched.launch(|n| *n)), (4, 4));
    // The same from within a closure, where nothing may wait.
    let far = number.clone();
    let near = gossamer::entrust_with(gossamer::here(), move || far);
    let closure = on_number();
    let job = move |far: &mut gossamer::Trust<u64>| far.call().in_process().apply(closure).then(refused);
    assert_eq!(near.call().in_process().apply(job).wait(), Ok(()));
    gossamer::wait_all();
    ended(&dropped, 9);
}
