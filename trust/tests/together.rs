//! `together`: several values at once, beside any other use.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use trust::{
    Error, Latch, Threadpool, Trust, local_trustee, together, together_async, together_then, try_together,
    try_together_async, try_together_then, wait_all,
};

fn value(of: &Trust<Latch<i64>>) -> i64 {
    of.launch(|value| *value)
}

/// Waits for something without a waiter: a call inside a closure.
fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + limits::HANG;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not come to that");
        trust::yield_now();
    }
}

#[test]
fn values_of_one_two_and_the_own_trustee_come_in_the_order_in_which_they_are_named() {
    let pool = Threadpool::new(2);
    let [one, other] = [0, 1].map(|at| pool.trustees()[at]);
    let (a, b, c) = (one.entrust(Latch::new(1)), other.entrust(Latch::new(20_u8)), one.entrust(Latch::new('c')));
    let own = local_trustee().entrust(Latch::new([7_u64; 100]));
    let seen = together((&c, &b, &own, &a), |(c, b, own, a)| {
        *a += 1;
        *b += 1;
        own[99] = 8;
        (*c, *b, own[0] + own[99], *a)
    });
    assert_eq!(seen, ('c', 21, 15, 2));
    assert_eq!(together((&a, &b), |(a, b)| (*a, *b)), (2, 21));
    assert_eq!(together([&a], |[a]| *a), 2);
    let none: [Trust<Latch<i32>>; 0] = [];
    assert_eq!(together(&none[..], |none| none.len()), 0);
    let many: Vec<_> = (0..20).map(|at| pool.trustees()[at % 2].entrust(Latch::new(at))).collect();
    let sum = together(&many[..], |many| many.iter().map(|one| **one).sum::<usize>());
    let mixed: Vec<&Trust<Latch<usize>>> = many.iter().rev().collect();
    assert_eq!((sum, together(&mixed[..], |mixed| mixed.iter().map(|one| **one).collect::<Vec<_>>().len())), (190, 20));
}

#[test]
fn the_same_property_twice_is_an_error_and_nothing_runs() {
    let pool = Threadpool::new(1);
    let a = pool.entrust(Latch::new(1));
    let other = a.clone();
    let error = try_together((&a, &other), |(a, _)| *a = 2).unwrap_err();
    assert!(matches!(error, Error::Twice { .. }), "{error}");
    assert!(error.to_string().contains("same property of type `trust::") && value_of(&a) == 1, "{error}");
    let told = Rc::new(Cell::new(false));
    let tell = Rc::clone(&told);
    try_together_then([&a, &other], |_| (), move |outcome| tell.set(matches!(outcome, Err(Error::Twice { .. }))));
    assert!(told.get());
}

fn value_of(of: &Trust<Latch<i32>>) -> i32 {
    of.launch(|value| *value)
}

#[test]
fn a_panic_poisons_all_and_puts_all_back() {
    let pool = Threadpool::new(2);
    let all: Vec<_> = (0..4).map(|at| pool.trustees()[at % 2].entrust(Latch::new(at as i64))).collect();
    let error = try_together(&all[..], |all| {
        *all.into_iter().next().unwrap() = 9;
        panic!("half done");
    });
    assert!(matches!(&error, Err(Error::Panicked { panic, .. }) if panic == "half done"), "{error:?}");
    for one in &all {
        let poisoned = try_together((one, &pool.entrust(Latch::new(0))), |_| ());
        assert!(matches!(&poisoned, Err(Error::Poisoned { panic, .. }) if panic == "half done"), "{poisoned:?}");
    }
    all.iter().for_each(Trust::clear_poison);
    assert!(together(&all[..], |all| all.iter().map(|one| **one).collect::<Vec<_>>() == [9, 1, 2, 3]));
    let panic = catch_unwind(AssertUnwindSafe(|| together(&all[..], |_| std::panic::panic_any(17_u32))));
    assert_eq!(panic.unwrap_err().downcast_ref::<u32>(), Some(&17));
}

