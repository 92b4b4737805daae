//! Trustees that move between the workers of a pool: their clients notice nothing of it.

#![allow(unsafe_code)] // a clock of the system

mod common;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::{Drops, effort, panic_of};
use limits::wait_until;
use trust::link::{self, ask_to_move, entrust_here};
use trust::{Bound, Error, Latch, Shared, Threadpool, Trust, spawn_on, together};

/// A pool of this many workers, which do not poll, and trustees.
fn pool(workers: usize, trustees: usize) -> Threadpool {
    Threadpool::builder().workers(workers).trustees(trustees).pin(false).build()
}

/// Moves a trustee, and returns why it does not move.
fn go(pool: &Threadpool, trustee: usize, worker: usize) -> Result<(), Option<Bound>> {
    let asked = ask_to_move(pool, trustee, worker);
    wait_until("a move has an outcome", || asked.outcome().is_some());
    let outcome = asked.outcome().expect("it was waited for");
    let is_there = pool.tuning().trustees[trustee].worker == worker;
    assert_eq!(outcome.is_ok(), is_there, "{outcome:?}");
    outcome
}

/// A sequence of numbers, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Moves trustees at random until dropped.
struct Mover<'a>(&'a AtomicBool);

impl Mover<'_> {
    /// Moves for as long as `f` runs. Returns its result, and the number of moves.
    fn beside<R>(pool: &Threadpool, f: impl FnOnce() -> R) -> (R, u64) {
        let is_over = AtomicBool::new(false);
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(0x5eed);
                let (workers, trustees) = (pool.settings().workers, pool.trustees().len());
                while !is_over.load(Ordering::Relaxed) {
                    let asked = ask_to_move(pool, random.below(trustees), random.below(workers));
                    // Some moves are asked for while others are under way.
                    if random.below(4) > 0 {
                        while asked.outcome().is_none() && !is_over.load(Ordering::Relaxed) {
                            thread::yield_now();
                        }
                    }
                }
            });
            let _over = Mover(&is_over);
            f()
        });
        (result, pool.tuning().moves)
    }
}

impl Drop for Mover<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A property of several clients: the last number of each, and the sum of all.
#[derive(Default)]
struct Ledger {
    last: Vec<u64>,
    sum: u64,
}

impl Ledger {
    /// Notes the next number of a client. Panics if one is missing or comes twice.
    fn note(&mut self, client: usize, number: u64) -> u64 {
        if self.last.len() <= client {
            self.last.resize(client + 1, 0);
        }
        assert_eq!(number, self.last[client] + 1, "client {client}");
        self.last[client] = number;
        self.sum += number;
        number * 3
    }
}

/// Requests of one client to all ledgers in turn: mostly without a wait, their answers are checked.
fn ask(ledgers: &[Trust<Ledger>], client: usize, each: u64) {
    let answers = Rc::new(std::cell::Cell::new(0u64));
    for number in 1..=each {
        for ledger in ledgers {
            if number % 64 == 0 {
                assert_eq!(ledger.apply(move |ledger| ledger.note(client, number)), number * 3);
                continue;
            }
            let answers = Rc::clone(&answers);
            ledger.apply_then(
                move |ledger| ledger.note(client, number),
                move |answer| {
                    assert_eq!(answer, number * 3);
                    answers.set(answers.get() + 1);
                },
            );
        }
    }
    trust::wait_all();
    assert_eq!(answers.get(), (each - each / 64) * ledgers.len() as u64);
}

