//! The heap with copies in programs that outlive machines: what has left a machine stays. Each role kills one itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use gossamer::{NoRef, Place, Trust, rack};
use gossamer_heap::{self as heap, Atomic, Bunch, ElementId, Global, Mutex, Shared};

use crate::heap_losses::{kill, losses, until};
use crate::writes::{self, Part};

/// Numbers of an object.
const NUMBERS: usize = 1 << 10;

fn at<R: NoRef + Send + 'static>(place: Place, f: impl FnOnce() -> R + NoRef + Send + 'static) -> R {
    gossamer::spawn_on(place, f).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Places on living machines other than 0.
fn others() -> Vec<Place> {
    rack().living().filter(|place| place.machine != 0).collect()
}

/// Counts its end, wherever that is.
struct Witness(Trust<u64>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.apply_then(|ended| *ended += 1, |()| {});
    }
}

/// Nodes of a list, each of which owns the next.
struct Node {
    value: u64,
    next: Option<Global<Node>>,
    _witness: Witness,
}

fn list(values: u64, ended: &Trust<u64>) -> Option<Global<Node>> {
    let mut first = None;
    for value in 0..values {
        first = Some(Global::new(Node { value, next: first, _witness: Witness(ended.clone()) }));
    }
    first
}

fn sum(list: &Option<Global<Node>>) -> u64 {
    let Some(first) = list else { return 0 };
    let node = first.read();
    node.value + sum(&node.next)
}

#[repr(align(256))]
struct Aligned([u8; 300]);

