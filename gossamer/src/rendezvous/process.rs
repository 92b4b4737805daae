//! Processes of this host that are killed if nothing else ends them. The number of a process is soon reused, so each is
//! held by a descriptor from when it connected; its start time shows that the descriptor is of the process that
//! introduced itself: no two processes of a number begin at the same moment.

use std::os::fd::OwnedFd;
use std::sync::Once;

use comm::process_stat::ProcessStat;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::complain::complain;

/// Identity of a process, for processes that see the same numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessIdentity {
    pub(super) pid: u32,
    /// Its start, in the kernel's ticks since boot; 0 if the kernel does not tell.
    started: u64,
}

impl ProcessIdentity {
    pub(super) fn of_this_process() -> ProcessIdentity {
        let pid = std::process::id();
        ProcessIdentity { pid, started: started(pid) }
    }
}

fn started(pid: u32) -> u64 {
    let stat = i32::try_from(pid).ok().and_then(ProcessStat::of);
    stat.map_or(0, |stat| stat.started)
}

/// Handle of a process: it never means another one.
pub(super) struct Process(OwnedFd);

impl Process {
    /// Holds a process; `None` if it has gone, or cannot be held; the latter is reported, once.
    pub(super) fn hold(identity: ProcessIdentity) -> Option<Process> {
        let pid = i32::try_from(identity.pid).ok().and_then(Pid::from_raw)?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            // Read after the descriptor was opened: if the number was another's by then, the start time differs.
            Ok(process) => (started(identity.pid) == identity.started).then_some(Process(process)),
            Err(Errno::SRCH) => None,
            Err(error) => {
                report(error);
                None
            }
        }
    }

    pub(super) fn kill(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::KILL); // it may have gone
    }
}

fn report(error: Errno) {
    static TOLD: Once = Once::new();
    let cure = match error {
        Errno::PERM | Errno::NOSYS => {
            "allow pidfd_open and pidfd_send_signal in the container's seccomp profile (Linux 5.3 has them)"
        }
        Errno::MFILE | Errno::NFILE => "raise the limit with `ulimit -n`",
        _ => "see whether /proc and the kernel (Linux 5.3 or later) are as usual",
    };
    TOLD.call_once(|| {
        complain(format_args!(
            "processes of this host cannot be held (pidfd_open: {error}), so one that stands still stays when the \
             program ends: {cure}"
        ));
    });
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_killed_and_one_that_has_its_number_is_not() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = ProcessIdentity { pid: child.id(), started: started(child.id()) };
        assert!(identity.started > 0);
        // As if the process that connected had begun at another time.
        assert!(Process::hold(ProcessIdentity { started: identity.started - 1, ..identity }).is_none());
        let process = Process::hold(identity).unwrap();
        process.kill();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        process.kill(); // no process any more
        assert!(Process::hold(identity).is_none());
    }

    #[test]
    fn this_process_is_itself() {
        let own = ProcessIdentity::of_this_process();
        assert_eq!(own, ProcessIdentity::of_this_process());
        assert!(Process::hold(own).is_some());
    }
}