/// Order, answers and counts under random moves: fibers of the workers and plain threads ask.
fn random_moves(requests: u64) {
    const LEDGERS: usize = 6;
    const FIBERS: usize = 6;
    const THREADS: usize = 2;
    const CLIENTS: usize = FIBERS + THREADS;
    let pool = pool(3, 4);
    let each = requests / (CLIENTS * LEDGERS) as u64;
    let ledgers: Arc<[_]> = (0..LEDGERS).map(|_| pool.entrust(Ledger::default())).collect();
    let ((), moves) = Mover::beside(&pool, || {
        thread::scope(|scope| {
            for client in 0..THREADS {
                let ledgers = &ledgers;
                scope.spawn(move || ask(ledgers, client, each));
            }
            let fibers = (THREADS..CLIENTS).map(|client| {
                let ledgers = Arc::clone(&ledgers);
                pool.spawn(move || ask(&ledgers, client, each))
            });
            let fibers: Vec<_> = fibers.collect();
            fibers.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
        });
    });
    for ledger in &*ledgers {
        let (last, sum) = ledger.apply_with(|ledger, ()| (ledger.last.clone(), ledger.sum), ());
        assert_eq!(last, [each; CLIENTS]);
        assert_eq!(sum, CLIENTS as u64 * each * (each + 1) / 2);
    }
    assert!(moves > 10, "{moves}");
    println!("{} requests, {}, longest pause {:?}", requests, pool.tuning(), pool.tuning().longest_pause);
}

#[test]
fn order_and_answers_are_as_without_moves() {
    watchdog!();
    random_moves(effort(200_000, 2_000_000));
}

#[test]
#[ignore = "takes minutes in a debug build: for a release build"]
fn stress_ten_million_requests_under_random_moves() {
    watchdog!(600);
    random_moves(10_000_000);
}

