//! A machine that crashes while core dumps are allowed does not take the host's memory with it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use processes::{ChildProcess, run};

use crate::rig::{Meeting, ROLES, end};

/// Most bytes of a dump of a program with some megabytes of data; its address space has many times the host's memory.
const CORE_BYTES_MAX: u64 = 256 << 20;

#[test]
fn memory_that_is_reserved_is_not_dumped_and_stacks_are() {
    for fabric in ["shm", "tcp"] {
        let all = end(Meeting::new().start_with(2, &["reserved"], &[("GOSSAMER_FABRIC", fabric)]));
        assert_eq!(all[0].stdout, "stacks only\n", "{fabric}: {all:#?}");
    }
}

#[test]
fn nor_where_a_program_is_one_process() {
    let mut command = Command::new(ROLES);
    command.arg("reserved").env("GOSSAMER_START", "alone");
    let ended = run(command);
    assert_eq!(ended.stdout, "stacks only\n", "{ended:#?}");
}

#[test]
fn a_core_dump_has_the_size_of_what_was_used() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.trim().is_empty() || pattern.contains(['|', '/', '%', '@']) {
        eprintln!("SKIPPED: core dumps do not become files here (kernel.core_pattern is {:?})", pattern.trim());
        return;
    }
    let meeting = Meeting::new();
    let start = |index| {
        let bare = meeting.command(index, 2, ROLES, &["reserved", "abort"]);
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -c unlimited && exec \"$@\"", "sh"]).arg(bare.get_program()).args(bare.get_args());
        command.envs(bare.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(meeting.folder());
        ChildProcess::start(command)
    };
    let all = end(vec![start(0), start(1)]);
    if all[1].stderr.contains("ulimit") {
        eprintln!("SKIPPED: core dumps are not allowed here: {}", all[1].stderr.trim());
        return;
    }
    let is_core = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"core"));
    let cores: Vec<PathBuf> = fs::read_dir(meeting.folder()).unwrap().map(|file| file.unwrap().path()).collect();
    let cores: Vec<u64> = cores.iter().filter(|path| is_core(path)).map(length).collect();
    assert!(!cores.is_empty() && cores.iter().all(|bytes| *bytes < CORE_BYTES_MAX), "{cores:?}: {all:#?}");
}

/// Returns the length with holes: a program that takes the dumps receives them as zeros.
fn length(path: &PathBuf) -> u64 {
    fs::metadata(path).unwrap().size()
}
