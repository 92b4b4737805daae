//! `--help` and `-h` of both programs and of each of their commands: they print help, and do nothing else.

use std::process::Command;

use crate::hosts::DAEMON;
use crate::rig::{Complaints, launcher, run};

crate::tests![each_command_has_help_and_runs_nothing, a_program_has_its_own_help];

/// Returns the commands that a help lists.
fn commands(help: &str) -> Vec<String> {
    let listed = help.split("Commands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
    let name = |line: &str| {
        let rest = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?;
        rest.split(' ').next().map(str::to_owned)
    };
    listed.lines().filter_map(name).collect()
}

/// Checks the help of these words, and of all commands below them; returns how many were checked.
fn check(folder: &std::path::Path, words: &[String]) -> usize {
    let help = |option: &str| {
        let mut command = launcher();
        command.args(words).arg(option).current_dir(folder).env_remove("GOSSAMER_RACK");
        let ended = run(command);
        ended.assert(0, None);
        assert!(ended.stdout.contains("Usage: gossamer-launch") && ended.stderr.is_empty(), "{words:?}: {ended}");
        ended.stdout
    };
    help("-h");
    let below = commands(&help("--help"));
    let deeper = below.into_iter().filter(|name| name != "help").map(|name| [words, &[name]].concat());
    1 + deeper.map(|words| check(folder, &words)).sum::<usize>()
}

fn each_command_has_help_and_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let commands = check(folder.path(), &[]);
    assert!(commands >= 18, "{commands}: itself, 15 commands, and the two of `key`");
    for words in [&["--help"][..], &["-h"], &["part", "--help"]] {
        let mut daemon = Command::new(DAEMON);
        daemon.args(words).current_dir(folder.path()).env_remove("GOSSAMER_RACK").stdin(std::process::Stdio::null());
        let ended = run(daemon);
        assert!(ended.code() == Some(0) && ended.stdout.contains("Usage: gossamer-daemon"), "{words:?}: {ended}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "`keygen` has written no file");
}

/// Options before the program's name are the launcher's, those after it the program's.
fn a_program_has_its_own_help() {
    let none: &[&str] = &[];
    for (before, after, words) in
        [(&["--help"][..], none, "Usage: gossamer-launch run"), (none, &["--help"], "the program got --help\n")]
    {
        let mut command = launcher();
        command.args(["run", "--local", "1"]).args(before);
        command.args(["sh", "-c", "echo the program got $1", "sh"]).args(after);
        let ended = run(command);
        ended.assert(0, None);
        let is_run = ended.stdout.contains("the program got");
        assert!(ended.stdout.contains(words) && is_run != before.contains(&"--help"), "{ended}");
    }
}
