//! Trustees of threads, the local shortcut, nested calls, shared values, counters.

mod common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use common::{Drops, panic_of, serve_until};
use trust::{Error, Latch, Shared, Threadpool, Trust, TrusteeId, TrusteeReference, local_trustee};

#[test]
fn every_kind_of_thread_has_a_trustee_of_its_own() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(2).pin(false).build();
    let mut seen: HashSet<TrusteeReference> = pool.trustees().iter().copied().collect();
    assert_eq!(seen.len(), 2);
    assert!(seen.insert(local_trustee()));
    assert_eq!(local_trustee(), local_trustee());
    assert!(local_trustee().is_local());
    let (send, receive) = mpsc::channel();
    let (hold, held) = mpsc::channel::<()>();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let send = send.clone();
            thread::spawn(move || send.send((local_trustee(), local_trustee().entrust(1).apply(|v| *v))).unwrap())
        })
        .collect();
    let living = thread::spawn(move || {
        send.send((local_trustee(), 1)).unwrap();
        let _ = held.recv();
    });
    for (trustee, value) in receive.iter().take(5) {
        assert_eq!(value, 1);
        assert!(seen.insert(trustee), "{trustee:?} was handed out twice");
        assert!(!trustee.is_local());
    }
    drop(hold);
    living.join().unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // Unregistered at exit.
    assert!(seen.into_iter().filter(|&trustee| trust::stats(trustee).is_none()).count() == 5);
}

#[test]
fn a_trust_says_who_its_trustee_is() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(3).pin(false).build();
    for &trustee in pool.trustees() {
        let trust = trustee.entrust(1);
        assert_eq!(trust.trustee(), trustee);
        assert_eq!(trust.clone().apply(|_| local_trustee().id().to_bits()), trustee.id().to_bits());
        assert_eq!(TrusteeReference::from_id(TrusteeId::from_bits(trustee.id().to_bits())), trustee);
    }
}

/// Calls locally until the flag is set, up to a limit.
fn call_until(count: &Trust<u64>, is_set: &Shared<AtomicUsize>) -> bool {
    (0..1_000_000).any(|_| {
        count.apply(|count| *count += 1);
        is_set.load(Ordering::Relaxed) > 0
    })
}

#[test]
fn fibers_that_are_ready_get_their_turn_beside_local_calls() {
    let _watch = watchdog!();
    let count = local_trustee().entrust(0);
    // Beside the thread's own code, which never waits.
    let ran = Shared::new(AtomicUsize::new(0));
    let fiber = trust::spawn({
        let ran = ran.clone();
        move || ran.store(1, Ordering::Relaxed)
    });
    assert!(call_until(&count, &ran), "the new fiber never ran");
    fiber.join().unwrap();
    // And beside a fiber that never waits.
    let ran = Shared::new(AtomicUsize::new(0));
    let [busy, other] = [true, false].map(|is_busy| {
        let (count, ran) = (count.clone(), ran.clone());
        trust::spawn(move || {
            if is_busy {
                return call_until(&count, &ran);
            }
            ran.store(1, Ordering::Relaxed);
            true
        })
    });
    assert!(busy.join().unwrap(), "the second fiber never ran");
    assert!(other.join().unwrap());
}

/// Deferred calls count as calls: a fiber each of whose calls defers some more gives way too, whatever the number of
/// calls was at first.
#[test]
fn fibers_get_their_turn_beside_local_calls_that_defer_more() {
    let _watch = watchdog!();
    for (before, deferred) in (0..4).flat_map(|before| [1, 3, 255].map(|deferred| (before, deferred))) {
        let pool = Threadpool::builder().workers(1).pin(false).build();
        let has_run = pool.spawn_on(0, move || {
            let count = local_trustee().entrust(0);
            (0..before).for_each(|_| count.apply(|count| *count += 1));
            let ran = Shared::new(AtomicUsize::new(0));
            let sets = ran.clone();
            drop(trust::spawn(move || sets.store(1, Ordering::Relaxed)));
            (0..10_000).any(|_| {
                let again = count.clone();
                count.apply(move |_| (0..deferred).for_each(|_| again.apply_then(|count| *count += 1, |()| ())));
                ran.load(Ordering::Relaxed) > 0
            })
        });
        assert!(has_run.join().unwrap(), "never after {before} calls and {deferred} deferred by each");
    }
}

