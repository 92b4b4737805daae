//! Programs on a rack of local processes, from their command line to their exit status.

mod heap_losses;
mod heap_tasks;
mod rig;
mod ways;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use processes::{ChildProcess, run, send_signal};
use rustix::process::Signal;

use rig::{Outliving, ROLES, STRANGER, SUITE, launcher, play, play_on, role};

#[test]
fn calls_reach_every_machine_in_order() {
    play("calls");
}

#[test]
fn arguments_and_results_of_any_size_travel() {
    play_on(0, "large");
    for (machines, fabric) in [(2, "shm"), (3, "tcp")] {
        let ended = run(launcher(machines, &["--fabric", fabric], ROLES, &["large"]));
        assert!(ended.status.success(), "{fabric}: {ended:#?}");
    }
}

#[test]
fn launched_closures_wait_at_their_trustee() {
    play("launch");
}

#[test]
fn panics_come_back_and_poison_their_property_alone() {
    play("panics");
}

#[test]
fn a_property_ends_once_after_its_last_trust() {
    for ended in play("trusts") {
        // Four workers in all, each pair of places, and two more.
        assert!(ended.stdout.ends_with("dropped 18\n"), "{ended:#?}");
    }
}

/// Plays with machines of two workers, one of which may compute.
#[track_caller]
fn play_in_pairs(name: &str) {
    for (machines, fabric) in [(2, "shm"), (2, "tcp"), (3, "shm")] {
        let threads = (2 * machines).to_string();
        let ended = run(launcher(machines, &["--fabric", fabric, "--threads", &threads], ROLES, &[name]));
        assert!(ended.status.success(), "{name} on {machines} machines, {fabric}: {ended:#?}");
    }
}

#[test]
fn workers_that_compute_do_not_delay_drops_on_other_machines() {
    play_in_pairs("drops-computing");
}

/// Plays with machines that compute with all their workers: machines of one worker, all of which but the first may
/// compute, and machines of two.
#[track_caller]
fn play_alone(name: &str) {
    for (machines, threads, fabric) in [(2, "2", "shm"), (3, "3", "tcp"), (2, "4", "tcp")] {
        let ended = run(launcher(machines, &["--fabric", fabric, "--threads", threads], ROLES, &[name]));
        assert!(ended.status.success(), "{name} on {machines} machines, {threads} workers, {fabric}: {ended:#?}");
    }
}

#[test]
fn machines_that_compute_with_all_workers_do_not_delay_drops_on_others() {
    play_alone("drops-computing-alone");
}

#[test]
fn they_do_not_delay_drops_by_threads_without_links() {
    play_alone("drops-linkless-alone");
}

#[test]
fn a_drop_waits_for_counts_at_other_machines() {
    play_in_pairs("drops-waiting");
}

#[test]
fn a_drop_waits_for_counts_of_threads_without_links() {
    play_in_pairs("drops-linkless");
}

#[test]
fn places_are_where_they_say() {
    for (ended, (machines, ways)) in play("places").into_iter().zip([
        (1, &[""; 0] as &[_]),
        (1, &[]),
        (2, &["shm"]),
        (4, &["shm", "shm", "shm"]),
        (3, &["tcp", "tcp"]),
        (4, &["shm", "tcp", "tcp"]),
    ]) {
        let text = ended.stdout.replace("m0 | ", "");
        let lines: Vec<&str> = text.lines().collect();
        let plural = if machines == 1 { "" } else { "s" };
        assert_eq!(lines[0], format!("{machines} machine{plural}, 4 workers"), "{text}");
        assert!(
            lines[1].starts_with("m0: ") && lines[1].contains(" on ") && lines[1].ends_with("KiB of slots"),
            "{text}"
        );
        let seen: Vec<&str> = lines[2..].iter().map(|line| line.rsplit_once(", by ").expect(line).1).collect();
        assert_eq!(seen, ways, "{text}");
    }
}