/// Each kind of object of a lost machine is there, as it was when it left.
pub fn outcomes() {
    let victim = fastrand::u16(1..rack().machines().len() as u16);
    let there = Place::of(victim, 1);
    let other = rack().places().find(|place| place.machine != 0 && place.machine != victim).unwrap();
    let told = losses();
    let ended = gossamer::entrust(0u64);
    let end = ended.clone();
    let (numbers, mut slice, text, bunch) = at(there, || {
        let mut bunch = Bunch::new(None::<ElementId<u64>>);
        for value in 0..100 {
            let id = bunch.write().add(value);
            *bunch.write() = Some(id);
        }
        (Global::new([3u64; NUMBERS]), heap::slice(100, |i| i), Global::from("a text"), bunch)
    });
    let (mut large, aligned) = at(there, || (heap::slice(3 << 20, |i| i as u64), Global::new(Aligned([9; 300]))));
    let (shared, atomic) = at(there, || (Shared::new([5u64; 9]), Atomic::new(1)));
    let (read, dropped, taken) = at(there, move || (list(50, &end), list(20, &end), list(10, &end)));
    // It goes back, is written there, and leaves again.
    let mut changed = at(there, || Global::new(1u64));
    for _ in 0..3 {
        changed = at(there, move || {
            *changed.write() += 1;
            changed
        });
    }
    // Written there by a fiber to which it was lent, and back.
    let mut lent = at(there, || Global::new([1u64; 100]));
    heap::scope(|s| {
        let mut lent = s.lend_mut(&mut lent);
        s.spawn_on(there, move || lent.write()[99] = 7);
    });
    // An owner in a trust elsewhere.
    let entrusted = at(there, move || {
        let number = Global::new(8u64);
        gossamer::entrust_with(other, move || trust::Latch::new(number))
    });
    let (mutex, mutex_there) = (Mutex::new([1u64; NUMBERS]), at(there, || Mutex::new(1u64)));
    let of_there = mutex.clone();
    at(there, move || of_there.lock().unwrap()[1] = 2);
    // Held there at the end: plain data is as it was at rest, data with owners is lost.
    let plain = Mutex::new([1u64; NUMBERS]);
    let with_owner = Mutex::from(Global::new(Some(Global::new(1u64))));
    let (is_held, hold) = (gossamer::entrust(false), (plain.clone(), with_owner.clone()));
    let held = is_held.clone();
    drop(gossamer::spawn_on(there, move || {
        hold.0.lock().unwrap()[0] = 2;
        let mut plain = hold.0.lock().unwrap();
        let owner = hold.1.lock().unwrap();
        plain.fill(3);
        held.apply(|is_held| *is_held = true);
        gossamer::sleep(Duration::MAX);
        drop((plain, owner));
    }));
    until(|| is_held.apply(|is_held| *is_held));
    let waiter = plain.clone();
    let waiting = gossamer::spawn_on(other, move || match waiter.lock() {
        Ok(_) => None,
        Err(poisoned) => Some((poisoned.guard[0], poisoned.guard[1])),
    });
    let forgotten = at(there, || {
        let mut object = Global::new(5u64);
        std::mem::forget(object.write());
        object
    });
    let saved = at(there, heap::stats);
    assert!(saved.saves > 80 && saved.unsaved == 0, "{saved:?}");

    kill(victim);
    assert_eq!(told.recv(), Ok(victim));
    assert_eq!((numbers.read()[NUMBERS - 1], numbers.lost(), slice.read()[99]), (3, None, 99));
    assert_eq!((&*text.read(), shared.read()[8], *changed.read(), lent.read()[99]), ("a text", 5, 4, 7));
    assert_eq!((large.read()[(3 << 20) - 1], aligned.read().0[299]), ((3 << 20) - 1, 9));
    assert_eq!(std::ptr::from_ref(&*aligned.read()).addr() % 256, 0);
    let view = bunch.read();
    assert_eq!((view.elements(), view.map_or(0, |id| view[id])), (100, 99));
    drop(view);
    assert_eq!(entrusted.launch(|object| *object.read()), 8);
    assert_eq!(sum(&read), 49 * 25);

    // From each place that lives; and written, after which it is of the writer's machine.
    for place in rack().living() {
        let table = shared.clone();
        assert_eq!(at(place, move || table.read()[0]), 5);
        slice = at(place, move || {
            assert_eq!(slice.read().len(), 100);
            slice.write()[0] += 1;
            assert_eq!(slice.place().machine, gossamer::here().machine);
            slice
        });
    }
    assert_eq!(slice.read()[0], rack().living().count());
    large.write()[7] = 1;
    assert_eq!((large.place().machine, large.read()[7], large.read()[8]), (0, 1, 8));
    let sum_there = heap::spawn_to(numbers, |numbers| numbers.read().iter().sum::<u64>()).join();
    assert_eq!(sum_there.unwrap(), 3 * NUMBERS as u64);

    // Destructors: of what was dropped, and of what was taken out.
    assert_eq!(ended.apply(|ended| *ended), 0);
    drop(dropped);
    until(|| ended.apply(|ended| *ended) == 20);
    let Node { next, value, .. } = taken.unwrap().into_inner();
    assert_eq!((value, sum(&next)), (9, 36));
    drop(next);
    until(|| ended.apply(|ended| *ended) == 30);
    drop(read);
    until(|| ended.apply(|ended| *ended) == 80);

    // Locked there last, and made there. Lost are numbers, and objects that nobody has ended to write.
    assert_eq!((mutex.lock().unwrap()[1], *mutex_there.lock().unwrap()), (2, 1));
    assert_eq!(waiting.join().unwrap(), Some((2, 1)), "as it was at rest");
    plain.clear_poison();
    assert_eq!(plain.lock().unwrap()[0], 2);
    assert!(with_owner.lock_or_lost().is_err() && with_owner.renew(None).is_ok() && atomic.lost().is_some());
    let lost = forgotten.read_or_lost().expect_err("nobody knows whether it is whole");
    assert_eq!((lost.machine, forgotten.try_read().is_none()), (victim, true));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(forgotten.read()))).is_err());
    println!("all outcomes with copies");
}

/// Objects of one driver, which go round: each with the value that all its numbers have.
struct Object {
    owner: Global<[u64]>,
    inner: Global<Option<Global<[u64; 4]>>>,
    value: u64,
}

