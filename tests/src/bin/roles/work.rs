//! Fibers everywhere.

use gossamer::Place;

use crate::{counters, far, text};

/// Fibers at every place, joined from here and from there, with results, panics and fibers of their own.
pub fn spawn() {
    let fibers: Vec<_> =
        gossamer::rack().places().map(|place| (place, gossamer::spawn_on(place, gossamer::here))).collect();
    for (place, fiber) in fibers {
        assert_eq!(fiber.join().unwrap(), place);
    }
    // There and back again: the far fiber starts one here and joins it.
    let home = gossamer::here();
    let back = gossamer::spawn_on(far(), move || {
        let there = gossamer::here();
        let fiber = gossamer::spawn_on(home, move || (gossamer::here(), there));
        fiber.join().unwrap()
    });
    assert_eq!(back.join().unwrap(), (home, far()));

    let panicking = gossamer::spawn_on(far(), || -> u64 { panic!("{} at {}", "a fiber", "the far end") });
    let panic = panicking.join().unwrap_err();
    assert_eq!(text(&*panic), "a fiber at the far end");

    // Fibers that wait for one another on different machines.
    let counter = gossamer::entrust_on(far(), 0u64);
    let waiting = {
        let counter = counter.clone();
        gossamer::spawn_on(Place::of(0, 0), move || {
            while counter.apply(|c| *c) == 0 {
                gossamer::yield_now();
            }
            counter.apply(|c| *c)
        })
    };
    gossamer::spawn_on(far(), move || counter.apply(|c| *c = 7)).join().unwrap();
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

/// Each machine prints so many lines, each with its number and a text whose bytes and length follow from it.
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
