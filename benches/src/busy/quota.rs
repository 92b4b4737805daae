//! A cgroup that bounds the CPU time of the processes in it, by version 1 or 2 of cgroups, whichever has the `cpu`
//! controller here.

use crate::prelude::*;
use std::process;
use std::{fs, io};

/// CPU time is handed out anew so often, in microseconds: the kernel's default.
const PERIOD_US: u32 = 100_000;
const NAME: &str = "gossamer-bench-";

/// The cgroup; it is removed when this is dropped.
#[derive(Debug)]
pub struct Quota {
    folder: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Quota {
    /// A cgroup with CPU time for so many cores, or why there can be none.
    pub fn new(cores: f64) -> Result<Self, String> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mut whys = Vec::new();
        for (version, parent) in candidates(&read("/proc/mounts"), &read("/proc/self/cgroup")) {
            remove_stale(&parent);
            match Self::in_folder(version, &parent, cores) {
                Ok(quota) => return Ok(quota),
                Err(why) => whys.push(format!("{}: {why}", parent.display())),
            }
        }
        whys.dedup();
        Err(match whys.first() {
            Some(first) => format!("no cgroup can be written ({first})"),
            None => "there is no cgroup with a cpu controller".to_owned(),
        })
    }

    fn in_folder(version: Version, parent: &Path, cores: f64) -> io::Result<Self> {
        let folder = parent.join(format!("{NAME}{}", process::id()));
        fs::create_dir(&folder)?;
        let quota = Self { folder };
        let quota_us = (cores * f64::from(PERIOD_US)) as u64;
        let write = |file: &str, text: String| fs::write(quota.folder.join(file), text);
        match version {
            Version::One => {
                write("cpu.cfs_period_us", PERIOD_US.to_string())?;
                write("cpu.cfs_quota_us", quota_us.to_string())?;
            }
            Version::Two => {
                if !quota.folder.join("cpu.max").exists() {
                    fs::write(parent.join("cgroup.subtree_control"), "+cpu")?;
                }
                write("cpu.max", format!("{quota_us} {PERIOD_US}"))?;
            }
        }
        quota.try_out()?;
        Ok(quota)
    }

    /// Puts a process into it.
    pub fn admit(&self, process: u32) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), process.to_string())
    }

    /// Lets a process in that does nothing.
    fn try_out(&self) -> io::Result<()> {
        let sleeping = Program::at("/bin/sleep").say("60").start().map_err(io::Error::other)?;
        self.admit(sleeping.id())
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Without processes in it a cgroup's folder is removed as if it were empty.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Removes the cgroups of programs that were killed; a cgroup in use stays.
fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(NAME) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The cgroups that a new one may be made in, the likeliest first: our own one, and in version 2, where one with
/// processes of its own cannot hand out CPU time, those around it.
fn candidates(mounts: &str, own: &str) -> Vec<(Version, PathBuf)> {
    let mut candidates = Vec::new();
    for mount in mounts.lines() {
        let fields: Vec<&str> = mount.split(' ').collect();
        let &[_, place, kind, options, ..] = &fields[..] else { continue };
        let has_cpu = |list: &str| list.split(',').any(|one| one == "cpu");
        let own_path = |is_own: &dyn Fn(&str) -> bool| {
            let path = own.lines().find_map(|line| {
                let (_, line) = line.split_once(':')?;
                let (controllers, path) = line.split_once(':')?;
                is_own(controllers).then_some(path)
            });
            // In a container the path may be that of the host, which is not there.
            let place = Path::new(place);
            let folder = path.map(|path| place.join(path.trim_start_matches('/')));
            folder.filter(|folder| folder.exists()).unwrap_or_else(|| place.to_owned())
        };
        match kind {
            "cgroup" if has_cpu(options) => candidates.push((Version::One, own_path(&has_cpu))),
            "cgroup2" => {
                let folder = own_path(&str::is_empty);
                let around = folder.ancestors().take_while(|folder| folder.starts_with(place));
                candidates.extend(around.map(|folder| (Version::Two, folder.to_owned())));
            }
            _ => {}
        }
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_is_found_by_its_controller() {
        let mounts =
            "cgroup /nowhere/cpuset cgroup rw,cpuset 0 0\ncgroup /nowhere/cpu cgroup rw,relatime,cpu,cpuacct 0 0";
        let found = candidates(mounts, "3:cpuset:/a\n2:cpu,cpuacct:/b\n0::/c");
        assert_eq!(found, [(Version::One, PathBuf::from("/nowhere/cpu"))], "/b is not there: the root of the mount");
    }

    #[test]
    fn version_2_is_tried_from_the_own_cgroup_outwards() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("slice/scope")).unwrap();
        let mounts = format!("cgroup2 {} cgroup2 rw,nosuid 0 0", root.path().display());
        let found = candidates(&mounts, "0::/slice/scope");
        let folders: Vec<_> = found.iter().map(|(version, folder)| (*version, folder.as_path())).collect();
        let [scope, slice] = ["slice/scope", "slice"].map(|path| root.path().join(path));
        assert_eq!(folders, [(Version::Two, &*scope), (Version::Two, &*slice), (Version::Two, root.path())]);
    }

    #[test]
    fn without_cgroups_there_is_none() {
        assert_eq!(candidates("proc /proc proc rw 0 0", "0::/"), []);
    }

    #[test]
    fn stale_cgroups_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let [stale, other] = [format!("{NAME}1"), "other".to_owned()].map(|name| root.path().join(name));
        fs::create_dir(&stale).unwrap();
        fs::create_dir(&other).unwrap();
        remove_stale(root.path());
        assert!(!stale.exists() && other.exists());
    }
}
