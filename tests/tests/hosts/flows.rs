//! Networks that lose some packets and let others through: all of one connection, or all long ones. Programs end in
//! time, and name the machines and the cause.

use std::net::Ipv4Addr;
use std::time::Instant;

use limits::HANG;
use processes::Ended;

use crate::network::{Filter, Network};
use crate::rack::{PORT, Rack};

/// A connection between machines of hosts 0 and 1: the ports of both, as host 0 has them.
type Flow = [u16; 2];

/// Returns the connections between machines of hosts 0 and 1.
fn flows(network: &Network) -> Vec<Flow> {
    const CONNECTED: &str = "01";
    let table = || std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let table = network.hosts[0].namespace.inside(table);
    let place = |text: &str| {
        let (address, port) = text.split_once(':').unwrap();
        let address = Ipv4Addr::from(u32::from_str_radix(address, 16).unwrap().swap_bytes());
        (address, u16::from_str_radix(port, 16).unwrap())
    };
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let connected = rows.filter(|row| row[3] == CONNECTED).map(|row| (place(row[1]), place(row[2])));
    let between =
        connected.filter(|(own, other)| other.0 == network.hosts[1].address && ![own.1, other.1].contains(&PORT));
    let mut flows: Vec<Flow> = between.map(|(own, other)| [own.1, other.1]).collect();
    flows.sort();
    flows
}

#[track_caller]
fn assert_says(ended: &Ended, words: &[&str]) {
    assert!(!ended.status.success(), "{ended:#?}");
    for word in words {
        assert!(ended.stderr.contains(word), "no {word:?}: {ended:#?}");
    }
    println!("{}", ended.stderr.trim_end());
}

/// Each connection in turn, busy and idle ones, in both directions and in one.
#[test]
fn one_connection_whose_packets_are_dropped() {
    /// The control connection, and each machine's worker and service thread to the other machine.
    const CONNECTIONS: usize = 5;
    let mut rack = Rack::start(2);
    for number in 0..CONNECTIONS {
        let (launcher, _) = rack.waiting();
        let (start, mut all) = (Instant::now(), Vec::new());
        while all.len() < CONNECTIONS {
            assert!(start.elapsed() < HANG, "{all:?}");
            all = flows(&rack.network);
        }
        let filtering: &[usize] = if number % 2 == 0 { &[0, 1] } else { &[1] };
        rack.ends_after(&format!("connection {number} of {CONNECTIONS}"), |rack| {
            filtering.iter().for_each(|host| rack.network.filter(*host, Filter::Flow(all[number])));
        });
        let ended = launcher.end();
        assert_says(&ended, &["lost machine ", " on h", "the packets of one connection to 10.77.0."]);
        filtering.iter().for_each(|host| rack.network.unfilter(*host));
        rack.assert_nothing_is_left();
    }
}

/// Small packets get through, and so does every sign of life.
#[test]
fn a_path_that_drops_long_packets() {
    let mut rack = Rack::start(2);
    for role in ["wait-large", "array-misses"] {
        let launcher = rack.run(&[role]);
        launcher.stdout.wait_for("works\n");
        rack.ends_after(&format!("long packets dropped, {role}"), |rack| {
            rack.network.filter(1, Filter::LongerThan(600))
        });
        assert_says(&launcher.end(), &["lost machine ", " on h", "drops long packets (MTU)"]);
        rack.network.unfilter(1);
        rack.assert_nothing_is_left();
    }
}
