//! Programs that outlive a machine.

use std::time::Duration;

use gossamer::sync::Channel;
use gossamer::{Error, Latch, Place, Trust, rack};

/// Time in which a machine that is lost might still do something.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// Count at which a machine ends.
const LAST: u64 = u64::MAX;

/// Each other machine counts at machine 0. When one is lost it counts no more, also if it still runs and
/// its host is reached again, while the others count on.
pub fn go_on() {
    let (tell, told) = Channel::new().at(gossamer::here()).open();
    tell.among(&[0]);
    gossamer::on_loss(move |loss| tell.post(loss.machine));
    let machines = 1..rack().machines().len() as u16;
    let counters: Vec<Trust<u64>> = machines
        .map(|machine| {
            let counter = gossamer::entrust(0u64);
            let counted = counter.clone();
            let once = |count: &mut u64| {
                *count = count.saturating_add(1);
                *count != LAST
            };
            let count = move || while counted.call().apply(once).wait() == Ok(true) {};
            drop(gossamer::spawn_on(Place::of(machine, 0), count));
            counter
        })
        .collect();
    let counts = || counters.iter().map(|counter| counter.apply(|count| *count)).collect::<Vec<u64>>();
    while counts().contains(&0) {
        gossamer::yield_now();
    }
    super::ends::tell_machines();
    println!("works");
    let lost = told.recv().unwrap();
    let before = counts();
    println!("went on without {lost}");
    gossamer::sleep(AFTERWARDS);
    for (machine, (before, after)) in (1..).zip(before.into_iter().zip(counts())) {
        assert_eq!(before == after, machine == lost, "machine {machine}: {before}, then {after}");
    }
    counters.iter().for_each(|counter| counter.apply(|count| *count = LAST));
    let there = gossamer::entrust_on(rack().living().last().unwrap(), 4);
    assert_eq!(there.apply(|four| *four), 4);
    println!("all others have counted on");
}

/// Kills the last machine, and uses the others.
pub fn lose_one() {
    let last = rack().machines().len() as u16 - 1;
    super::heap_losses::kill(last);
    super::heap_losses::until(|| rack().is_lost(last));
    rack().living().for_each(|place| gossamer::spawn_on(place, || ()).join().unwrap());
}

/// After a loss fibers of two living machines wait for each other: one of them is told.
pub fn wait_for_each_other() {
    lose_one();
    let places = [0, 1].map(|machine| Place::of(machine, 0));
    let values = places.map(|place| gossamer::entrust_with(place, || Latch::new(1u64)));
    let begun = gossamer::entrust(0);
    let fibers = [0, 1].map(|own| {
        let (mine, other, begun) = (values[own].clone(), values[1 - own].clone(), begun.clone());
        let cross = move |_: &mut u64| {
            begun.apply(|begun| *begun += 1);
            super::heap_losses::until(|| begun.apply(|begun| *begun) == 2);
            let outcome = other.call().launch(|value| *value).wait();
            assert!(matches!(outcome, Ok(1) | Err(Error::Deadlock { .. })), "{outcome:?}");
            outcome.is_ok()
        };
        gossamer::spawn_on(places[1 - own], move || mine.launch(cross))
    });
    let mut served = fibers.map(|fiber| fiber.join().unwrap());
    served.sort_unstable();
    assert_eq!(served, [false, true]);
    println!("one was told");
}
