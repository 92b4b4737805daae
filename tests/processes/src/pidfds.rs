//! Processes by their ids: waits for their ends, and signals. They need not be children.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use limits::HANG;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Processes to wait for. A later process with one of their ids is none of them.
#[derive(Debug)]
pub struct Pidfds(Vec<(u32, OwnedFd)>);

impl Pidfds {
    /// Opens the living ones of these processes.
    pub fn open(pids: impl IntoIterator<Item = u32>) -> Pidfds {
        let open = |pid| match pidfd_open(raw(pid), PidfdFlags::empty()) {
            Ok(fd) => Some((pid, fd)),
            Err(Errno::SRCH) => None,
            Err(error) => panic!("process {pid}: {error}"),
        };
        Pidfds(pids.into_iter().filter_map(open).collect())
    }

    /// Waits until all have ended, collected by their parents or not; returns those that have not after `limit`.
    ///
    /// # Errors
    /// The ids of processes that still run.
    pub fn wait(mut self, limit: Duration) -> Result<(), Vec<u32>> {
        let start = Instant::now();
        self.0.retain(|(_, fd)| !has_ended_within(fd, limit.saturating_sub(start.elapsed())));
        if self.0.is_empty() { Ok(()) } else { Err(self.0.into_iter().map(|(pid, _)| pid).collect()) }
    }
}

/// Waits for the end of a process; returns whether it came.
pub(crate) fn has_ended_within(pidfd: &OwnedFd, limit: Duration) -> bool {
    let start = Instant::now();
    loop {
        let left = limit.saturating_sub(start.elapsed());
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&Timespec::try_from(left).unwrap())) {
            Ok(0) if left.is_zero() => return false,
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return true,
            Err(error) => panic!("poll: {error}"),
        }
    }
}

/// Returns whether a process has ended, collected by its parent or not.
#[must_use]
pub fn is_gone(pid: u32) -> bool {
    Pidfds::open([pid]).wait(Duration::ZERO).is_ok()
}

/// Waits until all of these processes have ended; returns the time that took.
#[track_caller]
pub fn wait_until_gone(pids: impl IntoIterator<Item = u32>) -> Duration {
    let start = Instant::now();
    if let Err(left) = Pidfds::open(pids).wait(HANG) {
        panic!("processes {left:?} are there after {HANG:?}");
    }
    start.elapsed()
}

/// Sends a signal to a process, which may have ended.
#[track_caller]
pub fn send_signal(pid: u32, signal: Signal) {
    delivered(signal, pid, kill_process(raw(pid), signal));
}

#[track_caller]
pub(crate) fn delivered(signal: Signal, pid: u32, result: Result<(), Errno>) {
    match result {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => panic!("{signal:?} to {pid}: {error}"),
    }
}

fn raw(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the id of a process")
}
