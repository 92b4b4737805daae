//! Locks of elements, among all places.

use std::sync::Arc;

use gossamer_array::Array;

use crate::suite::ground::{Gate, JoinOutcome, effort, panic_of, places, spots, text, until};

/// Makes for each spot an array with an element that is owned there.
fn elements() -> Vec<(Array<u64>, usize)> {
    let array = Array::new(10_000, 0u64).unwrap();
    let of = |place| array.owned(place).flatten().nth(3).expect("each place owns some");
    spots().into_iter().map(|place| (array.clone(), of(place))).collect()
}

/// Waits until a writer waits for this lock, which is held by readers.
fn until_a_writer_waits(array: &Array<u64>, i: usize) {
    until(|| array.try_read_lock(i).is_none());
}

/// A writer has the lock alone: by its reads and writes, nothing is lost, and readers see all or nothing of them.
pub fn array_locks_exclude() {
    let array = Array::new(10_000, 0u64).unwrap();
    let (each, fibers) = (effort(50), 3);
    let places = places();
    let fibers: Vec<_> = places
        .iter()
        .flat_map(|place| (0..fibers).map(move |number| (*place, number)))
        .map(|(place, number)| {
            let array = array.clone();
            gossamer::spawn_on(place, move || {
                for round in 0..each {
                    if (round + number) % 4 == 0 {
                        let lock = array.read_lock(5000);
                        let before = lock.get();
                        trust::yield_now();
                        assert_eq!((before, before), (array.get(0), array.get(9_999)));
                    }
                    let lock = array.write_lock(5000);
                    let value = lock.get() + 1;
                    array.set(0, value);
                    trust::yield_now();
                    array.set(9_999, value);
                    lock.set(value);
                }
                each
            })
        })
        .collect();
    let sum: u64 = fibers.into_iter().map(|fiber| fiber.join().or_its_panic()).sum();
    assert_eq!((array.get(5000), sum), (sum, each * 3 * places.len() as u64));
}

/// A waiting writer comes before later readers, which then have the lock together.
pub fn array_locks_are_fair() {
    for (array, i) in elements() {
        let first = array.read_lock(i);
        let own = array.clone();
        let writer = gossamer::spawn_on(spots()[1], move || {
            let lock = own.write_lock(i);
            assert_eq!(lock.get(), 0);
            trust::yield_now();
            lock.set(1);
        });
        until_a_writer_waits(&array, i);
        let gate = Gate::at(gossamer::here());
        let readers = spots().map(|place| {
            let (own, gate) = (array.clone(), gate.clone());
            gossamer::spawn_on(place, move || {
                let lock = own.read_lock(i);
                gate.pass();
                lock.get()
            })
        });
        assert_eq!(first.get(), 0);
        drop(first);
        gate.gather(3);
        assert!(array.try_write_lock(i).is_none() && array.try_read_lock(i).is_some());
        gate.open();
        readers.into_iter().for_each(|reader| assert_eq!(reader.join().or_its_panic(), 1));
        writer.join().or_its_panic();
        until(|| array.try_write_lock(i).is_some());
    }
}

/// `try_` takes only free locks.
pub fn array_locks_are_tried() {
    for (array, i) in elements() {
        let others = || {
            let own = array.clone();
            let tries = move || {
                let reads = own.try_read_lock(i).is_some();
                (reads, own.try_write_lock(i).is_some())
            };
            spots().map(|place| gossamer::spawn_on(place, tries.clone()).join().or_its_panic())
        };
        let reads = array.try_read_lock(i).expect("free");
        assert_eq!(others(), [(true, false); 3]);
        drop(reads);
        // After others have given theirs back.
        let writes = array.write_lock(i);
        assert_eq!(others(), [(false, false); 3]);
        drop(writes);
        until(|| others() == [(true, true); 3]);
    }
}

/// A fiber that is aborted while it waits for a lock, or when it has just been given it, or has it, leaves it free.
pub fn array_locks_of_aborted_fibers_are_free() {
    for (array, i) in elements() {
        for place in [gossamer::here(), spots()[1]] {
            let start = |kind: fn(&Array<u64>, usize, &Gate)| {
                let (own, gate) = (array.clone(), Gate::at(gossamer::here()));
                let at_gate = gate.clone();
                (trust::spawn_on(&place.trustee(), move || kind(&own, i, &at_gate)), gate)
            };
            let writes = |own: &Array<u64>, i, gate: &Gate| {
                let _lock = own.write_lock(i);
                gate.pass();
            };
            // While it waits: readers pass again.
            let lock = array.read_lock(i);
            let (fiber, _) = start(writes);
            until_a_writer_waits(&array, i);
            fiber.abort();
            assert!(fiber.join().unwrap_err().is::<trust::Aborted>());
            until(|| array.try_read_lock(i).is_some());
            drop(lock);
            // While it has the lock.
            let (fiber, gate) = start(writes);
            gate.gather(1);
            assert!(array.try_read_lock(i).is_none());
            fiber.abort();
            assert!(fiber.join().unwrap_err().is::<trust::Aborted>());
            drop(array.write_lock(i));
            // When it is given the lock, more or less.
            for round in 0..effort(50) {
                let lock = array.read_lock(i);
                let (fiber, _) = start(|own, i, _| drop((own.write_lock(i), trust::yield_now())));
                until_a_writer_waits(&array, i);
                drop(lock);
                (0..round % 5).for_each(|_| trust::yield_now());
                fiber.abort();
                let _ = fiber.join();
                drop(array.write_lock(i));
            }
        }
    }
}

/// Messages where nothing may wait, and beyond the end.
pub fn array_locks_say_what_is_wrong() {
    let array = Array::new(100, 0u64).unwrap();
    let local = trust::local_trustee().entrust(());
    for call in 0..4 {
        let own = array.clone();
        let refused = local
            .call()
            .apply(move |()| match call {
                0 => drop(own.read_lock(1)),
                1 => drop(own.write_lock(1)),
                2 => drop(own.try_read_lock(1)),
                _ => drop(own.try_write_lock(1)),
            })
            .wait();
        local.clear_poison();
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("_lock` of an array waits") && why.contains("`launch` the closure"), "{why}");
    }
    for why in [panic_of(|| drop(array.write_lock(100))), panic_of(|| drop(array.try_read_lock(100)))] {
        assert!(why.contains("index 100 is out of range of an array of 100"), "{why}");
    }
    assert!(array.try_write_lock(99).is_some() && array.try_write_lock(1).is_some());
}

/// Threads that are no places have a fiber of a worker hold their locks.
pub fn array_locks_of_other_threads() {
    for (array, i) in elements() {
        let own = Arc::new(array.clone());
        let thread = std::thread::spawn(move || {
            let lock = own.write_lock(i);
            lock.set(5);
            assert!(own.try_read_lock(i).is_none());
            lock.set(lock.get() + 1);
            drop(lock);
            let lock = own.read_lock(i);
            assert!(own.try_write_lock(i).is_none() && own.try_read_lock(i).is_some());
            lock.get()
        });
        until(|| thread.is_finished());
        let outcome = thread.join();
        assert_eq!(outcome.unwrap_or_else(|panic| panic!("{}", text(&*panic))), 6);
        assert_eq!(array.write_lock(i).get(), 6);
    }
}
