//! Programs with objects in the heap, or with durable trusts, that outlive a machine.

use processes::run;

use crate::rig::{Outliving, ROLES, launcher};

#[test]
fn jobs_that_read_a_shared_table_have_all_their_results() {
    Outliving::THREE.plays("heap-jobs", "all jobs");
}

#[test]
fn each_call_on_objects_has_its_outcome_after_a_loss() {
    Outliving::THREE.plays("heap-outcomes", "all outcomes");
}

#[test]
fn values_are_whole_and_nothing_hangs_whenever_a_machine_is_killed() {
    for _ in 0..3 {
        Outliving::THREE.plays("heap-storm", "weathered");
    }
}

#[test]
fn objects_that_left_a_machine_with_copies_outlive_it() {
    Outliving::THREE.plays("heap-copies", "all outcomes with copies");
}

#[test]
fn each_owner_with_copies_finds_its_object_whenever_machines_are_killed() {
    for _ in 0..3 {
        Outliving::THREE.plays("heap-keep", "kept");
    }
}

/// Ends one of three machines at some of its first writes, or at each of the first `GOSSAMER_WRITES`.
#[track_caller]
fn end_at_writes(role: &str, words: &str) {
    let writes: Vec<u64> = match std::env::var("GOSSAMER_WRITES") {
        Ok(count) => (0..count.parse().expect("a number of writes")).collect(),
        Err(_) => std::iter::repeat_with(|| fastrand::u64(..400)).take(4).collect(),
    };
    for write in writes {
        let (part, write) = (["nothing", "half", "all"][fastrand::usize(..3)], write.to_string());
        let options = ["--threads", "6", "--survives", "1", "--fabric", "tcp"];
        let ended = run(launcher(3, &options, ROLES, &[role, &write, part]));
        assert!(ended.status.success() && ended.stdout.contains(words), "{role} {write} {part}: {ended:#?}");
    }
}

#[test]
fn each_owner_with_copies_finds_its_object_whichever_write_was_the_last() {
    end_at_writes("heap-keep-until-write", "kept");
}

#[test]
fn no_acknowledged_change_is_lost_whichever_write_was_the_last() {
    end_at_writes("heap-puts-until-write", "all acknowledged");
}

#[test]
fn a_new_backup_gets_what_the_one_before_had() {
    Outliving { machines: 5, threads: 5, losses: 2, hosts: 3 }.plays("heap-keep-two", "kept");
}

#[test]
fn an_idle_backup_gives_on_what_it_has() {
    Outliving { machines: 4, threads: 4, losses: 2, hosts: 4 }.plays("heap-idle-backup", "kept by two");
}

#[test]
fn no_acknowledged_change_under_a_mutex_is_lost() {
    for _ in 0..3 {
        Outliving::THREE.plays("heap-puts", "all acknowledged");
    }
}

#[test]
fn values_with_copies_are_whole_whenever_a_machine_is_killed() {
    Outliving::THREE.plays("heap-storm-copies", "weathered");
}

#[test]
fn each_call_on_durable_trusts_has_its_outcome_after_a_loss() {
    for _ in 0..3 {
        Outliving::THREE.plays("durable-losses", "calls on a pool that was lost");
    }
}
