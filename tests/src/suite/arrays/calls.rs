//! Each call of an array, from every place.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use gossamer_array::{Add, Array, Error, Max, Min, Owned};

use crate::suite::ground::{JoinOutcome, effort, panic_of, places, remote, until};

pub fn array_elements_are_set_and_read_everywhere() {
    let n = 20_000;
    for array in [Array::new(n, 0u64).unwrap(), Array::builder().cyclic().build(n, 0u64).unwrap()] {
        let count = places().len();
        let setters: Vec<_> = places()
            .into_iter()
            .enumerate()
            .map(|(number, place)| {
                let array = array.clone();
                gossamer::spawn_on(place, move || {
                    (number..n).step_by(count).for_each(|i| array.set(i, 3 * i as u64 + 1));
                })
            })
            .collect();
        setters.into_iter().for_each(|setter| setter.join().or_its_panic());
        let sums = array.clone();
        let right: u64 = (0..n as u64).map(|i| 3 * i + 1).sum();
        for sum in array.on_owners(move |_| (0..n).map(|i| sums.get(i)).sum::<u64>()) {
            assert_eq!(sum, right);
        }
    }
}

pub fn array_owners_are_asked_without_a_message() {
    let array = Array::new(10_007, 0u8).unwrap();
    let owned: Vec<Owned> = places().into_iter().map(|place| array.owned(place)).collect();
    assert_eq!(owned.iter().map(Owned::len).sum::<usize>(), array.len());
    for (place, owned) in places().into_iter().zip(owned) {
        assert!(owned.flatten().step_by(97).all(|i| array.owner(i) == place));
    }
    let of_fibers = array.clone();
    let told = array.on_owners(move |owned| {
        let here = gossamer::here();
        assert_eq!(of_fibers.owned(here), owned);
        owned.len()
    });
    assert_eq!(told.into_iter().sum::<usize>(), array.len());
    assert_eq!(array.stats().grants, 0);
}

pub fn array_combining_loses_nothing() {
    let (n, each) = (5000usize, effort(40_000));
    let sums = Array::new(n, 0u64).unwrap();
    let least = Array::new(n, u32::MAX).unwrap();
    let (add, min) = (sums.clone(), least.clone());
    let added = sums.on_owners(move |_| {
        let mut random = fastrand::Rng::with_seed(u64::from(gossamer::here().worker));
        let mut all = 0;
        for k in 0..each {
            let i = random.usize(..n);
            add.apply(i, Add, k);
            min.apply(i, Min, random.u32(..));
            all += k;
        }
        all
    });
    assert_eq!(sums.reduce(0..n, Add), added.into_iter().sum::<u64>());
    assert!(least.reduce(0..n, Min) < least.reduce(0..n, Max));
    let all = sums.clone();
    let whole = sums.on_owners(move |_| (0..n).map(|i| all.get(i)).sum::<u64>());
    assert!(whole.iter().all(|sum| *sum == whole[0]), "{whole:?}");
}

pub fn array_updates_are_atomic() {
    let (n, each) = (1000usize, effort(2000));
    let array = Array::new(n, 0u64).unwrap();
    let own = array.clone();
    array.on_owners(move |_| {
        for k in 0..each {
            let i = (k as usize * 7) % n;
            if k % 2 == 0 {
                own.update(i, |value| *value += 1);
            } else {
                own.update_then(
                    i,
                    |value| {
                        *value += 1;
                        *value
                    },
                    |value| assert!(value > 0),
                );
            }
        }
        trust::wait_all();
    });
    // Later requests are served later.
    let last = array.clone();
    array.on_owners(move |_| (0..n).step_by(100).for_each(|i| last.update(i, |_| ())));
    assert_eq!(array.reduce(0..n, Add), each * places().len() as u64);
}

pub fn array_chunks_are_viewed_changed_and_combined() {
    let n = 10_000;
    let array = Array::new(n, 1u64).unwrap();
    array.modify(100..9_000, |first, elements| {
        (first..).zip(elements).for_each(|(i, element)| *element = i as u64);
    });
    let at_all = array.clone();
    array.on_owners(move |_| {
        at_all.combine(0..n, Add, |first, mut chunk| {
            assert_eq!(chunk.range().start, first);
            chunk.range().for_each(|i| chunk.apply(i, 1));
        });
    });
    let count = places().len() as u64;
    let expected = |i: usize| if (100..9_000).contains(&i) { i as u64 + count } else { 1 + count };
    let seen: Vec<(usize, u64)> = array.views(50..9_950).flat_map(|view| view.indexed().collect::<Vec<_>>()).collect();
    assert_eq!(seen.len(), 9_900);
    assert!(seen.iter().all(|(i, value)| *value == expected(*i)));
    let across = array.view(90..1200);
    assert_eq!((across.start(), across.len()), (90, 1110));
    assert!(across.indexed().all(|(i, value)| value == expected(i)));
}

