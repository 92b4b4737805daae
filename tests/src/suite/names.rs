//! Trusts that are published by name.

use gossamer::{NameError, Promise, Trust, find, publish, spawn_on};

use super::ground::{JoinOutcome, Witness, ended, panic_of, places, remote, until};

/// Published here, found and used at every place; trusts that were found outlive the name.
pub fn names_are_found_everywhere() {
    let counter = gossamer::entrust(0u64);
    let published = publish("a counter", &counter).expect("it is free");
    assert_eq!(published.name(), "a counter");
    drop(counter);
    let add = || find::<u64>("a counter").expect("it is published").apply(|c| *c += 1);
    let fibers: Vec<_> = places().into_iter().map(|place| spawn_on(place, add)).collect();
    fibers.into_iter().for_each(|fiber| fiber.join().or_its_panic());
    let found: Trust<u64> = find("a counter").expect("it is published");
    drop(published);
    until(|| find::<u64>("a counter").is_err());
    assert_eq!(found.apply(|c| *c), places().len() as u64);
}

/// Published by a fiber of another machine, and withdrawn at its end; the name is free then.
pub fn names_of_other_machines_are_found_and_withdrawn() {
    let there = spawn_on(remote(), || {
        let (keep, wait) = gossamer::promise::<()>();
        let keep = gossamer::entrust(Some(keep));
        let gate = publish("a gate", &keep).expect("it is free");
        assert!(find::<Option<Promise<()>>>("a gate").is_ok());
        wait.wait().expect("it is opened");
        drop(gate);
    });
    until(|| find::<Option<Promise<()>>>("a gate").is_ok());
    let gate: Trust<Option<Promise<()>>> = find("a gate").expect("it was found");
    gate.apply(|gate| gate.take().expect("one opens it").keep(()));
    there.join().or_its_panic();
    until(|| find::<Option<Promise<()>>>("a gate").is_err());
    // Withdrawn and published again: the first publication's end does not take the second away.
    let dropped = gossamer::entrust(0u64);
    let first = publish("again", &dropped).expect("it is free");
    drop(first);
    until(|| find::<u64>("again").is_err());
    let second = publish("again", &gossamer::entrust(Witness(dropped.clone()))).expect("it is free again");
    assert!(find::<Witness>("again").is_ok());
    drop(second);
    ended(&dropped, 1);
}

pub fn wrong_names_are_told() {
    let number = gossamer::entrust_on(remote(), 7u64);
    let published = publish("seven", &number).expect("it is free");
    let taken = publish("seven", &gossamer::entrust("seven".len())).expect_err("it is taken");
    assert!(matches!(&taken, NameError::Taken { name, .. } if name == "seven"), "{taken}");
    assert!(taken.to_string().contains(&format!("`u64` at {}", remote())), "{taken}");
    let other = find::<u32>("seven").expect_err("it is a u64");
    assert_eq!(other.to_string(), "`seven` is a property of type `u64`, not `u32`: ask for a `Trust` of that type");
    let unknown = find::<u64>("eight").expect_err("there is none");
    assert!(unknown.to_string().contains("nothing is published as `eight`; there is `seven`"), "{unknown}");
    let inside = gossamer::entrust(0u64);
    let refused = panic_of(|| inside.apply(|_| drop(find::<u64>("seven"))));
    assert!(refused.contains("`find` waits, and nothing may wait inside"), "{refused}");
    drop(published);
    until(|| find::<u64>("seven").is_err());
}
