//! Programs that outlive machines: the launcher's part, with machines that play theirs.

use processes::send_signal;
use rustix::process::Signal;

use crate::rig::{Complaints, Machines, launch};

crate::tests![the_others_go_on_without_a_machine_that_is_killed, the_loss_of_machine_0_ends_the_program];

fn the_others_go_on_without_a_machine_that_is_killed() {
    let launch = launch(4, &["survives", "1"]);
    let pids = launch.ready(4);
    send_signal(pids[&2], Signal::KILL);
    let ended = launch.end();
    assert_eq!(ended.code(), Some(3), "{ended}");
    let loss =
        format!("machine 2 (pid {}) was killed by signal 9 (SIGKILL); the others go on without machine 2", pids[&2]);
    assert_eq!(ended.complaints(), [loss], "{ended}");
    for machine in [0, 1, 3] {
        for words in ["answered", "fence 1: [2]", "settled 1"] {
            let line = format!("m{machine} | {words}");
            assert!(ended.stdout.lines().any(|told| told == line), "{line}: {ended}");
        }
    }
}

fn the_loss_of_machine_0_ends_the_program() {
    let launch = launch(3, &["survives", "2"]);
    let pids = launch.ready(3);
    send_signal(pids[&0], Signal::KILL);
    let words = format!("machine 0 (pid {}) was killed by signal 9 (SIGKILL); the program was ended", pids[&0]);
    launch.end().assert(137, Some(&words));
}
