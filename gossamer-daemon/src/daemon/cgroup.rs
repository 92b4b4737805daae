//! A cgroup (version 2) for each program, below the daemon's own, where the host allows it. All processes in it can be
//! killed in one go, however fast they fork, and it has limits of tasks and of memory.
//!
//! Without cgroups (no cgroup v2, not this user's, read-only as in many containers) programs run all the same:
//! [`crate::orphans`] ends their leftover processes in any case.
//!
//! ```text
//! BASE                          where the daemon was started: its unit's, with `Delegate=yes`
//! BASE/gossamer-4711            the daemon, where it sets limits: BASE, with controllers for others, has no process
//! BASE/gossamer-4711-1d30d443   a program: its part and all that descends from it
//! ```

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::wire::ProgramId;

/// Time limit for a cgroup to be empty once its processes are killed.
const EMPTY_LIMIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(2);
const PREFIX: &str = "gossamer-";

/// Cure for a daemon that cannot set limits.
const CURE: &str = "let systemd delegate one to it (`Delegate=yes`, as in docs/gossamer-daemon.service), or start it \
                    where /sys/fs/cgroup is a writable cgroup v2 with that controller";

/// Parent of the programs' cgroups.
#[derive(Clone, Serialize, Deserialize)]
pub struct Cgroups {
    base: Result<Base, String>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Base {
    folder: PathBuf,
    /// Cgroup that the daemon has moved to.
    own: Option<PathBuf>,
    kills: bool,
    limits_tasks: bool,
    limits_memory: bool,
}

/// Limits of a program.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most processes and threads.
    pub tasks: u32,
    /// Most memory in bytes; `None`: no limit.
    pub memory_bytes: Option<u64>,
}

/// Cgroup of a program. Removed on drop, when it is empty.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
    /// The memory limit that it has.
    memory_bytes: Option<u64>,
    /// Number of its processes that were killed for want of memory, as last read.
    oom_kills: u64,
}

/// Folder, memory limit and number of kills of a [`Cgroup`].
pub(super) type CgroupState = (PathBuf, Option<u64>, u64);

impl Cgroups {
    /// Probes the cgroup of this process.
    pub fn set_up() -> Cgroups {
        Cgroups { base: Base::find().map_err(|error| error.to_string()) }
    }

    /// Returns whether the programs' cgroups have a limit of tasks.
    pub fn limits_tasks(&self) -> bool {
        self.base.as_ref().is_ok_and(|base| base.limits_tasks)
    }

    /// Returns why the programs' cgroups have no memory limit, with the cure; `None`: they can have one.
    pub fn why_no_memory_limit(&self) -> Option<String> {
        let why = match &self.base {
            Ok(Base { limits_memory: true, .. }) => return None,
            Ok(_) => "its cgroup lacks the controller `memory`, or cannot hand it on".to_owned(),
            Err(error) => format!("it has no cgroup for programs ({error})"),
        };
        Some(format!("the daemon of this host cannot limit the memory of programs, because {why}: {CURE}"))
    }

    /// Makes a cgroup for a program, with its limits as far as that is possible here, and puts the program's part into
    /// it, which has started nothing yet.
    pub fn make(&self, id: ProgramId, part: Pid, limits: Limits) -> Option<Cgroup> {
        let base = self.base.as_ref().ok()?;
        let made = base.make(id, part, limits);
        made.map_err(|error| tracing::warn!(program = %id, %error, "no cgroup, and so no limits")).ok()
    }

    /// Restores the cgroup that the daemon was started in. To be called at the daemon's end.
    pub fn leave(&self) {
        let Ok(Base { folder, own: Some(own), .. }) = &self.base else { return };
        // Leftovers stay: the next daemon removes them.
        let _ = write(folder, "cgroup.subtree_control", "-pids");
        let _ = write(folder, "cgroup.subtree_control", "-memory");
        let _ = write(folder, "cgroup.procs", "0");
        let _ = fs::remove_dir(own);
    }
}

