//! Refusals of an array, and its state after a program's code panics in the middle of it.

use std::cell::Cell;
use std::rc::Rc;

use gossamer_array::{Add, Array, Error, Max, Operator};

use crate::suite::ground::{JoinOutcome, panic_of, panics_with, places, remote, text, until};

/// A call, in the middle of another one.
type Use = Box<dyn Fn(&Array<u64>)>;

fn element_of(array: &Array<u64>, place: gossamer::Place) -> usize {
    array.owned(place).flatten().next().expect("each place owns some")
}

/// Where nothing may wait a miss panics with the cure; a hit works.
pub fn array_misses_panic_where_nothing_may_wait() {
    let array = Array::new(10_000, 4u64).unwrap();
    let (here, there) = (element_of(&array, gossamer::here()), element_of(&array, remote()));
    let local = trust::local_trustee().entrust(());
    let own = array.clone();
    assert_eq!(local.apply(move |()| own.get(here)), 4);
    for call in 0..4 {
        let own = array.clone();
        let refused = local
            .call()
            .apply(move |()| match call {
                0 => {
                    own.get(there);
                }
                1 => own.set(there, 1),
                2 => own.apply(there, Add, 1),
                _ => own.modify(there..there + 1, |_, _| ()),
            })
            .wait();
        local.clear_poison();
        if places().len() > 1 {
            assert!(refused.unwrap_err().to_string().contains("nothing may wait here"));
        }
    }
    // A call that has not begun has changed nothing.
    let own = array.clone();
    let refused = local.call().apply(move |()| own.fill(5)).wait();
    local.clear_poison();
    assert!(refused.unwrap_err().to_string().contains("nothing may wait here"));
    let own = array.clone();
    until(move || {
        let own = own.clone();
        local.apply(move |()| own.try_get(there)) == Some(4)
    });
}

/// The traps of closures that use the array they are called by.
pub fn array_closures_find_their_chunk_in_use() {
    let array = Array::new(10_000, 4u64).unwrap();
    for i in [element_of(&array, gossamer::here()), element_of(&array, remote())] {
        let uses: [(&str, Use); 6] = [
            ("get", Box::new(move |own| assert!(own.get(i) < 99))),
            ("set", Box::new(move |own| own.set(i, 1))),
            ("apply", Box::new(move |own| own.apply(i, Add, 1))),
            ("view", Box::new(move |own| drop(own.view(i..i + 1)))),
            ("modify", Box::new(move |own| own.modify(i..i + 1, |_, _| ()))),
            ("combine", Box::new(move |own| own.combine(i..i + 1, Add, |_, _| ()))),
        ];
        for (name, call) in &uses {
            let why = panic_of(|| {
                array.modify(i..i + 1, |_, elements| {
                    elements[0] = 4;
                    call(&array)
                })
            });
            assert!(why.contains("in use by the closure"), "{name}: {why}");
            let why = panic_of(|| array.combine(i..i + 1, Max, |_, _| call(&array)));
            assert!(why.contains("in use by the closure"), "{name}: {why}");
            assert_eq!((array.get(i), array.try_get(i)), (4, Some(4)));
        }
        let own = array.clone();
        let why = panic_of(|| array.update(i, move |_| own.get(i)));
        assert!(why.contains("in use by the closure"), "{why}");
        // A postponed call is done after it.
        let own = array.clone();
        array.update(i, move |value| {
            own.update_then(i, |value| *value += 1, |()| ());
            *value += 10
        });
        until(|| array.get(i) == 15);
        array.set(i, 4);
        // Its callback finds the chunk free.
        let (own, done) = (array.clone(), Rc::new(Cell::new(false)));
        let tell = Rc::clone(&done);
        array.update_then(
            i,
            |value| *value,
            move |value| {
                own.update_then(i, move |now| *now += value, |()| ());
                tell.set(true);
            },
        );
        until(|| done.get() && array.get(i) == 8);
        array.set(i, 4);
        // A call that waits panics as well, and the chunk is free again.
        let why = panic_of(|| array.modify(i..i + 1, |_, _| trust::sleep(std::time::Duration::ZERO)));
        assert!(why.contains("nothing may wait"), "{why}");
        assert_eq!(array.get(i), 4);
    }
}

