//! Promises: values that are given later, from anywhere.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use common::{is_child, run_child, stderr};
use serde::{Deserialize, Serialize};
use trust::{Error, Promise, Threadpool, promise};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(1000);

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

#[test]
fn a_value_comes_whether_it_is_kept_before_or_while_one_waits() {
    let _watch = watchdog!();
    let (early, number) = promise::<u32>();
    early.keep(1);
    assert_eq!((number.try_take(), number.try_take()), (Some(Ok(1)), None));

    let (late, number) = promise::<u32>();
    assert_eq!((late.id(), number.try_take()), (number.id(), None));
    trust::spawn(move || late.keep(2));
    assert_eq!(number.wait(), Ok(2));
}

#[test]
fn every_worker_keeps_promises_of_every_other() {
    let _watch = watchdog!();
    let pool = pool(3);
    let boards: Vec<_> = pool.trustees().iter().map(|t| t.entrust(Vec::<Promise<u64>>::new())).collect();
    let fibers: Vec<_> = (0..90u64)
        .map(|number| {
            let board = boards[number as usize % 3].clone();
            let fiber = move || {
                let (promise, value) = promise();
                board.apply(move |board| board.push(promise));
                value.wait().unwrap()
            };
            pool.spawn_on(number as usize / 3 % 3, fiber)
        })
        .collect();
    for (index, board) in boards.iter().enumerate() {
        common::serve_until(|| board.apply(|board| board.len()) == 30);
        // Inside a delegated closure, for clients of this worker and of others.
        board.apply(move |board| board.drain(..).for_each(|promise| promise.keep(index as u64)));
    }
    for (number, fiber) in (0..).zip(fibers) {
        assert_eq!(fiber.join().unwrap(), number % 3);
    }
}

#[test]
fn a_promise_that_is_dropped_is_an_error() {
    let _watch = watchdog!();
    let pool = pool(1);
    let gone = |outcome: Result<u8, Error>| assert!(matches!(outcome, Err(Error::Gone { .. })), "{outcome:?}");
    let (here, number) = promise::<u8>();
    drop(here);
    gone(number.wait());
    // With the property that it was left in, with the closure that was to keep it, with a fiber that panics.
    let (left, number) = promise::<u8>();
    let board = pool.entrust(None);
    board.apply(move |board| *board = Some(left));
    drop(board);
    gone(number.wait());
    let (captured, number) = promise::<u8>();
    let poisoned = pool.entrust(0);
    assert!(poisoned.call().apply(|_| panic!("poisons")).wait().is_err());
    poisoned.call().apply(move |_| captured.keep(1)).then(|outcome| assert!(outcome.is_err()));
    gone(number.wait());
    let (held, number) = promise::<u8>();
    let fiber = pool.spawn(move || {
        let _held = held;
        panic!("before it was kept");
    });
    gone(number.wait());
    assert!(fiber.join().is_err());
    // And its thread's end.
    let (left, number) = promise::<u8>();
    let keeper = pool.entrust(None);
    keeper.apply(move |keeper| *keeper = Some(left));
    drop(pool);
    gone(number.wait());
}

