//! Starts `gossamer-launch` with this binary as the program, and observes it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use limits::HANG;
use rustix::process::{Pid, Signal, kill_process};

/// Polls until the condition holds; panics where it hangs.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < HANG, "waited {HANG:?} for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the launcher with its arguments: `options` are its own, then this binary in `role`.
pub fn command(machines: u16, options: &[&str], role: &[&str]) -> Command {
    let mut command = launcher();
    command.args(["run", "--local", &machines.to_string()]).args(options);
    command.arg(this_program()).arg("machine").args(role);
    command
}

pub fn launcher() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gossamer-launch"));
    command.stdin(Stdio::null()).env("RUST_BACKTRACE", "0");
    command
}

pub fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// A running launcher; killed when dropped.
pub struct Launch {
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

type Lines = Arc<Mutex<(Vec<String>, bool)>>; // and whether the stream has ended

/// Status and output of an ended launcher.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<String>,
    pub stderr: Vec<String>,
}

impl Ended {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Returns the launcher's own lines.
    pub fn complaints(&self) -> Vec<&str> {
        self.stderr.iter().filter_map(|line| line.strip_prefix("gossamer-launch: ")).collect()
    }

    #[track_caller]
    pub fn assert(&self, code: i32, complaint: Option<&str>) {
        assert_eq!((self.code(), self.complaints()), (Some(code), complaint.into_iter().collect()), "{self}");
    }

    /// Same as `assert`, for one complaint among others that has these words.
    #[track_caller]
    pub fn complains(&self, code: i32, words: &str) {
        assert!(self.code() == Some(code) && self.stderr.iter().any(|line| line.contains(words)), "{words}? {self}");
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\nstdout: {:#?}\nstderr: {:#?}", self.status, self.stdout, self.stderr)
    }
}

/// Starts `role` on this many machines.
pub fn launch(machines: u16, role: &[&str]) -> Launch {
    start(command(machines, &[], role))
}

pub fn start(mut command: Command) -> Launch {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = collect(child.stdout.take().unwrap());
    let stderr = collect(child.stderr.take().unwrap());
    Launch { child, stdout, stderr }
}

/// Runs a command to its end.
pub fn run(command: Command) -> Ended {
    start(command).end()
}

fn collect(stream: impl Read + Send + 'static) -> Lines {
    let lines = Lines::default();
    let collected = Arc::clone(&lines);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            collected.lock().unwrap().0.push(line.unwrap());
        }
        collected.lock().unwrap().1 = true;
    });
    lines
}

impl Launch {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether a line of stderr has these words.
    pub fn has_complained(&self, words: &str) -> bool {
        self.stderr.lock().unwrap().0.iter().any(|line| line.contains(words))
    }

    /// Returns the text after these words on the launcher's standard error.
    pub fn complaint(&self, words: &str) -> String {
        let lines = self.stderr.lock().unwrap();
        lines.0.iter().find_map(|line| line.split_once(words)).map(|(_, rest)| rest.to_owned()).unwrap_or_default()
    }

    /// Returns whether this many machines are ready.
    pub fn is_ready(&self, machines: u16) -> bool {
        self.stdout.lock().unwrap().0.iter().filter_map(|line| parse_pid(line)).count() == usize::from(machines)
    }

    /// Returns the number of lines of stdout with these words.
    pub fn has_printed(&self, words: &str) -> usize {
        self.stdout.lock().unwrap().0.iter().filter(|line| line.contains(words)).count()
    }

    /// Waits until this many machines are ready; returns their process ids.
    pub fn ready(&self, machines: u16) -> BTreeMap<u16, u32> {
        let mut pids = BTreeMap::new();
        until("machines to be ready", || {
            pids = self.stdout.lock().unwrap().0.iter().filter_map(|line| parse_pid(line)).collect();
            pids.len() == usize::from(machines)
        });
        pids
    }

    /// Waits until the launcher and its streams have ended.
    pub fn end(mut self) -> Ended {
        let mut status = None;
        until("the launcher to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        until("its streams to end", || self.stdout.lock().unwrap().1 && self.stderr.lock().unwrap().1);
        let take = |lines: &Lines| std::mem::take(&mut lines.lock().unwrap().0);
        Ended { status: status.unwrap(), stdout: take(&self.stdout), stderr: take(&self.stderr) }
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        let _ = self.child.kill(); // mostly it has ended already
        let _ = self.child.wait();
    }
}

/// Reads `m1 | pid 123`, `m1@beta | pid 123`, or `pid 123` of a single machine.
pub fn parse_pid(line: &str) -> Option<(u16, u32)> {
    let (machine, text) = match line.split_once(" | ") {
        Some((name, text)) => {
            let number = name.trim_end().strip_prefix('m')?;
            (number.split('@').next()?.parse().ok()?, text)
        }
        None => (0, line),
    };
    Some((machine, text.strip_prefix("pid ")?.parse().ok()?))
}

pub fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// Returns whether a process is gone; a dead one that its parent has not collected counts as gone.
pub fn gone(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

/// Waits until all are gone; returns the time that took.
pub fn until_gone(pids: impl IntoIterator<Item = u32>) -> Duration {
    let pids: Vec<u32> = pids.into_iter().collect();
    let start = Instant::now();
    until("processes to be gone", || pids.iter().all(|pid| gone(*pid)));
    start.elapsed()
}

/// Returns the targets of this process's inheritable descriptors, without the standard streams.
pub fn inheritable() -> Vec<String> {
    let folder = |name| std::fs::read_dir(format!("/proc/self/{name}")).unwrap().map(|entry| entry.unwrap());
    let number = |entry: &std::fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
    let mut found = Vec::new();
    for fd in folder("fdinfo").filter_map(|entry| number(&entry)).filter(|fd| *fd > 2) {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
        let close_on_exec = flags.is_none_or(|flags| flags & 0o2000000 != 0);
        if let (false, Ok(target)) = (close_on_exec, std::fs::read_link(format!("/proc/self/fd/{fd}"))) {
            found.push(target.to_string_lossy().into_owned());
        }
    }
    found
}
