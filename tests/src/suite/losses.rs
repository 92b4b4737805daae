//! A behaviour in a program that outlives the loss of a machine, which comes at some moment of it. It holds all the
//! same, or ends with an error or panic that names the loss (`tests/suite/losses.rs` judges); the others serve on.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use gossamer::Place;
use rustix::process::{Pid, Signal, kill_process};

use super::ground::until;
use super::{ALL, run_one, say};

/// Beginnings of the names of behaviours for which such a program is refused: regions have memory of all machines.
pub const REFUSED: &[&str] = &["region_"];

/// Runs the behaviour of this name, and kills the process of a machine so long after its begin, unless it has ended
/// before. False if the behaviour did not hold.
pub fn run(name: &str, machine: u16, after: Duration) -> bool {
    let behaviour = ALL.iter().find(|behaviour| behaviour.name == name).expect("a behaviour of this name");
    let rack = gossamer::rack();
    let pids: Vec<String> = rack.machines().iter().map(|machine| machine.process.to_string()).collect();
    say(format_args!("processes {}", pids.join(" ")));
    let victim = rack.machines()[usize::from(machine)].process;
    let (over, is_over) = mpsc::channel();
    let kill = move || {
        let is_time = is_over.recv_timeout(after) == Err(RecvTimeoutError::Timeout);
        if is_time {
            let pid = Pid::from_raw(victim.cast_signed()).expect("a process");
            kill_process(pid, Signal::KILL).expect("the launcher has not waited for it yet");
        }
        is_time
    };
    let killer = std::thread::spawn(kill);
    let start = Instant::now();
    let holds = run_one(behaviour);
    say(format_args!("took {}", start.elapsed().as_micros()));
    let _ = over.send(()); // it may have killed already
    if killer.join().expect("it kills") {
        until(|| rack.is_lost(machine));
        rack.living().for_each(serves);
    }
    holds
}

/// Checks that a worker runs fibers and answers requests.
fn serves(place: Place) {
    let number = gossamer::entrust_on(place, 7u64);
    let read = {
        let number = number.clone();
        gossamer::spawn_on(place, move || number.apply(|number| *number))
    };
    let outcome = (number.call().apply(|number| *number).wait(), read.join());
    assert!(matches!(outcome, (Ok(7), Ok(7))), "{place}: {outcome:?}");
}
