//! The table of calls: each row in each form, with a result, a panic, and a property that is poisoned.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gossamer::{Error, Latch};

use super::ground::{panic_of, spots, until};

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
    given.take()
}

/// One row: a closure that divides a hundred by the value, in all its forms.
macro_rules! row {
    ($test:ident, $property:expr, $reset:expr, ($($call:expr),+):
        $plain:ident $attempt:ident $timeout:ident $then:ident $try_then:ident $future:ident $try_future:ident) => {
        pub fn $test() {
            for place in spots() {
                let number = gossamer::entrust_with(place, || $property);
                assert_eq!(number.$plain($($call),+), 25, "{place}");
                assert_eq!(number.$attempt($($call),+), Ok(25));
                assert_eq!(number.$timeout($($call,)+ LONG), Ok(25));
                assert_eq!(called_back(|then| number.$then($($call,)+ then)), Some(25));
                assert_eq!(called_back(|then| number.$try_then($($call,)+ then)), Some(Ok(25)));
                assert_eq!(wait(number.$future($($call),+)), 25);
                assert_eq!(wait(number.$try_future($($call),+)), Ok(25));

                let reset = |to: u64| {
                    number.clear_poison();
                    number.apply($reset(to));
                };
                let panicked = |error: &Error| matches!(error, Error::Panicked { .. });
                reset(0);
                assert!(panic_of(|| number.$plain($($call),+)).contains("divide by zero"), "{place}");
                reset(0);
                assert!(number.$attempt($($call),+).is_err_and(|error| panicked(&error)));
                reset(0);
                assert!(number.$timeout($($call,)+ LONG).is_err_and(|error| panicked(&error)));
                reset(0);
                assert_eq!(called_back(|then| number.$then($($call,)+ then)), None);
                reset(0);
                let outcome = called_back(|then| number.$try_then($($call,)+ then));
                assert!(outcome.is_some_and(|outcome| outcome.is_err_and(|error| panicked(&error))));
                reset(0);
                assert!(panic_of(|| wait(number.$future($($call),+))).contains("divide by zero"), "{place}");
                reset(0);
                assert!(wait(number.$try_future($($call),+)).is_err_and(|error| panicked(&error)), "{place}");

                let poisoned = |outcome: Result<u64, Error>| matches!(outcome, Err(Error::Poisoned { .. }));
                assert!(panic_of(|| number.$plain($($call),+)).contains("divide by zero"), "{place}");
                assert!(poisoned(number.$attempt($($call),+)));
                assert!(poisoned(number.$timeout($($call,)+ LONG)));
                assert_eq!(called_back(|then| number.$then($($call,)+ then)), None);
                assert!(called_back(|then| number.$try_then($($call,)+ then)).is_some_and(poisoned));
                assert!(panic_of(|| wait(number.$future($($call),+))).contains("divide by zero"), "{place}");
                assert!(poisoned(wait(number.$try_future($($call),+))), "{place}");

                reset(4);
                assert_eq!(number.$plain($($call),+), 25);
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

row!(apply_in_each_form, 4u64, plain, (|n| 100 / *n):
    apply try_apply apply_timeout apply_then try_apply_then apply_async try_apply_async);
row!(apply_with_in_each_form, 4u64, plain, (|n, text: String| parse(&text) / *n, "100".to_owned()):
    apply_with try_apply_with apply_with_timeout apply_with_then try_apply_with_then apply_with_async try_apply_with_async);
row!(launch_in_each_form, Latch::new(4u64), latched, (|n| { gossamer::yield_now(); 100 / *n }):
    launch try_launch launch_timeout launch_then try_launch_then launch_async try_launch_async);
row!(launch_with_in_each_form, Latch::new(4u64), latched,
    (|n, text: String| { gossamer::yield_now(); parse(&text) / *n }, "100".to_owned()):
    launch_with try_launch_with launch_with_timeout launch_with_then try_launch_with_then launch_with_async try_launch_with_async);
row!(launch_held_in_each_form, Latch::new(4u64), latched, (|n| { n.released(gossamer::yield_now); 100 / **n }):
    launch_held try_launch_held launch_held_timeout launch_held_then try_launch_held_then launch_held_async try_launch_held_async);
row!(launch_held_with_in_each_form, Latch::new(4u64), latched,
    (|n, text: String| { n.released(gossamer::yield_now); parse(&text) / **n }, "100".to_owned()):
    launch_held_with try_launch_held_with launch_held_with_timeout launch_held_with_then try_launch_held_with_then launch_held_with_async
    try_launch_held_with_async);
