//! Output of a program, read from elsewhere (`logs --output`).

use std::process::Command;

use limits::wait_until;
use processes::{ChildProcess, send_signal};
use rustix::process::Signal;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, Machines, run, start};

crate::tests![
    output_can_be_read_while_a_program_runs_and_afterwards,
    output_can_be_followed_to_the_end,
    only_the_last_output_is_kept,
    what_is_not_there_is_told,
    a_detached_program_runs_by_itself,
    what_cannot_be_detached_is_told_to_its_caller,
];

/// Starts `sh -c SCRIPT` on the rack, and returns the running program with its number.
fn program(rack: &Rack, script: &str, args: &[&str]) -> (ChildProcess, String) {
    let mut command = rack.launcher("run");
    command.args(["sh", "-c", script, "sh"]).args(args);
    let launch = start(command);
    launch.ready(2);
    (launch, rack.json("ps")["programs"][0]["id"].as_str().unwrap().to_owned())
}

fn logs(rack: &Rack, options: &[&str], id: &str) -> Command {
    let mut command = rack.launcher("logs");
    command.args(options).arg(id);
    command
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.contains(" | pid ")).collect();
    lines.sort_unstable();
    lines
}

const OUT: [&str; 2] = ["m0@a | out", "m1@b | out"];
const ERR: [&str; 2] = ["m0@a | err, without end", "m1@b | err, without end"];

fn output_can_be_read_while_a_program_runs_and_afterwards() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let script = "echo out; printf 'err, without end' >&2; echo pid $$; exec sleep 1000";
    let (launch, id) = program(&rack, script, &[]);
    drop(launch); // killed
    rack.until_idle();
    let script = "echo out; printf 'err, without end' >&2; echo pid $$; trap 'exit $GOSSAMER_MACHINE' TERM
                  while :; do sleep 0.01; done";
    let (launch, second) = program(&rack, script, &[]);
    // The first has ended with its launcher, the second runs: both can be read, each by itself.
    for number in [&id, &second] {
        let mut ended = None;
        wait_until("all to be there", || {
            let read = run(logs(&rack, &["--output"], number));
            let is_whole = sorted(&read.stdout) == OUT && read.stderr.lines().count() >= 2;
            ended = Some(read);
            is_whole
        });
        let ended = ended.unwrap();
        ended.assert(0, None);
        assert_eq!(sorted(&ended.stderr), ERR);
    }
    launch.signal(Signal::TERM);
    launch.end();
    rack.until_idle();
    let ended = run(logs(&rack, &["-o", "--hosts", "b"], &second));
    ended.assert(0, Some("machine 1 on b exited with status 1"));
    assert_eq!(sorted(&ended.stdout), [OUT[1]]);
}

fn output_can_be_followed_to_the_end() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("go");
    let script = "echo pid $$; echo early; while [ ! -e \"$1\" ]; do sleep 0.01; done
                  i=0; while [ $i -lt 3000 ]; do echo late $i; i=$((i + 1)); done; exit 0";
    let (launch, id) = program(&rack, script, &[file.to_str().unwrap()]);
    let followers = [start(logs(&rack, &["-o", "-f"], &id)), start(logs(&rack, &["-of", "--hosts", "a"], &id))];
    followers.iter().for_each(|follower| drop(follower.stdout.wait_for("| early")));
    std::fs::write(&file, "").unwrap();
    assert_eq!(launch.end().code(), Some(0));
    for (follower, hosts) in followers.into_iter().zip([2, 1]) {
        let ended = follower.end();
        ended.assert(0, None);
        let late: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("m0@a | late ")).collect();
        let expected: Vec<String> = (0..3000).map(|number| format!("m0@a | late {number}")).collect();
        assert!(late.iter().copied().eq(&expected), "each once, in order");
        assert_eq!(ended.stdout.lines().filter(|line| line.contains(" | late ")).count(), hosts * 3000);
    }
}

fn only_the_last_output_is_kept() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let script = "echo pid $$; seq 100000; while :; do sleep 0.01; done";
    let (launch, id) = program(&rack, script, &[]);
    launch.printed("| 100000", 2);
    let ended = run(logs(&rack, &["-o", "--hosts", "b"], &id));
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert_eq!(ended.complaints(), ["host b: some output before this is not kept any more"]);
    let bytes: usize = ended.stdout.lines().map(|line| line.len() - "m1@b | ".len() + 1).sum();
    assert!(bytes <= 256 << 10 && bytes > 128 << 10, "{bytes}");
    assert_eq!(ended.stdout.lines().last().unwrap(), "m1@b | 100000");
    launch.signal(Signal::KILL);
    launch.end();
}

