//! Descriptors of a program: its standard streams and those that it needs, whatever daemon and launcher were started
//! with.

use std::path::{Path, PathBuf};
use std::process::Command;

use limits::wait_until;
use processes::Ended;
use rustix::process::Signal;

use crate::hosts::{LENIENT_MS, Rack};
use crate::rig::{Complaints, Machines, command, run};

crate::tests![
    descriptors_of_a_daemon_stay_with_it,
    descriptors_of_a_launcher_stay_with_it,
    standard_streams_that_are_closed_are_none_of_the_programs,
];

/// A file that only its owner may open, and a shell that opens it as descriptors 3, 9 and 200 of the next program.
pub struct Secret {
    pub file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Secret {
    pub fn new() -> Secret {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "secret").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        Secret { file, _folder: folder }
    }

    pub fn opened(&self) -> Command {
        let mut shell = Command::new("bash");
        shell.args(["-c", "exec 3<>\"$0\" 9<>\"$0\" 200<>\"$0\"; exec \"$@\""]).arg(&self.file);
        shell
    }
}

/// Checks that each machine has inherited its channel and the program's memory (the launcher's, each machine's, the
/// shares), and nothing else.
#[track_caller]
pub fn assert_inherited(ended: &Ended, memory_files: usize) {
    ended.assert(0, None);
    let what: Vec<&str> = ended.stdout.lines().filter_map(|line| Some(line.split_once("inherited ")?.1)).collect();
    let (sockets, rest): (Vec<&str>, Vec<&str>) = what.iter().partition(|what| what.starts_with("socket:"));
    let (memory, others): (Vec<&str>, Vec<&str>) = rest.iter().partition(|what| what.starts_with("/memfd:gossamer"));
    assert!(others.is_empty(), "{others:?}: {ended}");
    let machines = ended.stdout.lines().filter(|line| line.contains("inheritable now: 0")).count();
    assert_eq!((sockets.len(), memory.len()), (machines, memory_files), "{ended}");
}

/// Returns the descriptors as /proc lists them.
fn descriptors_of(pid: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
}

fn descriptors_of_a_daemon_stay_with_it() {
    let secret = Secret::new();
    let mut rack = Rack::prepare(1, LENIENT_MS, "");
    rack.start_daemon_in("a", secret.opened());
    assert!(descriptors_of(rack.pid("a")).contains(&secret.file), "the daemon has it: otherwise this shows nothing");
    assert_inherited(&rack.run(&["--machines-per-host", "2"], &["descriptors"]), 2 * 4);
    let launch = rack.launch(&["wait"]);
    let pids = launch.ready(1);
    for pid in [rack.part("a"), pids[&0]] {
        // The part is not dumpable, so /proc shows its descriptors to root alone.
        if rustix::process::geteuid().is_root() || pid == pids[&0] {
            assert!(!descriptors_of(pid).contains(&secret.file), "{:?}", descriptors_of(pid));
        }
    }
    launch.signal(Signal::INT);
    assert_eq!(launch.end().code(), Some(130));
}

fn descriptors_of_a_launcher_stay_with_it() {
    let secret = Secret::new();
    for machines in [1, 3] {
        let launcher = command(machines, &[], &["descriptors"]);
        let mut opened = secret.opened();
        opened.arg(launcher.get_program()).args(launcher.get_args());
        let each = if machines == 1 { 3 } else { 5 };
        assert_inherited(&run(opened), each * usize::from(machines));
    }
    // The launcher may use one itself, as for `--rack <(…)`.
    let rack = Rack::start(1, LENIENT_MS, "");
    let mut opened = Command::new("bash");
    opened.args(["-c", "exec 9<\"$0\"; exec \"$@\""]).arg(rack.file());
    opened.arg(env!("CARGO_BIN_EXE_gossamer-daemon")).args(["--rack", "/dev/fd/9", "--host", "b"]);
    let ended = run(opened);
    assert!(ended.stderr.lines().any(|line| line.contains("--host takes one of a")), "{ended}");
}

fn standard_streams_that_are_closed_are_none_of_the_programs() {
    let mut closed = Command::new("bash");
    closed.args(["-c", "exec 0<&- 1>&- 2>&-; exec \"$@\"", "bash"]);
    let mut rack = Rack::prepare(1, LENIENT_MS, "");
    rack.start_silent_daemon_in("a", closed);
    wait_until("the daemon to answer", || run(rack.launcher("status")).code() == Some(0));
    for descriptor in &descriptors_of(rack.pid("a"))[..3] {
        assert_eq!(descriptor, Path::new("/dev/null"), "0, 1 and 2 are not something that it opened later");
    }
    assert_inherited(&rack.run(&["--machines-per-host", "2"], &["descriptors"]), 2 * 4);

    let launcher = command(2, &[], &["descriptors"]);
    let mut closed = Command::new("bash");
    closed.args(["-c", "exec 0<&- 2>&-; exec \"$@\"", "bash"]).arg(launcher.get_program()).args(launcher.get_args());
    assert_inherited(&run(closed), 2 * 4);
}
