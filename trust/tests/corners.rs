//! Corners that once went wrong: callbacks with strict alignment, payloads that panic, trustees that follow each other
//! under one index, pools that end where nothing may wait.

mod common;

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::path::PathBuf;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use common::{join_and_serve, serve_until};
use trust::{Error, Latch, Threadpool, Trust, TrusteeReference, local_trustee, spawn, yield_now};

#[test]
fn trap_09_callbacks_with_strict_alignment_survive_a_growing_buffer() {
    let _watch = watchdog!();
    #[repr(align(64))]
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Line([u64; 8]);
    let wrong = Rc::new(Cell::new(0));
    for round in 0..10usize {
        let ballast = vec![0u8; round * 16 + 8];
        let pool = Threadpool::new(1);
        let property = pool.entrust(0u64);
        for i in 0..200 {
            let (line, wrong) = (Line([i; 8]), Rc::clone(&wrong));
            let check = move |()| {
                let line = line;
                wrong.set(wrong.get() + u64::from(line != Line([i; 8])));
            };
            property.apply_then(|value| *value += 1, check);
        }
        assert_eq!(property.apply(|value| *value), 200);
        drop(ballast);
    }
    assert_eq!(wrong.get(), 0);
}

/// Panics once more when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("the payload's own panic");
        }
    }
}

#[test]
fn trap_07_a_payload_that_panics_stays_where_it_is() {
    let _watch = watchdog!();
    let pool = Threadpool::new(1);
    let property = pool.entrust(0u64);
    let drops = Rc::new(());
    let held = Rc::clone(&drops);
    property.apply_then(|_| (), move |()| drop(held));
    property.apply_then(|_| (), |()| panic_any(Bomb));
    assert_eq!(property.apply(|_| 5), 5);
    assert_eq!(Rc::strong_count(&drops), 1);
    assert_eq!(property.apply(|_| 6), 6);
}

#[test]
fn a_result_that_panics_while_it_is_read_back_reaches_its_caller() {
    let _watch = watchdog!();
    #[derive(serde::Serialize)]
    struct Unreadable(u8);
    impl<'de> serde::Deserialize<'de> for Unreadable {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            panic!("cannot be read")
        }
    }
    let pool = Threadpool::new(1);
    let property = pool.entrust(0u64);
    let call = AssertUnwindSafe(|| property.apply_with(|_, _: u8| Unreadable(1), 1u8));
    let payload = catch_unwind(call).err().expect("it panics");
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"cannot be read"));
    assert_eq!(property.apply(|value| *value), 0);
}

#[test]
fn what_needs_names_in_the_format_is_told_so() {
    let _watch = watchdog!();
    #[derive(Debug, serde::Serialize, serde::Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u32),
        Text(String),
    }
    let pool = Threadpool::new(1);
    let list = pool.entrust(Vec::<Either>::new());
    for either in [Either::Number(1), Either::Text("one".to_owned())] {
        let error = list.call().with(either).apply(|list, either: Either| list.push(either)).wait().unwrap_err();
        assert!(matches!(error, Error::Codec { .. }) && error.to_string().contains("`untagged`"), "{error}");
    }
    assert_eq!(list.apply(|list| list.len()), 0);
    // A type's own refusal is no matter of names.
    let path = PathBuf::from(OsStr::from_bytes(b"\xff"));
    let paths = pool.entrust(Vec::<PathBuf>::new());
    let error = paths.call().with(path).apply(|paths, path| paths.push(path)).wait().unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("did not serialise: path contains invalid UTF-8 characters"), "{text}");
}

#[test]
fn a_callback_s_local_request_comes_before_a_later_one_of_a_fiber() {
    let _watch = watchdog!();
    let pool = Threadpool::new(1);
    let other = pool.entrust(0u64);
    let here = Rc::new(local_trustee().entrust(Vec::<u32>::new()));
    let posted = Rc::new(Cell::new(false));
    let (list, flag) = (Rc::clone(&here), Rc::clone(&posted));
    other.apply_then(
        |_| (),
        move |()| {
            list.apply_then(|list| list.push(1), |()| ());
            flag.set(true);
        },
    );
    let (list, flag) = (Rc::clone(&here), Rc::clone(&posted));
    let fiber = spawn(move || {
        while !flag.get() {
            yield_now();
        }
        list.apply(|list| list.push(2));
    });
    fiber.join().unwrap();
    assert_eq!(here.apply_with(|list, ()| list.clone(), ()), [1, 2]);
}

