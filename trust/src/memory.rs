//! How much memory this process may have, and how much of that is left: the least that the system, the process' control
//! groups (versions 1 and 2, all levels) and its resource limits say. For the packages above; those who ask for more
//! are killed or refused.
//!
//! Here: what the numbers mean. Which files control groups have: `groups.rs`.

mod groups;

use std::fs;
use std::path::Path;

use groups::Group;

/// How the text of a file is had; `None` where there is no such file. Tests have files of their own.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// Bytes of memory that this process may have, whatever is in use: the least of the system's memory, of the limits of
/// its control groups (`memory.max` and `memory.high`, or `memory.limit_in_bytes`), of its address space (`ulimit -v`)
/// and of its data (`ulimit -d`). `None` where nothing is known. Limits change while a program runs: each call looks
/// anew.
#[must_use]
pub fn limit() -> Option<u64> {
    limit_in(&|path| fs::read_to_string(path).ok())
}

/// Bytes of memory that this process can take now: the least that is available in the system, in its control groups, in
/// its address space and of its data. What the system has of files, and can drop, counts as available. `None` where
/// nothing is known.
#[must_use]
pub fn left() -> Option<u64> {
    left_in(&|path| fs::read_to_string(path).ok())
}

fn limit_in(read: Read<'_>) -> Option<u64> {
    let system = read(Path::new("/proc/meminfo")).and_then(|text| kibibytes(&text, "MemTotal:"));
    let groups = Group::all(read);
    let groups = groups.iter().filter_map(|group| group.limit(read));
    system.into_iter().chain(groups).chain(resources(read).iter().map(|resource| resource.limit)).min()
}

fn left_in(read: Read<'_>) -> Option<u64> {
    let system = read(Path::new("/proc/meminfo")).and_then(|text| kibibytes(&text, "MemAvailable:"));
    let groups = Group::all(read);
    let groups = groups.iter().filter_map(|group| group.left(read));
    let resources = resources(read);
    let resources = resources.iter().map(|resource| resource.limit.saturating_sub(resource.used));
    system.into_iter().chain(groups).chain(resources).min()
}

/// A limit of this process alone.
struct Resource {
    limit: u64,
    used: u64,
}

/// Those that memory counts for, where they are set.
fn resources(read: Read<'_>) -> Vec<Resource> {
    let Some(limits) = read(Path::new("/proc/self/limits")) else { return Vec::new() };
    let status = read(Path::new("/proc/self/status")).unwrap_or_default();
    [("Max address space", "VmSize:"), ("Max data size", "VmData:")]
        .into_iter()
        .filter_map(|(name, used)| {
            // The soft limit, in bytes.
            let limit = limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
            Some(Resource { limit: limit.parse().ok()?, used: kibibytes(&status, used).unwrap_or(0) })
        })
        .collect()
}

/// A line such as `MemTotal:   123 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(all(test, not(loom)))]
mod tests;