impl fmt::Display for Cgroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.base {
            Ok(Base { limits_tasks: true, limits_memory: true, .. }) => {
                f.write_str("one for each program, with limits.tasks and limits of memory")
            }
            Ok(Base { limits_tasks: true, .. }) => {
                f.write_str("one for each program, with limits.tasks; without limits of memory")
            }
            Ok(Base { limits_memory: true, .. }) => {
                f.write_str("one for each program, with limits of memory; without limits.tasks")
            }
            Ok(Base { kills: true, .. }) => {
                f.write_str("one for each program, to kill it; without limits.tasks and limits of memory")
            }
            Ok(_) => f.write_str("one for each program, of no use: Linux 5.14 is the first that kills by them"),
            Err(error) => write!(f, "none: {error}"),
        }
    }
}

impl Base {
    fn find() -> io::Result<Base> {
        let list = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let folder = own_folder(&list, &mounts).ok_or_else(|| io::Error::other("there is no cgroup v2 here"))?;
        tidy(&folder);
        let mut base = Base { folder, own: None, kills: false, limits_tasks: false, limits_memory: false };
        let own = base.folder.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&own).map_err(|error| io::Error::other(format!("{}: {error}", own.display())))?;
        base.kills = own.join("cgroup.kill").exists();
        let controllers = fs::read_to_string(base.folder.join("cgroup.controllers")).unwrap_or_default();
        let has = |controller: &str| controllers.split_whitespace().any(|name| name == controller);
        base.limits_tasks = has("pids") && base.hand_on("pids", &own);
        base.limits_memory = has("memory") && base.hand_on("memory", &own);
        if base.own.is_none() {
            let _ = fs::remove_dir(&own); // on failure the next daemon does it
        }
        Ok(base)
    }

    /// Enables a controller in the programs' cgroups. Where the daemon is in the way of that, it moves to `own`.
    fn hand_on(&mut self, controller: &str, own: &Path) -> bool {
        let hand_on = || write(&self.folder, "cgroup.subtree_control", &format!("+{controller}")).is_ok();
        if hand_on() {
            return true;
        }
        if self.own.is_some() || write(own, "cgroup.procs", "0").is_err() {
            return false;
        }
        if hand_on() {
            self.own = Some(own.to_owned());
            return true;
        }
        let _ = write(&self.folder, "cgroup.procs", "0"); // other processes are in the way too: the daemon moves back
        false
    }

    fn make(&self, id: ProgramId, part: Pid, limits: Limits) -> io::Result<Cgroup> {
        let folder = self.folder.join(format!("{PREFIX}{}-{id}", std::process::id()));
        fs::create_dir(&folder)?;
        let memory_bytes = limits.memory_bytes.filter(|_| self.limits_memory);
        let cgroup = Cgroup { folder, memory_bytes, oom_kills: 0 }; // removed if the rest fails
        if self.limits_tasks {
            write(&cgroup.folder, "pids.max", &limits.tasks.to_string())?;
        }
        if let Some(bytes) = memory_bytes {
            write(&cgroup.folder, "memory.max", &bytes.to_string())?;
            // Else it would swap without an end. A host without swap has no such file.
            let _ = write(&cgroup.folder, "memory.swap.max", "0");
        }
        write(&cgroup.folder, "cgroup.procs", &part.as_raw_nonzero().to_string())?;
        Ok(cgroup)
    }
}

impl Cgroup {
    /// Returns its state, for the daemon that takes it over.
    pub(super) fn state(&self) -> CgroupState {
        (self.folder.clone(), self.memory_bytes, self.oom_kills)
    }

    /// Takes it over from a former daemon.
    pub(super) fn resume((folder, memory_bytes, oom_kills): CgroupState) -> Cgroup {
        Cgroup { folder, memory_bytes, oom_kills }
    }

    /// Kills all processes in it; none can fork in between. They go a moment later.
    pub fn kill(&self) {
        let _ = write(&self.folder, "cgroup.kill", "1"); // before Linux 5.14: `orphans` does it
    }

    /// Returns whether the kernel has killed processes of it for want of memory since the last call, and its limit;
    /// without one the host had no memory left. The kernel counts a kill before the process ends.
    pub fn out_of_memory(&mut self) -> Option<Option<u64>> {
        let events = fs::read_to_string(self.folder.join("memory.events")).ok()?;
        let kills = oom_kills(&events);
        let before = std::mem::replace(&mut self.oom_kills, kills);
        (kills > before).then_some(self.memory_bytes)
    }
}

/// Returns the number of kills in the text of `memory.events`.
fn oom_kills(events: &str) -> u64 {
    let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
    kills.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let start = Instant::now();
        while remove(&self.folder).is_err() && start.elapsed() < EMPTY_LIMIT {
            std::thread::sleep(PAUSE); // the killed processes are exiting
        }
    }
}

