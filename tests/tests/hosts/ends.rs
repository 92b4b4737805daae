//! Programs that end by themselves.

use crate::rack::{ROLES, Rack};

/// Lines of a program's output, on two hosts together.
const LINES: usize = 1_000_000;

#[test]
fn a_program_runs_on_all_hosts_and_its_status_comes_back() {
    let rack = Rack::start(3);
    for (role, status) in [(vec!["everyone"], 0), (vec!["calls"], 0), (vec!["status", "7"], 7), (vec!["panic"], 101)] {
        let ended = rack.run(&role).end();
        assert_eq!(ended.status.code(), Some(status), "{role:?}: {ended:#?}");
        rack.assert_nothing_is_left();
    }
}

/// One host is so slow that the others wait for it longer than for a silent host.
#[test]
fn a_program_is_carried_to_hosts_that_lack_it() {
    const SECONDS: u64 = 5;
    let rack = Rack::start(3);
    let bytes = std::fs::metadata(ROLES).unwrap().len();
    rack.network.slow_down(2, 8 * bytes / SECONDS);
    let ended = rack.run_carried("everyone").end();
    assert!(ended.status.success(), "{ended:#?}");
    rack.assert_nothing_is_left();
}

/// As the program computes it, and as `gossamer-launch status` shows it, beside the memory in use.
#[test]
fn the_size_of_all_slots_is_told() {
    let rack = Rack::start(2);
    let (launcher, pids) = rack.waiting();
    let said = launcher.stdout.wait_for("works\n");
    let machine_of =
        |status: &serde_json::Value, host: usize| status["hosts"][host]["status"]["programs"][0]["machines"][0].clone();
    // A host hears of its machine by itself, maybe later than machine 0 works.
    let mut status = serde_json::Value::Null;
    limits::wait_until("both hosts to have heard from their machines", || {
        status = serde_json::from_str(&rack.launcher(&["status", "--json"]).end().stdout).unwrap();
        (0..2).all(|host| machine_of(&status, host)["slots_bytes"].is_u64())
    });
    for (host, pid) in pids.iter().enumerate() {
        let machine = machine_of(&status, host);
        let words = format!("machine {host} has {} bytes of slots", machine["slots_bytes"]);
        assert!(machine["pid"] == *pid && said.contains(&words), "{words}: {said} {status}");
        // One worker and a service thread each, so four pairs: one of 16 slots of 8 KiB and 64 bytes and three of one,
        // for requests and for answers.
        assert_eq!(machine["slots_bytes"], 2 * (16 + 3) * (8192 + 64), "{status}");
        assert!(machine["resident_bytes"].as_u64() > Some(100_000), "{status}");
    }
    let text = rack.launcher(&["status"]).end().stdout;
    assert_eq!(text.matches(": 306 KiB of slots, ").count(), 2, "{text}");
    launcher.signal(rustix::process::Signal::INT);
    assert_eq!(launcher.end().status.code(), Some(130));
    rack.assert_nothing_is_left();
}

#[test]
fn machines_are_on_the_hosts_that_were_named() {
    let rack = Rack::start(3);
    let ended = rack.launcher(&["run", "--hosts", "h2,h1", "--machines-per-host", "2", ROLES, "places"]).end();
    assert!(ended.status.success(), "{ended:#?}");
    let machines: Vec<&str> = ended.stdout.lines().filter_map(|line| line.split(" on ").nth(1)).collect();
    assert_eq!(machines.len(), 4, "{ended:#?}");
    for (machine, (host, way)) in machines.iter().zip([("h2,", ""), ("h2,", "shm"), ("h1,", "tcp"), ("h1,", "tcp")]) {
        assert!(machine.starts_with(host) && machine.ends_with(way), "{ended:#?}");
    }
    rack.assert_nothing_is_left();
}

#[test]
fn a_million_lines_come_whole_and_in_order() {
    let rack = Rack::start(2);
    let ended = rack.run(&["lines", &(LINES / 2).to_string()]).end();
    assert!(ended.status.success(), "{}", ended.stderr);
    let mut next = [0usize; 2];
    for line in ended.stdout.lines() {
        let (prefix, text) = line.split_once(" | ").unwrap_or_else(|| panic!("no name before {line:?}"));
        let machine: usize = prefix[1..2].parse().unwrap_or_else(|_| panic!("no machine in {line:?}"));
        let (number, rest) = text.split_once(' ').unwrap_or_else(|| panic!("no number in {line:?}"));
        assert_eq!(number, next[machine].to_string(), "machine {machine}: a line is lost, or out of order");
        let byte = b'a' + (number.parse::<usize>().unwrap() % 26) as u8;
        let is_whole = rest.len() == 40 + next[machine] % 20 && rest.bytes().all(|found| found == byte);
        assert!(is_whole, "mixed within a line: {line:?}");
        next[machine] += 1;
    }
    assert_eq!(next, [LINES / 2; 2]);
    rack.assert_nothing_is_left();
}
