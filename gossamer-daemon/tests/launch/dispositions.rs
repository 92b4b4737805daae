//! Conditions at the start of a launcher or a daemon: blocked and ignored signals, few descriptors.
#![allow(unsafe_code)] // pre_exec

use std::os::unix::process::CommandExt;
use std::process::Command;

use limits::wait_until;
use processes::{Ended, send_signal, wait_until_gone};
use rustix::process::Signal;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, Machines, command, launcher, run, start, this_program};

crate::tests![
    blocked_signals_end_a_launcher_in_order,
    blocked_signals_end_a_daemon_in_order,
    programs_start_with_no_signal_blocked,
    a_host_without_descriptors_is_named_as_the_cause,
    a_daemon_that_cannot_accept_names_its_limit_and_lives,
    a_launcher_without_descriptors_names_them,
];

/// Has a command start with all signals blocked, and with these ignored.
fn obstruct(command: &mut Command, ignored: &'static [i32]) {
    let change = move || {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigfillset writes the set before it is read; a signal that is ignored runs no code.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            for signal in ignored {
                libc::signal(*signal, libc::SIG_IGN);
            }
        }
        Ok(())
    };
    // SAFETY: `change` makes system calls alone.
    unsafe { command.pre_exec(change) };
}

fn blocked_signals_end_a_launcher_in_order() {
    let rack = Rack::start(2, LENIENT_MS, "");
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        for mut command in [command(2, &[], &["wait"]), rack.command(&[], &["wait"])] {
            obstruct(&mut command, &[]);
            let launch = start(command);
            let pids = launch.ready(2);
            launch.signal(signal);
            wait_until_gone(pids.into_values());
            let ended = launch.end();
            ended.complains(status, &format!("the program was ended by signal {}", signal.as_raw()));
        }
    }
    // A signal from before its start: nothing is started, or the started processes are ended.
    let mut command = launcher();
    command.args(["run", "--local", "2"]).arg(this_program()).args(["machine", "wait"]);
    obstruct(&mut command, &[]);
    // SAFETY: one system call; the signal is blocked here.
    unsafe {
        command.pre_exec(|| {
            libc::raise(libc::SIGTERM);
            Ok(())
        })
    };
    let ended = run(command);
    assert!(!ended.status.success(), "{ended}");
}

fn blocked_signals_end_a_daemon_in_order() {
    let mut rack = Rack::prepare(1, LENIENT_MS, "");
    let mut obstructed = Command::new("env");
    obstruct(&mut obstructed, &[]);
    rack.start_daemon_in("a", obstructed);
    let launch = rack.launch(&["wait"]);
    let pids = launch.ready(1);
    send_signal(rack.pid("a"), Signal::TERM);
    wait_until_gone(pids.into_values());
    launch.end().complains(70, "gossamer-daemon was told to end");
    assert_eq!(rack.daemons.remove("a").unwrap().end().code(), Some(0));
}

/// Under `--local` ignored signals are inherited, as with `nohup`; on a rack they would be those of the daemon.
fn programs_start_with_no_signal_blocked() {
    const IGNORED: &[i32] = &[libc::SIGHUP, libc::SIGUSR1, libc::SIGCHLD];
    let bit = |signal: i32| 1u64 << (signal - 1);
    // The C library ignores two signals of its own, 32 and 33, in each program that it starts by `posix_spawn`.
    let own = bit(32) | bit(33);
    let masks = |ended: &Ended| -> Vec<(String, u64)> {
        assert_eq!(ended.code(), Some(0), "{ended}");
        let mask = |line: &str| {
            let (name, mask) = line.split_once(":\t")?;
            Some((name.to_owned(), u64::from_str_radix(mask, 16).ok()? & !own))
        };
        ended.stdout.lines().filter_map(mask).collect()
    };
    let words = ["--no-prefix", "grep", "-E", "SigBlk|SigIgn", "/proc/self/status"];
    let mut local = launcher();
    local.args(["run", "--local", "2"]).args(words);
    obstruct(&mut local, IGNORED);
    let masks_here = masks(&run(local));
    assert_eq!(masks_here.len(), 4);
    for (name, mask) in masks_here {
        let (asked, ignored) =
            (bit(libc::SIGUSR1) | bit(libc::SIGHUP), mask & (bit(libc::SIGUSR1) | bit(libc::SIGHUP)));
        assert!(if name == "SigIgn" { ignored == asked } else { mask == 0 }, "{name} {mask:x}");
    }

    let mut rack = Rack::prepare(1, LENIENT_MS, "");
    let mut obstructed = Command::new("env");
    obstruct(&mut obstructed, IGNORED);
    rack.start_daemon_in("a", obstructed);
    let mut on_rack = rack.launcher("run");
    on_rack.args(words);
    obstruct(&mut on_rack, IGNORED);
    assert_eq!(masks(&run(on_rack)), [("SigBlk".to_owned(), 0), ("SigIgn".to_owned(), 0)]);
}