#[test]
fn one_poisoned_property_lets_the_others_free() {
    let pool = Threadpool::new(2);
    let (a, b) = (pool.trustees()[0].entrust(Latch::new(1_i64)), pool.trustees()[1].entrust(Latch::new(2_i64)));
    let _ = b.call().apply(|_| panic!("bad")).wait();
    assert!(matches!(try_together((&a, &b), |_| ()), Err(Error::Poisoned { .. })));
    assert_eq!(value(&a), 1);
}

#[test]
fn a_trustee_that_is_gone_lets_the_others_free() {
    for gone in 0..2 {
        let mut pools = [Threadpool::new(1), Threadpool::new(1)].map(Some);
        let all: Vec<_> = pools.iter().flatten().map(|pool| pool.entrust(Latch::new(5_i64))).collect();
        drop(pools[gone].take());
        let outcome = try_together((&all[0], &all[1]), |_| ());
        assert!(matches!(outcome, Err(Error::Gone { .. })), "{outcome:?}");
        assert_eq!(value(&all[1 - gone]), 5);
    }
}

#[test]
fn callers_are_told_when_a_trustee_ends_beneath_them() {
    // Fibers of one pool act on values of another and of two threads, which end meanwhile.
    for round in 0..20 {
        let (stays, clients) = (Threadpool::new(1), Threadpool::new(2));
        let a: Vec<_> = (0..3).map(|_| stays.entrust(Latch::new(0_i64))).collect();
        let (tell, told) = std::sync::mpsc::channel();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let tell = tell.clone();
                std::thread::spawn(move || {
                    tell.send([(); 2].map(|()| local_trustee().entrust(Latch::new(0_i64)))).unwrap();
                    trust::sleep(Duration::from_millis(round));
                })
            })
            .collect();
        let b: Vec<_> = told.iter().take(2).flatten().collect();
        let fibers: Vec<_> = (0..16)
            .map(|at| {
                let (a, b) = (a[at % 3].clone(), [b[at % 4].clone(), b[(at + 1) % 4].clone()]);
                clients.spawn(move || {
                    let act = |(a, b, c): (&mut i64, &mut i64, &mut i64)| {
                        *a += 1;
                        *b += 1;
                        *c += 1;
                    };
                    let mut done = 0_i64;
                    loop {
                        match try_together((&a, &b[0], &b[1]), act) {
                            Ok(()) => done += 1,
                            Err(error) => return (done, matches!(error, Error::Gone { .. })),
                        }
                    }
                })
            })
            .collect();
        let ends: Vec<_> = fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(ends.iter().all(|(_, is_gone)| *is_gone));
        let done: i64 = ends.iter().map(|(done, _)| done).sum();
        assert_eq!(a.iter().map(value).sum::<i64>(), done, "what was told is what was done");
    }
}

#[test]
fn a_fiber_that_holds_a_value_is_refused() {
    let pool = Threadpool::new(2);
    let (a, b, c) = (pool.entrust(Latch::new(1)), pool.entrust(Latch::new(2)), pool.entrust(Latch::new(3)));
    let [b2, c2] = [&b, &c].map(Trust::clone);
    let panic = catch_unwind(AssertUnwindSafe(|| a.launch(move |_| together((&b2, &c2), |_| ()))));
    let panic = panic.unwrap_err().downcast::<String>().unwrap();
    assert!(panic.contains("name all of them in one call"), "{panic}");
    a.clear_poison();
    let sum = a
        .call()
        .launch_held(move |held| {
            let sum = held.released(|| together((&b, &c), |(b, c)| *b + *c));
            **held + sum
        })
        .wait()
        .unwrap();
    assert_eq!(sum, 6);
}

