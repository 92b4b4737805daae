//! Fibers everywhere.

use std::time::Duration;

use gossamer::Place;

use crate::{counters, remote, text};

/// Fibers at every place, joined from here and from there, with results, panics and fibers of their own.
pub fn spawn() {
    let fibers: Vec<_> =
        gossamer::rack().places().map(|place| (place, gossamer::spawn_on(place, gossamer::here))).collect();
    for (place, fiber) in fibers {
        assert_eq!(fiber.join().unwrap(), place);
    }
    // There and back again: the remote fiber starts one here and joins it.
    let home = gossamer::here();
    let back = gossamer::spawn_on(remote(), move || {
        let there = gossamer::here();
        let fiber = gossamer::spawn_on(home, move || (gossamer::here(), there));
        fiber.join().unwrap()
    });
    assert_eq!(back.join().unwrap(), (home, remote()));

    let panicking = gossamer::spawn_on(remote(), || -> u64 { panic!("{} at {}", "a fiber", "the other end") });
    let panic = panicking.join().unwrap_err();
    assert_eq!(text(&*panic), "a fiber at the other end");

    // Fibers that wait for one another on different machines.
    let counter = gossamer::entrust_on(remote(), 0u64);
    let waiting = {
        let counter = counter.clone();
        gossamer::spawn_on(Place::of(0, 0), move || {
            while counter.apply(|c| *c) == 0 {
                gossamer::sleep(Duration::from_micros(100));
            }
            counter.apply(|c| *c)
        })
    };
    gossamer::spawn_on(remote(), move || counter.apply(|c| *c = 7)).join().unwrap();
    assert_eq!(waiting.join().unwrap(), 7);
}

/// Every worker is client of every trustee at the same time, in all ways at once.
pub fn everyone() {
    const FIBERS: u64 = 4;
    const ROUNDS: u64 = 400;
    let counters = counters();
    let places: Vec<Place> = gossamer::rack().places().collect();
    let mut fibers = Vec::new();
    for &place in &places {
        for counter in &counters {
            for fiber in 0..FIBERS {
                let counter = counter.clone();
                fibers.push(gossamer::spawn_on(place, move || {
                    let mut sum = 0;
                    for round in 0..ROUNDS {
                        match (round + fiber) % 4 {
                            0 => counter.apply(|c| *c += 1),
                            1 => counter.apply_then(|c| *c += 1, |()| {}),
                            2 => counter.clone().apply(|c| *c += 1),
                            _ => {
                                sum += counter.apply_with(
                                    |c, text: String| {
                                        *c += 1;
                                        text.len() as u64
                                    },
                                    "word".into(),
                                )
                            }
                        }
                    }
                    counter.apply(|_| {}); // the calls before it have been served
                    sum
                }));
            }
        }
    }
    for fiber in fibers {
        assert_eq!(fiber.join().unwrap(), ROUNDS);
    }
    let each = places.len() as u64 * FIBERS * ROUNDS;
    assert!(counters.iter().all(|counter| counter.apply(|c| *c) == each));
}

/// Every worker sends requests of 32 bytes to the workers of other machines as fast as it may; how many share a batch?
/// Prints the number of cores that the first worker may run on.
pub fn pinned() {
    println!("on {} cores", rustix::thread::sched_getaffinity(None).expect("the cores of this thread").count());
}

pub fn load() {
    const REQUESTS: u64 = 2000;
    let counters = counters();
    let places: Vec<Place> = gossamer::rack().places().collect();
    let sent = || {
        let all = places.iter().map(|&place| {
            let of_worker = || {
                let stats = trust::stats(trust::local_trustee()).unwrap_or_default();
                (stats.requests_sent_remote, stats.batches_sent)
            };
            gossamer::spawn_on(place, of_worker).join().unwrap()
        });
        all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    };
    let before = sent();
    let mut fibers = Vec::new();
    for &place in &places {
        for (there, counter) in places.iter().zip(&counters).filter(|(there, _)| there.machine != place.machine) {
            let (counter, start) = (counter.clone(), u64::from(there.worker));
            fibers.push(gossamer::spawn_on(place, move || {
                for round in 0..REQUESTS {
                    let values = [1, round, start, !round];
                    counter.apply_then(move |c| *c += values[0] + (values[1] & values[3]), |()| {});
                }
                counter.apply(|_| {}); // those before it have been served
            }));
        }
    }
    let clients = fibers.len() as u64;
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    let (after, served) = (sent(), counters.iter().map(|counter| counter.apply(|c| *c)).sum::<u64>());
    assert_eq!(served, clients * REQUESTS, "a request is lost, or was run twice");
    let (requests, batches) = (after.0 - before.0, after.1 - before.1);
    println!("{requests} requests to other machines in {batches} batches: {} a batch", requests / batches.max(1));
}

/// Each machine prints this many lines; the text of each, its bytes and length, follows from its number.
pub fn lines() {
    let lines: usize = std::env::args().nth(2).and_then(|count| count.parse().ok()).expect("how many");
    let print = move || {
        for number in 0..lines {
            let letter = char::from(b'a' + (number % 26) as u8);
            println!("{number} {}", String::from(letter).repeat(40 + number % 20));
        }
    };
    let firsts = gossamer::rack().places().filter(|place| place.worker == 0);
    let fibers: Vec<_> = firsts.map(|place| gossamer::spawn_on(place, print)).collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

/// On another machine a closure that takes fourteen seconds, one with a serialised argument that takes eight, and short
/// ones of which a batch takes as long.
pub fn long_closures() {
    fn pass(milliseconds: u64) {
        std::thread::sleep(Duration::from_millis(milliseconds));
    }
    let counter = gossamer::entrust_on(remote(), 0u64);
    counter.apply(|c| {
        pass(14_000);
        *c += 1;
    });
    counter.apply_with(
        |c, word: String| {
            pass(8_000);
            *c += word.len() as u64;
        },
        "one".to_owned(),
    );
    for _ in 0..80 {
        counter.apply_then(
            |c| {
                pass(100);
                *c += 1;
            },
            |()| {},
        );
    }
    gossamer::wait_all();
    assert_eq!(counter.apply(|c| *c), 84);
}

/// A closure that does not end, in a function that another one calls; the program has a handler of SIGURG, if it is
/// told to.
pub fn stuck() {
    #[inline(never)]
    fn turns_for_ever() {
        loop {
            std::hint::spin_loop();
        }
    }
    #[inline(never)]
    fn calls_the_loop() {
        turns_for_ever();
    }
    if std::env::args().nth(2).as_deref() == Some("handles") {
        trust::dump_on_signal(rustix::process::Signal::URG.as_raw()).unwrap();
    }
    println!("works");
    gossamer::entrust_on(remote(), 0u64).apply(|_| calls_the_loop());
}

/// Asks a trustee that takes 20 ms for each answer, until it is ended.
pub fn slow_answers() {
    let slow = gossamer::entrust_on(remote(), 0u64);
    println!("works");
    loop {
        slow.apply(|count| {
            std::thread::sleep(Duration::from_millis(20));
            *count += 1;
        });
    }
}
