//! Programs that never call `gossamer::main`, and programs that call it on some machines only.

use std::process::Command;
use std::time::{Duration, Instant};

use processes::{is_gone, wait_until_gone};
use rustix::process::Signal;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, Machines, launcher, run, start, this_program};

crate::tests![
    all_well_is_status_0_and_no_word,
    the_first_bad_end_counts_and_the_others_go_on,
    a_machine_killed_by_a_signal_is_named,
    ctrl_c_ends_any_program,
    nobody_waits_for_a_machine_that_left,
    nobody_waits_for_a_machine_that_leaves_later,
    a_program_may_be_told_to_join,
    an_output_that_nobody_reads_is_no_success,
    the_environment_can_be_chosen,
    workers_are_pinned_and_poll_as_told,
    a_time_limit_ends_any_program,
];

/// Returns the command for `sh -c SCRIPT` on two machines: of this host, or of a rack's two.
fn script(rack: Option<&Rack>, options: &[&str], script: &str) -> Command {
    let mut command = match rack {
        Some(rack) => rack.launcher("run"),
        None => launcher(),
    };
    if rack.is_none() {
        command.args(["run", "--local", "2"]);
    }
    command.args(options).args(["sh", "-c", script, "sh"]);
    command
}

fn both(test: impl Fn(Option<&Rack>)) {
    test(None);
    let rack = Rack::start(2, LENIENT_MS, "");
    test(Some(&rack));
    rack.until_idle();
}

/// Returns the lines, without the hosts' names, in order of the machines.
fn lines(text: &str) -> Vec<String> {
    let plain = |line: &str| line.replace("@a |", " |").replace("@b |", " |");
    let mut lines: Vec<String> = text.lines().map(plain).collect();
    lines.sort();
    lines
}

fn all_well_is_status_0_and_no_word() {
    both(|rack| {
        let ended = run(script(rack, &[], "echo out of $GOSSAMER_MACHINE; echo err of $GOSSAMER_MACHINE >&2"));
        assert_eq!(ended.code(), Some(0), "{ended}");
        assert_eq!(lines(&ended.stdout), ["m0 | out of 0", "m1 | out of 1"]);
        assert_eq!(lines(&ended.stderr), ["m0 | err of 0", "m1 | err of 1"], "no word of the launcher's");
    });
    let mut ls = launcher();
    ls.args(["run", "--local", "1", "ls", "/"]);
    let ended = run(ls);
    ended.assert(0, None);
    assert!(ended.stdout.lines().any(|line| line == "tmp"), "a single machine's lines are its own: {ended}");
}

fn the_first_bad_end_counts_and_the_others_go_on() {
    both(|rack| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("go");
        let text = "echo pid $$; [ $GOSSAMER_MACHINE = 0 ] && exit 3
                    while [ ! -e \"$1\" ]; do sleep 0.01; done; echo went on; exit 4";
        let mut command = script(rack, &[], text);
        command.arg(&file);
        let launch = start(command);
        let pids = launch.ready(2);
        wait_until_gone([pids[&0]]);
        assert!(!is_gone(pids[&1]));
        std::fs::write(&file, "").unwrap();
        let ended = launch.end();
        assert_eq!(ended.code(), Some(3), "{ended}");
        let [complaint] = ended.complaints()[..] else { panic!("{ended}") };
        assert!(complaint.starts_with(&format!("machine 0 (pid {}", pids[&0])), "{ended}");
        assert!(complaint.ends_with(" exited with status 3"), "{ended}");
        assert!(lines(&ended.stdout).contains(&"m1 | went on".to_owned()), "{ended}");
    });
}

fn a_machine_killed_by_a_signal_is_named() {
    both(|rack| {
        let ended = run(script(rack, &[], "[ $GOSSAMER_MACHINE = 1 ] && kill -SEGV $$; exit 0"));
        assert_eq!(ended.code(), Some(139), "{ended}");
        let [complaint] = ended.complaints()[..] else { panic!("{ended}") };
        assert!(complaint.starts_with("machine 1 ") && complaint.contains("killed by signal 11 (SIGSEGV)"), "{ended}");
    });
}