#[test]
fn the_launcher_decides_how_many_workers() {
    let ended = run(launcher(3, &["--threads", "5"], ROLES, &["places"]));
    assert!(ended.status.success() && ended.stdout.contains("3 machines, 5 workers"), "{ended:#?}");
    let ended = run(launcher(2, &["--threads", "5"], ROLES, &["everyone"]));
    assert!(ended.status.success(), "{ended:#?}");
}

#[test]
fn fibers_are_spawned_and_joined_both_ways() {
    play("spawn");
}

#[test]
fn everyone_delegates_to_everyone() {
    play("everyone");
}

#[test]
fn fibers_of_machine_0_are_waited_for() {
    for ended in play("leave-running") {
        assert!(ended.stdout.ends_with("counted to 100\n"), "{ended:#?}");
    }
}

/// One closure twice, for it takes twice as long, another one once, and none of those that take long only together.
#[test]
fn a_worker_that_is_long_in_one_closure_is_told_with_its_type() {
    let ended = run(launcher(2, &["--fabric", "shm"], ROLES, &["long-closures"]));
    assert!(ended.status.success(), "{ended:#?}");
    // Four workers in all: the last one of the second machine.
    let told: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("gossamer: m1w1 ")).collect();
    assert!(
        told.iter().all(|line| line.starts_with("m1 | ") && line.contains("long_closures::{{closure}}` on a `u64`"))
    );
    let is_long: Vec<bool> = told.iter().map(|line| line.contains("has been in one closure for more than ")).collect();
    assert_eq!(is_long, [true, true, false, true, false], "{ended:#?}");
    assert_eq!(told.iter().filter(|line| line.contains(" goes on: the closure ")).count(), 2, "{ended:#?}");
}

#[test]
fn arrays_end_with_a_machine_that_had_parts_and_the_living_make_new_ones() {
    for (machines, options) in
        [(3, &["--fabric", "shm"][..]), (3, &["--fabric", "tcp"]), (4, &["--fabric", "auto", "--pretend-hosts", "2"])]
    {
        let (folder, seed) = (tempfile::tempdir().unwrap(), fastrand::u64(..).to_string());
        let options = [options, &["--survives", "1", "--threads", "8", "--silence", "100"]].concat();
        let args = ["arrays-lost", &seed, folder.path().to_str().unwrap()];
        let ended = run(launcher(machines, &options, ROLES, &args));
        let is_well = ended.status.success() && ended.stdout.contains("the living have arrays");
        assert!(is_well, "{options:?} {args:?}: {ended:#?}");
    }
}

#[test]
fn a_panic_in_gsm_main_is_status_101() {
    for machines in [0, 1, 2] {
        let ended = run(role(machines, "panic"));
        assert_eq!(ended.status.code(), Some(101), "{machines} machines: {ended:#?}");
        assert!(ended.stderr.contains("gsm_main is meant to panic"), "{ended:#?}");
    }
}

#[test]
fn an_error_and_a_status_that_gsm_main_returns_are_the_programs() {
    for machines in [0, 1, 2] {
        let returns = |what: &str| {
            let mut command = role(machines, "returns");
            command.arg(what);
            run(command)
        };
        let ended = returns("an error");
        assert_eq!(ended.status.code(), Some(1), "{machines} machines: {ended:#?}");
        assert!(ended.stderr.contains("gossamer: the program failed: ParseIntError"), "{ended:#?}");
        let ended = returns("a status");
        assert_eq!((ended.status.code(), ended.stderr.contains("failed")), (Some(7), false), "{ended:#?}");
    }
}

#[test]
fn workers_are_pinned_as_told() {
    let cores = std::thread::available_parallelism().unwrap();
    for (pin, expected) in [("on", 1), ("off", cores.get())] {
        let ended = run(launcher(1, &["--threads", "1", "--pin", pin], ROLES, &["pinned"]));
        assert!(ended.stdout.ends_with(&format!("on {expected} cores\n")), "{pin}: {ended:#?}");
    }
    let mut wrong = role(0, "pinned");
    wrong.env("GOSSAMER_SPIN_US", "soon");
    let ended = run(wrong);
    assert_eq!(ended.status.code(), Some(70), "{ended:#?}");
    assert!(
        ended.stderr.contains("GOSSAMER_SPIN_US has the value \"soon\", but should be a whole number of microseconds"),
        "{ended:#?}"
    );
}

