//! Which cores there are for this process (O7): those that its affinity leaves, and how many of them a cgroup's CPU
//! quota pays for.
//!
//! The standard library knows quotas (cgroup v1 and v2, the smallest of all levels, rounded down to whole cores, one at
//! least), but says the smaller of quota and affinity only, and reads files for it: so it is asked once, where the
//! affinity leaves all cores.

use std::num::NonZero;
use std::sync::OnceLock;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What there is for all threads of this process.
#[derive(Clone, Copy)]
struct Process {
    /// Cores that a thread of it could run on.
    cores: usize,
    /// So many the quota pays for, if fewer.
    quota: Option<usize>,
}

fn process() -> Process {
    static PROCESS: OnceLock<Process> = OnceLock::new();
    *PROCESS.get_or_init(|| {
        // On a thread of its own: the caller may be pinned to one core.
        let asked = thread::Builder::new().name("trust-cores".to_owned()).spawn(|| {
            let mut all = CpuSet::new();
            (0..CpuSet::MAX_CPU).for_each(|core| all.set(core));
            // The kernel leaves out those that a cpuset forbids. Where it refuses, the cores stay those of the caller.
            let _ = sched_setaffinity(None, &all);
            count()
        });
        asked.ok().and_then(|asked| asked.join().ok()).unwrap_or_else(count)
    })
}

/// As the calling thread's affinity has it.
fn count() -> Process {
    let left = thread::available_parallelism().map_or(1, NonZero::get);
    match allowed().len() {
        0 => Process { cores: left, quota: None },
        cores => Process { cores, quota: (left < cores).then_some(left) },
    }
}

/// How many cores the CPU quota of this process' cgroups pays for, rounded down, one at least. `None` if that is no
/// limit: as many as there are, or more. Read once: a quota that is changed while the process runs is not noticed.
pub fn quota() -> Option<usize> {
    process().quota
}

/// How many threads of this process can run at the same time, wherever they may run.
pub(crate) fn of_process() -> usize {
    let Process { cores, quota } = process();
    quota.unwrap_or(cores)
}

/// The cores that the calling thread, and threads that it starts, may run on. Empty where the system does not say.
pub(crate) fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Has the calling thread run on this core only. A failure leaves it where it is.
pub(crate) fn pin_to(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

/// The cores of the machine, as a pool sees them.
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

    /// Cores that the affinity leaves.
    pub(crate) fn count(&self) -> usize {
        if self.allowed.is_empty() { of_process() } else { self.allowed.len() }
    }

    /// How many threads can run at the same time.
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
