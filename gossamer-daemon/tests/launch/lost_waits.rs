//! Waits that the loss of a machine ends, and those that it does not: channels, barriers, condition variables, files,
//! joins.

use std::io::ErrorKind;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gossamer::sync::{Barrier, Channel, Condvar, LostError, Receiver, RecvOrLostError, SendOrLostError, select};
use gossamer::{Error, Latch, Place, Promise, Trust, file};
use processes::send_signal;
use rustix::process::Signal;

use crate::rig::{Complaints, command, run};

crate::tests![a_loss_ends_the_waits_that_the_lost_machine_might_have_ended, regions_are_refused];

fn a_loss_ends_the_waits_that_the_lost_machine_might_have_ended() {
    for fabric in ["shm", "tcp"] {
        let victim = fastrand::u16(1..4);
        let ended = run(command(4, &["--fabric", fabric, "--survives", "1"], &["waits", &victim.to_string()]));
        assert_eq!(ended.code(), Some(0), "{fabric}: {ended}");
        assert!(ended.stdout.contains("all waits have ended"), "{fabric}: {ended}");
    }
}

fn regions_are_refused() {
    run(command(2, &["--survives", "1"], &["regions"])).complains(70, "which it cannot with regions: run it without");
}

/// The program of the first test.
pub fn wait(victim: u16) {
    gossamer::main(move || waits(victim), 4);
}

