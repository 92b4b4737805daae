//! While the machines meet: signals, names that others have taken, and a machine that cannot make the shared memory.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::SocketAddr;
use std::process::Command;

use limits::wait_until;
use processes::{ChildProcess, send_signal};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Signal;

use crate::rig::{Meeting, ROLES, end};

/// Returns whether the process has a handler for this signal.
fn catches(pid: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught & (1 << (signal.as_raw() - 1)) != 0
}

fn has_thread(pid: u32, name: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok())
        .any(|comm| comm.trim() == name)
}

#[test]
fn a_signal_ends_a_machine_that_waits_for_the_others() {
    for index in [0, 1] {
        for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
            let meeting = Meeting::new();
            let machine = ChildProcess::start(meeting.command(index, 3, ROLES, &["starter"]));
            wait_until("it catches the signal", || catches(machine.id(), signal));
            machine.signal(signal);
            let ended = machine.end();
            assert_eq!(ended.status.code(), Some(status), "{ended:#?}");
            assert!(ended.stderr.contains("the program was ended by signal"), "{ended:#?}");
        }
    }
}

#[test]
fn a_signal_to_one_that_has_joined_ends_all_that_have_come() {
    let meeting = Meeting::new();
    let all: Vec<_> = (0..2).map(|index| ChildProcess::start(meeting.command(index, 3, ROLES, &["starter"]))).collect();
    wait_until("machine 1 has joined", || has_thread(all[1].id(), "gossamer-beat"));
    all[1].signal(Signal::TERM);
    let all = end(all);
    // Machine 0 may learn of its end before it learns why.
    let is_gone = all[0].status.code() == Some(70) && all[0].stderr.contains("machine 1 ");
    assert!(is_gone || all[0].status.code() == Some(143), "{all:#?}");
    assert!(all.iter().all(|ended| !ended.status.success()), "{all:#?}");
    assert!(all[1].stderr.contains("ended by signal 15 (SIGTERM)"), "{all:#?}");
}

/// The system's defaults do not end the first process of a namespace.
#[test]
fn a_signal_ends_a_machine_that_is_the_first_process_of_its_container() {
    let wrap = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    if !Command::new("unshare").args(wrap).arg("true").output().is_ok_and(|done| done.status.success()) {
        eprintln!("SKIPPED: this system gives no namespace of processes (unshare of util-linux)");
        return;
    }
    for index in [0, 1] {
        let meeting = Meeting::new();
        let bare = meeting.command(index, 3, ROLES, &["starter"]);
        let mut command = Command::new("unshare");
        command.args(wrap).arg("--kill-child").arg(bare.get_program()).args(bare.get_args());
        command.envs(bare.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let outside = ChildProcess::start(command);
        let inside = || outside.children().first().copied();
        wait_until("it catches the signal", || inside().is_some_and(|pid| catches(pid, Signal::TERM)));
        send_signal(inside().unwrap(), Signal::TERM);
        let ended = outside.end();
        assert_eq!(ended.status.code(), Some(143), "{ended:#?}");
    }
}

/// Takes this name with a socket that nobody can connect to any more: its backlog is full.
fn take_name(name: &str) -> Option<[rustix::fd::OwnedFd; 2]> {
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let address = SocketAddrUnix::new_abstract_name(address.as_abstract_name().unwrap()).unwrap();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let (taken, waits) = (socket(), socket());
    rustix::net::bind(&taken, &address).ok()?;
    rustix::net::listen(&taken, 0).unwrap();
    rustix::net::connect(&waits, &address).unwrap();
    Some([taken, waits])
}

/// Every process on the host can take names of abstract sockets, also those of an ancestor or of processes to come.
#[test]
fn whoever_has_taken_names_keeps_no_machine_from_the_others() {
    let namespace = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
    let own = std::process::id();
    let names: Vec<_> =
        (own..own + 400).filter_map(|pid| take_name(&format!("gossamer-machine-{namespace}-{pid}"))).collect();
    assert!(!names.is_empty());
    let all = end(Meeting::new().start(3, &["starter"]));
    assert!(all[0].stdout.starts_with("3 machines, "), "{all:#?}");
    assert!(all.iter().all(|ended| ended.status.success()), "{all:#?}");
}

#[test]
fn what_a_machine_starts_with_other_variables_is_no_less_a_machine() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let all = end(Meeting::new().start(2, &["starts-others", &port.to_string()]));
    let wanted = format!("2 machines, started by a rendezvous at 127.0.0.1:{port}: here shm\n");
    assert_eq!(all[0].stdout, wanted, "{all:#?}");
}

/// The same command with a limit of open files.
fn with_files(limit: u32, bare: &Command) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {limit} && exec \"$@\""), "sh"]);
    command.arg(bare.get_program()).args(bare.get_args());
    command.envs(bare.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// The first that it cannot open is a pipe for signals, the key, a connection, or the memory.
#[test]
fn a_machine_with_too_many_open_files_names_the_limit() {
    for few in [0, 1] {
        for limit in [8, 12, 13, 14, 16, 18] {
            let meeting = Meeting::new();
            let [one, other] = [few, 1 - few].map(|index| {
                let mut command = meeting.command(index, 2, ROLES, &["starter"]);
                // A name is looked up, in files.
                command.env("GOSSAMER_MEET", format!("localhost:{}", meeting.port));
                command
            });
            let (one, _other) = (ChildProcess::start(with_files(limit, &one)), ChildProcess::start(other));
            one.stderr.line("Too many open files (os error 24)");
            one.stderr.line("`ulimit -n`");
        }
    }
}

/// Its limit of open files is too small for the memory of all machines.
#[test]
fn a_machine_0_that_cannot_make_the_memory_ends_all_with_the_reason() {
    const COUNT: u16 = 12;
    let meeting = Meeting::new();
    let mut all = vec![ChildProcess::start(with_files(48, &meeting.command(0, COUNT, ROLES, &["starter"])))];
    all.extend((1..COUNT).map(|index| ChildProcess::start(meeting.command(index, COUNT, ROLES, &["starter"]))));
    let all = end(all);
    assert!(all.iter().all(|ended| ended.status.code() == Some(70)), "{all:#?}");
    assert!(all[0].stderr.contains("Too many open files"), "{:#?}", all[0]);
    let told = "the start was given up by machine 0";
    assert!(all[1..].iter().all(|ended| ended.stderr.contains(told)), "{:#?}", &all[..2]);
}
