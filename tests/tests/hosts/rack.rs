//! A rack for one test: hosts, a `rack.yaml`, a key, a daemon on each host; programs that are launched on it; and the
//! check that nothing of them is left.
//!
//! Processes in the namespaces of the hosts belong to the rack, so nothing can hide.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use limits::HANG;
use processes::{ChildProcess, Pidfds, send_signal};
use rustix::process::Signal;

use crate::network::{Host, Network};

pub const LAUNCH: &str = env!("CARGO_BIN_EXE_test-launch");
pub const DAEMON: &str = env!("CARGO_BIN_EXE_test-daemon");
pub const ROLES: &str = env!("CARGO_BIN_EXE_test-roles");
pub const STRANGER: &str = env!("CARGO_BIN_EXE_test-stranger");

/// Port of the daemons.
pub const PORT: u16 = 7117;
/// The guarantee is 4 s where a host is silent, and one second otherwise. These tests run on busy machines.
pub const BOUND: Duration = Duration::from_secs(15);

/// Starts a program on a host, in a process group of its own.
pub fn start(host: &Host, mut command: Command) -> ChildProcess {
    command.process_group(0);
    host.namespace.inside(|| ChildProcess::start(command))
}

/// Hosts with their daemons. All of it ends on drop.
pub struct Rack {
    pub network: Network,
    folder: tempfile::TempDir,
    daemons: Vec<Option<ChildProcess>>,
}

impl Rack {
    /// Starts this many hosts, with one worker each and a daemon that listens.
    pub fn start(hosts: u8) -> Rack {
        let mut rack = Rack::without_daemons(hosts);
        (0..usize::from(hosts)).for_each(|host| rack.start_daemon(host));
        rack
    }