#[test]
fn what_nobody_waits_for_is_dropped_where_it_would_have_come() {
    let _watch = watchdog!();
    let pool = pool(1);
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = |drops: &Arc<AtomicUsize>| {
        let drops = trust::Shared::from(Arc::clone(drops));
        OnDrop(drops)
    };
    struct OnDrop(trust::Shared<AtomicUsize>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    // Given up before and after it was kept, here and from a worker.
    let (early, value) = promise();
    drop(value);
    early.keep(counted(&drops));
    let (late, value) = promise();
    late.keep(counted(&drops));
    drop(value);
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    let (there, value) = promise();
    drop(value);
    let one = counted(&drops);
    pool.spawn(move || there.keep(one)).join().unwrap();
    common::serve_until(|| drops.load(Ordering::Relaxed) == 3);
    // Discarded: no message.
    let (unneeded, value) = promise::<u8>();
    unneeded.discard();
    assert!(value.try_take().is_none());
}

#[test]
fn waiting_ends_in_time_and_the_value_may_come_later() {
    let _watch = watchdog!();
    let pool = pool(1);
    let both = || {
        let (promise, value) = promise::<u32>();
        let from = Instant::now();
        assert_eq!(value.wait_timeout(Duration::from_millis(3)), None);
        assert!(from.elapsed() >= Duration::from_millis(3));
        assert_eq!(value.wait_timeout(Duration::ZERO), None);
        let keeper = trust::spawn(move || promise.keep(5));
        assert_eq!(value.wait_timeout(LONG), Some(Ok(5)));
        keeper.join().unwrap();
        // A timer that was not needed does not wake the fiber from its next wait.
        let (promise, value) = trust::promise::<u32>();
        trust::spawn(move || promise.keep(6));
        assert_eq!(value.wait_timeout(Duration::MAX), Some(Ok(6)));
    };
    both();
    pool.spawn(both).join().unwrap();
}

#[test]
fn timers_and_values_that_race_lose_nothing() {
    let _watch = watchdog!();
    let pool = pool(2);
    let keeper = pool.trustees()[1].entrust(Vec::<Promise<u32>>::new());
    let fibers: Vec<_> = (0..8)
        .map(|fiber| {
            let keeper = keeper.clone();
            pool.spawn_on(0, move || {
                let mut timeouts = 0;
                for round in 0..100 {
                    let (promise, value) = promise();
                    keeper.apply_then(move |kept| kept.push(promise), |()| ());
                    let late = keeper.clone();
                    trust::spawn(move || {
                        trust::sleep(Duration::from_micros(fiber * 10));
                        late.apply(move |kept| kept.drain(..).for_each(|promise| promise.keep(round)));
                    });
                    match value.wait_timeout(Duration::from_micros(round as u64)) {
                        Some(value) => assert!(value.is_ok()),
                        None => {
                            timeouts += 1;
                            assert!(value.wait().is_ok());
                        }
                    }
                }
                timeouts
            })
        })
        .collect();
    for fiber in fibers {
        fiber.join().unwrap();
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Document {
    text: String,
    pages: Vec<u8>,
}

/// Serialises for this thread only.
#[derive(Debug)]
struct Stubborn;

impl Serialize for Stubborn {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("it does not want to travel")
    }
}

impl<'de> Deserialize<'de> for Stubborn {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("it does not want to arrive"))
    }
}

#[test]
fn values_with_pointers_travel_serialised() {
    let _watch = watchdog!();
    let pool = pool(1);
    let document = || Document { text: "to be".into(), pages: (0..100_000u32).map(|n| n as u8).collect() };
    let (here, value) = promise();
    here.keep_with(document());
    assert_eq!(value.wait(), Ok(document()));
    let (there, value) = promise();
    pool.spawn(move || there.keep_with(document()));
    assert_eq!(value.wait(), Ok(document()));
    // To its own thread it need not.
    let (here, value) = promise();
    here.keep_with(Stubborn);
    assert!(value.wait().is_ok());
    let (there, value) = promise();
    let keeper = pool.entrust(Some(there));
    // Its panic is not the closure's.
    keeper.apply(|there| there.take().unwrap().keep_with(Stubborn));
    match value.wait() {
        Err(Error::Panicked { panic, .. }) => assert_eq!(panic, "it does not want to travel"),
        other => panic!("{other:?}"),
    }
    assert!(keeper.apply(|there| there.is_none()));
}

#[test]
fn promises_are_kept_by_threads_without_a_loop_and_in_the_last_moment() {
    let _watch = watchdog!();
    let (promise, value) = promise::<u32>();
    std::thread::spawn(move || promise.keep(3)).join().unwrap();
    assert_eq!(value.wait(), Ok(3));

    // Again and again, with nothing in between that would have its loop run.
    let (give, take) = mpsc::channel::<(Promise<u32>, Promise<String>)>();
    let keeper = std::thread::spawn(move || {
        for (number, text) in take {
            number.keep(5);
            text.keep_with("so it goes".to_owned());
        }
    });
    let pool = pool(1);
    for _ in 0..100 {
        let ask = || {
            let ((number, five), (text, words)) = (trust::promise(), trust::promise());
            ((number, text), move || assert_eq!((five.wait(), words.wait()), (Ok(5), Ok("so it goes".to_owned()))))
        };
        let (promises, check) = ask();
        give.send(promises).unwrap();
        check();
        let other = give.clone();
        let fiber = pool.spawn(move || {
            let (promises, check) = ask();
            other.send(promises).unwrap();
            check();
        });
        fiber.join().unwrap();
    }
    drop(give);
    keeper.join().unwrap();

    // In the destructor of a thread-local, when the thread's own worker has gone.
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    struct Last(Option<Promise<u32>>);
    impl Drop for Last {
        fn drop(&mut self) {
            if let Some(promise) = self.0.take() {
                promise.keep(4);
            }
        }
    }
    let (promise, value) = trust::promise::<u32>();
    let thread = std::thread::spawn(move || {
        // Registered before the worker is made, so dropped after it has ended.
        LAST.with(|last| *last.borrow_mut() = Some(Last(None)));
        let _ = trust::local_trustee();
        LAST.with(|last| last.borrow_mut().as_mut().unwrap().0 = Some(promise));
    });
    assert_eq!(value.wait(), Ok(4));
    thread.join().unwrap();
}

