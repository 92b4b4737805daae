//! Fibers reach the trustees that their own worker runs beside itself at once, as the worker's own trustee.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{Drops, PanicsOnDrop, effort};
use limits::wait_until;
use trust::link::{self, ask_to_move};
use trust::{Error, Stats, Threadpool, Trust, TrusteeReference, local_trustee, spawn_on};

/// A pool of this many workers, which do not poll, and trustees that move.
fn pool(workers: usize, trustees: usize) -> Threadpool {
    Threadpool::builder().workers(workers).trustees(trustees).pin(false).spin(Duration::ZERO).build()
}

/// Runs `f` in a fiber of the first worker.
fn in_fiber<R: Send + 'static>(pool: &Threadpool, f: impl FnOnce() -> R + Send + 'static) -> R {
    pool.spawn_on(0, f).join().expect("it does not panic")
}

fn stats(trustee: TrusteeReference) -> Stats {
    trust::stats(trustee).expect("it is there")
}

/// Entrusts a value to this trustee of the pool; all requests for that are served.
fn entrust<T: Send + 'static>(pool: &Threadpool, trustee: usize, value: T) -> Trust<T> {
    let value = pool.trustees()[trustee].entrust(value);
    value.apply(|_| ());
    value
}

/// Runs `f`, and returns how many of its calls the trustee ran at once, and how many in batches.
fn ran(trustee: TrusteeReference, f: impl FnOnce()) -> (u64, u64) {
    let before = stats(trustee);
    f();
    let ran = stats(trustee).since(&before);
    (ran.requests_run_here, ran.requests_served)
}

#[test]
fn calls_of_all_ways_run_at_once_with_the_trustee_as_that_of_the_thread() {
    watchdog!();
    let pool = pool(1, 2);
    let values = [0, 1].map(|trustee| entrust(&pool, trustee, Vec::new()));
    let trustees = pool.trustees().to_vec();
    in_fiber(&pool, move || {
        let (own, thread) = (local_trustee(), thread::current().id());
        for (value, trustee) in values.iter().zip(trustees) {
            let calls = || {
                for number in 0..1000 {
                    let len = value.apply(move |numbers| {
                        assert_eq!((local_trustee(), thread::current().id()), (trustee, thread));
                        numbers.push(number);
                        numbers.len()
                    });
                    assert_eq!((len as u64, local_trustee()), (number + 1, own));
                }
                let told = Rc::new(Cell::new(0));
                let tells = Rc::clone(&told);
                value.apply_then(
                    |numbers| numbers.len(),
                    move |len| {
                        assert_eq!(local_trustee(), own);
                        tells.set(len);
                    },
                );
                assert_eq!(told.get(), 1000, "before the call returns");
                assert_eq!(
                    value.apply_with(|numbers, text: String| text + &numbers[7].to_string(), "no. ".into()),
                    "no. 7"
                );
                assert_eq!(
                    value.call().in_process().apply(|numbers| numbers.clone()).wait().map(|all| all.len()),
                    Ok(1000)
                );
                assert_eq!(trust::apply_each([value], |numbers| numbers.iter().sum::<u64>()), [499_500]);
                drop(value.clone());
            };
            assert_eq!(ran(trustee, calls), (1004, 0));
        }
    });
}

/// More than the worker finds without its table: their indices are equal modulo sixteen in places.
#[test]
fn each_of_many_trustees_is_called_at_once() {
    watchdog!();
    let pool = pool(1, 50);
    let counts: Vec<_> = (0..50).map(|trustee| entrust(&pool, trustee, 0)).collect();
    let trustees = pool.trustees().to_vec();
    in_fiber(&pool, move || {
        let at_once = |trustee, count: &Trust<u64>, expected| {
            let called = ran(trustee, || assert_eq!(count.apply(|count| (*count, *count += 1).0), expected));
            assert_eq!(called, (1, 0));
        };
        for round in 0..10 {
            for (&trustee, count) in trustees.iter().zip(&counts) {
                at_once(trustee, count, round);
            }
        }
    });
}

