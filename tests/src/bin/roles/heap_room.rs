//! Objects of a machine whose heap is nearly full: they are made on others. Run with `GOSSAMER_HEAP=8M`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gossamer::{Place, Trust, rack};
use gossamer_heap::{self as heap, Error, Global, Mutex, Shared};

use crate::heap_losses::until;

/// Numbers of a slice of 100 KB, a part of a piece; and of one that is sent in several.
const NUMBERS: usize = 12_500;
const MANY: usize = 200_000;
/// Numbers of one piece.
const PIECE: usize = 1 << 17;
/// Elements with a destructor, that are sent in several pieces.
const WITNESSES: usize = 60_000;

/// Counts its end, wherever that is; its length is no multiple of words.
struct Witness {
    ended: Trust<u64>,
    number: u32,
    rest: [u8; 3],
}

impl Witness {
    fn new(ended: &Trust<u64>, number: u32) -> Witness {
        Witness { ended: ended.clone(), number, rest: [number as u8; 3] }
    }

    fn is(&self, number: u32) -> bool {
        self.number == number && self.rest == [number as u8; 3]
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.ended.apply_then(|ended| *ended += 1, |()| {});
    }
}

/// Objects on each other machine, which reads none of this one's.
fn objects() -> Vec<u64> {
    let places = (1..rack().machines().len() as u16).map(|machine| Place::of(machine, 0));
    places.map(|place| gossamer::spawn_on(place, || heap::stats().objects).join().unwrap()).collect()
}

/// A machine makes more than its heap holds.
pub fn elsewhere() {
    let before = objects();
    let ended = gossamer::entrust(0u64);
    slices();
    values(&ended);
    let unwound = panics(&ended);
    until(|| ended.apply(|ended| *ended) == VALUES as u64 + unwound);
    waits_for_nobody();
    fills_all();
    until(|| objects() == before);
    println!("made elsewhere, and ended: {:?}", heap::stats().elsewhere);
}

/// Returns so many hundredths of the slices of 100 KB that a heap of this length holds.
fn most(hundredths: usize) -> usize {
    heap::stats().limit_bytes as usize * hundredths / 100 / (8 * NUMBERS)
}

/// The same of a few objects, where those that are made elsewhere have copies.
pub fn elsewhere_with_copies() {
    let (before, ended) = (objects(), gossamer::entrust(0u64));
    values(&ended);
    let unwound = panics(&ended);
    until(|| ended.apply(|ended| *ended) == VALUES as u64 + unwound);
    until(|| objects() == before);
    let there = gossamer::spawn_on(Place::of(1, 0), heap::stats).join().unwrap();
    assert!(there.saves > 0 && there.unsaved == 0, "{there:?}");
}

/// Slices of 100 KB, and one that is sent in several pieces.
fn slices() {
    let made_elsewhere = heap::stats().elsewhere;
    let slices: Vec<Global<[u64]>> = (0..most(100)).map(|n| heap::slice(NUMBERS, |i| (n * i) as u64)).collect();
    let mut long = heap::slice(MANY, |i| i as u64);
    let stats = heap::stats();
    assert!(stats.elsewhere > made_elsewhere && stats.used_bytes <= stats.limit_bytes / 10 * 9, "{stats:?}");
    assert!(slices.iter().any(|slice| slice.place().machine != gossamer::here().machine));
    for (n, slice) in slices.iter().enumerate() {
        assert!(slice.read().iter().enumerate().all(|(i, number)| *number == (n * i) as u64), "{n}");
    }
    assert_ne!(long.place().machine, gossamer::here().machine);
    drop(slices);
    assert!(long.read().iter().enumerate().all(|(i, number)| *number == i as u64));
    long.write()[MANY - 1] = 1;
    assert_eq!((long.read()[MANY - 2], long.read()[MANY - 1]), (MANY as u64 - 2, 1));
}

/// Makes slices until the first of them is elsewhere.
fn ballast() -> Vec<Global<[u64]>> {
    let made_elsewhere = heap::stats().elsewhere;
    let mut ballast = Vec::new();
    while heap::stats().elsewhere == made_elsewhere {
        assert!(ballast.len() <= most(100));
        ballast.push(heap::slice(NUMBERS, |i| i as u64));
    }
    ballast
}