impl Object {
    fn new(random: &mut fastrand::Rng) -> Object {
        let owner = heap::slice(1 << random.u32(0..14), |_| 0);
        Object { owner, inner: Global::new(None), value: 0 }
    }

    fn step(mut self) -> Object {
        self.value += 1;
        let value = self.value;
        match value % 3 {
            0 => *self.inner.write() = Some(Global::new([value; 4])),
            1 => *self.inner.write() = None,
            _ => self.inner.move_here(),
        }
        self.owner.write().fill(value);
        self
    }

    /// Checks that all is as it was when it came.
    fn check(&self) {
        let numbers = self.owner.read();
        assert!(numbers.iter().all(|one| *one == self.value), "{}: {:?}", self.value, &numbers[..1]);
        let inner = self.inner.read();
        let wanted = (self.value > 0 && self.value.is_multiple_of(3)).then_some(self.value);
        assert_eq!(inner.as_ref().map(|inner| *inner.read()), wanted.map(|value| [value; 4]), "{}", self.value);
    }
}

/// How a machine ends.
#[derive(Clone, Copy)]
enum End {
    /// It is killed after a random time.
    AtSomeTime,
    /// At the write to other machines that comes after so many, of which this part arrives.
    AtWrite(u64, Part),
}

impl End {
    /// Returns the end of which the program's arguments tell: the number of the write, and the part.
    fn told() -> End {
        let words: Vec<String> = std::env::args().skip(2).collect();
        let [write, part] = &words[..] else { panic!("WRITE nothing|half|all") };
        let part = match part.as_str() {
            "nothing" => Part::Nothing,
            "half" => Part::Half,
            "all" => Part::All,
            other => panic!("{other} of a write"),
        };
        End::AtWrite(write.parse().expect("a number"), part)
    }

    /// Has the machine end so, from now on.
    fn of(self, victim: u16) {
        match self {
            End::AtSomeTime => {
                let wait = Duration::from_millis(fastrand::u64(1..200));
                std::thread::spawn(move || {
                    std::thread::sleep(wait);
                    kill(victim);
                });
            }
            // Its answer may be the last write.
            End::AtWrite(write, part) => {
                drop(gossamer::spawn_on(Place::of(victim, 0), move || writes::end_at(write, part)))
            }
        }
    }
}

/// Owners go to random places, where their objects are written, and come back, when machines end, one after the other.
/// Each object whose owner is here is as it was when that came; only those whose owner was there are gone.
fn keep(kills: usize, end: End) {
    let machines = rack().machines().len() as u16;
    let mut victims: Vec<u16> = (1..machines).collect();
    fastrand::shuffle(&mut victims);
    victims.truncate(kills);
    println!("the victims are {victims:?}");
    let told = losses();
    let mut random = fastrand::Rng::new();
    let mut kept: Vec<Object> = (0..100).map(|_| Object::new(&mut random)).collect();
    let (mut gone, mut rounds) = (0, 0);
    for victim in victims {
        let start = Instant::now();
        end.of(victim);
        let mut after = 0;
        while after < 3 {
            assert!(start.elapsed() < limits::HANG);
            after += u32::from(rack().is_lost(victim));
            let places: Vec<Place> = rack().living().collect();
            let (out, stay): (Vec<Object>, Vec<Object>) = kept.into_iter().partition(|_| random.bool());
            let out: Vec<_> = out
                .into_iter()
                .map(|object| {
                    let place = places[random.usize(..places.len())];
                    (place, gossamer::spawn_on(place, move || object.step()))
                })
                .collect();
            stay.iter().for_each(Object::check);
            kept = stay;
            for (place, fiber) in out {
                match fiber.join() {
                    Ok(object) => kept.push(object),
                    Err(_) => {
                        assert_eq!(place.machine, victim);
                        gone += 1;
                    }
                }
            }
            rounds += 1;
        }
        assert_eq!(told.recv(), Ok(victim));
        kept.iter().for_each(Object::check);
        // From the other machines, too: all owners go there and back in one object.
        for place in others() {
            let mut here = kept.into_iter();
            let all = heap::slice(here.len(), |_| here.next());
            let mut all = at(place, move || {
                all.read().iter().flatten().for_each(Object::check);
                all
            });
            kept = all.write().iter_mut().filter_map(Option::take).collect();
        }
        // Each copy has a second place by then, and the next backup all that the one before had.
        for place in rack().living() {
            at(place, move || until(|| rack().is_lost(victim) && heap::stats().refills == 0));
        }
    }
    println!("kept {} of 100, {gone} owners were there, in {rounds} rounds", kept.len());
    assert_eq!(kept.len() + gone, 100);
}

