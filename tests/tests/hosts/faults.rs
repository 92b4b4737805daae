//! Faults of a program's process, or of a host: the whole program ends, on all hosts.

use std::os::unix::fs::PermissionsExt;

use processes::{Ended, send_signal};
use rustix::process::Signal;

use crate::rack::{ROLES, Rack, name_of};

/// Checks that the launcher has failed, with all of these words.
#[track_caller]
fn assert_blames(ended: &Ended, words: &[&str]) {
    assert!(!ended.status.success(), "{ended:#?}");
    for word in words {
        assert!(ended.stderr.contains(word), "no {word:?}: {ended:#?}");
    }
}

/// Checks that a program still works here, after any fault.
#[track_caller]
fn assert_works(rack: &Rack) {
    let ended = rack.run(&["everyone"]).end();
    assert!(ended.status.success(), "{ended:#?}");
    rack.assert_nothing_is_left();
}

#[test]
fn timed_a_machine_that_is_killed() {
    let mut rack = Rack::start(3);
    for victim in [0, 1, 2] {
        let (launcher, machines) = rack.waiting();
        rack.ends_after(&format!("machine {victim} killed"), |_| send_signal(machines[victim], Signal::KILL));
        let ended = launcher.end();
        assert_blames(&ended, &[&format!("machine {victim}"), &format!("on h{victim}"), "SIGKILL"]);
        assert_eq!(ended.status.code(), Some(128 + 9), "{ended:#?}");
        rack.assert_nothing_is_left();
    }
    assert_works(&rack);
}

#[test]
fn a_machine_that_aborts() {
    let rack = Rack::start(2);
    let ended = rack.run(&["abort"]).end();
    assert_blames(&ended, &["machine 1", "on h1", "SIGABRT"]);
    assert_eq!(ended.status.code(), Some(128 + 6), "{ended:#?}");
    rack.assert_nothing_is_left();
}

#[test]
fn timed_a_daemon_that_is_killed() {
    let mut rack = Rack::start(3);
    for victim in [0, 2] {
        let (launcher, _) = rack.waiting();
        rack.ends_after(&format!("daemon of h{victim} killed"), |rack| rack.kill_daemon(victim));
        assert_blames(&launcher.end(), &[&format!("h{victim}"), &format!("machine {victim}")]);
        rack.start_daemon(victim);
        rack.assert_nothing_is_left();
    }
    assert_works(&rack);
}

#[test]
fn timed_a_daemon_that_hangs() {
    let mut rack = Rack::start(2);
    let (launcher, _) = rack.waiting();
    rack.ends_after("daemon of h1 stopped", |rack| rack.daemon(1).signal(Signal::STOP));
    assert_blames(&launcher.end(), &["h1", "machine 1"]);
    rack.daemon(1).signal(Signal::CONT);
    rack.assert_nothing_is_left();
    assert_works(&rack);
}

/// Also before gossamer runs in it, when no other machine can notice.
#[test]
fn timed_a_machine_that_stands_still_at_its_start() {
    let mut rack = Rack::start(2);
    let script = rack.path("stopped");
    let text =
        format!("#!/bin/sh\n[ \"$GOSSAMER_MACHINE\" = 1 ] && echo stops && kill -STOP $$\nexec '{ROLES}' wait\n");
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let launcher = rack.launcher(&["run", script.to_str().unwrap()]);
    launcher.stdout.wait_for("stops\n");
    rack.ends_after("machine 1 stopped at its start", |_| ());
    assert_blames(&launcher.end(), &["machine 1", "on h1", "stands still, stopped by signal 19 (SIGSTOP)"]);
    rack.assert_nothing_is_left();
}

#[test]
fn timed_a_machine_that_hangs_does_not_hold_up_the_end_of_the_others() {
    let mut rack = Rack::start(2);
    let (launcher, machines) = rack.waiting();
    send_signal(machines[1], Signal::STOP);
    rack.ends_after("machine 0 killed while machine 1 was stopped", |_| send_signal(machines[0], Signal::KILL));
    assert_blames(&launcher.end(), &["machine 0", "SIGKILL"]);
    rack.assert_nothing_is_left();
}

#[test]
fn timed_a_launcher_that_is_killed() {
    let mut rack = Rack::start(2);
    let (launcher, _) = rack.waiting();
    rack.ends_after("launcher killed", |_| launcher.signal(Signal::KILL));
    drop(launcher);
    rack.assert_nothing_is_left();
    assert_works(&rack);
}

#[test]
fn timed_a_launcher_that_is_interrupted() {
    let mut rack = Rack::start(2);
    let (launcher, _) = rack.waiting();
    rack.ends_after("launcher interrupted", |_| launcher.signal(Signal::INT));
    let ended = launcher.end();
    assert_blames(&ended, &["SIGINT"]);
    assert_eq!(ended.status.code(), Some(130), "{ended:#?}");
    rack.assert_nothing_is_left();
}

