//! Memory that the library holds on to: threads that come and go, many fibers at once, endless `apply_then`, endless
//! counts. One test: it measures the process. `cargo dev stress` does all of it: 10,000 threads, 100,000 fibers.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Drops, descriptors, effort, join_and_serve, loud, mappings, resident_bytes, serve_until, stand_until};
use trust::{Shared, Threadpool, Trust, local_trustee};

const MIB: usize = 1 << 20;

#[test]
fn stress_memory_is_bounded() {
    let _watch = watchdog!(3600);
    let parts: [(&str, fn()); 7] = [
        ("a_loop_of_apply_then_runs_in_bounded_memory", a_loop_of_apply_then_runs_in_bounded_memory),
        ("threads_in_a_row_leak_nothing", threads_in_a_row_leak_nothing),
        ("properties_in_a_loop_leak_nothing", properties_in_a_loop_leak_nothing),
        ("counts_under_way_take_bounded_memory", counts_under_way_take_bounded_memory),
        ("responses_beyond_their_slot_leak_nothing", responses_beyond_their_slot_leak_nothing),
        ("fibers_in_a_loop_leak_nothing", fibers_in_a_loop_leak_nothing),
        ("ten_kib_are_enough_for_a_fiber_that_waits", ten_kib_are_enough_for_a_fiber_that_waits),
    ];
    for (name, part) in parts {
        let start = Instant::now();
        part();
        loud(&format!("{name}: {:.1} s", start.elapsed().as_secs_f64()));
    }
}

/// `TRUST_APPLY_THEN=1000000000` for the whole billion.
fn a_loop_of_apply_then_runs_in_bounded_memory() {
    let _watch = watchdog!(if std::env::var_os("TRUST_APPLY_THEN").is_some() { 3600 } else { 120 });
    let requests: u64 = match std::env::var("TRUST_APPLY_THEN") {
        Ok(text) => text.parse().expect("TRUST_APPLY_THEN is a number of requests"),
        Err(_) => effort(1_000_000, 20_000_000),
    };
    let pool = Threadpool::builder().workers(2).pin(false).build();
    let property = pool.trustees()[1].entrust(0u64);
    let loops = |requests: u64| {
        let property = property.clone();
        pool.spawn_on(0, move || {
            let answered = Rc::new(Cell::new(0u64));
            for _ in 0..requests {
                let answered = Rc::clone(&answered);
                property.apply_then(|v| *v += 1, move |()| answered.set(answered.get() + 1));
            }
            property.apply(|_| ());
            answered.get()
        })
    };
    assert_eq!(loops(100_000).join().unwrap(), 100_000);
    let before = resident_bytes();
    let fiber = loops(requests);
    let mut most = 0;
    while !fiber.is_finished() {
        most = most.max(resident_bytes());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(fiber.join().unwrap(), requests);
    assert_eq!(property.apply(|v| *v), requests + 100_000);
    assert!(most <= before + 8 * MIB, "{requests} requests: from {before} to {most} bytes");
}

fn threads_in_a_row_leak_nothing() {
    let _watch = watchdog!();
    let threads = effort(1_500, 10_000);
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let property = pool.entrust(0u64);
    let here = local_trustee().entrust(0u64);
    let drops = Drops::default();
    let one = |number: usize| {
        let (property, mine) = (property.clone(), drops.value(number));
        let here = number.is_multiple_of(100).then(|| here.clone());
        let asks_here = here.is_some();
        let thread = thread::spawn(move || {
            let own = local_trustee().entrust(mine);
            property.apply(|v| *v += 1);
            // Never answered before the thread ends: its end waits for that.
            property.apply_then(|v| *v += 1, |()| ());
            if let Some(here) = here {
                here.apply_then(|v| *v += 1, |()| ());
            }
            trust::spawn(trust::yield_now).join().unwrap();
            if number.is_multiple_of(2) { Some(own) } else { None }
        });
        drop(if asks_here { join_and_serve(thread) } else { thread.join().unwrap() });
    };
    (0..500).for_each(one);
    let before = (resident_bytes(), mappings(), descriptors());
    (500..threads).for_each(one);
    assert_eq!(here.apply(|v| *v), threads as u64 / 100);
    let after = (resident_bytes(), mappings(), descriptors());
    assert_eq!(property.apply(|v| *v), 2 * threads as u64);
    assert_eq!(drops.count(), threads);
    assert!(after.0 <= before.0 + 4 * MIB, "resident bytes: {before:?} to {after:?}");
    assert!(after.1 <= before.1 + 16, "mappings: {before:?} to {after:?}");
    assert!(after.2 <= before.2 + 4, "descriptors: {before:?} to {after:?}");
    // Ids are used again.
    let index = thread::spawn(|| local_trustee().id().index()).join().unwrap();
    assert!(index < 64, "index {index}");
}

fn properties_in_a_loop_leak_nothing() {
    let _watch = watchdog!();
    let all = effort(20_000, 100_000);
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let drops = Drops::default();
    let rounds = |rounds: usize| {
        for round in 0..rounds {
            let property = pool.entrust(drops.value([0u8; 512]));
            let clone = property.clone();
            property.apply_then(|v| v.value[0] += 1, |()| ());
            drop(property);
            if round % 64 == 0 {
                clone.apply(|_| ());
            }
        }
    };
    rounds(all / 10);
    serve_until(|| drops.count() == all / 10);
    let before = resident_bytes();
    rounds(all);
    serve_until(|| drops.count() == all / 10 + all);
    // The list of the threads on which they were dropped is the test's own.
    let own = (all + all / 10) * 16 * 2;
    let after = resident_bytes();
    assert!(after <= before + own + 8 * MIB, "from {before} to {after} bytes");
}

fn responses_beyond_their_slot_leak_nothing() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let property = pool.entrust([7u8; 250]);
    let overflowed = || trust::stats(pool.trustees()[0]).expect("it is there").responses_overflowed;
    let rounds = |rounds: usize| {
        for _ in 0..rounds {
            for _ in 0..100 {
                property.apply_then(|v| *v, |bytes| assert_eq!(bytes, [7; 250]));
            }
            property.apply(|_| ());
        }
    };
    rounds(100);
    let (batches, before) = (overflowed(), resident_bytes());
    rounds(2000);
    let (batches, after) = (overflowed() - batches, resident_bytes());
    assert!(batches >= 1000, "{batches} batches had more responses than a slot takes");
    assert!(after <= before + 4 * MIB, "from {before} to {after} bytes");
}

