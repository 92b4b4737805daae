//! Programs with processes that no launcher of ours has started: each finds the others by its variables. Under real
//! process managers: `cargo dev starters`.

mod dumps;
mod rig;
mod starts;
mod vain;
mod watched;

use std::process::Command;
use std::time::{Duration, Instant};

use comm::secure::Key;
use processes::{ChildProcess, Ended, run};
use rig::{Meeting, ROLES, SUITE, end};
use rustix::process::Signal;

#[test]
fn processes_meet_and_the_machine_is_the_index() {
    let meeting = Meeting::new();
    let all = end(meeting.start(3, &["starter"]));
    let wanted = format!("3 machines, started by a rendezvous at 127.0.0.1:{}: here shm shm\n", meeting.port);
    assert_eq!(all[0].stdout, wanted, "{all:#?}");
    assert!(all.iter().all(|ended| ended.status.success() && ended.stderr.is_empty()), "{all:#?}");
    assert!(all[1..].iter().all(|ended| ended.stdout.is_empty()), "{all:#?}");
}

#[test]
fn the_fabric_may_be_chosen() {
    let meeting = Meeting::new();
    let all = end(meeting.start_with(2, &["starter"], &[("GOSSAMER_FABRIC", "tcp")]));
    assert!(all[0].stdout.ends_with(": here tcp\n"), "{all:#?}");
    let meeting = Meeting::new();
    let all = end(meeting.start_with(2, &["starter"], &[("GOSSAMER_FABRIC", "wool")]));
    assert!(all[0].stderr.contains("GOSSAMER_FABRIC has the value \"wool\""), "{all:#?}");
    assert!(all.iter().all(|ended| ended.status.code() == Some(70)), "{all:#?}");
}

#[test]
fn alone_is_alone_whatever_else_is_set() {
    let meeting = Meeting::new();
    let mut command = meeting.command(0, 3, ROLES, &["starter"]);
    let ended = ChildProcess::start({
        command.env("GOSSAMER_START", "alone");
        command
    })
    .end();
    assert_eq!(ended.stdout, "1 machines, started by alone: here\n", "{ended:#?}");
}

#[test]
fn what_a_machine_starts_is_alone() {
    let all = end(Meeting::new().start(2, &["grandchild"]));
    assert_eq!(all[0].stdout, "1 machines, started by alone: here\n", "{all:#?}");
}

#[test]
fn several_without_a_way_to_meet_are_refused() {
    let mut command = Command::new(ROLES);
    command.arg("starter").env("SLURM_STEP_ID", "0").env("SLURM_STEP_NUM_TASKS", "3");
    let ended = run(command);
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(70), ""));
    assert!(ended.stderr.contains("add --mpi=pmi2 to srun's options"), "{ended:#?}");
}

#[test]
fn the_status_is_machine_0s() {
    let all = end(Meeting::new().start(3, &["panic"]));
    assert_eq!(
        all.iter().map(|ended| ended.status.code()).collect::<Vec<_>>(),
        [Some(101), Some(0), Some(0)],
        "{all:#?}"
    );
}

/// Returns the status and output of the machines, and how long the others lived on.
fn after_fault(fabric: &str, fault: impl FnOnce(&mut [ChildProcess])) -> (Vec<Ended>, Duration) {
    let meeting = Meeting::new();
    let mut all = meeting.start_with(3, &["wait"], &[("GOSSAMER_FABRIC", fabric)]);
    all[0].stdout.wait_for("works\n");
    let start = Instant::now();
    fault(&mut all);
    let all = end(all);
    (all, start.elapsed())
}

#[test]
fn timed_o8_a_death_ends_all_and_is_named() {
    for fabric in ["shm", "tcp"] {
        let (all, took) = after_fault(fabric, |all| all[2].signal(Signal::KILL));
        assert!(
            all[0].stderr.contains("machine 2 (pid ") && all[0].stderr.contains("; the program was ended"),
            "{all:#?}"
        );
        assert_eq!((all[0].status.code(), all[1].status.code()), (Some(70), Some(0)), "{all:#?}");
        assert!(took < limits::bound(Duration::from_secs(10)), "{took:?}: 1 s on a machine that has time");
    }
}

#[test]
fn timed_o8_the_death_of_machine_0_ends_all() {
    let (all, took) = after_fault("shm", |all| all[0].signal(Signal::KILL));
    for ended in &all[1..] {
        assert!(ended.stderr.contains("machine 0 has gone before the program had finished"), "{all:#?}");
        assert_eq!(ended.status.code(), Some(70), "{all:#?}");
    }
    assert!(took < limits::bound(Duration::from_secs(10)), "{took:?}: 1 s on a machine that has time");
}

#[test]
fn timed_o8_who_stands_still_is_ended_with_all_others() {
    for stopped in [0, 1] {
        let (all, took) = after_fault("shm", |all| all[stopped].signal(Signal::STOP));
        assert!(all.iter().all(|ended| !ended.status.success() || stopped == 1), "{all:#?}");
        // Machine 0 judges. Where it is the stopped one, each of the others does, and the first may have others see it
        // go.
        let judges = if stopped == 0 { &all[1..] } else { &all[..1] };
        let name = format!("machine {stopped} ");
        assert!(judges.iter().all(|ended| ended.stderr.contains(&name)), "{all:#?}");
        assert!(judges.iter().any(|ended| ended.stderr.contains("nothing was heard of it for 3s")), "{all:#?}");
        assert!(took > Duration::from_secs(2), "{took:?}");
        assert!(took < limits::bound(Duration::from_secs(20)), "{took:?}: 4 s where there is time");
    }
}

