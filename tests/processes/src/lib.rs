//! Child processes of tests: start, output while they run, signals, end. A wait that lasts longer than [`limits::HANG`]
//! panics with the output so far.
//!
//! Here: [`ChildProcess`], [`Ended`], and a test as the program of a child process ([`in_role`]); in `output` what a
//! process has written, in `pidfds` processes by their ids. Not here: arguments and messages of programs under test.

mod output;
mod pidfds;

use std::fmt;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use limits::HANG;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

pub use output::OutputStream;
pub use pidfds::{Pidfds, is_gone, send_signal, wait_until_gone};

/// Variable with the role of a child process that runs a test of this program.
const ROLE: &str = "GOSSAMER_TEST_ROLE";

/// Returns the command that runs one test of this program, alone and in a role, in a process of its own.
#[must_use]
pub fn in_role(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(ROLE, role);
    command
}

/// Returns the role of this process, if [`in_role`] has made its command.
#[must_use]
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Copies a program that is to be started. Another process does it: a descriptor that can write, inherited by what
/// another thread starts at this moment, would have the start fail with "text file busy".
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").args([from.as_ref(), to.as_ref()]).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
}

/// A child process; killed on drop. Its outputs are collected if they are pipes.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    pidfd: OwnedFd,
    /// Its standard output.
    pub stdout: OutputStream,
    /// Its standard error.
    pub stderr: OutputStream,
    limit: Duration,
}

impl From<Child> for ChildProcess {
    fn from(mut child: Child) -> ChildProcess {
        let [stdout, stderr] = output::collect(child.stdout.take(), child.stderr.take(), HANG);
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        ChildProcess { child, pidfd, stdout, stderr, limit: HANG }
    }
}

impl ChildProcess {
    /// Starts a program without input.
    #[track_caller]
    pub fn start(mut command: Command) -> ChildProcess {
        command.stdin(Stdio::null()).env("RUST_BACKTRACE", "0");
        ChildProcess::start_with_input(command)
    }

    /// Starts a program with the input that its command has.
    #[track_caller]
    pub fn start_with_input(mut command: Command) -> ChildProcess {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        child.unwrap_or_else(|error| panic!("{command:?}: {error}")).into()
    }

    /// Returns its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its own child processes; those of one thread in the order of their start.
    #[must_use]
    pub fn children(&self) -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).into_iter().flatten().flatten();
        let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        children.flat_map(|pids| pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect()
    }

    /// Writes all of its input.
    #[track_caller]
    pub fn write(&mut self, input: &str) {
        self.child.stdin.take().expect("a pipe that nothing was written to").write_all(input.as_bytes()).unwrap();
    }

    /// Sends it a signal; it may have ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        pidfds::delivered(signal, self.id(), pidfd_send_signal(&self.pidfd, signal));
    }

    /// Returns its status if it has ended.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end; processes that it has started may go on.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        let has_ended = pidfds::has_ended_within(&self.pidfd, self.limit);
        assert!(has_ended, "process {} has not ended after {:?}\n{}", self.id(), self.limit, self.stdout.both());
        self.child.wait().unwrap()
    }

    /// Waits for its end, and that of its outputs.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        Ended { status: self.wait(), stdout: self.stdout.whole(), stderr: self.stderr.whole() }
    }

    /// Waits for the end of a test that passes: see [`in_role`].
    #[track_caller]
    pub fn passes(self) {
        let ended = self.end();
        assert!(ended.status.success() && ended.stdout.contains("1 passed"), "{ended}");
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // It has ended already, or the test has failed, or it is a server.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status and output of a process that has ended.
pub struct Ended {
    /// Its exit status, or the signal that has ended it.
    pub status: ExitStatus,
    /// Its whole standard output, with replacements for bytes that are no text.
    pub stdout: String,
    /// Its whole standard error.
    pub stderr: String,
}

impl Ended {
    /// Returns the exit status, if no signal has ended it.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n--- stdout\n{}\n--- stderr\n{}", self.status, self.stdout, self.stderr)
    }
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f) // lines as they are, in lists too
    }
}

/// Runs a program without input to its end.
#[track_caller]
pub fn run(command: Command) -> Ended {
    ChildProcess::start(command).end()
}

#[cfg(test)]
mod tests;
