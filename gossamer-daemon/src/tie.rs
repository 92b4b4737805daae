//! What a child does before it becomes another program. Its life hangs on that of the thread that starts it: the kernel sends it a signal when that thread ends, however
//! that happens. What the signal does is the caller's to choose. It inherits the standard streams, and nothing else that is not
//! made inheritable for it.
#![allow(unsafe_code)] // pre_exec

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use crate::descriptors;

/// Has the child that `command` will spawn sent this signal when the calling thread ends, and keeps this process'
/// descriptors from it. To be called on the thread that will spawn it, before descriptors are handed to the command.
pub fn tie(command: &mut Command, signal: Signal) {
    let starter = getpid();
    // SAFETY: between fork and exec only async-signal-safe things may happen: `hang_on` makes three system calls, close_range,
    // prctl and getppid, and none allocates or locks.
    unsafe { command.pre_exec(move || hang_on(starter, signal)) };
}

/// In the child.
fn hang_on(starter: Pid, signal: Signal) -> io::Result<()> {
    let _ = descriptors::mark_all(); // where the system cannot: all were marked when they were opened
    set_parent_process_death_signal(Some(signal))?;
    if getppid() != Some(starter) {
        return Err(Errno::SRCH.into()); // it died before the line above: no signal would come
    }
    Ok(())
}
