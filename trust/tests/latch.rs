//! `Latch` and `launch`: closures that wait while they hold the value, in turn.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::{Drops, panic_of, serve_until};
use trust::{Latch, Shared, Threadpool, Trust, TrusteeReference, local_trustee};

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

/// This thread and a worker.
fn places(pool: &Threadpool) -> [TrusteeReference; 2] {
    [local_trustee(), pool.trustees()[0]]
}

#[test]
fn a_latch_is_held_across_waits_and_handed_on_in_turn() {
    let _watch = watchdog!();
    let (latch, order) = (Rc::new(Latch::new(0)), Rc::new(RefCell::new(Vec::new())));
    let fibers: Vec<_> = (0..50)
        .map(|number| {
            let (latch, order) = (Rc::clone(&latch), Rc::clone(&order));
            trust::spawn(move || {
                let mut value = latch.lock();
                let before = *value;
                for _ in 0..number % 4 {
                    trust::yield_now();
                }
                assert_eq!(*value, before, "someone else had the value");
                *value += 1;
                order.borrow_mut().push(number);
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(*latch.lock(), 50);
    assert!(order.borrow().iter().copied().eq(0..50), "first come, first served");
}

#[test]
fn nobody_gets_ahead_of_those_who_wait() {
    let _watch = watchdog!();
    let latch = Rc::new(Latch::new(Vec::new()));
    let waiter = |name: &'static str| {
        let latch = Rc::clone(&latch);
        trust::spawn(move || latch.lock().push(name))
    };
    let guard = latch.lock();
    assert!(latch.try_lock().is_none());
    let first = waiter("first");
    trust::yield_now();
    drop(guard);
    // Free, but promised.
    assert!(latch.try_lock().is_none());
    let second = waiter("second");
    latch.lock().push("this thread");
    second.join().unwrap();
    first.join().unwrap();
    assert_eq!(*latch.lock(), ["first", "this thread", "second"]);
    let Ok(latch) = Rc::try_unwrap(latch) else { panic!("no other owner is left") };
    assert_eq!(latch.into_inner().unwrap().len(), 3);
}

#[test]
fn launched_closures_have_the_value_one_at_a_time_in_the_order_they_came() {
    let _watch = watchdog!();
    let pool = pool(2);
    for place in places(&pool) {
        let latch = place.entrust(Latch::new(Vec::<u32>::new()));
        let holders = Shared::new(AtomicUsize::new(0));
        let done = Rc::new(Cell::new(0));
        for number in 0..200 {
            let (holders, done) = (holders.clone(), Rc::clone(&done));
            latch.launch_then(
                move |log| {
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two have the value");
                    for _ in 0..number % 3 {
                        trust::yield_now();
                    }
                    log.push(number);
                    assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1);
                    log.len()
                },
                move |len| {
                    assert_eq!(len, number as usize + 1);
                    done.set(done.get() + 1);
                },
            );
        }
        serve_until(|| done.get() == 200);
        assert!(latch.launch(|log| log.iter().copied().eq(0..200)));
    }
}

#[test]
fn a_launched_closure_may_delegate_block_and_sleep() {
    let _watch = watchdog!();
    let pool = pool(2);
    let counter = pool.trustees()[1].entrust(0u64);
    for place in places(&pool) {
        let latch = place.entrust(Latch::new(0u64));
        let (counter, own) = (counter.clone(), place.entrust(5u64));
        let before = counter.apply(|c| *c);
        let got = latch.launch(move |value| {
            trust::sleep(Duration::from_millis(1));
            let child = trust::spawn(|| 3u64);
            *value = counter.apply(|c| {
                *c += 1;
                *c
            }) + own.apply(|v| *v)
                + child.join().unwrap();
            *value
        });
        assert_eq!(got, before + 1 + 5 + 3);
    }
}

#[test]
fn launches_nest_across_trustees_and_come_back() {
    let _watch = watchdog!();
    /// A launches on B, which launches on C, ... which applies to a property of A's own trustee.
    fn descend(latches: Vec<Trust<Latch<u64>>>, home: Trust<u64>, depth: usize) -> u64 {
        if depth == latches.len() {
            return home.apply(|v| {
                *v += 1;
                *v
            });
        }
        let latch = latches[depth].clone();
        let held = Shared::new((latches, home));
        latch.launch(move |v| {
            *v += 1;
            let below = descend(held.0.clone(), held.1.clone(), depth + 1);
            *v += 1;
            below
        })
    }
    let pool = pool(3);
    let latches: Vec<_> = (0..9).map(|_| pool.entrust(Latch::new(0))).collect();
    let home = local_trustee().entrust(0u64);
    for round in 1..=20 {
        assert_eq!(descend(latches.clone(), home.clone(), 0), round);
    }
    assert!(latches.iter().all(|latch| latch.launch(|v| *v) == 40));
}

#[test]
fn launch_is_legal_without_waiting_inside_closures() {
    let _watch = watchdog!();
    let pool = pool(2);
    for place in places(&pool) {
        let latch = place.entrust(Latch::new(1u64));
        let done = Shared::new(AtomicUsize::new(0));
        let relay = place.entrust(());
        let (inner, told) = (latch.clone(), done.clone());
        relay.apply(move |()| {
            inner.launch_then(
                |v| {
                    trust::yield_now();
                    *v += 1;
                    *v
                },
                move |v| {
                    told.fetch_add(v as usize, Ordering::SeqCst);
                },
            );
        });
        serve_until(|| done.load(Ordering::SeqCst) == 2);
    }
}

#[test]
fn launch_with_carries_what_holds_pointers() {
    let _watch = watchdog!();
    let pool = pool(2);
    for place in places(&pool) {
        let latch = place.entrust(Latch::new(String::new()));
        let got = latch
            .call()
            .with(("ab".to_owned(), 3))
            .launch(|text, (word, times): (String, usize)| {
                trust::yield_now();
                text.push_str(&word.repeat(times));
                text.clone()
            })
            .wait()
            .unwrap();
        assert_eq!(got, "ababab");
        let long =
            latch.call().with("x".repeat(1 << 20)).launch(|text, more: String| text.len() + more.len()).wait().unwrap();
        assert_eq!(long, 6 + (1 << 20));
    }
}

#[test]
fn a_plain_apply_may_replace_the_latch_while_a_fiber_has_the_value() {
    let _watch = watchdog!();
    let pool = pool(2);
    let drops = Drops::default();
    for place in places(&pool) {
        let before = drops.count();
        let latch = place.entrust(Latch::new(drops.value(1)));
        let (holds, go) = (Shared::new(AtomicBool::new(false)), Shared::new(AtomicBool::new(false)));
        let finished = Rc::new(Cell::new(0));
        let (holding, may_go, note) = (holds.clone(), go.clone(), Rc::clone(&finished));
        latch.launch_then(
            move |value| {
                holding.store(true, Ordering::SeqCst);
                while !may_go.load(Ordering::SeqCst) {
                    trust::yield_now();
                }
                value.check();
                value.value += 10;
                value.value
            },
            move |v| {
                assert_eq!(v, 11);
                note.set(note.get() + 1);
            },
        );
        serve_until(|| holds.load(Ordering::SeqCst));
        // One that waits behind the holder, and then the replacement.
        let note = Rc::clone(&finished);
        latch.launch_then(
            |value| value.value,
            move |v| {
                assert_eq!(v, 2, "it has the new value");
                note.set(note.get() + 1);
            },
        );
        serve_until(|| latch.apply(|latch| latch.try_lock().is_none()));
        let new = Shared::new(std::sync::Mutex::new(Some(drops.value(2))));
        latch.apply(move |latch| drop(std::mem::replace(latch, Latch::new(new.lock().unwrap().take().unwrap()))));
        go.store(true, Ordering::SeqCst);
        serve_until(|| finished.get() == 2);
        assert_eq!(drops.count(), before + 1, "the old value went when its fiber was done with it");
        assert_eq!(latch.launch(|value| value.value), 2);
        drop(latch);
        serve_until(|| drops.count() == before + 2);
    }
}

#[test]
fn the_property_lives_as_long_as_a_launched_closure_has_its_value() {
    let _watch = watchdog!();
    let pool = pool(2);
    let drops = Drops::default();
    for place in places(&pool) {
        let before = drops.count();
        let latch = place.entrust(Latch::new(drops.value(1)));
        let done = Rc::new(Cell::new(false));
        let note = Rc::clone(&done);
        latch.launch_then(
            |value| {
                for _ in 0..10 {
                    trust::yield_now();
                    value.check();
                }
            },
            move |()| note.set(true),
        );
        drop(latch);
        serve_until(|| done.get());
        serve_until(|| drops.count() == before + 1);
    }
}

#[test]
fn a_latch_never_waits_inside_a_closure() {
    let _watch = watchdog!();
    let pool = pool(1);
    let latch = pool.entrust(Latch::new(0));
    // Free: no wait is needed.
    latch.apply(|latch| *latch.lock() += 1);
    let (holds, go) = (Shared::new(AtomicBool::new(false)), Shared::new(AtomicBool::new(false)));
    let (holding, may_go) = (holds.clone(), go.clone());
    let done = Rc::new(Cell::new(false));
    let note = Rc::clone(&done);
    latch.launch_then(
        move |_| {
            holding.store(true, Ordering::SeqCst);
            while !may_go.load(Ordering::SeqCst) {
                trust::yield_now();
            }
        },
        move |()| note.set(true),
    );
    serve_until(|| holds.load(Ordering::SeqCst));
    let text = panic_of(|| latch.apply(|latch| *latch.lock() += 1));
    assert!(text.contains("Latch::lock") && text.contains("waits"), "{text}");
    go.store(true, Ordering::SeqCst);
    serve_until(|| done.get());
    latch.clear_poison();
    assert_eq!(latch.launch(|v| *v), 1);
}

#[test]
fn plain_requests_are_served_while_launched_fibers_wait() {
    let _watch = watchdog!();
    let pool = pool(1);
    let latch = pool.entrust(Latch::new(0u64));
    let other = pool.entrust(0u64);
    let go = Shared::new(AtomicBool::new(false));
    let done = Rc::new(Cell::new(0));
    for _ in 0..20 {
        let (go, done) = (go.clone(), Rc::clone(&done));
        latch.launch_then(
            move |v| {
                while !go.load(Ordering::SeqCst) {
                    trust::yield_now();
                }
                *v += 1;
            },
            move |()| done.set(done.get() + 1),
        );
    }
    for number in 0..100 {
        assert_eq!(other.apply(|v| std::mem::replace(v, *v + 1)), number);
    }
    go.store(true, Ordering::SeqCst);
    serve_until(|| done.get() == 20);
    assert_eq!(latch.launch(|v| *v), 20);
}
