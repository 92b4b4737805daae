//! Kills children that may fork faster than one can look: a chain of processes that live for a tenth of a millisecond
//! each, in groups and sessions of their own.
//!
//! Two things help. A process group is killed whole, between two forks of its members: only the children of this
//! process are chased; when one is killed, its own become ours. And the dead are not collected meanwhile: a program
//! with a limit of tasks uses it up, and can fork no more.

use std::collections::HashSet;
use std::io::Read;
use std::time::{Duration, Instant};

use comm::process_stat::ProcessStat;
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

/// Limits on uncollected dead processes, in time and number: a host may have only 32,768 process numbers.
const CHASE_LIMIT: Duration = Duration::from_millis(50);
const CHASE_DEAD: usize = 1000;

/// Kills the children for which `is_hunted` holds, until all of them have their signal, for a while. Nothing is
/// collected, and the caller lets nobody else collect, so each number stays valid. Returns the children that have got a
/// signal.
pub(super) fn kill_all(is_hunted: impl Fn(Pid) -> bool) -> HashSet<Pid> {
    let start = Instant::now();
    let mut killed = HashSet::new();
    loop {
        let mut is_new = false;
        // The youngest first: the others may be dead already.
        for child in children().into_iter().rev().filter(|child| is_hunted(*child)) {
            if killed.insert(child) {
                is_new = true;
                let _ = kill_process(child, Signal::KILL); // dead already, or another user's: the caller counts
                kill_group_of(child);
            }
        }
        if !is_new || start.elapsed() >= CHASE_LIMIT || killed.len() >= CHASE_DEAD {
            return killed;
        }
    }
}

/// Kills the process group of a child, where only descendants of this process can be in it: a process may join any
/// group of its session, so a group in this process's session is left alone.
fn kill_group_of(child: Pid) {
    let own = getpid().as_raw_nonzero().get();
    let child = child.as_raw_nonzero().get();
    let is_apart = session(0) == own || session(child) != session(0);
    // Group 1 would mean everybody; a group outside of this namespace is 0.
    let group = Some(group(child)).filter(|number| *number > 1 && *number != group(0));
    if let Some(group) = group.and_then(Pid::from_raw).filter(|_| is_apart) {
        let _ = kill_process_group(group, Signal::KILL); // it has gone: as good
    }
}

/// Returns the session of a process; 0 is this one. (`rustix` takes for granted that there is one: in a container it
/// may lie outside.)
pub(super) fn session(pid: i32) -> i32 {
    // SAFETY: the call takes and returns a number.
    unsafe { libc::getsid(pid) }
}

/// Process group of a process; 0 is this one.
fn group(pid: i32) -> i32 {
    // SAFETY: as `session`.
    unsafe { libc::getpgid(pid) }
}

/// Returns the children of this process, the dead ones included, in the order in which they came.
pub(super) fn children() -> Vec<Pid> {
    children_of_threads().unwrap_or_else(by_all_processes)
}

/// Returns the children from each thread's `children` file; orphans are with a live thread. `None` where the kernel has
/// no such file.
fn children_of_threads() -> Option<Vec<Pid>> {
    let mut all = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let mut text = String::new();
        match std::fs::File::open(thread.path().join("children")) {
            Ok(mut file) => drop(file.read_to_string(&mut text)), // the thread has ended: its children are with another
            Err(_) if thread.path().exists() => return None,
            Err(_) => {}
        }
        all.extend(text.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Some(all)
}

fn by_all_processes() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero().get();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| ProcessStat::of(*pid).is_some_and(|stat| stat.parent == own)).filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_in_both_ways() {
        // Other tests have children too.
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let found = [children_of_threads(), Some(by_all_processes())];
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.iter().flatten().all(|found| found.contains(&pid)), "{pid:?}: {found:?}");
    }
}
