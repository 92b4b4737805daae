//! Many at once: closures on each of many properties, fibers that are joined together, the first of several promises,
//! and waits that end.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::{PanicsOnDrop, panic_of, serve_until, stand_until};
use fastrand::Rng;
use trust::{
    Error, Latch, Pending, Shared, Source, Threadpool, Trust, TrusteeReference, apply_each, apply_each_with, join_all,
    local_trustee, promise, select, spawn_on, try_apply_each, try_apply_each_with,
};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(1000);

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

/// Properties of the pool and of the caller, in turn.
fn numbers(pool: &Threadpool, many: usize) -> Vec<Trust<u64>> {
    let trustees: Vec<_> = pool.trustees().iter().copied().chain([local_trustee()]).collect();
    (0..many).map(|number| trustees[number % trustees.len()].entrust(number as u64)).collect()
}

#[test]
fn each_property_is_asked_once_and_answers_in_its_place() {
    let _watch = watchdog!();
    let pool = pool(2);
    for many in [0, 1, 2, 7, 3000] {
        let numbers = numbers(&pool, many);
        let run = |numbers: Vec<Trust<u64>>| {
            let doubled = apply_each(&numbers, |number| {
                *number += 1;
                *number * 2
            });
            assert!(doubled.into_iter().eq((1..=numbers.len() as u64).map(|number| number * 2)));
            let texts = (0..numbers.len()).map(|place| format!("{place} of {}", numbers.len()));
            let told = apply_each_with(numbers.iter().zip(texts), |number, text: String| format!("{text}: {number}"));
            assert_eq!(told.len(), numbers.len());
            let text = |place: usize| format!("{place} of {}: {}", numbers.len(), place + 1);
            assert!(told.into_iter().enumerate().all(|(place, told)| told == text(place)));
        };
        run(numbers.clone());
        apply_each(&numbers, |number| *number -= 1);
        pool.spawn(move || run(numbers)).join().unwrap();
    }
}

#[test]
fn one_that_fails_does_not_keep_the_others() {
    let _watch = watchdog!();
    let pool = pool(2);
    let gone = {
        let pool = Threadpool::new(1);
        pool.entrust(9)
    };
    let mut numbers = numbers(&pool, 6);
    numbers.push(gone);
    let outcomes = try_apply_each(&numbers, |number| {
        assert!(*number % 3 != 1, "not {number}");
        *number
    });
    let is_right = |(place, outcome): (usize, &Result<u64, Error>)| match outcome {
        Ok(number) => *number == place as u64 && place % 3 != 1,
        Err(Error::Panicked { panic, .. }) => *panic == format!("not {place}") && place % 3 == 1,
        Err(Error::Gone { .. }) => place == 6,
        Err(_) => false,
    };
    assert!(outcomes.len() == 7 && outcomes.iter().enumerate().all(is_right), "{outcomes:?}");
    assert!(panic_of(|| apply_each(&numbers, |number| *number)).contains("(not 1)"));
    numbers.truncate(6);
    numbers.iter().for_each(Trust::clear_poison);
    let place = panic_of(|| apply_each(&numbers, |number| assert!(*number != 4, "the first is told")));
    assert_eq!(place, "the first is told");
    numbers[4].clear_poison();
    let outcomes = try_apply_each_with(numbers.iter().zip(0..), |number, other: u64| assert_eq!(*number + other, 2));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
}

/// The caller's own code, between the calls.
#[test]
fn a_list_that_panics_leaves_nothing_behind() {
    let _watch = watchdog!();
    let pool = pool(1);
    let numbers = numbers(&pool, 8);
    let list = numbers.iter().enumerate().map(|(place, number)| {
        assert!(place != 5, "the list ends here");
        number
    });
    assert_eq!(panic_of(|| apply_each(list, |number| *number += 100)), "the list ends here");
    trust::wait_all();
    let changed: Vec<u64> = apply_each(&numbers, |number| *number);
    assert_eq!(changed, [100, 101, 102, 103, 104, 5, 6, 7]);
    let refused =
        local_trustee().entrust(numbers).call().apply(|numbers| apply_each(&*numbers, |number| *number).len()).wait();
    assert!(refused.unwrap_err().to_string().contains("`apply_each` waits, and nothing may wait inside"));
}

