//! Steps of a child before it executes another program. When the thread that starts it ends, however that happens, the
//! kernel sends it a signal, which the caller chooses. It inherits the standard streams, and nothing else that is not
//! made inheritable for it. No signal is blocked.
#![allow(unsafe_code)] // pre_exec

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{
    Gid, Pid, Resource, Rlimit, Signal, Uid, getpid, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
    setsid,
};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use crate::{descriptors, dispositions};

/// Has the child that `command` will spawn get this signal when the calling thread ends, and keeps this process's
/// descriptors from it. To be called on the thread that will spawn it, before descriptors are handed to the command.
pub fn signal_at_end_of_thread(command: &mut Command, signal: Signal) {
    let parent = getpid();
    // SAFETY: between fork and exec only async-signal-safe things may happen: `hang_on` makes four system calls,
    // rt_sigprocmask, close_range, prctl and getppid, and none allocates or locks.
    unsafe { command.pre_exec(move || hang_on(parent, signal)) };
}

/// Runs in the child.
fn hang_on(parent: Pid, signal: Signal) -> io::Result<()> {
    dispositions::clear_mask()?;
    let _ = descriptors::mark_all(); // on an old kernel: all were marked when they were opened
    set_parent_process_death_signal(Some(signal))?;
    if getppid() != Some(parent) {
        return Err(Errno::SRCH.into()); // it died before the line above: no signal would come
    }
    Ok(())
}

/// A user to become: its number, its group, and all groups that it is in.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its number.
    pub user: Uid,
    /// Its own group.
    pub group: Gid,
    /// All its groups.
    pub groups: Vec<Gid>,
}

/// Has the child become a user, as a login does. Settings that depend on the user come after it: the kernel drops the
/// [signal](signal_at_end_of_thread) when the user changes.
pub fn become_user(command: &mut Command, identity: &Identity) {
    let Identity { user, group, groups } = identity.clone();
    let change = move || {
        set_thread_groups(&groups)?;
        set_thread_gid(group)?;
        Ok(set_thread_uid(user)?)
    };
    // SAFETY: between fork and exec, where the child has one thread, `change` makes three system calls, setgroups,
    // setgid and setuid; it reads memory that was allocated before, allocates none and takes no lock.
    unsafe { command.pre_exec(change) };
}

/// Has the child lead a session of its own: no terminal of this process, and no shared process group.
pub fn set_apart(command: &mut Command) {
    // SAFETY: between fork and exec `setsid` alone is called, a system call.
    unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
}

/// Limits the tasks (processes and threads) of the child's user, as far as the child and its descendants start them.
pub fn limit_tasks(command: &mut Command, most: u32) {
    let limit = move |found: Option<u64>| Some(found.unwrap_or(u64::MAX).min(u64::from(most)));
    let lower = move || {
        let Rlimit { current, maximum } = getrlimit(Resource::Nproc);
        Ok(setrlimit(Resource::Nproc, Rlimit { current: limit(current), maximum: limit(maximum) })?)
    };
    // SAFETY: between fork and exec `lower` makes two system calls, getrlimit and setrlimit; it allocates nothing and
    // takes no lock.
    unsafe { command.pre_exec(lower) };
}
