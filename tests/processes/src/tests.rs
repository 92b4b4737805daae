//! Shells as child processes.

use super::*;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

const SHORT: Duration = Duration::from_millis(50);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn with_input(script: &str) -> ChildProcess {
    let mut command = shell(script);
    command.stdin(Stdio::piped());
    ChildProcess::start_with_input(command)
}

/// Returns a process with a short limit that has written `begun`.
fn hanging(script: &str) -> ChildProcess {
    let mut process = ChildProcess::start(shell(script));
    process.stderr.wait_for("begun");
    process.limit = SHORT;
    process.stdout.set_limit(SHORT);
    process.stderr.set_limit(SHORT);
    process
}

fn message<R>(wait: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(wait)).err().expect("a panic");
    *panic.downcast::<String>().expect("a message")
}

#[test]
fn text_that_comes_in_parts_is_found() {
    // A letter of two bytes, half of it first.
    let mut process = with_input(r"printf 'on\303'; read line; printf '\244e two '; read line; echo three; echo four");
    assert_eq!(process.stdout.wait_for("on"), "on\u{fffd}");
    process.write("\n\n");
    assert!(process.stdout.wait_for("two").starts_with("onäe two"));
    assert_eq!(process.stdout.line("two "), "three");
    assert_eq!(process.end().stdout, "onäe two three\nfour\n");
}

#[test]
fn both_outputs_and_the_status_are_kept() {
    let ended = run(shell("cat; echo out; echo err >&2; exit 7"));
    assert_eq!((ended.code(), ended.stdout.as_str(), ended.stderr.as_str()), (Some(7), "out\n", "err\n"));
    assert_eq!(ended.to_string(), "exit status: 7\n--- stdout\nout\n\n--- stderr\nerr\n");
}

#[test]
fn a_wait_that_fails_shows_the_output() {
    let mut process = hanging("echo begun >&2; exec sleep 1000");
    let told = message(|| process.stdout.wait_for("works"));
    assert_eq!(told, "no \"works\" in stdout after 50ms\n--- stdout\n\n--- stderr\nbegun\n");
    let told = message(|| process.wait());
    assert!(told.ends_with("has not ended after 50ms\n--- stdout\n\n--- stderr\nbegun\n"), "{told}");
    process.signal(Signal::KILL);
    let told = message(|| process.stderr.line("works"));
    assert_eq!(told, "no \"works\" in stderr at its end\n--- stdout\n\n--- stderr\nbegun\n");
}

#[test]
fn an_output_that_others_hold_open_is_told() {
    let process = hanging("sleep 1000 & echo $! begun >&2");
    let other = process.stderr.text().split(' ').next().unwrap().parse().unwrap();
    let told = message(|| process.end());
    send_signal(other, Signal::KILL);
    assert!(told.starts_with("another process holds the streams of an ended one open\n"), "{told}");
    wait_until_gone([other]);
}

#[test]
fn a_process_ends_with_its_value() {
    let process = ChildProcess::start(shell("exec sleep 1000"));
    let (pid, pidfds) = (process.id(), Pidfds::open([process.id()]));
    assert!(!is_gone(pid));
    drop(process);
    assert_eq!(pidfds.wait(Duration::ZERO), Ok(()));
    assert!(is_gone(pid));
}

#[test]
fn processes_that_go_on_are_named() {
    let all = ["exit", "exec sleep 1000", "exit"].map(|script| ChildProcess::start(shell(script)));
    wait_until_gone([all[0].id(), all[2].id()]);
    assert_eq!(Pidfds::open(all.iter().map(ChildProcess::id)).wait(SHORT), Err(vec![all[1].id()]));
}

#[test]
fn signals_arrive_and_an_end_is_seen_once() {
    let mut process = ChildProcess::start(shell("trap 'echo trapped; exit 3' USR1; echo ready; while :; do :; done"));
    process.stdout.wait_for("ready");
    assert_eq!(process.has_ended(), None);
    process.signal(Signal::USR1);
    assert_eq!(process.wait().code(), Some(3));
    process.signal(Signal::USR1);
    assert_eq!((process.wait().code(), process.has_ended().and_then(|status| status.code())), (Some(3), Some(3)));
    assert_eq!(process.end().stdout, "ready\ntrapped\n");
    let killed = ChildProcess::start(shell("exec sleep 1000"));
    killed.signal(Signal::KILL);
    assert_eq!(killed.end().status.signal(), Some(9));
}

#[test]
fn input_that_nobody_writes_ends_with_the_wait() {
    assert_eq!(with_input("cat; echo over").end().stdout, "over\n");
}

#[test]
fn children_are_listed() {
    let process = with_input("sleep 1000 & sleep 1000 & echo $! ready; read line");
    process.stdout.wait_for("ready");
    let children = process.children();
    assert!(children.len() == 2 && process.stdout.text().starts_with(&children[1].to_string()), "{children:?}");
    children.iter().for_each(|pid| send_signal(*pid, Signal::KILL));
    process.end();
    wait_until_gone(children);
}

#[test]
fn a_test_plays_a_role() {
    if let Some(role) = role() {
        println!("it plays {role}");
        return;
    }
    let process = ChildProcess::start(in_role("tests::a_test_plays_a_role", "a part"));
    process.stdout.wait_for("it plays a part\n");
    process.passes();
}