/// Removes a cgroup and those that a program may have made in it.
fn remove(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&entry.path())?;
    }
    fs::remove_dir(folder)
}

/// Removes the cgroups of killed daemons: they are empty, or they cannot be removed.
fn tidy(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()) {
            let _ = remove(&entry.path());
        }
    }
}

fn write(folder: &Path, file: &str, text: &str) -> io::Result<()> {
    // Not `fs::write`: it would create a missing file.
    let mut opened = fs::OpenOptions::new().write(true).open(folder.join(file))?;
    io::Write::write_all(&mut opened, text.as_bytes())
}

/// Returns the folder of this process's cgroup v2, from /proc/self/cgroup and /proc/self/mountinfo.
fn own_folder(list: &str, mounts: &str) -> Option<PathBuf> {
    let own = list.lines().find_map(|line| line.strip_prefix("0::"))?;
    let own = Path::new(own.strip_suffix(" (deleted)").unwrap_or(own));
    if own.components().any(|part| part == std::path::Component::ParentDir) {
        return None; // outside of this process's cgroup namespace
    }
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let (root, place) = (mount.split(' ').nth(3)?, mount.split(' ').nth(4)?);
        kind.starts_with("cgroup2 ").then_some(())?;
        Some(Path::new(place).join(own.strip_prefix(root).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        25 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - tmpfs tmpfs rw\n\
        31 30 0:27 / /sys/fs/cgroup/pids rw,nosuid shared:10 - cgroup cgroup rw,pids\n\
        32 30 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:11 - cgroup2 cgroup2 rw,nsdelegate\n";

    /// A folder in place of a cgroup: the kernel would make its files.
    #[test]
    fn kills_for_want_of_memory_are_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut cgroup = Cgroup { folder: folder.path().join("program"), memory_bytes: Some(7), oom_kills: 0 };
        assert_eq!(cgroup.out_of_memory(), None, "without the controller there is no such file");
        fs::create_dir(&cgroup.folder).unwrap();
        for (kills, told) in [(0, None), (2, Some(Some(7))), (2, None), (3, Some(Some(7)))] {
            let events = format!("low 0\nhigh 0\nmax 41\noom 9\noom_kill {kills}\noom_group_kill 1\n");
            fs::write(cgroup.folder.join("memory.events"), events).unwrap();
            assert_eq!(cgroup.out_of_memory(), told, "{kills}");
        }
        fs::remove_file(cgroup.folder.join("memory.events")).unwrap();
        assert_eq!(["", "oom_kill", "oom_kill x"].map(oom_kills), [0; 3]);
    }

    #[test]
    fn a_daemon_without_limits_says_why_and_gives_the_cure() {
        let base = |limits_memory| {
            let (folder, own) = ("/x".into(), None);
            Base { folder, own, kills: true, limits_tasks: true, limits_memory }
        };
        let why = |base: Result<Base, String>| Cgroups { base }.why_no_memory_limit().unwrap_or_default();
        assert_eq!(why(Ok(base(true))), "");
        for (base, words) in [(Ok(base(false)), "lacks the controller"), (Err("no v2".to_owned()), "(no v2)")] {
            let said = why(base);
            assert!(said.contains(words) && said.contains("Delegate=yes"), "{said}");
        }
        assert!(Cgroups { base: Ok(base(false)) }.to_string().ends_with("without limits of memory"));
    }

    #[test]
    fn the_own_cgroup_is_found() {
        let found = |list| own_folder(list, MOUNTS);
        let unit = "8:pids:/x\n0::/system.slice/gossamer-daemon.service\n";
        let place = "/sys/fs/cgroup/unified/system.slice/gossamer-daemon.service";
        assert_eq!(found(unit), Some(place.into()));
        assert_eq!(found("0::/\n"), Some("/sys/fs/cgroup/unified/".into()));
        assert_eq!(found("8:pids:/x\n"), None);
        assert_eq!(found("0::/../../init.scope\n"), None);
        assert_eq!(own_folder(unit, ""), None);
        let part = "40 25 0:28 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(own_folder("0::/docker/1/a\n", part), Some("/sys/fs/cgroup/a".into()));
        assert_eq!(own_folder("0::/docker/2\n", part), None);
    }
}