#[test]
fn fibers_are_joined_in_order_and_run_at_the_same_time() {
    let _watch = watchdog!();
    static THERE: AtomicUsize = AtomicUsize::new(0);
    let pool = pool(2);
    let fiber = |number: usize| {
        pool.spawn(move || {
            THERE.fetch_add(1, Ordering::SeqCst);
            serve_until(|| THERE.load(Ordering::SeqCst) == 20);
            assert!(number != 13, "unlucky");
            number
        })
    };
    let outcomes = join_all((0..20).map(fiber));
    let is_right = |(place, outcome): (usize, trust::Outcome<usize>)| match outcome {
        Ok(number) => number == place,
        Err(panic) => place == 13 && panic.downcast_ref::<&str>() == Some(&"unlucky"),
    };
    assert!(outcomes.len() == 20 && outcomes.into_iter().enumerate().all(is_right));
}

#[test]
fn the_first_promise_that_is_kept_is_told_and_so_is_one_that_is_dropped() {
    let _watch = watchdog!();
    let pool = pool(2);
    let run = |seed: u64, trustees: Vec<TrusteeReference>| {
        let mut random = Rng::with_seed(seed);
        for _ in 0..200 {
            let count = 1 + random.usize(..5);
            let (promises, pending): (Vec<_>, Vec<Pending<u64>>) = (0..count).map(|_| promise()).unzip();
            let keeper = spawn_on(&trustees[count % 2], move || {
                for (number, promise) in promises.into_iter().enumerate().rev() {
                    if number % 3 == 2 {
                        drop(promise)
                    } else {
                        promise.keep(number as u64)
                    }
                    trust::yield_now();
                }
            });
            let mut left: Vec<(usize, Pending<u64>)> = pending.into_iter().enumerate().collect();
            while !left.is_empty() {
                let sources: Vec<&dyn Source> = left.iter().map(|(_, pending)| pending as &dyn Source).collect();
                let time = if random.usize(..4) == 0 { Some(Duration::from_micros(random.u64(..40))) } else { None };
                let Some(place) = select(&sources, time) else {
                    assert!(time.is_some());
                    continue;
                };
                let (number, pending) = left.swap_remove(place);
                match pending.try_take() {
                    Some(Ok(value)) => assert!(value == number as u64 && number % 3 != 2),
                    Some(Err(Error::Gone { .. })) => assert!(number % 3 == 2),
                    other => panic!("{other:?}"),
                }
            }
            keeper.join().unwrap();
        }
    };
    let trustees = || pool.trustees().to_vec();
    let fiber = |seed| {
        let trustees = trustees();
        pool.spawn(move || run(seed, trustees))
    };
    let fibers: Vec<_> = (1..4).map(fiber).collect();
    run(9, trustees());
    join_all(fibers).into_iter().for_each(|outcome| outcome.unwrap());
}

