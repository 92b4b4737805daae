//! Tests that only root can run: programs of another user, a daemon that is process 1, hosts that let nobody start a
//! thread. Ignored for other users.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use limits::wait_until;
use processes::{is_gone, send_signal};
use rustix::process::Signal;

use crate::descriptors::{Secret, assert_inherited};
use crate::hosts::{DAEMON, LENIENT_MS, Rack};
use crate::links::{KINDS, left};
use crate::orphans::Left;
use crate::rig::{Complaints, run, start};

crate::tests![
    descriptors_of_root_stay_with_root,
    another_user_gets_nothing_of_the_daemon,
    programs_have_all_groups_of_their_user,
    tasks_of_another_user_have_a_limit,
    what_forks_ends_as_another_user_too,
    a_daemon_that_is_process_1_collects_all,
    a_host_that_can_start_nothing_says_so,
    a_rack_of_somebody_else_is_obeyed_by_nobody_who_passes_by,
    an_executable_that_others_could_replace_is_not_executed,
];

/// Returns whether this is root with the right to make namespaces: in many containers it is not.
pub fn is_possible() -> bool {
    let mut namespaces = Command::new("unshare");
    namespaces.args(["--mount", "--pid", "--fork", "--mount-proc", "true"]);
    rustix::process::geteuid().is_root() && namespaces.output().is_ok_and(|done| done.status.success())
}

const NOBODY: &str = "nobody";
const NOBODY_ID: u32 = 65534;
/// Another such user, without other processes here: for limits that count all processes of a user.
const LONELY: &str = "games";

fn rack_of_nobody(more: &str) -> Rack {
    let rack = Rack::prepare(1, LENIENT_MS, more);
    rack.set_user(NOBODY);
    rack
}

/// A file that root has open, inherited by the daemon that it starts.
fn descriptors_of_root_stay_with_root() {
    let secret = Secret::new();
    let mut rack = rack_of_nobody("");
    rack.start_daemon_in("a", secret.opened());
    assert_inherited(&rack.run(&["--folder", "/", "--machines-per-host", "2"], &["descriptors"]), 2 * 4);
    assert_eq!(std::fs::read_to_string(&secret.file).unwrap(), "secret");
}

/// Not through the part either, which is the same user's: its standard error is the daemon's log.
fn another_user_gets_nothing_of_the_daemon() {
    let mut rack = rack_of_nobody("");
    rack.start_daemon("a");
    let ended = rack.run(&["--folder", "/"], &["intrudes"]);
    ended.assert(0, None);
    let said = &ended.stdout;
    assert!(
        said.contains(&format!("user {NOBODY_ID}, 1 groups\ntaken 0, listed 0\ntaken 0, listed 0\nterminal: false")),
        "{said}"
    );
}

/// As in a login: the groups of the host's `/etc/group`, and none of root's.
fn programs_have_all_groups_of_their_user() {
    let mut rack = rack_of_nobody("");
    let groups = rack.folder.path().join("group");
    let mut text = std::fs::read_to_string("/etc/group").unwrap();
    text.push_str(&format!("gsm-first:x:70001:{NOBODY}\ngsm-second:x:70002:root,{NOBODY}\ngsm-third:x:70003:root\n"));
    std::fs::write(&groups, text).unwrap();
    let mut with_groups = Command::new("unshare");
    with_groups.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/group && exec \"$@\""]).arg(&groups);
    rack.start_daemon_in("a", with_groups);
    let mut command = rack.launcher("run");
    command.args(["--folder", "/", "sh", "-c", "id -u; id -g; id -G"]);
    let ended = run(command);
    ended.assert(0, None);
    let groups = ended.stdout.strip_prefix("65534\n65534\n").unwrap_or_else(|| panic!("{ended}"));
    let mut found: Vec<&str> = groups.split_whitespace().collect();
    found.sort_unstable();
    assert_eq!(found, ["65534", "70001", "70002"]);
    // And it dies with its daemon, as before: the kernel drops that signal when the user changes.
    let launch = rack.launch(&["wait"]);
    drop(launch);
    rack.until_idle();
}

