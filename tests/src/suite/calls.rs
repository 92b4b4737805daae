//! `entrust` and `apply`.

use std::collections::HashMap;

use gossamer::{Error, Place, Shared};

use super::ground::{JoinOutcome, effort, is_rack, places, remote, spots};

pub fn apply_gives_the_result() {
    for place in spots() {
        let number = gossamer::entrust_on(place, 17u64);
        assert_eq!(number.apply(|n| *n), 17);
        number.apply(|n| *n += 1);
        let step = 4;
        assert_eq!(
            number.apply(move |n| {
                *n += step;
                *n
            }),
            22
        );
        assert_eq!(number.call().apply(|n| *n).wait(), Ok(22));
    }
}

pub fn everyone_applies_to_everyone() {
    let numbers: Vec<_> = places().into_iter().map(|place| gossamer::entrust_on(place, 0u64)).collect();
    let mut fibers = Vec::new();
    for place in places() {
        for number in &numbers {
            let number = number.clone();
            fibers.push(gossamer::spawn_on(place, move || {
                for _ in 0..50 {
                    number.apply(|n| *n += 1);
                }
            }));
        }
    }
    fibers.into_iter().for_each(|fiber| fiber.join().or_its_panic());
    let expected = 50 * places().len() as u64;
    assert!(numbers.iter().all(|number| number.apply(|n| *n) == expected));
}

pub fn no_increment_is_lost() {
    const FIBERS: u64 = 8;
    let rounds = effort(300);
    let number = gossamer::entrust_on(remote(), 0u64);
    let mut fibers = Vec::new();
    for place in places() {
        for fiber in 0..FIBERS {
            let number = number.clone();
            fibers.push(gossamer::spawn_on(place, move || {
                for round in 0..rounds {
                    match (fiber + round) % 3 {
                        0 => number.apply(|n| *n += 1),
                        1 => number.apply_then(|n| *n += 1, |()| {}),
                        _ => number.clone().apply(|n| *n += 1),
                    }
                }
                number.apply(|_| {}); // all before it are done
            }));
        }
    }
    fibers.into_iter().for_each(|fiber| fiber.join().or_its_panic());
    assert_eq!(number.apply(|n| *n), FIBERS * rounds * places().len() as u64);
}

pub fn properties_live_where_they_were_put() {
    for place in places() {
        let text = gossamer::entrust_on(place, format!("at {place}"));
        assert_eq!(text.apply(|_| gossamer::here()), place);
        assert_eq!(text.apply_with(|text, ()| text.clone(), ()), format!("at {place}"));
        assert_eq!(text.trustee().id().machine(), place.machine);
    }
    let own = gossamer::entrust(1);
    assert_eq!(own.apply(|_| gossamer::here().machine), gossamer::here().machine);
}

pub fn what_cannot_travel_is_made_there() {
    for place in spots() {
        let table = gossamer::entrust_with(place, HashMap::<u64, std::rc::Rc<u64>>::new);
        table.apply(|table| table.extend((0..10).map(|n| (n, std::rc::Rc::new(n * n)))));
        assert_eq!(table.apply(|table| *table[&7]), 49);
    }
}

pub fn results_of_every_kind() {
    #[derive(Debug, PartialEq, Clone, Copy)]
    enum Kind {
        Plain,
        Pair(u8, u64),
        Named { wide: u128 },
    }
    for place in spots() {
        let t = gossamer::entrust_on(place, 9u64);
        t.apply(|_| ());
        assert_eq!(t.apply(|n| Some(*n).filter(|n| *n > 100)), None::<u64>);
        assert_eq!(t.apply(|n| (true, *n as u8, 'x', 1.5f64)), (true, 9, 'x', 1.5));
        assert_eq!(t.apply(|n| [*n; 5]), [9; 5]);
        let made = t.apply(|n| [Kind::Plain, Kind::Pair(1, *n), Kind::Named { wide: u128::MAX }]);
        assert_eq!(made, [Kind::Plain, Kind::Pair(1, 9), Kind::Named { wide: u128::MAX }]);
        assert_eq!(t.apply(|_| Err::<(), Kind>(Kind::Plain)), Err(Kind::Plain));
    }
}

pub fn counters_tell_local_from_remote() {
    let before = gossamer::rack_stats();
    let number = gossamer::entrust_on(remote(), 0u64);
    for _ in 0..100 {
        number.apply(|n| *n += 1);
    }
    let after = gossamer::rack_stats();
    let (local, remote) = (after.local - before.local, after.remote - before.remote);
    if is_rack() {
        assert!(remote >= 100, "{before:?} {after:?}");
    } else {
        assert!(local >= 100 && remote == 0, "{before:?} {after:?}");
    }
}

pub fn shared_values_stay_on_their_machine() {
    let words = Shared::new(vec!["to", "be"]);
    for place in places() {
        let number = gossamer::entrust_on(place, 0usize);
        let these = words.clone();
        let seen = number
            .call()
            .apply(move |n| {
                *n += these.len();
                *n
            })
            .wait();
        if place.machine == gossamer::here().machine {
            assert_eq!(seen, Ok(2));
        } else {
            let Err(Error::Panicked { panic, .. }) = seen else { panic!("{seen:?}") };
            assert!(panic.contains("this `Shared` value is on machine 0"), "{panic}");
        }
    }
    assert_eq!(*words, ["to", "be"], "and its owners there have not touched it");
    assert_eq!(gossamer::here(), Place::of(0, 0));
}