#[test]
fn nothing_waits_inside_a_closure_but_together_then_may_be_called_there() {
    let pool = Threadpool::new(2);
    let (a, b) = (pool.trustees()[0].entrust(Latch::new(1_i64)), pool.trustees()[1].entrust(Latch::new(2_i64)));
    let at = local_trustee().entrust((a.clone(), b.clone()));
    let refused = at.call().apply(|(a, b)| together((&*a, &*b), |_| ())).wait();
    assert!(refused.unwrap_err().to_string().contains("nothing may wait inside"));
    at.clear_poison();
    at.apply(|(a, b)| together_then((&*a, &*b), |(a, b)| *a += *b, |()| ()));
    until(|| value(&a) == 3);
    let own = local_trustee().entrust(Latch::new(4_i64));
    let (again, other) = (own.clone(), a.clone());
    let seen = Rc::new(Cell::new(0));
    let see = Rc::clone(&seen);
    at.apply_then(|_| (), move |()| together_then((&again, &other), |(own, a)| *own + *a, move |sum| see.set(sum)));
    until(|| seen.get() == 7);
    assert_eq!(value(&own), 4);
}

#[test]
fn trusts_may_be_dropped_while_a_call_is_under_way() {
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    struct Counted(u64);
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(self.0, Ordering::Relaxed);
        }
    }
    let pool = Threadpool::new(2);
    let ran = Rc::new(Cell::new(0));
    for _ in 0..500 {
        let [a, b] = [0, 1].map(|at| pool.trustees()[at].entrust(Latch::new(Counted(1))));
        let count = Rc::clone(&ran);
        together_then((&a, &b), |(a, b)| a.0 + b.0, move |sum| count.set(count.get() + sum));
    }
    wait_all();
    assert_eq!(ran.get(), 1000);
    drop(pool);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1000);
}

#[test]
fn a_latch_that_is_replaced_meanwhile_stays_replaced() {
    let pool = Threadpool::new(2);
    // In the order in which values are taken.
    let mut trustees = pool.trustees().to_vec();
    trustees.sort_by_key(|trustee| trustee.id());
    let (a, b) = (trustees[0].entrust(Latch::new(1_i64)), trustees[1].entrust(Latch::new(2_i64)));
    let busy = trustees[1].entrust(());
    static IS_BUSY: AtomicBool = AtomicBool::new(false);
    let other = std::thread::spawn(move || {
        busy.apply(|()| {
            IS_BUSY.store(true, Ordering::Relaxed);
            while IS_BUSY.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
    });
    while !IS_BUSY.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    together_then((&a, &b), |(a, _)| *a = 5, |()| ());
    // It has the value of `a` and waits for the second trustee.
    a.apply(|a| *a = Latch::new(7));
    IS_BUSY.store(false, Ordering::Relaxed);
    wait_all();
    other.join().unwrap();
    assert_eq!(together((&a, &b), |(a, b)| (*a, *b)), (7, 2));
}

/// Transfers between random accounts by every form of call: the sum stays, no fiber waits for ever.
fn transfers(workers: usize, accounts: usize, fibers: usize, rounds: usize) {
    let pool = Threadpool::new(workers);
    let accounts: Vec<Trust<Latch<i64>>> =
        (0..accounts).map(|at| pool.trustees()[at % workers].entrust(Latch::new(1000))).collect();
    let run = move |accounts: Vec<Trust<Latch<i64>>>, seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..rounds {
            let first = random.usize(..accounts.len());
            let size = 2 + random.usize(..4.min(accounts.len() - 1));
            let set: Vec<_> = (0..size).map(|at| &accounts[(first + at * 7) % accounts.len()]).collect();
            let distinct = (1..size).all(|at| (at * 7) % accounts.len() != 0);
            match random.u32(..8) {
                _ if !distinct => continue,
                0 => accounts[first].launch(|balance| {
                    let before = *balance;
                    trust::yield_now();
                    assert_eq!(*balance, before, "nobody else has it");
                }),
                1 => together_then(&set[..], shift, |()| ()),
                2 => {
                    let _ = accounts[first].apply(|latch| latch.try_lock().map(|balance| *balance));
                }
                _ => together(&set[..], shift),
            }
        }
        wait_all();
    };
    let handles: Vec<_> = (0..fibers as u64)
        .map(|seed| {
            let accounts = accounts.clone();
            pool.spawn(move || run(accounts, seed * 77 + 1))
        })
        .collect();
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let accounts = accounts.clone();
            scope.spawn(move || run(accounts, seed + 1000));
        }
    });
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(accounts.iter().map(value).sum::<i64>(), 1000 * accounts.len() as i64);
}