    pub fn without_daemons(hosts: u8) -> Rack {
        let network = Network::new(hosts);
        let folder = tempfile::tempdir().unwrap();
        let rack = Rack { daemons: network.hosts.iter().map(|_| None).collect(), network, folder };
        rack.make_key("rack.key");
        rack.write_yaml("rack.yaml", "rack.key");
        rack
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn make_key(&self, name: &str) {
        let done = Command::new(LAUNCH).arg("keygen").arg(self.path(name)).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    pub fn write_yaml(&self, name: &str, key: &str) {
        let hosts = self.network.hosts.iter();
        let hosts = hosts.map(|host| format!("  - {{ name: {}, address: {}, workers: 1 }}\n", host.name, host.address));
        let text =
            format!("name: test\nport: {PORT}\nkey_file: {key}\nuser: root\nhosts:\n{}", hosts.collect::<String>());
        fs::write(self.path(name), text).unwrap();
    }

    /// Starts hosts whose `rack.yaml` has these lines too; returns when all of them reach one another.
    pub fn start_with(hosts: u8, lines: &str) -> Rack {
        let mut rack = Rack::without_daemons(hosts);
        let yaml = fs::read_to_string(rack.path("rack.yaml")).unwrap();
        fs::write(rack.path("rack.yaml"), yaml + lines).unwrap();
        (0..usize::from(hosts)).for_each(|host| rack.start_daemon(host));
        let start = Instant::now();
        while !rack.launcher(&["check"]).end().status.success() {
            assert!(start.elapsed() < HANG, "{:#?}", rack.launcher(&["check"]).end());
        }
        rack
    }

    /// Starts a daemon, and returns when it listens.
    pub fn start_daemon(&mut self, host: usize) {
        let daemon = self.daemon_of(host, "rack.yaml");
        daemon.stderr.wait_for("listening");
        self.daemons[host] = Some(daemon);
    }

    /// Starts a daemon with another file than the others.
    pub fn start_daemon_by(&mut self, host: usize, yaml: &str) {
        let daemon = self.daemon_of(host, yaml);
        daemon.stderr.wait_for("listening");
        self.daemons[host] = Some(daemon);
    }

    /// Starts a daemon that may not come up.
    pub fn daemon_of(&self, host: usize, yaml: &str) -> ChildProcess {
        let place = &self.network.hosts[host];
        let mut command = Command::new(DAEMON);
        command.arg("--rack").arg(self.path(yaml)).args(["--host", &place.name]);
        command.arg("--cache").arg(self.path(&format!("cache-{}", place.name)));
        start(place, command)
    }

    pub fn daemon(&self, host: usize) -> &ChildProcess {
        self.daemons[host].as_ref().expect("a daemon on this host")
    }

    /// Kills a daemon as `kill -9` does.
    pub fn kill_daemon(&mut self, host: usize) {
        self.daemons[host] = None;
    }

    /// Starts `test-roles` on a host, as machine of a meeting of all hosts, with these variables.
    pub fn meet(&self, host: usize, role: &str, variables: &[(&str, &str)]) -> ChildProcess {
        let mut command = Command::new(ROLES);
        command.arg(role).env("GOSSAMER_KEY_FILE", self.path("rack.key"));
        command.env("GOSSAMER_COUNT", self.network.hosts.len().to_string()).env("GOSSAMER_INDEX", host.to_string());
        command.envs(variables.iter().copied()).current_dir("/");
        start(&self.network.hosts[host], command)
    }

    /// Takes a port on a host.
    pub fn listen(&self, host: usize) -> TcpListener {
        let host = &self.network.hosts[host];
        host.namespace.inside(|| TcpListener::bind((host.address, PORT)).unwrap())
    }

    /// Starts the launcher on host 0.
    pub fn launcher(&self, arguments: &[&str]) -> ChildProcess {
        self.launcher_by("rack.yaml", arguments)
    }

    /// Same as `run`, but no host has the program: the launcher sees it in a folder of its own, which is empty for
    /// others.
    pub fn run_carried(&self, role: &str) -> ChildProcess {
        let folder = self.path("private");
        fs::create_dir(&folder).unwrap();
        let mut command = Command::new("unshare");
        let script = "mount -t tmpfs none \"$0\" && cp \"$1\" \"$0/program\" && exec \"$2\" run --rack \"$3\" \
                      \"$0/program\" \"$4\"";
        command.args(["--mount", "sh", "-c", script]).arg(&folder).args([ROLES, LAUNCH]).arg(self.path("rack.yaml"));
        command.arg(role).current_dir("/");
        start(&self.network.hosts[0], command)
    }

    /// Runs a script of this length that ends with this status, sent to all hosts, for none may run a file that others
    /// may write.
    pub fn run_script(&self, status: u8, bytes: usize) -> ChildProcess {
        let folder = self.path("open");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let (script, text) = (folder.join("script"), format!("#!/bin/sh\nexit {status}\n#"));
        fs::write(&script, text.clone() + &"x".repeat(bytes - text.len())).unwrap();
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        self.launcher(&["run", script.to_str().unwrap()])
    }

    /// Waits until a program begins to come in on a host.
    pub fn wait_for_arrivals(&self, host: usize) {
        let cache = self.path(&format!("cache-{}", self.network.hosts[host].name));
        let is_coming = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with(".incoming-");
        let start = Instant::now();
        while !fs::read_dir(&cache).is_ok_and(|entries| entries.flatten().any(is_coming)) {
            assert!(start.elapsed() < HANG, "nothing comes in");
            std::thread::yield_now();
        }
    }

    pub fn launcher_by(&self, yaml: &str, arguments: &[&str]) -> ChildProcess {
        let (what, rest) = arguments.split_first().expect("a subcommand");
        let mut command = Command::new(LAUNCH);
        let library = std::env::current_exe().unwrap().with_file_name("libgossamer_region_c.so");
        command
            .env("GOSSAMER_REGION_LIBRARY", library)
            .arg(what)
            .arg("--rack")
            .arg(self.path(yaml))
            .args(rest)
            .current_dir("/");
        start(&self.network.hosts[0], command)
    }

    /// Runs `test-roles` in a role on all hosts.
    pub fn run(&self, role: &[&str]) -> ChildProcess {
        self.launcher(&[&["run", ROLES], role].concat())
    }

    /// Starts `test-roles wait` on all hosts, and returns once it works, with the process of each machine.
    pub fn waiting(&self) -> (ChildProcess, Vec<u32>) {
        let launcher = self.run(&["wait"]);
        let text = launcher.stdout.wait_for("works\n");
        let machine = |index| {
            let rest = text.split(&format!("machine {index} is process ")).nth(1).expect("each machine is listed");
            rest.lines().next().and_then(|pid| pid.parse().ok()).expect("a process id")
        };
        (launcher, (0..self.network.hosts.len()).map(machine).collect())
    }

    /// Returns the processes on the hosts, without the daemons.
    pub fn processes(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.network.hosts.iter().flat_map(|host| host.namespace.processes()).collect();
        all.retain(|pid| !self.daemons.iter().flatten().any(|daemon| daemon.id() == *pid));
        all
    }

    /// Does harm, and measures the time until all processes on the hosts but the daemons have ended.
    #[track_caller]
    pub fn ends_after(&mut self, what: &str, harm: impl FnOnce(&mut Rack)) {
        let all = Pidfds::open(self.processes());
        let start = Instant::now();
        harm(self);
        let left = all.wait(limits::bound(BOUND));
        let taken = start.elapsed();
        let left = left.map_err(|left| left.into_iter().map(name_of).collect::<Vec<_>>());
        assert!(left.is_ok(), "{what}: {left:?} are there after {BOUND:?}");
        println!("{what}: the last process of the program went after {} ms", taken.as_millis());
    }

    /// Checks that nothing runs, listens or is connected on the hosts but the daemons, and that they hold no memory of
    /// programs.
    #[track_caller]
    pub fn assert_nothing_is_left(&self) {
        // Processes on their way out get the time to go.
        if let Err(left) = Pidfds::open(self.processes()).wait(HANG) {
            panic!("processes are left: {:?}", left.into_iter().map(name_of).collect::<Vec<_>>());
        }
        let start = Instant::now();
        loop {
            let found = self.strange_sockets();
            if found.is_empty() {
                break;
            }
            assert!(start.elapsed() < HANG, "sockets are left: {found:?}");
            std::thread::yield_now();
        }
        for daemon in self.daemons.iter().flatten() {
            let open = fs::read_dir(format!("/proc/{}/fd", daemon.id())).unwrap();
            let memory = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
            let memory: Vec<_> = memory.filter(|target| target.to_string_lossy().contains("memfd:gossamer")).collect();
            assert!(memory.is_empty(), "a daemon holds {memory:?}");
        }
    }

    /// Returns the TCP sockets of the hosts that listen or are connected, at another port than that of the daemons.
    fn strange_sockets(&self) -> Vec<String> {
        const LISTENING: &str = "0A";
        const CONNECTED: &str = "01";
        let of_daemons = format!(":{PORT:04X}");
        let mut found = Vec::new();
        for host in &self.network.hosts {
            let table = host.namespace.inside(|| fs::read_to_string("/proc/thread-self/net/tcp").unwrap());
            for line in table.lines().skip(1) {
                let words: Vec<&str> = line.split_whitespace().collect();
                let [_, own, other, state, ..] = words[..] else { panic!("{line}") };
                let is_of_daemons = own.ends_with(&of_daemons) || other.ends_with(&of_daemons);
                if [LISTENING, CONNECTED].contains(&state) && !is_of_daemons {
                    found.push(format!("{} {own} {other} {state}", host.name));
                }
            }
        }
        found
    }
}

/// Describes a process: its program and its first argument.
pub fn name_of(pid: u32) -> String {
    let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split('\0');
    let program = words.next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    format!("{program} {}", words.next().unwrap_or_default())
}

impl Drop for Rack {
    fn drop(&mut self) {
        self.daemons.clear();
        // Nothing is left, unless the test has failed.
        let left = self.processes();
        left.iter().for_each(|pid| send_signal(*pid, Signal::KILL));
        let _ = Pidfds::open(left).wait(HANG);
    }
}
