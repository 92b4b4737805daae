//! Fibers that wait for each other in a cycle: the last comer gets an error that names them all, and the others go on.
//! Waits that are long, or in an order without a cycle, get none.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{panic_of, text};
use fastrand::Rng;
use trust::{Error, JoinHandle, Latch, Shared, Threadpool, Trust, promise, together};

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

struct Account(i64);

/// The texts of the fibers that failed.
fn failures<R>(fibers: Vec<JoinHandle<R>>) -> Vec<String> {
    fibers.into_iter().filter_map(|fiber| fiber.join().err()).map(|panic| text(&*panic)).collect()
}

fn assert_tells(said: &str) {
    for part in ["deadlock", "Account", "the first", "launched"] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
}

/// One fiber has the first value and wants the second, another the other way round; each goes on when both have their
/// first value.
fn cross(pool: &Threadpool, a: &Trust<Latch<Account>>, b: &Trust<Latch<Account>>) -> Vec<JoinHandle<()>> {
    let inside = Shared::new(AtomicUsize::new(0));
    let start = |first: &Trust<Latch<Account>>, second: &Trust<Latch<Account>>| {
        let (first, second, inside) = (first.clone(), second.clone(), inside.clone());
        pool.spawn(move || {
            first.launch(move |first| {
                inside.fetch_add(1, Ordering::SeqCst);
                while inside.load(Ordering::SeqCst) < 2 {
                    trust::yield_now();
                }
                first.0 -= 1;
                second.launch(|second| second.0 += 1);
            });
        })
    };
    vec![start(a, b), start(b, a)]
}

#[test]
fn crossing_launches_are_told_and_one_of_them_succeeds() {
    let _watch = watchdog!();
    for workers in [1, 2] {
        let pool = pool(workers);
        let (a, b) = (pool.entrust(Latch::new(Account(0))), pool.entrust(Latch::new(Account(0))));
        let failed = failures(cross(&pool, &a, &b));
        // One gets the error. The other has launched on the value left poisoned, or came before.
        assert!(!failed.is_empty(), "nobody was told");
        assert_tells(&failed.iter().find(|text| text.starts_with("deadlock")).unwrap_or(&failed[0]).clone());
    }
}

#[test]
fn a_launch_on_a_latch_inside_a_launch_on_it_is_told() {
    let _watch = watchdog!();
    let pool = pool(1);
    let account = pool.entrust(Latch::new(Account(0)));
    let again = account.clone();
    let said = panic_of(|| account.launch(move |_| again.launch(|account| account.0)));
    assert_tells(&said);
    // Its panic has left the closure that had the value.
    assert!(panic_of(|| account.launch(|account| account.0)).contains("poisoned"));
    account.clear_poison();
    assert_eq!(account.launch(|account| account.0), 0);
}

/// The program that a reader of the documentation writes first. Each transfer that was not made gives an error, all
/// others are made, the sum stays.
#[test]
fn sixteen_accounts_and_eight_fibers_end_whatever_they_launch() {
    let _watch = watchdog!();
    let pool = pool(2);
    let accounts: Vec<_> = (0..16).map(|_| pool.entrust(Latch::new(Account(1000)))).collect();
    let start = |seed: u64| {
        let accounts = accounts.clone();
        pool.spawn(move || {
            let mut random = Rng::with_seed(seed);
            let mut told = 0;
            for _ in 0..200 {
                let (from, to) = (random.usize(..16), random.usize(..16));
                let (from, to) = (&accounts[from], accounts[to].clone());
                let transfer = std::panic::AssertUnwindSafe(|| {
                    from.launch(move |from| {
                        trust::yield_now();
                        to.launch(|to| to.0 += 1);
                        from.0 -= 1;
                    });
                });
                if let Err(panic) = std::panic::catch_unwind(transfer) {
                    let text = text(&*panic);
                    if !text.contains("poisoned") {
                        assert_tells(&text);
                        told += 1;
                    }
                    accounts.iter().for_each(Trust::clear_poison);
                    if told >= 3 {
                        break; // each error costs a fraction of a second
                    }
                }
            }
            told
        })
    };
    let fibers: Vec<_> = (0..8).map(start).collect();
    let told: usize = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
    // Only a transfer to the same account is a cycle by itself.
    assert!(told > 0, "there were circles, and nobody was told");
    accounts.iter().for_each(Trust::clear_poison);
    let sum: i64 = accounts.iter().map(|account| account.launch(|account| account.0)).sum();
    assert_eq!(sum, 16_000, "a transfer was made by half");
}

