//! Lifetime of properties, wherever their trusts go.

use std::collections::HashMap;

use gossamer::{Place, Trust};

use super::ground::{Gate, JoinOutcome, Witness, beside, effort, ended, places, remote, spots, until};

fn witness(place: Place, counter: &Trust<u64>) -> Trust<Witness> {
    let counter = counter.clone();
    gossamer::entrust_with(place, move || Witness(counter))
}

pub fn a_property_ends_once_after_its_last_trust() {
    let counter = gossamer::entrust(0u64);
    let mut expected = 0;
    for home in places() {
        for user in places() {
            let witness = witness(home, &counter);
            let given = witness.clone();
            let keeper: Trust<Vec<Trust<Witness>>> = gossamer::entrust_with(user, Vec::new);
            keeper.apply(move |kept| kept.push(given));
            drop(witness);
            let fiber = {
                let keeper = keeper.clone();
                gossamer::spawn_on(user, move || {
                    keeper.apply(|kept| kept[0].clone()).apply(|_| gossamer::here()) // a clone that ends over there
                })
            };
            assert_eq!(fiber.join().or_its_panic(), home);
            assert_eq!(counter.apply(|ended| *ended), expected, "a trust is left at {user}");
            keeper.apply(|kept| kept.clear());
            expected += 1;
            ended(&counter, expected);
        }
    }
}

/// Its trustee has much to do for this worker before it receives the property.
pub fn a_property_can_be_used_from_elsewhere_at_once() {
    let place = beside();
    for _ in 0..effort(50) {
        let busy = gossamer::entrust_on(place, 0u64);
        let queue = gossamer::entrust_on(gossamer::here(), busy.clone());
        queue.apply(|busy| (0..20_000).for_each(|_| busy.apply_then(|n| *n += 1, |()| {})));
        let fresh = gossamer::entrust_on(place, 7u64);
        let given = fresh.clone();
        assert_eq!(gossamer::spawn_on(remote(), move || given.apply(|v| *v)).join().or_its_panic(), 7);
        assert_eq!(fresh.apply(|v| *v), 7);
    }
}

pub fn a_property_ends_where_it_lived() {
    struct Sexton(Trust<Vec<Place>>);
    impl Drop for Sexton {
        fn drop(&mut self) {
            let place = gossamer::here();
            self.0.apply_then(move |graves| graves.push(place), |()| {});
        }
    }
    let graves = gossamer::entrust_with(remote(), Vec::<Place>::new);
    for (count, place) in (1..).zip(places()) {
        let list = graves.clone();
        let property = gossamer::entrust_with(place, move || Sexton(list));
        gossamer::spawn_on(remote(), move || drop(property)).join().or_its_panic();
        until(|| graves.apply(|graves| graves.len()) == count);
        assert_eq!(graves.apply(|graves| *graves.last().unwrap()), place);
    }
}

pub fn trusts_travel_in_captures() {
    let counter = gossamer::entrust(0u64);
    for place in spots() {
        let log = gossamer::entrust_on(place, Vec::<u64>::new());
        let inner = log.clone();
        // There, the captured trust is used, and used again by the closure that it sends.
        let outer = gossamer::entrust_on(remote(), 5u64);
        outer.apply(move |n| {
            let (n, twice) = (*n, inner.clone());
            inner.apply_then(move |log| log.push(n), move |()| twice.apply_then(|log| log.push(6), |()| {}));
        });
        until(|| log.apply(|log| log.len()) == 2);
        assert_eq!(log.apply(|log| (log[0], log[1])), (5, 6));
        let witness = witness(place, &counter);
        let many = [witness.clone(), witness.clone(), witness];
        assert!(outer.apply(move |_| many.len()) == 3);
    }
    ended(&counter, 3);
}

pub fn trusts_travel_in_results() {
    let counter = gossamer::entrust(0u64);
    for place in spots() {
        let inner = counter.clone();
        let made = gossamer::spawn_on(place, move || gossamer::entrust(Witness(inner))).join().or_its_panic();
        let shelf = gossamer::entrust_with(remote(), move || Some(made));
        let back = shelf.apply(|shelf| shelf.take()).expect("it was put there");
        let copies = [back.clone(), back.clone()];
        assert_eq!(back.apply(|_| gossamer::here().machine), place.machine);
        drop((copies, back));
    }
    ended(&counter, 3);
}

/// In arguments, results, promised values and channels, beside values that must be serialised.
pub fn trusts_travel_inside_serialised_values() {
    let counter = gossamer::entrust(0u64);
    for place in spots() {
        let names = gossamer::entrust_with(place, HashMap::<String, Trust<Witness>>::new);
        for name in ["one", "two"] {
            let entry = (name.to_owned(), witness(remote(), &counter));
            let put = |names: &mut HashMap<_, _>, (name, witness)| names.insert(name, witness).is_none();
            assert!(names.apply_with(put, entry));
        }
        let one = names.apply_with(|names, name: String| names.get(&name).cloned(), "one".to_owned()).unwrap();
        assert_eq!(one.apply(|_| gossamer::here()), remote());
        let (promise, kept) = gossamer::promise::<(String, Trust<Witness>)>();
        names.apply(move |names| promise.keep_with(names.remove_entry("two").unwrap()));
        let (name, two) = kept.wait().unwrap();
        assert_eq!(name, "two");
        let (sender, receiver) = gossamer::sync::Channel::new().at(place).open();
        let waiting = receiver.clone();
        let fiber = gossamer::spawn_on(remote(), move || {
            let (name, two): (String, Trust<Witness>) = waiting.recv().unwrap();
            (name.len(), two)
        });
        sender.send((name, two)).unwrap();
        let (len, two) = fiber.join().or_its_panic();
        assert_eq!((len, two.apply(|_| gossamer::here())), (3, remote()));
        // Unreceived values end as well.
        sender.post(("three".to_owned(), witness(place, &counter)));
        drop((names, receiver));
    }
    ended(&counter, 9);
}

