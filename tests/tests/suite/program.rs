//! Start of `test-suite` on each kind of rack. The verdicts on its behaviours are in `report`.

use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use processes::ChildProcess;

/// Time after which a behaviour counts as hung, in time of an idle machine. Each takes a second or two there.
const TIME_LIMIT: Duration = Duration::from_secs(150);
/// The same with `SUITE_EFFORT=small`: on emulated processors, slow as they are, this is a quarter of an hour.
const SMALL_TIME_LIMIT: Duration = Duration::from_secs(50);

/// The rack with processes that no launcher of ours starts.
const PLAIN: &str = "plain3";

/// Racks with a stub for libibverbs.
const STUB: [&str; 2] = ["stub2", WAYS[2]];

/// Racks whose programs outlive a machine: see `losses`.
const LOSSY: [&str; 3] = ["lossy_shm3", "lossy_tcp3", "lossy_ways3"];

/// Racks with machine ways.
const WAYS: [&str; 3] = ["shm_ways3", "tcp_ways3", "stub_ways3"];

/// Racks that are much like others, or start a program for each behaviour: repetitions go down to a tenth there.
const SMALL: [&str; 9] = ["auto3", PLAIN, STUB[0], LOSSY[0], LOSSY[1], LOSSY[2], WAYS[0], WAYS[1], WAYS[2]];

/// Racks that are much like others, or have emulated processors: some behaviours run there, each time others.
const SAMPLED: [&str; 7] = ["auto3", PLAIN, STUB[0], "verbs2", WAYS[0], WAYS[1], WAYS[2]];

/// A kind of rack.
#[derive(Clone, Copy)]
pub struct Deployment {
    pub name: &'static str,
    /// 0: no launcher, one process.
    machines: u16,
    options: &'static [&'static str],
}

impl Deployment {
    const ALL: [Deployment; 12] = [
        Deployment { name: "alone", machines: 0, options: &[] },
        Deployment { name: "shm2", machines: 2, options: &["--fabric", "shm"] },
        Deployment { name: "shm3", machines: 3, options: &["--fabric", "shm"] },
        // With so little room for objects that copies have to go.
        Deployment { name: "tcp2", machines: 2, options: &["--fabric", "tcp", "--env", "GOSSAMER_HEAP=16M"] },
        Deployment { name: "tcp3", machines: 3, options: &["--fabric", "tcp"] },
        Deployment { name: "auto3", machines: 3, options: &["--fabric", "auto"] },
        Deployment { name: WAYS[0], machines: 3, options: &["--fabric", "shm", "--machine-ways", "on"] },
        Deployment { name: WAYS[1], machines: 3, options: &["--fabric", "tcp", "--machine-ways", "on"] },
        // No launcher: the processes meet by themselves.
        Deployment { name: PLAIN, machines: 3, options: &[] },
        // Everything but the device: a stub writes to the other machine's memory.
        Deployment { name: STUB[0], machines: 2, options: &["--fabric", "verbs", "--threads", "4"] },
        Deployment { name: STUB[1], machines: 3, options: &["--fabric", "verbs", "--machine-ways", "on"] },
        // Needs an RDMA device: `cargo dev rdma`.
        Deployment {
            name: "verbs2",
            machines: 2,
            options: &["--fabric", "verbs", "--threads", "4", "--start-timeout", "200"],
        },
    ];

    /// Those with programs that outlive a machine.
    const LOSSY: [Deployment; 3] = [
        Deployment { name: LOSSY[0], machines: 3, options: &["--survives", "1", "--fabric", "shm"] },
        Deployment { name: LOSSY[1], machines: 3, options: &["--survives", "1", "--fabric", "tcp"] },
        Deployment {
            name: LOSSY[2],
            machines: 3,
            options: &["--survives", "1", "--fabric", "tcp", "--machine-ways", "on"],
        },
    ];

    /// Returns the racks named in `SUITE_WAYS` (such as `shm2,verbs2`), or all that need no device.
    pub fn chosen() -> Vec<Deployment> {
        Deployment::ALL.into_iter().filter(Deployment::is_chosen).collect()
    }

    /// Returns those whose programs lose a machine.
    pub fn lossy() -> Vec<Deployment> {
        Deployment::LOSSY.into_iter().filter(Deployment::is_chosen).collect()
    }

    fn is_chosen(&self) -> bool {
        match std::env::var("SUITE_WAYS") {
            Ok(names) => names.split(',').any(|name| name == self.name),
            Err(_) => !self.name.starts_with("verbs"),
        }
    }

    /// Returns whether a sample of the behaviours is enough there.
    pub fn is_sampled(&self) -> bool {
        SAMPLED.contains(&self.name)
    }

    /// Returns the two racks for the trial of the harness.
    pub fn tried() -> [Deployment; 2] {
        [Deployment::ALL[0], Deployment::ALL[1]]
    }

    /// Returns the time limit of a behaviour, in time of an idle machine.
    pub fn time_limit() -> Duration {
        let is_small = std::env::var("SUITE_EFFORT").is_ok_and(|effort| effort == "small");
        if is_small { SMALL_TIME_LIMIT } else { TIME_LIMIT }
    }

    /// Starts the suite there, with this variable too, behind the behaviour `after`.
    pub fn start(&self, variable: Option<(&str, &str)>, after: Option<&str>) -> Started {
        let mut command = self.command();
        command.envs(variable).args(after.iter().flat_map(|name| ["--after", name]));
        let (folder, others) = if self.name == PLAIN { meet(self.machines, &mut command) } else { Default::default() };
        command.env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut first = command.spawn().expect("the suite starts");
        let stdout = first.stdout.take().expect("a pipe");
        Started { first: first.into(), stdout, _others: others, _folder: folder }
    }

    /// Returns the command that runs the suite there.
    pub fn command(&self) -> Command {
        let suite = program("test-suite", env!("CARGO_BIN_EXE_test-suite"));
        let mut command = if self.machines == 0 || self.name == PLAIN {
            Command::new(suite)
        } else {
            let mut launcher = Command::new(program("test-launch", env!("CARGO_BIN_EXE_test-launch")));
            launcher.args(["run", "--local", &self.machines.to_string()]).args(self.options).arg(suite);
            launcher
        };
        if STUB.contains(&self.name) {
            command.env("LD_LIBRARY_PATH", gossamer_tests::stub::folder().expect("the stub was built with the suite"));
        }
        if SMALL.contains(&self.name) && std::env::var_os("SUITE_EFFORT").is_none() {
            command.env("SUITE_EFFORT", "small");
        }
        command
    }
}

/// A running program. All of it ends on drop.
pub struct Started {
    /// Machine that prints the outcomes of the behaviours.
    pub first: ChildProcess,
    /// Its output, which is followed line by line.
    pub stdout: ChildStdout,
    _others: Vec<ChildProcess>,
    _folder: Option<tempfile::TempDir>,
}

/// Makes `command` machine 0 of this many, and starts the others.
fn meet(machines: u16, command: &mut Command) -> (Option<tempfile::TempDir>, Vec<ChildProcess>) {
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
        ChildProcess::start(other)
    };
    let others = (1..machines).map(other).collect();
    (Some(folder), others)
}

/// Returns the path of the built program, or in the folder `SUITE_PROGRAMS`, for runs without a build.
fn program(name: &str, built: &str) -> PathBuf {
    std::env::var_os("SUITE_PROGRAMS").map_or_else(|| PathBuf::from(built), |folder| PathBuf::from(folder).join(name))
}
