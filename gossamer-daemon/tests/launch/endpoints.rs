//! Endpoints and keys on their way through the launcher, and machines that report a lost connection to each other.

use crate::rig::{Complaints, Machines, command, launch, run};

crate::tests![
    everyone_gets_the_key_and_all_endpoints,
    a_second_endpoint_ends_the_program,
    a_loss_that_nothing_explains_is_told_as_it_was_seen,
    a_death_is_told_instead_of_its_being_missed,
    a_loss_after_the_end_is_no_news,
];

/// The endpoints of the others are more than a socket holds, and are sent before anybody reads.
fn everyone_gets_the_key_and_all_endpoints() {
    for (machines, bytes) in [(1u16, 100), (3, 0), (24, 16 * 1024)] {
        let ended = run(command(machines, &["--no-prefix"], &["endpoints", &bytes.to_string()]));
        ended.assert(0, None);
        let mut keys: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("key ")).collect();
        assert_eq!(keys.len(), usize::from(machines), "{ended}");
        keys.dedup();
        assert_eq!(keys.len(), 1, "all have the same: {ended}");
        let right = ended.stdout.lines().filter(|line| *line == format!("{} endpoints of {bytes} bytes", machines - 1));
        assert_eq!(right.count(), usize::from(machines), "{ended}");
    }
    let key = |()| run(command(1, &["--no-prefix"], &["endpoints", "1"])).stdout;
    assert_ne!(key(()), key(()), "each program has its own");
}

fn a_second_endpoint_ends_the_program() {
    let ended = run(command(2, &[], &["endpoint-twice", "1"]));
    assert_eq!(ended.code(), Some(70), "{ended}");
    let complaint = ended.complaints().join("");
    assert!(complaint.starts_with("machine 1 ") && complaint.contains("it gave a second endpoint"), "{ended}");
}

fn a_loss_that_nothing_explains_is_told_as_it_was_seen() {
    let launch = launch(3, &["lost", "1", "2"]);
    let pids = launch.ready(3);
    let words = format!("machine 1 (pid {}) lost machine 2: the wire is cut; the program was ended", pids[&1]);
    launch.end().assert(70, Some(&words));
}

fn a_death_is_told_instead_of_its_being_missed() {
    let launch = launch(3, &["dead", "1", "2"]);
    let pids = launch.ready(3);
    let words = format!("machine 2 (pid {}) was killed by signal 6 (SIGABRT); the program was ended", pids[&2]);
    let ended = launch.end();
    let complaints = ended.complaints().join("").replace(", core dumped", "");
    assert_eq!((ended.code(), complaints), (Some(134), words), "{ended}");
}

fn a_loss_after_the_end_is_no_news() {
    run(command(2, &[], &["lost-late"])).assert(0, None);
}