/// Changes under mutexes at all places, each of which is acknowledged to machine 0 when its lock has ended. After a
/// loss each has the last one that was, or a later one.
fn put(end: End) {
    const MUTEXES: usize = 8;
    let machines = rack().machines().len() as u16;
    let victim = fastrand::u16(1..machines);
    println!("the victim is machine {victim}");
    let told = losses();
    let made = |i: usize| at(Place::of(i as u16 % machines, 0), || Mutex::new([0u64; 100]));
    let all: Shared<[Mutex<[u64; 100]>; MUTEXES]> = Shared::new(std::array::from_fn(made));
    let (acknowledged, over) = (gossamer::entrust([0u64; MUTEXES]), gossamer::entrust(false));
    let fibers: Vec<_> = rack()
        .places()
        .chain(rack().places())
        .map(|place| {
            let (all, acknowledged, over) = (all.clone(), acknowledged.clone(), over.clone());
            let mut random = fastrand::Rng::with_seed(fastrand::u64(..));
            let put = move || {
                let all = all.read();
                let mut count = 0u64;
                while !over.apply(|over| *over) {
                    let at = random.usize(..MUTEXES);
                    let mut numbers = all[at].lock().unwrap_or_else(|poisoned| poisoned.guard);
                    let value = numbers[0] + 1;
                    assert!(numbers.iter().all(|one| *one == numbers[0]));
                    numbers.fill(value);
                    drop(numbers);
                    acknowledged.apply(move |all| all[at] = all[at].max(value));
                    count += 1;
                }
                count
            };
            gossamer::spawn_on(place, put)
        })
        .collect();
    end.of(victim);
    assert_eq!(told.recv(), Ok(victim));
    gossamer::sleep(Duration::from_millis(100));
    over.apply(|over| *over = true);
    let puts: u64 = fibers.into_iter().filter_map(|fiber| fiber.join().ok()).sum();
    let acknowledged = acknowledged.apply(|all| *all);
    for (mutex, acknowledged) in all.read().iter().zip(acknowledged) {
        let numbers = mutex.lock().unwrap_or_else(|poisoned| poisoned.guard);
        assert!(numbers.iter().all(|one| *one == numbers[0]), "whole");
        assert!(numbers[0] >= acknowledged, "{acknowledged} was acknowledged, {} is there", numbers[0]);
    }
    println!("all acknowledged of {puts} and more are there");
}

pub fn puts() {
    put(End::AtSomeTime);
}

pub fn puts_until_write() {
    put(End::told());
}

pub fn keep_one() {
    keep(1, End::AtSomeTime);
}

pub fn keep_two() {
    keep(2, End::AtSomeTime);
}

pub fn keep_until_write() {
    keep(1, End::told());
}

/// A machine that has never used the heap has the copies of another one, and gives them on when that is lost.
pub fn idle_backup() {
    let mut sparse = at(Place::of(1, 0), || heap::slice(1 << 18, |i| u64::from(i == 7)));
    kill(1);
    until(|| rack().is_lost(1));
    gossamer::sleep(Duration::from_secs(1)); // a question would have it use the heap
    kill(2);
    until(|| rack().is_lost(2));
    assert!(sparse.read().iter().enumerate().all(|(i, number)| *number == u64::from(i == 7)));
    sparse.write()[8] = 1;
    assert_eq!((sparse.place().machine, sparse.read()[7]), (0, 1));
    println!("kept by two");
}
