//! Faults of a program's process, or of a host, which the program outlives.

use processes::{ChildProcess, Ended};

use crate::rack::{ROLES, Rack};

/// Starts the program, which may lose one machine.
fn start(rack: &Rack) -> ChildProcess {
    let launcher = rack.launcher(&["run", "--survives", "1", ROLES, "goes-on"]);
    launcher.stdout.wait_for("works\n");
    launcher
}

#[track_caller]
fn assert_went_on(ended: &Ended, lost: u16) {
    let loss = format!("the others go on without machine {lost}");
    assert!(ended.status.success() && ended.stderr.contains(&loss), "{ended:#?}");
}

#[test]
fn a_program_goes_on_without_a_host_that_is_cut_off_and_comes_back() {
    let rack = Rack::start(3);
    let launcher = start(&rack);
    rack.network.cut(2);
    launcher.stdout.wait_for("went on without 2");
    rack.network.restore(2);
    assert_went_on(&launcher.end(), 2);
    rack.assert_nothing_is_left();
}

/// Both can reach the launcher, but not one another: the one of the higher number goes.
#[test]
fn a_program_goes_on_without_one_of_two_hosts_that_cannot_reach_one_another() {
    let rack = Rack::start(3);
    let launcher = start(&rack);
    rack.network.part([1, 2]);
    launcher.stdout.wait_for("went on without 2");
    assert_went_on(&launcher.end(), 2);
    rack.assert_nothing_is_left();
}

#[test]
fn a_program_goes_on_without_a_host_whose_daemon_is_killed() {
    let mut rack = Rack::start(3);
    let launcher = start(&rack);
    rack.kill_daemon(1);
    assert_went_on(&launcher.end(), 1);
}