/// Fibers that join each other: each is given the handle of the next one.
#[test]
fn fibers_that_join_each_other_in_a_circle_are_told() {
    let _watch = watchdog!();
    for (workers, count) in [(1, 1), (1, 2), (2, 2), (2, 5)] {
        let pool = pool(workers);
        type Slot = Arc<Mutex<Option<JoinHandle<Result<(), String>>>>>;
        let slots: Vec<Slot> = (0..count).map(|_| Slot::default()).collect();
        let (tell, told) = std::sync::mpsc::channel();
        let go = Arc::new(AtomicUsize::new(0));
        for at in 0..count {
            let (next, go, tell) = (Arc::clone(&slots[(at + 1) % count]), Arc::clone(&go), tell.clone());
            let fiber = pool.spawn(move || {
                while go.load(Ordering::SeqCst) == 0 {
                    trust::yield_now();
                }
                let next = next.lock().unwrap().take().expect("its handle");
                let outcome = next.join();
                let outcome = outcome.unwrap_or_else(|panic| match panic.downcast_ref::<Error>() {
                    Some(error @ Error::Deadlock { .. }) => Err(error.to_string()),
                    _ => panic!("another panic: {}", text(&*panic)),
                });
                tell.send(outcome.clone()).unwrap();
                outcome
            });
            *slots[at].lock().unwrap() = Some(fiber);
        }
        go.store(1, Ordering::SeqCst);
        drop(tell);
        let outcomes: Vec<_> = told.iter().collect();
        // One gets the error, and the others see it in the results of their fibers.
        assert_eq!(outcomes.len(), count);
        for outcome in &outcomes {
            let said = outcome.as_ref().unwrap_err();
            assert!(said.contains("deadlock") && said.contains("join"), "{said}");
            assert_eq!(said.matches("waits for").count(), count, "{said}");
        }
    }
}

/// A launch inside a launch, and a call of `together` that has the one value and waits for the other.
#[test]
fn a_circle_by_way_of_together_is_told() {
    let _watch = watchdog!();
    let pool = pool(2);
    let trustees = pool.trustees().to_vec();
    // It takes them in the order of trustees.
    let low = trustees[0].entrust(Latch::new(Account(0)));
    let high = trustees[1].entrust(Latch::new(Account(0)));
    let (low_too, high_too) = (low.clone(), high.clone());
    let has_high = Shared::new(AtomicUsize::new(0));
    let seen = has_high.clone();
    let launcher = pool.spawn(move || {
        high_too.launch(move |high| {
            has_high.store(1, Ordering::SeqCst);
            // Until the other call has `low`: it waits, so the next dump finds it sent, and a worker that has been
            // asked twice since has served it.
            for _ in 0..2 {
                while !trust::dump().to_string().contains("the result of a `together`") {
                    trust::yield_now();
                }
            }
            (0..2).for_each(|_| low_too.trustee().entrust(()).apply(|()| ()));
            low_too.launch(|low| low.0 += 1);
            high.0 += 1;
        });
    });
    while seen.load(Ordering::SeqCst) == 0 {
        trust::yield_now();
    }
    let both = panic_of(|| together((&low, &high), |(low, high)| (low.0, high.0)));
    // `high` was left poisoned by the fiber that got the error.
    assert!(both.contains("poisoned"), "{both}");
    let said = failures(vec![launcher]);
    assert_tells(&said[0]);
    assert!(said[0].contains("together"), "{said:?}");
}

/// A closure that has given its value up for a while, and waits for it again.
#[test]
fn a_circle_by_way_of_released_is_told_and_leaves_no_value_behind() {
    let _watch = watchdog!();
    let pool = pool(2);
    let (outer, inner) = (pool.entrust(Latch::new(Account(0))), pool.entrust(Latch::new(Account(0))));
    let (outer_too, inner_too) = (outer.clone(), inner.clone());
    let is_out = Shared::new(AtomicUsize::new(0));
    let (tells, waits) = (is_out.clone(), is_out.clone());
    // Has `outer`, and waits for a closure on `inner`, which gives that up meanwhile.
    let first = pool.spawn(move || {
        outer.launch(move |_| {
            inner
                .call()
                .launch_held(move |inner| {
                    let again = panic_of_or_none(|| {
                        inner.released(|| {
                            tells.store(1, Ordering::SeqCst);
                            while tells.load(Ordering::SeqCst) < 2 {
                                trust::yield_now();
                            }
                            // The other call is to stand in its line before this one does. If it does not, it gets
                            // the error.
                            trust::sleep(Duration::from_millis(300));
                        });
                    });
                    match again {
                        None => inner.0 += 1,
                        Some(said) if said.contains("poisoned") => {}
                        Some(said) => {
                            assert_tells(&said);
                            assert!(panic_of(|| inner.0 += 1).contains("no value"));
                            assert!(panic_of(|| inner.released(|| ())).contains("no value"));
                        }
                    }
                })
                .wait()
                .unwrap();
        });
    });
    // Has `inner`, and waits for `outer`.
    let second = pool.spawn(move || {
        while waits.load(Ordering::SeqCst) == 0 {
            trust::yield_now();
        }
        inner_too.launch(move |_| {
            waits.store(2, Ordering::SeqCst);
            outer_too.launch(|outer| outer.0 += 1);
        });
    });
    let failed = failures(vec![first, second]);
    // Either the second got the error, or the first did and reported it without failing.
    assert!(failed.iter().all(|said| said.contains("deadlock") || said.contains("poisoned")), "{failed:?}");
}

fn panic_of_or_none(f: impl FnOnce()) -> Option<String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).err().map(|panic| text(&*panic))
}

