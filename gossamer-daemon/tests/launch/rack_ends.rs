//! Racks on which something dies, hangs or is told to end: the whole program ends on all hosts, and the launcher
//! reports the cause.

use std::collections::BTreeMap;

use processes::{ChildProcess, Ended, is_gone, send_signal, wait_until_gone};
use rustix::process::Signal;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, Machines};

crate::tests![
    a_killed_machine_ends_all_hosts,
    a_killed_part_ends_all_hosts,
    a_killed_daemon_ends_all_hosts,
    a_daemon_told_to_end_takes_its_programs_along,
    a_killed_launcher_ends_all_hosts,
    a_daemon_that_hangs_counts_as_dead,
    a_part_that_hangs_counts_as_dead,
    a_part_that_hangs_ends_with_its_daemon,
    a_launcher_that_hangs_counts_as_dead,
    signals_reach_all_hosts,
    what_machines_leave_behind_ends_with_them,
    death_on_a_rack_is_seen_while_nobody_reads_the_output,
];

/// Starts three hosts with one waiting machine each, and does `harm`: all must end. Returns the launcher's output: the
/// cause in it separates events that are seen at once from those that are noticed after [`LENIENT_MS`].
fn harmed(silence_ms: u32, harm: impl FnOnce(&Rack, &BTreeMap<u16, u32>, u32)) -> (Ended, BTreeMap<u16, u32>, Rack) {
    let rack = Rack::start(3, silence_ms, "");
    let launch = rack.launch(&["wait"]);
    let pids = launch.ready(3);
    harm(&rack, &pids, launch.id());
    wait_until_gone(pids.values().copied());
    (launch.end(), pids, rack)
}

#[track_caller]
fn assert_said(ended: &Ended, status: i32, words: &[&str]) {
    assert_eq!(ended.code(), Some(status), "{ended}");
    let [complaint] = ended.complaints()[..] else { panic!("{ended}") };
    words.iter().for_each(|word| assert!(complaint.contains(word), "{word}: {complaint}"));
}

fn a_killed_machine_ends_all_hosts() {
    let (ended, pids, rack) = harmed(LENIENT_MS, |_, pids, _| send_signal(pids[&1], Signal::KILL));
    assert_said(&ended, 137, &[&format!("machine 1 (pid {} on b) was killed by signal 9 (SIGKILL)", pids[&1])]);
    rack.until_idle();
}

fn a_killed_part_ends_all_hosts() {
    let mut last = None;
    for (signal, name) in [(Signal::KILL, "SIGKILL"), (Signal::TERM, "SIGTERM"), (Signal::ABORT, "SIGABRT")] {
        let mut part = 0;
        let (ended, pids, rack) = harmed(LENIENT_MS, |rack, _, _| {
            part = rack.part("b");
            send_signal(part, signal);
        });
        let (machine, number) = (format!("machine 1 (pid {} on b) was ended: host b: ", pids[&1]), signal.as_raw());
        let cause = format!("its process for the program (pid {part}) was killed by signal {number} ({name})");
        assert_said(&ended, 70, &[&machine, &cause]);
        rack.until_idle();
        last = Some(rack);
    }
    let rack = last.unwrap();
    rack.run(&[], &["end", "6"]).assert(6, None);
}

fn a_killed_daemon_ends_all_hosts() {
    let (ended, pids, mut rack) = harmed(LENIENT_MS, |rack, _, _| send_signal(rack.pid("c"), Signal::KILL));
    let words = format!("machine 2 (pid {} on c) cannot be reached: host c: its daemon has closed", pids[&2]);
    assert_said(&ended, 70, &[&words]);
    rack.daemons.remove("c").unwrap().end(); // and its streams, which the part has
    rack.start_daemon("c");
    rack.run(&[], &["end", "6"]).assert(6, None);
}

fn a_daemon_told_to_end_takes_its_programs_along() {
    let (ended, _, mut rack) = harmed(LENIENT_MS, |rack, _, _| send_signal(rack.pid("a"), Signal::TERM));
    assert_said(&ended, 70, &["on a) was ended: host a: gossamer-daemon was told to end"]);
    assert_eq!(rack.daemons.remove("a").unwrap().end().code(), Some(0));
}

fn a_killed_launcher_ends_all_hosts() {
    let (ended, _, rack) = harmed(LENIENT_MS, |_, _, launcher| send_signal(launcher, Signal::KILL));
    assert_eq!(ended.code(), None, "{ended}");
    rack.until_idle();
}

