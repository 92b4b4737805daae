//! A process that holds a key leaves no core dump; the programs that it starts may.
//!
//! The owner of a process's files in `/proc` tells whether its user may look into it: root means that not even its own
//! user may. So none of this may run as root: under root the tests switch to user nobody.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use processes::{ChildProcess, Ended};
use rustix::process::{Resource, Signal, geteuid, getrlimit};

use crate::rig::{Complaints, Machines, run, start, this_program};

crate::tests![none_of_daemon_part_and_launcher, none_of_a_launcher_of_local_machines, the_limit_of_before_is_kept];

const NOBODY: u32 = 65534;
/// Core limit in these tests; less where the system allows less.
const LIMIT: u64 = 1 << 20;

/// A folder with copies of the programs, which they can execute.
struct DumpFolder {
    folder: tempfile::TempDir,
    limit: u64,
}

impl DumpFolder {
    fn new() -> DumpFolder {
        let folder = tempfile::tempdir().unwrap();
        let limit = getrlimit(Resource::Core).maximum.map_or(LIMIT, |most| most.min(LIMIT));
        let dumps = DumpFolder { folder, limit };
        std::fs::set_permissions(dumps.folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        if geteuid().is_root() {
            chown(dumps.folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let launch = Path::new(env!("CARGO_BIN_EXE_gossamer-launch"));
        for program in [launch, Path::new(env!("CARGO_BIN_EXE_gossamer-daemon")), &this_program()] {
            processes::copy_program(program, dumps.path(program.file_name().unwrap().to_str().unwrap()));
        }
        dumps
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a command line in this folder, with this limit of core dumps.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        // The unit of `ulimit -c` differs between shells, so `prlimit` sets it.
        let script = format!("prlimit --pid $$ --core={}: && exec {line}", self.limit);
        command.args(["-c", &script]).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("HOME", self.folder.path()).env("RUST_BACKTRACE", "0");
        if geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn role(&self) -> String {
        format!("./{} machine core", this_program().file_name().unwrap().to_str().unwrap())
    }

    #[track_caller]
    fn assert_forbidden(&self, what: &str, pid: u32) {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(line.split_whitespace().nth(4), Some("0"), "{what}: {line}");
        let owner = std::fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid();
        assert_eq!(owner, 0, "{what}: its own user may look into it");
    }

    /// A machine may leave a core dump, and be looked into.
    #[track_caller]
    fn assert_allowed(&self, ended: &Ended) {
        let said: Vec<&str> = ended.stdout.lines().filter_map(|line| line.split("core ").nth(1)).collect();
        let expected = format!("Some({}) of {:?}, Dumpable", self.limit, getrlimit(Resource::Core).maximum);
        assert!(!said.is_empty() && said.iter().all(|said| *said == expected), "{expected}: {ended}");
    }
}

fn stop(launch: ChildProcess) -> Ended {
    launch.signal(Signal::TERM);
    launch.end()
}

fn none_of_a_launcher_of_local_machines() {
    let dumps = DumpFolder::new();
    let launch = start(dumps.command(&format!("./gossamer-launch run --local 2 {}", dumps.role())));
    launch.ready(2);
    dumps.assert_forbidden("the launcher", launch.id());
    dumps.assert_allowed(&stop(launch));
}

fn none_of_daemon_part_and_launcher() {
    let dumps = DumpFolder::new();
    // An address that no rack of `hosts.rs` has.
    let [low, high] = (std::process::id() as u16).to_le_bytes();
    let yaml = format!("key_file: rack.key\nhosts:\n  - {{name: a, address: 127.255.{high}.{}}}\n", low.max(1));
    std::fs::write(dumps.path("rack.yaml"), yaml).unwrap();
    run(dumps.command("./gossamer-launch keygen rack.key")).assert(0, None);
    let daemon = start(dumps.command("./gossamer-daemon --rack rack.yaml --host a --cache cache"));
    daemon.stderr.wait_for("listening");
    let launch = start(dumps.command(&format!("./gossamer-launch run --machines-per-host 2 {}", dumps.role())));
    launch.ready(2);
    let [part] = daemon.children()[..] else { panic!("{:?}", daemon.children()) };
    for (what, pid) in [("the daemon", daemon.id()), ("the part", part), ("the launcher", launch.id())] {
        dumps.assert_forbidden(what, pid);
    }
    dumps.assert_allowed(&stop(launch));
    stop(daemon).assert(0, None);
}

/// The old limit may be anything, none at all included.
fn the_limit_of_before_is_kept() {
    let mut dumps = DumpFolder::new();
    for limit in [dumps.limit, 4096, 0] {
        dumps.limit = dumps.limit.min(limit);
        let launch = start(dumps.command(&format!("./gossamer-launch run --local 1 {}", dumps.role())));
        launch.ready(1);
        dumps.assert_allowed(&stop(launch));
    }
}
