//! Machine ways, and direct ways beside them.

use std::process::Command;

use processes::run;

use crate::rig::{ROLES, launcher};

/// RDMA is that of the stub of libibverbs.
const FABRICS: [&[&str]; 4] =
    [&["--fabric", "shm"], &["--fabric", "tcp"], &["--fabric", "verbs"], &["--pretend-hosts", "2"]];

fn rack(fabric: &[&str], options: &[&str], role: &str) -> Command {
    let mut command = launcher(3, &[fabric, options].concat(), ROLES, &[role]);
    if fabric.contains(&"verbs") {
        command.env("LD_LIBRARY_PATH", gossamer_tests::stub::folder().unwrap());
    }
    command
}

#[test]
fn a_pair_that_exchanges_much_has_a_direct_way_until_another_needs_it_more() {
    for fabric in FABRICS {
        let ended = run(rack(fabric, &["--threads", "3"], "direct-ways"));
        assert!(ended.status.success(), "{fabric:?}: {ended:#?}");
    }
}

#[test]
fn calls_of_any_size_go_by_machine_ways() {
    for fabric in FABRICS {
        for (role, threads) in [("calls", "3"), ("large", "6"), ("launch", "6"), ("panics", "3")] {
            let ended = run(rack(fabric, &["--machine-ways", "on", "--threads", threads], role));
            assert!(ended.status.success(), "{role}, {fabric:?}: {ended:#?}");
        }
    }
}
