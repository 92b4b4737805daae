//! Each kind of standard input that a launcher may be started with: none of them keeps it busy, and none with more to
//! come is taken for ended. And `--stdin none`, which leaves the input to others.
#![allow(unsafe_code)] // pre_exec

use std::any::Any;
use std::io::{PipeReader, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use limits::wait_until;
use processes::ChildProcess;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::time::{ClockId, clock_gettime};

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, Machines, command, run, start};

crate::tests![
    a_launcher_sleeps_while_its_program_does,
    all_of_a_rack_sleep_while_its_program_does,
    a_launcher_sleeps_when_its_program_has_closed_its_output,
    a_non_blocking_input_is_read_to_its_end,
    stdin_none_leaves_the_input_to_others,
];

const KINDS: [&str; 9] =
    ["closed", "null", "ended pipe", "open pipe", "non-blocking pipe", "file", "terminal", "socket", "ended socket"];

/// Sets a command's standard input, and returns the value that has to stay open meanwhile.
fn set_stdin(command: &mut Command, kind: &str) -> Box<dyn Any> {
    match kind {
        "closed" => {
            // SAFETY: one system call between fork and exec; nothing in the child uses the descriptor afterwards.
            unsafe {
                command.pre_exec(|| {
                    drop(rustix::stdio::take_stdin());
                    Ok(())
                })
            };
            Box::new(())
        }
        "null" => Box::new(()), // as in the rig
        "ended pipe" => {
            command.stdin(std::io::pipe().unwrap().0);
            Box::new(())
        }
        "open pipe" | "non-blocking pipe" => {
            let (reader, writer) = std::io::pipe().unwrap();
            if kind == "non-blocking pipe" {
                fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
            }
            command.stdin(reader);
            Box::new(writer)
        }
        "file" => {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"one line\n").unwrap();
            file.rewind().unwrap();
            command.stdin(file);
            Box::new(())
        }
        "terminal" => {
            let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
            grantpt(&user).unwrap();
            unlockpt(&user).unwrap();
            let path = ptsname(&user, Vec::new()).unwrap().into_string().unwrap();
            command.stdin(std::fs::File::options().read(true).write(true).open(path).unwrap());
            Box::new(user)
        }
        "socket" | "ended socket" => {
            let (ours, theirs) = UnixStream::pair().unwrap();
            command.stdin(Stdio::from(OwnedFd::from(theirs)));
            if kind == "socket" { Box::new(ours) } else { Box::new(()) }
        }
        other => panic!("{other}"),
    }
}

/// Returns the clock ticks (100 a second) of processor time that a process has taken.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Processor time of this thread, which never sleeps, while other processes are watched. A process that never sleeps
/// either gets about as much, however busy the host is.
const SPUN: Duration = Duration::from_millis(300);
/// A third of that: signs of life and checks of machines take far less.
const TICKS_MAX: u64 = 10;

/// Checks that none of these processes, each with its description, takes noticeable processor time.
#[track_caller]
fn assert_asleep(processes: &[(u32, String)]) {
    let before: Vec<u64> = processes.iter().map(|(pid, _)| ticks(*pid)).collect();
    let own_time = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let (start, spun_from) = (Instant::now(), own_time());
    while own_time() - spun_from < SPUN {}
    let taken = processes.iter().zip(before).map(|((pid, what), before)| (what, ticks(*pid) - before));
    let busy: Vec<_> = taken.filter(|(_, ticks)| *ticks > TICKS_MAX).collect();
    assert!(busy.is_empty(), "ticks in {:?}: {busy:?}", start.elapsed());
}

/// Starts a waiting program for each kind of input, and returns once it waits.
fn waiting(machines: u16, command: impl Fn() -> Command) -> Vec<(ChildProcess, &'static str, Box<dyn Any>)> {
    let start_one = |kind: &&'static str| {
        let mut command = command();
        let kept = set_stdin(&mut command, kind);
        (start(command), *kind, kept)
    };
    let launches: Vec<_> = KINDS.iter().map(start_one).collect();
    launches.iter().for_each(|(launch, ..)| drop(launch.ready(machines)));
    launches
}