#[test]
fn a_trustee_moves_with_its_poison_and_its_closed_properties() {
    watchdog!();
    let pool = pool(2, 1);
    let (poisoned, closed, sound) = (pool.entrust(1), pool.entrust(2), pool.entrust(3));
    assert!(matches!(poisoned.call().apply(|_| panic!("of a test")).wait(), Err(Error::Panicked { .. })));
    assert!(closed.clone().close().is_ok());
    for worker in [1, 0, 1] {
        assert_eq!(go(&pool, 0, worker), Ok(()));
        match poisoned.call().apply(|value| *value).wait() {
            Err(Error::Poisoned { panic, .. }) => assert!(panic.contains("of a test"), "{panic}"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(closed.call().apply(|value| *value).wait(), Err(Error::Gone { was_closed: true, .. })));
        assert_eq!(sound.apply(|value| *value), 3);
    }
    poisoned.clear_poison();
    assert_eq!(poisoned.apply(|value| *value), 1);
    assert_eq!((pool.tuning().moves, stats(&pool, 0).moves), (3, 3));
}

fn stats(pool: &Threadpool, trustee: usize) -> trust::Stats {
    trust::stats(pool.trustees()[trustee]).expect("it is there")
}

#[test]
fn a_trace_shows_moves() {
    watchdog!();
    let pool = pool(2, 1);
    // Until one has moves in it: on a busy machine there may be none for a while.
    let moves = loop {
        let traces = thread::scope(|scope| {
            let trace = scope.spawn(|| link::trace(pool.trustees(), Duration::from_millis(50)));
            for worker in [1, 0].into_iter().cycle().take_while(|_| !trace.is_finished()) {
                assert_eq!(go(&pool, 0, worker), Ok(()));
            }
            trace.join().expect("it does not panic").expect("there is no other one")
        });
        let is_move = |event: &&link::TraceEvent| event.kind == link::TraceKind::Move;
        let moves: Vec<_> = traces[0].events.iter().filter(is_move).copied().collect();
        if moves.len() > 1 {
            break moves;
        }
    };
    assert!(moves.windows(2).all(|two| two[0].count + two[1].count == 1), "{moves:?}");
}

/// Trusts are cloned, given to other threads and dropped: each property is dropped once, and not before.
#[test]
fn properties_are_reclaimed_as_without_moves() {
    watchdog!();
    let pool = pool(3, 3);
    let rounds = effort(300, 5_000);
    let drops = Drops::default();
    let ((), moves) = Mover::beside(&pool, || {
        for round in 0..rounds {
            let value = pool.entrust(drops.value(round));
            let fibers = (0..3).map(|_| {
                let value = value.clone();
                pool.spawn(move || {
                    let copies: Vec<_> = (0..4).map(|_| value.clone()).collect();
                    trust::yield_now();
                    drop(value);
                    copies.iter().for_each(|copy| copy.apply(|value| value.check()));
                })
            });
            let fibers: Vec<_> = fibers.collect();
            drop(value);
            fibers.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
        }
        wait_until("all are dropped", || drops.count() == rounds);
    });
    assert!(moves > 10, "{moves}");
}

/// All workers sleep when a trustee is moved or asked: no wake-up is lost.
#[test]
fn sleeping_workers_are_woken_for_the_trustees_they_run() {
    watchdog!();
    let pool = Threadpool::builder().workers(3).trustees(2).pin(false).spin(Duration::ZERO).build();
    let values = [pool.entrust(0u64), pool.entrust(0u64)];
    let mut random = Random(7);
    for round in 1..=effort(300, 5_000) {
        for (trustee, value) in values.iter().enumerate() {
            if random.below(2) == 0 {
                let _ = ask_to_move(&pool, trustee, random.below(3));
            }
            assert_eq!(
                value.apply(|value| {
                    *value += 1;
                    *value
                }),
                round
            );
        }
        if random.below(8) == 0 {
            thread::sleep(Duration::from_micros(random.below(300) as u64));
        }
    }
    assert!(pool.tuning().moves > 10);
}

#[test]
fn a_trustee_with_values_that_are_not_send_stays() {
    watchdog!();
    let pool = pool(2, 2);
    let value = pool.entrust(());
    value.apply(|()| std::mem::forget(entrust_here(Rc::new(1))));
    assert_eq!(go(&pool, 0, 1), Err(Some(Bound::Values)));
    assert_eq!(go(&pool, 1, 0), Ok(()), "the other one moves");
    let made = link::entrust_remote(pool.trustees()[1], std::ptr::null::<u8>).expect("it is of this machine");
    assert_eq!(go(&pool, 1, 1), Err(Some(Bound::Values)));
    assert!(made.apply(|pointer| pointer.is_null()));
    let tuning = pool.tuning();
    assert_eq!(
        [0, 1].map(|trustee| (stats(&pool, trustee).moves, stats(&pool, trustee).moves_refused)),
        [(0, 1), (1, 1)]
    );
    assert_eq!(tuning.trustees[0].bound, Some(Bound::Values));
    assert!(tuning.to_string().contains("stays on worker 0: values that are not known to be `Send`"), "{tuning}");
    drop(made);
}

#[test]
fn a_trustee_stays_while_its_fibers_run_and_goes_after() {
    watchdog!();
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    let pool = pool(2, 1);
    let value = pool.entrust(Latch::new(0));
    let launcher = value.clone();
    let launched = pool.spawn(move || {
        launcher.launch(|value| {
            let here = thread::current().id();
            while !GOES_ON.load(Ordering::Relaxed) {
                trust::sleep(Duration::from_millis(1));
            }
            *value += 1;
            assert_eq!(here, thread::current().id());
        });
    });
    let elsewhere = || 1 - pool.tuning().trustees[0].worker;
    wait_until("it runs", || go(&pool, 0, elsewhere()) == Err(Some(Bound::Fibers)));
    assert_eq!(pool.tuning().trustees[0].bound, Some(Bound::Fibers));
    GOES_ON.store(true, Ordering::Relaxed);
    launched.join().expect("it does not panic");
    let before = value.apply(|_| thread::current().id());
    wait_until("it has settled", || go(&pool, 0, elsewhere()).is_ok());
    assert_ne!(before, value.apply(|_| thread::current().id()));
    assert_eq!(pool.tuning().trustees[0].bound, None);
}

/// Fibers that a closure spawns belong to the trustee's thread; a callback of its own request runs where it was made.
#[test]
fn code_that_is_not_send_never_changes_its_thread() {
    watchdog!();
    let pool = pool(3, 3);
    let values: Vec<_> = (0..3).map(|_| pool.entrust(0u64)).collect();
    let done = Shared::new(AtomicUsize::new(0));
    let rounds = effort(2_000, 20_000);
    let ((), moves) = Mover::beside(&pool, || {
        for round in 0..rounds {
            let (other, done) = (values[(round + 1) % 3].clone(), done.clone());
            values[round % 3].apply(move |value| {
                *value += 1;
                let here = Rc::new(thread::current().id());
                let (of_fiber, of_callback) = (Rc::clone(&here), Rc::clone(&here));
                let more = done.clone();
                drop(trust::spawn(move || {
                    trust::yield_now();
                    assert_eq!(*of_fiber, thread::current().id());
                    more.fetch_add(1, Ordering::Relaxed);
                }));
                other.apply_then(
                    |value| *value += 1,
                    move |()| {
                        assert_eq!(*of_callback, thread::current().id());
                        done.fetch_add(1, Ordering::Relaxed);
                    },
                );
            });
        }
        wait_until("all has run", || done.load(Ordering::Relaxed) == 2 * rounds);
    });
    let sum: u64 = values.iter().map(|value| value.apply(|value| *value)).sum();
    assert_eq!(sum, 2 * rounds as u64);
    assert!(moves > 10, "{moves}");
}

/// Closures on several properties, launched ones, and futures on threads without slots.
#[test]
fn calls_of_all_kinds_go_on_under_moves() {
    watchdog!();
    let pool = pool(2, 3);
    let (one, two, latched) =
        (pool.entrust(Latch::new(0u64)), pool.entrust(Latch::new(1_000u64)), pool.entrust(Latch::new(0u64)));
    let rounds = effort(1_000, 20_000);
    let ((), moves) = Mover::beside(&pool, || {
        let fibers = (0..3).map(|_| {
            let (one, two, latched) = (one.clone(), two.clone(), latched.clone());
            pool.spawn(move || {
                for _ in 0..rounds {
                    together((&one, &two), |(one, two)| {
                        *one += 1;
                        *two -= 1;
                        *two += 1;
                    });
                    latched.launch(|value| {
                        trust::yield_now();
                        *value += 1;
                    });
                }
            })
        });
        let fibers: Vec<_> = fibers.collect();
        fibers.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
    });
    assert_eq!((one.launch(|one| *one), two.launch(|two| *two)), (3 * rounds, 1_000));
    assert_eq!(latched.launch(|value| *value), 3 * rounds);
    assert!(moves > 0, "{moves}");
}

/// A pool ends while its trustees move and are asked: each request is answered, or its trustee is gone; each value is
/// dropped.
#[test]
fn a_pool_ends_while_its_trustees_move() {
    watchdog!();
    for round in 0..effort(30, 500) {
        let pool = pool(3, 4);
        let drops = Drops::default();
        let values: Vec<_> = (0..8).map(|number| pool.entrust(drops.value(number))).collect();
        let mut random = Random(round + 1);
        let answered = AtomicU64::new(0);
        thread::scope(|scope| {
            let asked = &answered;
            for value in &values[..2] {
                let value = value.clone();
                scope.spawn(move || {
                    while value.call().apply(|value| value.check()).wait().is_ok() {
                        asked.fetch_add(1, Ordering::Relaxed);
                        // A pool that is asked all the time does not end.
                        thread::sleep(Duration::from_millis(2));
                    }
                });
            }
            while answered.load(Ordering::Relaxed) < 4 {
                thread::yield_now();
            }
            for _ in 0..random.below(12) {
                let _ = ask_to_move(&pool, random.below(4), random.below(3));
            }
            drop(pool);
        });
        assert_eq!(drops.count(), 8);
        assert!(values.iter().all(|value| matches!(value.call().apply(|_| ()).wait(), Err(Error::Gone { .. }))));
    }
}

/// Values whose destructors ask other trustees of the same worker: the end waits for neither.
#[test]
fn the_end_of_a_worker_serves_the_trustees_that_still_run() {
    watchdog!();
    struct Asks(Trust<u64>, Arc<AtomicU64>);
    impl Drop for Asks {
        fn drop(&mut self) {
            let told = Arc::clone(&self.1);
            self.0.apply_then(
                |value| *value += 1,
                move |()| {
                    told.fetch_add(1, Ordering::Relaxed);
                },
            );
        }
    }
    let start = std::time::Instant::now();
    let told = Arc::new(AtomicU64::new(0));
    let pool = pool(1, 2);
    let value = pool.trustees()[0].entrust(0);
    let asks = pool.trustees()[1].entrust(Asks(value, Arc::clone(&told)));
    asks.apply(|_| ());
    drop(pool);
    assert_eq!(told.load(Ordering::Relaxed), 1, "the trustees end in order, from the last one on");
    assert!(start.elapsed() < limits::bound(Duration::from_secs(3)));
}

/// Time that this thread has computed.
fn time_of_thread() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A trustee waits for a worker that computes. The one that it has left sleeps meanwhile, also when it is to come back.
#[test]
fn a_worker_sleeps_while_a_trustee_that_left_it_is_on_its_way() {
    watchdog!();
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    let pool = Threadpool::builder().workers(2).trustees(1).pin(false).spin(Duration::ZERO).build();
    assert_eq!(go(&pool, 0, 0), Ok(()));
    let (begun, begins) = mpsc::channel();
    let computes = pool.spawn_on(1, move || {
        begun.send(()).expect("the test waits");
        while !GOES_ON.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    begins.recv().expect("it begins");
    let there = ask_to_move(&pool, 0, 1);
    wait_until("it has left", || pool.tuning().trustees[0].worker == 1);
    let back = ask_to_move(&pool, 0, 0);
    let computed = || pool.spawn_on(0, time_of_thread).join().expect("it does not panic");
    let before = computed();
    thread::sleep(Duration::from_millis(200));
    let computed_ms = computed().saturating_sub(before).as_millis();
    assert!(computed_ms < 100, "it polls: {computed_ms} of 200 ms");
    GOES_ON.store(true, Ordering::Relaxed);
    computes.join().expect("it does not panic");
    wait_until("both are done", || there.outcome().is_some() && back.outcome().is_some());
    assert_eq!((there.outcome(), back.outcome()), (Some(Ok(())), Some(Ok(()))));
    assert_eq!(pool.tuning().trustees[0].worker, 0);
}

#[test]
fn fibers_go_to_workers_and_values_to_trustees() {
    watchdog!();
    let pool = pool(2, 3);
    let values: Vec<_> = (0..6).map(|number| pool.entrust(number)).collect();
    for (number, value) in values.iter().enumerate() {
        assert_eq!(value.trustee(), pool.trustees()[number % 3]);
        assert_eq!(value.apply(|_| trust::local_trustee()), value.trustee());
    }
    let here = [0, 1].map(|worker| pool.spawn_on(worker, trust::local_trustee).join().expect("it does not panic"));
    assert!(here.iter().all(|trustee| !pool.trustees().contains(trustee)));
    let there = spawn_on(&pool.trustees()[2], trust::local_trustee).join().expect("it does not panic");
    assert_eq!(there, pool.trustees()[2]);
    let panic = panic_of(|| drop(pool.spawn_on(2, || ())));
    assert!(panic.contains("there is no worker 2"), "{panic}");
}

#[test]
fn too_many_trustees_are_refused() {
    let error = Threadpool::builder().workers(1).trustees(257).try_build().map(drop).unwrap_err();
    assert!(error.to_string().contains("at most 256"), "{error}");
}
