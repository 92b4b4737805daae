//! Disables core dumps of a process that holds a key: the file as well as the dump for a handler of the system. Other
//! processes of the same user cannot read its memory either. Daemon, part and launcher call this before they read a
//! key. The programs that they start get the old settings back: the kernel resets the dumpable flag at `exec`, and
//! [`restore`] the limit.
#![allow(unsafe_code)] // pre_exec

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// The core limit from before the call of [`forbid`].
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Disables core dumps of this process from here on.
///
/// # Errors
/// When the system refuses.
pub fn forbid() -> io::Result<()> {
    let before = BEFORE.get_or_init(|| getrlimit(Resource::Core));
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?; // a core handler gets the dump despite the limit
    // The hard limit stays: a child has to be able to go back.
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: before.maximum })?)
}

/// Allows them again, for a successor that this process executes in its own place. Undone by [`forbid`].
///
/// # Errors
/// When the system refuses.
pub fn allow() -> io::Result<()> {
    BEFORE.get().map_or(Ok(()), |before| Ok(setrlimit(Resource::Core, *before)?))
}

/// Gives the program that `command` will start the core limit from before [`forbid`].
pub fn restore(command: &mut Command) {
    let Some(before) = BEFORE.get().copied() else { return };
    // SAFETY: between fork and exec only async-signal-safe things may happen: this is one system call, setrlimit, which
    // neither allocates nor locks.
    unsafe { command.pre_exec(move || Ok(setrlimit(Resource::Core, before)?)) };
}