#[test]
fn a_local_call_runs_at_once_and_sends_nothing() {
    let _watch = watchdog!();
    thread::spawn(|| {
        let property = local_trustee().entrust(Vec::<u32>::new());
        let before = trust::stats(local_trustee()).unwrap();
        let count = Shared::new(AtomicUsize::new(0));
        for number in 0..100 {
            property.apply(move |v| v.push(number));
            let counted = count.clone();
            property.apply_then(
                |v| v.len(),
                move |len| {
                    assert_eq!(len, number as usize + 1);
                    counted.fetch_add(1, Ordering::SeqCst);
                },
            );
            assert_eq!(count.load(Ordering::SeqCst), number as usize + 1, "the callback has run by now");
        }
        let text = property.apply_with(|v, text: String| format!("{text} {}", v.len()), "of".to_owned());
        assert_eq!(text, "of 100");
        let after = trust::stats(local_trustee()).unwrap();
        assert_eq!((after.requests_sent, after.requests_served), (before.requests_sent, before.requests_served));
        assert_eq!((after.batches_sent, after.fiber_switches), (before.batches_sent, before.fiber_switches));
    })
    .join()
    .unwrap();
}

/// Every call that waits, made where nothing may wait: must panic, and name the remedy.
fn waiting_calls(local: Trust<i32>, remote: Trust<i32>, latch: Trust<Latch<i32>>) -> Vec<String> {
    let fiber = trust::spawn(|| ());
    let pinned = local_trustee();
    let calls: Vec<Box<dyn FnOnce()>> = vec![
        Box::new({
            let t = local.clone();
            move || t.apply(|_| ())
        }),
        Box::new({
            let t = remote.clone();
            move || t.apply(|_| ())
        }),
        Box::new({
            let t = local.clone();
            move || drop(t.call().apply(|_| ()).wait())
        }),
        Box::new({
            let t = remote.clone();
            move || drop(t.call().apply(|_| ()).wait())
        }),
        Box::new({
            let t = local;
            move || t.apply_with(|_, ()| (), ())
        }),
        Box::new({
            let t = remote;
            move || t.apply_with(|_, ()| (), ())
        }),
        Box::new({
            let t = latch.clone();
            move || t.launch(|_| ())
        }),
        Box::new({
            let t = latch;
            move || t.call().with(()).launch(|_, ()| ()).wait().unwrap()
        }),
        Box::new(move || fiber.join().unwrap()),
        Box::new(trust::yield_now),
        Box::new(trust::wait_all),
        Box::new(|| trust::sleep(Duration::ZERO)),
    ];
    assert!(pinned.is_local());
    calls.into_iter().map(panic_of).collect()
}

fn expect_refusals(refusals: &[String], place: &str) {
    assert_eq!(refusals.len(), 12);
    for text in refusals {
        assert!(text.contains("waits") && text.contains(place) && text.contains("apply_then"), "{text}");
    }
}

#[test]
fn trap_01_a_waiting_call_inside_a_closure_panics_also_where_the_shortcut_could_serve_it() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let (remote, latch) = (pool.entrust(0), pool.entrust(Latch::new(0)));
    let local = local_trustee().entrust(0);
    let (same, other) = (local.clone(), remote.clone());
    let of = latch.clone();
    local.apply(move |_| expect_refusals(&waiting_calls(same, other, of), "a delegated closure"));
    // At a pool's worker, where the closure came by a slot.
    let (first, other) = (remote.clone(), local.clone());
    remote.apply(move |_| expect_refusals(&waiting_calls(first, other, latch), "a delegated closure"));
    assert_eq!((local.apply(|v| *v), remote.apply(|v| *v)), (0, 0));
}

