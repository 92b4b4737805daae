//! Panics: in closures, callbacks, destructors, fibers, launched closures. Each reaches the code it concerns, the
//! trustee goes on, the property is poisoned, and no unwinding leaves a fiber's entry.

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::rc::Rc;
use std::thread;

use common::{is_child, panic_of, run_child, serve_until, stderr};
use trust::{Error, Latch, Shared, Threadpool, Trust, TrusteeReference, local_trustee};

fn pool() -> Threadpool {
    Threadpool::builder().workers(2).pin(false).build()
}

/// This thread, where the local shortcut serves, and a worker.
fn places(pool: &Threadpool) -> [TrusteeReference; 2] {
    [local_trustee(), pool.trustees()[0]]
}

#[test]
fn apply_goes_on_with_the_closure_s_own_panic() {
    let _watch = watchdog!();
    #[derive(Debug, PartialEq)]
    struct Own(u64);
    let pool = pool();
    for place in places(&pool) {
        let fresh = || place.entrust(0);
        assert_eq!(panic_of(|| fresh().apply(|_| panic!("plain"))), "plain");
        let number = 7;
        assert_eq!(panic_of(|| fresh().apply(move |_| panic!("with {number}"))), "with 7");
        let own = catch_unwind(AssertUnwindSafe(|| fresh().apply(|_| panic_any(Own(9))))).unwrap_err();
        assert_eq!(own.downcast_ref(), Some(&Own(9)));
        let text = panic_of(|| fresh().apply_with(|_, text: String| -> () { panic!("{text}") }, "carried".to_owned()));
        assert_eq!(text, "carried");
        let none: Result<(), _> = fresh().call().apply(|_| panic_any(3u8)).wait();
        let Err(Error::Panicked { panic, .. }) = none else { panic!("{none:?}") };
        assert!(panic.contains("not text"), "{panic}");
    }
}

#[test]
fn the_property_is_poisoned_and_tells_its_type_and_the_first_panic_until_cleared() {
    let _watch = watchdog!();
    struct Account {
        balance: i32,
    }
    let pool = pool();
    for place in places(&pool) {
        let account = place.entrust(Account { balance: 1 });
        let other = place.entrust(5);
        let first: Result<(), _> = account
            .call()
            .apply(|a| {
                a.balance = 2;
                panic!("first of all");
            })
            .wait();
        assert!(matches!(&first, Err(Error::Panicked { panic, .. }) if panic == "first of all"), "{first:?}");
        for text in [
            panic_of(|| account.apply(|a| a.balance)),
            panic_of(|| account.apply_with(|a, ()| a.balance, ())),
            account.call().apply(|a| a.balance).wait().unwrap_err().to_string(),
        ] {
            for word in ["Account", "poisoned", "first of all", "clear_poison"] {
                assert!(text.contains(word), "no `{word}` in: {text}");
            }
        }
        let told = Rc::new(Cell::new(0));
        let (tell, never) = (Rc::clone(&told), Rc::clone(&told));
        account.call().apply(|a| a.balance).then(move |outcome| {
            assert!(matches!(outcome, Err(Error::Poisoned { .. })));
            tell.set(tell.get() + 1);
        });
        account.apply_then(|a| a.balance, move |_| never.set(100));
        assert_eq!(other.apply(|v| *v), 5, "the trustee goes on");
        serve_until(|| told.get() == 1);
        // From another thread too.
        let there = account.clone();
        assert!(pool.spawn_on(1, move || there.call().apply(|_| ()).wait().is_err()).join().unwrap());
        account.clear_poison();
        assert_eq!(account.apply(|a| a.balance), 2);
        assert_eq!(told.get(), 1);
    }
}

/// The panic's own place is in the library, so the text names the call's.
#[test]
fn messages_name_the_call_and_its_place() {
    let _watch = watchdog!();
    let pool = pool();
    for place in places(&pool) {
        let number = place.entrust(Latch::new(1));
        let _: Result<(), _> = number.call().apply(|_| panic!("first")).wait();
        let other = number.clone();
        for (line, call, text) in [
            (line!(), "apply", panic_of(|| number.apply(|_| ()))),
            (line!(), "apply_with", panic_of(|| number.apply_with(|_, ()| (), ()))),
            (line!(), "launch", panic_of(|| number.launch(|_| ()))),
            (line!(), "apply", panic_of(|| place.entrust(0).apply(move |_| other.apply(|_| ())))),
        ] {
            let named = format!("`{call}` at {}:{line}:", file!());
            assert!(text.contains(&named), "no {named} in: {text}");
        }
    }
}

