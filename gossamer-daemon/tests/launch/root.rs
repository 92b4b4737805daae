//! What only root can try: programs of another user, a daemon that is process 1, hosts that let nobody start a thread.
//! Ignored for others.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

use crate::descriptors::{Secret, assert_inherited};
use crate::hosts::{DAEMON, LENIENT_MS, Rack};
use crate::links::{KINDS, left};
use crate::orphans::Left;
use crate::rig::{gone, kill, run, start, until};

crate::tests![
    descriptors_of_root_stay_with_root,
    another_user_gets_nothing_of_the_daemon,
    tasks_of_another_user_have_a_limit,
    what_forks_ends_as_another_user_too,
    a_daemon_that_is_process_1_collects_all,
    a_host_that_can_start_nothing_says_so,
];

/// Whether this is root, who may also make namespaces: not so in many containers.
pub fn is_possible() -> bool {
    let mut namespaces = Command::new("unshare");
    namespaces.args(["--mount", "--pid", "--fork", "--mount-proc", "true"]);
    rustix::process::geteuid().is_root() && namespaces.output().is_ok_and(|done| done.status.success())
}

const NOBODY: &str = "nobody";
const NOBODY_ID: u32 = 65534;
/// Another such user, who has no other processes here: where all of a user's are counted.
const LONELY: &str = "games";

fn rack_of_nobody(more: &str) -> Rack {
    let rack = Rack::prepare(1, LENIENT_MS, more);
    rack.set_user(NOBODY);
    rack
}

/// A file that root has open, of the daemon that it starts.
fn descriptors_of_root_stay_with_root() {
    let secret = Secret::new();
    let mut rack = rack_of_nobody("");
    rack.start_daemon_in("a", secret.opened());
    assert_inherited(&rack.run(&["--folder", "/", "--machines-per-host", "2"], &["descriptors"]), 2 * 4);
    assert_eq!(std::fs::read_to_string(&secret.file).unwrap(), "secret");
}

/// Not by way of the part either, which is the same user's: its standard error is the daemon's log.
fn another_user_gets_nothing_of_the_daemon() {
    let mut rack = rack_of_nobody("");
    rack.start_daemon("a");
    let ended = rack.run(&["--folder", "/"], &["intrudes"]);
    ended.assert(0, None);
    let said = ended.stdout.join("\n");
    assert!(
        said.contains(&format!("user {NOBODY_ID}, 0 groups\ntaken 0, listed 0\ntaken 0, listed 0\nterminal: false")),
        "{said}"
    );
}

fn tasks_of_another_user_have_a_limit() {
    for limit in [40, 100] {
        let mut rack = Rack::prepare(1, LENIENT_MS, &format!("limits: {{tasks: {limit}}}"));
        rack.set_user(LONELY);
        rack.start_daemon("a");
        let ended = rack.run(&["--folder", "/"], &["fills", "200"]);
        ended.assert(0, None);
        let words = ended.stdout.iter().find_map(|line| line.split_once(", filled "));
        let filled: Option<u32> = words.and_then(|(_, filled)| filled.parse().ok());
        // In a cgroup its part has a few more, for its threads.
        assert!(filled.is_some_and(|filled| filled < limit + 10), "{ended}");
        rack.run(&["--folder", "/"], &["end", "6"]).assert(6, None);
    }
}

fn what_forks_ends_as_another_user_too() {
    let mut rack = rack_of_nobody("limits: {tasks: 4000}");
    rack.start_daemon("a");
    for kind in KINDS {
        let left = Left::new();
        let marker = left.marker();
        chown(left.folder(), Some(NOBODY_ID), None).unwrap();
        let role = left.role("leave", kind, marker.to_str().unwrap());
        rack.run(&["--folder", "/"], &role).assert(0, None);
        rack.until_idle();
        left.assert_gone(kind);
    }
    rack.run(&["--folder", "/"], &["end", "6"]).assert(6, None);
}

/// As in a container: orphans come to it that it has never started, and ends with a signal.
fn a_daemon_that_is_process_1_collects_all() {
    let mut rack = Rack::prepare(1, LENIENT_MS, "");
    let mut container = Command::new("unshare");
    container.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    rack.start_daemon_in("a", container);
    let daemon = rack.part("a"); // the child of `unshare`
    let strays = Left::new();
    let marker = strays.marker();
    let mut inside = Command::new("nsenter");
    inside.args(["--pid", "--mount", "--target", &daemon.to_string()]).arg(crate::rig::this_program());
    inside.args(["machine", "link", "short", &strays.name, marker.to_str().unwrap()]);
    run(inside).assert(0, None);
    until("strays to be there", || marker.exists());
    until("strays to be collected", || left(&strays.name).is_empty());

    for kind in ["sessions", "pair"] {
        let left = Left::new();
        let marker = left.marker();
        rack.run(&[], &left.role("leave", kind, marker.to_str().unwrap())).assert(0, None);
        rack.until_idle();
        left.assert_gone(kind);
    }
    rack.run(&[], &["end", "6"]).assert(6, None);
    kill(daemon, Signal::TERM);
    assert_eq!(rack.daemons.remove("a").unwrap().end().code(), Some(0));
    assert!(gone(daemon));
}

/// A daemon of nobody's, who may have one task: it has more already.
fn a_host_that_can_start_nothing_says_so() {
    let mut rack = rack_of_nobody("");
    let program = rack.folder.path().join("gossamer-daemon");
    std::fs::copy(DAEMON, &program).unwrap(); // where it is it may be closed to others
    for file in ["", "rack.key"] {
        chown(rack.folder.path().join(file), Some(NOBODY_ID), None).unwrap();
    }
    let mut as_nobody = Command::new("env");
    as_nobody.uid(NOBODY_ID).gid(NOBODY_ID).current_dir("/");
    rack.start_daemon_of("a", as_nobody, &program);
    until("a daemon to listen", || rack.daemons["a"].has_complained("listening"));
    chown(rack.folder.path().join("rack.key"), Some(0), None).unwrap(); // the launcher's: the daemon has read it
    let daemon = rack.pid("a").to_string();
    let limit = |soft: &str| {
        // As nobody: for another user's limits root alone is not enough in a container.
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &daemon, &format!("--nproc={soft}")]).uid(NOBODY_ID).gid(NOBODY_ID);
        assert!(prlimit.current_dir("/").status().unwrap().success());
    };
    limit("1:");

    let ended = run(rack.launcher("check"));
    assert_eq!(ended.code(), Some(1), "{ended}");
    let said = ended.stdout.join("\n");
    for words in ["this host cannot start another thread", "its user may have 1", "TasksMax=", "ulimit -u"] {
        assert!(said.contains(words), "no {words:?}: {ended}");
    }
    let ended = rack.run(&["--folder", "/"], &["end"]);
    assert_eq!(ended.code(), Some(70), "{ended}");
    assert!(ended.complaints().join("").contains("this host cannot start another thread"), "{ended}");

    limit("1000:");
    run(rack.launcher("check")).assert(0, None);
    start(rack.command(&["--folder", "/"], &["end", "6"])).end().assert(6, None);
}
