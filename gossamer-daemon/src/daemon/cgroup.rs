//! A cgroup (version 2) for each program, below the daemon's own, where the host allows it. All processes in it can be
//! killed in one go, however fast they fork, and it has a limit of tasks.
//!
//! Without cgroups (no cgroup v2, not this user's, read-only as in many containers) programs run all the same:
//! [`crate::orphans`] ends their leftover processes in any case.
//!
//! ```text
//! BASE                          where the daemon was started: its unit's, with `Delegate=yes`
//! BASE/gossamer-4711            the daemon, where it limits tasks: BASE, with controllers for others, has no process
//! BASE/gossamer-4711-1d30d443   a program: its part and all that descends from it
//! ```

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::wire::ProgramId;

/// Time limit for a cgroup to be empty once its processes are killed.
const EMPTY_LIMIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(2);
const PREFIX: &str = "gossamer-";

/// Parent of the programs' cgroups.
pub struct Cgroups {
    base: Result<Base, String>,
}

struct Base {
    folder: PathBuf,
    /// Cgroup that the daemon has moved to.
    own: Option<PathBuf>,
    kills: bool,
    limits: bool,
}

/// Cgroup of a program. Removed on drop, when it is empty.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
}

impl Cgroups {
    /// Probes the cgroup of this process.
    pub fn set_up() -> Cgroups {
        Cgroups { base: Base::find().map_err(|error| error.to_string()) }
    }

    /// Returns whether the programs' cgroups have a limit of tasks.
    pub fn limits_tasks(&self) -> bool {
        self.base.as_ref().is_ok_and(|base| base.limits)
    }

    /// Makes a cgroup for a program, with a limit of `tasks`, and puts the program's part into it, which has started
    /// nothing yet.
    pub fn make(&self, id: ProgramId, part: Pid, tasks: u32) -> Option<Cgroup> {
        let base = self.base.as_ref().ok()?;
        let made = base.make(id, part, tasks);
        made.map_err(|error| tracing::warn!(program = %id, %error, "no cgroup, and so no limit of tasks")).ok()
    }

    /// Restores the cgroup that the daemon was started in. To be called at the daemon's end.
    pub fn leave(&self) {
        let Ok(Base { folder, own: Some(own), .. }) = &self.base else { return };
        // Leftovers stay: the next daemon removes them.
        let _ = write(folder, "cgroup.subtree_control", "-pids");
        let _ = write(folder, "cgroup.procs", "0");
        let _ = fs::remove_dir(own);
    }
}

impl fmt::Display for Cgroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.base {
            Ok(Base { limits: true, .. }) => f.write_str("one for each program, with limits.tasks"),
            Ok(Base { kills: true, .. }) => f.write_str("one for each program, to kill it; without limits.tasks"),
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
        let mut base = Base { folder, own: None, kills: false, limits: false };
        let own = base.folder.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&own).map_err(|error| io::Error::other(format!("{}: {error}", own.display())))?;
        base.kills = own.join("cgroup.kill").exists();
        let controllers = fs::read_to_string(base.folder.join("cgroup.controllers")).unwrap_or_default();
        if controllers.split_whitespace().any(|name| name == "pids") {
            base.limits = base.hand_on_pids(&own);
        }
        if base.own.is_none() {
            let _ = fs::remove_dir(&own); // on failure the next daemon does it
        }
        Ok(base)
    }

    /// Enables the limit of tasks in the programs' cgroups. Where the daemon is in the way of that, it moves to `own`.
    fn hand_on_pids(&mut self, own: &Path) -> bool {
        let hand_on = || write(&self.folder, "cgroup.subtree_control", "+pids").is_ok();
        if hand_on() {
            return true;
        }
        if write(own, "cgroup.procs", "0").is_err() {
            return false;
        }
        if hand_on() {
            self.own = Some(own.to_owned());
            return true;
        }
        let _ = write(&self.folder, "cgroup.procs", "0"); // other processes are in the way too: the daemon moves back
        false
    }

    fn make(&self, id: ProgramId, part: Pid, tasks: u32) -> io::Result<Cgroup> {
        let folder = self.folder.join(format!("{PREFIX}{}-{id}", std::process::id()));
        fs::create_dir(&folder)?;
        let cgroup = Cgroup { folder }; // removed if the rest fails
        if self.limits {
            write(&cgroup.folder, "pids.max", &tasks.to_string())?;
        }
        write(&cgroup.folder, "cgroup.procs", &part.as_raw_nonzero().to_string())?;
        Ok(cgroup)
    }
}

impl Cgroup {
    /// Kills all processes in it; none can fork in between. They go a moment later.
    pub fn kill(&self) {
        let _ = write(&self.folder, "cgroup.kill", "1"); // before Linux 5.14: `orphans` does it
    }
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