#[test]
fn a_panic_in_the_middle_of_a_batch_concerns_nobody_else() {
    let _watch = watchdog!();
    let pool = pool();
    let properties: Vec<Trust<u32>> = (0..10).map(|_| pool.trustees()[0].entrust(0)).collect();
    let (good, bad) = (Rc::new(Cell::new(0u32)), Rc::new(Cell::new(0u32)));
    const ROUNDS: u32 = 500;
    for round in 0..ROUNDS {
        for (place, property) in properties.iter().enumerate() {
            let (good, bad) = (Rc::clone(&good), Rc::clone(&bad));
            let fails = place % 3 == 1 || round % 7 == 3;
            let padding = [round; 12];
            property
                .call()
                .apply(move |v| {
                    *v += 1;
                    assert!(!fails, "asked to fail");
                    (padding, *v)
                })
                .then(move |outcome| match outcome {
                    Ok((padding, v)) => {
                        assert_eq!((padding, v), ([round; 12], round + 1), "another request's response");
                        good.set(good.get() + 1);
                    }
                    Err(Error::Panicked { panic, .. }) => {
                        assert!(fails && panic == "asked to fail", "{panic}");
                        bad.set(bad.get() + 1);
                    }
                    Err(other) => panic!("{other}"),
                });
            property.clear_poison();
        }
    }
    serve_until(|| good.get() + bad.get() == ROUNDS * 10);
    assert!(bad.get() >= ROUNDS * 3 && good.get() >= ROUNDS * 5);
    for property in properties {
        assert_eq!(property.apply(|v| *v), ROUNDS);
    }
}

#[test]
fn apply_then_reports_a_panic_for_which_nobody_waits() {
    let _watch = watchdog!();
    if is_child() {
        let pool = pool();
        for place in places(&pool) {
            let property = place.entrust(vec![1u16]);
            property.apply_then(|_| panic!("nobody waits"), |()| ());
            property.apply_then(|v| v.len(), |_| ());
        }
        return;
    }
    let output = run_child("apply_then_reports_a_panic_for_which_nobody_waits");
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    for line in ["`alloc::vec::Vec<u16>` panicked: nobody waits", "`alloc::vec::Vec<u16>` is poisoned"] {
        assert_eq!(text.matches(line).count(), 2, "{line}\n{text}");
    }
}

#[test]
fn a_panic_in_a_callback_leaves_the_thread_as_it_was() {
    let _watch = watchdog!();
    let pool = pool();
    for place in places(&pool) {
        let property = place.entrust(0);
        let ran = Rc::new(Cell::new(0));
        for number in 0..200 {
            let ran = Rc::clone(&ran);
            property.apply_then(
                |v| *v += 1,
                move |()| {
                    ran.set(ran.get() + 1);
                    assert!(number % 10 != 0, "callback {number}");
                },
            );
        }
        // Waiting is legal again: the context is as before.
        assert_eq!(property.apply(|v| *v), 200);
        assert_eq!(ran.get(), 200);
        assert!(property.call().apply(|_| ()).wait().is_ok(), "a callback's panic poisons nothing");
    }
}

#[test]
fn a_panic_in_the_callback_of_a_request_to_a_gone_trustee_leaves_the_thread_as_it_was() {
    let _watch = watchdog!();
    let gone = thread::spawn(|| local_trustee().entrust(0)).join().unwrap();
    let here = local_trustee().entrust(1);
    for _ in 0..3 {
        let told = Rc::new(Cell::new(false));
        let tell = Rc::clone(&told);
        let _ = catch_unwind(AssertUnwindSafe(|| {
            gone.call().apply(|v| *v).then(move |outcome| {
                tell.set(true);
                assert!(outcome.is_ok(), "a callback that did not expect that");
            });
        }));
        serve_until(|| told.get());
        assert_eq!(here.apply(|v| *v), 1, "waiting is legal here");
    }
}

#[test]
fn a_panic_in_the_callback_of_a_launch_leaves_the_thread_as_it_was() {
    let _watch = watchdog!();
    let pool = pool();
    for place in places(&pool) {
        let latch = place.entrust(Latch::new(1));
        let told = Rc::new(Cell::new(false));
        let tell = Rc::clone(&told);
        latch.launch_then(
            |v| *v,
            move |_| {
                tell.set(true);
                panic!("in the callback of a launch");
            },
        );
        serve_until(|| told.get());
        assert_eq!(latch.launch(|v| *v + 1), 2);
    }
}

