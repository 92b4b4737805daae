//! Liveness of the peers: a pidfd of each, and its seat in the control file.
//!
//! A pidfd becomes readable when its process ends, in any way, and reaped or not. A machine that leaves
//! gracefully first marks its seat; so a process that ended while its seat says `Up` has died. Where the
//! system refuses pidfds, processes are polled by pid and start time.

use super::control::{Control, Step};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::ids::{Loss, MachineId};
use crate::process_stat::ProcessStat;
use crate::waker::Waker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Processes of the other machines.
#[derive(Debug)]
pub(super) struct Peers {
    pidfds: Vec<(MachineId, OwnedFd)>,
    /// Processes without a pidfd.
    numbered: Vec<(MachineId, Numbered)>,
    /// Woken when the watch is over.
    end: Waker,
}

/// Interval of the polls of processes without a pidfd.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A process by pid and start time: no two processes with one pid start at the same moment.
#[derive(Debug)]
struct Numbered {
    pid: Pid,
    began: u64,
}

impl Numbered {
    /// Returns the process of this pid; `None` if it has ended.
    fn find(pid: Pid) -> Option<Numbered> {
        Some(Numbered { pid, began: began(pid)? })
    }

    fn has_ended(&self) -> bool {
        began(self.pid) != Some(self.began)
    }
}

/// Returns the start time of the process of this pid; `None` if no such process lives.
fn began(pid: Pid) -> Option<u64> {
    let stat = ProcessStat::of(pid.as_raw_nonzero().get())?;
    (!stat.is_dead).then_some(stat.started)
}

/// Result of a look at the processes.
enum Found {
    Ended(MachineId),
    /// The watch is over.
    End,
    Nothing,
}

impl Peers {
    pub(super) fn new() -> Result<Peers, Error> {
        Ok(Peers { pidfds: Vec::new(), numbered: Vec::new(), end: Waker::new()? })
    }

    /// Ends every watch.
    pub(super) fn end_watch(&self) {
        self.end.wake();
    }

    /// Opens a pidfd for the process of a machine that is `Sized`. `control.rs` says when the pidfd is reliable.
    pub(super) fn add(&mut self, machine: MachineId, pid: u64) -> Result<(), Error> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::bootstrap(format!("the control file gives {machine} no process")))?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => self.pidfds.push((machine, pidfd)),
            Err(Errno::SRCH) => return Err(Error::PeerLost { machine }),
            // Refused by a seccomp profile.
            Err(Errno::PERM | Errno::NOSYS) => {
                let numbered = Numbered::find(pid).ok_or(Error::PeerLost { machine })?;
                self.numbered.push((machine, numbered));
            }
            Err(error) => return Err(Error::system(format!("opening the process of {machine}"))(error)),
        }
        Ok(())
    }

    /// Returns whether `machine` is gone, and how.
    pub(super) fn lost(&self, machine: MachineId, control: &Control) -> Result<Option<Loss>, Error> {
        let found = self.look(Duration::ZERO, None, |candidate| candidate == machine)?;
        let ended = matches!(found, Found::Ended(_));
        // After the poll: a process that is seen to have ended has marked its seat before, if it left.
        Ok(match control.step(machine)? {
            Step::Left => Some(Loss::Left),
            Step::Failed => Some(Loss::Died),
            _ if ended => Some(Loss::Died),
            _ => None,
        })
    }

    /// Waits for a peer, not among the `known` ones, that ends without having left.
    pub(super) fn watch(
        &self,
        known: &[MachineId],
        timeout: Duration,
        control: &Control,
    ) -> Result<Option<MachineId>, Error> {
        let deadline = Deadline::after(timeout);
        let mut ignored = known.to_vec();
        loop {
            let left = deadline.left();
            match self.look(left, Some(&self.end), |machine| !ignored.contains(&machine))? {
                Found::Ended(machine) if control.step(machine)? == Step::Left => ignored.push(machine),
                Found::Ended(machine) => return Ok(Some(machine)),
                Found::End => return Ok(None),
                Found::Nothing if left.is_zero() => return Ok(None),
                Found::Nothing => {}
            }
        }
    }

    /// Ends the process of a machine, and waits until it has ended, at most for `timeout`.
    pub(super) fn end(&self, machine: MachineId, timeout: Duration) -> Result<(), Error> {
        let unfenced = |reason: String| Error::Unfenced { machine, reason };
        let Some((_, pidfd)) = self.pidfds.iter().find(|(candidate, _)| *candidate == machine) else {
            let cure = "this system refuses pidfd_open: allow it in the container's seccomp profile";
            return Err(unfenced(cure.to_owned()));
        };
        match pidfd_send_signal(pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(unfenced(format!("killing its process: {}", std::io::Error::from(error)))),
        }
        let deadline = Deadline::after(timeout);
        loop {
            let left = deadline.left();
            match self.look(left, None, |candidate| candidate == machine)? {
                Found::Ended(_) => return Ok(()),
                _ if left.is_zero() => {
                    return Err(unfenced(format!("its process has not ended {timeout:?} after it was killed")));
                }
                _ => {}
            }
        }
    }

    /// Waits for at most `timeout` for the end of a process of the `wanted` machines, or for `end`.
    fn look(&self, timeout: Duration, end: Option<&Waker>, wanted: impl Fn(MachineId) -> bool) -> Result<Found, Error> {
        let watched: Vec<_> = self.pidfds.iter().filter(|(machine, _)| wanted(*machine)).collect();
        let fds = watched.iter().map(|(_, pidfd)| pidfd.as_fd()).chain(end.map(AsFd::as_fd));
        let mut polled: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let mut numbered = self.numbered.iter().filter(|(machine, _)| wanted(*machine)).peekable();
        let timeout = if numbered.peek().is_some() { timeout.min(LOOK_INTERVAL) } else { timeout };
        if let Some((machine, _)) = numbered.find(|(_, numbered)| numbered.has_ended()) {
            return Ok(Found::Ended(*machine));
        }
        // No timeout if it is more than the kernel can count.
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Found::Nothing),
            Err(error) => return Err(Error::system("watching the processes of the peers")(error)),
        }
        let found = polled.iter().position(|polled| !polled.revents().is_empty());
        Ok(match found {
            Some(index) => watched.get(index).map_or(Found::End, |(machine, _)| Found::Ended(*machine)),
            None => Found::Nothing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    use std::process::Command;

    #[test]
    fn a_process_without_a_pidfd_is_seen_to_end_before_and_after_it_is_collected() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let numbered = Numbered::find(pid).unwrap();
        assert!(!numbered.has_ended());
        assert!(Numbered { pid, began: numbered.began + 1 }.has_ended(), "another one has its number");
        child.kill().unwrap();
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        assert!(numbered.has_ended() && Numbered::find(pid).is_none());
        child.wait().unwrap();
        assert!(numbered.has_ended());
    }

    #[test]
    fn a_machine_is_shut_out_when_its_process_has_ended() {
        let machine = MachineId(3);
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let mut peers = Peers::new().unwrap();
        peers.add(machine, u64::from(child.id())).unwrap();
        peers.end(machine, limits::HANG).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::KILL.as_raw()));
        peers.end(machine, limits::HANG).unwrap(); // it has ended already
        let stranger = peers.end(MachineId(4), limits::HANG).unwrap_err().to_string();
        assert!(stranger.contains("machine 4 cannot be shut out: this system refuses pidfd_open"), "{stranger}");
    }
}
