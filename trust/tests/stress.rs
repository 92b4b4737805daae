//! Everything at once, at random, for `STRESS_SECONDS` (5 unless set), from `STRESS_SEED` on (the time unless set). A
//! failure or a hang prints the seed of its round. `cargo dev stress` runs all of this file.

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{Counted, Drops, Server, join_and_serve, loud, serve_until};
use fastrand::Rng;
use trust::{JoinHandle, Latch, Shared, Threadpool, Trust, TrusteeReference};

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not `{text}`")))
}

#[test]
fn stress_everything_at_once() {
    let seconds = number("STRESS_SECONDS").unwrap_or(5);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    let first = number("STRESS_SEED").unwrap_or(now);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut round = 0;
    while round == 0 || Instant::now() < deadline {
        let seed = first.wrapping_add(round);
        let watch = watchdog!();
        watch.note(format!("STRESS_SEED={seed}"));
        let outcome = catch_unwind(AssertUnwindSafe(|| one_round(seed)));
        assert!(outcome.is_ok(), "stress failed with STRESS_SEED={seed}");
        round += 1;
    }
    loud(&format!("stress: {round} rounds from seed {first}"));
}

type Property = Counted<u64>;

/// State shared by the actors of a round.
#[derive(Clone)]
struct World {
    drops: Drops,
    made: Arc<AtomicUsize>,
    trustees: Vec<TrusteeReference>,
    shelf: Shared<Mutex<Vec<Trust<Property>>>>,
    latches: Vec<Trust<Latch<u64>>>,
    /// Sure additions, per latch.
    launched: Arc<Vec<AtomicUsize>>,
}

fn one_round(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let workers = 1 + random.usize(..4);
    let pool = Threadpool::builder()
        .workers(workers)
        .dedicated(if workers > 1 { random.usize(..2) } else { 0 })
        .spin(Duration::from_micros(random.u64(..30)))
        .pin(false)
        .build();
    let mortal = Server::start();
    let latches: Vec<_> = (0..3).map(|_| pool.entrust(Latch::new(0u64))).collect();
    let world = World {
        drops: Drops::default(),
        made: Arc::default(),
        trustees: pool.trustees().iter().copied().chain([mortal.trustee]).collect(),
        shelf: Shared::new(Mutex::default()),
        launched: Arc::new(latches.iter().map(|_| AtomicUsize::new(0)).collect()),
        latches: latches.clone(),
    };
    let actor = |number: u64| {
        let (world, random) = (world.clone(), Rng::with_seed(seed ^ (number << 48)));
        move || act(world, random)
    };
    let fibers: Vec<JoinHandle<()>> = (0..4 * workers as u64).map(|number| pool.spawn(actor(number))).collect();
    let threads: Vec<_> = (100..102).map(|number| thread::spawn(actor(number))).collect();
    actor(200)();
    // One trustee goes in the middle of it.
    mortal.end();
    actor(201)();
    threads.into_iter().for_each(join_and_serve);
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    let left = std::mem::take(&mut *world.shelf.lock().unwrap());
    drop(left);
    for (latch, launched) in latches.iter().zip(world.launched.iter()) {
        assert_eq!(latch.launch(|v| *v), launched.load(Ordering::SeqCst) as u64);
    }
    let (drops, made) = (world.drops.clone(), Arc::clone(&world.made));
    drop((latches, world));
    drop(pool);
    serve_until(|| drops.count() >= made.load(Ordering::SeqCst));
    assert_eq!(drops.count(), made.load(Ordering::SeqCst), "a property was dropped twice");
}

fn act(world: World, mut random: Rng) {
    let mut own: Vec<Trust<Property>> = Vec::new();
    let (asked, answered) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)));
    let steps = 50 + random.usize(..200);
    for _ in 0..steps {
        let pick = |random: &mut Rng, own: &[Trust<Property>]| own.get(random.usize(..own.len().max(1))).cloned();
        match random.usize(..16) {
            0 | 1 => {
                world.made.fetch_add(1, Ordering::SeqCst);
                let trustee = match random.usize(..world.trustees.len() + 1) {
                    0 => trust::local_trustee(),
                    other => world.trustees[other - 1],
                };
                own.push(trustee.entrust(world.drops.value(0)));
            }
            2 => {
                let given = pick(&mut random, &own);
                world.shelf.lock().unwrap().extend(given);
            }
            3 => {
                let taken = world.shelf.lock().unwrap().pop();
                own.extend(taken);
            }
            4 if !own.is_empty() => drop(own.swap_remove(random.usize(..own.len()))),
            5..=9 => {
                let Some(trust) = pick(&mut random, &own) else { continue };
                for _ in 0..random.usize(..100) {
                    ask(&trust, &asked, &answered, &mut random);
                }
            }
            10 => {
                if let Some(trust) = pick(&mut random, &own) {
                    let _ = trust.call().apply(|v| v.check()).wait();
                }
            }
            11 => {
                let number = random.usize(..world.latches.len());
                let (latch, next) = (&world.latches[number], pick(&mut random, &own));
                world.launched[number].fetch_add(1, Ordering::SeqCst);
                latch.launch(move |v| {
                    let before = *v;
                    if let Some(next) = next {
                        let _ = next.call().apply(|v| v.check()).wait();
                    }
                    assert_eq!(*v, before, "two have the value");
                    *v += 1;
                });
            }
            12 => {
                let number = random.usize(..world.latches.len());
                world.launched[number].fetch_add(1, Ordering::SeqCst);
                let noted = Rc::clone(&answered);
                asked.set(asked.get() + 1);
                world.latches[number].launch_then(
                    |v| {
                        trust::yield_now();
                        *v += 1;
                    },
                    move |()| noted.set(noted.get() + 1),
                );
            }
            13 => {
                let child = trust::spawn_on(&world.trustees[random.usize(..world.trustees.len() - 1)], || 7);
                assert_eq!(child.join().unwrap(), 7);
            }
            14 => trust::sleep(Duration::from_nanos(random.u64(..100_000))),
            _ => trust::yield_now(),
        }
    }
    while answered.get() < asked.get() {
        trust::yield_now();
        thread::yield_now();
    }
}

/// One request of a random kind, with a random size and a random end.
fn ask(trust: &Trust<Property>, asked: &Rc<Cell<u64>>, answered: &Rc<Cell<u64>>, random: &mut Rng) {
    let noted = Rc::clone(answered);
    let note = move || noted.set(noted.get() + 1);
    asked.set(asked.get() + 1);
    match random.usize(..8) {
        0 => {
            let padding = [random.u64(..); 40];
            trust
                .call()
                .apply(move |v| {
                    v.check();
                    padding
                })
                .then(move |outcome| {
                    assert!(outcome.is_err() || outcome.unwrap() == padding);
                    note();
                });
        }
        1 => {
            let inner = trust.clone();
            trust
                .call()
                .apply(move |v| {
                    v.check();
                    inner.call().apply(|v| v.value += 1).then(|_| ());
                })
                .then(move |_| note());
        }
        2 => {
            trust.call().apply(|_| std::panic::resume_unwind(Box::new("quietly"))).then(move |_: Result<(), _>| note());
            trust.clear_poison();
        }
        _ => trust.call().apply(|v| v.value += 1).then(move |_| note()),
    }
}