#[test]
fn fibers_of_all_machines_have_the_stack_that_was_asked_for() {
    let deep = |machines: u16, stack: &str| run(launcher(machines, &[], ROLES, &["deep", stack]));
    for machines in [1, 2] {
        let roomy = deep(machines, "roomy");
        assert!(roomy.status.success(), "{roomy:#?}");
        let overflowed = deep(machines, "default");
        assert!(!overflowed.status.success(), "{overflowed:#?}");
        for words in ["has overflowed its stack (1048576 bytes)", "gossamer::builder()"] {
            assert!(overflowed.stderr.contains(words), "no {words:?}: {overflowed:#?}");
        }
        let impossible = deep(machines, "impossible");
        assert_eq!(impossible.status.code(), Some(70), "{impossible:#?}");
        assert!(impossible.stderr.contains("stack_bytes"), "{impossible:#?}");
    }
}

#[test]
fn a_program_without_gossamer_runs_unless_it_has_to_join() {
    for machines in [1, 2] {
        let ended = run(launcher(machines, &[], STRANGER, &["trust"]));
        assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""), "{ended:#?}");
        assert_eq!(ended.stdout.matches("by itself: 1").count(), usize::from(machines), "{ended:#?}");
        let ended = run(launcher(machines, &["--must-join"], STRANGER, &["trust"]));
        assert_eq!(ended.status.code(), Some(70), "{ended:#?}");
        for words in ["before it had reached gossamer::main", "--must-join"] {
            assert!(ended.stderr.contains(words), "no {words:?}: {ended:#?}");
        }
    }
}

#[test]
fn another_program_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("mixed");
    let text = format!("#!/bin/sh\n[ \"$GOSSAMER_MACHINE\" = 1 ] && exec '{STRANGER}'\nexec '{ROLES}' places\n");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for fabric in ["shm", "tcp"] {
        let ended = run(launcher(2, &["--fabric", fabric], script.to_str().unwrap(), &[]));
        assert!(!ended.status.success(), "{ended:#?}");
        assert!(ended.stderr.contains("runs another program than machine"), "{ended:#?}");
        assert!(ended.stderr.contains("put the same file on every machine"), "{ended:#?}");
        assert!(!ended.stdout.contains("workers") && !ended.stdout.contains("stranger"), "{ended:#?}");
    }
}

#[test]
fn a_program_started_by_hand_becomes_its_launcher() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    processes::copy_program(ROLES, &program);
    let by_hand = || {
        let mut command = std::process::Command::new(&program);
        command.arg("places").env("GOSSAMER_RACK", "my rack.yaml").env("PATH", "/nowhere");
        command
    };
    let ended = run(by_hand());
    assert_eq!(ended.status.code(), Some(70), "{ended:#?}");
    let text = &ended.stderr;
    assert!(text.contains("my rack.yaml") && text.contains("gossamer-launch is neither in"), "{text}");

    let launcher = folder.path().join("gossamer-launch");
    fs::write(&launcher, "#!/bin/sh\nfor word; do echo \"<$word>\"; done\nexit 3\n").unwrap();
    fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).unwrap();
    let ended = run(by_hand());
    assert_eq!(ended.status.code(), Some(3), "{ended:#?}");
    let words: Vec<&str> = ended.stdout.lines().collect();
    let path = format!("<{}>", program.canonicalize().unwrap().display());
    assert_eq!(words, ["<run>", "<--rack>", "<my rack.yaml>", "<-->", &path, "<places>"]);

    let ended = run({
        let mut command = role(0, "places");
        command.env("GOSSAMER_RACK", "");
        command
    });
    assert!(ended.status.success() && ended.stdout.starts_with("1 machine,"), "{ended:#?}");
}

#[test]
fn timed_when_one_machine_is_killed_all_end_and_the_launcher_says_which() {
    kill_one("wait");
}

#[test]
fn timed_a_machine_that_dies_amid_misses_of_an_array_is_named() {
    kill_one("array-misses");
}