/// Clones and drops of several trusts in turn, unseen by a trustee that is held up: from a thread's own code, from a
/// fiber, from a closure.
fn counts_under_way_take_bounded_memory() {
    let _watch = watchdog!();
    let all = effort(40_000, 200_000);
    let pool = Threadpool::builder().workers(3).pin(false).build();
    let trusts: Vec<_> = (0..100).map(|number| pool.trustees()[number % 2].entrust(number)).collect();
    let clone_and_drop = |trusts: &[Trust<usize>], rounds: usize| {
        for trust in trusts.iter().cycle().take(rounds) {
            drop(trust.clone());
        }
    };
    type Work<'a> = &'a dyn Fn(&[Trust<usize>], usize);
    let from: [(&str, Work<'_>); 3] = [
        ("the thread's own code", &clone_and_drop),
        ("a fiber", &|trusts, rounds| {
            let trusts = trusts.to_vec();
            pool.spawn_on(2, move || clone_and_drop(&trusts, rounds)).join().unwrap();
        }),
        ("a closure", &|trusts, rounds| {
            local_trustee().entrust(trusts.to_vec()).apply(move |trusts| clone_and_drop(trusts, rounds));
        }),
    ];
    for several in [2, 4, 100] {
        for (name, work) in from {
            let trusts = &trusts[..several];
            trusts.iter().for_each(|trust| trust.apply(|_| ()));
            let go: [_; 2] = std::array::from_fn(|place| {
                let go = Shared::new(AtomicBool::new(false));
                let wait = go.clone();
                trusts[place].apply_then(move |_| stand_until(|| wait.load(Ordering::SeqCst)), |()| ());
                go
            });
            work(trusts, all / 20);
            let before = resident_bytes();
            work(trusts, all);
            let after = resident_bytes();
            go.iter().for_each(|go| go.store(true, Ordering::SeqCst));
            assert!(after <= before + 4 * MIB, "{several} trusts, from {name}: from {before} to {after} bytes");
        }
    }
    // Closures between them wait for room, so they are bounded too.
    let before = resident_bytes();
    for trust in trusts.iter().cycle().take(all / 4) {
        let clone = trust.clone();
        clone.apply_then(|number| *number += 1, |_| ());
    }
    let after = resident_bytes();
    assert!(after <= before + 4 * MIB, "with closures between: from {before} to {after} bytes");
    assert_eq!(trusts.iter().map(|trust| trust.apply(|number| *number)).sum::<usize>(), 99 * 50 + all / 4);
}

fn fibers_in_a_loop_leak_nothing() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(2).pin(false).build();
    let rounds = |rounds: usize| {
        for _ in 0..rounds {
            let fibers: Vec<_> = (0..100).map(|n| pool.spawn(move || n)).collect();
            assert_eq!(fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<usize>(), 4950);
        }
    };
    rounds(50);
    let before = (resident_bytes(), mappings());
    rounds(500);
    let after = (resident_bytes(), mappings());
    assert!(after.0 <= before.0 + 8 * MIB && after.1 <= before.1 + 16, "{before:?} to {after:?}");
}

/// 100,000 of them fit in a gibibyte.
fn ten_kib_are_enough_for_a_fiber_that_waits() {
    let _watch = watchdog!();
    let count = effort(10_000, 100_000);
    if !guards_need_no_mappings() && max_mappings() < 2 * count + 1000 {
        loud(
            "SKIPPED: ten_kib_are_enough_for_a_fiber_that_waits: this kernel (before 6.13) needs two mappings for \
             each stack, and vm.max_map_count is too small for that",
        );
        return;
    }
    let before = resident_bytes();
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let property = pool.entrust(0u64);
    let here = local_trustee().entrust(0usize);
    let fibers: Vec<_> = (0..count)
        .map(|number| {
            let (property, here) = (property.clone(), here.clone());
            pool.spawn(move || {
                property.apply(|v| *v += 1);
                // All wait here for this thread, which serves when all have been started.
                here.apply(|v| *v += 1);
                trust::yield_now();
                number
            })
        })
        .collect();
    // All fibers exist when the worker has run each as far as its first wait.
    pool.spawn(|| ()).join().unwrap();
    let used = resident_bytes() - before;
    loud(&format!("{count} fibers: {} MiB resident", used / MIB));
    assert!(used < count * 10 * 1024, "{used} bytes");
    for (number, fiber) in fibers.into_iter().enumerate() {
        assert_eq!(fiber.join().unwrap(), number);
    }
    assert_eq!(property.apply(|v| *v), count as u64);
    assert_eq!(here.apply(|v| *v), count);
    drop(pool);
}

fn max_mappings() -> usize {
    std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap()
}

/// Linux 6.13 has guards that are marks in the page table.
fn guards_need_no_mappings() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.trim().parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 13)
}
