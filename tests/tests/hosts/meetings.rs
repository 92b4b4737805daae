//! Programs on several hosts without a launcher, and addresses that need an interface: the families of addresses, ports
//! that a firewall lets through.

use std::fs;

use processes::ChildProcess;

use crate::network::Filter;
use crate::rack::{ROLES, Rack};

/// A name for the resolver that is no address for the program: it listens at all addresses, as for a service's name.
const NAME: &str = "10.77.1:7399";

/// Starts a program of a machine on each host, and checks that it succeeds.
#[track_caller]
fn assert_meets(rack: &Rack, variables: &[(&str, &str)]) {
    let all: Vec<ChildProcess> = (0..2).map(|host| rack.meet(host, "calls", variables)).collect();
    for machine in all {
        let ended = machine.end();
        assert!(ended.status.success(), "{variables:?}: {ended:#?}");
    }
    rack.assert_nothing_is_left();
}

#[test]
fn a_name_is_listened_at_by_both_families_whatever_the_host_does_by_default() {
    let rack = Rack::without_daemons(2);
    assert_meets(&rack, &[("GOSSAMER_MEET", NAME)]);
    rack.network.separate_families(0);
    assert_meets(&rack, &[("GOSSAMER_MEET", NAME)]);
}

#[test]
fn machines_of_a_meeting_keep_to_the_range_of_ports() {
    let rack = Rack::without_daemons(2);
    (0..2).for_each(|host| rack.network.filter(host, Filter::OtherPorts("7399, 7200-7201")));
    assert_meets(&rack, &[("GOSSAMER_MEET", NAME), ("GOSSAMER_PORTS", "7200-7201")]);
    let wrong = rack.meet(0, "calls", &[("GOSSAMER_MEET", NAME), ("GOSSAMER_COUNT", "1"), ("GOSSAMER_PORTS", "7")]);
    assert!(wrong.end().status.success(), "a single port is a range");
    let wrong = rack.meet(0, "calls", &[("GOSSAMER_MEET", NAME), ("GOSSAMER_COUNT", "1"), ("GOSSAMER_PORTS", "7-")]);
    let ended = wrong.end();
    assert!(ended.stderr.contains("GOSSAMER_PORTS has the value \"7-\""), "{ended:#?}");
}

#[test]
fn a_meeting_at_a_link_local_address() {
    let rack = Rack::without_daemons(2);
    rack.network.add_link_local();
    assert_meets(&rack, &[("GOSSAMER_MEET", "[fe80::77:1%eth1]:7399")]);
}

#[test]
fn a_rack_of_link_local_addresses() {
    let mut rack = Rack::without_daemons(2);
    rack.network.add_link_local();
    let hosts = "hosts:\n  - {name: h0, address: '[fe80::77:1%eth1]:7118', workers: 1}\n  - {name: h1, address: \
                 'fe80::77:2%eth1', workers: 1}\n";
    fs::write(rack.path("local.yaml"), format!("key_file: rack.key\nuser: root\n{hosts}")).unwrap();
    (0..2).for_each(|host| rack.start_daemon_by(host, "local.yaml"));
    let check = || rack.launcher_by("local.yaml", &["check"]).end();
    limits::wait_until("the daemons to reach one another", || check().status.success());
    let checked = check().stdout;
    for place in ["[fe80::77:1%eth1]:7118", "[fe80::77:2%eth1]:7117"] {
        assert!(checked.contains(place), "{checked}");
    }
    for machines in ["1", "2"] {
        let arguments = ["run", "--fabric", "tcp", "--machines-per-host", machines, ROLES, "calls"];
        let ended = rack.launcher_by("local.yaml", &arguments).end();
        assert!(ended.status.success(), "{ended:#?}");
    }
    rack.assert_nothing_is_left();
}