/// Values of 2 KB, of each kind of owner.
const VALUES: usize = 600;
type Numbers = [u64; 250];

fn values(ended: &Trust<u64>) {
    let ballast = ballast();
    let value = |number: usize| (Witness::new(ended, number as u32), [number as u64; 250]);
    let owners: Vec<Global<(Witness, Numbers)>> = (0..VALUES).map(|number| Global::new(value(number))).collect();
    let far = owners.iter().filter(|owner| owner.place().machine != gossamer::here().machine).count();
    assert!(far > 0, "{:?}", heap::stats());
    for (number, owner) in owners.iter().enumerate() {
        let object = owner.read();
        assert!(object.0.is(number as u32) && object.1.iter().all(|one| *one == number as u64));
    }
    let shared = Shared::new([7u64; 250]);
    let mutex = Mutex::new([7u64; 250]);
    mutex.lock().unwrap()[1] = 8;
    let locked = mutex.lock().unwrap();
    assert_eq!((shared.read()[5], locked[1], locked[2]), (7, 8, 7));
    drop((locked, ballast));
}

/// A slice that ends in a panic: the elements that are made end once. Returns their number.
fn panics(ended: &Trust<u64>) -> u64 {
    let ballast = ballast();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        heap::slice(WITNESSES, |i| {
            assert!(i < WITNESSES / 2, "enough");
            Witness::new(ended, i as u32)
        })
    }));
    assert_eq!(unwound.unwrap_err().downcast_ref::<&str>(), Some(&"enough"));
    // Where nothing is left to be sent: at the first element, and behind one piece.
    for at in [0, PIECE] {
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            heap::slice(2 * PIECE, |i| {
                assert!(i < at, "at {at}");
                i as u64
            })
        }));
        assert!(unwound.is_err());
    }
    let piece = heap::slice(PIECE, |i| i as u64);
    // Where it lies: a copy has no room here.
    let is_right =
        heap::spawn_to(piece, |piece| piece.read().iter().enumerate().all(|(i, number)| *number == i as u64));
    assert!(is_right.join().unwrap());
    // The next one is whole: what the former had is free.
    let whole = heap::slice(WITNESSES / 2, |i| Witness::new(ended, i as u32));
    drop(ballast);
    assert!(whole.read().iter().enumerate().all(|(i, witness)| witness.is(i as u32)));
    WITNESSES as u64
}

/// Where nothing may wait, objects are made here, in what is left.
fn waits_for_nobody() {
    let ballast = ballast();
    let property = gossamer::local_trustee().entrust(Vec::<Global<[u64]>>::new());
    let made = property.apply(|owners| {
        let here = gossamer::here().machine;
        owners.extend((0..3).map(|_| heap::slice(NUMBERS, |i| i as u64)));
        owners.iter().all(|owner| owner.place().machine == here)
    });
    assert!(made && heap::stats().used_bytes > heap::stats().limit_bytes / 10 * 9, "{:?}", heap::stats());
    drop(ballast);
}

/// The heaps of all machines are filled, and then an error says so.
fn fills_all() {
    let mut all = Vec::new();
    let refused = loop {
        match heap::try_slice(NUMBERS, |i| i as u64) {
            Ok(slice) => all.push(slice),
            Err(error) => break error,
        }
    };
    let Error::Full { machine, limit, .. } = refused else { panic!("{refused}") };
    assert_eq!(machine, gossamer::here().machine);
    assert_eq!(limit, heap::stats().limit_bytes);
    let machines = rack().machines().len();
    assert!((machines * most(55)..=machines * most(100)).contains(&all.len()), "{} are there", all.len());
    let mut small = Vec::new();
    let refused = loop {
        match Global::try_new([small.len() as u64; 250]) {
            Ok(owner) => small.push(owner),
            Err(refused) => break refused.value,
        }
    };
    assert_eq!(refused, [small.len() as u64; 250]);
    assert!(small.iter().enumerate().all(|(n, owner)| owner.try_read().is_none_or(|object| object[0] == n as u64)));
    // One after the other is read: copies of them all have no room.
    drop(small);
    while let Some(slice) = all.pop() {
        assert!(slice.try_read().is_none_or(|slice| slice[NUMBERS - 1] == NUMBERS as u64 - 1));
    }
}
