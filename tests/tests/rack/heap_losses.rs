//! Programs with objects in the heap, or with durable trusts, that outlive a machine.

use processes::run;

use crate::rig::{ROLES, launcher};

/// Plays a role that kills one of three machines of two workers, over each transport.
#[track_caller]
fn play(name: &str, times: usize, words: &str) {
    for options in [["--fabric", "shm"], ["--fabric", "tcp"], ["--pretend-hosts", "2"]] {
        let options = [&["--threads", "6", "--survives", "1"], &options[..]].concat();
        for _ in 0..times {
            let ended = run(launcher(3, &options, ROLES, &[name]));
            assert!(ended.status.success(), "{name}, {options:?}: {ended:#?}");
            assert!(ended.stdout.contains(words), "{name}, {options:?}: {ended:#?}");
        }
    }
}

#[test]
fn jobs_that_read_a_shared_table_have_all_their_results() {
    play("heap-jobs", 1, "all jobs");
}

#[test]
fn each_call_on_objects_has_its_outcome_after_a_loss() {
    play("heap-outcomes", 1, "all outcomes");
}

#[test]
fn values_are_whole_and_nothing_hangs_whenever_a_machine_is_killed() {
    play("heap-storm", 3, "weathered");
}

#[test]
fn each_call_on_durable_trusts_has_its_outcome_after_a_loss() {
    play("durable-losses", 3, "calls on a pool that was lost");
}
