//! One run of `test-suite` on one kind of rack, and what became of each behaviour.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;

/// How long one behaviour may take before it counts as hung. Each takes a second or two on an idle machine.
const TIME_LIMIT: Duration = Duration::from_secs(150);

/// The way whose processes are started by nobody of ours.
const PLAIN: &str = "plain3";

/// The way whose libibverbs is a stub.
const STUB: &str = "stub2";

/// Ways that other ways have most of: what is only repeated is repeated a tenth as often there.
const SMALL: [&str; 3] = ["auto3", PLAIN, STUB];

/// A kind of rack.
#[derive(Clone, Copy)]
pub struct Deployment {
    pub name: &'static str,
    /// 0: no launcher, one process.
    machines: u16,
    options: &'static [&'static str],
}

impl Deployment {
    const ALL: [Deployment; 9] = [
        Deployment { name: "alone", machines: 0, options: &[] },
        Deployment { name: "shm2", machines: 2, options: &["--fabric", "shm"] },
        Deployment { name: "shm3", machines: 3, options: &["--fabric", "shm"] },
        // With so little room for objects that copies have to go.
        Deployment { name: "tcp2", machines: 2, options: &["--fabric", "tcp", "--env", "GOSSAMER_HEAP=16M"] },
        Deployment { name: "tcp3", machines: 3, options: &["--fabric", "tcp"] },
        Deployment { name: "auto3", machines: 3, options: &["--fabric", "auto"] },
        // No launcher: the processes meet by themselves.
        Deployment { name: PLAIN, machines: 3, options: &[] },
        // All but the device: a stub writes to the other machine's memory.
        Deployment { name: STUB, machines: 2, options: &["--fabric", "verbs", "--threads", "4"] },
        // Needs an RDMA device: `cargo dev rdma`.
        Deployment {
            name: "verbs2",
            machines: 2,
            options: &["--fabric", "verbs", "--threads", "4", "--start-timeout", "200"],
        },
    ];

    /// Those that `SUITE_WAYS` names (such as `shm2,verbs2`), or all that need no device.
    pub fn chosen() -> Vec<Deployment> {
        let names = std::env::var("SUITE_WAYS").ok();
        let is_chosen = |deployment: &Deployment| match &names {
            Some(names) => names.split(',').any(|name| name == deployment.name),
            None => !deployment.name.starts_with("verbs"),
        };
        Deployment::ALL.into_iter().filter(is_chosen).collect()
    }

    fn command(&self) -> Command {
        let suite = program("test-suite", env!("CARGO_BIN_EXE_test-suite"));
        let mut command = if self.machines == 0 || self.name == PLAIN {
            Command::new(suite)
        } else {
            let mut launcher = Command::new(program("test-launch", env!("CARGO_BIN_EXE_test-launch")));
            launcher.args(["run", "--local", &self.machines.to_string()]).args(self.options).arg(suite);
            launcher
        };
        if self.name == STUB {
            command.env("LD_LIBRARY_PATH", gossamer_tests::stub::folder().expect("the stub was built with the suite"));
        }
        if SMALL.contains(&self.name) && std::env::var_os("SUITE_EFFORT").is_none() {
            command.env("SUITE_EFFORT", "small");
        }
        command
    }
}

/// Makes `command` machine 0 of so many, and starts the others.
fn meet(machines: u16, command: &mut Command) -> (Option<tempfile::TempDir>, Vec<Running>) {
    let folder = tempfile::tempdir().expect("a folder for the key");
    let key = folder.path().join("key");
    comm::secure::Key::generate().and_then(|made| made.write_new(&key)).expect("a key can be made");
    // Free now; nobody else asks for this very port before machine 0 does.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let set = |command: &mut Command, index: u16| {
        command.env("GOSSAMER_MEET", format!("127.0.0.1:{port}")).env("GOSSAMER_KEY_FILE", &key);
        command.env("GOSSAMER_COUNT", machines.to_string()).env("GOSSAMER_INDEX", index.to_string());
    };
    set(command, 0);
    let other = |index| {
        let mut other = Command::new(command.get_program());
        other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        set(&mut other, index);
        other.env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(other.spawn().expect("the suite starts"))
    };
    let others = (1..machines).map(other).collect();
    (Some(folder), others)
}

/// Where it was built, or in the folder `SUITE_PROGRAMS`, for those who run the suite where no build is.
fn program(name: &str, built: &str) -> PathBuf {
    std::env::var_os("SUITE_PROGRAMS").map_or_else(|| PathBuf::from(built), |folder| PathBuf::from(folder).join(name))
}

/// What became of the behaviours.
pub struct Report {
    /// `None`: it holds.
    verdicts: HashMap<String, Option<String>>,
    /// Why there are no more verdicts than these.
    end: String,
}

impl Report {
    /// Runs all behaviours.
    pub fn of(deployment: Deployment) -> Report {
        let mut command = deployment.command();
        let (_folder, _others) =
            if deployment.name == PLAIN { meet(deployment.machines, &mut command) } else { Default::default() };
        command.env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running(command.spawn().expect("the suite starts"));
        let (Some(stdout), Some(stderr)) = (running.0.stdout.take(), running.0.stderr.take()) else {
            unreachable!("both are pipes")
        };
        let said = thread::spawn(move || {
            let mut text = Vec::new();
            // What came before an error is kept.
            let _ = BufReader::new(stderr).read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let (send, lines) = mpsc::channel();
        let reader = thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });

        let mut report = Report { verdicts: HashMap::new(), end: String::new() };
        let mut current = None;
        let end = loop {
            match lines.recv_timeout(TIME_LIMIT) {
                Ok(line) => report.read(&line, &mut current),
                Err(RecvTimeoutError::Disconnected) => break "the program ended".to_owned(),
                Err(RecvTimeoutError::Timeout) => break format!("it hung for {TIME_LIMIT:?}"),
            }
        };
        // Nothing, if it has ended; the launcher takes its machines along.
        let _ = running.0.kill();
        let status = running.0.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        drop(lines);
        let said = said.join().unwrap_or_default();
        let _ = reader.join();
        report.end = format!("{end} ({status}); it said:\n{said}");
        if let Some(name) = current {
            report.verdicts.insert(name, Some(report.end.clone()));
        }
        report
    }

    fn read(&mut self, line: &str, current: &mut Option<String>) {
        // The launcher puts the machine's name before each line.
        let Some((_, words)) = line.split_once("suite: ") else { return };
        if let Some(name) = words.strip_prefix("begin ") {
            *current = Some(name.to_owned());
        } else if let Some(name) = words.strip_prefix("ok ") {
            *current = None;
            self.verdicts.insert(name.to_owned(), None);
        } else if let Some((name, why)) = words.strip_prefix("failed ").and_then(|rest| rest.split_once(": ")) {
            *current = None;
            self.verdicts.insert(name.to_owned(), Some(why.to_owned()));
        }
    }

    pub fn verdict(&self, name: &str) -> Result<(), Failed> {
        match self.verdicts.get(name) {
            Some(None) => Ok(()),
            Some(Some(why)) => Err(why.as_str().into()),
            None => Err(format!("it was not reached: {}", self.end).into()),
        }
    }
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It is gone already, unless something went wrong here.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