/// Large arguments and results go the way of small ones.
#[test]
fn values_of_all_sizes_pass() {
    watchdog!();
    let pool = pool(1, 1);
    let value = entrust(&pool, 0, [0u64; 300]);
    let trustee = pool.trustees()[0];
    in_fiber(&pool, move || {
        let calls = || {
            let large = [7u64; 300];
            let before = value.apply(move |value| std::mem::replace(value, large));
            assert_eq!((before, value.apply(|value| *value)), ([0; 300], large));
            let bytes = vec![3u8; 100_000];
            let doubled = value.apply_with(|_, bytes: Vec<u8>| [bytes.clone(), bytes].concat(), bytes);
            assert!(doubled.len() == 200_000 && doubled.iter().all(|byte| *byte == 3));
            value.apply(|_| ());
        };
        assert_eq!(ran(trustee, calls), (4, 0));
    });
}

/// A client's requests run in the order in which they were made, also where callbacks make some of them, which need
/// slots.
#[test]
fn no_request_runs_before_an_earlier_one() {
    watchdog!();
    let pool = pool(1, 1);
    let value = pool.entrust(Vec::<u64>::new());
    let trustee = pool.trustees()[0];
    let rounds = effort(2_000, 50_000);
    let (ran_at_once, numbers) = in_fiber(&pool, move || {
        let (made, value) = (Rc::new(Cell::new(0u64)), Rc::new(value));
        let next = |made: &Cell<u64>| made.replace(made.get() + 1);
        let before = stats(trustee).requests_run_here;
        for round in 0..rounds {
            let number = next(&made);
            let (more, again) = (Rc::clone(&made), Rc::clone(&value));
            let callback = move |()| {
                for _ in 0..round % 3 {
                    let number = next(&more);
                    again.apply_then(move |numbers| numbers.push(number), |()| ());
                }
            };
            value.apply_then(move |numbers| numbers.push(number), callback);
            let number = next(&made);
            // At once after rounds whose callback has made none.
            value.apply_then(move |numbers| numbers.push(number), |()| ());
            if round % 7 == 0 {
                let number = next(&made);
                value.apply(move |numbers| numbers.push(number));
            }
            if round % 5 == 0 {
                trust::yield_now();
            }
        }
        trust::wait_all();
        (stats(trustee).requests_run_here - before, value.apply_with(|numbers, ()| std::mem::take(numbers), ()))
    });
    let all = numbers.len() as u64;
    assert!(all > 3 * rounds && numbers.iter().copied().eq(0..all), "{all}");
    // Both ways are tried.
    assert!((50..all).contains(&ran_at_once), "{ran_at_once} of {all}");
}

/// A callback's call on the worker's own trustee comes before the calls that follow.
#[test]
fn calls_put_off_by_callbacks_are_not_overtaken() {
    watchdog!();
    let pool = pool(1, 1);
    let value = entrust(&pool, 0, ());
    in_fiber(&pool, move || {
        let own = local_trustee().entrust(Vec::new());
        let asks = own.clone();
        value.apply_then(|()| (), move |()| asks.apply_then(|log| log.push(1), |()| ()));
        own.apply(|log| log.push(2));
        assert_eq!(own.apply_with(|log, ()| log.clone(), ()), [1, 2]);
    });
}

/// Callbacks that run after a turn of the trustees send their requests behind those made before.
#[test]
fn callbacks_after_a_turn_keep_the_order_of_requests() {
    watchdog!();
    static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    let note = |number: u8| LOG.lock().expect("nothing panics").push(number);
    let pool = pool(2, 2);
    let (value, there) = (entrust(&pool, 0, ()), entrust(&pool, 1, ()));
    assert_eq!(pool.tuning().trustees[1].worker, 1);
    for _ in 0..effort(20, 200) {
        let (value, there) = (value.clone(), there.clone());
        in_fiber(&pool, move || {
            let first = move |(): &mut ()| {
                thread::sleep(Duration::from_millis(2));
                note(0);
            };
            there.apply_then(first, |()| ());
            trust::yield_now();
            // That is in flight, so this one waits in the open batch.
            there.apply_then(move |()| note(1), |()| ());
            let (asks, to) = (value.clone(), there.trustee());
            // A callback asks by slots, and is called back after the turn of the trustee.
            let post = move |()| link::post(to, move |number| note(number[0]), &[2]);
            value.apply_then(|()| (), move |()| asks.apply_then(|()| (), post));
            (0..3).for_each(|_| trust::wait_all());
            there.apply(|()| ());
        });
        wait_until("all have come", || LOG.lock().expect("nothing panics").len() == 3);
        assert_eq!(std::mem::take(&mut *LOG.lock().expect("nothing panics")), [0, 1, 2]);
    }
}

