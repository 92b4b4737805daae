//! Contexts without waiting, and a lack of room.

use gossamer_heap::{self as heap, Error, Global};

use super::{at, is_far};
use crate::suite::ground::{JoinOutcome, panic_of, remote, spots};

/// Where nothing may wait, mapped and kept objects are read, and a read that would wait panics with the cure.
pub fn heap_nothing_waits_in_closures() {
    for place in spots() {
        let object = at(place, || Global::new(7u64));
        let property = gossamer::local_trustee().entrust(object);
        if is_far(place) {
            assert!(property.apply(|object| object.try_read().is_none()));
            assert!(property.apply(|object| object.try_write_now().is_none()));
            let refused = property.call().apply(|object| *object.read()).wait();
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("nothing may wait here") && refused.contains("prefetch"), "{refused}");
            property.clear_poison();
        }
        assert_eq!(property.apply(|object| object.try_read().as_deref() == Some(&7)), !is_far(place));
    }
}

/// Plain threads read and write mapped objects, and get an error for others.
pub fn heap_plain_threads_use_what_is_mapped() {
    for place in spots() {
        let mut object = at(place, || Global::new(7u64));
        let far = is_far(place);
        let outcome = std::thread::spawn(move || {
            let told = if far {
                assert!(object.try_read().is_none());
                panic_of(|| drop(object.read()))
            } else {
                *object.write() += 1;
                object.read().to_string()
            };
            let made = panic_of(|| drop(Global::new(1u64)));
            assert!(made.contains("worker"), "{made}");
            told
        });
        let told = outcome.join().or_its_panic();
        assert!(if far { told.contains("gossamer::spawn") } else { told == "8" }, "{told}");
    }
}

/// An allocation without room is refused, with the value or the owner unchanged.
pub fn heap_what_does_not_fit_is_refused() {
    let too_long = heap::stats().limit_bytes as usize + 1;
    let refused = heap::try_slice(too_long, |_| 0u8).unwrap_err();
    let Error::Full { machine, bytes, limit, .. } = refused.clone() else { panic!("{refused}") };
    assert_eq!((machine, bytes, limit), (gossamer::rack().machine(), too_long, too_long as u64 - 1));
    assert!(refused.to_string().contains("GOSSAMER_HEAP"), "{refused}");
    let told = panic_of(|| drop(heap::slice(too_long, |_| 0u8)));
    assert!(told.contains("no room"), "{told}");
    assert!(heap::try_slice(usize::MAX / 2, |_| 0u64).is_err());
    // It is as before.
    assert_eq!(heap::slice(1000, |i| i as u32).read()[999], 999);
}

/// Unread copies are evicted, the oldest first, where there is little room: `GOSSAMER_HEAP=16M` makes it so.
pub fn heap_unread_copies_go_where_room_is_short() {
    let (limit, there) = (heap::stats().limit_bytes, remote());
    if !is_far(there) || limit > 64 << 20 {
        return;
    }
    const WORDS: usize = 8 << 10;
    let evicted = heap::stats().evictions;
    // Leaves room for some of the copies only.
    let ballast = heap::slice(limit as usize / 2, |_| 1u8);
    let count = limit as usize / 2 / (8 * WORDS);
    let objects: Vec<_> = (0..count).map(|n| at(there, move || heap::slice(WORDS, |i| (i * n) as u64))).collect();
    let first = objects[0].read();
    for round in 0..3 {
        for (n, object) in objects.iter().enumerate() {
            assert_eq!(object.read()[WORDS - 1], ((WORDS - 1) * n) as u64, "round {round}");
            assert!(heap::stats().used_bytes <= limit);
        }
    }
    assert!(heap::stats().evictions > evicted);
    let before = heap::stats().fetches;
    assert_eq!(objects[0].read()[WORDS - 1], first[WORDS - 1], "what is read stays");
    assert_eq!(heap::stats().fetches, before);
    drop(ballast);
}

/// The room of small objects becomes room for large ones.
pub fn heap_rooms_of_small_objects_become_those_of_large_ones() {
    let limit = heap::stats().limit_bytes as usize;
    if limit > 64 << 20 {
        return;
    }
    // More than half of it as small objects, then as large ones.
    for _ in 0..2 {
        let small: Vec<_> = (0..limit * 6 / 10 / 1024).map(|_| Global::new([1u64; 128])).collect();
        drop(small);
        let large = heap::try_slice(limit * 6 / 10, |_| 1u8);
        assert_eq!(large.unwrap().read()[7], 1);
    }
}
