//! Objects with several owners.

use gossamer_heap::{self as heap, Atomic, Global, Mutex, Shared};

use super::{at, objects_at, until_objects};
use crate::suite::ground::{JoinOutcome, effort, places, remote, spots, text, until};

/// It ends after the last of its owners, which come and go on all machines.
pub fn heap_shared_objects_end_after_their_last_owner() {
    for place in spots() {
        let before = objects_at(place);
        let shared = at(place, || Shared::from(heap::slice(100, |i| i as u64)));
        let fibers: Vec<_> = places()
            .into_iter()
            .map(|reader| {
                let shared = shared.clone();
                gossamer::spawn_on(reader, move || {
                    let another = shared.clone();
                    drop(shared);
                    another.read()[99]
                })
            })
            .collect();
        for fiber in fibers {
            assert_eq!(fiber.join().or_its_panic(), 99);
        }
        assert_eq!(at(place, || heap::stats().objects), before + 1);
        assert_eq!(shared.read()[1], 1);
        drop(shared);
        until_objects(place, before);
    }
}

/// One holder at a time; the next one reads its writes, wherever it is.
pub fn heap_mutexes_exclude() {
    for place in spots() {
        let mutex = at(place, || Mutex::new([0u64; 32]));
        let each = effort(50);
        let fibers: Vec<_> = places()
            .into_iter()
            .flat_map(|place| [place, place])
            .map(|place| {
                let mutex = mutex.clone();
                gossamer::spawn_on(place, move || {
                    for _ in 0..each {
                        let mut words = mutex.lock().unwrap();
                        let before = words[0];
                        words.iter_mut().for_each(|word| *word += 1);
                        gossamer::yield_now();
                        assert!(words.iter().all(|word| *word == before + 1));
                    }
                })
            })
            .collect();
        let count = fibers.len() as u64;
        for fiber in fibers {
            fiber.join().or_its_panic();
        }
        assert_eq!(mutex.lock().unwrap()[31], count * each);
    }
}

/// Waiters have their turns in the order of asking; an aborted one holds up nobody.
pub fn heap_mutexes_serve_in_turn() {
    let mutex = at(remote(), || Mutex::new(0u64));
    let first = mutex.lock().unwrap();
    assert!(mutex.try_lock().is_none());
    let order = gossamer::entrust(Vec::new());
    let fibers: Vec<_> = (0..6u64)
        .map(|number| {
            let (mutex, order) = (mutex.clone(), order.clone());
            let asked = gossamer::entrust(false);
            let told = asked.clone();
            let fiber = gossamer::spawn_on(gossamer::here(), move || {
                told.apply(|told| *told = true);
                let guard = mutex.lock().unwrap();
                order.apply(move |order| order.push(number));
                drop(guard);
            });
            until(|| asked.apply(|asked| *asked));
            // Its request goes before those of the fibers after it, and before the first lock ends.
            gossamer::sleep(std::time::Duration::from_millis(20));
            fiber
        })
        .collect();
    fibers[2].abort();
    gossamer::yield_now();
    drop(first);
    let ended: Vec<_> = fibers.into_iter().map(|fiber| fiber.join().map_err(|panic| text(&*panic))).collect();
    assert!(ended.iter().map(Result::is_ok).eq([true, true, false, true, true, true]), "{ended:?}");
    assert_eq!(order.apply_with(|order, ()| order.clone(), ()), [0, 1, 3, 4, 5]);
    assert!(mutex.try_lock().is_some());
}

/// Fibers of all workers that lock again at once all come to their end, and no turn is lost.
pub fn heap_mutexes_starve_no_waiter() {
    let mutex = at(remote(), || Mutex::new(0u64));
    let turns = effort(20);
    let fibers: Vec<_> = gossamer::rack()
        .places()
        .flat_map(|place| [place; 3])
        .map(|place| {
            let mutex = mutex.clone();
            gossamer::spawn_on(place, move || {
                for _ in 0..turns {
                    *mutex.lock().unwrap() += 1;
                }
            })
        })
        .collect();
    let count = fibers.len() as u64;
    for fiber in fibers {
        fiber.join().or_its_panic();
    }
    assert_eq!(*mutex.lock().unwrap(), count * turns);
}

