//! The heap in programs that outlive a machine. Each role kills one itself.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use gossamer::sync::{Channel, Receiver};
use gossamer::{Error, JoinHandle, NoRef, Place, Transport, Trust, rack};
use gossamer_heap::{self as heap, Atomic, Bunch, Global, Lost, Mutex, Poisoned, Shared};
use rustix::process::{Pid, Signal, kill_process};

/// Numbers of an object: writing all takes a while.
const NUMBERS: usize = 1 << 10;

pub fn kill(machine: u16) {
    let process = rack().machines()[usize::from(machine)].process;
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// Kills a machine after some time, on a thread of its own.
fn kill_later(machine: u16, most_ms: u64) {
    let wait = Duration::from_millis(fastrand::u64(..most_ms));
    std::thread::spawn(move || {
        std::thread::sleep(wait);
        kill(machine);
    });
}

/// Receives each loss that this machine is told of.
pub fn losses() -> Receiver<u16> {
    let (tell, told) = Channel::new().at(gossamer::here()).open();
    tell.among(&[0]);
    gossamer::on_loss(move |loss| tell.post(loss.machine));
    told.among(&[0]);
    told
}

fn at<R: NoRef + Send + 'static>(place: Place, f: impl FnOnce() -> R + NoRef + Send + 'static) -> R {
    gossamer::spawn_on(place, f).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn is_far(machine: u16) -> bool {
    !matches!(rack().machines()[usize::from(machine)].transport, Transport::Here | Transport::Shm)
}

/// Returns whether a machine's memory is in one piece with another's: the object stays where it is when it is locked.
fn is_far_between(one: Place, other: u16) -> bool {
    at(one, move || is_far(other))
}

fn text(panic: &(dyn Any + Send)) -> String {
    gossamer::link::panic_text(panic)
}

#[track_caller]
fn panics_with_loss<R>(victim: u16, f: impl FnOnce() -> R) {
    let panic = catch_unwind(AssertUnwindSafe(f)).err().expect("it is lost");
    assert!(text(&*panic).contains(&format!("machine {victim} was lost")), "{}", text(&*panic));
}

pub fn until(done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < limits::HANG);
        gossamer::sleep(Duration::from_micros(200));
    }
}

/// Jobs read one table at all places; those of the lost machine run again elsewhere.
pub fn jobs() {
    let victim = fastrand::u16(1..rack().machines().len() as u16);
    let table = Shared::new([7u64; 4096]);
    let votes = gossamer::entrust_on(Place::of(victim, 0), 0u64);
    kill_later(victim, 60);
    let start = Instant::now();
    let (mut round, mut after) = (0, 0);
    while after < 3 {
        assert!(start.elapsed() < limits::HANG);
        after += u32::from(rack().is_lost(victim));
        let (mut todo, mut sum): (Vec<usize>, u64) = ((0..1000).collect(), 0);
        while !todo.is_empty() {
            let jobs: Vec<_> = todo
                .drain(..)
                .zip(rack().living().cycle())
                .map(|(n, place)| {
                    let table = table.clone();
                    (n, gossamer::spawn_on(place, move || table.read()[n] + n as u64))
                })
                .collect();
            todo.extend(jobs.into_iter().filter_map(|(n, job)| match job.join() {
                Ok(value) => {
                    sum += value;
                    None
                }
                Err(_) => Some(n),
            }));
        }
        assert_eq!(sum, 7000 + 999 * 500);
        round += 1;
    }
    assert!(matches!(votes.call().apply(|votes| *votes += 1).wait(), Err(Error::Gone { .. })));
    println!("all jobs in {round} rounds");
}

/// Counts its end, wherever that is.
struct Witness(Trust<u64>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.apply_then(|ended| *ended += 1, |()| {});
    }
}