fn ctrl_c_ends_any_program() {
    both(|rack| {
        let launch = start(script(rack, &[], "echo pid $$; exec sleep 1000"));
        let pids = launch.ready(2);
        launch.signal(Signal::INT);
        wait_until_gone(pids.into_values());
        launch.end().assert(130, Some("the program was ended by signal 2 (SIGINT)"));
        let handled = "trap 'echo handled; exit 0' TERM; echo pid $$; while :; do sleep 0.01; done";
        let launch = start(script(rack, &[], handled));
        launch.ready(2);
        launch.signal(Signal::TERM);
        let ended = launch.end();
        ended.assert(0, None);
        assert_eq!(ended.stdout.lines().filter(|line| line.ends_with("| handled")).count(), 2, "{ended}");
    });
}

/// Machine 0 joins, and would wait for ever.
fn nobody_waits_for_a_machine_that_left() {
    for (exit, status) in [("exit 0", 70), ("exit 5", 5), ("kill -KILL $$", 137)] {
        both(|rack| {
            let text = format!("[ $GOSSAMER_MACHINE = 1 ] && {exit}; exec \"$@\"");
            let mut command = script(rack, &[], &text);
            command.arg(this_program()).args(["machine", "stubborn"]);
            let ended = run(command);
            assert_eq!(ended.code(), Some(status), "{ended}");
            let [complaint] = ended.complaints()[..] else { panic!("{ended}") };
            assert!(complaint.starts_with("machine 1 ") && complaint.ends_with("; the program was ended"), "{ended}");
            if exit != "kill -KILL $$" {
                assert!(complaint.contains("before it had reached gossamer::main"), "{ended}");
            }
        });
    }
}

fn nobody_waits_for_a_machine_that_leaves_later() {
    both(|rack| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("go");
        let text = "file=$1; shift; [ $GOSSAMER_MACHINE = 0 ] && exec \"$@\"
                    while [ ! -e \"$file\" ]; do sleep 0.01; done; exit 0";
        let mut command = script(rack, &[], text);
        command.arg(&file).arg(this_program()).args(["machine", "stubborn"]);
        let launch = start(command);
        let pids = launch.ready(1);
        std::fs::write(&file, "").unwrap();
        wait_until_gone([pids[&0]]);
        let ended = launch.end();
        assert_eq!(ended.code(), Some(70), "{ended}");
        assert!(ended.complaints()[0].contains("exited with status 0 before it had reached gossamer::main"), "{ended}");
    });
}

fn a_program_may_be_told_to_join() {
    both(|rack| {
        let ended = run(script(rack, &["--must-join"], "exit 0"));
        assert_eq!(ended.code(), Some(70), "{ended}");
        let complaint = ended.complaints().join("");
        assert!(
            complaint.contains("before it had reached gossamer::main") && complaint.contains("--must-join"),
            "{ended}"
        );
        let mut joins = script(rack, &["--must-join"], "exec \"$@\"");
        joins.arg(this_program()).args(["machine", "end", "6"]);
        run(joins).assert(6, None);
    });
}

/// One machine writes a line, and all end well: the line is lost, for lack of a reader.
fn an_output_that_nobody_reads_is_no_success() {
    both(|rack| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = script(rack, &[], "[ $GOSSAMER_MACHINE = 1 ] || echo lost");
        let out = command.stdout(writer).output().unwrap();
        assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stderr).as_ref()), (Some(141), ""));
    });
}

fn workers_are_pinned_and_poll_as_told() {
    both(|rack| {
        let told = |options: &[&str]| {
            let ended = run(script(rack, options, "echo $GOSSAMER_PIN $GOSSAMER_SPIN_US $GOSSAMER_MACHINE_WAYS"));
            ended.assert(0, None);
            lines(&ended.stdout)
        };
        assert_eq!(told(&["--pin", "off", "--spin", "70"]), ["m0 | off 70", "m1 | off 70"]);
        assert_eq!(told(&["--pin", "on"]), ["m0 | on", "m1 | on"]);
        assert_eq!(told(&["--spin", "1", "--machine-ways", "off"]), ["m0 | 1 off", "m1 | 1 off"]);
    });
}

