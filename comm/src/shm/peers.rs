//! Whether the peers live: a pidfd of each, and its seat in the control file.
//!
//! A pidfd becomes readable when its process ends, however it ends, and reaped or not. A machine
//! that leaves in order says so in its seat first; so a process that ended while its seat says `Up`
//! has died.

use super::control::{Control, Step};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::fabric::{Loss, MachineId};
use crate::waker::Waker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The processes of the other machines.
#[derive(Debug)]
pub(super) struct Peers {
    pidfds: Vec<(MachineId, OwnedFd)>,
    /// Woken once nobody is to watch any more.
    end: Waker,
}

/// What a look at the processes found.
enum Found {
    Ended(MachineId),
    /// Nobody watches any more.
    End,
    Nothing,
}

impl Peers {
    pub(super) fn new() -> Result<Peers, Error> {
        Ok(Peers { pidfds: Vec::new(), end: Waker::new()? })
    }

    /// Ends all watching.
    pub(super) fn end_watch(&self) {
        self.end.wake();
    }

    /// Gets hold of the process of a machine that is `Sized`. `control.rs` says when the pidfd can
    /// be relied on.
    pub(super) fn add(&mut self, machine: MachineId, pid: u64) -> Result<(), Error> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::bootstrap(format!("the control file gives {machine} no process")))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| match error {
            Errno::SRCH => Error::PeerLost { machine },
            error => Error::system(format!("opening the process of {machine}"))(error),
        })?;
        self.pidfds.push((machine, pidfd));
        Ok(())
    }

    /// Whether `machine` is gone, and how.
    pub(super) fn lost(&self, machine: MachineId, control: &Control) -> Result<Option<Loss>, Error> {
        let found = self.look(Duration::ZERO, None, |candidate| candidate == machine)?;
        let ended = matches!(found, Found::Ended(_));
        // After the poll: who is seen to have ended has said before that whether it leaves.
        Ok(match control.step(machine)? {
            Step::Left => Some(Loss::Left),
            Step::Failed => Some(Loss::Died),
            _ if ended => Some(Loss::Died),
            _ => None,
        })
    }

    /// Waits for a peer that ends without having left.
    pub(super) fn watch(&self, timeout: Duration, control: &Control) -> Result<Option<MachineId>, Error> {
        let deadline = Deadline::after(timeout);
        let mut have_left = vec![];
        loop {
            let left = deadline.left();
            match self.look(left, Some(&self.end), |machine| !have_left.contains(&machine))? {
                Found::Ended(machine) if control.step(machine)? == Step::Left => have_left.push(machine),
                Found::Ended(machine) => return Ok(Some(machine)),
                Found::End => return Ok(None),
                Found::Nothing if left.is_zero() => return Ok(None),
                Found::Nothing => {}
            }
        }
    }

    /// A machine among the `wanted` whose process has ended, or that `end` has come,
    /// waiting at most `timeout` for it.
    fn look(&self, timeout: Duration, end: Option<&Waker>, wanted: impl Fn(MachineId) -> bool) -> Result<Found, Error> {
        let watched: Vec<_> = self.pidfds.iter().filter(|(machine, _)| wanted(*machine)).collect();
        let fds = watched.iter().map(|(_, pidfd)| pidfd.as_fd()).chain(end.map(AsFd::as_fd));
        let mut polled: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // Without end if it is more than the kernel can count.
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