#[test]
fn regions_hold_where_kernels_are_old() {
    for fabric in ["shm", "tcp"] {
        let options = ["--fabric", fabric, "--env", "GOSSAMER_REGION_OLD_KERNEL=1", "--env", "SUITE_EFFORT=small"];
        let ended = run(launcher(2, &options, SUITE, &["region_"]));
        assert!(ended.status.success(), "over {fabric}: {ended:#?}");
    }
}

/// As between hosts, where those of one host map each other's memory.
#[test]
fn regions_hold_where_machines_of_a_host_copy_their_pages() {
    let options = ["--fabric", "shm", "--env", "GOSSAMER_REGION_COPIES=1", "--env", "SUITE_EFFORT=small"];
    let ended = run(launcher(3, &options, SUITE, &["region_"]));
    assert!(ended.status.success(), "{ended:#?}");
}

#[test]
fn timed_a_machine_that_dies_amid_faults_of_a_region_is_named() {
    kill_one("region-faults");
}

#[test]
fn fibers_of_other_machines_start_while_this_one_computes() {
    let folder = tempfile::tempdir().unwrap();
    for fabric in ["shm", "tcp"] {
        let paths =
            ["one", "two"].map(|name| folder.path().join(format!("{fabric}-{name}")).to_str().unwrap().to_owned());
        let ended = run(launcher(2, &["--fabric", fabric], ROLES, &["starts-at-once", &paths[0], &paths[1]]));
        assert!(ended.status.success() && ended.stdout.ends_with("made\n"), "{ended:#?}");
    }
}

/// Nothing answers a fault any more then.
#[test]
fn a_page_that_is_touched_after_the_program_is_told() {
    for thread in ["main", "other"] {
        for fabric in ["shm", "tcp"] {
            let with_errors = ["-c", "exec \"$0\" \"$@\" 2>&1", ROLES, "region-after", thread];
            let ended = run(launcher(2, &["--fabric", fabric], "/bin/sh", &with_errors));
            assert!(!ended.status.success() && ended.stdout.contains("after\n"), "{ended:#?}");
            let told = "a thread has touched a region, at 0x";
            assert!(ended.stdout.contains(told) && ended.stdout.contains("after the program's end"), "{ended:#?}");
        }
        // Alone a program has all of its pages.
        let mut alone = role(0, "region-after");
        alone.arg(thread);
        let ended = run(alone);
        assert!(ended.status.success() && ended.stdout.ends_with("7 was there\n"), "{ended:#?}");
    }
}

#[test]
fn a_fault_that_waits_for_a_keeper_that_is_stuck_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for fabric in ["shm", "tcp"] {
        let path = folder.path().join(fabric);
        // The machines' messages on standard error are read with the rest.
        let with_errors = ["-c", "exec \"$0\" \"$@\" 2>&1", ROLES, "region-stuck", path.to_str().unwrap()];
        let program = ChildProcess::start(launcher(2, &["--fabric", fabric], "/bin/sh", &with_errors));
        let told = program.stdout.wait_for("is Invalid here\n");
        assert!(told.contains("gossamer: a thread of machine 0 has stood still for "), "{told}");
        assert!(told.contains(" s at a page of region 0, 0 bytes from its start"), "{told}");
        let home = program.stdout.wait_for("machine 1 is to give it to machine 0\n");
        let says = "the home of that page, 0 bytes from the start of region 0, says: modified on machine 1";
        assert!(home.contains(says), "{home}");
        fs::write(&path, "").unwrap();
        let ended = program.end();
        assert!(ended.status.success() && ended.stdout.ends_with("7 was there\n"), "{ended:#?}");
    }
}

#[test]
fn timed_dr25_a_machine_that_dies_under_the_load_of_a_heap_is_named() {
    kill_one("heap-load");
}

#[test]
fn objects_of_machines_that_compute_are_read() {
    for (machines, threads, fabric) in [(2, "2", "tcp"), (3, "5", "tcp"), (2, "4", "shm")] {
        let ended = run(launcher(machines, &["--fabric", fabric, "--threads", threads], ROLES, &["heap-busy-home"]));
        assert!(ended.status.success(), "{machines} machines, {threads} workers, {fabric}: {ended:#?}");
    }
}