pub fn array_bulk_calls_do_what_single_calls_do() {
    let n = 30_000;
    let array = Array::builder().cyclic().build(n, 0u32).unwrap();
    let at_remote = array.clone();
    let filled = gossamer::spawn_on(remote(), move || {
        let values: Vec<u32> = (0..n as u32).map(|i| i * 2 + 1).collect();
        at_remote.copy_from(0, &values);
        let mut back = vec![0; n - 777];
        at_remote.copy_to(777, &mut back);
        assert!(back == values[777..]);
    });
    filled.join().or_its_panic();
    let at: Vec<usize> = (0..5000).map(|k| (k * 7919) % n).collect();
    let mut got = vec![0; at.len()];
    array.gather(&at, &mut got);
    assert!(at.iter().zip(&got).all(|(i, value)| *value == *i as u32 * 2 + 1));
    let twice: Vec<u32> = got.iter().map(|value| value * 2).collect();
    array.scatter(&at, &twice);
    array.apply_all(Add, at.iter().map(|i| (*i, 1)));
    let is_at: BTreeSet<usize> = at.iter().copied().collect();
    assert_eq!(is_at.len(), at.len(), "each once");
    for (i, value) in array.view(0..n).indexed() {
        let before = i as u32 * 2 + 1;
        assert_eq!(value, if is_at.contains(&i) { before * 2 + 1 } else { before });
    }
    array.fill(9);
    assert_eq!(array.reduce(5..n, Add), 9 * (n as u32 - 5));
    assert_eq!(array.reduce(7..7, Max), 0);
}

/// An argument with pointers inside travels to each owner, and such results come back in the order of places.
pub fn array_owners_get_what_holds_pointers() {
    let array = Array::builder().cyclic().build(5000, 0u64).unwrap();
    let words: Vec<String> = (0..300).map(|n| format!("word {n}")).collect();
    let (own, expected) = (array.clone(), words.join(" "));
    let told = array.on_owners_with(
        move |owned, words: Vec<String>| {
            owned.flatten().for_each(|i| own.set(i, words.len() as u64));
            (gossamer::here().to_string(), words.join(" "))
        },
        words,
    );
    let here: Vec<String> = told.iter().map(|(here, _)| here.clone()).collect();
    assert_eq!(here, places().iter().map(ToString::to_string).collect::<Vec<_>>());
    assert!(told.into_iter().all(|(_, joined)| joined == expected));
    assert_eq!(array.reduce(0..5000, Add), 300 * 5000);
    let (last, everywhere) = (remote(), array.clone());
    let refused = panic_of(|| {
        array.on_owners_with(
            move |_, why: String| {
                everywhere.apply(0, Add, 1);
                assert!(gossamer::here() != last, "{why}");
            },
            "a panic that is meant".to_owned(),
        )
    });
    assert!(refused.contains("a panic that is meant"), "{refused}");
    assert_eq!(array.get(0), 300 + places().len() as u64, "all have ended");
}

pub fn array_elements_of_every_size() {
    fn all<
        T: gossamer_array::Element + PartialEq + std::fmt::Debug,
        F: Fn(usize) -> T + Copy + gossamer::NoRef + Send + 'static,
    >(
        make: F,
    ) {
        let n = 700;
        let array = Array::new(n, make(0)).unwrap();
        (0..n).step_by(3).for_each(|i| array.set(i, make(i)));
        let own = array.clone();
        array.on_owners(move |owned| owned.flatten().skip(1).step_by(3).for_each(|i| own.set(i, make(i))));
        for i in (0..n).step_by(3) {
            assert_eq!(array.get(i), make(i));
        }
    }
    all::<u8, _>(|i| i as u8);
    all::<i16, _>(|i| i as i16);
    all::<f32, _>(|i| i as f32);
    all::<[u8; 3], _>(|i| [i as u8, 1, 2]);
    all::<u128, _>(|i| i as u128);
    all::<[u64; 3], _>(|i| [i as u64; 3]);
    all::<[u64; 1000], _>(|i| [i as u64; 1000]);
    // Larger ones need fibers with larger stacks, in debug builds.
    all::<[u8; 16_384], _>(|i| [i as u8; 16_384]);
}

