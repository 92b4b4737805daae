//! Owners travel; a holder of one reads and writes the object, wherever it is.

use std::cell::Cell;

use gossamer_heap::{self as heap, Global, Ref};

use super::{at, is_far, objects_at, until_objects};
use crate::suite::ground::{JoinOutcome, effort, none_is_lost, places, remote, spots, until};

struct Node {
    value: u64,
    next: Option<Global<Node>>,
}

#[repr(align(4096))]
struct Page([u8; 100]);

/// Objects of every kind, made at each place and read at each.
pub fn heap_objects_are_read_from_everywhere() {
    for (made, read) in spots().into_iter().flat_map(|made| spots().map(|read| (made, read))) {
        let number = at(made, || Global::new(7u8));
        assert_eq!(number.place(), made);
        let numbers = at(made, || heap::slice(1001, |i| i as u64 * 3));
        let text = at(made, || Global::<str>::from("grüße"));
        let nothing = at(made, || Global::new(()));
        let empty = at(made, || heap::slice(0, |_| 0u64));
        let page = at(made, || Global::new(Page([9; 100])));
        let chain = at(made, || {
            let last = Global::new(Node { value: 3, next: None });
            Global::new(Node { value: 4, next: Some(last) })
        });
        at(read, move || {
            assert_eq!(*number.read(), 7);
            let all = numbers.read();
            assert!(all.len() == 1001 && all.iter().enumerate().all(|(i, n)| *n == i as u64 * 3));
            assert_eq!(*Ref::map(numbers.read(), |all| &all[1000]), 3000);
            assert_eq!(&*text.read(), "grüße");
            assert_eq!(*nothing.read(), ());
            assert_eq!(empty.read().len(), 0);
            let page = page.read();
            assert!((&raw const *page).addr().is_multiple_of(4096) && page.0 == [9; 100]);
            let first = chain.read();
            assert_eq!(first.value + first.next.as_ref().unwrap().read().value, 7);
        });
    }
}

/// The object changes in place where it is mapped; otherwise it moves to the writer.
pub fn heap_writers_have_the_object() {
    for made in spots() {
        let mut object = at(made, || Global::new([1u64; 50]));
        object.write()[3] = 5;
        let here = gossamer::here();
        assert_eq!(object.place(), if is_far(made) { here } else { made });
        object.move_here();
        assert_eq!((object.place(), object.read()[3]), (here, 5));
        let object = at(made, move || {
            let mut object = object;
            object.write()[4] = 6;
            object
        });
        assert_eq!((object.read()[3], object.read()[4]), (5, 6));
        assert_eq!(object.into_inner()[2..5], [1, 5, 6]);
        // An object of no bytes has the name that another object has.
        let (nothing, next) = at(made, || (Global::new(()), Global::new([7u64; 4])));
        nothing.into_inner();
        assert_eq!(*next.read(), [7; 4]);
    }
}

/// Each write gives another name, so no old copy is found: round and round, with readers at each place.
pub fn heap_old_copies_are_not_found() {
    let mut object = Global::new([0u64; 64]);
    for round in 1..=effort(60) {
        for place in places() {
            object = at(place, move || {
                let mut object = object;
                assert!(object.read().iter().all(|word| *word == object.read()[0]));
                let before = object.read()[0];
                object.write().fill(before + 1);
                object
            });
        }
        // The readers have copies now, of a name that the next round does not use.
        for place in places() {
            let expected = round * places().len() as u64;
            object = at(place, move || {
                assert_eq!(*object.read(), [expected; 64]);
                object
            });
        }
    }
}

/// One read for a machine, though many ask, at all its workers.
pub fn heap_a_copy_is_fetched_once_a_machine() {
    if !is_far(remote()) {
        return;
    }
    let there = remote();
    let object = heap::Shared::from(at(there, || heap::slice(4096, |i| i as u64)));
    let before = heap::stats().fetches;
    let workers = places().into_iter().filter(|place| place.machine == gossamer::here().machine);
    let fibers: Vec<_> = workers
        .flat_map(|place| (0..16).map(move |_| place))
        .map(|place| {
            let object = object.clone();
            gossamer::spawn_on(place, move || object.read()[4095])
        })
        .collect();
    for fiber in fibers {
        assert_eq!(fiber.join().or_its_panic(), 4095);
    }
    // A waiter reads for itself after a millisecond.
    let fetched = heap::stats().fetches - before;
    assert!((1..=4).contains(&fetched), "{fetched} reads");
    let before = heap::stats().fetches;
    assert_eq!(object.read()[7], 7);
    assert_eq!(heap::stats().fetches, before, "it is here");
}

/// A prefetched object is read without waiting; its end meanwhile does no harm.
pub fn heap_prefetched_objects_are_there() {
    let object = at(remote(), || heap::slice(100, |i| i as u64));
    object.prefetch();
    while object.try_read().is_none() {
        none_is_lost(); // then it never comes
        gossamer::yield_now();
    }
    assert_eq!(object.try_read().unwrap()[99], 99);
    for round in 0..effort(200) {
        let object = at(remote(), move || heap::slice(100, |i| i as u64 + round));
        object.prefetch();
        match round % 3 {
            0 => drop(object),
            1 => {
                let mut object = object;
                object.write()[0] = 1;
                assert_eq!((object.read()[0], object.read()[99]), (1, 99 + round));
            }
            _ => at(remote(), move || {
                let mut object = object;
                object.write()[1] = 5;
                assert_eq!((object.read()[1], object.read()[99]), (5, 99 + round));
            }),
        }
    }
}

/// A fiber goes to the object's place.
pub fn heap_fibers_go_to_objects() {
    for place in spots() {
        let object = at(place, || Global::new(5u64));
        let fiber = heap::spawn_to(object, move |mut object| {
            assert_eq!(gossamer::here(), place);
            *object.write() += 1;
            object
        });
        assert_eq!(*fiber.join().or_its_panic().read(), 6);
    }
}

/// Channels carry owners unchanged; unreceived ones are freed.
pub fn heap_channels_carry_owners() {
    for place in spots() {
        let before = objects_at(place);
        let (sender, receiver) = gossamer::sync::Channel::new().open_plain::<Global<[u64]>>();
        let sent = effort(100);
        at(place, move || {
            for i in 0..sent {
                sender.send(heap::slice(10, |k| k as u64 + i)).unwrap();
            }
        });
        for i in 0..sent / 2 {
            assert_eq!(receiver.recv().unwrap().read()[9], 9 + i);
        }
        drop(receiver);
        until_objects(place, before);
        let (sender, receiver) = gossamer::sync::Channel::new().open_plain::<Global<u64>>();
        drop(receiver);
        // The news of its end takes its time.
        let refused = Cell::new(None);
        until(|| match sender.send(Global::new(7)) {
            Ok(()) => false,
            Err(back) => {
                refused.set(Some(back));
                true
            }
        });
        assert_eq!(*refused.take().expect("it came back").0.read(), 7);
    }
}