/// A panic in a closure leaves the element.
pub fn array_a_panic_in_an_update_leaves_the_element() {
    let array = Array::new(10_000, 4u64).unwrap();
    for i in [element_of(&array, gossamer::here()), element_of(&array, remote())] {
        let why = panic_of(|| {
            array.update(i, |value| {
                *value = 99;
                assert_eq!(*value, 0, "a value that is not liked");
            });
        });
        assert!(why.contains("a value that is not liked"), "{why}");
        assert_eq!(array.update(i, |value| *value), 4);
        array.update_then(i, |_| std::panic::panic_any(Bomb), |()| ());
        assert_eq!(array.update(i, |value| *value), 4);
        panics_with("some", || array.on_owners(|owned| assert!(owned.is_empty(), "some")));
    }
}

/// Its payload panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a payload that panics");
    }
}

#[derive(Clone, Copy)]
struct Picky;

impl Operator<u64> for Picky {
    const IDENTITY: u64 = 0;
    const EXACT: bool = false;
    fn combine(a: u64, b: u64) -> u64 {
        assert!(a != 13 || b == 0, "thirteen");
        a + b
    }
}

#[derive(Clone, Copy)]
struct Waits;

impl Operator<u64> for Waits {
    const IDENTITY: u64 = 0;
    const EXACT: bool = false;
    fn combine(a: u64, b: u64) -> u64 {
        trust::yield_now();
        a + b
    }
}

/// A panic of an operator while values are merged is reported to all users of the array.
pub fn array_a_panic_in_an_operator_poisons() {
    let array = Array::new(10_000, 13u64).unwrap();
    let (here, there) = (element_of(&array, gossamer::here()), element_of(&array, remote()));
    panics_with("thirteen", || array.apply(here, Picky, 1));
    panics_with("nothing may wait", || array.apply(here, Waits, 1));
    assert_eq!(array.get(here), 13, "it panicked here, before anything was written");
    if places().len() < 2 {
        return;
    }
    array.apply(there, Picky, 1);
    let why = panic_of(|| array.get(there));
    assert!(why.contains("poisoned") && why.contains("thirteen"), "{why}");
    let own = array.clone();
    until(move || {
        let own = own.clone();
        let read = gossamer::spawn_on(remote(), move || own.get(there)).join();
        read.is_err_and(|panic| text(&*panic).contains("poisoned"))
    });
}

/// Counts its drop, and panics then.
struct Falls(Rc<Cell<u32>>);

impl Drop for Falls {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
        panic!("a callback that panics when it is dropped");
    }
}

/// Callbacks that will never be called are dropped, all of them, whatever their destructors do.
pub fn array_destructors_that_panic_while_it_is_poisoned() {
    if places().len() < 2 {
        return;
    }
    let array = Array::new(10_000, 13u64).unwrap();
    let (i, there) = (element_of(&array, gossamer::here()), element_of(&array, remote()));
    let own = array.clone();
    gossamer::spawn_on(remote(), move || own.apply(i, Picky, 1)).join().or_its_panic();
    // These wait for the combined values there; their merge poisons the array.
    let dropped = Rc::new(Cell::new(0));
    for at in [i, i, there, i] {
        let falls = Falls(Rc::clone(&dropped));
        array.update_then(at, |value| *value, move |_| drop(falls));
    }
    // If the last one was answered before, its call has dropped it.
    until(|| dropped.get() == 4);
    let why = panic_of(|| array.get(i));
    assert!(why.contains("poisoned") && why.contains("thirteen"), "{why}");
    // Other arrays are unaffected.
    let other = Array::new(10_000, 1u64).unwrap();
    assert_eq!(other.reduce(0..10_000, Add), 10_000);
}