fn what_is_not_there_is_told() {
    let mut rack = Rack::start(2, LENIENT_MS, "");
    let unknown = run(logs(&rack, &["--output"], "0000abcd"));
    unknown.assert(1, Some("no host that answers remembers program 0000abcd"));
    for wrong in [&["--output", "--json"][..], &["-f"], &["-o", "-n", "3"]] {
        assert_eq!(run(logs(&rack, wrong, "0000abcd")).code(), Some(2));
    }
    let (launch, id) = program(&rack, "echo pid $$; while :; do sleep 0.01; done", &[]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let into_full = logs(&rack, &["-of"], &id).stdout(full).output().unwrap();
    assert_eq!(into_full.status.code(), Some(70));
    let told = String::from_utf8_lossy(&into_full.stderr).into_owned();
    assert!(told.contains("cannot write to standard output: No space left"), "{told}");
    send_signal(rack.pid("b"), Signal::KILL);
    rack.daemons.remove("b").unwrap().end();
    launch.end();
    let half = run(logs(&rack, &["-of"], &id));
    assert!(half.code() == Some(1) && half.complaints().iter().any(|line| line.starts_with("host b: ")), "{half}");
    assert_eq!(half.stdout.lines().count(), 1, "{half}");
}

fn detached(rack: &Rack, options: &[&str], script: &str, args: &[&str]) -> Command {
    let mut command = rack.launcher("run");
    command.arg("--detach").args(options).args(["sh", "-c", script, "sh"]).args(args);
    command
}

fn a_detached_program_runs_by_itself() {
    let rack = Rack::start(2, LENIENT_MS, "limits: {programs: 1}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("go");
    let script = "echo early; while [ ! -e \"$1\" ]; do sleep 0.01; done; read line && exit 9; echo late; exit 3";
    let ended = run(detached(&rack, &[], script, &[file.to_str().unwrap()]));
    ended.assert(0, None);
    let id = ended.stdout.trim_end();
    assert_eq!(rack.json("ps")["programs"][0]["id"], *id, "it runs, though its caller has ended");
    let follower = start(logs(&rack, &["-of"], id));
    follower.printed("| early", 2);
    // Another one that waits for it, and its caller with it.
    let waiting = start(detached(&rack, &["--wait"], "exec sleep 1000", &[]));
    waiting.stderr.wait_for("this one is next");
    let left = start(detached(&rack, &["--wait"], "exec sleep 1000", &[]));
    left.stderr.wait_for("1 program waits");
    left.signal(Signal::INT); // it leaves the queue
    assert_eq!(left.end().code(), None);
    std::fs::write(&file, "").unwrap();
    let followed = follower.end();
    assert_eq!(followed.code(), Some(0));
    assert_eq!(sorted(&followed.stdout), ["m0@a | early", "m0@a | late", "m1@b | early", "m1@b | late"]);
    assert_eq!(followed.complaints().len(), 2, "each exited with status 3: {followed}");
    let second = waiting.end();
    assert_eq!((second.code(), second.stdout.lines().count()), (Some(0), 1), "{second}");
    let mut command = rack.launcher("kill");
    command.arg(second.stdout.trim_end());
    run(command).assert(0, None);
    rack.until_idle();
    assert_eq!(rack.run(&[], &["end", "4"]).code(), Some(4), "nobody waits any more");
}

fn what_cannot_be_detached_is_told_to_its_caller() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let tell = |options: &[&str], program: &str, status: i32, words: &str| {
        let mut command = rack.launcher("run");
        command.arg("--detach").args(options).arg(program);
        let ended = run(command);
        assert!(ended.code() == Some(status) && ended.stdout.is_empty(), "{ended}");
        assert!(ended.stderr.contains(words), "{words}: {ended}");
    };
    tell(&[], "/no/such/program", 127, "cannot start /no/such/program");
    tell(&["--folder", "/no/such/folder"], "true", 70, "cannot enter /no/such/folder (--folder)");
    tell(&["--hosts", "x"], "true", 70, "no host x");
    let mut local = crate::rig::launcher();
    local.args(["run", "--local", "2", "--detach", "true"]);
    assert_eq!(run(local).code(), Some(2));
    rack.until_idle();
}