/// The request of a trust that was entrusted just now runs behind the one that made the trustee its owner.
#[test]
fn values_that_fibers_entrust_are_there() {
    watchdog!();
    let pool = pool(1, 2);
    let trustees = pool.trustees().to_vec();
    let drops = Drops::default();
    let counts = drops.clone();
    in_fiber(&pool, move || {
        for number in 0..500u64 {
            let value = trustees[number as usize % 2].entrust(counts.value(number));
            value.apply(|value| value.value += 1);
            let other = value.clone();
            drop(value);
            assert_eq!(other.apply(|value| value.value), number + 1);
        }
    });
    wait_until("all are dropped", || drops.count() == 500);
}

#[test]
fn a_panic_poisons_as_it_does_elsewhere() {
    watchdog!();
    let pool = pool(1, 1);
    let (value, other) = (entrust(&pool, 0, 1), entrust(&pool, 0, 2));
    let trustee = pool.trustees()[0];
    in_fiber(&pool, move || {
        let own = local_trustee();
        let calls = || {
            assert!(matches!(value.call().apply(|_| panic!("of a test")).wait(), Err(Error::Panicked { .. })));
            assert_eq!(local_trustee(), own);
            let refused = value.call().apply(|_| ()).wait();
            assert_eq!(local_trustee(), own);
            assert!(matches!(refused, Err(Error::Poisoned { panic, .. }) if panic.contains("of a test")));
            let told = Rc::new(Cell::new(false));
            let tells = Rc::clone(&told);
            value.call().apply(|value| *value).then(move |outcome| {
                assert!(matches!(outcome, Err(Error::Poisoned { .. })));
                tells.set(true);
            });
            assert!(told.get());
            assert_eq!(other.apply(|value| *value), 2);
            value.clear_poison();
            assert_eq!(value.apply(|value| *value), 1);
            // Neither callbacks nor captures and results that panic are the property's.
            value.apply_then(|_| (), |()| panic!("of a callback"));
            assert_eq!(value.apply(|value| *value), 1);
            drop(value.call().in_process().apply(|_| PanicsOnDrop(true)).wait().map(std::mem::forget));
            assert_eq!(value.apply(|value| *value), 1);
        };
        // Two are refused, and not run.
        assert_eq!(ran(trustee, calls), (7, 0));
        let dropped = value.call().in_process().apply({
            let captured = PanicsOnDrop(true);
            move |_| drop(captured)
        });
        assert!(matches!(dropped.wait(), Err(Error::Panicked { .. })));
        // Nor do captures that panic when the closure is refused.
        let captured = PanicsOnDrop(true);
        let refused = value.call().in_process().apply(move |_| drop(captured));
        assert!(matches!(refused.wait(), Err(Error::Poisoned { .. })));
    });
}

/// A fiber that asks a poisoned value again and again lets those have their turn who mend it, and is not counted.
#[test]
fn refused_calls_give_way() {
    watchdog!();
    let pool = pool(1, 1);
    let value = entrust(&pool, 0, 1);
    let trustee = pool.trustees()[0];
    let asked = value.clone();
    let fiber = pool.spawn_on(0, move || {
        assert!(asked.call().apply(|_| panic!("of a test")).wait().is_err());
        let before = stats(trustee).requests_run_here;
        let counts_in_callback = Rc::new(Cell::new(0));
        let sees = Rc::clone(&counts_in_callback);
        asked.call().apply(|_| ()).then(move |_| sees.set(stats(trustee).requests_run_here));
        assert_eq!(counts_in_callback.get(), before);
        while asked.call().apply(|_| ()).wait().is_err() {}
        stats(trustee).requests_run_here - before
    });
    while !fiber.is_finished() {
        value.clear_poison();
        thread::yield_now();
    }
    assert_eq!(fiber.join().expect("it does not panic"), 1);
}

