//! Starts `gossamer-launch` with this binary as the program, and observes it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use processes::{ChildProcess, Ended};

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

/// Lines of the launcher about its program.
pub trait Complaints {
    /// Returns the launcher's own lines.
    fn complaints(&self) -> Vec<&str>;
    fn assert(&self, code: i32, complaint: Option<&str>);
    /// Same as `assert`, for one complaint among others that has these words.
    fn complains(&self, code: i32, words: &str);
}

impl Complaints for Ended {
    fn complaints(&self) -> Vec<&str> {
        self.stderr.lines().filter_map(|line| line.strip_prefix("gossamer-launch: ")).collect()
    }

    #[track_caller]
    fn assert(&self, code: i32, complaint: Option<&str>) {
        assert_eq!((self.code(), self.complaints()), (Some(code), complaint.into_iter().collect()), "{self}");
    }

    #[track_caller]
    fn complains(&self, code: i32, words: &str) {
        assert!(self.code() == Some(code) && self.stderr.contains(words), "{words}? {self}");
    }
}

/// Lines of machines on the launcher's output.
pub trait Machines {
    /// Returns the process ids of the machines that are ready.
    fn pids(&self) -> BTreeMap<u16, u32>;
    /// Waits until this many machines are ready; returns their process ids.
    fn ready(&self, machines: u16) -> BTreeMap<u16, u32>;
    /// Waits until these words were printed this many times.
    fn printed(&self, words: &str, times: usize);
}

impl Machines for ChildProcess {
    fn pids(&self) -> BTreeMap<u16, u32> {
        self.stdout.text().lines().filter_map(parse_pid).collect()
    }

    #[track_caller]
    fn ready(&self, machines: u16) -> BTreeMap<u16, u32> {
        self.stdout.find("pid … of each machine", |text| {
            let pids: BTreeMap<u16, u32> = text.lines().filter_map(parse_pid).collect();
            (pids.len() == usize::from(machines)).then_some(pids)
        })
    }

    #[track_caller]
    fn printed(&self, words: &str, times: usize) {
        self.stdout.find(words, |text| (text.matches(words).count() == times).then_some(()))
    }
}

/// Starts `role` on this many machines.
pub fn launch(machines: u16, role: &[&str]) -> ChildProcess {
    start(command(machines, &[], role))
}

#[track_caller]
pub fn start(command: Command) -> ChildProcess {
    ChildProcess::start_with_input(command)
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: Command) -> Ended {
    start(command).end()
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