/// On the host that hangs the part ends the machines; its daemon notices that once it continues.
fn a_daemon_that_hangs_counts_as_dead() {
    let (ended, _, rack) = harmed(2500, |rack, _, _| send_signal(rack.pid("b"), Signal::STOP));
    let words = "host b: nothing was heard for 2.5s: it is cut off or hangs, or its daemon was stopped";
    assert_said(&ended, 70, &["on b) cannot be reached: ", words]);
    send_signal(rack.pid("b"), Signal::CONT);
    rack.until_idle();
}

/// Its daemon kills it, and its leftovers.
fn a_part_that_hangs_counts_as_dead() {
    let mut part = 0;
    let (ended, _, rack) = harmed(2500, |rack, _, _| {
        part = rack.part("b");
        send_signal(part, Signal::STOP);
    });
    let words = format!("its process for the program (pid {part}) was stopped by signal 19 (SIGSTOP)");
    assert_said(&ended, 70, &["on b) was ended: host b: ", &words]);
    rack.until_idle();
}

/// Its daemon's death continues it, and it ends its machines; nobody else on that host could.
fn a_part_that_hangs_ends_with_its_daemon() {
    let (ended, _, mut rack) = harmed(LENIENT_MS, |rack, pids, _| {
        let part = rack.part("c");
        send_signal(part, Signal::STOP);
        send_signal(pids[&2], Signal::STOP); // so that it does not end by itself when the others do
        send_signal(rack.pid("c"), Signal::KILL);
        wait_until_gone([part]);
    });
    assert_said(&ended, 70, &["on c) cannot be reached: host c: its daemon has closed"]);
    rack.daemons.remove("c").unwrap().end();
}

fn a_launcher_that_hangs_counts_as_dead() {
    let rack = Rack::start(2, 2500, "");
    let launch = rack.launch(&["wait"]);
    let pids = launch.ready(2);
    launch.signal(Signal::STOP);
    wait_until_gone(pids.values().copied());
    rack.until_idle();
    launch.signal(Signal::CONT);
    let ended = launch.end();
    assert_said(
        &ended,
        70,
        &["was ended: gossamer-launch itself stood still for ", "after 2.5s without a sign of life"],
    );
}

fn signals_reach_all_hosts() {
    for (signal, role, status) in [(Signal::INT, "wait", 130), (Signal::TERM, "wait", 143), (Signal::INT, "polite", 5)]
    {
        let (ended, _, rack) = {
            let rack = Rack::start(2, LENIENT_MS, "");
            let launch = rack.launch(&[role]);
            let pids = launch.ready(2);
            launch.signal(signal);
            wait_until_gone(pids.values().copied());
            (launch.end(), pids, rack)
        };
        assert_eq!(ended.code(), Some(status), "{ended}");
        rack.until_idle();
    }
    // Machines that ignore the first signal are killed by the second.
    let rack = Rack::start(2, LENIENT_MS, "");
    let launch = rack.launch(&["stubborn"]);
    let pids = launch.ready(2);
    launch.signal(Signal::INT);
    launch.signal(Signal::TERM);
    wait_until_gone(pids.values().copied());
    assert!(launch.end().complaints()[0].contains("was ended by signal "));
}

fn what_machines_leave_behind_ends_with_them() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let ended = rack.run(&["--no-prefix"], &["family"]);
    ended.assert(0, None);
    let left: Vec<u32> =
        ended.stdout.lines().filter_map(|line| line.strip_prefix("left behind ")?.parse().ok()).collect();
    assert!(left.len() == 1 && left.iter().all(|pid| is_gone(*pid)), "{ended}");
}

fn death_on_a_rack_is_seen_while_nobody_reads_the_output() {
    use std::io::{BufRead, BufReader};
    let rack = Rack::start(2, LENIENT_MS, "");
    let mut command = rack.command(&[], &["flood"]);
    let mut launcher =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(launcher.stdout.take().unwrap());
    let launcher = ChildProcess::from(launcher);
    let mut pids = BTreeMap::new();
    while pids.len() < 2 {
        let mut line = String::new();
        assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "the output ended early");
        pids.extend(crate::rig::parse_pid(line.trim_end()));
    }
    send_signal(pids[&1], Signal::KILL);
    wait_until_gone(pids.values().copied());
    std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
    launcher.end().complains(137, &format!("machine 1 (pid {} on b) was killed by signal 9", pids[&1]));
}
