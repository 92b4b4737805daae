//! Every combination of a call that gives its errors: the kind of closure, an argument or none, a limit of time, and
//! the three ways to the result.

mod common;

use std::cell::RefCell;
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trust::{Error, Latch, Threadpool, Trust, local_trustee};

/// Checks an outcome: the closures divide 10 by the value.
fn check_result<U: PartialEq + Debug>(result: Result<U, Error>, expected: &Option<U>) {
    match (result, expected) {
        (Ok(value), Some(expected)) => assert_eq!(value, *expected),
        (Err(Error::Panicked { property, panic }), None) => {
            assert_eq!(property, "u32");
            assert!(panic.contains("divide by zero"), "{panic}");
        }
        (result, _) => panic!("{result:?} instead of {expected:?}"),
    }
}

/// Makes the call in all ways. A panic poisons the property, which `clear` accepts.
macro_rules! in_all_ways {
    ($runtime:expr, $clear:expr, $expected:expr, $call:expr) => {{
        let expected = &$expected;
        check_result($call.wait(), expected);
        $clear;
        check_result($call.timeout(limits::HANG).wait(), expected);
        $clear;
        let told = Rc::new(RefCell::new(Vec::new()));
        let tell = Rc::clone(&told);
        $call.then(move |result| tell.borrow_mut().push(result));
        trust::wait_all();
        let mut told = told.take();
        assert_eq!(told.len(), 1);
        check_result(told.remove(0), expected);
        $clear;
        check_result($runtime.block_on(async { $call.await }), expected);
        $clear;
    }};
}

fn every_combination(plain: &Trust<u32>, latched: &Trust<Latch<u32>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    // Both wait: a future takes another way to the trustee, and could arrive before the poison is cleared.
    let clear_plain = || {
        plain.clear_poison();
        plain.apply(|_| ());
    };
    let clear_latched = || {
        latched.clear_poison();
        latched.launch(|_| ());
    };
    for (value, quotient) in [(5, Some(2)), (0, None)] {
        let text = quotient.map(|quotient: u32| format!("ten: {quotient}"));
        let set = || plain.apply(move |v| *v = value);
        set();
        in_all_ways!(runtime, clear_plain(), quotient, plain.call().apply(|v| 10 / *v));
        let label = || "ten".to_owned();
        in_all_ways!(
            runtime,
            clear_plain(),
            text,
            plain.call().with(label()).apply(|v, label| format!("{label}: {}", 10 / *v))
        );
        latched.launch(move |v| *v = value);
        in_all_ways!(runtime, clear_latched(), quotient, latched.call().launch(|v| 10 / *v));
        in_all_ways!(runtime, clear_latched(), quotient, latched.call().launch_held(|v| 10 / **v));
        in_all_ways!(
            runtime,
            clear_latched(),
            text,
            latched.call().with(label()).launch(|v, label| format!("{label}: {}", 10 / *v))
        );
        in_all_ways!(
            runtime,
            clear_latched(),
            text,
            latched.call().with(label()).launch_held(|v, label| format!("{label}: {}", 10 / **v))
        );
    }
}

#[test]
fn every_combination_gives_its_result_or_its_error() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(1).pin(false).build();
    every_combination(&pool.entrust(0), &pool.entrust(Latch::new(0)));
}

#[test]
fn a_call_to_the_thread_itself_gives_the_same() {
    let _watch = watchdog!();
    let plain = local_trustee().entrust(5);
    assert_eq!(plain.call().apply(|v| 10 / *v).wait(), Ok(2));
    assert_eq!(plain.call().apply(|v| 10 / *v).timeout(Duration::ZERO).wait(), Ok(2), "it runs at once");
    assert_eq!(plain.call().with(3).apply(|v, more| *v + more).wait(), Ok(8));
    let seen = Rc::new(RefCell::new(None));
    let sees = Rc::clone(&seen);
    plain.call().apply(|v| *v).then(move |result| *sees.borrow_mut() = Some(result));
    assert_eq!(seen.take(), Some(Ok(5)));
}

#[test]
fn a_limited_wait_of_each_kind_ends() {
    let _watch = watchdog!();
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    fn slow(n: &mut i32, more: i32) {
        while !IS_OVER.load(Ordering::Relaxed) {
            trust::yield_now()
        }
        *n += more;
    }
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let number = pool.entrust(Latch::new(0));
    let short = Duration::from_millis(1);
    let late = [
        number.call().launch(|n| slow(n, 1)).timeout(short).wait(),
        number.call().launch_held(|n| slow(n, 1)).timeout(short).wait(),
        number.call().with(1).launch(slow).timeout(short).wait(),
        number.call().with(1).launch_held(|n, more| slow(n, more)).timeout(short).wait(),
    ];
    for late in late {
        assert_eq!(late, Err(Error::TimedOut { property: "i32" }));
    }
    IS_OVER.store(true, Ordering::Relaxed);
    assert_eq!(number.launch(|n| *n), 4, "all of them have run");
}

#[test]
fn a_future_is_sent_when_it_is_made_and_a_call_is_not() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let number = pool.entrust(0);
    drop(number.call().apply(|n| *n += 1));
    drop(number.call().apply(|n| *n += 10).into_future());
    limits::wait_until("the dropped future's closure has run", || number.apply(|n| *n) >= 10);
    assert_eq!(number.apply(|n| *n), 10);
}

#[test]
fn a_call_that_waits_inside_a_closure_is_named() {
    let _watch = watchdog!();
    let number = local_trustee().entrust(7);
    let other = number.clone();
    let refused = number.call().apply(move |_| other.call().apply(|n| *n).wait().is_ok()).wait();
    let Err(Error::Panicked { panic, .. }) = refused else { panic!("{refused:?}") };
    assert!(panic.contains("`apply` waits") && panic.contains("calls.rs"), "{panic}");
}
