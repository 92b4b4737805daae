//! `Threadpool`: settings, dedicated workers, more workers than cores, and an end with nothing lost.

mod common;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Drops, panic_of};
use fastrand::Rng;
use trust::{Latch, Threadpool, Trust, local_trustee};

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

#[test]
fn settings_out_of_range_are_refused_with_the_reason() {
    let _watch = watchdog!();
    let refusal = |builder: trust::Builder| builder.try_build().unwrap_err().to_string();
    assert!(refusal(Threadpool::builder().workers(0)).contains("at least one worker"));
    assert!(refusal(Threadpool::builder().workers(1).dedicated(2)).contains("dedicated"));
    for bytes in [0, 1, 1 << 40, usize::MAX] {
        assert!(refusal(Threadpool::builder().workers(1).stack_bytes(bytes)).contains("stack_bytes"));
    }
    for workers in [(1 << 16) + 1, 1 << 40, usize::MAX / 16, usize::MAX] {
        let builder = Threadpool::builder().workers(workers);
        assert!(refusal(builder.clone()).contains("at most 65536"));
        assert!(refusal(builder.dedicated(usize::MAX)).contains("at "));
    }
    for name in ["\0", "a\0b", "a\0"] {
        assert!(refusal(Threadpool::builder().workers(1).name(name)).contains("NUL"));
    }
    assert!(panic_of(|| Threadpool::builder().workers(1).name("a\0b").build()).contains("NUL"));
    assert!(panic_of(|| Threadpool::new(usize::MAX)).contains("at most 65536"));
    assert!(panic_of(|| Threadpool::new(0)).contains("at least one worker"));
    let one = pool(1);
    assert!(panic_of(|| one.spawn_on(1, || ())).contains("no worker 1"));
}

#[test]
fn a_pool_as_large_as_the_machine_pins_its_workers() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().name("pinned").build();
    let workers = pool.trustees().len();
    assert!(workers >= 1);
    let mut cores = HashSet::new();
    for worker in 0..workers {
        let allowed = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        let core = pool.spawn_on(worker, allowed).join().unwrap();
        assert!(core.parse::<usize>().is_ok(), "worker {worker} may run on {core}");
        assert!(cores.insert(core));
        let name = pool.spawn_on(worker, || thread::current().name().unwrap().to_owned()).join().unwrap();
        assert_eq!(name, format!("pinned-{worker}"));
    }
}

#[test]
fn entrust_and_spawn_go_round() {
    let _watch = watchdog!();
    let pool = pool(3);
    let trusts: Vec<Trust<u8>> = (0..6).map(|_| pool.entrust(0)).collect();
    let places: Vec<_> = trusts.iter().map(Trust::trustee).collect();
    assert_eq!(places[..3], *pool.trustees());
    assert_eq!(places[..3], places[3..]);
    let fibers: HashSet<_> = (0..3).map(|_| pool.spawn(local_trustee).join().unwrap()).collect();
    assert_eq!(fibers, pool.trustees().iter().copied().collect());
}

#[test]
fn dedicated_workers_only_serve() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(4).dedicated(2).pin(false).build();
    let (clients, servers) = pool.trustees().split_at(2);
    let counter = |_| pool.entrust(0u64);
    let counters: Vec<Trust<u64>> = (0..4).map(counter).collect();
    assert!(counters.iter().all(|counter| servers.contains(&counter.trustee())));
    let fibers: Vec<_> = (0..20)
        .map(|_| {
            let counters = counters.clone();
            pool.spawn(move || {
                for _ in 0..50 {
                    counters.iter().for_each(|counter| counter.apply(|c| *c += 1));
                }
                local_trustee()
            })
        })
        .collect();
    assert!(fibers.into_iter().all(|fiber| clients.contains(&fiber.join().unwrap())));
    assert!(counters.iter().all(|counter| counter.apply(|c| *c) == 1_000));
    for &server in servers {
        let stats = trust::stats(server).unwrap();
        assert_eq!(stats.fibers_spawned, 0);
        assert!(stats.requests_served >= 2_000);
    }
    // All of them dedicated: fibers are taken all the same.
    let all = Threadpool::builder().workers(1).dedicated(1).pin(false).build();
    assert_eq!(all.spawn(|| 5).join().unwrap(), 5);
}