pub fn array_of_nothing_and_of_little() {
    let none = Array::new(0, 0u64).unwrap();
    assert!(none.is_empty() && none.views(0..0).next().is_none() && none.view(0..0).is_empty());
    none.fill(1);
    assert_eq!(none.reduce(0..0, Add), 0);
    none.copy_to(0, &mut []);
    let few = Array::new(3, 5u64).unwrap();
    few.set(2, 7);
    assert_eq!(few.reduce(0..3, Add), 17);
    let machines = gossamer::rack().machines().len();
    if machines > 1 {
        let refused = Array::<u64>::builder().starts(&vec![1; machines]).build(1000, 0);
        assert!(matches!(refused, Err(Error::Partition { .. })), "{refused:?}");
        let mut starts = vec![4096; machines];
        starts[0] = 0;
        let array = Array::<u64>::builder().starts(&starts).build(10_000, 1).unwrap();
        assert_eq!((array.owner(4095).machine, array.owner(9_999).machine as usize), (0, machines - 1));
        assert_eq!(array.reduce(0..10_000, Add), 10_000);
    }
}

/// A caller that is faster than the answers waits; inside a closure, where nothing may wait, its calls are queued.
pub fn array_update_then_waits_for_room() {
    const UNANSWERED: u64 = 1024;
    let calls = effort(30_000);
    let array = Array::new(5000, 0u64).unwrap();
    let there = array.owned(remote()).flatten().next().expect("each place owns some");
    let (told, most) = (Rc::new(Cell::new(0u64)), Cell::new(0));
    for made in 1..=calls {
        let tell = Rc::clone(&told);
        array.update_then(there, |value| *value += 1, move |()| tell.set(tell.get() + 1));
        most.set(most.get().max(made - told.get()));
    }
    assert!(most.get() <= UNANSWERED, "{} calls were unanswered", most.get());
    let (local, own) = (trust::local_trustee().entrust(()), array.clone());
    local.apply(move |()| (0..2 * UNANSWERED).for_each(|_| own.update_then(there, |value| *value += 1, |()| ())));
    assert_eq!(array.update(there, |value| *value), calls + 2 * UNANSWERED, "none is lost");
    until(|| told.get() == calls);
}

/// Returns a name that all machines of this rack know.
fn signal(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("suite-arrays-{}-{name}", gossamer::rack().machines()[0].process))
}

/// A bulk call has some packets under way, not all of them, while the answering place is busy.
pub fn array_packets_under_way_are_bounded() {
    const PACKETS: usize = 32;
    // Of 7 KiB: indices and values.
    const OPERANDS: usize = (7 << 10) / 16;
    if places().len() < 2 {
        return;
    }
    let array = Array::new(20_000, 0u64).unwrap();
    let there: Vec<usize> = array.owned(remote()).flatten().collect();
    let _ = fs::remove_file(signal("go"));
    let busy = gossamer::spawn_on(remote(), || {
        fs::write(signal("busy"), "").unwrap();
        // The worker itself stands still. The harness bounds it.
        while !signal("go").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    until(|| signal("busy").exists());
    let taken = Rc::new(Cell::new(0));
    let (own, takes, all) = (array.clone(), Rc::clone(&taken), 4 * PACKETS * OPERANDS);
    let call = trust::spawn(move || {
        let operands = (0..all).map(|n| {
            takes.set(n + 1);
            (there[n % there.len()], 1)
        });
        own.apply_all(Add, operands);
    });
    until(|| taken.get() >= PACKETS * OPERANDS);
    (0..1000).for_each(|_| trust::yield_now());
    assert!(taken.get() <= (PACKETS + 1) * OPERANDS, "{} of {all} operands were taken", taken.get());
    fs::write(signal("go"), "").unwrap();
    call.join().or_its_panic();
    busy.join().or_its_panic();
    assert_eq!(array.reduce(0..array.len(), Add), all as u64);
    ["busy", "go"].iter().for_each(|name| fs::remove_file(signal(name)).unwrap());
}