#[test]
fn trap_01_a_waiting_call_inside_a_callback_panics() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let (remote, latch) = (pool.entrust(0), pool.entrust(Latch::new(0)));
    let local = local_trustee().entrust(0);
    let done = Shared::new(AtomicUsize::new(0));
    for through in [&local, &remote] {
        let (a, b, c, counted) = (local.clone(), remote.clone(), latch.clone(), done.clone());
        through.apply_then(
            |_| (),
            move |()| {
                expect_refusals(&waiting_calls(a, b, c), "callback");
                counted.fetch_add(1, Ordering::SeqCst);
            },
        );
    }
    serve_until(|| done.load(Ordering::SeqCst) == 2);
    assert_eq!((local.apply(|v| *v), remote.apply(|v| *v)), (0, 0));
}

#[test]
fn trap_01_a_nested_apply_that_nobody_catches_reaches_the_client_with_the_reason() {
    let _watch = watchdog!();
    let local = local_trustee().entrust(0);
    let same = local.clone();
    let Err(Error::Panicked { panic, .. }) = local.call().apply(move |_| same.apply(|v| *v)).wait() else {
        panic!("two borrows of one property");
    };
    assert!(panic.contains("`apply` waits"), "{panic}");
}

#[test]
fn trap_01_a_local_call_that_does_not_wait_runs_after_the_closure_has_returned() {
    let _watch = watchdog!();
    let log = local_trustee().entrust(Vec::<u32>::new());
    let inner = log.clone();
    log.apply(move |log| {
        log.push(1);
        for number in 3..6 {
            inner.apply_then(move |log| log.push(number), |()| ());
        }
        let deeper = inner.clone();
        inner.apply_then(
            move |log| {
                deeper.apply_then(|log| log.push(8), |()| ());
                log.push(6);
            },
            |()| (),
        );
        inner.call().with(vec![7]).apply(|log, number: Vec<u32>| log.extend(number)).then(|result| result.unwrap());
        assert_eq!(*log, [1], "the queued closures have not run");
        log.push(2);
    });
    // They have as soon as the outermost call is over, in order.
    log.apply(|log| assert_eq!(*log, [1, 2, 3, 4, 5, 6, 7, 8]));
}

#[test]
fn trap_01_at_a_worker_too_it_runs_after_the_closure_has_returned() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let log = pool.entrust(Vec::<u32>::new());
    let inner = log.clone();
    let seen = Shared::new(AtomicUsize::new(0));
    let counted = seen.clone();
    log.apply(move |log| {
        log.push(1);
        inner.apply_then(
            |log| log.push(3),
            move |()| {
                counted.fetch_add(1, Ordering::SeqCst);
            },
        );
        assert_eq!(log.len(), 1);
        log.push(2);
    });
    serve_until(|| seen.load(Ordering::SeqCst) == 1);
    log.apply(|log| assert_eq!(*log, [1, 2, 3]));
}

#[test]
fn a_shared_value_is_captured_returned_and_freed_once() {
    let _watch = watchdog!();
    let drops = Drops::default();
    let pool = Threadpool::builder().workers(2).pin(false).build();
    let words = Shared::new((vec!["to".to_owned(), "be".to_owned()], std::sync::Mutex::new(drops.value(()))));
    let property = pool.entrust(None);
    let sent = words.clone();
    let len = property.apply(move |held| {
        *held = Some(sent.clone());
        sent.0.len()
    });
    assert_eq!(len, 2);
    let back = property.apply(|held| held.take().unwrap());
    assert_eq!(back.0[1], "be");
    drop((back, words));
    serve_until(|| drops.count() == 1);
    let bytes: Shared<[u8]> = std::sync::Arc::<[u8]>::from([1, 2, 3]).into();
    let sent = bytes.clone();
    assert_eq!(pool.entrust(0usize).apply(move |_| sent.iter().map(|&b| usize::from(b)).sum::<usize>()), 6);
    assert_eq!(format!("{bytes:?}"), "[1, 2, 3]");
}

