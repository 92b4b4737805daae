//! Machines that die, and launchers that are told to end or are killed.

use std::time::{Duration, Instant};

use limits::bound;
use processes::{Ended, is_gone, send_signal, wait_until_gone};
use rustix::process::Signal;

use crate::rig::{Complaints, Machines, command, launch, run};

crate::tests![
    timed_a_killed_machine_ends_the_others_within_a_second,
    timed_stubborn_machines_end_within_a_second_too,
    a_machine_that_exits_too_early_is_named,
    a_machine_that_never_reaches_gossamer_is_named,
    a_panic_is_named,
    a_failure_is_given_in_the_machines_words,
    a_machine_that_breaks_the_protocol_ends_the_program,
    a_machine_that_does_not_end_is_killed,
    timed_a_killed_launcher_takes_the_machines_along,
    timed_signals_end_all_machines,
    a_program_may_handle_a_signal_itself,
    timed_a_second_signal_kills_at_once,
    timed_what_ignores_a_signal_is_killed_in_the_end,
];

const PROMISE: Duration = Duration::from_secs(1);

#[track_caller]
fn assert_named(ended: &Ended, status: i32, machine: u16, pid: u32, words: &str) {
    ended.assert(status, Some(&format!("machine {machine} (pid {pid}) {words}; the program was ended")));
}

fn killed(machines: u16, victim: u16, role: &str) {
    let launch = launch(machines, &[role]);
    let pids = launch.ready(machines);
    assert!(pids.values().all(|pid| !is_gone(*pid)));
    send_signal(pids[&victim], Signal::KILL);
    let took = wait_until_gone(pids.values().copied());
    assert!(took < bound(PROMISE), "{machines} machines took {took:?}");
    let ended = launch.end();
    assert_named(&ended, 137, victim, pids[&victim], "was killed by signal 9 (SIGKILL)");
    if role == "wait" {
        let told = ended.stderr.lines().filter(|line| line.contains("told to end") && line.contains("SIGKILL"));
        assert_eq!(told.count(), usize::from(machines) - 1, "{ended}");
    }
}

fn timed_a_killed_machine_ends_the_others_within_a_second() {
    for (machines, victim) in [(1, 0), (2, 0), (2, 1), (4, 0), (4, 3)] {
        killed(machines, victim, "wait");
    }
}

fn timed_stubborn_machines_end_within_a_second_too() {
    for (machines, victim) in [(2, 0), (4, 2)] {
        killed(machines, victim, "stubborn");
    }
}

fn a_machine_that_exits_too_early_is_named() {
    for (status, machine, reported) in [("3", 1, 3), ("3", 0, 3), ("0", 1, 70), ("0", 0, 70)] {
        let launch = launch(2, &["exit", status, &machine.to_string()]);
        let pids = launch.ready(2);
        let words = format!("exited with status {status} before the program had finished");
        assert_named(&launch.end(), reported, machine, pids[&machine], &words);
        wait_until_gone(pids.into_values());
    }
}

fn a_machine_that_never_reaches_gossamer_is_named() {
    let ended = run(command(2, &[], &["unready", "1"]));
    assert_eq!(ended.code(), Some(70), "{ended}");
    let complaint = ended.complaints().join("");
    assert!(complaint.contains("machine 1") && complaint.contains("before it had reached gossamer::main"), "{ended}");
}

fn a_panic_is_named() {
    let launch = launch(3, &["panic", "1"]);
    let pids = launch.ready(3);
    let ended = launch.end();
    assert_named(&ended, 101, 1, pids[&1], "panicked (exit status 101)");
    assert!(ended.stderr.lines().any(|line| line == "m1 | machine 1 is meant to panic"), "{ended}");
}

fn a_failure_is_given_in_the_machines_words() {
    let launch = launch(2, &["fail", "0"]);
    let pids = launch.ready(2);
    assert_named(&launch.end(), 70, 0, pids[&0], "failed: the fabric broke");
    wait_until_gone(pids.into_values());
}

fn a_machine_that_breaks_the_protocol_ends_the_program() {
    for (role, words) in [("ready-twice", "process 4711 started gossamer"), ("finish-as", "only machine 0 can finish")]
    {
        let ended = run(command(2, &[], &[role, "1"]));
        assert_eq!(ended.code(), Some(70), "{ended}");
        let complaint = ended.complaints().join("");
        assert!(complaint.starts_with("machine 1 ") && complaint.contains(words), "{ended}");
    }
}

fn a_machine_that_does_not_end_is_killed() {
    let launch = launch(3, &["linger"]);
    let pids = launch.ready(3);
    assert_named(&launch.end(), 70, 1, pids[&1], "was still running 5s after the program had finished");
    wait_until_gone(pids.into_values());
}

fn timed_a_killed_launcher_takes_the_machines_along() {
    for role in ["wait", "stubborn"] {
        let launch = launch(4, &[role]);
        let pids = launch.ready(4);
        launch.signal(Signal::KILL);
        let took = wait_until_gone(pids.into_values());
        assert!(took < bound(PROMISE), "{took:?}");
    }
}

fn timed_signals_end_all_machines() {
    let signals = [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP")];
    for (signal, name) in signals {
        let launch = launch(3, &["wait"]);
        let pids = launch.ready(3);
        launch.signal(signal);
        let took = wait_until_gone(pids.into_values());
        assert!(took < bound(PROMISE), "{name} took {took:?}");
        let number = signal.as_raw();
        launch.end().assert(128 + number, Some(&format!("the program was ended by signal {number} ({name})")));
    }
}

fn a_program_may_handle_a_signal_itself() {
    let launch = launch(1, &["polite"]);
    launch.ready(1);
    launch.signal(Signal::INT);
    let ended = launch.end();
    assert!(ended.stdout.lines().any(|line| line == "handled"), "{ended}");
    ended.assert(5, None);
}

fn timed_a_second_signal_kills_at_once() {
    let launch = launch(2, &["stubborn"]);
    let pids = launch.ready(2);
    let start = Instant::now();
    launch.signal(Signal::INT);
    launch.signal(Signal::TERM); // a different one, so that the two cannot become one
    wait_until_gone(pids.into_values());
    let took = start.elapsed();
    assert!(took < bound(PROMISE), "{took:?}");
    let ended = launch.end();
    assert!(matches!(ended.code(), Some(130 | 143)), "{ended}"); // they may arrive in either order
}

fn timed_what_ignores_a_signal_is_killed_in_the_end() {
    let launch = launch(2, &["stubborn"]);
    let pids = launch.ready(2);
    let start = Instant::now();
    launch.signal(Signal::INT);
    wait_until_gone(pids.into_values());
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(3) && took < bound(Duration::from_secs(5)), "{took:?}");
    launch.end().assert(130, Some("the program was ended by signal 2 (SIGINT)"));
}
