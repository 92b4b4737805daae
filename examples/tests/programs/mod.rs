//! Programs as a user runs them, for the tests beside this folder.

use std::process::{Command, Stdio};

use serde_json::Value;

/// How a run ended.
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a program to its end.
pub fn run(program: &str, args: &[&str]) -> Ran {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The report of a run that must end well, verified.
pub fn report(program: &str, args: &[&str]) -> Value {
    let ran = run(program, &[args, &["--verify", "--json"]].concat());
    assert_eq!(ran.status, 0, "{args:?}\n{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(ran.stderr, "", "no progress bar without a terminal: {args:?}");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout));
    assert_eq!(report["verified"], true);
    report
}

/// Arguments for one process and several.
pub const RACKS: [&[&str]; 5] = [
    &["--threads", "1"],
    &["--threads", "3"],
    &["--local", "2", "--threads", "2", "--fabric", "shm"],
    &["--local", "2", "--threads", "2", "--fabric", "tcp"],
    &["--local", "3", "--threads", "5"],
];