#[test]
fn the_waiting_thread_may_be_gone() {
    let _watch = watchdog!();
    let pool = pool(1);
    let (give, take) = mpsc::channel();
    std::thread::spawn(move || {
        let (promise, value) = promise::<u32>();
        give.send(promise).unwrap();
        drop(value);
    })
    .join()
    .unwrap();
    let promise = take.recv().unwrap();
    pool.spawn(move || promise.keep(1)).join().unwrap();
}

#[test]
fn as_many_fibers_as_there_is_memory_for_may_wait() {
    let _watch = watchdog!();
    const FIBERS: usize = 6000; // more than closures that may be launched at a time
    let waiting = Rc::new(RefCell::new(Vec::new()));
    let fibers: Vec<_> = (0..FIBERS)
        .map(|_| {
            let waiting = Rc::clone(&waiting);
            trust::spawn(move || {
                let (promise, value) = promise::<usize>();
                waiting.borrow_mut().push(promise);
                value.wait().unwrap()
            })
        })
        .collect();
    common::serve_until(|| waiting.borrow().len() == FIBERS);
    let latch = trust::local_trustee().entrust(trust::Latch::new(0));
    assert_eq!(latch.launch(|value| *value), 0, "launching goes on meanwhile");
    waiting.borrow_mut().drain(..).enumerate().for_each(|(number, promise)| promise.keep(number));
    for (number, fiber) in fibers.into_iter().enumerate() {
        assert_eq!(fiber.join().unwrap(), number);
    }
}

#[test]
fn nothing_waits_inside_closures() {
    let _watch = watchdog!();
    let number = trust::local_trustee().entrust(0);
    let refused = number.call().apply(|_| promise::<u8>().1.wait().unwrap()).wait();
    assert!(matches!(refused, Err(Error::Panicked { panic, .. }) if panic.contains("`Pending::wait` waits")));
}

#[test]
fn several_fibers_may_wait_for_one_value() {
    let _watch = watchdog!();
    let (promise, value) = promise::<u32>();
    let value = Rc::new(value);
    let times = [LONG, Duration::MAX, Duration::from_millis(1), LONG];
    let fibers: Vec<_> = times
        .into_iter()
        .map(|time| {
            let value = Rc::clone(&value);
            trust::spawn(move || value.wait_timeout(time))
        })
        .collect();
    common::serve_until(|| fibers[2].is_finished());
    // A fiber that was woken by the end of the finished one waits again.
    trust::yield_now();
    promise.keep(5);
    let seen: Vec<_> = fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
    assert_eq!(seen.iter().flatten().collect::<Vec<_>>(), [&Ok(5)], "one of them has it, and none waits for ever");
}

/// A value that comes by the inbox, from a thread without a worker, to a thread whose process has no memory for one
/// more stack.
#[test]
fn a_value_comes_where_there_is_no_memory_for_a_fiber() {
    let _watch = watchdog!();
    if !is_child() {
        let child = run_child("a_value_comes_where_there_is_no_memory_for_a_fiber");
        assert!(child.status.success() && stderr(&child).contains("it has come"), "{}", stderr(&child));
        return;
    }
    use rustix::process::{Resource, Rlimit, setrlimit};
    let (send, promises) = mpsc::channel::<Promise<u32>>();
    let (begin, begins) = mpsc::channel::<()>();
    let keeper = std::thread::spawn(move || {
        let promise = promises.recv().unwrap();
        begins.recv().unwrap();
        promise.keep(7);
    });
    // Both threads have everything they need before the memory is gone.
    let (warm, number) = promise::<u32>();
    warm.keep(1);
    assert_eq!(number.wait(), Ok(1));
    let (late, number) = promise::<u32>();
    send.send(late).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let used_kib: u64 =
        status.lines().find_map(|line| line.strip_prefix("VmSize:")?.split_whitespace().next()?.parse().ok()).unwrap();
    setrlimit(Resource::As, Rlimit { current: Some((used_kib + 4096) << 10), maximum: None }).unwrap();
    // The stacks that are left; each fiber waits, so none of them is used again.
    let fibers: Vec<_> = (0..1000).map(|_| trust::spawn(|| trust::sleep(LONG))).collect();
    trust::yield_now();
    assert!(fibers.iter().any(trust::JoinHandle::is_finished), "there is memory for a thousand");
    begin.send(()).unwrap();
    assert_eq!(number.wait(), Ok(7));
    eprintln!("it has come");
    fibers.iter().for_each(trust::JoinHandle::abort);
    trust::finish();
    keeper.join().unwrap();
}
