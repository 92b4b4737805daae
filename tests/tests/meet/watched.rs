//! Programs that no launcher of ours has started are watched too: `GOSSAMER_VIEW`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use limits::wait_until;
use processes::{ChildProcess, run};
use rustix::process::Signal;

use crate::rig::{LAUNCH, Meeting, ROLES, end};

const VIEW: (&str, &str) = ("GOSSAMER_VIEW", "127.0.0.1:0");

/// Asks `gossamer-launch` about the program at this address; returns its output.
fn ask(words: &[&str], url: &str) -> String {
    let mut command = Command::new(LAUNCH);
    command.args(words).arg(url);
    let told = run(command);
    assert!(told.status.success(), "{words:?}: {told}");
    told.stdout
}

/// Returns the answer of the page's server to this question.
fn get(url: &str, what: &str) -> String {
    let (host, path) = url.trim_start_matches("http://").split_once('/').unwrap();
    let mut page = TcpStream::connect(host).unwrap();
    write!(page, "GET /{path}{what} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    page.read_to_string(&mut text).unwrap();
    text
}

/// Starts this program alone, with a view.
fn alone(program: &str, role: &[&str]) -> (ChildProcess, String) {
    let mut command = Command::new(program);
    command.args(role).envs([VIEW]);
    let alone = ChildProcess::start(command);
    let url = alone.stderr.line("gossamer: view at ");
    alone.stdout.wait_for("works\n");
    (alone, url)
}

/// Asks `top` until this is in the stack of the stuck worker.
fn stack_with(url: &str, part: &str) -> serde_json::Value {
    let mut stack = serde_json::Value::Null;
    wait_until(part, || {
        stack = top(url)["stacks"][0].clone();
        stack.to_string().contains(part)
    });
    stack
}

fn top(url: &str) -> serde_json::Value {
    serde_json::from_str(&ask(&["top", "--once", "--interval", "0.2", "--json"], url)).unwrap()
}

#[test]
fn machine_0_serves_the_view_of_all_machines() {
    for fabric in ["shm", "tcp"] {
        let meeting = Meeting::new();
        let all = meeting.start_with(3, &["wait"], &[VIEW, ("GOSSAMER_FABRIC", fabric)]);
        let url = all[0].stderr.line("gossamer: view at ");
        all[0].stdout.wait_for("works\n");
        let told = top(&url);
        let machines = told["machines"].as_array().unwrap();
        let pids: Vec<i64> = machines.iter().map(|machine| machine["pid"].as_i64().unwrap()).collect();
        assert_eq!(pids, all.iter().map(|process| i64::from(process.id())).collect::<Vec<_>>(), "{told}");
        assert!(machines.iter().all(|machine| machine["answers"] == true), "{told}");
        assert!(told["workers"].as_array().unwrap().iter().any(|worker| worker["worker"] == "m2w0"), "{told}");
        let dump = ask(&["dump"], &url);
        assert!((0..3).all(|machine| dump.contains(&format!("m{machine} | thread "))), "{dump}");
        let trace = ask(&["trace", "--seconds", "0.2"], &url);
        assert!((0..3).all(|machine| trace.contains(&format!(" m{machine} on "))), "{trace}");
        all[0].signal(Signal::TERM);
        let all = end(all);
        assert_eq!(all[0].status.code(), Some(143), "{all:#?}");
        assert!(all[1..].iter().all(|ended| !ended.stderr.contains("view at")), "{all:#?}");
    }
}

#[test]
fn tasks_and_their_moves_are_shown() {
    let meeting = Meeting::new();
    let all = meeting.start_with(3, &["tasks-wait"], &[VIEW]);
    let url = all[0].stderr.line("gossamer: view at ");
    all[0].stdout.wait_for("works\n");
    let mut told = serde_json::Value::Null;
    wait_until("tasks on all machines", || {
        told = top(&url);
        told["machines"].as_array().unwrap().iter().all(|machine| machine["tasks"]["count"] == 2)
    });
    assert_eq!(told["machines"][0]["tasks"]["left"], serde_json::json!([["asked", 4]]), "{told}");
    let task = &told["machines"][2]["tasks"]["busiest"][0];
    assert_eq!((&task["moves"], &task["came_from"]), (&1.into(), &serde_json::json!([0, "asked"])), "{told}");
    let metrics = get(&url, "metrics");
    assert!(metrics.contains(",reason=\"asked\"} 4\n"), "{metrics}");
    all[0].signal(Signal::TERM);
    end(all);
}

#[test]
fn a_lone_program_serves_its_own_view() {
    let start = |address: &str| {
        let mut command = Command::new(ROLES);
        command.arg("wait").env("GOSSAMER_VIEW", address);
        ChildProcess::start(command)
    };
    let alone = start("127.0.0.1:0");
    let url = alone.stderr.line("gossamer: view at ");
    alone.stdout.wait_for("works\n");
    let told = top(&url);
    assert_eq!(told["machines"].as_array().unwrap().len(), 1, "{told}");
    assert_eq!(told["machines"][0]["pid"], alone.id(), "{told}");
    let mut page = std::net::TcpStream::connect(url.split('/').nth(2).unwrap()).unwrap();
    std::io::Write::write_all(&mut page, b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").unwrap();
    let mut refused = String::new();
    page.read_to_string(&mut refused).unwrap();
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    alone.signal(Signal::TERM);
    alone.end();
    // An unusable address is reported, and the program runs.
    let open = start("0.0.0.0:0");
    assert!(open.stderr.line("GOSSAMER_VIEW: ").contains("token"));
    open.stdout.wait_for("works\n");
    open.signal(Signal::TERM);
    open.end();
}

#[test]
fn the_stack_of_a_stuck_worker_is_shown() {
    let meeting = Meeting::new();
    let all = meeting.start_with(2, &["stuck"], &[VIEW]);
    let url = all[0].stderr.line("gossamer: view at ");
    all[0].stdout.wait_for("works\n");
    let stack = stack_with(&url, "turns_for_ever");
    assert_eq!(stack["worker"], "m1w1", "{stack}");
    let frames: Vec<&str> = stack["frames"].as_array().unwrap().iter().map(|frame| frame.as_str().unwrap()).collect();
    let place = frames.iter().position(|frame| frame.contains("turns_for_ever")).unwrap();
    // Without its line where the build has no debug information.
    let is_named = frames[place].ends_with("turns_for_ever") || frames[place].contains(" (bin/roles/work.rs:");
    assert!(is_named, "{frames:#?}");
    assert!(frames[place + 1].contains("calls_the_loop"), "{frames:#?}");
    // The closure is the last: what serves it is not shown.
    assert!(frames.last().unwrap().contains("test_roles::work::stuck::{{closure}}"), "{frames:#?}");

    let text = ask(&["top", "--once"], &url);
    let lines: Vec<&str> = text.lines().collect();
    let alert = lines.iter().position(|line| line.starts_with("ALERT m1w1 on ")).unwrap();
    assert!(
        lines[alert + 1].starts_with("  ") && lines[alert + 1..].iter().any(|line| line.contains("turns_for_ever"))
    );
    let sample = get(&url, "sample.json");
    assert!(sample.contains("turns_for_ever"), "{sample}");
    let dump = ask(&["dump"], &url);
    let dumped = dump.split_once("m1 | stack of m1w1:\n").unwrap_or_else(|| panic!("{dump}")).1;
    assert!(dumped.lines().take(frames.len()).any(|line| line.contains("turns_for_ever")), "{dump}");
    all[0].signal(Signal::TERM);
    end(all);
}

/// A fiber of machine 0 asks a trustee that takes its time, machine 1's last worker, again and again.
#[test]
fn a_trace_shows_who_waits_for_whom() {
    for fabric in ["shm", "tcp"] {
        let meeting = Meeting::new();
        let all = meeting.start_with(2, &["slow-answers"], &[VIEW, ("GOSSAMER_FABRIC", fabric)]);
        let url = all[0].stderr.line("gossamer: view at ");
        all[0].stdout.wait_for("works\n");
        let mut seen = Vec::new();
        wait_until("waits in a trace", || {
            let trace: serde_json::Value = serde_json::from_str(&ask(&["trace", "--seconds", "0.5"], &url)).unwrap();
            seen = trace["traceEvents"].as_array().unwrap().clone();
            seen.iter().filter(|event| event["name"] == "waits for m1w1").count() > 2
        });
        let number = |value: &serde_json::Value| value.as_f64().unwrap();
        for wait in seen.iter().filter(|event| event["name"] == "waits for m1w1") {
            assert_eq!((&wait["pid"], &wait["ph"], &wait["args"]["trustee"]), (&0.into(), &"X".into(), &"m1w1".into()));
            assert!(number(&wait["dur"]) >= 19_000.0, "{fabric}: {wait}");
            // The track is that of one fiber of machine 0.
            let is_track = |event: &&serde_json::Value| {
                event["name"] == "thread_name" && event["pid"] == 0 && event["tid"] == wait["tid"]
            };
            let track = seen.iter().find(is_track).unwrap()["args"]["name"].as_str().unwrap();
            let (worker, fiber) = (wait["args"]["worker"].as_str().unwrap(), &wait["args"]["fiber"]);
            assert_eq!(track, format!("{worker} fiber {fiber}"));
        }
        // A wait begins before the trustee serves the request, and ends after: both by the one clock of this host.
        // One from the middle: the machines begin and end their traces at times of their own.
        let waits: Vec<_> = seen.iter().filter(|event| event["name"] == "waits for m1w1").collect();
        let wait = waits[waits.len() / 2];
        let (begin, took) = (number(&wait["ts"]), number(&wait["dur"]));
        let serves = |event: &&serde_json::Value| {
            event["name"] == "batch" && event["pid"] == 1 && event["tid"] == 1 && {
                let (start, took_there) = (number(&event["ts"]), number(&event["dur"]));
                took_there >= 19_000.0 && start < begin + took && start + took_there > begin
            }
        };
        assert!(seen.iter().any(|event| serves(&event)), "{fabric}: {wait} {seen:#?}");
        all[0].signal(Signal::TERM);
        end(all);
    }
}

/// Of a program without symbols the module and the offset are known.
#[test]
fn a_stripped_program_has_a_stack_of_offsets() {
    let folder = tempfile::tempdir().unwrap();
    let stripped = folder.path().join("bare");
    let strip = Command::new("strip").arg("-o").args([&stripped, std::path::Path::new(ROLES)]).status().unwrap();
    assert!(strip.success());
    let (program, url) = alone(stripped.to_str().unwrap(), &["stuck"]);
    let stack = stack_with(&url, "bare+0x");
    assert!(stack["frames"].as_array().unwrap().len() > 5, "unwound without symbols: {stack}");
    program.signal(Signal::TERM);
    program.end();
}

#[test]
fn a_program_with_a_handler_of_its_own_keeps_it() {
    let (program, url) = alone(ROLES, &["stuck", "handles"]);
    let stack = stack_with(&url, "the program handles SIGURG itself");
    assert!(stack["frames"].as_array().unwrap().is_empty(), "{stack}");
    program.signal(Signal::URG);
    program.stderr.wait_for("has not answered within");
    program.signal(Signal::TERM);
    program.end();
}
