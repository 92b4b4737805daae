//! A rack on this host: a daemon for each of its hosts, on addresses of the loopback network that no other test has.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use limits::wait_until;
use processes::{ChildProcess, Ended, is_gone};
use rustix::process::Signal;

use crate::rig::{Complaints, launcher, run, start, this_program};

pub const DAEMON: &str = env!("CARGO_BIN_EXE_gossamer-daemon");
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Silence for tests where it must not end a program: the end is noticed sooner, or the test fails at its deadline.
pub const LENIENT_MS: u32 = 300_000;

pub struct Rack {
    pub folder: tempfile::TempDir,
    pub addresses: Vec<SocketAddr>,
    pub daemons: BTreeMap<&'static str, ChildProcess>,
}

impl Rack {
    /// Starts a rack with running daemons.
    pub fn start(hosts: usize, silence_ms: u32, more: &str) -> Rack {
        let mut rack = Rack::prepare(hosts, silence_ms, more);
        for name in &NAMES[..hosts] {
            rack.start_daemon(name);
        }
        rack
    }

    /// Makes a rack with its files, but without daemons.
    pub fn prepare(hosts: usize, silence_ms: u32, more: &str) -> Rack {
        static RACKS: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().unwrap();
        // 127.0.0.0/8 belongs to this host: an address for each process and rack.
        let id = std::process::id();
        let first = RACKS.fetch_add(1, Ordering::Relaxed) * 4;
        assert!(first < 2 * 252, "more racks in one process than there are addresses for");
        let address = |host: usize| {
            let parts = [(id >> 8) % 126 * 2 + first / 252 + 1, id % 256, first % 252 + host as u32 + 1];
            let [middle, low, last] = parts.map(|part| part as u8);
            SocketAddr::from((Ipv4Addr::new(127, middle, low, last), 7117))
        };
        let addresses: Vec<SocketAddr> = (0..hosts).map(address).collect();
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        let mut text = format!("key_file: rack.key\nuser: {}hosts:\n", String::from_utf8(user).unwrap());
        for (name, address) in NAMES.iter().zip(&addresses) {
            text.push_str(&format!("  - {{name: {name}, address: {}}}\n", address.ip()));
        }
        text.push_str(&format!("timeouts: {{silence_ms: {silence_ms}, connect_ms: 60000}}\n{more}\n"));
        std::fs::write(folder.path().join("rack.yaml"), text).unwrap();
        let mut keygen = launcher();
        keygen.arg("keygen").arg(folder.path().join("rack.key"));
        run(keygen).assert(0, None);
        Rack { folder, addresses, daemons: BTreeMap::new() }
    }

    /// Has programs run as this user, who then gets access to the folder.
    pub fn set_user(&self, name: &str) {
        let text = std::fs::read_to_string(self.file()).unwrap();
        let other =
            |line: &str| if line.starts_with("user: ") { format!("user: {name}\n") } else { format!("{line}\n") };
        std::fs::write(self.file(), text.lines().map(other).collect::<String>()).unwrap();
        std::fs::set_permissions(self.folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Makes folders of their own for these hosts, each with a copy of `rack.yaml` and of the key.
    pub fn copy_files(&self, hosts: &[&str]) {
        for host in hosts {
            std::fs::create_dir(self.folder.path().join(host)).unwrap();
            for file in ["rack.yaml", "rack.key"] {
                std::fs::copy(self.folder.path().join(file), self.folder.path().join(host).join(file)).unwrap();
            }
        }
    }

    /// Has `rack.yaml` name another key file.
    pub fn name_key(&self, name: &str) {
        let text = std::fs::read_to_string(self.file()).unwrap();
        std::fs::write(self.file(), text.replace("key_file: rack.key\n", &format!("key_file: {name}\n"))).unwrap();
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("rack.yaml")
    }

    /// Starts a host's daemon, and waits until it listens.
    pub fn start_daemon(&mut self, name: &'static str) {
        self.start_daemon_in(name, Command::new("env"));
    }

    /// Same as `start_daemon`; `becomes` is a program that executes its arguments, here the daemon.
    pub fn start_daemon_in(&mut self, name: &'static str, becomes: Command) {
        self.start_silent_daemon_in(name, becomes);
        self.daemons[name].stderr.wait_for("listening");
    }

    /// Same as `start_daemon_in`, without its log: the caller does not know whether it listens.
    pub fn start_silent_daemon_in(&mut self, name: &'static str, becomes: Command) {
        self.start_daemon_of(name, becomes, DAEMON.as_ref());
    }

    /// Same as `start_silent_daemon_in`, by the daemon's executable in another place.
    pub fn start_daemon_of(&mut self, name: &'static str, mut becomes: Command, program: &Path) {
        becomes.arg(program);
        let own = self.folder.path().join(name).join("rack.yaml");
        let file = if own.exists() { own } else { self.file() };
        becomes.args(["--host", name, "--rack"]).arg(file).stdin(Stdio::null());
        becomes.arg("--cache").arg(self.folder.path().join(format!("cache-{name}")));
        self.daemons.insert(name, start(becomes));
    }

    /// Returns the command `gossamer-launch COMMAND --rack FILE`; the command may have several words.
    pub fn launcher(&self, command: &str) -> Command {
        self.launcher_by("", command)
    }

    /// The same with the files in a folder of the rack's.
    pub fn launcher_by(&self, folder: &str, command: &str) -> Command {
        let mut launcher = launcher();
        launcher.args(command.split(' ')).arg("--rack").arg(self.folder.path().join(folder).join("rack.yaml"));
        launcher
    }

    /// Returns the command for this binary in `role` on all hosts.
    pub fn command(&self, options: &[&str], role: &[&str]) -> Command {
        let mut command = self.launcher("run");
        command.args(options).arg(this_program()).arg("machine").args(role);
        command
    }

    pub fn launch(&self, role: &[&str]) -> ChildProcess {
        start(self.command(&[], role))
    }

    /// Returns the output of a command with `--json`.
    pub fn json(&self, command: &str) -> serde_json::Value {
        let mut launcher = self.launcher(command);
        launcher.arg("--json");
        let ended = run(launcher);
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
    }

    pub fn run(&self, options: &[&str], role: &[&str]) -> Ended {
        run(self.command(options, role))
    }

    /// Waits until no host knows of a program.
    pub fn until_idle(&self) {
        wait_until("all programs to be forgotten", || {
            self.json("ps")["programs"].as_array().is_some_and(Vec::is_empty)
        });
    }

    pub fn pid(&self, name: &str) -> u32 {
        self.daemons[name].id()
    }

    /// Returns the process between a daemon and its machines.
    pub fn part(&self, name: &str) -> u32 {
        let parts = self.parts(name);
        assert_eq!(parts.len(), 1, "{parts:?}");
        parts[0]
    }

    /// Returns the parts of all programs.
    pub fn parts(&self, name: &str) -> Vec<u32> {
        let daemon = self.pid(name).to_string();
        let is_child = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)) == Some(&daemon)
        };
        let processes = std::fs::read_dir("/proc").unwrap();
        let pids = processes.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        pids.filter(is_child).collect()
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        for daemon in self.daemons.values() {
            if !is_gone(daemon.id()) {
                daemon.signal(Signal::CONT);
                daemon.signal(Signal::TERM); // an orderly end: it takes its programs along
            }
        }
        for (_, daemon) in std::mem::take(&mut self.daemons) {
            if !std::thread::panicking() {
                daemon.end();
            }
        }
    }
}
