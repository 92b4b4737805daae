//! The control groups that bound a process' memory: `/proc/self/cgroup` names its groups, `/proc/self/mountinfo` the
//! place of their files.
//!
//! A group's path is as seen from the root of its hierarchy, or of the process' cgroup namespace. A mount shows a part
//! of the hierarchy, whose path it has as its root: in a container without a namespace of its own that is the
//! container's group.

use std::path::{Path, PathBuf};

use super::Read;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A group of the process, or one that contains it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    version: Version,
    folder: PathBuf,
}

impl Group {
    /// All groups that bound this process and have files here, the innermost first.
    pub(super) fn all(read: Read<'_>) -> Vec<Group> {
        let text = |path| read(Path::new(path)).unwrap_or_default();
        all(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"))
    }

    fn number(&self, read: Read<'_>, name: &str) -> Option<u64> {
        // "max" is no limit.
        read(&self.folder.join(name))?.trim().parse().ok()
    }

    fn stat(&self, read: Read<'_>, name: &str) -> Option<u64> {
        let text = read(&self.folder.join("memory.stat"))?;
        let (_, value) = text.lines().filter_map(|line| line.split_once(' ')).find(|(found, _)| *found == name)?;
        value.trim().parse().ok()
    }

    /// Hard limit: beyond it processes are killed.
    fn most(&self, read: Read<'_>) -> Option<u64> {
        match self.version {
            Version::Two => self.number(read, "memory.max"),
            // The second has the limits of groups that this mount does not show.
            Version::One => [self.number(read, "memory.limit_in_bytes"), self.stat(read, "hierarchical_memory_limit")]
                .into_iter()
                .flatten()
                .min(),
        }
    }

    /// Bytes that it may have.
    pub(super) fn limit(&self, read: Read<'_>) -> Option<u64> {
        // Beyond `high` its processes are slowed down.
        let high = if self.version == Version::Two { self.number(read, "memory.high") } else { None };
        [self.most(read), high].into_iter().flatten().min()
    }

    /// Bytes that it may still take.
    pub(super) fn left(&self, read: Read<'_>) -> Option<u64> {
        let (used, files) = match self.version {
            Version::Two => ("memory.current", "inactive_file"),
            Version::One => ("memory.usage_in_bytes", "total_inactive_file"),
        };
        let (most, used) = (self.most(read)?, self.number(read, used)?);
        Some(most.saturating_sub(used.saturating_sub(self.stat(read, files).unwrap_or(0))))
    }
}

fn all(cgroup: &str, mountinfo: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in cgroup.lines() {
        // Number of the hierarchy, its controllers, the group's path.
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let version = match controllers {
            "" => Version::Two,
            _ if controllers.split(',').any(|each| each == "memory") => Version::One,
            _ => continue,
        };
        for mount in mountinfo.lines().filter_map(Mount::parse).filter(|mount| mount.version == version) {
            let inner = mount.place_of(Path::new(path));
            let levels = inner.ancestors().take_while(|folder| folder.starts_with(&mount.place));
            groups.extend(levels.map(|folder| Group { version, folder: folder.into() }));
        }
    }
    groups
}

/// Mount point of a hierarchy with the memory controller, or of that of version 2.
#[derive(Debug)]
struct Mount {
    version: Version,
    /// The group that is seen there.
    root: PathBuf,
    place: PathBuf,
}

impl Mount {
    /// A line of `mountinfo`: numbers, root, place and options, then after a dash type, source and the file system's
    /// options.
    fn parse(line: &str) -> Option<Mount> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, place) = (mount.next()?, mount.next()?);
        let mut system = system.split(' ');
        let version = match system.next()? {
            "cgroup2" => Version::Two,
            "cgroup" if system.nth(1)?.split(',').any(|each| each == "memory") => Version::One,
            _ => return None,
        };
        Some(Mount { version, root: unescaped(root).into(), place: unescaped(place).into() })
    }

    /// The folder of the group with this path; that of the mount if the group is not below it.
    fn place_of(&self, group: &Path) -> PathBuf {
        match group.strip_prefix(&self.root) {
            Ok(rest) if !rest.components().any(|each| each.as_os_str() == "..") => self.place.join(rest),
            _ => self.place.clone(),
        }
    }
}

/// A space stands there as `\040`.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}
