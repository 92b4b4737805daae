//! Arrays of a program that goes on without a machine.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use gossamer::{JoinHandle, Place, rack};
use gossamer_array::{Array, Error, Max};
use limits::HANG;
use rustix::process::{Pid, Signal, kill_process};

use crate::text;

/// Elements of the array that all use.
const ELEMENTS: usize = 20_000;
/// Fibers at each place that use it.
const USERS: u64 = 6;

/// A machine dies at a random moment while fibers of all places use arrays by all calls, make some, restore some. Each
/// use ends, with the loss as its cause; the memory and the slots are free again; and the living make new ones.
pub fn lost() {
    let arg = |number| std::env::args().nth(number).expect("an argument");
    let (seed, folder): (u64, PathBuf) = (arg(2).parse().expect("a seed"), arg(3).into());
    let mut rng = Rng::with_seed(seed);
    let victim = rng.u16(1..rack().machines().len() as u16);
    let wait = Duration::from_micros(rng.u64(..200_000));
    println!("seed {seed}: machine {victim} dies after {wait:?}");

    let before = rack().places().map(|place| gossamer::spawn_on(place, resident_bytes).join().unwrap()).max().unwrap();
    let array = Array::new(ELEMENTS, valid(0)).unwrap();
    let saved = folder.join("saved");
    array.checkpoint(&saved).unwrap();
    let snapshot = array.snapshot().unwrap();
    let large: Vec<_> = (0..8).map(|_| Array::builder().cache_bytes(1 << 20).build(LARGE, 1u64).unwrap()).collect();
    let mut full = all_slots();
    println!("{} slots were free", full.len());
    full.truncate(full.len() - 20);

    let mut users = Vec::new();
    for place in rack().places() {
        for number in 0..USERS {
            let (array, seed) = (array.clone(), rng.u64(..));
            let folder = if place == gossamer::here() && number == 0 { Some(folder.join("lost")) } else { None };
            let user = move |folder: Option<PathBuf>| -> () {
                let mut rng = Rng::with_seed(seed);
                loop {
                    use_once(&array, &mut rng, folder.as_deref());
                }
            };
            users.push((place, gossamer::spawn_with(place, user, folder)));
        }
    }
    let makers: Vec<_> = rack()
        .places()
        .map(|place| (place, gossamer::spawn_with(place, move |saved: PathBuf| make(victim, &saved), saved.clone())))
        .collect();
    let process = rack().machines()[usize::from(victim)].process;
    let killer = thread::spawn(move || {
        thread::sleep(wait);
        kill_process(Pid::from_raw(process as i32).expect("a process"), Signal::KILL).expect("it lives");
        Instant::now()
    });

    for (place, user) in users {
        let panic = user.join().unwrap_err();
        if place.machine == victim {
            assert!(panic.is::<gossamer::Error>(), "{place}");
        } else {
            assert_names(text(&*panic), victim);
        }
    }
    for (place, maker) in makers {
        assert!(maker.join().is_ok() || place.machine == victim, "{place}");
    }
    let killed = killer.join().unwrap();
    assert!(killed.elapsed() < HANG);
    println!("all have ended {} ms after the kill", killed.elapsed().as_millis());

    assert_each_call_panics(&array, victim);
    for element in &*snapshot.slice() {
        assert_valid(*element);
    }
    assert_memory_is_free(large, before + 64 * MIB, victim);
    drop(full);
    assert_living_make_arrays(victim, &saved);
    println!("the living have arrays");
}

/// Returns a value of which chance and zeroed memory have none.
fn valid(number: u32) -> u64 {
    u64::from(number) | u64::from(!number) << 32
}

#[track_caller]
fn assert_valid(value: u64) {
    assert_eq!((value >> 32) as u32, !(value as u32), "{value:x} was never written");
}

#[track_caller]
fn assert_names(why: &str, victim: u16) {
    assert!(
        why.contains(&format!("the array is poisoned: machine {victim}, which had a part of it, was lost")),
        "{why}"
    );
    assert!(why.contains("Array::restore"), "{why}");
}

