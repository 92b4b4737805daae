//! Programs that lose a machine leave nothing in the process of their launcher, here the library in this one: no
//! descriptor, no child, no memory that grows, no file in `/dev/shm`. One test, for the launcher wants its signals.
//!
//! `GOSSAMER_LOSSES` is the number of programs, each with one loss.

use std::fs;

use gossamer::bootstrap::FabricChoice;
use gossamer_daemon::launch::{self, LaunchConfig};
use gossamer_daemon::options::RunOptions;

/// Programs, if the variable does not say how many.
const PROGRAMS: usize = 100;
/// Programs before the first look: buffers and the allocator have their size then.
const FIRST: usize = 10;
/// Most growth of the launcher's memory. A program that stayed would have its output, threads and plan in it.
const GROWTH_KIB: u64 = 4 << 10;

/// Everything that could be left behind.
#[derive(Debug, PartialEq)]
struct Left {
    descriptors: usize,
    threads: usize,
    children: String,
    shared_files: usize,
}

fn left() -> Left {
    let count = |folder: &str| fs::read_dir(folder).unwrap().count();
    let shared = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let process = std::process::id();
    Left {
        descriptors: count("/proc/self/fd"),
        threads: count("/proc/self/task"),
        children: fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap(),
        shared_files: shared.filter(|file| file.file_name().to_string_lossy().contains("gossamer")).count(),
    }
}

fn memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

#[test]
fn programs_that_lose_a_machine_leave_nothing_behind() {
    let programs = std::env::var("GOSSAMER_LOSSES").map_or(PROGRAMS, |count| count.parse().unwrap());
    let mut before = None;
    for number in 0..programs.max(FIRST + 1) {
        if number == FIRST {
            before = Some((left(), memory_kib()));
        }
        let options = RunOptions { fabric: Some(FabricChoice::Shm), ..RunOptions::default() };
        let program = env!("CARGO_BIN_EXE_test-roles").into();
        let config = LaunchConfig { options, ..LaunchConfig::new(program, vec!["loses-one".into()], 3) };
        let ended = launch::run(&config).unwrap();
        assert_eq!(ended.status(), 0, "{number}: {:?}", ended.messages());
    }
    let (before, memory) = before.unwrap();
    limits::wait_until("threads that end with their program", || left().threads <= before.threads);
    assert_eq!(left(), before);
    let grown = memory_kib().saturating_sub(memory);
    println!("{grown} KiB more after {programs} programs");
    assert!(grown < GROWTH_KIB, "{grown} KiB more after {programs} programs");
}