fn tasks_of_another_user_have_a_limit() {
    for limit in [40, 100] {
        let mut rack = Rack::prepare(1, LENIENT_MS, &format!("limits: {{tasks: {limit}}}"));
        rack.set_user(LONELY);
        rack.start_daemon("a");
        let ended = rack.run(&["--folder", "/"], &["fills", "200"]);
        ended.assert(0, None);
        let words = ended.stdout.lines().find_map(|line| line.split_once(", filled "));
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

/// As in a container: orphans that it never started come to it, and it ends with a signal.
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
    wait_until("strays to be there", || marker.exists());
    wait_until("strays to be collected", || left(&strays.name).is_empty());

    for kind in ["sessions", "pair"] {
        let left = Left::new();
        let marker = left.marker();
        rack.run(&[], &left.role("leave", kind, marker.to_str().unwrap())).assert(0, None);
        rack.until_idle();
        left.assert_gone(kind);
    }
    rack.run(&[], &["end", "6"]).assert(6, None);
    send_signal(daemon, Signal::TERM);
    assert_eq!(rack.daemons.remove("a").unwrap().end().code(), Some(0));
    assert!(is_gone(daemon));
}

/// A daemon of user nobody, with a limit of one task: it has more already.
fn a_host_that_can_start_nothing_says_so() {
    let mut rack = rack_of_nobody("");
    let program = rack.folder.path().join("gossamer-daemon");
    processes::copy_program(DAEMON, &program); // its own place may be closed to others
    for file in ["", "rack.key"] {
        chown(rack.folder.path().join(file), Some(NOBODY_ID), None).unwrap();
    }
    let mut as_nobody = Command::new("env");
    as_nobody.uid(NOBODY_ID).gid(NOBODY_ID).current_dir("/");
    rack.start_daemon_of("a", as_nobody, &program);
    rack.daemons["a"].stderr.wait_for("listening");
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
    let said = &ended.stdout;
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

/// Working in somebody else's folder does not choose the rack there; naming it does.
fn a_rack_of_somebody_else_is_obeyed_by_nobody_who_passes_by() {
    const OTHER_ID: u32 = 4711;
    let rack = rack_of_nobody("");
    let folder = rack.folder.path();
    let (file, key) = (rack.file(), folder.join("rack.key"));
    let programs = [DAEMON, env!("CARGO_BIN_EXE_gossamer-launch")].map(|program| {
        let copy = folder.join(std::path::Path::new(program).file_name().unwrap());
        processes::copy_program(program, &copy); // its own place may be closed to others
        copy
    });
    let [daemon, launcher] = &programs;
    // In `place`, without naming a rack.
    let passing = |user: u32, place: &std::path::Path, words: &[&str]| {
        let program = if words.is_empty() { daemon } else { launcher };
        let mut command = Command::new(program);
        command.args(words).current_dir(place).env("XDG_CONFIG_HOME", "/nonexistent").uid(user);
        command.env_remove("GOSSAMER_RACK").stdin(std::process::Stdio::null());
        run(command)
    };
    let owned_by = |owner: u32| [&file, &key].iter().for_each(|file| chown(file, Some(owner), None).unwrap());
    let mode = |mode: u32| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o644);

    owned_by(NOBODY_ID);
    for words in [&["run", "true"][..], &["check"], &["ps"], &["top", "--once"], &[]] {
        let ended = passing(0, folder, words);
        ended.complains(70, "rack.yaml: it belongs to nobody, not to root, who runs this");
        ended.complains(70, &format!("--rack {}", file.display()));
    }
    // By a variable of the folder's owner, as `sudo` may leave it.
    std::fs::create_dir(folder.join("gossamer")).unwrap();
    std::fs::copy(&file, folder.join("gossamer/rack.yaml")).unwrap();
    chown(folder.join("gossamer/rack.yaml"), Some(NOBODY_ID), None).unwrap();
    let mut command = Command::new(launcher);
    command.args(["run", "true"]).current_dir("/").env("XDG_CONFIG_HOME", folder).env_remove("GOSSAMER_RACK");
    run(command).complains(70, "gossamer/rack.yaml: it belongs to nobody, not to root");
    // The same for another owner who is not root.
    owned_by(OTHER_ID);
    passing(NOBODY_ID, folder, &["ps"]).complains(70, "it belongs to user 4711, not to nobody");

    // Own files are obeyed: only the daemon is missing.
    owned_by(NOBODY_ID);
    passing(NOBODY_ID, folder, &["ps"]).complains(1, "Connection refused");
    mode(0o666);
    passing(NOBODY_ID, folder, &["ps"]).complains(70, "others may write it (`chmod go-w` it)");
    owned_by(0);
    mode(0o664);
    passing(0, folder, &["ps"]).complains(70, "its group or others may write it");
    mode(0o644);
    passing(0, folder, &["ps"]).complains(1, "Connection refused");
    // Root's file, by a link that lies beside somebody else's key.
    let place = folder.join("place");
    std::fs::create_dir(&place).unwrap();
    std::os::unix::fs::symlink(&file, place.join("rack.yaml")).unwrap();
    std::fs::copy(&key, place.join("rack.key")).unwrap();
    chown(place.join("rack.key"), Some(NOBODY_ID), None).unwrap();
    passing(0, &place, &["ps"]).complains(70, "rack.key: it belongs to user 65534, not to root");
    // Named ones are all obeyed.
    owned_by(NOBODY_ID);
    mode(0o666);
    run(rack.launcher("ps")).complains(1, &format!("(the address is that of {})", file.display()));
}

/// Holders of the key run programs as another user: an upgrade must not make that root.
fn an_executable_that_others_could_replace_is_not_executed() {
    let mut rack = rack_of_nobody("");
    let folder = rack.folder.path().join("open");
    let file = folder.join("gossamer-daemon");
    std::fs::create_dir(&folder).unwrap();
    assert!(Command::new("cp").arg(DAEMON).arg(&file).status().unwrap().success());
    rack.start_daemon_of("a", Command::new("env"), &file);
    rack.daemons["a"].stderr.wait_for("listening");
    let upgrade = |code: u32| {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(code)).unwrap();
        let mut command = rack.launcher("upgrade");
        command.arg("a");
        run(command)
    };
    upgrade(0o777).complains(1, "could be replaced by other users than root");
    upgrade(0o755).assert(0, None);
    let mut command = rack.launcher("run");
    command.args(["--folder", "/", "id", "-u"]);
    let ended = run(command);
    assert_eq!(ended.stdout, format!("{NOBODY_ID}\n"), "{ended}");
}
