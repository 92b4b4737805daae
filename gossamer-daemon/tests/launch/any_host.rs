//! Programs on those hosts of a rack that are up (`run --any`).

use processes::Ended;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, run};

crate::tests![
    hosts_that_are_down_are_left_out,
    too_few_hosts_are_told_with_their_causes,
    a_host_that_refuses_is_not_left_out,
];

/// Prints the machine's number, with the host before it.
fn run_any(rack: &Rack, options: &[&str]) -> Ended {
    let mut command = rack.launcher("run");
    command.args(options).args(["sh", "-c", "echo is $GOSSAMER_MACHINE"]);
    run(command)
}

fn lines(ended: &Ended) -> Vec<&str> {
    let mut lines: Vec<&str> = ended.stdout.lines().collect();
    lines.sort_unstable();
    lines
}

fn hosts_that_are_down_are_left_out() {
    let mut rack = Rack::prepare(3, LENIENT_MS, "");
    rack.start_daemon("b");
    rack.start_daemon("c");
    let without = run_any(&rack, &[]);
    without.complains(70, "host a: ");
    assert!(without.stdout.is_empty(), "{without}");
    for (options, expected) in [
        (&["--any"][..], &["m0@b | is 0", "m1@c | is 1"][..]),
        (&["--any=2"], &["m0@b | is 0", "m1@c | is 1"]),
        (&["--any", "--hosts", "c,a,b"], &["m0@c | is 0", "m1@b | is 1"]),
        (&["--any", "--wait"], &["m0@b | is 0", "m1@c | is 1"]),
        (&["--any=1"], &["is 0"]),
    ] {
        let ended = run_any(&rack, options);
        let [left_out] = ended.complaints()[..] else { panic!("{ended}") };
        assert!(left_out.starts_with("host a is left out: ") && left_out.contains("refused"), "{ended}");
        assert_eq!((ended.code(), lines(&ended)), (Some(0), expected.to_vec()), "{options:?}: {ended}");
    }
    let all = run_any(&rack, &["--any", "--hosts", "b,c"]);
    all.assert(0, None);
    // A gossamer program finds all its machines, and its status is that of machine 0.
    let ended = rack.run(&["--any", "--machines-per-host", "2"], &["end", "7"]);
    assert_eq!((ended.code(), ended.complaints().len()), (Some(7), 1), "{ended}");
    rack.start_daemon("a");
    rack.run(&["--any"], &["end", "6"]).assert(6, None);
}

fn too_few_hosts_are_told_with_their_causes() {
    let mut rack = Rack::prepare(2, LENIENT_MS, "");
    run_any(&rack, &["--any"]).complains(70, "host b: ");
    rack.start_daemon("a");
    let few = run_any(&rack, &["--any=2"]);
    few.complains(70, "--any=2: hosts that are up: 1; host b: ");
    run_any(&rack, &["--any=3", "--hosts", "a"]).assert(70, Some("--any=3: hosts that are up: 1"));
}

/// It is up: its cause is for the user to see, as without the option.
fn a_host_that_refuses_is_not_left_out() {
    let rack = Rack::start(2, LENIENT_MS, "limits: {machines_per_host: 1}");
    let ended = run_any(&rack, &["--any", "--machines-per-host", "2"]);
    ended.complains(70, "limits.machines_per_host is 1");
}