/// Makes one call, chosen at random, and checks the elements that it finds.
fn use_once(array: &Array<u64>, rng: &mut Rng, folder: Option<&Path>) {
    let i = rng.usize(..ELEMENTS);
    let range = i..(i + rng.usize(1..2000)).min(ELEMENTS);
    let new = valid(rng.u32(..));
    let at: Vec<usize> = (0..50).map(|_| rng.usize(..ELEMENTS)).collect();
    let all_valid = |elements: &[u64]| elements.iter().for_each(|element| assert_valid(*element));
    match rng.u32(..if folder.is_some() { 27 } else { 25 }) {
        0 => assert_valid(array.get(i)),
        1 => array.set(i, new),
        2 => array.apply(i, Max, new),
        3 => assert_valid(array.update(i, move |value| std::mem::replace(value, new))),
        4 => array.update_then(i, move |value| std::mem::replace(value, new), assert_valid),
        5 => all_valid(&array.view(range)),
        6 => array.views(range).for_each(|view| all_valid(&view)),
        7 => array.modify(range, |_, elements| elements.iter_mut().for_each(|element| *element = new)),
        8 => array.combine(range, Max, |_, mut chunk| chunk.range().for_each(|i| chunk.apply(i, new))),
        9 => {
            let mut got = [new; 50];
            array.gather(&at, &mut got);
            all_valid(&got);
        }
        10 => array.scatter(&at, &[new; 50]),
        11 => array.apply_all(Max, at.into_iter().map(|i| (i, new))),
        12 => {
            let mut copied = vec![0; range.len()];
            array.copy_to(range.start, &mut copied);
            all_valid(&copied);
        }
        13 => array.copy_from(range.start, &vec![new; range.len()]),
        14 => assert_valid(array.reduce(range, Max)),
        15 => {
            let own = array.clone();
            drop(array.on_owners(move |owned| own.views(owned).map(|view| view[0]).max()));
        }
        16 => drop(array.on_owners_with(|owned, name: String| format!("{name} {}", owned.len()), "owner".to_owned())),
        17 => all_valid(&array.snapshot().unwrap().slice()),
        18 => assert_valid(array.read_lock(i).get()),
        19 => {
            let lock = array.write_lock(i);
            assert_valid(lock.get());
            lock.set(new);
        }
        20 => drop(array.try_read_lock(i)),
        21 => drop(array.try_write_lock(i)),
        22 => array.prefetch(range),
        23 => drop(array.try_get(i).map(assert_valid)),
        24 => _ = array.stats(),
        25 => array.checkpoint(folder.expect("it has one")).unwrap(),
        _ => array.fill(new),
    }
    gossamer::yield_now();
}

/// Makes and restores arrays until a machine is lost, and one of each after that.
fn make(victim: u16, saved: &Path) {
    loop {
        let is_last = rack().is_lost(victim);
        let made = Array::<u64>::builder().cache_bytes(1 << 16).build(ELEMENTS, 5);
        let restored = Array::<u64>::builder().cache_bytes(1 << 16).restore(saved);
        for (made, element) in [(made, 5), (restored, valid(0))] {
            match made {
                Ok(array) => {
                    // Lost just now, or whole.
                    let is_whole = move || array.views(0..ELEMENTS).all(|view| view.iter().all(|at| *at == element));
                    assert!(gossamer::spawn(is_whole).join().unwrap_or(!is_last), "{element}");
                }
                // All slots are taken, until those of the lost arrays are free.
                Err(Error::Arrays { .. }) => {}
                Err(Error::Lost { machine }) => assert_eq!((machine, is_last), (victim, false)),
                Err(error) => panic!("{error}"),
            }
        }
        if is_last {
            return;
        }
    }
}

/// All calls of an array.
const CALLS: [fn(&Array<u64>); 26] = [
    |array| _ = array.get(0),
    |array| _ = array.try_get(ELEMENTS - 1),
    |array| array.set(7, 1),
    |array| array.apply(7, Max, 1),
    |array| array.update(ELEMENTS - 1, |_| ()),
    |array| array.update_then(7, |_| (), |()| ()),
    |array| drop(array.view(0..5)),
    |array| _ = array.views(0..5).count(),
    |array| array.modify(0..5, |_, _| ()),
    |array| array.combine(0..5, Max, |_, _| ()),
    |array| array.gather(&[1], &mut [0]),
    |array| array.scatter(&[1], &[0]),
    |array| array.apply_all(Max, [(1, 1)]),
    |array| array.copy_to(0, &mut [0]),
    |array| array.copy_from(0, &[0]),
    |array| _ = array.reduce(0..5, Max),
    |array| drop(array.on_owners(|_| ())),
    |array| drop(array.on_owners_with(|_, ()| (), ())),
    |array| drop(array.snapshot()),
    |array| drop(array.read_lock(0)),
    |array| drop(array.try_write_lock(ELEMENTS - 1)),
    |array| _ = array.stats(),
    |array| drop(array.checkpoint("never made")),
    |array| array.fill(1),
    |array| _ = array.owner(0),
    |array| _ = array.owned(Place::of(0, 0)),
];

/// All calls of an array end by the loss, everywhere, also on threads that are no places and in delegated context.
fn assert_each_call_panics(array: &Array<u64>, victim: u16) {
    let panics = move |array: &Array<u64>| {
        for call in CALLS {
            let own = array.clone();
            assert_names(text(&*gossamer::spawn(move || call(&own)).join().unwrap_err()), victim);
        }
    };
    let own = array.clone();
    for place in rack().living() {
        let own = own.clone();
        gossamer::spawn_on(place, move || panics(&own)).join().unwrap();
    }
    let local = trust::local_trustee().entrust(array.clone());
    let refused = local.call().apply(|array| array.try_get(5)).wait().unwrap_err().to_string();
    assert_names(&refused, victim);
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    let of_thread = thread::spawn(move || {
        for (number, call) in CALLS.iter().enumerate() {
            let panic = catch_unwind(AssertUnwindSafe(|| call(&own))).unwrap_err();
            let why = text(&*panic).to_owned();
            assert!(why.contains("was lost") || why.contains("in a fiber"), "{number}: {why}");
        }
        IS_DONE.store(true, Ordering::Release); // Acquire: below
    });
    while !IS_DONE.load(Ordering::Acquire) && !of_thread.is_finished() {
        gossamer::sleep(Duration::from_millis(1));
    }
    of_thread.join().unwrap();
}

