//! Programs that no launcher of ours has started are watched too: `GOSSAMER_VIEW`.

use std::io::Read;
use std::process::Command;

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