pub fn array_indices_out_of_range_are_named() {
    let array = Array::new(700, 0u64).unwrap();
    let calls: [fn(&Array<u64>); 8] = [
        |array| assert_eq!(array.get(700), 0),
        |array| assert_eq!(array.try_get(700), None),
        |array| array.set(700, 1),
        |array| array.apply(700, Add, 1),
        |array| array.update(700, |_| ()),
        |array| assert_eq!(array.owner(700).worker, 0),
        |array| array.scatter(&[700], &[1]),
        |array| array.apply_all(Add, [(700, 1)]),
    ];
    for call in calls {
        let why = panic_of(|| call(&array));
        assert!(why.contains("index 700") && why.contains("700 elements"), "{why}");
    }
    let calls: [fn(&Array<u64>); 6] = [
        |array| drop(array.view(699..701)),
        |array| array.modify(699..701, |_, _| ()),
        |array| assert_eq!(array.reduce(0..701, Add), 0),
        |array| array.copy_from(699, &[1, 2]),
        |array| array.copy_to(699, &mut [1, 2]),
        |array| array.prefetch(0..701),
    ];
    for call in calls {
        let why = panic_of(|| call(&array));
        assert!(why.contains("701 is not within") || why.contains("700 elements"), "{why}");
    }
}

/// A handle may be dropped anywhere, and the memory goes with the last.
pub fn array_memory_goes_with_the_last_handle() {
    for round in 0..30 {
        // If they were kept, this would come to gibibytes.
        let array = Array::new(4 << 20, 1u64).unwrap();
        let last = array.clone();
        let fiber = gossamer::spawn_on(remote(), move || last.get(round));
        drop(array);
        assert_eq!(fiber.join().or_its_panic(), 1);
    }
    // A call under way keeps the array.
    let (array, (promise, told)) = (Array::new(5000, 1u64).unwrap(), trust::promise());
    let there = element_of(&array, remote());
    array.update_then(there, |value| *value + 1, |value| promise.keep(value));
    drop(array);
    assert_eq!(told.wait(), Ok(2));
    let (array, held) = (Array::new(5000, 1u64).unwrap(), trust::local_trustee().entrust(Vec::new()));
    let own = array.clone();
    held.apply(move |held| held.push(own));
    drop(array);
    assert_eq!(held.apply(|held| held.pop().map(|array| array.len())), Some(5000));
    until(|| resident_bytes() < 900 << 20);
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// Threads that are no places may use an array as well, and their fibers.
pub fn array_calls_of_other_threads_are_done_by_workers() {
    let array = Array::new(5000, 2u64).unwrap();
    let own = array.clone();
    let thread = std::thread::spawn(move || {
        own.set(4999, 8);
        own.apply(4999, Add, 1);
        let sum = own.update(4999, |value| *value) + own.get(0) + own.view(0..3)[2];
        let why = panic_of(|| own.modify(0..1, |_, _| ()));
        assert!(why.contains("in a fiber"), "{why}");
        let mine = Array::new(100, 1u64).unwrap();
        sum + mine.reduce(0..100, Add) + own.reduce(0..2, Add)
    });
    until(|| thread.is_finished());
    assert_eq!(thread.join().or_its_panic(), 9 + 2 + 2 + 100 + 4);
}

/// An array that is larger than a machine is refused before any memory is taken.
pub fn array_beyond_all_memory_is_refused() {
    let refused = Array::new(1 << 40, 0u64);
    let why = refused.as_ref().map(|_| ()).unwrap_err().to_string();
    assert!(matches!(refused, Err(Error::Memory { left, .. }) if left < 8 << 40), "{why}");
    assert!(why.contains("machine 0 would need"), "{why}");
    let refused = Array::<u8>::builder().cache_bytes(1 << 50).build(1 << 41, 0);
    assert!(matches!(refused, Err(Error::Elements { .. } | Error::Memory { .. })));
}
