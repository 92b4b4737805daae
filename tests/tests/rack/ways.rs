//! Machine ways, and direct ways beside them.

use processes::run;

use crate::rig::{ROLES, launcher};

const FABRICS: [&[&str]; 3] = [&["--fabric", "shm"], &["--fabric", "tcp"], &["--pretend-hosts", "2"]];

#[test]
fn a_pair_that_exchanges_much_has_a_direct_way_until_another_needs_it_more() {
    for fabric in FABRICS {
        let ended = run(launcher(3, &[fabric, &["--threads", "3"]].concat(), ROLES, &["direct-ways"]));
        assert!(ended.status.success(), "{fabric:?}: {ended:#?}");
    }
}

#[test]
fn calls_of_any_size_go_by_machine_ways() {
    for fabric in FABRICS {
        for (role, threads) in [("calls", "3"), ("large", "6"), ("launch", "6"), ("panics", "3")] {
            let options = [fabric, &["--machine-ways", "on", "--threads", threads]].concat();
            let ended = run(launcher(3, &options, ROLES, &[role]));
            assert!(ended.status.success(), "{role}, {fabric:?}: {ended:#?}");
        }
    }
}