/// A closure on one trustee of a worker asks its own trustee and another one of the same worker, and tries to wait.
#[test]
fn closures_run_one_after_the_other() {
    watchdog!();
    let pool = pool(1, 2);
    let [value, other] = [0, 1].map(|trustee| pool.trustees()[trustee].entrust(Vec::new()));
    let asked = [value.clone(), other.clone()];
    let (first, second) = in_fiber(&pool, move || {
        let [own, elsewhere] = asked.clone();
        asked[0].apply(move |log| {
            log.push("begins");
            let again = own.clone();
            own.apply_then(
                |log| log.push("deferred"),
                move |()| again.apply_then(|log| log.push("by a callback"), |()| ()),
            );
            elsewhere.apply_then(|log| log.push("from elsewhere"), |()| ());
            log.push("ends");
        });
        // Deferred calls have run, as those of a worker's own trustee.
        let first = asked[0].apply_with(|log, ()| log.iter().map(ToString::to_string).collect::<Vec<_>>(), ());
        let inner = asked[1].clone();
        let waits = asked[0].call().apply(move |_| inner.apply(|_| ())).wait();
        let said = "nothing may wait inside a delegated closure";
        assert!(matches!(waits, Err(Error::Panicked { panic, .. }) if panic.contains(said)));
        let inner = asked[0].clone();
        let waits = asked[1].call().apply(move |_| inner.apply(|_| ())).wait();
        assert!(waits.is_err());
        let waits = asked[0].call().apply(|_| trust::yield_now()).wait();
        assert!(matches!(waits, Err(Error::Poisoned { .. })));
        asked.iter().for_each(Trust::clear_poison);
        let second = asked[1].apply_with(|log, ()| log.iter().map(ToString::to_string).collect::<Vec<_>>(), ());
        (first, second)
    });
    assert_eq!(first, ["begins", "ends", "deferred", "by a callback"]);
    wait_until("the other one was asked", || second.len() == 1 || other.apply(|log| log.len()) == 1);
    drop(value);
}

/// Requests of a closure that runs at once are sent, and counted, by its trustee.
#[test]
fn requests_of_closures_are_those_of_their_trustee() {
    watchdog!();
    let (pool, elsewhere) = (pool(1, 1), Threadpool::new(1));
    let (value, counter) = (entrust(&pool, 0, ()), elsewhere.entrust(0u64));
    let (trustee, asks, dropped) = (pool.trustees()[0], counter.clone(), counter.clone());
    let sent = in_fiber(&pool, move || {
        let sent = || [local_trustee(), trustee].map(|trustee| stats(trustee).requests_sent);
        let before = sent();
        let calls = || {
            value.apply(move |()| asks.apply_then(|counter| *counter += 1, |()| ()));
            // Of one that is refused, by the destructor of its captures.
            assert!(value.call().apply(|()| panic!("of a test")).wait().is_err());
            let asks = OnDrop(Some(move || dropped.apply_then(|counter| *counter += 1, |()| ())));
            assert!(value.call().in_process().apply(move |()| drop(asks)).wait().is_err());
        };
        assert_eq!(ran(trustee, calls), (2, 0));
        let counted = || sent().into_iter().zip(before).map(|(sent, before)| sent - before).collect::<Vec<_>>();
        // The counts of the dropped trusts are requests, too.
        while counted()[1] < 2 {
            trust::yield_now();
        }
        counted()[0]
    });
    assert_eq!(sent, 0);
    wait_until("both have run", || counter.apply(|counter| *counter) == 2);
}

struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// The last trust goes inside of a closure that runs at once, at the end of one, or in the fiber.
#[test]
fn values_are_dropped_once_at_their_trustee() {
    watchdog!();
    struct Asks {
        value: common::Counted<u64>,
        at: TrusteeReference,
        asks: Option<Trust<u64>>,
    }
    impl Drop for Asks {
        fn drop(&mut self) {
            assert_eq!(local_trustee(), self.at);
            if let Some(asks) = self.asks.take() {
                asks.apply_then(|value| *value += 1, |()| ());
            }
        }
    }
    let pool = pool(1, 3);
    let trustees = pool.trustees().to_vec();
    let (drops, counter) = (Drops::default(), pool.trustees()[2].entrust(0));
    let (counts, asked) = (drops.clone(), counter.clone());
    let rounds = effort(300, 5_000);
    in_fiber(&pool, move || {
        for round in 0..rounds {
            let make =
                |at: TrusteeReference| at.entrust(Asks { value: counts.value(round), at, asks: Some(asked.clone()) });
            let [one, two, three] = [trustees[0], trustees[0], trustees[1]].map(make);
            if round % 2 == 0 {
                // Their own requests lie in slots no more.
                trust::yield_now();
                trust::wait_all();
            }
            one.apply(move |one| {
                one.value.check();
                drop(two);
                three.apply_then(|three| three.value.check(), |()| ());
            });
            one.apply(|one| one.value.check());
            drop(one);
        }
    });
    wait_until("all are dropped", || drops.count() as u64 == 3 * rounds);
    wait_until("each has asked", || counter.apply(|counter| *counter) == 3 * rounds);
}

/// A move that is asked for while a closure runs in a fiber waits for its end.
#[test]
fn a_trustee_does_not_move_in_the_middle_of_a_closure() {
    watchdog!();
    static RUNS: AtomicBool = AtomicBool::new(false);
    static ENDS: AtomicBool = AtomicBool::new(false);
    let pool = pool(2, 1);
    let value = entrust(&pool, 0, 0);
    let trustee = pool.trustees()[0];
    let asks = value.clone();
    value.apply(|_| ());
    let fiber = pool.spawn_on(0, move || {
        let calls = || {
            asks.apply(|value| {
                RUNS.store(true, Ordering::Relaxed);
                while !ENDS.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                *value += 1;
            });
        };
        assert_eq!(ran(trustee, calls), (1, 0));
        thread::current().id()
    });
    wait_until("it runs", || RUNS.load(Ordering::Relaxed));
    let asked = ask_to_move(&pool, 0, 1);
    thread::sleep(Duration::from_millis(30));
    assert_eq!(asked.outcome(), None);
    ENDS.store(true, Ordering::Relaxed);
    let before = fiber.join().expect("it does not panic");
    wait_until("it moves", || asked.outcome().is_some());
    assert_eq!(asked.outcome(), Some(Ok(())));
    assert_ne!(value.apply(|value| (*value, thread::current().id())), (1, before));
    assert_eq!(value.apply(|value| *value), 1);
}

/// A fiber that only calls a trustee of its worker at once holds up nobody.
#[test]
fn a_fiber_that_calls_without_end_lets_others_on() {
    watchdog!();
    let pool = pool(2, 2);
    let value = pool.trustees()[0].entrust(0u64);
    let at_least = |value: Trust<u64>, end: u64| pool.spawn_on(0, move || while value.apply(|value| *value) < end {});
    let call_on = |end: u64| at_least(value.clone(), end);

    // Another thread asks the same trustee.
    let fiber = call_on(1);
    value.apply(|value| *value += 1);
    fiber.join().expect("it does not panic");
    // A fiber of the same worker.
    let (fiber, asks) = (call_on(2), value.clone());
    pool.spawn_on(0, move || asks.apply(|value| *value += 1)).join().expect("it does not panic");
    fiber.join().expect("it does not panic");
    // Another trustee of the same worker.
    assert_eq!(pool.tuning().trustees[1].worker, 1);
    let (asked, fiber) = (ask_to_move(&pool, 1, 0), call_on(3));
    wait_until("the other one comes", || asked.outcome().is_some());
    let (other, asks) = (pool.trustees()[1].entrust(()), value.clone());
    other.apply(move |()| asks.apply_then(|value| *value += 1, |()| ()));
    fiber.join().expect("it does not panic");
    // A fiber of the trustee, which sleeps before.
    let (fiber, asks) = (call_on(4), value.clone());
    value.apply(move |_| {
        drop(trust::spawn(move || {
            trust::sleep(Duration::from_millis(5));
            asks.apply(|value| *value += 1);
        }));
    });
    fiber.join().expect("it does not panic");
    // Moves take place, there and back, while it goes on.
    let fiber = call_on(5);
    for worker in [1, 0, 1, 0] {
        let asked = ask_to_move(&pool, 0, worker);
        wait_until("it moves", || asked.outcome().is_some());
        assert_eq!(asked.outcome(), Some(Ok(())));
    }
    value.apply(|value| *value += 1);
    fiber.join().expect("it does not panic");
}

