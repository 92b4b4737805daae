//! Leftovers of machines are ended, however fast they fork; and their dead are always collected.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use limits::wait_until;
use processes::{is_gone, send_signal};
use rustix::process::Signal;

use crate::hosts::{LENIENT_MS, Rack};
use crate::links::{KINDS, left};
use crate::rig::{Complaints, Machines, command, run, start};

crate::tests![
    what_forks_ends_with_its_program,
    what_forks_ends_with_its_program_without_cgroups,
    what_forks_ends_with_its_part,
    programs_have_cgroups_where_there_are_any,
    what_forks_ends_with_its_part_without_cgroups,
    what_forks_ends_with_a_local_program,
    what_forks_ends_with_an_interrupted_local_program,
    the_dead_are_collected_while_their_program_runs,
    the_dead_are_collected_while_a_local_program_runs,
    who_was_there_before_a_local_program_stays,
    who_was_there_before_a_daemon_stays,
];

/// A name that nothing else on this machine has, and a file.
pub struct Left {
    pub name: String,
    folder: tempfile::TempDir,
}

impl Left {
    pub fn new() -> Left {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Left { name: format!("ln{:x}-{number}", std::process::id()), folder: tempfile::tempdir().unwrap() }
    }

    pub fn marker(&self) -> PathBuf {
        self.folder.path().join("at-work")
    }

    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Returns the role of a machine that starts them.
    pub fn role<'a>(&'a self, role: &'a str, kind: &'a str, marker: &'a str) -> [&'a str; 4] {
        [role, kind, &self.name, marker]
    }

    #[track_caller]
    pub fn assert_gone(&self, what: &str) {
        let left = left(&self.name);
        assert!(left.is_empty(), "{what}: {} processes are left: {left:?}", left.len());
        let has_ended = std::fs::exists(crate::links::over(self.marker().to_str().unwrap())).unwrap();
        assert!(!has_ended, "{what}: they were not ended, they have come to their bound");
    }
}

/// Checks that the daemon has no dead children.
#[track_caller]
fn assert_well(rack: &Rack) {
    let daemon = rack.pid("a").to_string();
    wait_until("the dead to be collected", || {
        let stats = std::fs::read_dir("/proc").unwrap().flatten();
        let mut stats = stats.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        !stats.any(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(&format!("Z {daemon} "))))
    });
    rack.run(&[], &["end", "6"]).assert(6, None);
    run(rack.launcher("check")).assert(0, None);
}

