//! Trusts that travel, and properties that end when the last of them does.

use std::time::Duration;

use gossamer::{Place, Trust};

use crate::remote;

/// Counts its drop in a counter, which may be on another machine.
struct Witness {
    dropped: Trust<u64>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.dropped.apply_then(|dropped| *dropped += 1, |()| {});
    }
}

/// A property is dropped once, and not before its last trust, wherever that was.
pub fn trusts() {
    let dropped = gossamer::entrust(0u64);
    let places: Vec<Place> = gossamer::rack().places().collect();
    let mut expected = 0;
    for &home in &places {
        for &user in &places {
            let inner = dropped.clone();
            let witness: Trust<Witness> = gossamer::entrust_with(home, move || Witness { dropped: inner });
            // A trust kept in a property at another place, used from there, and dropped there.
            let given = witness.clone();
            let keeper: Trust<Vec<Trust<Witness>>> = gossamer::entrust_with(user, Vec::new);
            keeper.apply(move |kept| kept.push(given));
            drop(witness);
            let name = gossamer::spawn_on(user, {
                let keeper = keeper.clone();
                move || {
                    let trust = keeper.apply(|kept| kept[0].clone());
                    trust.apply(|_| gossamer::here().worker)
                }
            });
            assert_eq!(name.join().unwrap(), home.worker);
            assert_eq!(dropped.apply(|dropped| *dropped), expected, "a trust is left at {user}");
            keeper.apply(|kept| kept.clear());
            expected += 1;
            until(&dropped, expected);
        }
    }
    // A trust that is returned, passed on and dropped in a fiber of the last place.
    let inner = dropped.clone();
    let made = gossamer::spawn_on(remote(), move || gossamer::entrust(Witness { dropped: inner })).join().unwrap();
    let passed = made.clone();
    drop(made);
    gossamer::spawn_on(remote(), move || drop(passed)).join().unwrap();
    until(&dropped, expected + 1);
    travel_inside_values(&dropped, expected + 1);
    println!("dropped {}", dropped.apply(|dropped| *dropped));
}

/// Trusts inside arguments, results and entrusted values that travel serialised.
fn travel_inside_values(dropped: &Trust<u64>, before: u64) {
    let numbers: Vec<Trust<u64>> =
        gossamer::rack().places().map(|place| gossamer::entrust_on(place, u64::from(place.worker))).collect();
    let sum = numbers.iter().map(|number| number.apply(|n| *n)).sum::<u64>();
    // Entrusted: the value goes to its place as it is serialised, the trusts inside it too.
    let list: Trust<Vec<Trust<u64>>> = gossamer::entrust_on(remote(), numbers.clone());
    // A result with trusts, some of which come home, and an argument with the same.
    let (text, back) = list.apply_with(|list, text: String| (text + "!", list.clone()), "all".to_owned());
    assert_eq!((text.as_str(), back.iter().map(|number| number.apply(|n| *n)).sum::<u64>()), ("all!", sum));
    list.apply_with(|list, more: Vec<Option<Trust<u64>>>| list.extend(more.into_iter().flatten()), {
        back.into_iter().map(Some).chain([None]).collect()
    });
    assert_eq!(list.apply(|list| list.len()), 2 * numbers.len());
    // As an argument of a launched closure, used there.
    let latch = gossamer::entrust_with(remote(), || gossamer::Latch::new(0u64));
    let total = latch
        .call()
        .with(numbers)
        .launch(|total, numbers: Vec<Trust<u64>>| {
            *total = numbers.iter().map(|number| number.apply(|n| *n)).sum();
            (*total, numbers)
        })
        .wait()
        .unwrap();
    assert_eq!(total.0, sum);
    drop((list, total));
    // Neither lost nor kept on the way.
    let inner = dropped.clone();
    let witness: Trust<Witness> = gossamer::entrust_with(remote(), move || Witness { dropped: inner });
    let keeper: Trust<Vec<Trust<Witness>>> = gossamer::entrust_on(remote(), vec![witness.clone(), witness.clone()]);
    let returned = keeper.apply_with(|kept, given: Trust<Witness>| (kept.pop(), given), witness);
    assert_eq!(dropped.apply(|dropped| *dropped), before);
    keeper.apply(|kept| kept.clear());
    drop(returned);
    until(dropped, before + 1);
}

fn until(dropped: &Trust<u64>, expected: u64) {
    loop {
        let now = dropped.apply(|dropped| *dropped);
        assert!(now <= expected, "{now} dropped, {expected} expected");
        if now == expected {
            return;
        }
        gossamer::sleep(Duration::from_micros(100));
    }
}

/// Checks that every place is where it says, knows the same rack, and can be entrusted with things.
pub fn places() {
    let rack = gossamer::rack();
    println!("{rack}");
    assert_eq!(gossamer::here(), Place::of(0, 0));
    for place in rack.places() {
        let text = gossamer::entrust_on(place, format!("at {place}"));
        assert_eq!(text.apply_with(|text, ()| text.clone(), ()), format!("at {place}"));
        let seen = gossamer::spawn_on(place, || {
            let rack = gossamer::rack();
            (gossamer::here(), rack.machine(), rack.workers(), rack.machines().len())
        });
        assert_eq!(seen.join().unwrap(), (place, place.machine, rack.workers(), rack.machines().len()));
    }
    let elsewhere = rack.places().filter(|place| place.machine != 0).count();
    let stats = gossamer::rack_stats();
    assert!(stats.local > 0, "{stats:?}");
    assert_eq!(stats.remote > 0, elsewhere > 0, "{stats:?}");
}

/// Prints the starter of the program, and the transports from machine 0 to its machines.
pub fn starter() {
    let rack = gossamer::rack();
    let transports: Vec<String> = rack.machines().iter().map(|machine| machine.transport.to_string()).collect();
    println!("{} machines, started by {}: {}", rack.machines().len(), rack.starter(), transports.join(" "));
}

/// The last machine starts this program once more; that process is no machine of any program.
pub fn grandchild() {
    let start = |(): &mut ()| {
        let program = std::env::current_exe().unwrap();
        let said = std::process::Command::new(program).arg("starter").output().unwrap();
        String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr)
    };
    let said = gossamer::entrust_on(crate::remote(), ()).apply_with(move |unit, ()| start(unit), ());
    print!("{said}");
}

/// The last machine starts this program twice; the two meet at the port given by the second argument.
pub fn starts_others() {
    let start = |(): &mut ()| {
        let port = std::env::args().nth(2).unwrap();
        let start = |index: u16| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.arg("starter").env("GOSSAMER_MEET", format!("127.0.0.1:{port}")).env("GOSSAMER_COUNT", "2");
            command.env("GOSSAMER_INDEX", index.to_string()).stdout(std::process::Stdio::piped()).spawn().unwrap()
        };
        let all = [0, 1].map(start).map(|child| child.wait_with_output().unwrap());
        String::from_utf8(all[0].stdout.clone()).unwrap()
    };
    print!("{}", gossamer::entrust_on(crate::remote(), ()).apply_with(move |unit, ()| start(unit), ()));
}