/// Each kind of object and call, before and after a loss.
pub fn outcomes() {
    let victim = fastrand::u16(1..3);
    let (here, there, other) = (gossamer::here(), Place::of(victim, 0), Place::of(3 - victim, 0));
    let told = losses();
    let numbers = || Global::new([3u64; NUMBERS]);
    let (mut of_lost, of_living) = (at(there, numbers), at(other, numbers));
    assert_eq!((of_lost.read()[9], of_living.read()[9]), (3, 3), "also copies of both");
    let (slice, bunch) = at(there, || (heap::slice(100, |i| i), Bunch::new(5u64)));
    let shared = at(there, || Shared::new([5u64; 9]));
    let lies_here = numbers();
    let root_there = at(there, move || Shared::from(lies_here));
    let (atomic, lives) = (at(there, || Atomic::new(1)), Atomic::new(1));
    let kept = shared.read();

    // Mutexes: made there; locked there; locked and given back there; locked here.
    let at_lost = at(there, || Mutex::new([1u64; NUMBERS]));
    let [locked_there, was_there, locked_here] = [(); 3].map(|()| Mutex::new([1u64; NUMBERS]));
    let has_locked = gossamer::entrust(0u32);
    let (mutex, tell) = (locked_there.clone(), has_locked.clone());
    let holder = gossamer::spawn_on(there, move || {
        let mut guard = mutex.lock().unwrap();
        guard[0] = 2;
        tell.apply(|count| *count += 1);
        gossamer::sleep(Duration::MAX);
        drop(guard);
    });
    let mutex = was_there.clone();
    at(there, move || mutex.lock().unwrap()[1] = 2);
    until(|| has_locked.apply(|count| *count) == 1);
    let guard = locked_here.lock().unwrap();
    let waiter = |mutex: &Mutex<[u64; NUMBERS]>, place| {
        let mutex = mutex.clone();
        gossamer::spawn_on(place, move || mutex.lock_or_lost().map(|guard| guard.unwrap()[5]))
    };
    let of_the_lost = waiter(&locked_here, there);
    let waiting: Vec<_> = [here, other, Place::of(0, 1)].map(|place| waiter(&locked_there, place)).into();
    let in_line: Vec<_> = [other, here, other].map(|place| waiter(&locked_here, place)).into();
    let panics = {
        let mutex = locked_there.clone();
        gossamer::spawn_on(other, move || mutex.lock().is_ok())
    };

    // Scopes: with a fiber there, and one that ends long after the loss.
    let (read, mut written, mut lent_there) = (numbers(), numbers(), numbers());
    let (opened, ended) = (gossamer::entrust(false), gossamer::entrust(false));
    let (open, end) = (opened.clone(), ended.clone());
    let scoped = gossamer::spawn_on(here, move || {
        let outcome = heap::scope(|s| {
            let (read, mut written, mut lent) = (s.lend(&read), s.lend_mut(&mut written), s.lend_mut(&mut lent_there));
            let there = s.spawn_on(there, move || {
                lent.write()[0] = 4;
                gossamer::sleep(Duration::MAX);
            });
            s.spawn_on(other, move || {
                while !open.apply(|is_open| *is_open) {
                    gossamer::sleep(Duration::from_millis(1));
                }
                *written.write() = [4; NUMBERS];
                assert_eq!(read.read()[NUMBERS - 1], 3);
                end.apply(|ended| *ended = true);
            });
            there.join().map_err(|payload| payload.downcast_ref::<Error>().cloned())
        });
        assert_eq!(outcome.unwrap_err(), Some(Error::Lost { machine: victim }));
        assert!(ended.apply(|ended| *ended), "the fiber on a living machine has ended first");
        assert_eq!((written.read()[NUMBERS - 1], read.read()[0]), (4, 3), "the owners are here again");
        assert_eq!(lent_there.lost().map(|lost| lost.machine), Some(victim));
        panics_with_loss(victim, || drop(lent_there.read()));
        panics_with_loss(victim, || lent_there.write()[0]);
        assert!(matches!(lent_there.try_write(), Err(heap::Error::Lost(_))) && lent_there.try_read().is_none());
        let shared = Mutex::from(lent_there);
        assert!(shared.lock_or_lost().is_err() && shared.renew([5; NUMBERS]).is_ok());
        assert_eq!(shared.lock().unwrap()[0], 5);
    });
    let unjoined = gossamer::spawn_on(other, move || {
        heap::scope(|s| drop(s.spawn_on(there, || gossamer::sleep(Duration::MAX))));
    });
    // A fiber that borrows from another machine starts none at a third: here it would have to be waited for by nobody.
    let lends_on = catch_unwind(AssertUnwindSafe(|| {
        heap::scope(|s| {
            let fiber = s.spawn_on(other, move || heap::scope(|s| drop(s.spawn_on(here, || ()))));
            fiber.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        })
    }));
    let refused = lends_on.unwrap_err();
    assert!(text(&*refused).contains("borrows from another machine"), "{}", text(&*refused));
    let beside = Place::of(other.machine, 1);
    let nested = move || heap::scope(|s| s.spawn_on(beside, || 4).join().unwrap());
    assert_eq!(heap::scope(|s| s.spawn_on(other, nested).join()).unwrap(), 4);

    gossamer::sleep(Duration::from_millis(20));
    kill(victim);
    assert_eq!(told.recv(), Ok(victim));

    assert_eq!(*kept, [5; 9], "guards from before read on");
    panics_with_loss(victim, || drop(of_lost.read()));
    panics_with_loss(victim, || of_lost.write()[0]);
    panics_with_loss(victim, || of_lost.move_here());
    assert!(of_lost.read_or_lost().is_err() && of_lost.try_read().is_none() && of_lost.try_write_now().is_none());
    assert!(matches!(of_lost.try_write(), Err(heap::Error::Lost(Lost { machine, .. })) if machine == victim));
    of_lost.prefetch();
    assert_eq!((of_lost.place(), of_lost.lost().is_some(), of_living.lost()), (there, true, None));
    assert_eq!((of_living.read()[9], root_there.read()[9]), (3, 3));
    assert!(slice.read_or_lost().is_err() && bunch.read_or_lost().is_err() && shared.read_or_lost().is_err());
    panics_with_loss(victim, || drop(bunch.read()));
    assert!(bunch.lost().is_some() && shared.lost().is_some() && root_there.lost().is_none());
    panics_with_loss(victim, || atomic.load());
    assert!(atomic.lost().is_some() && atomic.apply_or_lost(|_| ()).is_err());
    assert_eq!((lives.fetch_add(1), lives.load()), (1, 2));
    let reads = shared.clone();
    at(other, move || assert!(reads.read_or_lost().is_err()));
    let ran = heap::spawn_to(slice, |slice| slice.read()[5]).join();
    assert!(matches!(ran.unwrap_err().downcast_ref(), Some(Error::Gone { .. })));
    panics_with_loss(victim, || of_lost.into_inner());

    let lost = |outcome: Result<u64, Lost>| assert_eq!(outcome.map_err(|lost| lost.machine), Err(victim));
    waiting.into_iter().for_each(|waiter| lost(waiter.join().unwrap()));
    assert!(text(&*panics.join().unwrap_err()).contains(&format!("machine {victim} was lost")));
    panics_with_loss(victim, || drop(locked_there.try_lock()));
    panics_with_loss(victim, || drop(at_lost.lock()));
    panics_with_loss(victim, || drop(at_lost.try_lock()));
    panics_with_loss(victim, || at_lost.clear_poison());
    assert!(at_lost.renew([0; NUMBERS]).is_err() && locked_here.renew([0; NUMBERS]).is_err());
    gossamer::sleep(Duration::from_millis(20));
    assert!(in_line.iter().all(|waiter| !waiter.is_finished()), "the loss of another machine gives it to nobody");
    drop(guard);
    in_line.into_iter().for_each(|waiter| assert_eq!(waiter.join().unwrap().unwrap(), 1));
    assert!(of_the_lost.join().is_err() && holder.join().is_err());
    // The object is there, if that machine's memory is not ours.
    match was_there.lock_or_lost() {
        Ok(guard) => assert_eq!((is_far_between(here, victim), guard.unwrap()[1]), (false, 2)),
        Err(_) => {
            assert!(is_far_between(here, victim));
            panics_with_loss(victim, || drop(was_there.lock()));
            was_there.renew([6; NUMBERS]).unwrap();
            assert_eq!(was_there.lock().unwrap()[1], 6);
        }
    }
    // The room of the object that was locked there may be free: others use it, and the mutex does not.
    let others: Vec<_> = (0..100).map(|_| numbers()).collect();
    lost(waiter(&locked_there, here).join().unwrap());
    let (renews, locks) = (locked_there.clone(), locked_there.clone());
    at(other, move || renews.renew([8; NUMBERS]).unwrap());
    assert!(locked_there.renew([9; NUMBERS]).is_err(), "once");
    at(other, move || locks.lock().unwrap()[0] += 1);
    assert_eq!(locked_there.lock().unwrap()[..2], [9, 8]);
    assert!(others.iter().all(|object| *object.read() == [3; NUMBERS]));

    opened.apply(|is_open| *is_open = true);
    scoped.join().unwrap();
    assert!(text(&*unjoined.join().unwrap_err()).contains("a fiber of a scope was lost"));

    // Owners in captures that go nowhere end at most once; those inside of objects that are dropped here, too.
    let ends = gossamer::entrust(0u64);
    let counted = ends.clone();
    let captured = Global::new(Witness(counted));
    assert!(gossamer::spawn_on(there, move || drop(captured)).join().is_err());
    let holds_lost = Global::new((shared.clone(), Some(Witness(ends.clone()))));
    drop(holds_lost);
    until(|| ends.apply(|ends| *ends) >= 1);
    for place in rack().living() {
        at(place, || {
            let objects: Vec<_> = (0..1000).map(|i| Global::new([i; 16])).collect();
            assert!(objects.iter().zip(0..).all(|(object, i)| *object.read() == [i; 16]));
        });
    }
    drop((shared, bunch, atomic, at_lost));
    let before = at(other, || heap::stats().objects);
    drop(of_living);
    until(|| at(other, || heap::stats().objects) < before);
    assert!(ends.apply(|ends| *ends) <= 2);
    println!("all outcomes");
}