/// Returns a rack of one host with a daemon that sees no cgroups. Only root can set that up; other users mostly have
/// none anyway.
fn without_cgroups() -> Rack {
    let mut rack = Rack::prepare(1, LENIENT_MS, "");
    let mut hidden = Command::new("unshare");
    hidden.args(["--mount", "sh", "-c", "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"", "sh"]);
    match crate::root::is_possible() {
        true => rack.start_daemon_in("a", hidden),
        false => rack.start_daemon("a"),
    }
    rack
}

fn ends_with_its_program(rack: &Rack) {
    for kind in KINDS {
        let left = Left::new();
        let marker = left.marker();
        let ended = rack.run(&[], &left.role("leave", kind, marker.to_str().unwrap()));
        ended.assert(0, None);
        let since = Instant::now();
        rack.until_idle();
        left.assert_gone(kind);
        println!("{kind}: nothing is left {:?} after the launcher", since.elapsed());
    }
    assert_well(rack);
}

fn what_forks_ends_with_its_program() {
    ends_with_its_program(&Rack::start(1, LENIENT_MS, ""));
}

fn what_forks_ends_with_its_program_without_cgroups() {
    ends_with_its_program(&without_cgroups());
}

/// The kernel tells the cgroup of a process; the daemon logged at its start whether it has cgroups.
fn programs_have_cgroups_where_there_are_any() {
    let mut rack = Rack::start(1, LENIENT_MS, "");
    let own = format!("gossamer-{}", rack.pid("a"));
    let launch = rack.launch(&["wait"]);
    let pids = launch.ready(1);
    let cgroup_of = |pid: u32| {
        let list = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        list.lines().find_map(|line| line.strip_prefix("0::").map(str::to_owned)).unwrap_or_default()
    };
    let [daemon, part, machine] = [rack.pid("a"), rack.part("a"), pids[&0]].map(cgroup_of);
    let id = rack.json("ps")["programs"][0]["id"].as_str().unwrap().to_owned();
    if rack.daemons["a"].stderr.text().contains("cgroups=\"one for each program") {
        assert!(
            machine.ends_with(&format!("/{own}-{id}")) && part == machine && daemon != machine,
            "{machine} {daemon}"
        );
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 ")).unwrap().split(' ').nth(4).unwrap();
        let folder = std::path::Path::new(mount).join(&machine[1..]);
        assert!(folder.exists(), "{folder:?}");
        launch.signal(Signal::INT);
        assert_eq!(launch.end().code(), Some(130));
        rack.until_idle();
        assert!(!folder.exists(), "{folder:?}");

        // The next daemon removes the leftovers of a killed one.
        let launch = rack.launch(&["wait"]);
        let pids = launch.ready(1);
        let machine = cgroup_of(pids[&0]);
        let folder = std::path::Path::new(mount).join(&machine[1..]);
        send_signal(rack.pid("a"), Signal::KILL);
        assert_eq!(launch.end().code(), Some(70));
        rack.daemons.remove("a").unwrap().end(); // and its streams, which the part has
        assert!(folder.exists(), "{folder:?}");
        rack.start_daemon("a");
        assert!(!folder.exists(), "{folder:?}");
    } else {
        println!("SKIPPED: there is no cgroup v2 in which this user may make others");
        assert!(machine == daemon && rack.daemons["a"].stderr.text().contains("cgroups=\"none: "));
    }
    rack.run(&[], &["end", "6"]).assert(6, None);
    let hidden = without_cgroups();
    if crate::root::is_possible() {
        assert!(hidden.daemons["a"].stderr.text().contains("cgroups=\"none: "));
    }
}

/// Leftovers of a killed part are ended by the daemon.
fn ends_with_its_part(rack: &Rack) {
    for kind in KINDS {
        let left = Left::new();
        let marker = left.marker();
        let launch = rack.launch(&left.role("keep", kind, marker.to_str().unwrap()));
        wait_until("links to be at work", || marker.exists());
        send_signal(rack.part("a"), Signal::KILL);
        assert_eq!(launch.end().code(), Some(70));
        rack.until_idle();
        left.assert_gone(kind);
    }
    assert_well(rack);
}

fn what_forks_ends_with_its_part() {
    ends_with_its_part(&Rack::start(1, LENIENT_MS, ""));
}

fn what_forks_ends_with_its_part_without_cgroups() {
    ends_with_its_part(&without_cgroups());
}

fn what_forks_ends_with_a_local_program() {
    for kind in KINDS {
        let left = Left::new();
        let marker = left.marker();
        run(command(2, &[], &left.role("leave", kind, marker.to_str().unwrap()))).assert(0, None);
        left.assert_gone(kind);
    }
}

fn what_forks_ends_with_an_interrupted_local_program() {
    for kind in ["sessions", "pair"] {
        let left = Left::new();
        let marker = left.marker();
        let launch = start(command(1, &[], &left.role("keep", kind, marker.to_str().unwrap())));
        wait_until("links to be at work", || marker.exists());
        launch.signal(Signal::TERM);
        assert_eq!(launch.end().code(), Some(143));
        left.assert_gone(kind);
    }
}

fn the_dead_are_collected_while_their_program_runs() {
    let rack = Rack::start(1, LENIENT_MS, "");
    let left = Left::new();
    let marker = left.marker();
    let launch = rack.launch(&left.role("keep", "short", marker.to_str().unwrap()));
    launch.ready(1);
    wait_until("links to be at work", || marker.exists());
    wait_until("all links to be collected", || crate::links::left(&left.name).is_empty());
    assert_eq!(rack.json("ps")["programs"].as_array().unwrap().len(), 1, "the program still runs");
    launch.signal(Signal::INT);
    assert_eq!(launch.end().code(), Some(130));
}

fn the_dead_are_collected_while_a_local_program_runs() {
    let left = Left::new();
    let marker = left.marker();
    let launch = start(command(2, &[], &left.role("keep", "short", marker.to_str().unwrap())));
    let pids = launch.ready(2);
    wait_until("links to be at work", || marker.exists());
    wait_until("all links to be collected", || crate::links::left(&left.name).is_empty());
    assert!(pids.values().all(|pid| !is_gone(*pid)), "the program still runs");
    launch.signal(Signal::INT);
    assert_eq!(launch.end().code(), Some(130));
}

/// `sleep & exec gossamer-launch`: the launcher is the sleeper's parent, but has not started it.
fn who_was_there_before_a_local_program_stays() {
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 600 >/dev/null 2>&1 & echo \"before $!\"; exec \"$@\"", "sh"]);
    command.arg(env!("CARGO_BIN_EXE_gossamer-launch")).args(["run", "--local", "1"]);
    command.arg(crate::rig::this_program()).args(["machine", "end", "6"]);
    let ended = run(command);
    ended.assert(6, None);
    let before = ended.stdout.lines().find_map(|line| line.strip_prefix("before ")?.parse().ok()).unwrap();
    assert!(!is_gone(before), "{ended}");
    send_signal(before, Signal::KILL);
}

/// A program's end kills neither the daemon's child nor an orphan of its session: only descendants of programs.
fn who_was_there_before_a_daemon_stays() {
    let mut script = Command::new("sh");
    let text = "sleep 600 >/dev/null 2>&1 & echo \"before $!\" >&2\n\
                sh -c 'read -r line <\"$0\"; sleep 600 >/dev/null 2>&1 & echo \"orphan $!\" >&2' \"$FIFO\" &\n\
                exec \"$@\"";
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    script.args(["-c", text, "sh"]).env("FIFO", &fifo);
    let mut rack = Rack::prepare(1, LENIENT_MS, "");
    rack.start_daemon_in("a", script);
    std::fs::write(&fifo, "now\n").unwrap(); // the daemon gets an orphan that it did not have at its start
    rack.daemons["a"].stderr.wait_for("orphan ");
    rack.run(&[], &["end", "6"]).assert(6, None);
    rack.until_idle();
    send_signal(rack.pid("a"), Signal::TERM);
    let ended = rack.daemons.remove("a").unwrap().end();
    for what in ["before ", "orphan "] {
        let pid = ended.stderr.lines().find_map(|line| line.strip_prefix(what)?.parse().ok()).unwrap();
        assert!(!is_gone(pid), "{what}");
        send_signal(pid, Signal::KILL);
    }
}