#[test]
fn who_has_asked_and_computes_holds_up_nobody() {
    play_in_pairs("heap-busy-asker");
}

#[test]
fn small_objects_come_before_large_ones() {
    let ended = run(launcher(2, &["--fabric", "tcp"], ROLES, &["heap-small-behind-large"]));
    assert!(ended.status.success(), "{ended:#?}");
}

#[test]
fn fibers_that_wait_for_each_other_are_told_after_a_loss_as_before() {
    for fabric in ["shm", "tcp"] {
        let ended = run(launcher(3, &["--fabric", fabric], ROLES, &["waits-after-loss"]));
        assert!(ended.status.success() && ended.stdout.contains("one was told"), "{fabric}: {ended:#?}");
    }
}

#[test]
fn objects_for_which_there_is_no_room_are_made_elsewhere() {
    for options in [["--fabric", "shm"], ["--fabric", "tcp"], ["--pretend-hosts", "2"]] {
        let options = [&["--threads", "6", "--env", "GOSSAMER_HEAP=8M"], &options[..]].concat();
        let ended = run(launcher(3, &options, ROLES, &["heap-elsewhere"]));
        assert!(ended.status.success() && ended.stdout.contains("made elsewhere"), "{options:?}: {ended:#?}");
        let options = [&options[..], &["--survives", "1", "--env", "GOSSAMER_HEAP=32M"]].concat();
        let ended = run(launcher(3, &options, ROLES, &["heap-elsewhere-copies"]));
        assert!(ended.status.success(), "with copies, {options:?}: {ended:#?}");
    }
}

#[test]
fn fibers_go_where_there_is_least_to_do() {
    Outliving::THREE.plays("heap-placed", "placed");
}

/// Waits until a machine works and all three are listed: the list is machine 0's, and another's output may come before
/// it. Returns the output.
#[track_caller]
fn at_work(program: &ChildProcess) -> String {
    program.stdout.find("machine 2 has … bytes of slots", |text| {
        let is_listed = |(_, rest): (&str, &str)| rest.contains(" bytes of slots\n");
        (text.contains("works\n") && text.split_once("machine 2 has ").is_some_and(is_listed)).then(|| text.to_owned())
    })
}

/// Kills a machine while this role is played.
#[track_caller]
fn kill_one(name: &str) {
    let ways: [&[&str]; 3] = [&["--fabric", "shm"], &["--fabric", "tcp"], &["--pretend-hosts", "2"]];
    for (victim, options) in ways.into_iter().flat_map(|way| [(0, way), (1, way), (2, way)]) {
        let program = ChildProcess::start(launcher(3, options, ROLES, &[name]));
        let text = at_work(&program);
        let pid = |machine: u16| {
            let rest = text.split(&format!("machine {machine} is process ")).nth(1).expect("each machine is listed");
            rest.lines().next().unwrap().parse::<u32>().unwrap()
        };
        let killed = Instant::now();
        send_signal(pid(victim), Signal::KILL);
        let ended = program.end();
        assert!(killed.elapsed() < limits::bound(Duration::from_secs(5)), "it took {:?}", killed.elapsed());
        assert_eq!(ended.status.code(), Some(137), "{options:?}: {ended:#?}");
        let cause = format!("machine {victim} (pid {}) was killed by signal 9 (SIGKILL)", pid(victim));
        assert!(ended.stderr.contains(&cause), "{options:?}: {ended:#?}");
        for machine in 0..3 {
            let left = std::path::PathBuf::from(format!("/proc/{}", pid(machine)));
            assert!(!left.exists(), "machine {machine} is still there");
        }
    }
}