/// The objects of the storm.
struct World {
    locks: [Mutex<[u64; NUMBERS]>; 6],
    counts: [Atomic; 3],
    tables: [Shared<[u64; NUMBERS]>; 3],
}

/// Tells that the storm is over.
#[derive(Clone)]
struct Over(Trust<bool>);

/// The value of all its numbers.
#[track_caller]
fn whole(numbers: &[u64; NUMBERS]) -> u64 {
    assert!(numbers.iter().all(|number| *number == numbers[0]), "torn: {} .. {}", numbers[0], numbers[NUMBERS - 1]);
    numbers[0]
}

/// Runs `f`, of which a panic may only tell of a loss.
fn or_lost<R>(f: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(panic) => {
            assert!(text(&*panic).contains("was lost"), "{}", text(&*panic));
            None
        }
    }
}

fn joined<R: 'static>(fiber: JoinHandle<R>, place: Place) -> Option<R> {
    match fiber.join() {
        Ok(value) => Some(value),
        Err(payload) => {
            let is_loss = matches!(payload.downcast_ref(), Some(Error::Lost { .. } | Error::Gone { .. }));
            assert!(is_loss && rack().is_lost(place.machine), "of {place}: {}", text(&*payload));
            None
        }
    }
}

/// The lock, also one of a machine that was lost, which is as it was before that.
fn locked<G>(lock: Result<G, Poisoned<G>>) -> G {
    lock.unwrap_or_else(|poisoned| poisoned.guard)
}

