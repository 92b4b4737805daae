//! Fibers everywhere.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use gossamer::Place;

use super::ground::{Gate, JoinOutcome, effort, places, remote, spots, text, until};

pub fn fibers_run_where_they_were_put() {
    let fibers: Vec<_> = places().into_iter().map(|place| (place, gossamer::spawn_on(place, gossamer::here))).collect();
    for (place, fiber) in fibers {
        assert_eq!(fiber.join().or_its_panic(), place);
    }
    let rack = gossamer::rack();
    for place in spots() {
        let seen = gossamer::spawn_on(place, || {
            let rack = gossamer::rack();
            (rack.machine(), rack.workers(), rack.machines().len())
        });
        assert_eq!(seen.join().or_its_panic(), (place.machine, rack.workers(), rack.machines().len()));
    }
    assert_eq!(gossamer::spawn(|| gossamer::here().machine).join().or_its_panic(), 0);
}

pub fn fibers_are_joined_from_anywhere() {
    let home = gossamer::here();
    let back = gossamer::spawn_on(remote(), move || {
        let there = gossamer::here();
        gossamer::spawn_on(home, move || (gossamer::here(), there)).join().or_its_panic()
    });
    assert_eq!(back.join().or_its_panic(), (home, remote()));
    // A tree of them, over all places.
    fn count(depth: u64) -> u64 {
        let places: Vec<Place> = gossamer::rack().places().collect();
        let child =
            |n: u64| gossamer::spawn_on(places[(depth * 2 + n) as usize % places.len()], move || count(depth - 1));
        if depth == 0 {
            return 1;
        }
        let children = [child(0), child(1)];
        1 + children.into_iter().map(|child| child.join().or_its_panic()).sum::<u64>()
    }
    assert_eq!(count(6), 127);
}

pub fn a_panic_of_a_fiber_reaches_who_joins_it() {
    for place in spots() {
        let fiber = gossamer::spawn_on(place, || -> u64 { panic!("{} at {}", "a fiber", gossamer::here()) });
        assert_eq!(text(&*fiber.join().unwrap_err()), format!("a fiber at {place}"));
        assert_eq!(gossamer::spawn_on(place, || 5).join().or_its_panic(), 5);
    }
}

pub fn ten_thousand_fibers() {
    let many = effort(10_000);
    let sum = gossamer::entrust_on(remote(), 0u64);
    let fibers: Vec<_> = (0..many)
        .map(|number| {
            let sum = sum.clone();
            gossamer::spawn(move || {
                sum.apply(move |sum| *sum += number);
                gossamer::yield_now();
                number
            })
        })
        .collect();
    for (number, fiber) in (0..).zip(fibers) {
        assert_eq!(fiber.join().or_its_panic(), number);
    }
    assert_eq!(sum.apply(|sum| *sum), many * (many - 1) / 2);
    // Hundreds of waiting fibers at once on another machine.
    let gate = Gate::at(remote());
    let fibers: Vec<_> = (0..300)
        .map(|_| {
            let gate = gate.clone();
            gossamer::spawn_on(remote(), move || gate.pass())
        })
        .collect();
    gate.gather(300);
    gate.open();
    fibers.into_iter().for_each(|fiber| fiber.join().or_its_panic());
}

pub fn sleepers_hold_nobody_up() {
    for place in spots() {
        let sleeper = gossamer::spawn_on(place, || {
            let from = Instant::now();
            gossamer::sleep(Duration::from_millis(20));
            from.elapsed() >= Duration::from_millis(20)
        });
        let number = gossamer::entrust_on(place, 0u64);
        (0..100).for_each(|_| number.apply(|n| *n += 1));
        assert!(sleeper.join().or_its_panic());
    }
}

pub fn fibers_outlive_their_handles() {
    for place in spots() {
        let done = gossamer::entrust_on(remote(), false);
        let tell = done.clone();
        drop(gossamer::spawn_on(place, move || {
            gossamer::yield_now();
            tell.apply(|done| *done = true);
        }));
        until(|| done.apply(|done| *done));
    }
    // On their own thread they may capture values of that thread.
    let own = Rc::new(Cell::new(1));
    let other = Rc::clone(&own);
    trust::spawn(move || other.set(2)).join().or_its_panic();
    assert_eq!(own.get(), 2);
}

pub fn fibers_take_and_give_what_holds_pointers() {
    for place in spots() {
        let count = gossamer::entrust_on(place, 0u64);
        let fibers = (0..20u64).map(|round| {
            let words: Vec<String> = (0..round * 50).map(|word| format!("word {word}")).collect();
            let count = count.clone();
            let run = move |words: Vec<String>| {
                gossamer::yield_now();
                count.apply(move |count| *count += round);
                (gossamer::here().to_string(), words.join(" "))
            };
            gossamer::spawn_with(place, run, words)
        });
        for (round, outcome) in gossamer::join_all(fibers).into_iter().enumerate() {
            let (there, text) = outcome.or_its_panic();
            assert_eq!((there, text.split("word").count()), (place.to_string(), round * 50 + 1));
        }
        assert_eq!(count.apply(|count| *count), 190);
        let panics = gossamer::spawn_with(place, |name: String| -> String { panic!("no {name}") }, "luck".to_owned());
        assert_eq!(text(&*panics.join().unwrap_err()), "no luck");
        // The fiber holds no value that others wait for, so it may take several.
        let both = [(); 2].map(|()| gossamer::entrust_with(place, || trust::Latch::new(3)));
        let sum = move |both: [gossamer::Trust<trust::Latch<i32>>; 2]| {
            trust::together([&both[0], &both[1]], |[a, b]| *a + *b)
        };
        assert_eq!(gossamer::spawn_with(place, sum, both).join().or_its_panic(), 6);
    }
}