/// The message names neither the program nor processes and threads.
#[track_caller]
fn assert_names_descriptors(ended: &Ended) {
    let said = ended.complaints().join("\n");
    assert!(said.contains("Too many open files") && ended.code() == Some(70), "{ended}");
    for words in ["for this machine", "another thread", "ps -eLf"] {
        assert!(!said.contains(words), "{words}: {ended}");
    }
}

fn a_host_without_descriptors_is_named_as_the_cause() {
    let rack = Rack::start(1, LENIENT_MS, "");
    rack.run(&[], &["end"]).assert(0, None);
    rack.until_idle();
    let daemon = rack.pid("a").to_string();
    let open = std::fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().count();
    let (mut named, mut last) = (0, String::new());
    // A connection takes some descriptors; without those nothing can report the cause. Some that were counted may be
    // gone since.
    for limit in (open.saturating_sub(10)..open + 20).rev() {
        if named > 0 && limit < open + 5 {
            break;
        }
        let limit = format!("--nofile={limit}:");
        assert!(Command::new("prlimit").args(["--pid", &daemon, &limit]).status().unwrap().success());
        let ended = rack.run(&[], &["end"]);
        last = format!("{limit} of {open} at first: {ended}");
        if ended.complaints().join("").contains("closed the connection") {
            break;
        }
        if ended.code() != Some(0) {
            assert_names_descriptors(&ended);
            named += 1;
        }
    }
    assert!(named > 0, "there were enough: {last}");
    assert!(Command::new("prlimit").args(["--pid", &daemon, "--nofile=1000:"]).status().unwrap().success());
    rack.run(&[], &["end", "3"]).assert(3, None);
}

/// Connections wait, and are taken once there is room.
fn a_daemon_that_cannot_accept_names_its_limit_and_lives() {
    let rack = Rack::start(1, LENIENT_MS, "");
    let daemon = rack.pid("a");
    let open: std::collections::BTreeSet<u64> = std::fs::read_dir(format!("/proc/{daemon}/fd"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .collect();
    let room = (0..).find(|number| !open.contains(number)).unwrap();
    let set = |limit: u64| {
        let status =
            Command::new("prlimit").args(["--pid", &daemon.to_string(), &format!("--nofile={limit}:")]).status();
        assert!(status.unwrap().success());
    };
    set(room);
    let launch = start(rack.command(&[], &["end", "3"]));
    let told = format!("of the daemon's process, which may have {room}; raise LimitNOFILE= of the unit, or ulimit -n");
    rack.daemons["a"].stderr.wait_for(&told);
    // It looks again after a pause, so it takes next to no processor time.
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let [user, system]: [u64; 2] = [fields[11], fields[12]].map(|field| field.parse().unwrap());
        (user + system, std::time::Instant::now())
    };
    let (before, began) = ticks();
    std::thread::sleep(std::time::Duration::from_secs(1));
    let (after, ended) = ticks();
    let took = std::time::Duration::from_millis(10 * (after - before));
    assert!(2 * took < ended - began, "{took:?} of processor time in {:?}", ended - began);
    set(1000);
    launch.end().assert(3, None);
}

fn a_launcher_without_descriptors_names_them() {
    let mut named = 0;
    for limit in (8..48).step_by(4) {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {limit}; exec \"$@\""), "sh"]);
        let launch = command(4, &[], &["end"]);
        shell.arg(launch.get_program()).args(launch.get_args()).stdin(std::process::Stdio::null());
        let ended = run(shell);
        if ended.code() != Some(0) {
            assert_names_descriptors(&ended);
            named += 1;
        }
    }
    assert!(named > 0);
    wait_until("enough to be enough", || run(command(4, &[], &["end", "5"])).code() == Some(5));
}
