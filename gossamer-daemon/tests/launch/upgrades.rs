//! Daemons that are upgraded while programs run: the process stays, its executable is another file.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use limits::wait_until;
use processes::{ChildProcess, Ended, send_signal, wait_until_gone};
use rustix::process::Signal;

use crate::drained::of_hosts;
use crate::hosts::{DAEMON, LENIENT_MS, Rack};
use crate::rig::{Complaints, Machines, run, start};

crate::tests![
    a_program_loses_nothing_in_many_upgrades,
    a_machine_that_is_killed_after_an_upgrade_ends_its_program,
    a_daemon_that_is_killed_after_an_upgrade_takes_its_machines_along,
    an_executable_that_cannot_take_over_changes_nothing,
    launchers_that_come_during_upgrades_are_served,
    programs_that_wait_and_readers_of_output_go_on,
    a_program_is_watched_after_an_upgrade,
    a_daemon_is_as_before_after_an_upgrade,
    limits_of_memory_are_kept_after_an_upgrade,
];

/// A rack whose daemons are executed from files of their own.
struct Upgradable {
    rack: Rack,
}

impl Upgradable {
    fn start(hosts: usize, more: &str) -> Upgradable {
        let mut all = Upgradable { rack: Rack::prepare(hosts, LENIENT_MS, more) };
        for name in ["a", "b", "c"].into_iter().take(hosts) {
            all.install(name, DAEMON);
            let file = all.file(name);
            all.rack.start_daemon_of(name, Command::new("env"), &file);
            all.rack.daemons[name].stderr.wait_for("listening");
        }
        all
    }

    /// Path of the executable of a host's daemon.
    fn file(&self, name: &str) -> PathBuf {
        self.rack.folder.path().join(format!("gossamer-daemon-{name}"))
    }

    /// Replaces it by another file, as packages do. Another process writes it: one that this one forks meanwhile would
    /// have it open for writing.
    fn install(&self, name: &str, from: &str) {
        let new = self.rack.folder.path().join("new");
        assert!(Command::new("cp").arg(from).arg(&new).status().unwrap().success());
        std::fs::rename(new, self.file(name)).unwrap();
    }

    /// Replaces it by a file with this text.
    fn write(&self, name: &str, text: &str) {
        let new = self.rack.folder.path().join("new");
        let mut shell = Command::new("sh");
        assert!(shell.args(["-c", "printf %s \"$1\" > \"$2\"", "sh", text]).arg(&new).status().unwrap().success());
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, self.file(name)).unwrap();
    }

    /// Number of the file that a daemon executes.
    fn executed(&self, name: &str) -> u64 {
        std::fs::metadata(format!("/proc/{}/exe", self.rack.pid(name))).unwrap().ino()
    }

    fn upgrade(&self, names: &[&str]) -> Ended {
        run(of_hosts(&self.rack, "upgrade", names))
    }

    /// Upgrades daemons to new files, and checks that the same process executes them.
    #[track_caller]
    fn upgrade_well(&self, names: &[&str]) {
        for name in names {
            self.install(name, DAEMON);
        }
        let ended = self.upgrade(names);
        ended.assert(0, None);
        for name in names {
            assert_eq!(self.executed(name), std::fs::metadata(self.file(name)).unwrap().ino(), "{name}: {ended}");
            assert!(ended.stdout.contains(&format!("{name} runs gossamer-daemon 0.")), "{ended}");
        }
    }
}