pub fn trusts_travel_in_properties() {
    let counter = gossamer::entrust(0u64);
    // A property that holds trusts of properties everywhere, used from everywhere.
    let numbers: Vec<_> = places().into_iter().map(|place| gossamer::entrust_on(place, 1u64)).collect();
    for place in spots() {
        let directory = gossamer::entrust_with(place, Vec::<(Trust<u64>, Trust<Witness>)>::new);
        for number in &numbers {
            let entry = (number.clone(), witness(remote(), &counter));
            directory.apply(move |directory| directory.push(entry));
        }
        let reader = directory.clone();
        let sum = gossamer::spawn_on(remote(), move || {
            let len = reader.apply(|directory| directory.len());
            (0..len).map(|n| reader.apply(move |directory| directory[n].0.clone()).apply(|n| *n)).sum::<u64>()
        });
        assert_eq!(sum.join().or_its_panic(), numbers.len() as u64);
    }
    ended(&counter, 3 * numbers.len() as u64);
}

struct Link {
    _next: Option<Trust<Link>>,
    _witness: Witness,
}

/// Each holds the next, at another place; the first one's end is that of all.
pub fn chains_of_trusts_end_together() {
    const LENGTH: u64 = 30;
    let counter = gossamer::entrust(0u64);
    let mut first: Option<Trust<Link>> = None;
    for (_, place) in (0..LENGTH).zip(places().into_iter().cycle()) {
        let (next, counter) = (first.take(), counter.clone());
        first = Some(gossamer::entrust_with(place, move || Link { _next: next, _witness: Witness(counter) }));
    }
    assert_eq!(counter.apply(|ended| *ended), 0);
    drop(first);
    ended(&counter, LENGTH);
}

pub fn trusts_are_dropped_in_any_order() {
    let counter = gossamer::entrust(0u64);
    let places = places();
    let mut fibers = Vec::new();
    for round in 0..40usize {
        let witness = witness(places[round % places.len()], &counter);
        for user in 0..3 {
            let trust = witness.clone();
            let user = places[(round / 2 + user) % places.len()];
            fibers.push(gossamer::spawn_on(user, move || {
                let (second, third) = (trust.clone(), trust.clone());
                drop(trust);
                let fourth = second.clone();
                third.apply_then(|_| {}, |()| {});
                drop((second, third));
                fourth.apply(|_| {});
            }));
        }
    }
    fibers.into_iter().for_each(|fiber| fiber.join().or_its_panic());
    ended(&counter, 40);
}

pub fn trusts_are_dropped_inside_closures() {
    let counter = gossamer::entrust(0u64);
    for place in spots() {
        let other = gossamer::entrust_on(place, 0u64);
        let witness = witness(remote(), &counter);
        let (one, two) = (witness.clone(), witness.clone());
        other.apply(move |_| drop(one));
        other.apply_then(|_| {}, move |()| drop(two));
        // The last trust, of a property of the closure's own trustee and of another's.
        other.apply(move |_| drop(witness));
        let own = self::witness(place, &counter);
        other.apply(move |_| drop((own.clone(), own)));
        other.apply(|_| {});
    }
    ended(&counter, 6);
}

pub fn requests_under_way_keep_their_property() {
    let (counter, served) = (gossamer::entrust(0u64), gossamer::entrust(0u64));
    for place in spots() {
        for _ in 0..50 {
            let witness = witness(place, &counter);
            let served = served.clone();
            witness.apply_then(move |_| served.apply_then(|served| *served += 1, |()| {}), |()| {});
        }
    }
    ended(&counter, 150);
    until(|| served.apply(|served| *served) == 150);
}

/// The captures of a closure or a callback end once, whether it runs, panics or is refused.
pub fn captures_are_dropped_once() {
    let counter = gossamer::entrust(0u64);
    let gate = Gate::at(gossamer::here());
    for place in spots() {
        let there = gossamer::entrust_on(place, 0u64);
        let own = || Witness(counter.clone());
        let (a, b, c, d, e) = (own(), own(), own(), own(), own());
        there.apply(move |_| drop(a));
        assert!(
            there
                .call()
                .apply(move |_| if b.0.trustee().id().index() < 70_000 {
                    panic!("with its captures")
                })
                .wait()
                .is_err()
        );
        assert!(there.call().apply(move |_| drop(c)).wait().is_err(), "poisoned: it does not run");
        there.call().apply(|_| {}).then(move |outcome| drop((outcome, d)));
        there.clear_poison();
        let waits = gate.clone();
        let fiber = gossamer::spawn_on(place, move || {
            waits.pass();
            drop(e);
        });
        gate.gather(1);
        gate.open();
        fiber.join().or_its_panic();
        there.apply(|_| {});
    }
    ended(&counter, 15);
}
