//! Runs `test-roles` alone or as machines of a program, and collects its output.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

pub const LAUNCH: &str = env!("CARGO_BIN_EXE_test-launch");
pub const ROLES: &str = env!("CARGO_BIN_EXE_test-roles");
/// The behavioural suite.
pub const SUITE: &str = env!("CARGO_BIN_EXE_test-suite");
pub const STRANGER: &str = env!("CARGO_BIN_EXE_test-stranger");

/// Far longer than anything here takes, so that a hang fails instead of hanging.
const DEADLINE: Duration = limits::HANG;

/// A running program; the launcher ends its machines when it is killed, and it is killed on drop.
pub struct Running {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

/// Status and output of an ended program.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Returns the launcher with this many machines of a program.
pub fn launcher(machines: u16, options: &[&str], program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(LAUNCH);
    command.args(["run", "--local", &machines.to_string()]).args(options).arg(program).args(args);
    command
}

/// Returns the command for `test-roles` in a role: as this many machines, or (0) by itself.
pub fn role(machines: u16, role: &str) -> Command {
    if machines == 0 {
        let mut command = Command::new(ROLES);
        command.arg(role);
        return command;
    }
    launcher(machines, &[], ROLES, &[role])
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        command.env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = Some(collect(child.stderr.take().unwrap()));
        Running { child, stdout: None, stderr }
    }

    /// Reads the standard output up to a line that ends with this text; returns all of it.
    pub fn read_until(&mut self, end: &str) -> String {
        let mut stdout = self.child.stdout.take().unwrap();
        let mut text = Vec::new();
        let mut byte = [0];
        while !text.ends_with(format!("{end}\n").as_bytes()) {
            assert_eq!(stdout.read(&mut byte).unwrap(), 1, "it ended without {end:?}");
            text.push(byte[0]);
        }
        self.child.stdout = Some(stdout);
        String::from_utf8(text).unwrap()
    }

    /// Returns the processes of this many machines, in the order of their start, once they are there.
    pub fn children(&mut self, machines: usize) -> Vec<i32> {
        let id = self.child.id();
        let deadline = Instant::now() + DEADLINE;
        loop {
            let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
            let children: Vec<i32> = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
            if children.len() == machines {
                return children;
            }
            assert!(Instant::now() < deadline, "{} of {machines} machines after {DEADLINE:?}", children.len());
            std::thread::yield_now();
        }
    }

    pub fn end(mut self) -> Ended {
        let stdout = self.child.stdout.take().map(collect);
        self.stdout = stdout;
        let pid = Pid::from_child(&self.child);
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it has not ended within {DEADLINE:?}");
            let mut polled = [PollFd::new(&process, PollFlags::IN)];
            if poll(&mut polled, Some(&left.try_into().unwrap())).is_ok_and(|ready| ready > 0) {
                break;
            }
        }
        let text = |stream: &mut Option<JoinHandle<String>>| stream.take().unwrap().join().unwrap();
        Ended { status: self.child.wait().unwrap(), stdout: text(&mut self.stdout), stderr: text(&mut self.stderr) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It is gone already, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        stream.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// Runs a command to its end.
pub fn run(command: Command) -> Ended {
    Running::start(command).end()
}

/// Tested transports between machines: number of machines, and the launcher's options. `auto` is shared memory within,
/// and TCP between, two hosts that the launcher pretends to have.
pub const WAYS: [(u16, &[&str]); 5] = [
    (1, &[]),
    (2, &["--fabric", "shm"]),
    (4, &["--fabric", "shm"]),
    (3, &["--fabric", "tcp"]),
    (4, &["--fabric", "auto", "--pretend-hosts", "2"]),
];

/// Plays a role, which must succeed, alone and with all transports.
#[track_caller]
pub fn play(name: &str) -> Vec<Ended> {
    let mut all = vec![play_on(0, name)];
    for (machines, options) in WAYS {
        let ended = run(launcher(machines, options, ROLES, &[name]));
        assert!(ended.status.success(), "{name} on {machines} machines, {options:?}: {ended:#?}");
        all.push(ended);
    }
    all
}

#[track_caller]
pub fn play_on(machines: u16, name: &str) -> Ended {
    let ended = run(role(machines, name));
    assert!(ended.status.success(), "{name} on {machines} machines: {ended:#?}");
    ended
}

pub fn kill(pid: i32) {
    send(pid, Signal::KILL);
}

pub fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}
