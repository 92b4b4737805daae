//! Memory limit of this process and the memory left: the minimum over the system, the process' control groups (versions
//! 1 and 2, all levels) and its resource limits. For the packages above; a process that asks for more is killed or
//! refused.
//!
//! Here: the meaning of the numbers. The files of control groups: `groups.rs`.

mod groups;

use std::fs;
use std::path::Path;

use groups::Group;

/// Function that reads a file; `None` if there is no such file. Tests pass files of their own.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// Returns the bytes of memory that this process may have, regardless of use: the least of the system's memory, of the
/// limits of its control groups (`memory.max` and `memory.high`, or `memory.limit_in_bytes`), of its address space
/// (`ulimit -v`) and of its data (`ulimit -d`). `None` if nothing is known. Limits change while a program runs: each
/// call reads them again.
#[must_use]
pub fn limit() -> Option<u64> {
    limit_in(&|path| fs::read_to_string(path).ok())
}

/// Returns the bytes of memory that this process can take now: the least that is available in the system, in its
/// control groups, in its address space and of its data. Cached files, which the system can drop, count as available.
/// `None` if nothing is known.
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

/// Limit of this process alone.
struct Resource {
    limit: u64,
    used: u64,
}

/// Returns the resource limits on memory that are set.
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

/// Returns the value of a line such as `MemTotal:   123 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(all(test, not(loom)))]
mod tests;