/// Killed, or stopped: then machine 0 kills it.
#[test]
fn a_program_goes_on_without_a_machine_that_dies() {
    for (fabric, signal) in [("shm", Signal::KILL), ("tcp", Signal::KILL), ("tcp", Signal::STOP)] {
        let meeting = Meeting::new();
        let variables = [("GOSSAMER_FABRIC", fabric), ("GOSSAMER_SURVIVES", "1")];
        let all = meeting.start_with(3, &["goes-on"], &variables);
        all[0].stdout.wait_for("works\n");
        all[2].signal(signal);
        let all = end(all);
        let codes: Vec<_> = all.iter().map(|ended| ended.status.code()).collect();
        assert_eq!(codes, [Some(0), Some(0), None], "{fabric}, {signal:?}: {all:#?}");
        assert!(all[0].stderr.contains("the others go on without machine 2"), "{fabric}, {signal:?}: {all:#?}");
    }
}

#[test]
fn a_signal_to_any_machine_ends_all_in_order() {
    for machine in [0, 1] {
        let (all, _) = after_fault("shm", |all| all[machine].signal(Signal::TERM));
        let codes: Vec<_> = all.iter().map(|ended| ended.status.code()).collect();
        assert_eq!(codes, [Some(143), Some(0), Some(0)], "{all:#?}");
        assert!(all[0].stderr.contains("the program was ended by signal 15 (SIGTERM)"), "{all:#?}");
    }
}

#[test]
fn a_machine_that_fails_says_why_and_machine_0_passes_it_on() {
    // More stack than there can be: each machine fails as it starts its workers.
    let all = end(Meeting::new().start(2, &["deep", "impossible"]));
    assert!(all.iter().all(|ended| ended.status.code().is_some_and(|code| code != 101)), "{all:#?}");
    assert_eq!(all[0].status.code(), Some(70), "{all:#?}");
    assert!(all[0].stderr.contains("stack"), "{all:#?}");
}

#[test]
fn who_does_not_come_is_named() {
    let meeting = Meeting::new();
    let start = |index| {
        let mut command = meeting.command(index, 4, ROLES, &["starter"]);
        ChildProcess::start({
            command.env("GOSSAMER_START_TIMEOUT", "2");
            command
        })
    };
    let all = end(vec![start(0), start(2)]);
    for ended in &all {
        assert_eq!(ended.status.code(), Some(70), "{all:#?}");
        assert!(ended.stderr.contains("machines 1, 3 of 4 did not come within 2s"), "{all:#?}");
    }
    let mut lone = meeting.command(1, 2, ROLES, &["starter"]);
    let ended = ChildProcess::start({
        lone.env("GOSSAMER_START_TIMEOUT", "1");
        lone
    })
    .end();
    assert!(ended.stderr.contains("machine 0 could not be reached at 127.0.0.1:"), "{ended:#?}");
}

#[test]
fn a_second_of_the_same_index_is_refused_and_the_first_goes_on() {
    let meeting = Meeting::new();
    let all = meeting.start(2, &["wait"]);
    all[0].stdout.wait_for("works\n");
    let second = run(meeting.command(1, 2, ROLES, &["wait"]));
    assert_eq!(second.status.code(), Some(70), "{second:#?}");
    let first = format!("machine 1 (pid {}", all[1].id());
    assert!(second.stderr.contains("it came as machine 1, but") && second.stderr.contains(&first), "{second:#?}");
    all[0].signal(Signal::TERM);
    let all = end(all);
    assert_eq!(all[0].status.code(), Some(143), "it went on until then: {all:#?}");
}

#[test]
fn a_wrong_count_another_program_and_another_key_are_refused_by_name() {
    let meeting = Meeting::new();
    let zero = ChildProcess::start(meeting.command(0, 2, ROLES, &["starter"]));
    let one = ChildProcess::start(meeting.command(1, 3, ROLES, &["starter"]));
    for ended in [zero.end(), one.end()] {
        assert!(ended.stderr.contains("it counts 3 machines, machine 0 counts 2"), "{ended:#?}");
        assert_eq!(ended.status.code(), Some(70), "{ended:#?}");
    }
    let meeting = Meeting::new();
    let zero = ChildProcess::start(meeting.command(0, 2, ROLES, &["starter"]));
    let one = ChildProcess::start(meeting.command(1, 2, SUITE, &["none"]));
    for ended in [zero.end(), one.end()] {
        assert!(ended.stderr.contains("it runs another program than machine 0"), "{ended:#?}");
    }
    let meeting = Meeting::new();
    let other = meeting.folder().join("other");
    Key::generate().unwrap().write_new(&other).unwrap();
    let mut zero = meeting.command(0, 2, ROLES, &["starter"]);
    let zero = ChildProcess::start({
        zero.env("GOSSAMER_START_TIMEOUT", "3");
        zero
    });
    let mut one = meeting.command(1, 2, ROLES, &["starter"]);
    let one = ChildProcess::start({
        one.env("GOSSAMER_KEY_FILE", &other);
        one
    })
    .end();
    assert_eq!(one.status.code(), Some(70), "{one:#?}");
    assert!(one.stderr.contains("key"), "{one:#?}");
    let zero = zero.end();
    assert!(
        zero.stderr.contains("was turned away") && zero.stderr.contains("machine 1 of 2 did not come"),
        "{zero:#?}"
    );
}

#[test]
fn processes_meet() {
    let all = end(Meeting::new().start(128, &["starter"]));
    assert!(all[0].stdout.starts_with("128 machines, "), "{:#?}", all[0]);
    assert!(all.iter().all(|ended| ended.status.success()), "{all:#?}");
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let meeting = Meeting::new();
    std::fs::set_permissions(meeting.key(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let ended = run(meeting.command(0, 2, ROLES, &["starter"]));
    assert!(ended.stderr.contains("chmod 600"), "{ended:#?}");
}