#[test]
fn timed_a_host_that_is_cut_off() {
    let mut rack = Rack::start(3);
    let (launcher, _) = rack.waiting();
    rack.ends_after("h2 cut off", |rack| rack.network.cut(2));
    assert_blames(&launcher.end(), &["h2", "machine 2"]);
    rack.network.restore(2);
    rack.assert_nothing_is_left();
    assert_works(&rack);
}

/// Both can reach the launcher, but not one another.
#[test]
fn timed_two_hosts_that_cannot_reach_one_another() {
    let mut rack = Rack::start(3);
    let (launcher, _) = rack.waiting();
    rack.ends_after("h1 and h2 parted", |rack| rack.network.part([1, 2]));
    assert_blames(&launcher.end(), &["machine 1", "machine 2", "lost"]);
    rack.assert_nothing_is_left();
}

#[test]
fn timed_a_launcher_that_is_cut_off() {
    let mut rack = Rack::start(3);
    let (launcher, _) = rack.waiting();
    rack.ends_after("h0 cut off, with the launcher", |rack| rack.network.cut(0));
    assert_blames(&launcher.end(), &["machine"]);
    rack.network.restore(0);
    rack.assert_nothing_is_left();
    assert_works(&rack);
}

#[test]
fn timed_two_programs_do_not_see_one_another() {
    let mut rack = Rack::start(2);
    let (first, first_machines) = rack.waiting();
    let (second, second_machines) = rack.waiting();
    assert!(first_machines.iter().all(|pid| !second_machines.contains(pid)));
    send_signal(first_machines[1], Signal::KILL);
    assert_blames(&first.end(), &["machine 1", "SIGKILL"]);
    for pid in &second_machines {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        assert!(!stat.contains(") Z "), "the second program lost a machine");
    }
    let third = rack.run(&["everyone"]).end();
    assert!(third.status.success(), "{third:#?}");
    rack.ends_after("the second of two interrupted", |_| second.signal(Signal::INT));
    assert_eq!(second.end().status.code(), Some(130));
    rack.assert_nothing_is_left();
}

/// Faults of `timed_faults_at_random`.
enum Fault {
    Killed(u32),
    DaemonKilled(usize),
    CutOff(usize),
}

impl Fault {
    fn name(&self) -> String {
        match self {
            Fault::Killed(pid) => format!("{} killed", name_of(*pid)),
            Fault::DaemonKilled(host) => format!("daemon of h{host} killed"),
            Fault::CutOff(host) => format!("h{host} cut off"),
        }
    }
}

/// Kills a process or cuts a host off, at some moment, many times: each time the rest goes too.
#[test]
fn timed_faults_at_random() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let kills = number("GOSSAMER_KILLS").unwrap_or(5);
    let clock = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let seed = number("GOSSAMER_SEED").unwrap_or_else(clock);
    println!("GOSSAMER_KILLS={kills} GOSSAMER_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut below = move |bound: usize| random.usize(..bound);
    // A host that is cut off during a start is missed after that time.
    let mut rack = Rack::start_with(2, "timeouts: { start_ms: 8000 }\n");
    for number in 0..kills {
        let launcher = rack.run(&["wait"]);
        if below(2) == 0 {
            launcher.stdout.wait_for("works\n");
        } else {
            // At a random moment of the start.
            std::thread::sleep(std::time::Duration::from_millis(below(300) as u64));
        }
        let processes = rack.processes();
        let fault = match below(processes.len() + 2) {
            choice if choice < processes.len() => Fault::Killed(processes[choice]),
            choice if choice == processes.len() => Fault::DaemonKilled(below(2)),
            _ => Fault::CutOff(below(2)),
        };
        let what = format!("fault {number}: {}", fault.name());
        // A process that is only about to start is not watched here, but has to be gone below.
        rack.ends_after(&what, |rack| match fault {
            Fault::Killed(pid) => send_signal(pid, Signal::KILL),
            Fault::DaemonKilled(host) => rack.kill_daemon(host),
            Fault::CutOff(host) => rack.network.cut(host),
        });
        let is_launcher = matches!(fault, Fault::Killed(pid) if pid == launcher.id());
        let ended = launcher.end();
        assert!(!ended.status.success(), "{what}: {ended:#?}");
        assert!(is_launcher || ended.stderr.contains("gossamer-launch: "), "{what}: it does not say why: {ended:#?}");
        match fault {
            Fault::Killed(_) => {}
            Fault::DaemonKilled(host) => rack.start_daemon(host),
            Fault::CutOff(host) => rack.network.restore(host),
        }
        rack.assert_nothing_is_left();
    }
    assert_works(&rack);
}