#[test]
fn a_machine_that_stands_still_ends_the_program() {
    for options in [&["--fabric", "shm"][..], &["--fabric", "tcp"], &["--pretend-hosts", "2"]] {
        let program = ChildProcess::start(launcher(3, options, ROLES, &["wait"]));
        let text = at_work(&program);
        // The last one, which all others reach by TCP except with `shm`: they miss it too.
        let rest = text.split("machine 2 is process ").nth(1).expect("each machine is listed");
        send_signal(rest.lines().next().unwrap().parse().unwrap(), Signal::STOP);
        let ended = program.end();
        assert_eq!(ended.status.code(), Some(70), "{options:?}: {ended:#?}");
        let causes = ["stands still, stopped by signal 19 (SIGSTOP)", "lost machine 2: nothing was heard of it for "];
        let might_miss_it = if options.contains(&"shm") { &causes[..1] } else { &causes };
        let is_told = might_miss_it.iter().any(|cause| ended.stderr.contains(cause));
        assert!(is_told && ended.stderr.contains("machine 2"), "{options:?}: {ended:#?}");
    }
}

/// Long before the time for the start is over.
#[test]
fn a_machine_that_stands_still_at_its_start_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("stopped");
    let text = format!("#!/bin/sh\n[ \"$GOSSAMER_MACHINE\" = 1 ] && kill -STOP $$\nexec '{ROLES}' places\n");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for fabric in ["shm", "tcp"] {
        let options = ["--fabric", fabric, "--start-timeout", "1000"];
        let ended = run(launcher(3, &options, script.to_str().unwrap(), &[]));
        assert_eq!(ended.status.code(), Some(70), "{ended:#?}");
        let cause = "stands still, stopped by signal 19 (SIGSTOP)";
        assert!(ended.stderr.contains("machine 1") && ended.stderr.contains(cause), "{fabric}: {ended:#?}");
    }
}

#[test]
fn a_machine_that_does_not_come_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("late");
    let text = format!("#!/bin/sh\n[ \"$GOSSAMER_MACHINE\" = 1 ] && exec sleep 1000\nexec '{ROLES}' places\n");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for fabric in ["shm", "tcp"] {
        let options = ["--fabric", fabric, "--start-timeout", "1"];
        let ended = run(launcher(3, &options, script.to_str().unwrap(), &[]));
        assert_eq!(ended.status.code(), Some(70), "{ended:#?}");
        let cause = "no message came from machine 1 on ";
        assert!(ended.stderr.contains(cause) && ended.stderr.contains("within 1000 ms"), "{fabric}: {ended:#?}");
    }
}

#[test]
fn an_impossible_fabric_is_refused_with_the_cure() {
    let ended = run(launcher(2, &["--fabric", "shm", "--pretend-hosts", "2"], ROLES, &["places"]));
    assert_eq!(ended.status.code(), Some(70), "{ended:#?}");
    assert!(ended.stderr.contains("use auto or tcp for several"), "{ended:#?}");
}

/// Machines are killed at any point of their start, or after it: the launcher names the killed one, and nothing is
/// left.
#[test]
fn machines_may_be_killed_at_any_time() {
    let seed = std::env::var("GOSSAMER_SEED").map_or(1, |seed| seed.parse().expect("GOSSAMER_SEED is a number"));
    println!("GOSSAMER_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let ways: [&[&str]; 3] = [&["--fabric", "shm"], &["--fabric", "tcp"], &["--pretend-hosts", "2"]];
    for options in ways.into_iter().cycle().take(18) {
        let program = ChildProcess::start(launcher(4, options, ROLES, &["wait"]));
        let victim = random.usize(..4);
        let mut machines = Vec::new();
        limits::wait_until("all machines are there", || {
            machines = program.children();
            machines.len() == 4
        });
        std::thread::sleep(Duration::from_micros(random.u64(..120_000))); // the time of the blow, nothing is waited for
        send_signal(machines[victim], Signal::KILL);
        let ended = program.end();
        let cause = format!("machine {victim} (pid {}) was killed by signal 9 (SIGKILL)", machines[victim]);
        assert_eq!(ended.status.code(), Some(137), "{options:?}: {ended:#?}");
        assert!(ended.stderr.contains(&cause), "{options:?}: {ended:#?}");
        for machine in machines {
            assert!(!std::path::PathBuf::from(format!("/proc/{machine}")).exists(), "{machine} is still there");
        }
    }
}
