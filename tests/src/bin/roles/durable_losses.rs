//! Durable trusts in programs that outlive a machine. The role kills one itself.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use gossamer::{JoinHandle, Place, Trust, rack};
use trust_durable::{Durable, Error};

use super::heap_losses::{kill, losses, until};

/// The same on every machine: no name can travel in a closure.
fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("durable-losses-{}-{name}", rack().machines()[0].process))
}

fn open(name: &str) -> Durable<u64> {
    Durable::<u64>::open(gossamer::local_trustee(), folder(name), |_| 0).unwrap()
}

fn joined<R: 'static>(fiber: JoinHandle<R>) -> R {
    fiber.join().unwrap_or_else(|panic| panic!("{}", gossamer::link::panic_text(&*panic)))
}

/// Each call on a pool of the lost machine has an outcome, also those that were answered and whose group was not on
/// disk yet. Those on pools of living machines have their results, and pools are opened meanwhile.
pub fn durable() {
    let (there, other) = (Place::of(2, 0), Place::of(1, 0));
    let told = losses();
    let (lost, lives) = (joined(gossamer::spawn_on(there, || open("lost"))), open("lives"));
    let over = gossamer::entrust(false);
    let calls = {
        let (lost, lives, over) = (lost.clone(), lives.clone(), over.clone());
        gossamer::spawn_on(other, move || calls(&lost, &lives, &over))
    };
    let opens = {
        let over = over.clone();
        let opens = move || {
            while !over.apply(|over| *over) {
                open("opened").close().unwrap();
            }
        };
        gossamer::spawn_on(Place::of(1, 1), opens)
    };
    gossamer::sleep(Duration::from_millis(fastrand::u64(..100)));
    kill(2);
    assert_eq!(told.recv(), Ok(2));
    gossamer::sleep(Duration::from_millis(50));
    over.apply(|over| *over = true);
    let (of_lost, of_lives) = joined(calls);
    joined(opens);
    assert_eq!(lives.apply(|count, _| *count), of_lives);
    lives.close().unwrap();
    // Its process has ended, so its folder is free: all that was acknowledged is there.
    let again = open("lost");
    let count = again.apply(|count, _| *count);
    assert!(count >= of_lost, "{of_lost} were acknowledged, and {count} are there");
    again.close().unwrap();
    for name in ["lost", "lives", "opened"] {
        let _ = std::fs::remove_dir_all(folder(name)); // it may not have been opened
    }
    println!("{of_lost} calls on a pool that was lost");
}

/// Makes calls, and waits for some, until it is over. Returns how many of each pool were acknowledged.
fn calls(lost: &Durable<u64>, lives: &Durable<u64>, over: &Trust<bool>) -> (u64, u64) {
    let outcomes: [Rc<Cell<u64>>; 3] = Default::default(); // of `lost`, of `lives`, and errors of `lost`
    let note = |outcome: &Result<(), Error>, of: usize| match outcome {
        Ok(()) => of,
        Err(Error::Gone) if of == 0 => 2,
        Err(other) => panic!("of pool {of}: {other}"),
    };
    let add = |count: &Cell<u64>| count.set(count.get() + 1);
    let mut made = 0;
    while !over.apply(|over| *over) {
        for (of, pool) in [lost, lives].into_iter().enumerate() {
            let counts = outcomes.clone();
            pool.call().apply(|count, _| *count += 1).then(move |outcome| add(&counts[note(&outcome, of)]));
            let outcome = pool.call().apply(|count, _| *count += 1).wait();
            add(&outcomes[note(&outcome, of)]);
            made += 2;
        }
    }
    until(|| outcomes.iter().map(|count| count.get()).sum::<u64>() == made);
    (outcomes[0].get(), outcomes[1].get())
}