#[test]
fn a_panic_in_a_launched_closure() {
    let _watch = watchdog!();
    let pool = pool();
    for place in places(&pool) {
        let latch = place.entrust(Latch::new(1));
        assert_eq!(panic_of(|| latch.launch(|_| panic!("launched"))), "launched");
        let refused = latch.call().with(String::new()).launch(|_, _: String| ()).wait();
        assert!(matches!(refused, Err(Error::Poisoned { .. })));
        assert!(latch.call().apply(|_| ()).wait().is_err());
        latch.clear_poison();
        // The value came back into the latch.
        assert_eq!(latch.launch(|v| *v), 1);
        let said = latch.call().with("said".to_owned()).launch(|_, text: String| -> () { panic!("{text}") }).wait();
        assert!(matches!(said, Err(Error::Panicked { panic, .. }) if panic == "said"));
        latch.clear_poison();
        assert_eq!(latch.apply(|latch| *latch.try_lock().unwrap()), 1);
    }
}

#[test]
fn trap_07_a_panic_in_a_fiber_ends_that_fiber_alone() {
    let _watch = watchdog!();
    let pool = pool();
    let property = pool.entrust(0);
    let deep = pool.spawn(|| {
        fn down(depth: u32) -> u32 {
            let guard = Shared::new(depth);
            if depth == 0 { panic!("at the bottom") } else { down(depth - 1) + *guard }
        }
        down(100)
    });
    assert_eq!(common::text(&*deep.join().unwrap_err()), "at the bottom");
    // With values to drop on its stack, some of which delegate while it unwinds.
    struct Adds(Trust<i32>);
    impl Drop for Adds {
        fn drop(&mut self) {
            self.0.apply(|v| *v += 1);
            trust::yield_now();
        }
    }
    let fibers: Vec<_> = (0..50)
        .map(|number| {
            let property = property.clone();
            pool.spawn(move || {
                let _adds = (Adds(property.clone()), Adds(property));
                trust::yield_now();
                assert!(number % 2 == 0, "fiber {number}");
            })
        })
        .collect();
    let failed = fibers.into_iter().map(|fiber| fiber.join()).filter(Result::is_err).count();
    assert_eq!(failed, 25);
    assert_eq!(property.apply(|v| *v), 100);
    // Of the thread's own fibers too.
    assert_eq!(common::text(&*trust::spawn(|| panic!("own")).join().unwrap_err()), "own");
}

/// A destructor that gives something back by a call may wait while a panic unwinds. The counts that std keeps by thread
/// are shared meanwhile (docs/UNSAFE.md, known limits), those of the library are not: no other property is poisoned,
/// and all outcomes are their own.
/// are their own.
#[test]
fn trap_07_a_fiber_may_wait_in_a_destructor_while_it_unwinds() {
    struct GivesBack(Trust<u32>, Shared<std::sync::atomic::AtomicBool>);
    impl Drop for GivesBack {
        fn drop(&mut self) {
            while !self.1.load(std::sync::atomic::Ordering::SeqCst) {
                self.0.apply(|n| *n += 1);
            }
        }
    }
    let _watch = watchdog!();
    let (pool, other) = (Threadpool::builder().workers(1).pin(false).build(), pool());
    let (count, latch, own) = (other.entrust(0), pool.entrust(Latch::new(0)), pool.entrust(0));
    let done = Shared::new(std::sync::atomic::AtomicBool::new(false));
    let gives_back = GivesBack(count.clone(), done.clone());
    let unwinds = pool.spawn(move || {
        let _gives_back = gives_back;
        panic!("of the first")
    });
    let unwinds: trust::JoinHandle<()> = unwinds;
    serve_until(|| count.apply(|n| *n) > 0);
    // It is in the middle of its unwinding now, and its thread counts a panic.
    let beside = [false, true].map(|panics| {
        let (latch, own) = (latch.clone(), own.clone());
        pool.spawn(move || {
            let was_panicking = thread::panicking();
            latch.launch(|n| *n += 1);
            own.apply(|n| *n += 1);
            assert!(!panics, "of another");
            was_panicking
        })
    });
    let [goes_on, panics] = beside.map(trust::JoinHandle::join);
    assert!(goes_on.unwrap(), "std counts by thread: if this changes, docs/UNSAFE.md is to be changed");
    assert_eq!(common::text(&*panics.unwrap_err()), "of another");
    assert!(!unwinds.is_finished());
    done.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(common::text(&*unwinds.join().unwrap_err()), "of the first");
    assert_eq!((latch.launch(|n| *n), own.call().apply(|n| *n).wait()), (2, Ok(2)));
    assert!(!pool.spawn(thread::panicking).join().unwrap());
}