/// One of many fibers at all places. Returns its operations.
fn blow(world: Shared<World>, over: Over, seed: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut own = Some(Global::new([0; NUMBERS]));
    let mut made = 0;
    for round in 1.. {
        if over.0.apply(|over| *over) {
            return round;
        }
        let Ok(world) = world.read_or_lost() else { return round };
        let places: Vec<Place> = rack().places().collect();
        let place = places[random.usize(..places.len())];
        let value = random.u64(..);
        match random.u8(..8) {
            0 | 1 => {
                let mutex = &world.locks[random.usize(..world.locks.len())];
                match mutex.lock_or_lost() {
                    Ok(guard) => {
                        let mut guard = locked(guard);
                        whole(&guard);
                        *guard = [value; NUMBERS];
                    }
                    Err(_) => drop(mutex.renew([value; NUMBERS])),
                }
            }
            2 => {
                let mutex = &world.locks[random.usize(..world.locks.len())];
                or_lost(|| mutex.try_lock().map(locked).map(|guard| whole(&guard)));
            }
            3 => {
                let _ = world.counts[random.usize(..3)].apply_or_lost(|count| {
                    count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                });
            }
            4 => {
                let _ = world.tables[random.usize(..3)].read_or_lost().map(|table| whole(&table));
            }
            // An owner goes there and comes back.
            5 => {
                let mut object = own.take().unwrap_or_else(|| Global::new([value; NUMBERS]));
                let go = move || {
                    let before = object.try_write().ok().map(|mut object| {
                        let before = whole(&object);
                        *object = [value; NUMBERS];
                        before
                    });
                    before.map(|before| (before, object))
                };
                let came = joined(gossamer::spawn_on(place, go), place).flatten();
                own = came
                    .and_then(|(_, object)| object.read_or_lost().is_ok_and(|o| whole(&o) == value).then_some(object));
            }
            6 => {
                let mut written = Global::new([1; NUMBERS]);
                let read = Global::new([2; NUMBERS]);
                let have_run = or_lost(|| {
                    heap::scope(|s| {
                        let mut lent = s.lend_mut(&mut written);
                        s.spawn_on(place, move || *lent.write() = [value; NUMBERS]);
                        for place in &places {
                            let lent = s.lend(&read);
                            s.spawn_on(*place, move || assert_eq!(whole(&lent.read()), 2));
                        }
                    });
                });
                if let Ok(written) = written.read_or_lost() {
                    let before = have_run.is_none().then_some(1); // the fiber was not sent
                    assert!(Some(whole(&written)) == before || whole(&written) == value, "it came back from {place}");
                }
                assert_eq!(whole(&read.read()), 2);
            }
            _ => {
                made += 1;
                let objects: Vec<_> = (0..20).map(|i| Global::new([made + i; 40])).collect();
                assert!(objects.iter().zip(0..).all(|(object, i)| *object.read() == [made + i; 40]));
            }
        }
    }
    unreachable!("it is over before")
}