/// Calls that defer one more each do not change when a fiber gives way.
#[test]
fn a_fiber_whose_calls_defer_more_lets_others_on() {
    watchdog!();
    for before in 0..2 {
        let pool = pool(1, 1);
        let value = entrust(&pool, 0, 0u64);
        let (calls, end) = (value.clone(), Arc::new(AtomicBool::new(false)));
        let ends = Arc::clone(&end);
        let has_ended = pool.spawn_on(0, move || {
            (0..before).for_each(|_| calls.apply(|value| *value += 1));
            drop(trust::spawn(move || ends.store(true, Ordering::Relaxed)));
            (0..10_000).any(|_| {
                let again = calls.clone();
                calls.apply(move |_| again.apply_then(|value| *value += 1, |()| ()));
                end.load(Ordering::Relaxed)
            })
        });
        assert!(has_ended.join().expect("it does not panic"));
    }
}

/// A fiber that only calls its worker's own trustee lets the trustees beside it on, and one of a trustee its worker.
#[test]
fn calls_of_the_own_trustee_let_those_beside_it_on() {
    watchdog!();
    let pool = pool(1, 2);
    let values = [0, 1].map(|trustee| entrust(&pool, trustee, ()));
    let [first, second] = values.clone();
    in_fiber(&pool, move || {
        let own = local_trustee().entrust(0);
        for round in 1..=3 {
            let asks = own.clone();
            first.apply(move |()| asks.apply_then(|value| *value += 1, |()| ()));
            while own.apply(|value| *value) < round {}
        }
    });
    let fiber = spawn_on(&pool.trustees()[0], move || {
        let own = local_trustee().entrust(0);
        for round in 1..=3 {
            let asks = own.clone();
            second.apply_then(move |()| asks.apply_then(|value| *value += 1, |()| ()), |()| ());
            while own.apply(|value| *value) < round {}
        }
    });
    fiber.join().expect("it does not panic");
    drop(values);
}

/// Numbers that the callbacks of a client note are a series of their own: they are made while its fiber waits for room.
const CLIENTS: usize = 4;
const VALUES: usize = 3;
type Last = [u64; 2 * CLIENTS];

/// Fibers at both workers make requests, with some in callbacks, while trustees move at random.
#[test]
fn order_and_answers_hold_where_requests_change_their_way() {
    watchdog!();
    let pool = pool(2, VALUES);
    let values: Arc<[Trust<Last>]> = (0..VALUES).map(|_| pool.entrust(Last::default())).collect();
    let rounds = effort(4_000, 100_000);
    let fibers = (0..CLIENTS).map(|client| {
        let values = Arc::clone(&values);
        pool.spawn_on(client % 2, move || {
            let made: Rc<RefCell<[Last; VALUES]>> = Rc::default();
            for round in 0..rounds {
                let place = round % VALUES;
                let again = if round % 4 == 0 { 3 } else { 0 };
                note(Rc::clone(&made), Arc::clone(&values), client, place, again);
                if round % 16 == 0 {
                    let number = made.borrow()[place][client];
                    assert_eq!(values[place].apply(move |last| last[client]), number);
                }
                if round % 64 == 0 {
                    drop(values[place].clone());
                    trust::yield_now();
                }
            }
            // Each callback makes the next request.
            (0..4).for_each(|_| trust::wait_all());
            made.take()
        })
    });
    let fibers: Vec<_> = fibers.collect();
    let mut state = 0x5eed_u64;
    let mut random = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % end
    };
    while !fibers.iter().all(trust::JoinHandle::is_finished) {
        let asked = ask_to_move(&pool, random(VALUES), random(2));
        wait_until("a move has an outcome", || asked.outcome().is_some());
    }
    let made: Vec<_> = fibers.into_iter().map(|fiber| fiber.join().expect("it does not panic")).collect();
    for (place, value) in values.iter().enumerate() {
        let noted: Last = std::array::from_fn(|series| made[series % CLIENTS][place][series]);
        assert_eq!(value.apply(|last| *last), noted);
    }
    let at_once: u64 = pool.trustees().iter().map(|trustee| stats(*trustee).requests_run_here).sum();
    let tuning = pool.tuning();
    assert!(at_once > 100 && tuning.moves > 0, "{at_once} at once, {tuning}");
}

