//! The range of ports of programs, and paths between hosts that lose packets: `gossamer-launch check` tells of them.

use std::fs;

use processes::ChildProcess;
use rustix::process::Signal;

use crate::network::Filter;
use crate::rack::{ROLES, Rack};

/// Runs `check`, which finds fault with the paths, and says all of these.
#[track_caller]
fn assert_checks(rack: &Rack, words: &[&str]) -> String {
    let ended = rack.launcher(&["check"]).end();
    assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
    for word in words {
        assert!(ended.stdout.contains(word), "no {word:?}: {ended:#?}");
    }
    println!("{}", ended.stdout.trim_end());
    rack.assert_nothing_is_left();
    ended.stdout
}

#[track_caller]
fn assert_is_well(rack: &Rack) {
    let ended = rack.launcher(&["check"]).end();
    assert!(ended.status.success(), "{ended:#?}");
}

fn filter(rack: &Rack, filter: Filter) {
    (0..rack.network.hosts.len()).for_each(|host| rack.network.filter(host, filter));
}

/// Starts a program of two machines on each host, all of which listen.
fn start(rack: &Rack) -> ChildProcess {
    rack.launcher(&["run", "--machines-per-host", "2", "--fabric", "tcp", ROLES, "wait"])
}

/// Returns the ports at which a host listens, but for that of its daemon.
fn listening(rack: &Rack, host: usize) -> Vec<u16> {
    const LISTENING: &str = "0A";
    let table = || fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let table = rack.network.hosts[host].namespace.inside(table);
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let own = rows.filter(|row| row[3] == LISTENING).map(|row| row[1].rsplit(':').next().unwrap().to_owned());
    let mut ports: Vec<u16> = own.map(|port| u16::from_str_radix(&port, 16).unwrap()).collect();
    ports.retain(|port| *port != crate::rack::PORT);
    ports.sort();
    ports
}

#[test]
fn a_firewall_that_lets_the_daemons_alone_through() {
    let rack = Rack::start_with(2, "");
    filter(&rack, Filter::OtherPorts("7117"));
    let first = "from h0 to h1: cannot connect to 10.77.0.2:";
    let cure = "a firewall? programs take any free port; choose a range, `ports` in rack.yaml";
    assert_checks(&rack, &[first, "from h1 to h0: cannot connect to 10.77.0.1:", cure]);
    rack.network.unfilter(0);
    let half = rack.launcher(&["check"]).end();
    assert!(half.stdout.contains(first) && !half.stdout.contains("from h1 to h0"), "one direction: {half:#?}");
    rack.network.unfilter(1);
    assert_is_well(&rack);
}

#[test]
fn programs_keep_to_the_ports_that_a_firewall_lets_through() {
    let rack = Rack::start_with(2, "ports: 7200-7203\n");
    filter(&rack, Filter::OtherPorts("7117, 7200-7203"));
    assert_is_well(&rack);
    let first = start(&rack);
    first.stdout.wait_for("works\n");
    assert_is_well(&rack);
    let second = start(&rack);
    second.stdout.wait_for("works\n");
    for host in [0, 1] {
        assert_eq!(listening(&rack, host), [7200, 7201, 7202, 7203], "host {host}");
    }
    let third = start(&rack).end();
    assert!(!third.status.success(), "{third:#?}");
    assert!(third.stderr.contains("all ports of 7200-7203 are taken there"), "{third:#?}");
    let checked = rack.launcher(&["check"]).end();
    assert!(checked.stdout.contains("from h0 to h1: all ports of 7200-7203 are taken on h1"), "{checked:#?}");
    for program in [first, second] {
        program.signal(Signal::TERM);
        program.end();
    }
    rack.assert_nothing_is_left();
    assert_is_well(&rack);
}

#[test]
fn a_firewall_that_lets_a_part_of_the_range_through() {
    let rack = Rack::start_with(2, "ports: 7200-7299\n");
    rack.network.filter(1, Filter::OtherPorts("7117, 7200-7250"));
    let words = ["from h0 to h1: cannot connect to 10.77.0.2:7299", "let 7200-7299, the `ports` in rack.yaml, through"];
    assert_checks(&rack, &words);
}

/// The launcher on this side of the path, and on the other.
#[test]
fn a_path_that_loses_large_packets() {
    let rack = Rack::start_with(2, "ports: 7200-7299\n");
    for (deaf, from, to) in [(0, "h1", "h0"), (1, "h0", "h1")] {
        rack.network.filter(deaf, Filter::LongerThan(600));
        let lost = format!("small packets pass, large ones from {from} to {to} are lost (MTU; at 10.77.0.");
        let told = assert_checks(&rack, &["from h0 to h1: ", "from h1 to h0: "]);
        assert_eq!(told.matches(&lost).count(), 2, "each host tells of the direction: {told}");
        rack.network.unfilter(deaf);
        assert_is_well(&rack);
    }
}
