//! Cores available to this process: those that its affinity leaves, and the number of them that a cgroup's CPU quota
//! pays for.
//!
//! The standard library knows quotas (cgroup v1 and v2, the smallest of all levels, rounded down to whole cores, at
//! least one), but returns only the smaller of quota and affinity, and reads files for it. So it is asked once, on a
//! thread with an affinity for all cores.

use std::num::NonZero;
use std::sync::OnceLock;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Limits that hold for all threads of this process.
#[derive(Clone, Copy)]
struct Process {
    /// Cores that a thread of the process could run on.
    cores: usize,
    /// Number of cores that the quota pays for, if fewer.
    quota: Option<usize>,
}

fn process() -> Process {
    static PROCESS: OnceLock<Process> = OnceLock::new();
    *PROCESS.get_or_init(|| {
        // On a separate thread: the caller may be pinned to one core.
        let asked = thread::Builder::new().name("trust-cores".to_owned()).spawn(|| {
            let mut all = CpuSet::new();
            (0..CpuSet::MAX_CPU).for_each(|core| all.set(core));
            // The kernel leaves out cores that a cpuset forbids. If it refuses, the cores are those of the caller.
            let _ = sched_setaffinity(None, &all);
            count()
        });
        asked.ok().and_then(|asked| asked.join().ok()).unwrap_or_else(count)
    })
}

/// Counts the cores under the calling thread's affinity.
fn count() -> Process {
    let left = thread::available_parallelism().map_or(1, NonZero::get);
    match allowed().len() {
        0 => Process { cores: left, quota: None },
        cores => Process { cores, quota: (left < cores).then_some(left) },
    }
}

/// Returns the number of cores that the CPU quota of this process' cgroups pays for, rounded down, at least one. `None`
/// if that is no limit: all cores, or more. Read once: a quota that changes while the process runs is not noticed.
pub fn quota() -> Option<usize> {
    process().quota
}

/// Returns the number of threads of this process that can run at the same time, on any of its cores.
pub(crate) fn of_process() -> usize {
    let Process { cores, quota } = process();
    quota.unwrap_or(cores)
}

/// Returns the cores that the calling thread, and threads that it starts, may run on. Empty if the system does not say.
pub(crate) fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Pins the calling thread to this core. If that fails its affinity does not change.
pub(crate) fn pin_to(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

/// Cores of the machine that a pool may use.
pub(crate) struct Cores {
    pub(crate) allowed: Vec<usize>,
    pub(crate) quota: Option<usize>,
}

impl Cores {
    pub(crate) fn here() -> Cores {
        let allowed = allowed();
        let count = if allowed.is_empty() { of_process() } else { allowed.len() };
        Cores { quota: quota().filter(|&quota| quota < count), allowed }
    }

    /// Returns the number of cores that the affinity leaves.
    pub(crate) fn count(&self) -> usize {
        if self.allowed.is_empty() { of_process() } else { self.allowed.len() }
    }

    /// Returns the number of threads that can run at the same time.
    pub(crate) fn usable(&self) -> usize {
        self.quota.unwrap_or_else(|| self.count())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_not_taken_for_a_quota() {
        let cores = allowed();
        let (process, pinned) = thread::scope(|scope| {
            let asked = scope.spawn(|| {
                pin_to(cores[0]);
                (of_process(), allowed())
            });
            asked.join().expect("it does not panic")
        });
        assert_eq!(pinned, [cores[0]]);
        assert!(process >= cores.len().min(quota().unwrap_or(usize::MAX)), "{process} of {cores:?}");
    }
}
