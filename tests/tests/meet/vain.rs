//! Fibers that wait for one that has panicked, or was aborted: the program reports each waiter and its reason.

use std::process::Command;

use processes::ChildProcess;
use rustix::process::Signal;

use crate::rig::{Meeting, ROLES, end};

/// Starts the program on two machines, and as one process.
fn programs(meeting: &Meeting, kind: &str) -> [Vec<ChildProcess>; 2] {
    let mut alone = Command::new(ROLES);
    alone.args(["waits-in-vain", kind]).env("GOSSAMER_START", "alone");
    [meeting.start(2, &["waits-in-vain", kind]), vec![ChildProcess::start(alone)]]
}

#[test]
fn who_waits_for_a_fiber_that_will_not_come_is_named_with_its_panic() {
    for (kind, waits, fallen) in [
        ("barrier", "waits for a promised `gossamer::sync::barrier::Opening`, since ", "has panicked: bad cell"),
        ("channel", "waits for a promised `core::option::Option<u32>`, since ", "has panicked: bad cell"),
        ("condition", "waits for a promised `gossamer::sync::condvar::Notification`, since ", "has panicked: bad cell"),
        ("abort", "waits for a promised `gossamer::sync::barrier::Opening`, since ", "was aborted"),
    ] {
        let meeting = Meeting::new();
        for all in programs(&meeting, kind) {
            all[0].stderr.line("no fiber can go on");
            for words in [waits, "before that:", fallen] {
                all[0].stderr.line(words);
            }
            all.iter().for_each(|process| process.signal(Signal::KILL));
        }
    }
}

#[test]
fn a_program_that_goes_on_after_a_panic_is_left_alone() {
    let meeting = Meeting::new();
    for all in programs(&meeting, "not") {
        let all = end(all);
        assert_eq!(all[0].stdout, "went on\n", "{all:#?}");
        assert!(all.iter().all(|ended| !ended.stderr.contains("no fiber can go on")), "{all:#?}");
    }
}
