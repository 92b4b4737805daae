//! Unwritable output: reported with its cause, and never status 0.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use processes::{ChildProcess, Ended};

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, Machines, command, launcher, run};

crate::tests![
    a_full_device_is_named_by_the_launcher_of_machines,
    much_output_ends_with_its_own_cause,
    a_full_standard_error_is_no_success,
    a_full_device_is_named_on_a_rack_too,
    every_subcommand_says_that_it_could_not_write,
    help_that_cannot_be_written_is_no_success,
    a_closed_pipe_ends_quietly,
    the_end_of_output_may_be_what_fails,
];

const NO_SPACE: &str = "cannot write to standard output: No space left on device";

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// Runs a command with `/dev/full` as standard output.
fn into_full(command: Command) -> Ended {
    with_stdout(command, full().into())
}

fn with_stdout(mut command: Command, stdout: Stdio) -> Ended {
    ChildProcess::from(command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap()).end()
}

/// Returns a pipe without a reader.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn a_full_device_is_named_by_the_launcher_of_machines() {
    for (machines, role, status) in [(2, &["end"][..], 70), (3, &["end", "7"], 7)] {
        let ended = into_full(command(machines, &[], role));
        // A program that had finished before the failure was noticed keeps its status, if that is a failure too.
        assert!(ended.code() == Some(status) || ended.code() == Some(70), "{ended}");
        assert!(ended.stderr.contains(&format!("gossamer-launch: {NO_SPACE}")), "{ended}");
        assert!(ended.stderr.contains("output of the program is lost"), "{ended}");
    }
}

/// The machine would write for ever, and gets a broken pipe: that is not the cause.
fn much_output_ends_with_its_own_cause() {
    for role in [&["flood"][..], &["lines", "200000"]] {
        let ended = into_full(command(2, &[], role));
        assert_eq!(ended.code(), Some(70), "{ended}");
        let own: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("gossamer-launch: ")).collect();
        assert!(own.len() == 1 && own[0].contains(NO_SPACE), "{own:?}");
    }
}

fn a_full_standard_error_is_no_success() {
    let rack = Rack::start(2, LENIENT_MS, "");
    for mut command in [command(2, &[], &["lines", "100"]), rack.command(&[], &["lines", "100"])] {
        let status = command.stdout(Stdio::null()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(70));
    }
}

fn a_full_device_is_named_on_a_rack_too() {
    let rack = Rack::start(2, LENIENT_MS, "");
    for (options, role) in [(&[][..], "end"), (&[], "flood"), (&["--hosts", "b"], "flood")] {
        let ended = into_full(rack.command(options, &[role]));
        assert_eq!(ended.code(), Some(70), "{role}: {ended}");
        assert!(ended.stderr.contains(&format!("gossamer-launch: {NO_SPACE}")), "{role}: {ended}");
    }
    rack.until_idle();
}

fn every_subcommand_says_that_it_could_not_write() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let running = rack.launch(&["wait"]);
    running.ready(2);
    let id = rack.json("ps")["programs"][0]["id"].as_str().unwrap().to_owned();
    let say = |words: &[&str]| {
        let mut launcher = rack.launcher(words[0]);
        launcher.args(&words[1..]);
        launcher
    };
    let mut keygen = launcher();
    keygen.arg("keygen").arg(rack.folder.path().join("another.key"));
    let mut commands = vec![keygen];
    for words in [&["ps"][..], &["status"], &["check"], &["logs"], &["kill", &id]] {
        commands.push(say(words));
        commands.push(say(&[words, &["--json"]].concat()));
    }
    for command in commands {
        let words = format!("{command:?}");
        let ended = into_full(command);
        assert_eq!(ended.code(), Some(70), "{words}: {ended}");
        assert!(ended.stderr.contains(&format!("gossamer-launch: {NO_SPACE}")), "{words}: {ended}");
    }
    running.end();
    for words in [&["ps"][..], &["ps", "--json"], &["logs"]] {
        let ended = with_stdout(say(words), closed());
        assert_eq!((ended.code(), ended.stderr.as_str()), (Some(141), ""), "{words:?}");
    }
}

fn help_that_cannot_be_written_is_no_success() {
    for words in [&["--help"][..], &["run", "--help"], &["help", "ps"], &["--version"]] {
        let say = || {
            let mut launcher = launcher();
            launcher.args(words);
            launcher
        };
        let ended = into_full(say());
        assert!(ended.code() == Some(70) && ended.stderr.contains(NO_SPACE), "{words:?}: {ended}");
        let ended = with_stdout(say(), closed());
        assert_eq!((ended.code(), ended.stderr.as_str()), (Some(141), ""), "{words:?}");
        run(say()).assert(0, None);
    }
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_gossamer-daemon"));
    daemon.arg("--help");
    let ended = into_full(daemon);
    assert!(ended.code() == Some(70) && ended.stderr.contains(&format!("gossamer-daemon: {NO_SPACE}")), "{ended}");
}

/// Reads the first line of a launcher's output, then closes the pipe.
fn head(mut command: Command) -> (Option<i32>, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap(); // and closes it
    let ended = ChildProcess::from(child).end();
    (ended.code(), ended.stderr)
}

/// As with `yes | head -1`: SIGPIPE ends the machines, without any message.
fn a_closed_pipe_ends_quietly() {
    let rack = Rack::start(2, LENIENT_MS, "");
    let local = |machines: &str| {
        let mut launcher = launcher();
        launcher.args(["run", "--local", machines, "yes"]);
        launcher
    };
    let on_rack = |options: &[&str]| {
        let mut launcher = rack.launcher("run");
        launcher.args(options).arg("yes");
        launcher
    };
    for command in [local("1"), local("2"), on_rack(&[]), on_rack(&["--hosts", "b"])] {
        let words = format!("{command:?}");
        assert_eq!(head(command), (Some(141), String::new()), "{words}");
    }
    rack.until_idle();
}

/// The last line is written when all machines have gone; a limit on the file's length lets the first part of it
/// through.
fn the_end_of_output_may_be_what_fails() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$@\" > \"$0\"";
    let mut limited = Command::new("sh");
    let launcher = command(2, &["--no-prefix"], &["lines", "100"]);
    limited.arg("-c").arg(script).arg(folder.path().join("out"));
    limited.arg(launcher.get_program()).args(launcher.get_args()).stdin(Stdio::null());
    let ended = run(limited);
    assert_eq!(ended.code(), Some(70), "{ended}");
    let words = "cannot write to standard output: File too large";
    assert!(ended.complaints().iter().any(|line| line.contains(words) && line.contains("ulimit -f")), "{ended}");
}
