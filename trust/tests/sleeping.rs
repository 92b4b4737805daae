//! Idle workers sleep and are woken. One test: it measures the process.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{cpu_time, serve_until};
use fastrand::Rng;
use trust::{Shared, Threadpool};

#[test]
fn timed_idle_workers_sleep_and_are_woken() {
    let _watch = watchdog!(120);
    an_idle_process_uses_next_to_no_cpu();
    the_spin_is_bounded_and_configurable();
    a_fiber_that_sleeps_often_leaves_the_core_alone();
    trap_08_no_wake_up_is_lost_between_two();
    trap_08_no_wake_up_is_lost_among_many();
    trap_08_a_timer_wakes_a_sleeping_worker();
}

fn an_idle_process_uses_next_to_no_cpu() {
    const IDLE: Duration = Duration::from_millis(500);
    let pool = Threadpool::builder().workers(4).pin(false).build();
    let property = pool.entrust(0u64);
    let sleeper = pool.spawn(|| trust::sleep(IDLE));
    property.apply(|v| *v += 1);
    // A worker that has just worked may poll for a moment; then the machine is quiet.
    serve_until(|| {
        let before = cpu_time();
        thread::sleep(Duration::from_millis(20));
        cpu_time() - before < Duration::from_millis(5)
    });
    let before = cpu_time();
    // Not for synchronisation: this is the time that is measured.
    thread::sleep(IDLE);
    let used = cpu_time() - before;
    assert!(used < IDLE / 20, "an idle process used {used:?} of {IDLE:?}");
    sleeper.join().unwrap();
    let before = cpu_time();
    // A plain thread that waits sleeps as well.
    pool.spawn(|| trust::sleep(IDLE)).join().unwrap();
    let used = cpu_time() - before;
    assert!(used < IDLE / 20, "a waiting process used {used:?} of {IDLE:?}");
    assert_eq!(property.apply(|v| *v), 1, "and wakes");
    let stats = trust::stats(property.trustee()).unwrap();
    assert!(stats.parks >= 1, "{stats:?}");
}

fn the_spin_is_bounded_and_configurable() {
    // One worker, so that the machine is not crowded: it polls for its spin, then sleeps.
    let spin = Duration::from_millis(200);
    let polls = Threadpool::builder().workers(1).pin(false).spin(spin).build();
    let worker = polls.trustees()[0];
    polls.spawn(|| ()).join().unwrap();
    let sleeps = || {
        let (start, before) = (Instant::now(), trust::stats(worker).unwrap().parks);
        while start.elapsed() < spin / 4 {
            polls.entrust(()).apply(|()| ());
        }
        trust::stats(worker).unwrap().parks - before
    };
    // Where others leave the two threads one core, the worker gives it away, and sleeps.
    let spins = (0..10).any(|_| sleeps() == 0);
    assert!(spins || !limits::are_alone(), "it slept while requests came faster than it was told to spin");
    let before = cpu_time();
    thread::sleep(spin * 2);
    let used = cpu_time() - before;
    assert!(used < spin + spin / 2, "it spun for {used:?}, and was told {spin:?}");
}

/// A worker knows when its timers are due, so it does not poll for them.
fn a_fiber_that_sleeps_often_leaves_the_core_alone() {
    const SLEEPS: u32 = 1_000;
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let (start, before) = (Instant::now(), cpu_time());
    let naps = || (0..SLEEPS).for_each(|_| trust::sleep(Duration::from_micros(400)));
    pool.spawn(naps).join().unwrap();
    let (used, elapsed) = (cpu_time() - before, start.elapsed());
    assert!(used < elapsed / 2, "it used {used:?} of {elapsed:?}");
}

/// Both sides find nothing to do after each request, so each request wakes a sleeper.
fn trap_08_no_wake_up_is_lost_between_two() {
    const REQUESTS: u64 = if cfg!(debug_assertions) { 20_000 } else { 50_000 };
    let pool = Threadpool::builder().workers(1).pin(false).spin(Duration::ZERO).build();
    let property = pool.entrust(0u64);
    for number in 0..REQUESTS {
        assert_eq!(property.apply(|v| std::mem::replace(v, *v + 1)), number);
    }
}

fn trap_08_no_wake_up_is_lost_among_many() {
    const ROUNDS: usize = if cfg!(debug_assertions) { 1_500 } else { 5_000 };
    let pool = Threadpool::builder().workers(3).pin(false).spin(Duration::ZERO).build();
    let properties: Vec<_> = (0..3).map(|worker| pool.trustees()[worker].entrust(0u64)).collect();
    let asked = Shared::new(AtomicUsize::new(0));
    let fibers: Vec<_> = (0..3)
        .map(|worker| {
            let (properties, asked) = (properties.clone(), asked.clone());
            pool.spawn_on(worker, move || {
                let mut random = Rng::with_seed(worker as u64);
                for _ in 0..ROUNDS {
                    let target = random.usize(..3);
                    match random.usize(..4) {
                        0 => properties[target].apply_then(|v| *v += 1, |()| ()),
                        1 => trust::spawn_on(&properties[target].trustee(), || ()).join().unwrap(),
                        2 => trust::sleep(Duration::from_micros(random.u64(..50))),
                        _ => properties[target].apply(|v| *v += 1),
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(asked.load(Ordering::Relaxed), 3 * ROUNDS);
}

fn trap_08_a_timer_wakes_a_sleeping_worker() {
    let pool = Threadpool::builder().workers(1).pin(false).spin(Duration::ZERO).build();
    for ms in [1u64, 3, 7] {
        let start = Instant::now();
        pool.spawn(move || trust::sleep(Duration::from_millis(ms))).join().unwrap();
        assert!(start.elapsed() >= Duration::from_millis(ms));
    }
}
