//! Starts processes that meet by themselves, each with its variables, on the loopback network.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use comm::secure::Key;

pub const ROLES: &str = env!("CARGO_BIN_EXE_test-roles");
pub const LAUNCH: &str = env!("CARGO_BIN_EXE_test-launch");
pub const SUITE: &str = env!("CARGO_BIN_EXE_test-suite");

/// Far longer than anything here takes, so that a hang fails instead of hanging.
const DEADLINE: Duration = limits::HANG;

/// A place to meet, and the key to it.
pub struct Meeting {
    pub port: u16,
    folder: tempfile::TempDir,
}

impl Meeting {
    pub fn new() -> Meeting {
        // Free now; nobody else asks for this very port before machine 0 does.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        Key::generate().unwrap().write_new(&folder.path().join("key")).unwrap();
        Meeting { port, folder }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// Process number `index` of `count`.
    pub fn command(&self, index: u16, count: u16, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env("GOSSAMER_MEET", format!("127.0.0.1:{}", self.port));
        command.env("GOSSAMER_COUNT", count.to_string()).env("GOSSAMER_INDEX", index.to_string());
        command.env("GOSSAMER_KEY_FILE", self.key()).env("RUST_BACKTRACE", "0");
        command
    }

    /// Starts all of them, in this role.
    pub fn start(&self, count: u16, role: &[&str]) -> Vec<Process> {
        self.start_with(count, role, &[])
    }

    pub fn start_with(&self, count: u16, role: &[&str], variables: &[(&str, &str)]) -> Vec<Process> {
        let start = |index| {
            let mut command = self.command(index, count, ROLES, role);
            command.envs(variables.iter().copied());
            Process::start(command)
        };
        (0..count).map(start).collect()
    }
}

/// A process, killed on drop.
pub struct Process {
    child: Child,
    stderr: Option<JoinHandle<String>>,
    /// Its output so far.
    said: Arc<Mutex<String>>,
}

/// Status and output of an ended process.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Process {
    pub fn start(mut command: Command) -> Process {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::default();
        let stderr = Some(collect_into(child.stderr.take().unwrap(), Arc::clone(&said)));
        Process { child, stderr, said }
    }

    /// Waits for these words on its standard error; returns the rest of their line.
    pub fn wait_for(&self, words: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let said = self.said.lock().unwrap().clone();
            if let Some((line, _)) = said.split_once(words).and_then(|(_, rest)| rest.split_once('\n')) {
                return line.to_owned();
            }
            assert!(Instant::now() < deadline, "it has not said {words:?}: {said}");
            std::thread::sleep(Duration::from_millis(5)); // between checks
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Reads its standard output up to this line.
    pub fn read_until(&mut self, line: &str) {
        let stdout = self.child.stdout.as_mut().unwrap();
        let (mut text, mut byte) = (Vec::new(), [0]);
        while !text.ends_with(format!("{line}\n").as_bytes()) {
            assert_eq!(stdout.read(&mut byte).unwrap(), 1, "it ended without {line:?}");
            text.push(byte[0]);
        }
    }

    pub fn end(mut self) -> Ended {
        let stdout = collect(self.child.stdout.take().unwrap());
        let deadline = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it has not ended within {DEADLINE:?}");
            std::thread::sleep(Duration::from_millis(2)); // between checks
        };
        Ended { status, stdout: stdout.join().unwrap(), stderr: self.stderr.take().unwrap().join().unwrap() }
    }
}

impl Drop for Process {
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

/// The same, with the text so far visible in `said`.
fn collect_into(mut stream: impl Read + Send + 'static, said: Arc<Mutex<String>>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => return said.lock().unwrap().clone(),
                count => said.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count])),
            }
        }
    })
}

/// Waits for all of them.
pub fn end(all: Vec<Process>) -> Vec<Ended> {
    all.into_iter().map(Process::end).collect()
}
