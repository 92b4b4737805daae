//! Racks on which a machine or a host is lost, and whose program goes on.

use processes::{ChildProcess, send_signal};
use rustix::process::Signal;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::Complaints;

crate::tests![
    a_program_goes_on_without_a_machine_of_another_host,
    a_program_goes_on_without_a_machine_that_stands_still,
    a_program_goes_on_without_a_host_whose_daemon_is_killed,
    a_program_goes_on_without_a_host_that_is_silent,
    the_loss_of_the_first_host_ends_the_program,
];

/// The program of these tests: prints `ready` and the process ids of its machines, waits for a loss, and uses those
/// that are left.
pub fn go_on() {
    let main = || {
        let rack = gossamer::rack();
        let (tell, told) = gossamer::sync::Channel::new().at(gossamer::here()).open();
        tell.among(&[0]);
        gossamer::on_loss(move |loss| tell.post(loss.machine));
        let processes: Vec<_> = rack.machines().iter().map(|machine| machine.process.to_string()).collect();
        println!("ready {}", processes.join(" "));
        let lost = told.recv().unwrap();
        let sum: u32 = rack
            .living()
            .map(|place| gossamer::spawn_on(place, move || u32::from(place.machine)).join().unwrap())
            .sum();
        println!("went on without {lost}: {sum}");
    };
    gossamer::builder().survives(1).main(main, 3);
}

fn start(rack: &Rack) -> (ChildProcess, Vec<u32>) {
    let launch = rack.launch(&["goes-on"]);
    let pids = launch.stdout.find("ready …", |text| {
        let line = text.lines().find_map(|line| line.split_once("ready "))?;
        Some(line.1.split(' ').map(|pid| pid.parse().unwrap()).collect())
    });
    (launch, pids)
}

#[track_caller]
fn assert_went_on(launch: ChildProcess, lost: u16, sum: u16, words: &str) {
    let ended = launch.end();
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(ended.stdout.contains(&format!("went on without {lost}: {sum}")), "{ended}");
    let [complaint] = ended.complaints()[..] else { panic!("{ended}") };
    let goes_on = format!("; the others go on without machine {lost}");
    assert!(complaint.contains(words) && complaint.ends_with(&goes_on), "{words}: {ended}");
}

fn a_program_goes_on_without_a_machine_of_another_host() {
    let rack = Rack::start(3, LENIENT_MS, "");
    let (launch, pids) = start(&rack);
    send_signal(pids[1], Signal::KILL);
    assert_went_on(launch, 1, 2, &format!("machine 1 (pid {} on b) was killed by signal 9 (SIGKILL)", pids[1]));
    rack.until_idle();
    rack.run(&[], &["outlives", "1"]).complains(0, "the others go on without machine 1");
}

fn a_program_goes_on_without_a_machine_that_stands_still() {
    let rack = Rack::start(3, 2500, "");
    let (launch, pids) = start(&rack);
    send_signal(pids[2], Signal::STOP);
    assert_went_on(launch, 2, 1, "on c) stands still, stopped by signal 19 (SIGSTOP)");
    rack.until_idle();
}

fn a_program_goes_on_without_a_host_whose_daemon_is_killed() {
    let rack = Rack::start(3, 2500, "");
    let (launch, _) = start(&rack);
    send_signal(rack.pid("c"), Signal::KILL);
    assert_went_on(launch, 2, 1, "on c) cannot be reached: host c: its daemon has closed");
}

fn a_program_goes_on_without_a_host_that_is_silent() {
    let rack = Rack::start(3, 2500, "");
    let (launch, _) = start(&rack);
    send_signal(rack.pid("b"), Signal::STOP);
    assert_went_on(launch, 1, 2, "on b) cannot be reached: host b: nothing was heard for 2.5s");
    send_signal(rack.pid("b"), Signal::CONT);
    rack.until_idle();
}

fn the_loss_of_the_first_host_ends_the_program() {
    let rack = Rack::start(3, LENIENT_MS, "");
    let (launch, pids) = start(&rack);
    send_signal(pids[0], Signal::KILL);
    let words = format!("machine 0 (pid {} on a) was killed by signal 9 (SIGKILL); the program was ended", pids[0]);
    launch.end().assert(137, Some(&words));
    rack.until_idle();
}