fn the_environment_can_be_chosen() {
    both(|rack| {
        let variables = |options: &[&str]| {
            let mut command = match rack {
                Some(rack) => rack.launcher("run"),
                None => launcher(),
            };
            if rack.is_none() {
                command.args(["run", "--local", "2"]);
            }
            command.env("XDG_OWN", "of the session").env("PASSED", "on").args(["--no-prefix"]).args(options).arg("env");
            let ended = run(command);
            ended.assert(0, None);
            let hosts = |line: &&str| {
                ["GOSSAMER_", "COMM_SHM=", "HOME=", "USER=", "LOGNAME=", "SHELL="]
                    .iter()
                    .any(|own| line.starts_with(own))
            };
            let mut variables: Vec<String> =
                ended.stdout.lines().filter(|line| !hosts(line)).map(str::to_owned).collect();
            variables.sort();
            variables
        };
        let twice =
            |lines: &[&str]| lines.iter().flat_map(|line| [line.to_string(), line.to_string()]).collect::<Vec<_>>();
        let clean = variables(&["--clean-env", "--env", "A=1", "--env", "XDG_OWN", "--env", "A=b=c"]);
        assert_eq!(clean, twice(&["A=b=c", "XDG_OWN=of the session"]));
        assert_eq!(variables(&["--clean-env"]), [""; 0]);
        let more = variables(&["--env", "XDG_OWN", "--env=PASSED="]);
        for line in ["XDG_OWN=of the session", "PASSED="] {
            assert_eq!(more.iter().filter(|found| *found == line).count(), 2, "{more:?}");
        }
        let same = variables(&[]);
        assert!(
            same.contains(&"PASSED=on".to_owned()) && same.iter().any(|line| line.starts_with("PATH=")),
            "{same:?}"
        );
        assert_eq!(same.contains(&"XDG_OWN=of the session".to_owned()), rack.is_none(), "{same:?}");
    });
    let mut missing = launcher();
    missing.args(["run", "--local", "1", "--env", "NO_SUCH_VARIABLE", "true"]);
    run(missing).assert(
        2,
        Some("--env NO_SUCH_VARIABLE: there is no such variable here; --env NO_SUCH_VARIABLE=VALUE sets one"),
    );
    let mut nowhere = launcher();
    nowhere.args(["run", "--local", "1", "--clean-env", "no-such-program-anywhere"]);
    assert_eq!(run(nowhere).code(), Some(127));
}

fn a_time_limit_ends_any_program() {
    both(|rack| {
        let limit = Duration::from_secs(1);
        for text in ["exec sleep 1000", "trap 'exit 0' TERM; while :; do sleep 0.01; done"] {
            let start = Instant::now();
            let ended = run(script(rack, &["--time-limit", "1s"], text));
            ended.assert(124, Some("the program was ended: its time limit of 1s is over"));
            assert!(start.elapsed() >= limit, "{:?}", start.elapsed());
        }
        assert_eq!(run(script(rack, &["--time-limit=1h30m"], "exit 3")).code(), Some(3));
    });
    let start = Instant::now();
    let ended = run(script(None, &["--time-limit", "1s"], "trap '' TERM; while :; do sleep 0.01; done"));
    ended.assert(124, Some("the program was ended: its time limit of 1s is over"));
    assert!(start.elapsed() >= Duration::from_secs(4), "SIGTERM is ignored, 3 s later it is killed");
    let mut wrong = launcher();
    wrong.args(["run", "--local", "1", "--time-limit", "10", "true"]);
    let ended = run(wrong);
    assert!(ended.code() == Some(2) && ended.stderr.contains("1h30m"), "{ended}");
}