#[test]
fn a_callback_that_tries_again_on_a_gone_trustee_does_not_recurse() {
    let _watch = watchdog!();
    fn again(property: Rc<Trust<u64>>, tries: Rc<Cell<u32>>) {
        tries.set(tries.get() + 1);
        if tries.get() < 100_000 {
            let next = Rc::clone(&property);
            property.call().apply(|_| ()).then(move |outcome| {
                assert!(outcome.is_err());
                again(next, tries);
            });
        }
    }
    let pool = Threadpool::new(1);
    let property = Rc::new(pool.entrust(0));
    drop(pool);
    let tries = Rc::new(Cell::new(0));
    again(property, Rc::clone(&tries));
    serve_until(|| tries.get() == 100_000);
}

#[test]
fn trap_06_trustees_that_follow_each_other_under_one_index_are_kept_apart() {
    let _watch = watchdog!();
    for _ in 0..50 {
        let first = Threadpool::new(1);
        let old = first.entrust(1u64);
        old.apply(|value| *value += 1);
        let answered = Rc::new(Cell::new(0));
        let seen = Rc::clone(&answered);
        old.call().apply(|value| *value).then(move |outcome| {
            assert_eq!(outcome, Ok(2));
            seen.set(seen.get() + 1);
        });
        drop(first);
        let second = Threadpool::new(1);
        let new = second.entrust(10u64);
        let seen = Rc::clone(&answered);
        let inner = new.clone();
        old.call().apply(|_| ()).then(move |outcome| {
            assert!(matches!(outcome, Err(Error::Gone { .. })));
            inner.apply_then(|value| *value += 1, move |()| seen.set(seen.get() + 1));
        });
        serve_until(|| answered.get() == 2);
        assert_eq!(new.apply(|value| *value), 11);
    }
}

#[test]
fn a_pool_may_be_dropped_where_nothing_may_wait() {
    let _watch = watchdog!();
    let pool = Threadpool::new(1);
    let counter = pool.entrust(0u64);
    counter.apply_then(|value| *value += 1, |()| ());
    let gone = pool.trustees()[0];
    drop(local_trustee().entrust(pool));
    serve_until(|| trust::stats(gone).is_none());
    assert!(counter.call().apply(|value| *value).wait().is_err());
}

#[test]
fn trap_12_a_value_entrusted_while_a_thread_goes_down_harms_nobody() {
    let _watch = watchdog!();
    struct Late(TrusteeReference);
    impl Drop for Late {
        fn drop(&mut self) {
            let trustee = self.0;
            let _ = catch_unwind(AssertUnwindSafe(|| trustee.entrust(7u64)));
        }
    }
    thread_local!(static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) });
    let pool = Threadpool::new(1);
    let trustee = pool.trustees()[0];
    let kept = pool.entrust(vec![1u64]);
    let ending = thread::spawn(move || {
        LATE.with(|late| *late.borrow_mut() = Some(Late(trustee)));
        local_trustee();
    });
    join_and_serve(ending);
    assert_eq!(kept.apply(|value| value.len()), 1);
}

/// "Never" as a limit: the clock cannot express such a time, and the only effect must be a wait.
#[test]
fn limits_beyond_the_clock_are_no_limits() {
    let _watch = watchdog!();
    for never in [Duration::MAX, Duration::from_secs(i64::MAX as u64), Duration::from_secs(i64::MAX as u64 / 2)] {
        let pool = Threadpool::builder().workers(1).spin(never).build();
        let latch = pool.entrust(Latch::new(1));
        assert_eq!(latch.call().launch(|value| *value).timeout(never).wait(), Ok(1));
        let (promise, pending) = trust::promise();
        let waits = spawn(move || (trust::select(&[&pending], Some(never)), pending.wait_timeout(never)));
        let sleeps = spawn(move || trust::sleep(never));
        yield_now();
        promise.keep(2);
        assert_eq!(waits.join().ok(), Some((Some(0), Some(Ok(2)))));
        sleeps.abort();
        assert!(sleeps.join().is_err());
        drop(latch);
        assert!(pool.shutdown_timeout(never).is_ok());
    }
}
