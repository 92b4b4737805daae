//! The end of objects: once, at home, however the owner goes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gossamer::{Place, Trust};
use gossamer_heap::{self as heap, Global};

use super::{at, objects_at, until_objects};
use crate::suite::ground::{JoinOutcome, effort, places, remote, spots, text, until};

/// Counts its end, and notes the place.
struct Told {
    log: Trust<Vec<(u64, Place)>>,
    number: u64,
}

impl Drop for Told {
    fn drop(&mut self) {
        let told = (self.number, gossamer::here());
        assert!(!trust::may_wait(), "nothing may wait in a destructor");
        self.log.apply_then(move |log| log.push(told), |()| {});
    }
}

/// The destructor runs once, at the object's place, wherever the owner is dropped; not where the value was taken out.
pub fn heap_destructors_run_once_at_home() {
    let log = gossamer::entrust(Vec::new());
    let mut expected = Vec::new();
    for (made, dropped) in spots().into_iter().flat_map(|made| spots().map(|dropped| (made, dropped))) {
        let number = expected.len() as u64;
        expected.push((number, made));
        let told = log.clone();
        let object = at(made, move || Global::new(Told { log: told, number }));
        at(dropped, move || drop(object));
    }
    let all = expected.len();
    until(|| log.apply(|log| log.len()) == all);
    let mut seen = log
        .apply_with(|log, ()| log.iter().map(|(n, place)| (*n, place.machine, place.worker)).collect::<Vec<_>>(), ());
    seen.sort_unstable();
    let expected: Vec<_> = expected.into_iter().map(|(n, place)| (n, place.machine, place.worker)).collect();
    assert_eq!(seen, expected);
}

struct Link {
    _next: Option<Global<Link>>,
}

/// Chains end without recursion: along one place, and to and fro between all.
pub fn heap_long_chains_end() {
    let before: Vec<u64> = places().into_iter().map(objects_at).collect();
    let mut chain = Global::new(Link { _next: None });
    for _ in 0..effort(100_000) {
        chain = Global::new(Link { _next: Some(chain) });
    }
    drop(chain);
    let mut chain = Global::new(Link { _next: None });
    for place in places().into_iter().cycle().take(effort(400) as usize) {
        chain = at(place, move || Global::new(Link { _next: Some(chain) }));
    }
    drop(chain);
    for (place, before) in places().into_iter().zip(before) {
        until_objects(place, before);
    }
}

struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("a destructor");
    }
}

/// A destructor that panics frees the room, and the objects that hang on it; a dropper on this machine gets the panic.
pub fn heap_destructors_that_panic_free_the_room() {
    let before = objects_at(gossamer::here());
    let object = Global::new((Panics, Global::new(5u64)));
    let panic = catch_unwind(AssertUnwindSafe(|| drop(object))).unwrap_err();
    assert_eq!(text(&*panic), "a destructor");
    until_objects(gossamer::here(), before);
    let there = objects_at(remote());
    let object = at(remote(), || Global::new((Panics, Global::new(5u64))));
    let _ = catch_unwind(AssertUnwindSafe(|| drop(object)));
    until_objects(remote(), there);
}

/// `slice`'s closure may allocate, wait, and panic: its objects are dropped.
pub fn heap_slices_that_panic_leave_nothing() {
    let before = objects_at(gossamer::here());
    let made = catch_unwind(AssertUnwindSafe(|| {
        heap::slice(10, |i| {
            gossamer::yield_now();
            assert!(i < 7, "the eighth");
            Global::new(i as u64)
        })
    }));
    assert_eq!(text(&*made.unwrap_err()), "the eighth");
    until_objects(gossamer::here(), before);
    let owners = heap::slice(10, |i| Global::new(i as u64));
    assert_eq!(owners.read().iter().map(|one| *one.read()).sum::<u64>(), 45);
    assert_eq!(heap::stats().objects, before + 11);
    drop(owners);
    until_objects(gossamer::here(), before);
}

/// A guard that is forgotten, or leaked for ever, does no harm.
pub fn heap_forgotten_guards_do_no_harm() {
    for place in spots() {
        let mut object = at(place, || heap::slice(64, |i| i as u64));
        std::mem::forget(object.read());
        let mut guard = object.write();
        guard[0] = 5;
        // Its end needs no work.
        let _: &mut heap::RefMut<'_, [u64]> = Box::leak(Box::new(guard));
        assert_eq!(object.read()[0], 5);
        let object = at(place, move || {
            assert_eq!(object.read()[0], 5);
            object
        });
        drop(object);
        let object: &'static Global<[u64]> = Box::leak(Box::new(at(place, || heap::slice(64, |i| i as u64))));
        let guard: &'static heap::Ref<'static, [u64]> = Box::leak(Box::new(object.read()));
        let for_ever: &'static [u64] = guard;
        // Many other objects come and go at that place.
        for _ in 0..effort(50) {
            let other = at(place, || heap::slice(64, |_| 9u64));
            assert_eq!(other.read()[63], 9);
        }
        assert!(for_ever.iter().enumerate().all(|(i, n)| *n == i as u64));
    }
}

/// Owners are dropped anywhere, also in plain threads and while unwinding; the rooms are used again.
pub fn heap_owners_drop_anywhere() {
    for place in spots() {
        let before = objects_at(place);
        let make = move || at(place, || Global::new([0u64; 10]));
        let many: [_; 20] = std::array::from_fn(|_| make());
        let (told, goes_on) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            drop(many);
            // It neither waits nor ends.
            let _ = goes_on.recv();
        });
        until_objects(place, before);
        drop(told);
        thread.join().or_its_panic();
        until_objects(place, before);
        let in_closure = make();
        gossamer::entrust(()).apply(move |()| drop(in_closure));
        until_objects(place, before);
        let unwound = make();
        let fiber = gossamer::spawn(move || {
            let _object = unwound;
            panic!("on its way");
        });
        assert!(fiber.join().is_err());
        until_objects(place, before);
    }
}
