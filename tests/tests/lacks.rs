//! Parts of RDMA that a host may lack, and the messages for the user, by a stub of libibverbs (`tests/verbs-stub`) with
//! a device with the same lack: the rows of docs/rdma.md that no virtual machine shows.
//!
//! Here: whole programs over `verbs`, on any Linux host. Not here: real queue pairs (`cargo dev rdma`).

use std::path::PathBuf;
use std::process::{Command, Output};

/// Runs two machines over `verbs`, with settings for the stub, or without a stub.
fn run(stub: &[(&str, &str)], has_stub: bool, arguments: &[&str]) -> Output {
    let empty = tempfile::tempdir().unwrap();
    let folder = if has_stub { gossamer_tests::stub::folder().unwrap() } else { empty.path().to_owned() };
    let mut command = Command::new("timeout");
    command.arg("300").arg(env!("CARGO_BIN_EXE_test-launch")).args(["run", "--local", "2", "--threads", "4"]);
    command.args(arguments).arg(env!("CARGO_BIN_EXE_test-roles")).arg("places");
    command.env("LD_LIBRARY_PATH", folder).envs(stub.iter().copied()).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_lack_is_told_with_its_cure() {
    for (name, value, expected) in [
        ("VERBS_STUB_DEVICES", "0", "this host has no RDMA device (for tests on plain Ethernet: `modprobe rdma_rxe"),
        ("VERBS_STUB_STATE", "1", "stub0 port 1: InfiniBand, down, MTU 4096; not usable: the port is down"),
        ("VERBS_STUB_LOCKABLE", "4096", "bytes cannot be registered with the RDMA device"),
        ("VERBS_STUB_COMPLETIONS", "100", "stub0 has 100: lower queue_depth, or use fewer workers"),
        ("VERBS_STUB_QUEUE_PAIRS", "4", "5 queue pairs are needed, stub0 has 4: use fewer workers"),
    ] {
        let output = run(&[(name, value)], true, &["--fabric", "verbs"]);
        assert!(!output.status.success(), "{name}: {}", said(&output));
        assert!(said(&output).contains(expected), "{name}: {}", said(&output));
    }
}

#[test]
fn without_the_library_the_packages_are_named() {
    let is_there = ["/lib", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]
        .iter()
        .any(|folder| PathBuf::from(folder).join("libibverbs.so.1").exists());
    if is_there {
        println!("SKIPPED: libibverbs is installed here");
        return;
    }
    let output = run(&[], false, &["--fabric", "verbs"]);
    assert!(!output.status.success());
    let expected = "install rdma-core's library, on Debian the packages libibverbs1 and ibverbs-providers";
    assert!(said(&output).contains(expected), "{}", said(&output));
}

/// All threads of two machines with ways share one queue pair, and there is one for heartbeats.
#[test]
fn machine_ways_need_two_queue_pairs_to_each_machine() {
    let limit = [("VERBS_STUB_QUEUE_PAIRS", "2")];
    let output = run(&limit, true, &["--fabric", "verbs", "--machine-ways", "on"]);
    assert!(output.status.success() && said(&output).contains("by verbs"), "{}", said(&output));
    let output = run(&limit, true, &["--fabric", "verbs", "--machine-ways", "off"]);
    assert!(said(&output).contains("5 queue pairs are needed, stub0 has 2: use fewer workers"), "{}", said(&output));
}

#[test]
fn with_a_good_device_the_program_runs_by_verbs() {
    for in_order in ["0", "1"] {
        let output = run(&[("VERBS_STUB_IN_ORDER", in_order)], true, &["--fabric", "verbs"]);
        assert!(output.status.success() && said(&output).contains("by verbs"), "{}", said(&output));
    }
}
