//! A child whose life hangs on that of the thread that starts it: the kernel sends it a signal when that thread ends, however
//! that happens. What the signal does is the caller's to choose.
#![allow(unsafe_code)] // pre_exec

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

/// Has the child that `command` will spawn sent this signal when the calling thread ends. To be called on the thread that
/// will spawn it.
pub fn tie(command: &mut Command, signal: Signal) {
    let starter = getpid();
    // SAFETY: between fork and exec only async-signal-safe things may happen: `hang_on` makes two system calls, prctl and
    // getppid, and neither allocates nor locks.
    unsafe { command.pre_exec(move || hang_on(starter, signal)) };
}

/// In the child.
fn hang_on(starter: Pid, signal: Signal) -> io::Result<()> {
    set_parent_process_death_signal(Some(signal))?;
    if getppid() != Some(starter) {
        return Err(Errno::SRCH.into()); // it died before the line above: no signal would come
    }
    Ok(())
}
