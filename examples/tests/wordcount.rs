//! `wordcount` as a user runs it: over 1, 2 and 4 processes it finds the counts of a single thread, for any folder; and
//! when one process is killed, all end.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use graph::random::Random;
use serde_json::Value;
use tempfile::TempDir;

/// Output of a run.
struct Ran {
    status: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}\n--- stdout\n{}\n--- stderr\n{}", self.status, self.stdout, self.stderr)
    }
}

fn command(args: &[&str], folder: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wordcount"));
    command.arg("--all").args(args).arg(folder);
    command
}

fn run(mut command: Command) -> Ran {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A number of texts with frequent and rare words, and everything else that a folder may hold.
fn corpus() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir_all(root.join("deep/er")).unwrap();
    for file in 0..24_usize {
        let mut random = Random::new(1, file as u64);
        let mut word = || random.next_u64() as usize % (100 + 300 * (file % 6));
        let text: String = (0..1500 * (file % 5))
            .map(|place| format!("Wört{}{}", word(), if place % 11 == 0 { ".\n" } else { " " }))
            .collect();
        fs::write(root.join(["", "deep", "deep/er"][file % 3]).join(format!("text{file}")), text).unwrap();
    }
    fs::write(root.join("no-newline"), "don't STOP don't stop").unwrap();
    fs::write(root.join("latin1"), b"caf\xe9 d\xe9j\xe0 vu\n").unwrap();
    fs::write(root.join("long"), format!("one {} two", "z".repeat(300_000))).unwrap();
    fs::write(root.join("image"), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"bad\xffname")), "the name is no UTF-8").unwrap();
    symlink(root, root.join("deep/loop")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    UnixListener::bind(root.join("socket")).unwrap();
    folder
}

/// All words, and everything else that must not depend on how they were counted.
const SAME: [&str; 11] =
    ["top", "words", "distinct", "files", "bytes", "problems", "bad_bytes", "overlong", "no_texts", "links", "others"];

#[test]
fn counts_do_not_depend_on_processes_and_workers() {
    let folder = corpus();
    let single = run(command(&["--single", "--json", "--top", "1000000"], folder.path()));
    assert_eq!(single.status, 0, "{single}");
    let expected = single.json();
    let words = expected["words"].as_u64().unwrap();
    assert!(words > 60_000 && expected["top"].as_array().unwrap().len() > 1000, "{words} words");

    for (processes, workers) in [(1, 1), (1, 3), (2, 2), (2, 5), (4, 4)] {
        let (local, threads) = (processes.to_string(), workers.to_string());
        let args = ["--local", &local, "--threads", &threads, "--json", "--top", "1000000"];
        let ran = run(command(&args, folder.path()));
        assert_eq!(ran.status, 0, "{ran}");
        let found = ran.json();
        for what in SAME {
            assert!(found[what] == expected[what], "{what} over {args:?}: {ran}");
        }
        assert_eq!((found["machines"].as_u64(), found["workers"].as_u64()), (Some(processes), Some(workers)));
        let sent = |to: &str| found["delegations"][to].as_u64().unwrap();
        assert!(sent("local") + sent("remote") >= words, "each word is a delegation: {ran}");
        // Words are spread evenly, so of P processes P - 1 in P words go to another one.
        let share = sent("remote") as f64 / words as f64;
        let even = (processes - 1) as f64 / processes as f64;
        assert!((share - even).abs() < 0.15, "{share} of the words went to another process, over {processes}");
    }
}

#[test]
fn what_is_skipped_is_reported() {
    let folder = corpus();
    let ran = run(command(&["--verify"], folder.path()));
    assert_eq!(ran.status, 0, "{ran}");
    assert!(ran.stdout.contains("verified: equal"), "{ran}");
    for complaint in [
        "/latin1 3 bytes are not UTF-8 and were skipped\n",
        "/socket is a pipe, a socket or a device\n",
        "wordcount: 1 file has zero bytes in it, so it is no text\n",
        "wordcount: 2 symbolic links were not followed\n",
    ] {
        assert_eq!(ran.stderr.matches(complaint).count(), 1, "{complaint:?}: {ran}");
    }
    assert!(!ran.stderr.contains("bad"), "a file whose name is no UTF-8 can be read: {ran}");
}

#[test]
fn a_file_that_cannot_be_read_is_no_failure() {
    // Opens, but reading fails: also for root, which may read everything else.
    let ran = run(command(&["--local", "2"], "/proc/self/mem"));
    assert_eq!(ran.status, 0, "{ran}");
    assert!(ran.stderr.contains("/proc/self/mem cannot be read: "), "{ran}");
    assert!(ran.stdout.contains("0 words (0 different) in 0 files, 0 bytes"), "{ran}");
}