fn a_launcher_sleeps_while_its_program_does() {
    for machines in [1, 2, 4] {
        let launches = waiting(machines, || command(machines, &[], &["wait"]));
        let named = |(launch, kind, _): &(ChildProcess, &str, _)| (launch.id(), format!("{machines} machines, {kind}"));
        assert_asleep(&launches.iter().map(named).collect::<Vec<_>>());
    }
}

fn all_of_a_rack_sleep_while_its_program_does() {
    let rack = Rack::start(2, LENIENT_MS, &format!("limits: {{programs: {}}}", KINDS.len()));
    let launches = waiting(2, || rack.command(&[], &["wait"]));
    let mut processes: Vec<_> = launches.iter().map(|(launch, kind, _)| (launch.id(), (*kind).to_owned())).collect();
    for name in ["a", "b"] {
        processes.push((rack.pid(name), format!("the daemon of {name}")));
        processes.extend(rack.parts(name).into_iter().map(|part| (part, format!("a part of {name}"))));
    }
    assert_eq!(processes.len(), KINDS.len() + 2 * (1 + KINDS.len()));
    assert_asleep(&processes);
    drop(launches);
    rack.until_idle();
}

/// A program that continues as a daemon does, or has only its files to write.
fn a_launcher_sleeps_when_its_program_has_closed_its_output() {
    let launches: Vec<_> = [1, 2, 4].map(|machines| (machines, start(command(machines, &[], &["mute"])))).into();
    launches.iter().for_each(|(machines, launch)| drop(launch.ready(*machines)));
    wait_until("each to have closed its output", || {
        let is_mute = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/fd/2")).unwrap() == *"/dev/null";
        launches.iter().all(|(machines, launch)| launch.ready(*machines).values().all(is_mute))
    });
    let named = |(machines, launch): &(u16, ChildProcess)| (launch.id(), format!("{machines} machines"));
    assert_asleep(&launches.iter().map(named).collect::<Vec<_>>());
}

/// "Nothing there yet" is neither the end of the input nor an error of the program.
fn a_non_blocking_input_is_read_to_its_end() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let kinds = [command(1, &[], &["cat"]), command(2, &[], &["cat"]), rack.command(&[], &["cat"])];
    for (mut command, machines) in kinds.into_iter().zip([1, 2, 2]) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
        command.stdin(reader);
        let launch = start(command);
        launch.ready(machines); // the reader has found nothing by now
        writer.write_all(&[b'x'; 60_000]).unwrap();
        wait_until("it to be read", || rustix::io::ioctl_fionread(&writer).is_ok_and(|bytes| bytes == 0));
        writer.write_all(b"last").unwrap();
        drop(writer);
        let ended = launch.end();
        ended.assert(0, None);
        assert!(ended.stdout.lines().any(|line| line.ends_with("read 60004 bytes")), "{ended}");
    }
}

fn stdin_none_leaves_the_input_to_others() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let list = b"one\ntwo\nthree\n";
    let prepared = |mut command: Command| -> (Command, PipeReader) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(list).unwrap();
        command.stdin(reader.try_clone().unwrap());
        (command, reader)
    };
    let none = &["--stdin", "none"];
    let commands =
        [(command(1, none, &["cat"]), 1), (command(2, none, &["cat"]), 2), (rack.command(none, &["cat"]), 2)];
    for (command, machines) in commands {
        let (command, mut left) = prepared(command);
        let ended = run(command);
        ended.assert(0, None);
        assert_eq!(ended.stdout.lines().filter(|line| line.ends_with("read 0 bytes")).count(), machines, "{ended}");
        let mut text = Vec::new();
        left.read_to_end(&mut text).unwrap();
        assert_eq!(text, list);
    }
    // As without the option.
    let (command, mut left) = prepared(rack.command(&["--stdin", "0"], &["cat"]));
    let ended = run(command);
    assert!(ended.stdout.lines().any(|line| line.ends_with("read 14 bytes")), "{ended}");
    assert_eq!(left.read_to_end(&mut Vec::new()).unwrap(), 0);
    run(crate::rig::command(2, &["--stdin", "1"], &["cat"])).complains(2, "possible values: 0, none");
}
