//! Snapshots: all elements as a slice, at each machine.

use gossamer_array::{Add, Array, Max, Snapshot};

use crate::suite::ground::{JoinOutcome, panic_of, places, remote};

/// Checks that every place, and a thread that is none, finds these elements.
fn is_everywhere(
    snapshot: &Snapshot<u64>,
    n: usize,
    element: impl Fn(usize) -> u64 + Copy + trust::NoRef + Send + 'static,
) {
    let wrong = move |snapshot: Snapshot<u64>| {
        let slice = snapshot.slice();
        assert_eq!(slice.len(), n);
        slice.iter().enumerate().filter(|(i, seen)| **seen != element(*i)).count()
    };
    for place in places() {
        let snapshot = snapshot.clone();
        assert_eq!(gossamer::spawn_on(place, move || wrong(snapshot)).join().or_its_panic(), 0, "at {place}");
    }
    let snapshot = snapshot.clone();
    assert_eq!(std::thread::spawn(move || wrong(snapshot)).join().or_its_panic(), 0, "on a thread");
}

pub fn array_snapshots_are_slices_everywhere() {
    let machines = gossamer::rack().machines().len();
    for n in [0, 1, 5, 511, 20_003] {
        let last: Vec<usize> = (0..machines).map(|machine| if machine == 0 { 0 } else { n }).collect();
        let arrays = [
            Array::new(n, 1u64).unwrap(),
            Array::builder().cyclic().build(n, 1).unwrap(),
            Array::builder().starts(&last).build(n, 1).unwrap(),
        ];
        for array in arrays {
            // Merged first: operands are at every place.
            let own = array.clone();
            array.on_owners(move |_| (0..n).for_each(|i| own.apply(i, Add, i as u64)));
            let count = places().len() as u64;
            is_everywhere(&array.snapshot().unwrap(), n, move |i| 1 + count * i as u64);
            // From another place, of elements that a third one has the right to.
            let (setter, all) = (array.clone(), array.clone());
            gossamer::spawn_on(remote(), move || (0..n).for_each(|i| setter.set(i, 7 * i as u64)))
                .join()
                .or_its_panic();
            let of_last = places().pop().unwrap();
            let snapshot = gossamer::spawn_on(of_last, move || all.snapshot().unwrap()).join().or_its_panic();
            is_everywhere(&snapshot, n, |i| 7 * i as u64);
        }
    }
    // Elements of many bytes, of which a chunk has few.
    let wide = Array::new(70, [3u8; 5000]).unwrap();
    wide.set(69, [4; 5000]);
    let snapshot = wide.snapshot().unwrap();
    let sums = wide.on_owners(move |_| snapshot.slice().iter().map(|element| u64::from(element[4999])).sum::<u64>());
    assert!(sums.into_iter().all(|sum| sum == 3 * 69 + 4));
}

pub fn array_snapshots_do_not_change() {
    let n = 5000;
    let array = Array::new(n, 0u64).unwrap();
    let mut all = Vec::new();
    for round in 0..6 {
        all.push(array.snapshot().unwrap());
        // Memory of dropped ones is used again, that of others is not.
        if round == 3 {
            drop((all.remove(1), all.remove(1)));
        }
        let own = array.clone();
        array.on_owners(move |owned| owned.for_each(|range| own.modify(range, |_, chunk| chunk.fill(round + 1))));
    }
    for (snapshot, round) in all.iter().zip([0, 3, 4, 5]) {
        is_everywhere(snapshot, n, move |_| round);
    }
    // A writer does not wait, and a delegated closure may read.
    let snapshot = all.pop().unwrap();
    array.set(0, 99);
    let local = trust::local_trustee().entrust(());
    assert_eq!(local.apply(move |()| snapshot.slice()[0]), 5);
    let of_closure = array.clone();
    let why = panic_of(move || local.apply(move |()| _ = of_closure.snapshot()));
    assert!(why.contains("`snapshot` of an array waits"), "{why}");
}

pub fn array_snapshots_outlive_arrays() {
    let array = Array::new(3000, 5u64).unwrap();
    let snapshot = array.snapshot().unwrap();
    let slice = snapshot.slice();
    drop(array);
    let others: Vec<_> = (0..3).map(|x| Array::new(3000, x).unwrap().snapshot().unwrap()).collect();
    is_everywhere(&snapshot, 3000, |_| 5);
    drop(snapshot);
    others.iter().zip(0..).for_each(|(other, x)| is_everywhere(other, 3000, move |_| x));
    assert_eq!(slice.iter().copied().max(), Some(5));
    let array = Array::new(10, 1u64).unwrap();
    assert_eq!((array.snapshot().unwrap().slice().len(), array.reduce(0..10, Max)), (10, 1));
}