/// Machine 0 answers lines of input; the others print numbers as fast as they can until a file is there.
const TALKS: &str = "if [ $GOSSAMER_MACHINE = 0 ]; then while read line; do echo got $line; done; exit; fi
                     i=0; while [ ! -e \"$1\" ]; do echo $i; i=$((i+1)); done; echo counted $i; exit 3";

fn a_program_loses_nothing_in_many_upgrades() {
    let all = Upgradable::start(2, "");
    let rack = &all.rack;
    let go = rack.folder.path().join("go");
    let (reader, mut input) = std::io::pipe().unwrap();
    let mut command = rack.launcher("run");
    command.args(["--machines-per-host", "2", "sh", "-c", TALKS, "sh"]).arg(&go).stdin(reader);
    let program = start(command);
    for words in ["m1@a | 1\n", "m2@b | 1\n", "m3@b | 1\n"] {
        program.stdout.wait_for(words);
    }
    let (parts, daemons) = (["a", "b"].map(|name| rack.part(name)), ["a", "b"].map(|name| rack.pid(name)));
    let id = rack.json("ps")["programs"][0]["id"].clone();
    for round in 0..12 {
        writeln!(input, "before {round}").unwrap();
        all.upgrade_well(if round % 3 == 0 { &["a", "b"] } else { &["a"] });
        writeln!(input, "after {round}").unwrap();
        program.stdout.wait_for(&format!("m0@a | got after {round}\n"));
    }
    assert_eq!((["a", "b"].map(|name| rack.part(name)), ["a", "b"].map(|name| rack.pid(name))), (parts, daemons));
    let listed = rack.json("ps");
    assert!(listed["programs"][0]["id"] == id && listed["programs"][0]["machines"].as_array().unwrap().len() == 4);
    std::fs::write(&go, "").unwrap();
    drop(input);
    let ended = program.end();
    let [complaint] = ended.complaints()[..] else { panic!("{}", ended.stderr) };
    assert!(ended.code() == Some(3) && complaint.ends_with("exited with status 3"), "{}", ended.stderr);
    let mut told: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    ended.stdout.lines().filter_map(|line| line.split_once(" | ")).for_each(|(machine, text)| {
        told.entry(machine).or_default().push(text);
    });
    let answers = (0..12).flat_map(|round| [format!("got before {round}"), format!("got after {round}")]);
    assert_eq!(told.remove("m0@a").unwrap(), answers.collect::<Vec<_>>());
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), ["m1@a", "m2@b", "m3@b"]);
    for (machine, lines) in told {
        let (last, numbers) = lines.split_last().unwrap();
        assert_eq!(*last, format!("counted {}", numbers.len()), "{machine}");
        let is_next = |(number, line): (usize, &&str)| line.parse::<usize>() == Ok(number);
        assert!(numbers.iter().enumerate().all(is_next), "{machine}: lines are lost");
    }
    rack.until_idle();
    let mut logs = rack.launcher("logs");
    logs.args(["--output", id.as_str().unwrap()]);
    let kept = run(logs);
    assert!(kept.code() == Some(0) && kept.stdout.contains("m3@b | counted "), "{}", kept.stderr);
}

fn a_machine_that_is_killed_after_an_upgrade_ends_its_program() {
    let all = Upgradable::start(2, "");
    let rack = &all.rack;
    for kills_part in [false, true] {
        let program = rack.launch(&["wait"]);
        let pids = program.ready(2);
        all.upgrade_well(&["a", "b"]);
        let (victim, words) = match kills_part {
            false => (pids[&1], format!("(pid {} on b) was killed by signal 9 (SIGKILL)", pids[&1])),
            true => (rack.part("b"), format!("(pid {}) was killed by signal 9 (SIGKILL)", rack.part("b"))),
        };
        send_signal(victim, Signal::KILL);
        let ended = program.end();
        assert!(ended.status.code().is_some_and(|code| code != 0), "{ended}");
        assert!(ended.stderr.contains(&words), "{words}: {ended}");
        wait_until_gone(pids.into_values());
        rack.until_idle();
    }
    rack.run(&[], &["end", "5"]).assert(5, None);
}

fn a_daemon_that_is_killed_after_an_upgrade_takes_its_machines_along() {
    let mut all = Upgradable::start(2, "");
    let program = all.rack.launch(&["wait"]);
    let pids = program.ready(2);
    all.upgrade_well(&["b"]);
    send_signal(all.rack.pid("b"), Signal::KILL);
    let ended = program.end();
    ended.complains(70, "host b: its daemon has closed the connection");
    wait_until_gone(pids.into_values());
    all.rack.daemons.remove("b").unwrap().end();
}