fn waits(victim: u16) {
    let rack = gossamer::rack();
    let here = gossamer::here();
    let there = Place::of(victim, 0);
    let other = rack.places().find(|place| ![0, victim].contains(&place.machine)).unwrap();
    let lost = LostErrorOf(victim);

    // The lost machine has handles of all of these, and might end each wait.
    let (told_of, losses) = Channel::new().at(here).open();
    told_of.among(&[0]);
    gossamer::on_loss(move |loss| told_of.post(loss.to_string()));
    let (sender, receiver) = Channel::new().at(other).open::<u32>();
    let (into_full, full) = Channel::new().at(here).capacity(1).open::<u32>();
    let (into_its, its) = Channel::new().at(there).open::<u32>();
    let (into_apart, apart) = Channel::new().at(other).open::<u32>();
    apart.among(&[0, other.machine]);
    let barrier = Barrier::at(other, 4);
    let (jobs, came) = (gossamer::entrust(Latch::new(0u32)), Condvar::at(here));
    let (promise, for_promise) = wait_in_a_thread();
    let (to_thread, from_there) = Channel::new().at(here).open::<u32>();
    let at_channel = thread::spawn(move || from_there.recv_or_lost().map_err(|error| lost_machine(&error)));
    let kept = (sender.clone(), full.clone(), into_its, barrier.clone(), came.clone(), promise, to_thread);
    let endless = gossamer::spawn_on(there, move || {
        let _kept = kept;
        gossamer::sleep(Duration::MAX);
    });
    let open = file::open(there, "/proc/self/stat").unwrap();
    // It stands in each line, and is not to be served there any more.
    let (line, place, take_turn) = (receiver.clone(), barrier.clone(), (jobs.clone(), came.clone()));
    let of_the_lost = [
        gossamer::spawn_on(there, move || assert!(line.recv_or_lost().is_err())),
        gossamer::spawn_on(there, move || assert!(place.try_wait().is_err())),
        gossamer::spawn_on(there, move || assert!(take_job(&take_turn.0, take_turn.1).is_err())),
    ];

    let receive = |receiver: &Receiver<u32>| {
        let receiver = receiver.clone();
        move || receiver.recv_or_lost().map_err(|error| lost_machine(&error))
    };
    let waiting = [
        gossamer::spawn(receive(&receiver)),
        gossamer::spawn_on(other, receive(&receiver)),
        gossamer::spawn(receive(&its)),
        gossamer::spawn_on(other, receive(&its)),
    ];
    let not_lost = [gossamer::spawn(receive(&apart)), gossamer::spawn_on(other, receive(&apart))];
    into_full.send(1).unwrap();
    let sending = {
        let into_full = into_full.clone();
        gossamer::spawn(move || into_full.send_or_lost(2))
    };
    let at_barrier = {
        let barrier = barrier.clone();
        gossamer::spawn_on(other, move || barrier.try_wait().map(|_| ()).map_err(|lost| lost.machine))
    };
    let for_jobs = {
        let (jobs, came) = (jobs.clone(), came.clone());
        gossamer::spawn(move || take_job(&jobs, came))
    };
    let panics = {
        let receiver = receiver.clone();
        gossamer::spawn(move || receiver.recv())
    };
    gossamer::sleep(Duration::from_millis(fastrand::u64(..50)));
    send_signal(rack.machines()[usize::from(victim)].process, Signal::KILL);

    assert!(losses.recv().unwrap().contains("was killed by signal 9"));
    assert!(rack.is_lost(victim) && !rack.is_lost(0) && rack.living().all(|place| place.machine != victim));
    waiting.into_iter().for_each(|wait| assert_eq!(wait.join().unwrap(), Err(victim)));
    assert_eq!(sending.join().unwrap(), Err(SendOrLostError::Lost { machine: victim, value: Some(2) }));
    assert_eq!(at_barrier.join().unwrap(), Err(victim));
    assert!(lost.is(for_jobs.join().unwrap().unwrap().err()));
    let panic = panics.join().unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("`recv_or_lost` returns this"));
    match endless.join().unwrap_err().downcast_ref() {
        Some(Error::Lost { machine }) => assert_eq!(*machine, victim),
        other => panic!("{other:?}"),
    }
    assert_eq!(open.read_at(0, 1).unwrap_err().kind(), ErrorKind::ConnectionAborted);
    assert_eq!(file::read(there, "/proc/self/stat").unwrap_err().kind(), ErrorKind::ConnectionAborted);
    // Threads that are no workers.
    assert_eq!(for_promise.join().unwrap(), Err(Error::Lost { machine: victim }));
    // It asks this worker, which must not stand still in `join`.
    while !at_channel.is_finished() {
        gossamer::sleep(Duration::from_millis(1));
    }
    assert_eq!(at_channel.join().unwrap(), Err(victim));

    // Later waits end at once, until the loss is accepted.
    assert_eq!(receive(&receiver)(), Err(victim));
    assert!(lost.is(barrier.try_wait().err()));
    let selected = receiver.clone();
    let selects = gossamer::spawn(move || select(&[&selected], None));
    assert!(selects.join().unwrap_err().downcast_ref::<String>().unwrap().contains("was lost"));
    for fiber in of_the_lost {
        assert!(matches!(fiber.join().unwrap_err().downcast_ref(), Some(Error::Lost { .. })));
    }
    into_full.go_on();
    receiver.go_on();
    barrier.go_on(2);
    came.go_on();
    sender.send(9).unwrap();
    assert_eq!(receiver.recv(), Ok(9));
    let meets = barrier.clone();
    let last = gossamer::spawn_on(other, move || meets.wait().is_leader());
    assert!(barrier.wait().is_leader() != last.join().unwrap());
    gossamer::spawn(move || into_full.send(3));
    assert_eq!([full.recv(), full.recv()], [Ok(1), Ok(3)]);
    let takes = {
        let (jobs, came) = (jobs.clone(), came.clone());
        gossamer::spawn(move || take_job(&jobs, came))
    };
    gossamer::sleep(Duration::from_millis(20)); // it waits by now, mostly
    jobs.launch(|jobs| *jobs = 1);
    came.notify_one();
    assert_eq!(takes.join().unwrap(), Ok(Ok(())));

    // Those of machines that live go on as if nothing had been.
    for value in [5, 6] {
        into_apart.send(value).unwrap();
    }
    let mut received: Vec<_> = not_lost.into_iter().map(|wait| wait.join().unwrap().unwrap()).collect();
    received.sort_unstable();
    assert_eq!(received, [5, 6]);
    println!("all waits have ended");
}

/// Waits in a thread that is no worker, for a promise, which it returns too.
fn wait_in_a_thread() -> (Promise<u32>, JoinHandle<Result<u32, Error>>) {
    let (give, given) = mpsc::channel();
    let thread = thread::spawn(move || {
        let (promise, pending) = gossamer::promise();
        give.send(promise).unwrap();
        pending.wait()
    });
    (given.recv().unwrap(), thread)
}

/// Waits until there is a job.
fn take_job(jobs: &Trust<Latch<u32>>, came: Condvar) -> Result<Result<(), LostError>, Error> {
    jobs.call().launch_held(move |jobs| came.try_wait_while(jobs, |jobs| *jobs == 0)).wait()
}

fn lost_machine(error: &RecvOrLostError) -> u16 {
    match error {
        RecvOrLostError::Lost(LostError { machine, .. }) => *machine,
        other => panic!("{other}"),
    }
}

/// The expected loss.
struct LostErrorOf(u16);

impl LostErrorOf {
    fn is(&self, error: Option<LostError>) -> bool {
        error.is_some_and(|error| error.machine == self.0)
    }
}