/// Fibers that wait for one promise, some by themselves and some among others.
#[test]
fn many_fibers_may_wait_for_one_promise() {
    let _watch = watchdog!();
    for round in 0..50 {
        let (promise_one, one) = promise::<u64>();
        let (promise_two, two) = promise::<u64>();
        let pending = Rc::new((one, two));
        let woken = Rc::new(Cell::new(0));
        let fibers: Vec<_> = (0..12)
            .map(|number| {
                let (pending, woken) = (Rc::clone(&pending), Rc::clone(&woken));
                trust::spawn(move || {
                    let (one, two) = &*pending;
                    match number % 4 {
                        0 => assert_eq!(select(&[two, one], None), Some(1)),
                        1 => assert_eq!(select(&[one], Some(LONG)), Some(0)),
                        2 => assert_eq!(select(&[one, two], Some(LONG)), Some(0)),
                        _ => assert_eq!(select(&[two], Some(Duration::from_millis(1))), None),
                    }
                    woken.set(woken.get() + 1);
                })
            })
            .collect();
        if round % 2 == 0 {
            trust::yield_now();
        }
        if round % 3 == 0 {
            trust::sleep(Duration::from_millis(2));
        }
        promise_one.keep(1);
        join_all(fibers).into_iter().for_each(|outcome| outcome.unwrap());
        assert_eq!(woken.get(), 12);
        drop(promise_two);
        assert_eq!(select(&[&pending.1, &pending.0], None), Some(0));
    }
    assert!(panic_of(|| select(&[], None)).contains("waits for ever"));
    assert_eq!(select(&[], Some(Duration::from_millis(1))), None);
}

#[test]
fn a_fiber_that_selects_can_be_aborted() {
    let _watch = watchdog!();
    let (promise, one) = promise::<u64>();
    let one = Rc::new(one);
    let other = Rc::clone(&one);
    let fiber = trust::spawn(move || select(&[&*other], None));
    trust::yield_now();
    fiber.abort();
    assert!(fiber.join().unwrap_err().is::<trust::Aborted>());
    promise.keep(5);
    assert_eq!(one.try_take(), Some(Ok(5)));
}

/// A worker that stands in a closure until this is opened.
fn hold(of: &Trust<u64>) -> Shared<AtomicBool> {
    let (is_open, is_in) = (Shared::new(AtomicBool::new(false)), Shared::new(AtomicBool::new(false)));
    let (opens, enters) = (is_open.clone(), is_in.clone());
    let held = of.clone();
    std::thread::spawn(move || {
        held.apply(move |_| {
            enters.store(true, Ordering::SeqCst);
            stand_until(|| opens.load(Ordering::SeqCst));
        });
    });
    stand_until(|| is_in.load(Ordering::SeqCst));
    is_open
}

#[test]
fn a_call_that_times_out_runs_all_the_same_and_its_result_is_dropped() {
    let _watch = watchdog!();
    let pool = pool(1);
    let number = pool.entrust(0);
    let opens = hold(&number);
    let drops = common::Drops::default();
    // Far more than fit the slots: no call waits for a slot longer than for the answer.
    for _ in 0..1000 {
        let value = Shared::new(drops.value(()));
        let outcome = number
            .call()
            .apply(move |number| {
                *number += 1;
                value
            })
            .timeout(Duration::from_micros(1))
            .wait();
        assert!(matches!(outcome, Err(Error::TimedOut { property: "u64" })), "{:?}", outcome.map(drop));
    }
    let fiber = trust::spawn({
        let number = number.clone();
        move || number.call().with(()).apply(|number, ()| *number).timeout(LONG).wait()
    });
    trust::yield_now();
    opens.store(true, Ordering::SeqCst);
    assert_eq!(fiber.join().unwrap(), Ok(1000), "in its turn");
    serve_until(|| drops.count() == 1000);
    assert_eq!(number.call().apply(|number| *number).timeout(LONG).wait(), Ok(1000));
    let own = local_trustee().entrust(7_u64);
    assert_eq!(own.call().apply(|number| *number).timeout(Duration::ZERO).wait(), Ok(7), "it runs at once");
    assert!(matches!(own.call().apply(|_| panic!("no")).timeout(LONG).wait(), Err(Error::Panicked { .. })));
    assert!(matches!(own.call().apply(|_| ()).timeout(LONG).wait(), Err(Error::Poisoned { .. })));
    let refused =
        pool.entrust(number).call().apply(|number| number.call().apply(|_| ()).timeout(LONG).wait().is_ok()).wait();
    assert!(refused.unwrap_err().to_string().contains("nothing may wait inside"));
}