fn an_executable_that_cannot_take_over_changes_nothing() {
    let all = Upgradable::start(2, "");
    let rack = &all.rack;
    let program = rack.launch(&["wait"]);
    program.ready(2);
    let executed = ["a", "b"].map(|name| all.executed(name));
    let fails = |words: &str| {
        let ended = all.upgrade(&["a", "b"]);
        ended.complains(1, words);
        assert!(ended.stderr.contains("host a: ") && ended.stderr.contains("not upgraded: b"), "{ended}");
        assert_eq!(["a", "b"].map(|name| all.executed(name)), executed);
        rack.run(&[], &["end", "5"]).assert(5, None);
    };
    all.install("a", "/bin/true"); // it agrees to everything, without a word
    fails("cannot take over");
    all.write("a", "#!/bin/sh\necho 'error while loading shared libraries' >&2; exit 127\n");
    fails("error while loading shared libraries; the old daemon goes on");
    all.write("a", "no program");
    fails("gossamer-daemon-a");
    std::fs::remove_file(all.file("a")).unwrap();
    fails("No such file or directory");
    // By a signal the reason is in the log.
    rack.daemons["a"].signal(Signal::USR2);
    rack.daemons["a"].stderr.wait_for("the upgrade has failed: this daemon goes on");
    // With files that the new daemon could not use.
    all.install("a", DAEMON);
    let text = std::fs::read_to_string(rack.file()).unwrap();
    std::fs::write(rack.file(), text.replace("hosts:", "host:")).unwrap();
    rack.daemons["a"].signal(Signal::USR2);
    rack.daemons["a"].stderr.wait_for("unknown field `host`");
    std::fs::write(rack.file(), text.replace("connect_ms: 60000", "connect_ms: 60000}\nport: 7118 #")).unwrap();
    rack.daemons["a"].signal(Signal::USR2);
    rack.daemons["a"].stderr.wait_for("restart the daemon to listen there");
    std::fs::write(rack.file(), text).unwrap();
    // Another version says so.
    let mut check = Command::new(DAEMON);
    check.arg("--rack").arg(rack.file()).args(["--host", "a", "take-over-check", "--versions", "0.0"]);
    check.args(["--listening", &rack.addresses[0].to_string()]);
    let told = run(check);
    assert!(told.code() == Some(70) && told.stderr.contains("this one is of 0.0"), "{told}");

    all.upgrade_well(&["a", "b"]);
    program.signal(Signal::TERM);
    assert_eq!(program.end().code(), Some(143));
}

fn launchers_that_come_during_upgrades_are_served() {
    let all = Upgradable::start(2, "");
    let rack = &all.rack;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let one = |words: &'static [&'static str]| {
            let is_over = &is_over;
            move || {
                let mut count = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let mut command = rack.launcher(words[0]);
                    command.args(&words[1..]);
                    let ended = run(command);
                    assert!(ended.code() == Some(0) && ended.complaints().is_empty(), "{words:?}: {ended}");
                    assert_eq!(ended.stdout.matches("ran").count(), if words[0] == "run" { 2 } else { 0 }, "{ended}");
                    count += 1;
                }
                count
            }
        };
        let launchers = [
            scope.spawn(one(&["run", "sh", "-c", "echo ran"])),
            scope.spawn(one(&["run", "--hosts", "b,a", "sh", "-c", "echo ran"])),
            scope.spawn(one(&["status"])),
        ];
        let upgraded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..10).for_each(|_| all.upgrade_well(&["a", "b"]));
        }));
        is_over.store(true, Ordering::Relaxed);
        let served = launchers.map(|launcher| launcher.join().unwrap());
        upgraded.unwrap();
        assert!(served.iter().all(|count| *count >= 5), "{served:?}");
    });
    rack.until_idle();
}

fn programs_that_wait_and_readers_of_output_go_on() {
    let all = Upgradable::start(2, "limits: {programs: 1}");
    let rack = &all.rack;
    let go = rack.folder.path().join("go");
    let mut command = rack.launcher("run");
    command.args(["sh", "-c", "echo pid $$; while [ ! -e \"$1\" ]; do sleep 0.01; done; echo over", "sh"]).arg(&go);
    let first = start(command);
    first.ready(2);
    let id = rack.json("ps")["programs"][0]["id"].as_str().unwrap().to_owned();
    let mut follower = rack.launcher("logs");
    follower.args(["--output", "-f", &id]);
    let follower = start(follower);
    follower.stdout.wait_for("m1@b | pid ");
    let in_queue = |place: &str| {
        let launch = start(rack.command(&["--wait"], &["wait"]));
        launch.stderr.wait_for(place);
        launch
    };
    let rest = [in_queue("this one is next"), in_queue("1 program waits before"), in_queue("2 programs wait before")];
    for _ in 0..3 {
        all.upgrade_well(&["a", "b"]);
    }
    assert!(rest.iter().all(|launch| launch.pids().is_empty()), "not before its turn");
    std::fs::write(&go, "").unwrap();
    first.end().assert(0, None);
    let followed = follower.end();
    followed.assert(0, None);
    for words in ["m0@a | over", "m1@b | over", "m0@a | pid ", "m1@b | pid "] {
        assert_eq!(followed.stdout.matches(words).count(), 1, "{followed}");
    }
    for next in rest {
        next.ready(2);
        next.signal(Signal::TERM);
        assert_eq!(next.end().code(), Some(143));
    }
    rack.until_idle();
}

