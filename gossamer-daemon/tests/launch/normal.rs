//! Programs that end as they should, and those that cannot be started.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use processes::wait_until_gone;

use crate::rig::{Complaints, Machines, command, launch, launcher, run, start, this_program};

crate::tests![
    all_machines_end_well,
    the_exit_status_is_passed_on,
    machines_learn_threads_and_place,
    a_machine_inherits_what_it_needs_and_no_more,
    the_program_may_run_behind_a_wrapper,
    children_of_a_machine_are_not_machines_and_end_with_it,
    broken_variables_are_refused,
    a_bad_program_is_named,
    impossible_numbers_are_usage_errors,
    nothing_is_left_in_shared_memory,
];

fn all_machines_end_well() {
    for machines in [1, 2, 4] {
        let launch = launch(machines, &["end"]);
        let pids = launch.ready(machines);
        let ended = launch.end();
        ended.assert(0, None);
        assert_eq!(ended.stdout.lines().count(), usize::from(machines), "{ended}");
        let told = ended.stderr.lines().filter(|line| line.contains("told to end: the program has finished"));
        assert_eq!(told.count(), usize::from(machines) - 1, "{ended}");
        wait_until_gone(pids.into_values());
    }
}

fn the_exit_status_is_passed_on() {
    for machines in [1, 2] {
        run(command(machines, &[], &["end", "7"])).assert(7, None);
        run(command(machines, &[], &["end", "255"])).assert(255, None);
    }
    // main continued after gossamer::main had returned
    run(command(2, &[], &["end", "0", "9"])).assert(9, None);
    run(command(2, &[], &["end", "4", "0"])).assert(4, None);
}

fn machines_learn_threads_and_place() {
    let mut with = command(2, &["--threads", "6"], &["threads"]);
    with.env("GOSSAMER_PLAN", "old").env("GOSSAMER_MACHINE", "old");
    let ended = run(with);
    for machine in 0..2 {
        let line = format!("m{machine} | threads Some(6), machine {machine} of 2");
        assert!(ended.stdout.lines().any(|found| found == line), "{ended}");
    }
    let mut without = command(1, &[], &["threads"]);
    without.env("GOSSAMER_PLAN", "{}"); // left by another launcher
    let ended = run(without);
    assert!(ended.stdout.lines().any(|line| line == "threads None, machine 0 of 1"), "{ended}");
}

fn a_machine_inherits_what_it_needs_and_no_more() {
    let ended = run(command(3, &[], &["descriptors"]));
    ended.assert(0, None);
    for machine in 0..3 {
        let prefix = format!("m{machine} | inherited ");
        let inherited = ended.stdout.lines().filter_map(|line| line.strip_prefix(&prefix));
        let (sockets, memory): (Vec<&str>, Vec<&str>) = inherited.partition(|what| what.starts_with("socket:"));
        assert_eq!((sockets.len(), memory.len()), (1, 5), "the channel, 1 + 3 memory files and the shares: {ended}");
        assert!(memory.iter().all(|what| what.starts_with("/memfd:gossamer")), "{ended}");
        assert!(ended.stdout.contains(&format!("m{machine} | inheritable now: 0\n")), "{ended}");
    }
}

fn the_program_may_run_behind_a_wrapper() {
    let mut wrapped = launcher();
    wrapped.args(["run", "--local", "2", "sh", "-c", "\"$@\"; exit $?", "sh"]);
    wrapped.arg(this_program()).args(["machine", "end", "6"]);
    run(wrapped).assert(6, None);
}

fn children_of_a_machine_are_not_machines_and_end_with_it() {
    let launch = launch(2, &["family"]);
    launch.ready(2);
    let ended = launch.end(); // although the leftover process holds the output open
    ended.assert(0, None);
    assert!(ended.stdout.lines().any(|line| line == "m0 | grandchild: no launcher, role probe"), "{ended}");
    let left_behind = ended.stdout.lines().find_map(|line| line.strip_prefix("m0 | left behind ")?.parse().ok());
    wait_until_gone([left_behind.expect("machine 0 said whom it left behind")]);
}

fn broken_variables_are_refused() {
    let mut probe = std::process::Command::new(this_program());
    probe
        .args(["machine", "end"])
        .env("GOSSAMER_LAUNCHER", format!("{}:77", gossamer::control::PROTOCOL_VERSION))
        .env("GOSSAMER_MACHINE", "one");
    let ended = run(probe);
    assert_eq!(ended.code(), Some(64), "{ended}");
    assert!(ended.stderr.contains("GOSSAMER_PLAN is missing") && ended.stderr.contains("unset"), "{ended}");
}

fn a_bad_program_is_named() {
    let folder = std::env::temp_dir().join(format!("gossamer-launch-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let data = folder.join("data");
    std::fs::write(&data, "no program").unwrap();
    let no_interpreter = folder.join("script");
    std::fs::write(&no_interpreter, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&no_interpreter, std::fs::Permissions::from_mode(0o755)).unwrap();
    let bad = [
        ("no-such-program-anywhere".into(), "PATH"),
        (folder.join("missing"), "is the path right"),
        (data, "chmod +x"),
        (folder.clone(), "folder"),
        (no_interpreter, "interpreter"),
    ];
    for (program, hint) in bad {
        let mut command = launcher();
        let ended = run({
            command.args(["run", "--local", "2"]).arg(&program);
            command
        });
        assert_eq!(ended.code(), Some(127), "{ended}");
        let text = ended.complaints().join("\n");
        assert!(text.contains(program.to_str().unwrap()) && text.contains(hint), "{ended}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn impossible_numbers_are_usage_errors() {
    let bad: [(&[&str], &str); 6] = [
        (&["--local", "0"], "0 is not in 1..=128"),
        (&["--local", "129"], "129 is not in 1..=128"),
        (&["--local", "70000"], "70000 is not in 1..=128"),
        (&["--local", "many"], "invalid digit"),
        (&["--local", "4", "--threads", "3"], "each machine needs at least one worker"),
        (&[], "--local"),
    ];
    for (options, words) in bad {
        let mut command = launcher();
        command.arg("run").args(options).arg("true");
        let ended = run(command);
        assert_eq!(ended.code(), Some(2), "{ended}");
        assert!(ended.stderr.contains(words), "{ended}");
    }
}

fn nothing_is_left_in_shared_memory() {
    let ours = || -> BTreeSet<_> {
        let names = std::fs::read_dir("/dev/shm").into_iter().flatten().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains("gossamer")).collect()
    };
    let before = ours();
    let launch = start(command(4, &[], &["stubborn"]));
    let pids = launch.ready(4);
    launch.signal(rustix::process::Signal::KILL);
    wait_until_gone(pids.into_values()); // memory without a name goes with the last process
    assert_eq!(ours(), before);
}