/// Long waits, waits in chains, and waits in one order for all fibers are left alone.
#[test]
fn waits_without_a_circle_get_no_error() {
    let _watch = watchdog!(120);
    let pool = pool(2);
    let accounts: Vec<_> = (0..8).map(|_| pool.entrust(Latch::new(Account(0)))).collect();
    let end = Instant::now() + Duration::from_millis(common::effort(2500, 15_000));
    let (promised, late) = promise::<u32>();
    // A chain of joins that ends at a fiber that waits for a promise, for longer than the detection of cycles takes.
    let mut chain = pool.spawn(move || {
        let (promised, kept) = promise::<u32>();
        let keeper = trust::spawn(move || {
            while Instant::now() < end {
                trust::sleep(Duration::from_millis(10));
            }
            promised.keep(7);
        });
        let value = kept.wait().unwrap();
        keeper.join().unwrap();
        value
    });
    for _ in 0..20 {
        chain = pool.spawn(move || chain.join().unwrap());
    }
    // Nested launches in the order of the accounts, with waits inside; on other accounts, calls of `together` in any
    // order, and launches on one of them.
    let others: Vec<_> = (0..3).map(|_| pool.entrust(Latch::new(Account(0)))).collect();
    let transfers: Vec<_> = (0..24)
        .map(|seed| {
            let (accounts, others) = (accounts.clone(), others.clone());
            pool.spawn(move || {
                let mut random = Rng::with_seed(seed);
                let mut made = 0;
                while Instant::now() < end {
                    let mut named = [random.usize(..8), random.usize(..8), random.usize(..8)];
                    named.sort_unstable();
                    let [a, b, c] = named.map(|at| accounts[at].clone());
                    if named[0] == named[1] || named[1] == named[2] {
                        continue;
                    }
                    if random.usize(..3) == 0 {
                        let [one, two] = [random.usize(..3), random.usize(..2)];
                        let two = (one + 1 + two) % 3;
                        together((&others[one], &others[two]), |(one, two)| {
                            one.0 += 1;
                            two.0 -= 1;
                        });
                        others[one].launch(|one| {
                            trust::yield_now();
                            one.0 += 1;
                            trust::yield_now();
                            one.0 -= 1;
                        });
                    } else {
                        let pause = random.usize(..20) == 0;
                        a.launch(move |a| {
                            a.0 -= 1;
                            b.launch(move |b| {
                                if pause {
                                    trust::sleep(Duration::from_millis(30));
                                }
                                c.call()
                                    .launch_held(|c| {
                                        c.released(trust::yield_now);
                                        c.0 += 1;
                                    })
                                    .wait()
                                    .unwrap();
                                b.0 += 0;
                            });
                        });
                    }
                    made += 1;
                }
                made
            })
        })
        .collect();
    let made: u64 = transfers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
    assert!(made > 0);
    assert_eq!(chain.join().unwrap(), 7);
    promised.keep(1);
    assert_eq!(late.wait(), Ok(1));
    let sum: i64 = accounts.iter().map(|account| account.launch(|account| account.0)).sum();
    assert_eq!(sum, 0);
}

/// The calling thread waits in a way that no worker sees: the waits that it holds up are no cycle.
#[test]
fn a_thread_that_comes_late_is_not_taken_for_a_circle() {
    let _watch = watchdog!();
    let pool = pool(2);
    let (here, there) = (trust::local_trustee().entrust(Latch::new(Account(0))), pool.entrust(Latch::new(Account(0))));
    let fibers: Vec<_> = (0..4)
        .map(|_| {
            let (here, there) = (here.clone(), there.clone());
            pool.spawn(move || {
                there.launch(move |there| {
                    here.launch(|here| here.0 += 1);
                    there.0 += 1;
                })
            })
        })
        .collect();
    // It does not serve meanwhile.
    std::thread::sleep(Duration::from_millis(1200));
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!((here.launch(|here| here.0), there.launch(|there| there.0)), (4, 4));
}

/// The watcher thread ends with the last trustee, however soon after a request for it, and is started again.
#[test]
fn circles_are_found_after_all_trustees_have_ended_in_between() {
    const SELF: &str = "circles_are_found_after_all_trustees_have_ended_in_between";
    // In a process where no other thread has a trustee.
    if !common::is_child() {
        let output = common::run_child(SELF);
        return assert!(output.status.success(), "{}", common::stderr(&output));
    }
    let _watch = watchdog!(20);
    for _ in 0..20 {
        let waits_in_line = || {
            let pool = pool(1);
            let latch = pool.entrust(Latch::new(0));
            for _ in 0..3 {
                latch.launch_then(|_| trust::yield_now(), |()| ());
            }
            latch.launch(|value| *value += 1);
        };
        std::thread::spawn(waits_in_line).join().unwrap();
    }
    let crosses = || {
        let pool = pool(2);
        let [a, b] = [0, 1].map(|at| pool.trustees()[at].entrust(Latch::new(Account(0))));
        failures(cross(&pool, &a, &b))
    };
    assert!(!std::thread::spawn(crosses).join().unwrap().is_empty(), "nobody was told");
}