/// All kinds of objects are used from everywhere, when a machine is killed, and afterwards. Every value that is read
/// was written whole, and nothing hangs.
pub fn storm() {
    weather(false);
}

/// The same with copies: no lock is lost.
pub fn storm_with_copies() {
    weather(true);
}

fn weather(has_copies: bool) {
    let machines = rack().machines().len() as u16;
    let victim = fastrand::u16(1..machines);
    println!("the victim is machine {victim}");
    let told = losses();
    let place = |i: u16| Place::of(i % machines, 0);
    let part = |i: u16| at(place(i), || (Mutex::new([5; NUMBERS]), Atomic::new(0), Shared::new([6; NUMBERS])));
    let parts: Vec<_> = (0..6).map(part).collect();
    let world = Shared::new(World {
        locks: std::array::from_fn(|i| parts[i].0.clone()),
        counts: std::array::from_fn(|i| parts[i].1.clone()),
        tables: std::array::from_fn(|i| parts[i].2.clone()),
    });
    let over = Over(gossamer::entrust(false));
    let fibers: Vec<_> = rack()
        .places()
        .chain(rack().places())
        .map(|place| {
            let (world, over, seed) = (world.clone(), over.clone(), fastrand::u64(..));
            (place, gossamer::spawn_on(place, move || blow(world, over, seed)))
        })
        .collect();
    kill_later(victim, 300);
    assert_eq!(told.recv(), Ok(victim));
    gossamer::sleep(Duration::from_millis(300));
    over.0.apply(|over| *over = true);
    let asked = Instant::now();
    let rounds: u64 = fibers.into_iter().filter_map(|(place, fiber)| joined(fiber, place)).sum();
    assert!(asked.elapsed() < limits::bound(Duration::from_secs(10)), "{:?}", asked.elapsed());
    // Locks that were lost with their holder are renewed, all others are free and whole.
    for (at, lock) in (0..).zip(&world.read().locks) {
        match lock.lock_or_lost() {
            Ok(guard) => {
                let guard = locked(guard);
                whole(&guard);
            }
            Err(lost) => {
                assert!(!has_copies, "{lost}");
                assert_eq!(lost.machine, victim);
                let is_home_lost = place(at).machine == victim;
                assert_eq!(lock.renew([4; NUMBERS]).is_err(), is_home_lost);
                assert_eq!(lock.lock_or_lost().is_err(), is_home_lost);
            }
        }
    }
    for place in rack().living() {
        let objects = move || at(place, || heap::stats().objects);
        let before = objects();
        at(place, || drop((0..1000).map(Global::new).collect::<Vec<_>>()));
        until(|| objects() <= before);
    }
    println!("weathered {rounds} rounds");
}