#[test]
fn without_arguments_it_counts_the_documentation_of_this_project() {
    let ran = run(Command::new(env!("CARGO_BIN_EXE_wordcount")));
    assert_eq!(ran.status, 0, "{ran}");
    let mut single = Command::new(env!("CARGO_BIN_EXE_wordcount"));
    single.arg("--single");
    let single = run(single);
    let words = |stdout: &str| stdout.split_once(" different) in ").map(|(words, _)| words.to_owned());
    assert!(words(&ran.stdout).is_some_and(|words| words.lines().count() > 1), "{ran}");
    assert_eq!(words(&ran.stdout), words(&single.stdout), "{ran}");
    assert!(ran.stdout.contains(", 2 processes with "), "{ran}");
    for no_word in ["svg", "fff", "min_ms"] {
        assert!(!ran.stdout.lines().any(|line| line.ends_with(&format!("  {no_word}"))), "{ran}");
    }
    let is_of_left_out = |line: &str| line.starts_with("wordcount: ") && line.contains("left out (--all counts every");
    assert!(ran.stderr.lines().all(is_of_left_out), "no progress bar without a terminal: {ran}");
}

#[test]
fn documents_are_counted_unless_more_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("a.md", "one"), ("b.txt", "two two"), ("c.svg", "three three three"), ("d", "four")] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let words = |args: &[&str], file: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wordcount"));
        command.args(["--json", "--verify"]).args(args).arg(folder.path().join(file));
        let ran = run(command);
        assert_eq!(ran.status, 0, "{ran}");
        (ran.json()["words"].as_u64().unwrap(), ran.json()["others"].as_u64().unwrap())
    };
    assert_eq!(words(&[], ""), (3, 2));
    assert_eq!(words(&["--only", "svg,md"], ""), (4, 2));
    assert_eq!(words(&["--all"], ""), (7, 0));
    assert_eq!(words(&[], "c.svg"), (3, 0), "a file that is named is counted");
}

#[test]
fn a_missing_folder_is_an_error_that_is_told_once() {
    for args in [&["--single"][..], &["--local", "1"], &["--local", "2"]] {
        let ran = run(command(args, "/no/such/folder"));
        assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{ran}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
        assert!(ran.stderr.starts_with("wordcount: /no/such/folder: No such file"), "{ran}");
    }
}

#[test]
fn an_empty_folder_has_no_words() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(command(&["--verify"], folder.path()));
    assert_eq!(ran.status, 0, "{ran}");
    assert!(ran.stdout.starts_with("0 words (0 different) in 0 files"), "{ran}");
}

#[test]
fn processes_that_a_launcher_started_are_part_of_its_rack() {
    for args in [&["--local", "2"][..], &["--single"], &["--durable", "/"]] {
        let mut command = command(args, "/");
        command.env("GOSSAMER_LAUNCHER", "1:1");
        let ran = run(command);
        assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{ran}");
        assert!(ran.stderr.contains("leave out --local, --single and --durable"), "{ran}");
    }
}

#[test]
fn timed_when_one_process_is_killed_all_end_within_a_second() {
    let folder = endless();
    for (processes, victim) in [(2, 0), (2, 1), (4, 3)] {
        let mut command = command(&["--local", &processes.to_string()], folder.path());
        let mut launcher = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let machines = machines_at_work(&mut launcher, processes);
        let pid = machines[victim];
        assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
        let killed = Instant::now();
        let output = launcher.wait_with_output().unwrap();
        let took = killed.elapsed();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(took < limits::bound(Duration::from_secs(1)), "it took {took:?}: {stderr}");
        assert_eq!(output.status.code(), Some(128 + 9), "{stderr}");
        let named = format!("wordcount: machine {victim} (pid {pid}) was killed by signal 9 (SIGKILL)");
        assert!(stderr.contains(&named), "{stderr}");
        for pid in machines {
            assert!(!Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is still there: {stderr}");
        }
    }
}

/// More text than is read in a minute, in one file of 8 MiB under many names.
fn endless() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("0");
    fs::write(&first, "the same words again and again\n".repeat(8 << 15)).unwrap();
    for name in 1..500 {
        fs::hard_link(&first, folder.path().join(name.to_string())).unwrap();
    }
    folder
}

/// The process ids of all machines, in their order, once each has its first worker.
fn machines_at_work(launcher: &mut Child, machines: usize) -> Vec<u32> {
    let begun = Instant::now();
    let children = format!("/proc/{0}/task/{0}/children", launcher.id());
    loop {
        let pids: Vec<u32> = fs::read_to_string(&children)
            .map(|pids| pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect())
            .unwrap_or_default();
        if pids.len() == machines && (0..).zip(&pids).all(|(machine, pid)| has_worker(*pid, machine)) {
            return pids;
        }
        assert_eq!(launcher.try_wait().unwrap(), None, "it ended too early");
        assert!(begun.elapsed() < limits::HANG, "{pids:?} are not at work");
        std::thread::yield_now();
    }
}

/// Workers are named after their machine.
fn has_worker(pid: u32, machine: usize) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.any(|name| name.trim() == format!("m{machine}-0"))
}
