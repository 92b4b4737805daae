//! Memory limits of programs (`run --memory`, `memory` in `rack.yaml`): kept by a cgroup where the daemon has one with
//! this controller, and refused or reported elsewhere.

use processes::Ended;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, launcher, run};

crate::tests![
    a_limit_of_a_program_is_kept_or_refused,
    a_limit_of_the_hosts_is_kept_or_reported,
    limits_that_make_no_sense_are_refused,
];

/// Takes 200 MB, also where no limit is kept.
const GREEDY: &str = "head -c 200000000 /dev/zero | tail -c 200000000 > /dev/null; exit $?";

pub fn greedy(rack: &Rack, options: &[&str]) -> Ended {
    let mut command = rack.launcher("run");
    command.args(options).args(["sh", "-c", GREEDY]);
    run(command)
}

/// Returns whether the daemon of host a keeps limits; says SKIPPED where it does not.
pub fn keeps_limits(rack: &Rack) -> bool {
    let told = rack.daemons["a"].stderr.text();
    let is_kept =
        ["with limits.tasks and limits of memory", "with limits of memory"].iter().any(|said| told.contains(said));
    if !is_kept {
        println!("SKIPPED: the daemon has no cgroup with the controller `memory`: only its words are checked");
    }
    is_kept
}

#[track_caller]
fn assert_out_of_memory(ended: &Ended, limit: &str) {
    let words = format!("exited with status 137, out of memory: the program may take {limit} there");
    ended.complains(137, &words);
}

fn a_limit_of_a_program_is_kept_or_refused() {
    let rack = Rack::start(2, LENIENT_MS, "");
    if keeps_limits(&rack) {
        assert_out_of_memory(&greedy(&rack, &["--memory", "96M"]), "96 MiB");
        greedy(&rack, &["--memory", "2G"]).assert(0, None);
    } else {
        let refused = greedy(&rack, &["--memory", "96M"]);
        for words in ["host a: --memory: ", "cannot limit the memory of programs", "Delegate=yes", "or leave it out"] {
            refused.complains(70, words);
        }
    }
    greedy(&rack, &[]).assert(0, None);
    rack.until_idle();
}

fn a_limit_of_the_hosts_is_kept_or_reported() {
    let rack = Rack::start(1, LENIENT_MS, "memory: 64M");
    if keeps_limits(&rack) {
        for options in [&[][..], &["--memory", "2G"]] {
            assert_out_of_memory(&greedy(&rack, options), "64 MiB");
        }
        run(rack.launcher("check")).assert(0, None);
    } else {
        greedy(&rack, &[]).assert(0, None);
        let checked = run(rack.launcher("check"));
        let words = "`memory` of rack.yaml, 64 MiB, has no effect: the daemon of this host cannot limit";
        assert!(checked.code() == Some(1) && checked.stdout.contains(words), "{checked}");
        rack.daemons["a"].stderr.wait_for("programs have no memory limit");
    }
}

fn limits_that_make_no_sense_are_refused() {
    for (options, words) in [
        (&["--memory", "1M"][..], "at least 16M"),
        (&["--memory", "much"], "is no limit of memory: write bytes, as in 512M"),
        (&["--local", "1", "--memory", "64M"], "--local"),
    ] {
        let mut command = launcher();
        command.arg("run").args(options).arg("true");
        run(command).complains(2, words);
    }
}