#[test]
fn dropping_the_pool_loses_nothing_that_was_queued() {
    let _watch = watchdog!();
    const FIBERS: usize = 400;
    for round in 0..5 {
        let pool = pool(3);
        let (done, drops) = (Arc::new(AtomicUsize::new(0)), Drops::default());
        let sum = pool.entrust(drops.value(0u64));
        let latch = pool.entrust(Latch::new(0u64));
        let chain: Vec<Trust<u64>> = (0..3).map(|_| pool.entrust(0)).collect();
        for number in 0..FIBERS {
            let (sum, latch, chain, done) = (sum.clone(), latch.clone(), chain.clone(), Arc::clone(&done));
            drop(pool.spawn(move || {
                for step in 0..10 {
                    let (next, noted) = (chain[(number + step) % 3].clone(), Arc::clone(&done));
                    sum.apply_then(
                        |v| v.value += 1,
                        move |()| {
                            // Goes on from callback to callback after its fiber has ended.
                            next.apply_then(
                                |v| *v += 1,
                                move |()| {
                                    noted.fetch_add(1, Ordering::SeqCst);
                                },
                            );
                        },
                    );
                }
                let noted = Arc::clone(&done);
                latch.launch_then(
                    |v| {
                        trust::yield_now();
                        *v += 1;
                    },
                    move |()| {
                        noted.fetch_add(1, Ordering::SeqCst);
                    },
                );
                if number % 8 == 0 {
                    trust::sleep(Duration::from_millis(2));
                }
                let _ = trust::spawn(move || done.fetch_add(1, Ordering::SeqCst));
            }));
        }
        drop((sum, latch, chain));
        drop(pool);
        assert_eq!(done.load(Ordering::SeqCst), FIBERS * 12, "round {round}");
        assert_eq!(drops.count(), 1);
    }
}

#[test]
fn dropping_the_pool_serves_this_thread_s_trustee() {
    let _watch = watchdog!();
    let here = local_trustee().entrust(0u64);
    let pool = pool(2);
    for _ in 0..100 {
        let here = here.clone();
        drop(pool.spawn(move || here.apply(|v| *v += 1)));
    }
    drop(pool);
    assert_eq!(here.apply(|v| *v), 100);
}

#[test]
fn pools_come_and_go() {
    let _watch = watchdog!();
    let before = common::descriptors();
    let drops = Drops::default();
    for round in 0..200 {
        let pool = pool(1 + round % 3);
        let property = pool.entrust(drops.value(round));
        assert_eq!(pool.spawn(move || property.apply(|v| v.value)).join().unwrap(), round);
    }
    assert_eq!(drops.count(), 200);
    assert!(common::descriptors() <= before + 8);
}

#[test]
fn sixteen_workers_on_few_cores_with_cross_traffic() {
    let _watch = watchdog!();
    const WORKERS: usize = 16;
    const REQUESTS: u64 = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    let pool = pool(WORKERS);
    let counters: Vec<Trust<u64>> = (0..WORKERS).map(|worker| pool.trustees()[worker].entrust(0)).collect();
    let fibers: Vec<_> = (0..WORKERS * 4)
        .map(|number| {
            let counters = counters.clone();
            pool.spawn_on(number % WORKERS, move || {
                let mut random = Rng::with_seed(number as u64);
                for _ in 0..REQUESTS {
                    let counter = &counters[random.usize(..WORKERS)];
                    if random.usize(..10) == 0 {
                        counter.apply(|c| *c += 1);
                    } else {
                        counter.apply_then(|c| *c += 1, |()| ());
                    }
                }
                counters.iter().for_each(|counter| counter.apply(|_| ()));
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    let sum: u64 = counters.iter().map(|counter| counter.apply(|c| *c)).sum();
    assert_eq!(sum, WORKERS as u64 * 4 * REQUESTS);
}

/// A worker that polls and has nothing to do can end as well as one that sleeps.
#[test]
fn a_pool_ends_while_its_worker_polls() {
    let _watch = watchdog!();
    const SPIN: Duration = Duration::from_secs(3600);
    let pool = Threadpool::builder().workers(1).pin(false).spin(SPIN).build();
    assert_eq!(pool.entrust(1).apply(|v| *v), 1);
    let start = Instant::now();
    drop(pool);
    assert!(start.elapsed() < SPIN, "it took {:?}", start.elapsed());
}
