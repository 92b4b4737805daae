//! No core dump of a process that holds a key: neither a file, nor what a handler of the system would be sent; nor may
//! other processes of the same user look into its memory. Daemon, part and launcher see to that before they have read a
//! key. The programs that they start get back what was allowed before: the kernel resets the one at `exec`, and the
//! other is restored.
#![allow(unsafe_code)] // pre_exec

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// What was allowed when this process was started.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// From here on this process leaves no core dump.
///
/// # Errors
/// When the system refuses.
pub fn forbid() -> io::Result<()> {
    let before = BEFORE.get_or_init(|| getrlimit(Resource::Core));
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?; // the limit does not count where a handler gets the dump
    // The most that may be set stays: a child shall be able to go back.
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: before.maximum })?)
}

/// Has the program that `command` will start leave core dumps as if this process had not forbidden its own.
pub fn restore(command: &mut Command) {
    let Some(before) = BEFORE.get().copied() else { return };
    // SAFETY: between fork and exec only async-signal-safe things may happen: this is one system call, setrlimit, which
    // neither allocates nor locks.
    unsafe { command.pre_exec(move || Ok(setrlimit(Resource::Core, before)?)) };
}
