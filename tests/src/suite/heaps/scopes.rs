//! Owners that are lent to fibers, and come back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gossamer_heap::{self as heap, Global, scope};

use super::{at, objects_at, until_objects};
use crate::suite::ground::{Gate, JoinOutcome, none_is_lost, panic_of, panics_with, places, remote, spots, text};

/// Readers at all places and a writer at one, with owners of each place; lent objects come back with their changes.
pub fn heap_scopes_lend_owners() {
    for (made, written) in spots().into_iter().flat_map(|made| spots().map(|written| (made, written))) {
        let before = objects_at(made);
        let (numbers, mut sums) = at(made, || (heap::slice(100, |i| i as u64), Global::new([0u64; 3])));
        let total = scope(|s| {
            let lent = s.lend(&numbers);
            let readers: Vec<_> = places()
                .into_iter()
                .map(|place| {
                    let numbers = lent.clone();
                    s.spawn_on(place, move || numbers.read().iter().sum::<u64>())
                })
                .collect();
            let mut sums = s.lend_mut(&mut sums);
            s.spawn_on(written, move || {
                for round in 1..=5 {
                    sums.write()[1] += round;
                }
            });
            let there = s.spawn_to(&lent, |numbers| (gossamer::here(), numbers.read()[99]));
            assert_eq!(there.join().or_its_panic(), (made, 99));
            readers.into_iter().map(|reader| reader.join().or_its_panic()).sum::<u64>()
        });
        assert_eq!((total, *sums.read()), (places().len() as u64 * 4950, [0, 15, 0]));
        sums.write()[0] = 1;
        assert_eq!(at(written, move || *sums.read()), [1, 15, 0]);
        drop(numbers);
        until_objects(made, before);
    }
}

/// A panic of the lender, or of a borrower, ends nothing early: all fibers end first, and the lent objects come back.
pub fn heap_scopes_that_panic_wait_and_take_back() {
    for place in spots() {
        let mut object = at(place, || Global::new(0u64));
        let gate = Gate::at(gossamer::here());
        let opens = gate.clone();
        gossamer::spawn(move || {
            opens.gather(1);
            opens.open();
        });
        let panic = panic_of(|| {
            scope(|s| {
                let (mut object, gate) = (s.lend_mut(&mut object), gate.clone());
                s.spawn_on(place, move || {
                    gate.pass();
                    *object.write() = 5;
                });
                panic!("amid a scope");
            })
        });
        if *object.read() == 0 {
            none_is_lost(); // the fiber waits at a gate that any loss breaks, and this panic hides its own
        }
        assert_eq!((panic.as_str(), *object.read()), ("amid a scope", 5));
        // A panic of a fiber: reported once, by its joiner, or by the scope.
        scope(|s| {
            let mut object = s.lend_mut(&mut object);
            let fiber = s.spawn_on(place, move || {
                *object.write() = 6;
                panic!("a borrower");
            });
            let ended: Result<(), _> = fiber.join();
            assert_eq!(text(&*ended.unwrap_err()), "a borrower");
        });
        assert_eq!(*object.read(), 6);
        let panic = panic_of(|| {
            scope(|s| {
                let mut object = s.lend_mut(&mut object);
                s.spawn_on(place, move || {
                    *object.write() = 7;
                    panic!("one that nobody joins");
                });
            })
        });
        assert_eq!((panic.as_str(), *object.read()), ("a fiber of a scope panicked: one that nobody joins", 7));
    }
}

/// The lender is aborted, and unwinds when its fibers have ended, not before.
pub fn heap_scopes_that_are_aborted_wait() {
    for place in spots() {
        let (gate, done) = (Gate::at(gossamer::here()), gossamer::entrust(false));
        let (pass, tell) = (gate.clone(), done.clone());
        let lender = gossamer::spawn_on(gossamer::here(), move || {
            let mut object = Global::new([1u64; 9]);
            scope(|s| {
                let mut object = s.lend_mut(&mut object);
                s.spawn_on(place, move || {
                    pass.pass();
                    object.write()[8] = 2;
                    tell.apply(|done| *done = true);
                });
            });
        });
        gate.gather(1);
        for _ in 0..3 {
            lender.abort();
            gossamer::yield_now();
        }
        if lender.is_finished() {
            none_is_lost(); // the fiber was
        }
        assert!(!lender.is_finished(), "its fiber has what it owns");
        gate.open();
        assert!(lender.join().is_err());
        if !done.apply(|done| *done) {
            none_is_lost();
        }
        assert!(done.apply(|done| *done), "it ended first");
    }
}