/// Takes all slots that are free.
fn all_slots() -> Vec<Array<u8>> {
    let mut all = Vec::new();
    loop {
        match Array::builder().cache_bytes(0).build(10, 0u8) {
            Ok(array) => all.push(array),
            Err(Error::Arrays { .. }) => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Elements of an array of 64 MiB.
const LARGE: usize = 8 * MIB;
const MIB: usize = 1 << 20;

/// The memory of these arrays goes, many times what may be left, though their handles are there.
fn assert_memory_is_free(large: Vec<Array<u64>>, limit: usize, victim: u16) {
    let start = Instant::now();
    for place in rack().living().filter(|place| place.worker == 0) {
        while gossamer::spawn_on(place, resident_bytes).join().unwrap() > limit {
            let bytes = gossamer::spawn_on(place, resident_bytes).join().unwrap();
            assert!(start.elapsed() < HANG, "{place} keeps the memory of arrays that are lost: {bytes} of {limit}");
            gossamer::sleep(Duration::from_millis(5));
        }
    }
    for array in large {
        let panic = gossamer::spawn(move || array.get(LARGE - 1)).join().unwrap_err();
        assert_names(text(&*panic), victim);
    }
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

fn ranges_of(array: &Array<u64>) -> Vec<(Place, Range<usize>)> {
    rack().places().flat_map(|place| array.owned(place).map(move |range| (place, range))).collect()
}

/// New arrays have their parts on the living machines, and work.
fn assert_living_make_arrays(victim: u16, saved: &Path) {
    let machines = rack().machines().len();
    let is_living = |place: &Place| place.machine != victim;
    let even = Array::new(ELEMENTS, valid(1)).unwrap();
    let cyclic = Array::<u64>::builder().cyclic().build(ELEMENTS, valid(1)).unwrap();
    let restored = Array::<u64>::restore(saved).unwrap();
    let halves: Vec<usize> = (0..machines).map(|machine| if machine == 0 { 0 } else { ELEMENTS }).collect();
    let first = Array::<u64>::builder().starts(&halves).build(ELEMENTS, valid(1)).unwrap();
    for array in [&even, &cyclic, &restored, &first] {
        let ranges = ranges_of(array);
        assert!(ranges.iter().all(|(place, _)| is_living(place)), "{ranges:?}");
        assert_eq!(ranges.iter().map(|(_, range)| range.len()).sum::<usize>(), ELEMENTS);
        assert!(ranges.iter().all(|(place, range)| array.owner(range.start) == *place));
        let own = array.clone();
        let of_places = array.on_owners(move |owned| {
            own.modify(0..ELEMENTS / 2, |_, elements| elements.iter_mut().for_each(|element| *element |= 1 << 63));
            for i in owned.flatten() {
                own.set(i, valid(i as u32));
            }
            owned.len()
        });
        assert_eq!(of_places.len(), rack().living().count());
        assert_eq!(of_places.into_iter().sum::<usize>(), ELEMENTS);
        let snapshot = array.snapshot().unwrap();
        // `modify` of others may have come last.
        let is_one = |(i, element): (usize, &u64)| *element & !(1 << 63) == valid(i as u32) & !(1 << 63);
        assert!(snapshot.slice().iter().enumerate().all(is_one));
        array.fill(valid(9));
        let handles: Vec<JoinHandle<()>> = rack()
            .living()
            .map(|place| {
                let own = array.clone();
                gossamer::spawn_on(place, move || {
                    for i in (0..ELEMENTS).step_by(97) {
                        let lock = own.write_lock(i);
                        lock.set(lock.get() + 1);
                        own.update(i, |element| *element += 1);
                    }
                })
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        let added = 2 * rack().living().count() as u64;
        let sum = array.views(0..ELEMENTS).map(|view| view.iter().map(|e| e - valid(9)).sum::<u64>()).sum::<u64>();
        assert_eq!(sum, ELEMENTS.div_ceil(97) as u64 * added);
    }
    // A split that names the lost machine.
    let starts: Vec<usize> = (0..machines).map(|machine| machine * 512).collect();
    let refused = Array::<u64>::builder().starts(&starts).build(ELEMENTS, 0).unwrap_err();
    let words = format!("machine {victim} is lost, and would own the elements from {}", starts[usize::from(victim)]);
    assert!(matches!(&refused, Error::Partition { what } if what.contains(&words)), "{refused}");
}
