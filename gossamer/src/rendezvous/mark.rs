//! Mark of a machine. A child process of a machine inherits the variables, but is not meant by them: it runs alone.
//!
//! A machine marks itself by a thread with a name computed from these variables. Only a process itself names its
//! threads, and every process may read the names in `/proc`: no other process can make a mark, remove one, or block a
//! reader of one. A process that finds an ancestor with this mark for the same variables is not meant; one with other
//! variables was started as one of several itself.

use std::sync::mpsc;

use comm::process_stat::ProcessStat;

use super::RendezvousError;
use super::detect::Method;
use super::pmi;
use super::variables::Get;

/// Variables that tell processes apart: where they meet, and the number of each.
const VARIABLES: [&str; 9] = [
    "GOSSAMER_MEET",
    "GOSSAMER_COUNT",
    "GOSSAMER_INDEX",
    "JOB_COMPLETION_INDEX",
    "PMI_FD",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
];
/// Most ancestors that are checked.
const ANCESTORS_MAX: usize = 64;
/// Bits of the hash that fit into the kernel's 15 bytes for a thread's name.
const SUM_BITS: u32 = 44;

/// Returns the name of the thread that marks a machine with these variables.
fn name(get: Get<'_>) -> String {
    // FNV-1a: a child process may be built by another compiler, so the hash must be the same everywhere.
    let add = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut sum = 0xcbf2_9ce4_8422_2325;
    for variable in VARIABLES {
        let value = get(variable).unwrap_or_default();
        sum = value.as_encoded_bytes().iter().copied().fold(sum, add);
        sum = add(sum, 0); // no value contains it
    }
    format!("gsm-{:011x}", sum & ((1 << SUM_BITS) - 1))
}

/// Marks this process, so that its child processes see that the variables are not meant for them.
pub(super) fn mark_as_machine(get: Get<'_>) -> Result<(), RendezvousError> {
    let (tell, named) = mpsc::channel();
    let stay = move || {
        let _ = tell.send(()); // the name is set: the spawner of this thread waits for that
        loop {
            std::thread::park();
        }
    };
    let thread = std::thread::Builder::new().name(name(get)).stack_size(16 * 1024).spawn(stay);
    thread.map_err(RendezvousError::system("start the thread that marks this process as a machine"))?;
    named.recv().map_err(|_| RendezvousError::Wrong("the thread that marks this process has ended".to_owned()))
}

/// Returns whether the variables of this method were meant for an ancestor of this process, a machine, which has passed
/// them on.
pub(super) fn is_inherited(method: &Result<Method, RendezvousError>, get: Get<'_>) -> bool {
    match method {
        Ok(Method::Alone) => false,
        // A machine does not pass its descriptor on to child processes: a process that has one got it from a process
        // manager.
        Ok(Method::Pmi(variables)) if pmi::is_handed_over(variables.fd) => false,
        _ => has_marked_ancestor(&name(get)),
    }
}

fn has_marked_ancestor(mark: &str) -> bool {
    let mut pid = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    for _ in 0..ANCESTORS_MAX {
        if pid <= 0 {
            return false;
        }
        if is_marked(pid, mark) {
            return true;
        }
        pid = parent(pid).unwrap_or(0);
    }
    false
}

/// Returns the parent of a process.
pub(super) fn parent(pid: i32) -> Option<i32> {
    ProcessStat::of(pid).map(|stat| stat.parent)
}

fn is_marked(pid: i32, mark: &str) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    threads.flatten().filter_map(|thread| name(thread).ok()).any(|name| name.trim_end() == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(variables: &[(&'static str, &str)]) -> String {
        name(&|name| variables.iter().find(|(found, _)| *found == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn other_variables_are_another_mark_that_fits_the_name_of_a_thread() {
        let all = [
            name_of(&[]),
            name_of(&[("GOSSAMER_MEET", "h:1"), ("GOSSAMER_INDEX", "1")]),
            name_of(&[("GOSSAMER_MEET", "h:1"), ("GOSSAMER_INDEX", "2")]),
            name_of(&[("GOSSAMER_MEET", "h:1"), ("JOB_COMPLETION_INDEX", "1")]),
            name_of(&[("PMIX_RANK", "1")]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(one.len() == 15 && all[at + 1..].iter().all(|other| other != one), "{all:?}");
        }
        assert_eq!(name_of(&[("HOME", "/")]), all[0], "a variable that says nothing of a start");
    }

    #[test]
    fn who_is_started_by_a_machine_sees_that() {
        let get: Get<'_> = &|name| (name == "GOSSAMER_MEET").then(|| "h:1".into());
        let own = rustix::process::getpid().as_raw_nonzero().get();
        assert!(!is_marked(own, &name(get)));
        mark_as_machine(get).unwrap();
        assert!(is_marked(own, &name(get)) && !is_marked(own, &name_of(&[("GOSSAMER_MEET", "h:2")])));
        assert!(!has_marked_ancestor(&name(get)), "this one is none of its own children");
        assert_eq!(parent(own), rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()));
    }
}