fn shift(balances: Vec<&mut i64>) {
    let mut of = balances.into_iter();
    let Some(first) = of.next() else { return };
    for other in of {
        *first -= 3;
        *other += 3;
    }
}

#[test]
fn transfers_between_random_accounts_keep_the_sum() {
    transfers(2, 16, 64, 100);
    transfers(3, 7, 20, 100);
    transfers(1, 3, 10, 100);
}

#[test]
fn what_a_closure_captures_may_use_the_library_when_it_is_dropped_unrun() {
    struct Calls(Trust<Latch<i64>>, Trust<Latch<i64>>);
    impl Drop for Calls {
        fn drop(&mut self) {
            together_then((&self.0, &self.1), |(a, b)| *a += *b, |()| ());
        }
    }
    let pool = Threadpool::new(2);
    let [a, b] = [0, 1].map(|at| pool.trustees()[at].entrust(Latch::new(1_i64)));
    let own = local_trustee().entrust(Latch::new(10_i64));
    let _ = b.call().apply(|_| panic!("bad")).wait();
    let calls = Calls(own.clone(), a.clone());
    assert!(matches!(try_together((&a, &b), move |_| drop(calls)), Err(Error::Poisoned { .. })));
    wait_all();
    // It was sent by a worker of the pool, without a waiter.
    until(|| value(&own) == 11);
}

#[test]
fn a_loop_of_local_calls_serves_others() {
    let (a, b) = (local_trustee().entrust(Latch::new(false)), local_trustee().entrust(Latch::new(())));
    let other = a.clone();
    let set = |latch: &mut Latch<bool>| *latch.try_lock().expect("nobody has it between closures") = true;
    let thread = std::thread::spawn(move || other.apply(set));
    let mut rounds = 0_u64;
    while !together((&a, &b), |(is_set, ())| *is_set) {
        rounds += 1;
        assert!(rounds < 1 << 26, "nobody else is served");
    }
    thread.join().unwrap();
}

