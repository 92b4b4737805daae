//! Hosts that take no new programs (`drain`), and those that take them again (`resume`).

use std::process::Command;

use processes::ChildProcess;
use rustix::process::Signal;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, Machines, run, start};

crate::tests![
    a_drained_host_takes_no_new_programs_and_ends_none,
    programs_that_wait_for_room_are_refused_at_the_drain,
    the_wait_ends_with_the_last_program,
];

/// Returns the command for these hosts, with its options.
pub fn of_hosts(rack: &Rack, command: &str, args: &[&str]) -> Command {
    let mut launcher = rack.launcher(command);
    launcher.args(args);
    launcher
}

fn program(rack: &Rack, options: &[&str]) -> Command {
    let mut command = rack.launcher("run");
    command.args(options).args(["sh", "-c", "exit 0"]);
    command
}

#[track_caller]
fn end(launch: ChildProcess) {
    launch.signal(Signal::TERM);
    assert_eq!(launch.end().code(), Some(143));
}

fn a_drained_host_takes_no_new_programs_and_ends_none() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let running = rack.launch(&["wait"]);
    running.ready(2);
    let drained = run(of_hosts(&rack, "drain", &["b"]));
    drained.assert(0, None);
    assert!(drained.stdout.starts_with("b is drained; programs run there: "), "{drained}");
    let refused = run(program(&rack, &[]));
    for words in ["host b: it was drained by ", "`run --any` leaves it out", "`gossamer-launch resume b`"] {
        refused.complains(70, words);
    }
    assert!(!refused.stderr.contains("host a: "), "{refused}");
    run(program(&rack, &["--hosts", "a"])).assert(0, None);
    run(program(&rack, &["--any"])).assert(0, Some("host b is left out: it is drained"));
    run(program(&rack, &["--any=2"])).complains(70, "--any=2: hosts that are up: 1; host b: it is drained");

    let status = run(rack.launcher("status"));
    let lines: Vec<&str> = status.stdout.lines().filter(|line| line.contains("drained by")).collect();
    assert!(lines.len() == 1 && lines[0].starts_with("b "), "{status}");
    let checked = run(rack.launcher("check"));
    assert!(checked.code() == Some(1) && checked.stdout.contains("`gossamer-launch resume b`"), "{checked}");
    // A host that does not exist keeps the others from being drained anew.
    run(of_hosts(&rack, "drain", &["b", "x"])).complains(70, "x");
    run(of_hosts(&rack, "drain", &[])).complains(2, "HOST");
    end(running);
    rack.until_idle();

    let resumed = run(of_hosts(&rack, "resume", &["b", "a"]));
    resumed.assert(0, None);
    assert_eq!(resumed.stdout, "b takes programs\na takes programs\n");
    run(program(&rack, &[])).assert(0, None);
}

fn programs_that_wait_for_room_are_refused_at_the_drain() {
    let rack = Rack::start(1, LENIENT_MS, "limits: {programs: 1}");
    let running = start(rack.command(&[], &["wait"]));
    running.ready(1);
    let waiting = start(program(&rack, &["--wait"]));
    waiting.stderr.wait_for("this one is next");
    run(of_hosts(&rack, "drain", &["a"])).assert(0, None);
    waiting.end().complains(70, "host a: it was drained by ");
    end(running);
}

fn the_wait_ends_with_the_last_program() {
    let mut rack = Rack::start(2, LENIENT_MS, "");
    let running = start(rack.command(&["--hosts", "b"], &["wait"]));
    running.ready(1);
    let wait = || start(of_hosts(&rack, "drain", &["--wait", "a", "b"]));
    let (mut waiting, resumed) = (wait(), wait());
    for waiter in [&waiting, &resumed] {
        waiter.stdout.wait_for("b is drained; programs run there: ");
        waiter.stdout.wait_for("a is drained; no program runs there");
    }
    assert_eq!(waiting.has_ended(), None);
    run(of_hosts(&rack, "resume", &["a"])).assert(0, None);
    let told = resumed.end();
    told.complains(1, "host a: it is drained no more");
    waiting.end().complains(1, "host a: it is drained no more");
    waiting = wait();
    waiting.stdout.wait_for("b is drained; programs run there: ");
    end(running);
    let ended = waiting.end();
    ended.assert(0, None);
    assert!(ended.stdout.ends_with("no program runs there any more\n"), "{ended}");
    // A restarted daemon takes programs again.
    rack.daemons.remove("b").unwrap().signal(Signal::TERM);
    rack.start_daemon("b");
    run(program(&rack, &["--hosts", "b"])).assert(0, None);
}
