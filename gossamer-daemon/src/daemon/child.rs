//! A part as a process of the daemon: start as the programs' user, watching, collection. The messages to and from it
//! are not here.

use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use comm::deadline::deadline_after;
use comm::secure::SecureWriter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid};

use super::Daemon;
use super::gate::Pass;
use super::handover::Parked;
use crate::child_setup::{become_user, limit_tasks, set_apart, signal_at_end_of_thread};
use crate::core_dump;
use crate::machines::LOOK_INTERVAL;
use crate::orphans;
use crate::signals;
use crate::wire::{FromPart, ProgramId, Sender};

/// Time limit for a part to end by itself once it is cut off.
const PART_LIMIT: Duration = Duration::from_millis(500);
/// Time limit for a part to go once it is killed.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// Starts the part: this very executable, as the programs' user.
pub(super) fn spawn(daemon: &Daemon, socket: UnixStream) -> io::Result<Pid> {
    let mut command = Command::new("/proc/self/exe"); // also where the file was replaced meanwhile
    command.arg0("gossamer-daemon").arg("part").env_clear().current_dir("/");
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(socket))).stdout(Stdio::null());
    if let Some(identity) = &daemon.run_as.identity {
        become_user(&mut command, identity); // first: the kernel resets the later settings at this
    }
    // A running part sees the daemon's death at its socket, and ends its machines and their leftovers in order; so a
    // stopped part has to be continued.
    signal_at_end_of_thread(&mut command, Signal::CONT);
    set_apart(&mut command);
    if daemon.cgroups.limits_tasks() {
        // The cgroup limits the tasks.
    } else if daemon.run_as.ids.is_some_and(|(user, _)| user != 0) {
        limit_tasks(&mut command, daemon.rack.limits.tasks);
    }
    core_dump::restore(&mut command); // the part forbids its own, and restores this for its machines
    orphans::spawn(&mut command).map(|child| Pid::from_child(&child))
}

/// Waits until a part has a message, or has closed its socket. While the part is stopped this sends signs of life to
/// the launcher in its place. Returns the signal that has stopped it for too long, if one has. Stops meanwhile for an
/// upgrade, where `pass` says so.
pub(super) fn until_message(
    part: Pid,
    from_part: &UnixStream,
    sender: &mut SecureWriter,
    stop_limit: Duration,
    pass: &Pass,
    park: impl Fn(&SecureWriter) -> Parked,
) -> Option<i32> {
    let mut since = None;
    let interval = Timespec::try_from(LOOK_INTERVAL).ok();
    loop {
        pass.stop(|| Some(park(sender)));
        let closing = pass.gate().closing();
        let mut fds = [PollFd::new(from_part, PollFlags::IN), PollFd::from_borrowed_fd(closing, PollFlags::IN)];
        match poll(&mut fds, interval.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            _ if !fds[1].revents().is_empty() => continue,
            _ => return None,
        }
        // The status stays there, and the exit status is not asked for.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let found = waitid(WaitId::Pid(part), options).ok().flatten();
        let Some(signal) = found.and_then(|found| found.stopping_signal()) else {
            since = None;
            continue;
        };
        if since.get_or_insert_with(Instant::now).elapsed() >= stop_limit {
            return Some(signal);
        }
        if sender.send_message(&FromPart::Beat).is_err() {
            sender.shut_down(); // it may be cut off within a message
        }
    }
}

/// Returns how a part that has closed its socket ended, if it ends at all; its exit status stays there to be collected.
pub(super) fn how_it_ended(part: Pid) -> Option<String> {
    let has_gone = {
        let process = pidfd_open(part, PidfdFlags::empty()).ok()?;
        let timeout = Timespec::try_from(PART_LIMIT).ok();
        poll(&mut [PollFd::new(&process, PollFlags::IN)], timeout.as_ref()).is_ok_and(|ready| ready > 0)
    };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(part), options).ok().flatten().filter(|_| has_gone)?;
    match (status.terminating_signal(), status.exit_status()) {
        (Some(signal), _) => Some(format!("was killed by {}", signals::describe(signal))),
        (None, Some(code)) => Some(format!("exited with status {code}")),
        (None, None) => None,
    }
}

/// Waits for a part that was cut off, and kills it if it does not go, with its whole program where that is possible.
/// Returns its exit status in words.
pub(super) fn collect(daemon: &Daemon, id: ProgramId, part: Pid) -> String {
    if let Some(status) = collect_within(part, PART_LIMIT) {
        return status;
    }
    daemon.programs.kill(id);
    let _ = kill_process(part, Signal::KILL); // nobody else collects it: its number is still its own
    collect_within(part, KILL_LIMIT).unwrap_or_else(|| {
        orphans::abandon(part);
        "it cannot be killed".to_owned()
    })
}

fn collect_within(part: Pid, limit: Duration) -> Option<String> {
    let end = deadline_after(limit);
    let process = pidfd_open(part, PidfdFlags::empty()).ok();
    loop {
        match orphans::try_collect_by_number(part) {
            Ok(None) => {}
            Ok(Some(status)) => return Some(status.to_string()),
            Err(error) => return Some(error.to_string()),
        }
        let left = end.saturating_duration_since(Instant::now());
        match &process {
            _ if left.is_zero() => return None,
            Some(process) => {
                let timeout = Timespec::try_from(left).ok();
                let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], timeout.as_ref()); // interrupted: polled again
            }
            None => std::thread::sleep(left.min(Duration::from_millis(5))), // no descriptors are left
        }
    }
}
