//! An upgrade: the daemon executes its executable anew, in its own place, while programs run. Its process id, its
//! children and its descriptors stay; connections and programs go on in the new daemon (`handover.rs`, `resume.rs`).
//!
//! Invariants: until `exec` succeeds nothing is given up. The new executable has said before that it can take over,
//! with the files and options of this daemon; where it does not, the old daemon goes on. Nobody is refused meanwhile:
//! connections that come wait for the new daemon to accept them; those that have not shown the key yet are closed, and
//! holders of the key connect again.
#![allow(unsafe_code)] // execve

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use comm::deadline::deadline_after;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::Signal;

use super::gate::Pass;
use super::handover::{LinkState, Parked, SessionState, State, VARIABLE, versions};
use super::{Daemon, cache};
use crate::child_setup::signal_at_end_of_thread;
use crate::wire::link::Link;
use crate::{core_dump, descriptors, dispositions, orphans};

/// Time for the new executable to say whether it can take over.
const CHECK_LIMIT: Duration = Duration::from_secs(10);
const CHECK_PAUSE: Duration = Duration::from_millis(5);
/// Time for requests to come to an end while new ones wait: far less than peers wait for.
const REQUESTS_LIMIT: Duration = Duration::from_secs(1);
/// Time for sessions to stop between two messages: less than the shortest silence.
const SESSIONS_LIMIT: Duration = Duration::from_millis(500);
/// Time after which requests that do not end are reported; and the pause between two attempts, in which all go on.
const LIMIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(300);

/// First words of the new executable's consent.
const CONSENT: &str = "gossamer-daemon takes over";

/// Reason why an attempt has failed.
enum Failed {
    /// Threads do not stop: try again.
    Busy(String),
    Fatal(String),
}

/// Returns the path of this executable, which may have been replaced already.
pub(super) fn own_executable() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.into_os_string().into_vec();
    let path = path.strip_suffix(b" (deleted)").unwrap_or(&path);
    Ok(OsStr::from_bytes(path).into())
}

/// Upgrades the daemon at each SIGUSR2.
pub(super) fn at_signals(daemon: &Arc<Daemon>, mut arrivals: UnixStream) {
    while arrivals.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0) {
        let Err(reason) = upgrade(daemon, "SIGUSR2", None);
        tracing::error!(reason, "the upgrade has failed: this daemon goes on");
    }
}

/// Catches SIGUSR2: from now on the result has a byte for each.
///
/// # Errors
/// When the system refuses.
pub(super) fn catch() -> io::Result<UnixStream> {
    let (arrivals, handler) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(Signal::USR2.as_raw(), handler)?;
    Ok(arrivals)
}