#[test]
fn launched_closures_that_time_out_go_on_and_keep_the_value() {
    let _watch = watchdog!();
    let pool = pool(1);
    let (latch, go_on) = (pool.entrust(Latch::new(1_u64)), Shared::new(AtomicBool::new(false)));
    let short = Duration::from_millis(1);
    let may_go_on = go_on.clone();
    let slow = move |value: &mut u64| {
        serve_until(|| may_go_on.load(Ordering::SeqCst));
        *value += 1;
        PanicsOnDrop(false)
    };
    assert!(matches!(latch.call().launch(slow).timeout(short).wait(), Err(Error::TimedOut { .. })));
    assert!(matches!(
        latch.call().launch_held(|value| **value *= 10).timeout(short).wait(),
        Err(Error::TimedOut { .. })
    ));
    let add = |value: &mut u64, text: String| {
        *value += text.len() as u64;
        text
    };
    assert!(matches!(
        latch.call().with("one".to_owned()).launch(add).timeout(short).wait(),
        Err(Error::TimedOut { .. })
    ));
    go_on.store(true, Ordering::SeqCst);
    let text = latch
        .call()
        .with("=".to_owned())
        .launch_held(|value, text: String| format!("{text}{}", **value))
        .timeout(LONG)
        .wait();
    assert_eq!(text.as_deref(), Ok("=23"));
    trust::wait_all();
}

#[test]
fn a_trustee_that_is_gone_is_told_at_once() {
    let _watch = watchdog!();
    let gone = Threadpool::new(1).entrust(Latch::new(1_u64));
    assert!(matches!(gone.call().apply(|_| ()).timeout(LONG).wait(), Err(Error::Gone { .. })));
    assert!(matches!(gone.call().launch(|_| ()).timeout(LONG).wait(), Err(Error::Gone { .. })));
}

#[test]
fn a_fiber_that_waits_for_a_time_can_be_aborted() {
    let _watch = watchdog!();
    let pool = pool(1);
    let number = pool.entrust(0);
    let opens = hold(&number);
    let fiber = trust::spawn({
        let number = number.clone();
        move || number.call().apply(|number| *number += 1).timeout(LONG).wait()
    });
    trust::yield_now();
    fiber.abort();
    assert!(fiber.join().unwrap_err().is::<trust::Aborted>());
    opens.store(true, Ordering::SeqCst);
    assert_eq!(number.apply(|number| *number), 1, "what was sent is not withdrawn");
}

/// A payload that panics again where it is dropped.
struct Again;
impl Drop for Again {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("and again");
        }
    }
}

#[test]
fn panics_whose_payloads_panic_do_not_end_the_process() {
    let _watch = watchdog!();
    let pool = pool(2);
    let numbers = [0, 1, 0, 1].map(|at| pool.trustees()[at].entrust(0));
    let each = || apply_each(&numbers, |_| std::panic::panic_any(Again));
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(each)).unwrap_err();
    assert!(panic.is::<Again>());
    std::mem::forget(panic);
    numbers.iter().for_each(Trust::clear_poison);
    let told = try_apply_each(&numbers, |_| std::panic::panic_any(Again));
    assert!(told.iter().all(|told| matches!(told, Err(Error::Panicked { .. }))));
}

#[test]
fn launches_that_time_out_are_bounded_and_those_beyond_are_not_sent() {
    let _watch = watchdog!();
    // Most launched closures of one thread at a time.
    const LAUNCHES: usize = 4096;
    let pool = pool(1);
    let latch = pool.entrust(Latch::new(0_usize));
    let held = hold(&pool.entrust(0));
    for _ in 0..LAUNCHES + 20 {
        let outcome = latch.call().launch(|count| *count += 1).timeout(Duration::from_micros(10)).wait();
        assert!(matches!(outcome, Err(Error::TimedOut { .. })), "{outcome:?}");
    }
    held.store(true, Ordering::SeqCst);
    assert_eq!(latch.launch(|count| *count), LAUNCHES);
}