#[test]
fn the_counters_move() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(2).pin(false).build();
    let [client, trustee] = [pool.trustees()[0], pool.trustees()[1]];
    let property = trustee.entrust([0u64; 8]);
    serve_until(|| trust::stats(trustee).unwrap().requests_served >= 1);
    let before = (trust::stats(client).unwrap(), trust::stats(trustee).unwrap());
    let kept = property.clone();
    pool.spawn_on(0, move || {
        for _ in 0..50 {
            trust::yield_now();
            for _ in 0..100 {
                property.apply_then(|v| *v, |_| ());
            }
        }
        property.apply(|_| ());
    })
    .join()
    .unwrap();
    let after = (trust::stats(client).unwrap(), trust::stats(trustee).unwrap());
    let sent = after.0.requests_sent - before.0.requests_sent;
    let served = after.1.requests_served - before.1.requests_served;
    assert!(sent >= 5001 && served >= 5001, "{after:?}");
    let batches = after.0.batches_sent - before.0.batches_sent;
    assert!(batches > 0 && batches < sent, "requests travel in batches: {after:?}");
    assert!(after.1.batches_served > before.1.batches_served);
    assert!(after.0.requests_per_batch() > 1.0);
    assert!(after.1.responses_overflowed > before.1.responses_overflowed, "64-byte results exceed the slot: {after:?}");
    assert!(after.0.fiber_switches > before.0.fiber_switches);
    assert_eq!(after.0.fibers_spawned, before.0.fibers_spawned + 1);
    // A sleep is counted when it is over.
    let here = || trust::stats(local_trustee()).unwrap();
    let start = here();
    serve_until(|| {
        trust::sleep(Duration::from_millis(1));
        kept.apply(|_| ());
        let since = trust::stats(trustee).unwrap().since(&after.1);
        let woke = here().since(&start).wake_ups_sent;
        since.parks > 0 && since.parked_ns > 0 && since.polls > since.parks && woke > 0
    });
    let since = here().since(&start);
    assert!(since.wake_ups_sent <= since.batches_sent, "one wake-up for a batch at most: {since}");
}

#[test]
fn trap_10_an_id_of_no_trustee_is_refused() {
    let _watch = watchdog!();
    let drops = Drops::default();
    for bits in [u64::MAX, 0xFFFF_0000_0000, 1 << 63, local_trustee().id().to_bits() ^ 1] {
        let nobody = TrusteeReference::from_id(TrusteeId::from_bits(bits));
        assert!(!nobody.is_local());
        assert!(trust::stats(nobody).is_none());
        let trust = nobody.entrust(drops.value(()));
        // Of this machine: gone. Of another: refused, for this program spans one.
        assert!(matches!(trust.call().apply(|_| ()).wait(), Err(Error::Gone { .. } | Error::Refused { .. })));
        assert!(trust::spawn_on(&nobody, || ()).join().is_err());
    }
    assert_eq!(drops.count(), 4);
}

/// Otherwise the trust would name freed memory, for a later thread with that id or one of another machine.
#[test]
fn a_trust_of_a_value_that_nobody_takes_names_nobody() {
    let _watch = watchdog!();
    for bits in [40_000 << 32, 1 << 48] {
        let id = TrusteeId::from_bits(bits);
        let dropped = Arc::new(AtomicUsize::new(0));
        let trust = TrusteeReference::from_id(id).entrust(Arc::clone(&dropped));
        assert_eq!(Arc::strong_count(&dropped), 1, "it is dropped here");
        assert_ne!(trust.trustee().id(), id);
        assert!(matches!(trust.clone().call().apply(|_| ()).wait(), Err(Error::Gone { .. })));
    }
}