/// Poisoned by a panic, with the object still there.
pub fn heap_mutexes_are_poisoned() {
    let mutex = at(remote(), || Mutex::new(5u64));
    let other = mutex.clone();
    let fiber = gossamer::spawn(move || {
        *other.lock().unwrap() = 6;
        let _guard = other.lock().unwrap();
        panic!("amid a change");
    });
    assert!(fiber.join().is_err());
    assert_eq!(*mutex.lock().unwrap_err().guard, 6);
    mutex.clear_poison();
    assert_eq!(*mutex.lock().unwrap(), 6);
}

/// No addition is lost, from all machines.
pub fn heap_atomics_count() {
    for place in spots() {
        let count = at(place, || Atomic::new(0));
        let each = effort(200);
        let fibers: Vec<_> = places()
            .into_iter()
            .map(|place| {
                let count = count.clone();
                gossamer::spawn_on(place, move || {
                    for _ in 0..each {
                        count.fetch_add(1);
                    }
                    count.fetch_max(3)
                })
            })
            .collect();
        for fiber in fibers {
            assert!(fiber.join().or_its_panic() >= each);
        }
        assert_eq!(count.load(), each * places().len() as u64);
        assert_eq!(count.compare_exchange(1, 5), Err(count.load()));
    }
}

/// Handles of these are in each other, and in objects.
pub fn heap_shared_objects_hold_mutexes() {
    let all: Shared<[Mutex<u64>; 4]> = Shared::new(std::array::from_fn(|i| Mutex::new(i as u64)));
    let fibers: Vec<_> = places()
        .into_iter()
        .map(|place| {
            let all = all.clone();
            gossamer::spawn_on(place, move || {
                for one in all.read().iter() {
                    *one.lock().unwrap() += 10;
                }
            })
        })
        .collect();
    for fiber in fibers {
        fiber.join().or_its_panic();
    }
    let count = places().len() as u64 * 10;
    for (i, one) in all.read().iter().enumerate() {
        assert_eq!(*one.lock().unwrap(), i as u64 + count);
    }
}

pub fn heap_raw_rooms_hold_bytes() {
    for place in spots() {
        let room = at(place, || heap::raw::alloc(100).unwrap());
        // SAFETY: the room is this behaviour's, and used by one fiber.
        #[allow(unsafe_code)]
        unsafe {
            heap::raw::write(room, 17, b"seventeen");
            let mut bytes = [1; 11];
            heap::raw::read(room, 16, &mut bytes);
            assert_eq!(&bytes, b"\0seventeen\0");
            heap::raw::free(room);
        }
    }
}

/// An owner that several fibers had in turn is whole again.
pub fn heap_owners_come_out_of_mutexes_and_go_on() {
    let mutex = at(remote(), || Mutex::new(Some(Global::new(7u64))));
    let taken = mutex.lock().unwrap().take();
    assert_eq!(*taken.unwrap().read(), 7);
    assert!(mutex.lock().unwrap().is_none());
}

/// An owner that is entrusted to another machine is handed over, by the closure that makes the property there.
pub fn heap_owners_are_entrusted_elsewhere() {
    for place in spots() {
        let before = objects_at(gossamer::here());
        let table = heap::slice(100, |i| i as u64);
        let property = gossamer::entrust_with(place, move || table);
        assert_eq!(property.apply(|table| table.place()), gossamer::here());
        let fiber = gossamer::spawn_on(place, move || {
            let table = property.apply(|table| std::mem::replace(table, heap::slice(0, |_| 0)));
            table.read()[99]
        });
        assert_eq!(fiber.join().or_its_panic(), 99);
        until_objects(gossamer::here(), before);
    }
}