fn a_program_is_watched_after_an_upgrade() {
    let all = Upgradable::start(2, "");
    let rack = &all.rack;
    let program = rack.launch(&["watched"]);
    program.ready(2);
    let mut top = rack.launcher("top");
    let top: ChildProcess = {
        top.arg("--json");
        start(top)
    };
    top.stdout.wait_for("\"workers\"");
    for _ in 0..3 {
        all.upgrade_well(&["a", "b"]);
        let ended = run(of_hosts(rack, "top", &["--once", "--json"]));
        ended.assert(0, None);
        let told: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(told["workers"].as_array().map(Vec::len), Some(4), "{told}");
    }
    let before = top.stdout.text().lines().count();
    wait_until("top to go on", || top.stdout.text().lines().count() > before + 1);
    for line in top.stdout.text().lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()) {
        assert_eq!(line["workers"].as_array().map(Vec::len), Some(4), "{line}");
    }
    top.signal(Signal::KILL);
    program.signal(Signal::TERM);
    program.end();
}

fn a_daemon_is_as_before_after_an_upgrade() {
    let all = Upgradable::start(2, "");
    let rack = &all.rack;
    wait_until("the daemons to find each other", || run(rack.launcher("check")).status.success());
    let lost = || rack.daemons["a"].stderr.text().matches("a host of the rack is not there").count();
    let lost_before = lost();
    let shown = || {
        let status = rack.json("status");
        ["/hosts/1/status/pid", "/hosts/1/cores", "/hosts/1/status/user", "/hosts/1/status/drained_by"]
            .map(|field| status.pointer(field).unwrap().clone())
    };
    run(of_hosts(rack, "drain", &["b"])).assert(0, None);
    let before = shown();
    assert!(before[3].is_string(), "{before:?}");
    // A key file that cannot be used changes nothing.
    let key = rack.folder.path().join("rack.key");
    let text = std::fs::read_to_string(&key).unwrap();
    let client = rack.folder.path().join("client");
    std::fs::create_dir(&client).unwrap();
    for file in ["rack.yaml", "rack.key"] {
        std::fs::copy(rack.folder.path().join(file), client.join(file)).unwrap();
    }
    std::fs::write(&key, "").unwrap();
    all.install("b", DAEMON);
    let mut upgrade = rack.launcher_by("client", "upgrade");
    upgrade.arg("b");
    run(upgrade).assert(0, None);
    std::fs::write(&key, text).unwrap();
    assert_eq!(shown(), before);
    let logs = run(of_hosts(rack, "logs", &["--hosts", "b", "-n", "100"]));
    assert!(logs.stdout.matches("listening").count() == 2 && logs.stdout.contains("begins an upgrade"), "{logs}");
    assert_eq!(lost(), lost_before, "the other daemon notices nothing");
    run(of_hosts(rack, "resume", &["b"])).assert(0, None);
    wait_until("the daemons to find each other", || run(rack.launcher("check")).status.success());
    // Core dumps are allowed as before: the new daemon has the old limit.
    let limits = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        text.lines().find(|line| line.starts_with("Max core")).unwrap().to_owned()
    };
    let core = |name: &str| {
        let program = start(rack.command(&["--hosts", name], &["wait"]));
        let pid = program.ready(1)[&0];
        let found = limits(pid);
        program.signal(Signal::TERM);
        program.end();
        found
    };
    assert_eq!(core("b"), core("a"));
    // It ends as a daemon that was never upgraded.
    let program = rack.launch(&["wait"]);
    let pids = program.ready(2);
    rack.daemons["b"].signal(Signal::TERM);
    program.end().complains(70, "gossamer-daemon was told to end");
    wait_until_gone(pids.into_values());
}

/// Where the daemon keeps such limits: elsewhere only the refusal is checked.
fn limits_of_memory_are_kept_after_an_upgrade() {
    let all = Upgradable::start(1, "");
    let limits = crate::memory::keeps_limits(&all.rack);
    let program = start(all.rack.command(&[], &["wait"]));
    program.ready(1);
    all.upgrade_well(&["a"]);
    let ended = crate::memory::greedy(&all.rack, &["--memory", "96M"]);
    match limits {
        true => ended.complains(137, "out of memory"),
        false => ended.complains(70, "cannot limit the memory of programs"),
    }
    program.signal(Signal::TERM);
    assert_eq!(program.end().code(), Some(143));
}