/// Notes the next number of a series at this value; the callback does so at the next one, so many times more.
fn note(made: Rc<RefCell<[Last; VALUES]>>, values: Arc<[Trust<Last>]>, series: usize, place: usize, again: u32) {
    made.borrow_mut()[place][series] += 1;
    let number = made.borrow()[place][series];
    let value = &Arc::clone(&values)[place];
    value.apply_then(
        move |last| {
            assert_eq!(number, last[series] + 1);
            last[series] = number;
        },
        move |()| {
            if again > 0 {
                note(made, values, CLIENTS + series % CLIENTS, (place + 1) % VALUES, again - 1);
            }
        },
    );
}

/// A pool ends while its fibers call at once: they come to their end, and each value is dropped once.
#[test]
fn a_pool_ends_after_the_calls_of_its_fibers() {
    watchdog!();
    for round in 0..effort(20, 1_000) {
        let pool = pool(2, 3);
        let (drops, calls) = (Drops::default(), Arc::new(AtomicU64::new(0)));
        let values: Vec<_> = (0..6).map(|number| pool.entrust(drops.value(number))).collect();
        for worker in 0..2 {
            let (values, calls) = (values.clone(), Arc::clone(&calls));
            drop(pool.spawn_on(worker, move || {
                for call in 0..60 {
                    let value = &values[call % values.len()];
                    value.apply(|value| value.check());
                    value.apply_then(|value| value.value += 1, |()| ());
                    if call == 20 {
                        trust::yield_now();
                    }
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        if round % 2 == 0 {
            let _ = ask_to_move(&pool, round % 3, 1);
        }
        wait_until("they have begun", || calls.load(Ordering::Relaxed) > 0);
        drop(pool);
        assert!(calls.load(Ordering::Relaxed) >= 60);
        assert_eq!(drops.count(), 6);
        assert!(values.iter().all(|value| matches!(value.call().apply(|_| ()).wait(), Err(Error::Gone { .. }))));
    }
}

/// Fibers whose requests are under way in both slots when their trustee comes beside them: it takes turns that bring
/// their pair to rest, before they make more.
#[test]
fn a_trustee_that_comes_to_many_callers_is_called_at_once() {
    watchdog!();
    let pool = pool(2, 1);
    let value = entrust(&pool, 0, 0u64);
    let is_over = Arc::new(AtomicBool::new(false));
    let call = |worker: usize| {
        let (value, is_over) = (value.clone(), Arc::clone(&is_over));
        pool.spawn_on(worker, move || {
            while !is_over.load(Ordering::Relaxed) {
                value.apply(|value| *value += 1);
            }
        })
    };
    let fibers: Vec<_> = (0..128).map(|number| call(number % 2)).collect();
    for round in 1..=effort(60, 1000) {
        let before = stats(pool.trustees()[0]);
        let asked = ask_to_move(&pool, 0, round % 2);
        wait_until("it is there", || asked.outcome().is_some());
        assert_eq!(asked.outcome(), Some(Ok(())));
        wait_until("it runs calls at once", || stats(pool.trustees()[0]).since(&before).requests_run_here > 1000);
    }
    is_over.store(true, Ordering::Relaxed);
    fibers.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
}