/// Executes the daemon's executable in the place of this process. The caller has no pass, or that with its connection.
///
/// # Errors
/// The reason why this daemon goes on, with the cure.
pub(super) fn upgrade(daemon: &Daemon, who: &str, caller: Option<(&Pass, &Link)>) -> Result<Infallible, String> {
    let _one = match daemon.upgrading.try_lock() {
        Err(TryLockError::WouldBlock) => return Err("another upgrade is under way".to_owned()),
        other => other,
    };
    let path = &daemon.executable;
    let identity = || {
        let found = std::fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>((found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
    };
    if daemon.run_as.ids.is_some() && !cache::is_out_of_reach(path) {
        return Err(format!(
            "{} could be replaced by other users than root: `chown root` and `chmod go-w` it and its folders",
            path.display()
        ));
    }
    let checked = identity()?;
    let release = check(daemon, path)?;
    tracing::info!(who, release, file = path.display().to_string(), "begins an upgrade");
    let end = deadline_after(LIMIT);
    loop {
        if identity()? != checked {
            return Err(format!("{} was replaced meanwhile: try again", path.display()));
        }
        let parked = caller.map(|(pass, link)| pass.park(Parked::Upgrader(LinkState::of_link(link))));
        let attempted = attempt(daemon, path);
        daemon.sessions.open();
        daemon.requests.open();
        drop(parked);
        match attempted {
            Err(Failed::Busy(_)) if Instant::now() < end => std::thread::sleep(PAUSE),
            Err(Failed::Busy(reason)) => return Err(format!("{reason}: try again")),
            Err(Failed::Fatal(reason)) => return Err(reason),
        }
    }
}

/// Has the executable say whether it can take over; returns its name and version.
fn check(daemon: &Daemon, path: &Path) -> Result<String, String> {
    let (shown, in_words) = (path.display(), |error: io::Error| format!("{}: {error}", path.display()));
    let mut said = File::from(memfd_create("said", MemfdFlags::CLOEXEC).map_err(|error| in_words(error.into()))?);
    let (out, err) = (said.try_clone().map_err(in_words)?, said.try_clone().map_err(in_words)?);
    let mut command = Command::new(path);
    command.args(std::env::args_os().skip(1)).arg("take-over-check");
    command.args(["--versions", &versions(), "--listening", &daemon.address.to_string()]);
    command.env_remove(VARIABLE).stdin(Stdio::null()).stdout(out).stderr(err);
    signal_at_end_of_thread(&mut command, Signal::KILL);
    core_dump::restore(&mut command);
    command.process_group(0);
    let mut child = orphans::spawn(&mut command).map_err(in_words)?;
    let end = deadline_after(CHECK_LIMIT);
    let status = loop {
        match orphans::try_collect(&mut child).map_err(in_words)? {
            Some(status) => break Some(status),
            None if Instant::now() >= end => {
                let _ = child.kill(); // nobody else collects it
                orphans::abandon(rustix::process::Pid::from_child(&child));
                break None;
            }
            None => std::thread::sleep(CHECK_PAUSE),
        }
    };
    let mut text = Vec::new();
    said.rewind().and_then(|()| said.read_to_end(&mut text)).map_err(in_words)?;
    let text = String::from_utf8_lossy(&text);
    let consent = text.trim().strip_prefix(CONSENT).filter(|_| status.is_some_and(|status| status.success()));
    match (consent, status) {
        (Some(release), _) => Ok(release.trim().to_owned()),
        (None, None) => Err(format!("{shown} does not say whether it can take over: the old daemon goes on")),
        (None, Some(status)) => {
            let text = text.trim().trim_start_matches("gossamer-daemon: ");
            Err(format!(
                "{shown} cannot take over ({status}): {text}; the old daemon goes on. Another version takes over when \
                 nothing runs: `gossamer-launch drain --wait {}`, then restart the daemon",
                daemon.host.name
            ))
        }
    }
}

/// Says to the old daemon that this one can take over.
#[must_use]
pub(super) fn consent() -> String {
    format!("{CONSENT} {} {}", env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
}

/// Stops all threads, and executes the new daemon. On failure they are stopped still.
fn attempt(daemon: &Daemon, path: &Path) -> Result<Infallible, Failed> {
    if !daemon.requests.close(REQUESTS_LIMIT) {
        return Err(Failed::Busy(format!("{} requests have not come to an end", daemon.requests.running())));
    }
    if !daemon.sessions.close(SESSIONS_LIMIT) {
        return Err(Failed::Busy("a program is ending, or its launcher takes none of its output".to_owned()));
    }
    let changing = || Failed::Busy("a program is starting or ending".to_owned());
    let (programs, queue) = daemon.programs.states().ok_or_else(changing)?;
    let sessions = SessionState::pair(daemon.sessions.take_parked(), &daemon.greeting()).ok_or_else(changing)?;
    // Both are in the order of their numbers.
    if !programs.iter().map(|program| program.id).eq(sessions.iter().map(|session| session.program)) {
        return Err(changing());
    }
    let state = State {
        executable: path.to_owned(),
        keys: daemon.key_file.last().to_text().to_string(),
        drained_by: daemon.drain.by(),
        log: daemon.last_lines.get("", usize::MAX),
        last_look: daemon.looks.last(),
        kept: daemon.kept.state(),
        cgroups: daemon.cgroups.clone(),
        children: orphans::former(),
        programs,
        queue,
        sessions,
        others: daemon.requests.take_parked(),
    };
    daemon.last_lines.flush();
    let Err(error) = execute(path, &state);
    // As before: nothing was given up.
    let _ = descriptors::mark_inherited();
    let _ = core_dump::forbid();
    let _ = dispositions::unblock();
    Err(Failed::Fatal(format!("{} cannot be executed: {error}; the old daemon goes on", path.display())))
}

fn execute(path: &Path, state: &State) -> io::Result<Infallible> {
    let text = |text: OsString| CString::new(text.into_vec()).map_err(io::Error::from);
    let handed = state.hand_over()?;
    let args: Vec<CString> = std::env::args_os().map(text).collect::<io::Result<_>>()?;
    let own = OsString::from(format!("{VARIABLE}={}", handed.as_raw_fd()));
    let others = std::env::vars_os().filter(|(name, _)| name != VARIABLE);
    let env = others.map(|(mut line, value)| {
        line.push("=");
        line.push(value);
        line
    });
    let env: Vec<CString> = env.chain([own]).map(text).collect::<io::Result<_>>()?;
    let path = text(path.into())?;
    // A signal that comes now waits for the new daemon's handlers.
    dispositions::block()?;
    core_dump::allow()?;
    let pointers = |all: &[CString]| -> Vec<*const libc::c_char> {
        all.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (args, env) = (pointers(&args), pointers(&env));
    // SAFETY: the path and all texts end with a NUL byte, both lists with a null pointer, and all live longer than the
    // call.
    unsafe { libc::execve(path.as_ptr(), args.as_ptr(), env.as_ptr()) };
    Err(io::Error::last_os_error())
}