#[test]
fn who_comes_after_a_panic_is_refused_whatever_was_under_way() {
    static IS_TORN: AtomicBool = AtomicBool::new(false);
    static RUNS: AtomicU64 = AtomicU64::new(0);
    fn both(a: &mut i64, b: &mut i64) {
        if a != b {
            IS_TORN.store(true, Ordering::Relaxed);
        }
        *a += 1;
        assert!(RUNS.fetch_add(1, Ordering::Relaxed) != 40, "half done");
        *b += 1;
    }
    let pool = Threadpool::new(2);
    for _ in 0..40 {
        RUNS.store(0, Ordering::Relaxed);
        let [a, b] = [0, 1].map(|at| pool.trustees()[at].entrust(Latch::new(0_i64)));
        let fibers: Vec<_> = (0..32)
            .map(|fiber| {
                let (a, b) = (a.clone(), b.clone());
                pool.spawn(move || {
                    let mut done = 0;
                    for _ in 0..4 {
                        let outcome = match fiber % 2 {
                            0 => try_together((&a, &b), |(a, b)| both(a, b)),
                            _ => try_together((&b, &a), |(b, a)| both(a, b)),
                        };
                        match outcome {
                            Ok(()) => done += 1,
                            Err(Error::Poisoned { panic, .. } | Error::Panicked { panic, .. }) => {
                                assert_eq!(panic, "half done");
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                    done
                })
            })
            .collect();
        let done: i64 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
        assert!(!IS_TORN.load(Ordering::Relaxed), "somebody saw what a panic left");
        assert_eq!(done, 40);
        [&a, &b].into_iter().for_each(Trust::clear_poison);
        assert_eq!(together((&a, &b), |(a, b)| (*a, *b)), (41, 40));
        assert_eq!((value(&a), value(&b)), (41, 40));
    }
}

#[test]
fn a_value_whose_trustee_ends_while_it_is_lent_is_dropped_once() {
    static MADE: AtomicU64 = AtomicU64::new(0);
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    struct Counted(u64);
    impl Counted {
        fn latched() -> Latch<Counted> {
            MADE.fetch_add(1, Ordering::Relaxed);
            Latch::new(Counted(0))
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    for round in 0..20 {
        let (tell, told) = std::sync::mpsc::channel();
        // Before the pool, so that its values are lent to the pool's workers.
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let lender = std::thread::spawn(move || {
            tell.send([(); 3].map(|()| local_trustee().entrust(Counted::latched()))).unwrap();
            may_go_on.recv().unwrap();
            trust::sleep(Duration::from_millis(round % 4));
        });
        let lent = told.recv().unwrap();
        let pool = Threadpool::new(2);
        let own: Vec<_> = (0..4).map(|at| pool.trustees()[at % 2].entrust(Counted::latched())).collect();
        let fibers: Vec<_> = (0..24)
            .map(|fiber| {
                let (lent, own) = (lent[fiber % 3].clone(), own[fiber % 4].clone());
                pool.spawn(move || {
                    loop {
                        match try_together((&lent, &own), |(lent, own)| (lent.0 += 1, own.0 += 1)) {
                            Ok(_) => {}
                            Err(Error::Gone { .. }) => return,
                            Err(other) => panic!("{other}"),
                        }
                    }
                })
            })
            .collect();
        go_on.send(()).unwrap();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        lender.join().unwrap();
        drop((lent, own));
        drop(pool);
    }
    assert_eq!(DROPPED.load(Ordering::Relaxed), MADE.load(Ordering::Relaxed));
}

/// The oracle: each value is the list of the calls that had it. Some order of all calls explains all lists.
#[test]
fn calls_on_random_sets_happen_one_after_the_other() {
    for (workers, values, fibers) in [(2, 6, 24), (3, 5, 24), (4, 12, 16)] {
        let pool = Threadpool::new(workers);
        let all: Vec<Trust<Latch<Vec<u64>>>> =
            (0..values).map(|at| pool.trustees()[at % workers].entrust(Latch::new(Vec::new()))).collect();
        let handles: Vec<_> = (0..fibers as u64)
            .map(|fiber| {
                let all = all.clone();
                pool.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(fiber);
                    for call in 0..60 {
                        let mut set: Vec<_> = all.iter().collect();
                        let size = random.usize(1..=5);
                        while set.len() > size {
                            set.swap_remove(random.usize(..set.len()));
                        }
                        let name = fiber * 1000 + call;
                        let note =
                            move |values: Vec<&mut Vec<u64>>| values.into_iter().for_each(|list| list.push(name));
                        match (random.u32(..6), &set[..]) {
                            (0, _) => together_then(&set[..], note, |()| ()),
                            (1, [one, ..]) => one.launch(move |list| {
                                trust::yield_now();
                                list.push(name);
                            }),
                            (_, [a, b]) => together((*a, *b), move |(a, b)| (a.push(name), b.push(name)).0),
                            (_, [a, b, c]) => {
                                together([*a, *b, *c], move |all| all.into_iter().for_each(|list| list.push(name)));
                            }
                            _ => together(&set[..], note),
                        }
                    }
                    wait_all();
                })
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        let mut lists: Vec<std::collections::VecDeque<u64>> =
            all.iter().map(|one| one.apply_with(|latch, ()| latch.try_lock().unwrap().clone(), ()).into()).collect();
        let all_calls: std::collections::HashSet<u64> = lists.iter().flatten().copied().collect();
        assert_eq!(all_calls.len(), fibers * 60);
        let mut left: std::collections::HashMap<u64, usize> = std::collections::HashMap::new();
        lists.iter().flatten().for_each(|call| *left.entry(*call).or_default() += 1);
        while lists.iter().any(|list| !list.is_empty()) {
            let is_first = |call: &u64| lists.iter().filter(|list| list.front() == Some(call)).count() == left[call];
            let Some(next) = lists.iter().filter_map(|list| list.front().copied()).find(|call| is_first(call)) else {
                panic!("no order of the calls explains what the values have seen");
            };
            lists.iter_mut().filter(|list| list.front() == Some(&next)).for_each(|list| {
                list.pop_front();
            });
        }
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor there is.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn futures_of_calls_come_to_what_the_calls_do() {
    let pool = Threadpool::new(2);
    let [a, b, c] = [0, 1, 0].map(|at| pool.trustees()[at].entrust(Latch::new(1_i64 + at as i64)));
    // A thread that has no trustee, and gets none.
    let of_thread = |[a, b, c]: [Trust<Latch<i64>>; 3]| {
        assert_eq!(block_on(together_async((&a, &b), |(a, b)| (*a, *b))), (1, 2));
        let swapped = together_async([&b, &a, &c], |[b, a, c]| {
            std::mem::swap(a, b);
            *c += 10;
            *c
        });
        assert_eq!(block_on(swapped), 11);
        assert_eq!(block_on(try_together_async((&a, &c), |(a, c)| *a + *c)), Ok(13), "both at one trustee");
        let list = [a.clone(), b.clone(), c.clone()];
        assert_eq!(block_on(together_async(&list[..], |all| all.len())), 3);
        assert_eq!(block_on(together_async(&list[..0], |all| all.len())), 0);
        let twice = block_on(try_together_async((&a, &b, &a), |_| ()));
        assert!(matches!(twice, Err(Error::Twice { .. })), "{twice:?}");
        let panic = block_on(try_together_async((&a, &b), |(a, _)| {
            *a = 9;
            panic!("half done")
        }));
        let panic: Result<(), Error> = panic;
        assert!(matches!(&panic, Err(Error::Panicked { panic, .. }) if panic == "half done"), "{panic:?}");
        for one in [&a, &b] {
            let poisoned = block_on(try_together_async((one, &c), |_| ()));
            assert!(matches!(poisoned, Err(Error::Poisoned { .. })), "{poisoned:?}");
            one.clear_poison();
        }
        let again =
            catch_unwind(AssertUnwindSafe(|| block_on(together_async([&c], |_| std::panic::panic_any(17_u32)))));
        let again: Result<(), _> = again;
        assert_eq!(again.unwrap_err().downcast_ref::<u32>(), Some(&17));
        c.clear_poison();
        // In the order of its futures, of which this is the next.
        for one in [&a, &b, &c] {
            block_on(together_async([one], |_| ()));
        }
    };
    let all = [a.clone(), b.clone(), c.clone()];
    std::thread::spawn(move || of_thread(all)).join().unwrap();
    assert_eq!([value(&a), value(&b), value(&c)], [9, 1, 11]);
    // On a worker, and on one of the trustees.
    let own = local_trustee().entrust(Latch::new(5_i64));
    let sum = together_async((&own, &a), |(own, a)| *own + *a);
    let fiber = pool.spawn_on(0, move || {
        let (one, own) = (a, local_trustee().entrust(Latch::new(2_i64)));
        let call = together_async((&own, &one, &b), |(own, a, b)| *own * (*a + *b));
        let mut call = Box::pin(call);
        // In a fiber the loop polls the future instead of parking.
        loop {
            if let Poll::Ready(value) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return value;
            }
            trust::yield_now();
        }
    });
    assert_eq!(fiber.join().unwrap(), 20);
    let mut sum = Box::pin(sum);
    until(|| match sum.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(sum) => sum == 14,
        Poll::Pending => false,
    });
}

#[test]
fn futures_may_be_dropped_and_keep_the_properties_while_they_are_under_way() {
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    static RAN: AtomicU64 = AtomicU64::new(0);
    struct Counted(u64);
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(self.0, Ordering::Relaxed);
        }
    }
    const ROUNDS: u64 = 300;
    let pool = Threadpool::new(2);
    let count = |(a, b): (&mut Counted, &mut Counted)| {
        RAN.fetch_add(a.0 + b.0, Ordering::Relaxed);
    };
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let trustees = pool.trustees().to_vec();
            std::thread::spawn(move || {
                for round in 0..ROUNDS {
                    let [a, b] = [0, 1].map(|at| trustees[at].entrust(Latch::new(Counted(1))));
                    let call = together_async((&a, &b), count);
                    drop((a, b));
                    if round % 2 == 0 {
                        block_on(call);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    until(|| RAN.load(Ordering::Relaxed) == 4 * ROUNDS);
    drop(pool);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 4 * ROUNDS);
}

/// Beyond the window a call is kept by its future, with the trusts that it needs.
#[test]
fn futures_beyond_the_window_wait_for_room() {
    const CALLS: usize = 3000;
    static IS_IN: AtomicBool = AtomicBool::new(false);
    static IS_OPEN: AtomicBool = AtomicBool::new(false);
    let pool = Threadpool::new(2);
    let mut trustees = pool.trustees().to_vec();
    trustees.sort_by_key(|trustee| trustee.id());
    let [a, b] = [0, 1].map(|at| trustees[at].entrust(Latch::new(0_i64)));
    let held = trustees[1].entrust(());
    let holds = std::thread::spawn(move || {
        held.apply(|()| {
            IS_IN.store(true, Ordering::Relaxed);
            while !IS_OPEN.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
    });
    while !IS_IN.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    let calls = std::thread::spawn(move || {
        let calls: Vec<_> = (0..CALLS).map(|_| together_async((&a, &b), |(a, b)| (*a += 1, *b += 1).0)).collect();
        // Every third is dropped: one that was not sent does not run.
        let kept: Vec<_> =
            calls.into_iter().enumerate().filter(|(place, _)| place % 3 != 0).map(|(_, call)| call).collect();
        IS_OPEN.store(true, Ordering::Relaxed);
        let kept = kept.into_iter().map(block_on).count();
        (kept, block_on(together_async([&a], |[a]| *a)), block_on(together_async([&b], |[b]| *b)))
    });
    let (kept, a, b) = calls.join().unwrap();
    holds.join().unwrap();
    assert!(kept as i64 <= a && a < CALLS as i64 && a == b, "{kept} {a} {b}");
}

/// A trustee that has lent a value and sent the call on ends before the next one comes to it.
#[test]
#[ignore = "takes twelve seconds: `cargo dev stress`"]
fn stress_a_call_comes_back_after_a_trustee_on_its_way_has_ended() {
    static IS_BUSY: AtomicBool = AtomicBool::new(false);
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    struct Counted(i64);
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (tell, told) = std::sync::mpsc::channel();
    let ends = std::thread::spawn(move || {
        tell.send(local_trustee().entrust(Latch::new(Counted(1)))).unwrap();
        trust::sleep(Duration::from_millis(300));
    });
    let a = told.recv().unwrap();
    let pool = Threadpool::new(1);
    let (b, busy) = (pool.entrust(Latch::new(2_i64)), pool.entrust(()));
    assert!(a.trustee().id() < b.trustee().id(), "the call goes from the one that ends to the other");
    let slow = std::thread::spawn(move || {
        busy.apply(|()| {
            IS_BUSY.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(12));
        });
    });
    while !IS_BUSY.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    let calls: Vec<_> = (0..4)
        .map(|call| {
            let (a, b) = (a.clone(), b.clone());
            std::thread::spawn(move || {
                try_together((&a, &b), move |(a, b)| {
                    (a.0, *b) = (a.0 + 1, *b + 1);
                    assert!(call != 3, "the others have been, or are refused");
                    *b
                })
            })
        })
        .collect();
    ends.join().unwrap();
    let outcomes: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
    slow.join().unwrap();
    let is_told = |outcome: &Result<i64, Error>| {
        matches!(outcome, Ok(3..=6) | Err(Error::Panicked { .. } | Error::Poisoned { .. } | Error::Gone { .. }))
    };
    assert!(outcomes.iter().all(is_told), "{outcomes:?}");
    assert!(outcomes.iter().any(|outcome| matches!(outcome, Err(Error::Panicked { .. }))), "{outcomes:?}");
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
    b.clear_poison();
    assert!((3..=6).contains(&value(&b)));
}

#[test]
fn a_future_of_values_of_ones_own_is_there_at_once() {
    let own = local_trustee().entrust(Latch::new(1));
    // No trustee is served here while the executor sleeps.
    assert_eq!(block_on(together_async([&own], |[own]| *own + 1)), 2);
    assert_eq!(block_on(together_async(&[own.clone()][..0], |all| all.len())), 0);
}