/// A handle that is forgotten, or leaked, takes the object along: its owner reports that, and frees nothing.
pub fn heap_scopes_tell_of_forgotten_handles() {
    for place in spots() {
        let before = objects_at(place);
        let mut object = at(place, || Global::new([7u64; 4]));
        scope(|s| {
            let object = s.lend_mut(&mut object);
            s.spawn_on(place, move || std::mem::forget(object));
        });
        let told = [
            panic_of(|| _ = object.read()),
            panic_of(|| _ = object.try_read()),
            panic_of(|| _ = object.write()),
            panic_of(|| _ = object.try_write()),
            panic_of(|| _ = object.try_write_now()),
            panic_of(|| object.move_here()),
            panic_of(|| object.prefetch()),
            panic_of(|| object.place()),
        ];
        assert!(told.iter().all(|told| told.contains("has not come back")), "{told:?}");
        let again = scope(|s| {
            let object = s.lend(&object);
            s.spawn_on(place, move || drop(object.read())).join().is_err()
        });
        assert!(again, "nor can it be read where it is lent");
        panics_with("has not come back", || object.into_inner());
        until_objects(place, before + 1);
        assert_eq!(objects_at(place), before + 1, "nobody has freed it");
        // Of no bytes, too.
        let mut nothing = Global::new(());
        scope(|s| std::mem::forget(s.lend_mut(&mut nothing)));
        panics_with("has not come back", || drop(nothing.read()));
    }
}

/// Handles are lent on, dropped on plain threads, and without having gone anywhere; their objects may be exchanged.
pub fn heap_scopes_take_back_from_anywhere() {
    for place in spots() {
        let mut object = at(place, || Global::new(0u64));
        scope(|s| drop(s.lend_mut(&mut object)));
        scope(|s| {
            let mut outer = s.lend_mut(&mut object);
            s.spawn_on(place, move || {
                *outer.write() += 1;
                scope(|s| {
                    let mut inner = s.lend_mut(&mut outer);
                    s.spawn_on(remote(), move || *inner.write() += 10);
                });
                *outer.write() += 100;
            });
        });
        assert_eq!(*object.read(), 111);
        scope(|s| {
            let lent = s.lend_mut(&mut object);
            s.spawn_on(place, move || {
                std::thread::scope(|threads| {
                    threads.spawn(move || drop(lent));
                });
            });
        });
        assert_eq!(*object.read(), 111);
        let other = at(remote(), || Global::new(5u64));
        scope(|s| {
            let mut lent = s.lend_mut(&mut object);
            s.spawn_on(place, move || drop(std::mem::replace(&mut *lent, other)));
        });
        assert_eq!(*object.read(), 5, "what it had at its end");
    }
}

/// Many at once, of one object each, from fibers at all places.
pub fn heap_scopes_lend_parts() {
    let mut parts: Vec<Global<[u64; 16]>> = (0..32).map(|i| Global::new([i; 16])).collect();
    scope(|s| {
        let lent = parts.iter_mut().map(|part| s.lend_mut(part));
        for (mut part, place) in lent.zip(places().into_iter().cycle()) {
            s.spawn_on(place, move || part.write().iter_mut().for_each(|number| *number *= 2));
        }
    });
    assert!(parts.iter().zip(0..).all(|(part, i)| *part.read() == [2 * i; 16]));
    let ended = gossamer::entrust(0u64);
    scope(|s| {
        for place in places() {
            let ended = ended.clone();
            s.spawn_on(place, move || ended.apply(|ended| *ended += 1));
        }
    });
    assert_eq!(ended.apply(|ended| *ended), places().len() as u64);
    let panic = catch_unwind(AssertUnwindSafe(|| gossamer::entrust(()).apply(|()| scope(|_| ())))).unwrap_err();
    assert!(text(&*panic).contains("nothing may wait here"), "{}", text(&*panic));
}
