//! Fibers that go where there is least to do.

use std::time::{Duration, Instant};

use gossamer::sync::Channel;
use gossamer::{JoinHandle, Place, rack};
use gossamer_heap as heap;
use rustix::process::{Pid, Signal, kill_process};

/// A machine that is silent for so long gets no fibers. More than the reports' age, so that others that are late know.
const SILENT: Duration = Duration::from_millis(800);

fn signal(machine: u16, signal: Signal) {
    let process = rack().machines()[usize::from(machine)].process;
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal).unwrap();
}

/// Starts so many fibers, which all run at a time, and returns the number that each machine has had.
fn placed(count: u32) -> Vec<u32> {
    let (start, started) = Channel::new().at(Place::of(0, 0)).open();
    let may_end = gossamer::entrust_on(Place::of(0, 0), false);
    let fibers: Vec<JoinHandle<()>> = (0..count)
        .map(|_| {
            let (start, may_end) = (start.clone(), may_end.clone());
            heap::spawn(move || {
                start.send(gossamer::here().machine).unwrap();
                while !may_end.apply(|may_end| *may_end) {
                    gossamer::sleep(Duration::from_millis(5));
                }
            })
        })
        .collect();
    drop(start);
    let mut machines = vec![0; rack().machines().len()];
    for _ in 0..count {
        machines[usize::from(started.recv().expect("each starts"))] += 1;
    }
    may_end.apply(|may_end| *may_end = true);
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    machines
}

/// Fibers go to each machine, soon. Other tests use the cores: a machine may be late with its reports for a while, and
/// one that has run knows more of the load than an idle one.
fn reaches_all() {
    let start = Instant::now();
    while placed(300).iter().any(|fibers| *fibers < 10) {
        assert!(start.elapsed() < limits::HANG);
    }
}

/// On three machines, of which the last one is silent for a while, and then killed.
pub fn placed_by_load() {
    reaches_all();
    let sum: u64 = (0..100).map(|n: u64| heap::spawn(move || n)).map(|job| job.join().unwrap()).sum();
    assert_eq!(sum, 99 * 50);
    // Other machines place, too, and know what they have placed.
    gossamer::spawn_on(Place::of(1, 0), reaches_all).join().unwrap();

    if rack().machines()[2].host == rack().machines()[0].host {
        signal(2, Signal::STOP);
        gossamer::sleep(SILENT);
        let machines = placed(50);
        signal(2, Signal::CONT);
        assert_eq!(machines[2], 0, "{machines:?}");
        reaches_all();
    }
    signal(2, Signal::KILL);
    while !rack().is_lost(2) {
        gossamer::sleep(Duration::from_millis(1));
    }
    let machines = placed(100);
    assert_eq!(machines[2], 0, "{machines:?}");
    println!("placed");
}
