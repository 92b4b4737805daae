//! Programs that outlive machines: the launcher's part, with machines that play theirs, and the whole.

use std::time::{Duration, Instant};

use gossamer::{Error, Place, Trust};
use limits::HANG;
use processes::send_signal;
use rustix::process::Signal;

use crate::rig::{Complaints, Machines, command, launch, run};

crate::tests![
    the_others_go_on_without_a_machine_that_is_killed,
    the_loss_of_machine_0_ends_the_program,
    requests_and_fibers_are_accounted_for_when_a_machine_is_killed,
];

fn the_others_go_on_without_a_machine_that_is_killed() {
    let launch = launch(4, &["survives", "1"]);
    let pids = launch.ready(4);
    send_signal(pids[&2], Signal::KILL);
    let ended = launch.end();
    assert_eq!(ended.code(), Some(3), "{ended}");
    let loss =
        format!("machine 2 (pid {}) was killed by signal 9 (SIGKILL); the others go on without machine 2", pids[&2]);
    assert_eq!(ended.complaints(), [loss], "{ended}");
    for machine in [0, 1, 3] {
        for words in ["answered", "lost 2", "fence 1: [2]", "settled 1"] {
            let line = format!("m{machine} | {words}");
            assert!(ended.stdout.lines().any(|told| told == line), "{line}: {ended}");
        }
    }
}

fn the_loss_of_machine_0_ends_the_program() {
    let launch = launch(3, &["survives", "2"]);
    let pids = launch.ready(3);
    send_signal(pids[&0], Signal::KILL);
    let words = format!("machine 0 (pid {}) was killed by signal 9 (SIGKILL); the program was ended", pids[&0]);
    launch.end().assert(137, Some(&words));
}

/// Kills one machine amid requests and fibers, over each fabric.
fn requests_and_fibers_are_accounted_for_when_a_machine_is_killed() {
    for fabric in ["shm", "tcp"] {
        let victim = fastrand::u16(1..4);
        let ended = run(command(4, &["--fabric", fabric], &["outlives", &victim.to_string()]));
        assert_eq!(ended.code(), Some(0), "{fabric}: {ended}");
        let [loss] = ended.complaints()[..] else { panic!("{fabric}: one loss is told: {ended}") };
        assert!(loss.ends_with(&format!("the others go on without machine {victim}")), "{fabric}: {ended}");
        assert!(ended.stdout.contains("all are accounted for"), "{fabric}: {ended}");
    }
}

/// The program of that test.
pub fn outlive(victim: u16) {
    gossamer::builder().survives(1).main(move || load(victim), 4);
}

/// Requests to one machine, with their outcomes.
struct Counted {
    place: Place,
    counter: Trust<u64>,
    done: u64,
    maybe: u64,
    not_run: u64,
}

/// Makes requests and fibers everywhere, up to some time after the loss of a machine.
fn load(victim: u16) {
    let rack = gossamer::rack();
    let mut all: Vec<Counted> = rack
        .places()
        .map(|place| Counted { place, counter: gossamer::entrust_on(place, 0), done: 0, maybe: 0, not_run: 0 })
        .collect();
    let process = rack.machines()[usize::from(victim)].process;
    let kill = move || {
        std::thread::sleep(Duration::from_millis(fastrand::u64(..100)));
        send_signal(process, Signal::KILL);
    };
    let killer = std::thread::spawn(kill);
    let start = Instant::now();
    let mut rounds_after = 0;
    while rounds_after < 20 {
        assert!(start.elapsed() < HANG, "the loss is never told");
        let requests: Vec<_> = (0..all.len() * 50)
            .map(|number| {
                let counter = all[number % all.len()].counter.clone();
                gossamer::spawn(move || counter.call().apply(|count| *count += 1).wait())
            })
            .collect();
        let fibers: Vec<_> = all.iter().map(|of| gossamer::spawn_on(of.place, || 4)).collect();
        let count = all.len();
        for (number, request) in requests.into_iter().enumerate() {
            let of = &mut all[number % count];
            match request.join().unwrap() {
                Ok(()) => of.done += 1,
                Err(Error::Gone { .. }) => of.not_run += 1,
                Err(Error::Lost { machine }) if machine == victim => of.maybe += 1,
                Err(other) => panic!("{other}"),
            }
        }
        for (of, fiber) in all.iter().zip(fibers) {
            let is_well = fiber.join().map_or(of.place.machine == victim, |four| four == 4);
            assert!(is_well, "a fiber of {} is lost", of.place);
        }
        rounds_after += usize::from(all[usize::from(victim)].not_run > 0);
    }
    killer.join().unwrap();
    for of in &all {
        let outcomes = (of.place.machine, of.done, of.maybe, of.not_run);
        if of.place.machine == victim {
            assert!(matches!(of.counter.call().apply(|count| *count).wait(), Err(Error::Gone { .. })), "{outcomes:?}");
        } else {
            assert_eq!((of.counter.apply(|count| *count), of.maybe, of.not_run), (of.done, 0, 0), "{outcomes:?}");
        }
        println!("{outcomes:?}");
    }
    println!("all are accounted for");
}
