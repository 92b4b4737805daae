//! Tasks of the heap that move between machines.

use processes::run;

use crate::rig::{Outliving, ROLES, launcher};

/// So many machines of one worker each, of which one may be lost.
fn rack(machines: u16) -> Outliving {
    Outliving { machines, threads: machines, ..Outliving::THREE }
}

#[test]
fn tasks_of_one_machine_spread_and_have_their_results() {
    rack(2).plays("tasks-spread", "all tasks");
}

#[test]
fn a_task_goes_where_it_reads_much() {
    for options in [["--fabric", "tcp"], ["--pretend-hosts", "2"]] {
        let ended = run(launcher(2, &[&["--threads", "2"], &options[..]].concat(), ROLES, &["tasks-follow"]));
        assert!(ended.status.success() && ended.stdout.contains("followed"), "{options:?}: {ended:#?}");
    }
}

#[test]
fn tasks_that_are_lost_say_so_and_all_others_end() {
    rack(3).plays("tasks-lost", "all others");
}

#[test]
fn each_task_has_an_outcome_whenever_a_machine_is_killed() {
    for _ in 0..3 {
        rack(3).plays("tasks-storm", "weathered");
    }
}

#[test]
fn what_a_task_leaves_behind_has_a_copy() {
    rack(4).plays("tasks-copied", "the object was there");
}
