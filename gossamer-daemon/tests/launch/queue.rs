//! Programs that wait for room (`run --wait`).

use processes::{ChildProcess, send_signal};
use rustix::process::Signal;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, Machines, run, start};

crate::tests![
    programs_get_room_in_the_order_in_which_they_came,
    whoever_leaves_the_queue_is_not_waited_for,
    programs_that_wait_on_several_hosts_all_run,
    a_program_that_cannot_run_does_not_wait,
];

fn waiting(rack: &Rack, options: &[&str], role: &str) -> ChildProcess {
    start(rack.command(&[&["--wait"], options].concat(), &[role]))
}

#[track_caller]
fn end(launch: ChildProcess) {
    launch.signal(Signal::TERM);
    assert_eq!(launch.end().code(), Some(143));
}

fn programs_get_room_in_the_order_in_which_they_came() {
    let rack = Rack::start(2, LENIENT_MS, "limits: {programs: 1}");
    let first = waiting(&rack, &[], "wait");
    first.ready(2);
    let mut rest = Vec::new();
    for before in ["this one is next", "1 program waits before this one", "2 programs wait before this one"] {
        let launch = waiting(&rack, &[], "wait");
        let words = format!("waiting for room on host a, where 1 programs may run (limits.programs); {before}");
        launch.stderr.wait_for(&words);
        rest.push(launch);
    }
    let refused = rack.run(&[], &["end"]);
    assert_eq!(refused.code(), Some(70), "{refused}");
    assert!(refused.stderr.contains("--wait"), "who does not wait is told how: {refused}");
    let mut running = first;
    for next in rest {
        assert!(next.pids().is_empty(), "not before its turn");
        end(running);
        next.ready(2);
        running = next;
    }
    end(running);
    rack.until_idle();
    rack.run(&["--wait"], &["end", "5"]).assert(5, None);
}

fn whoever_leaves_the_queue_is_not_waited_for() {
    let rack = Rack::start(2, LENIENT_MS, "limits: {programs: 1}");
    let first = waiting(&rack, &[], "wait");
    first.ready(2);
    let in_queue = |place: &str| {
        let launch = waiting(&rack, &[], "wait");
        launch.stderr.wait_for(place);
        launch
    };
    let (interrupted, killed) = (in_queue("is next"), in_queue("1 program waits"));
    let last = in_queue("2 programs wait");
    interrupted.signal(Signal::INT);
    let ended = interrupted.end();
    assert_eq!(ended.code(), Some(130), "{ended}");
    last.stderr.wait_for("1 program waits");
    killed.signal(Signal::KILL);
    drop(killed.end());
    last.stderr.wait_for("is next");
    end(first);
    last.ready(2);
    end(last);
}

/// Each waits on its hosts one after the other, while others hold the room there: there is no circular wait.
fn programs_that_wait_on_several_hosts_all_run() {
    let rack = Rack::start(3, LENIENT_MS, "limits: {programs: 1}");
    let hosts = ["a,b", "b,c", "c,a", "c,b,a", "b", "c,a,b"];
    let launched: Vec<ChildProcess> =
        hosts.iter().cycle().take(12).map(|hosts| waiting(&rack, &["--hosts", hosts], "end")).collect();
    for launch in launched {
        let ended = launch.end();
        assert_eq!(ended.code(), Some(0), "{ended}");
    }
    rack.until_idle();
}

fn a_program_that_cannot_run_does_not_wait() {
    let mut rack = Rack::start(2, LENIENT_MS, "limits: {programs: 1}");
    let mut local = crate::rig::launcher();
    local.args(["run", "--local", "2", "--wait", "true"]);
    assert_eq!(run(local).code(), Some(2), "there is nothing to wait for");
    let running = start(rack.command(&["--hosts", "a"], &["wait"]));
    running.ready(1);
    send_signal(rack.pid("b"), Signal::KILL);
    rack.daemons.remove("b").unwrap().end();
    let ended = rack.run(&["--wait"], &["end"]);
    assert_eq!(ended.code(), Some(70), "{ended}");
    assert!(ended.stderr.contains("host b: ") && !ended.stderr.contains("waiting"), "{ended}");
    end(running);
}
