//! Whether this host lets the daemon start threads and processes, and the cure where it does not: for `gossamer-launch
//! check`.
//!
//! A connection takes a thread. One thread is there from the start ([`Reserve`]), for when there are none left: it
//! answers the quick requests, and refuses the rest with the reason.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender, TrySendError};

use super::admission::Admitted;
use super::{Daemon, STACK_BYTES};
use crate::panics;

/// Enough for an idle thread.
const PROBE_STACK_BYTES: usize = 64 << 10;
/// Connections that may wait for the thread.
const WAITING: usize = 4;

/// A connection without a thread.
pub struct Turned {
    pub tcp: TcpStream,
    pub admitted: Admitted,
    pub peer: SocketAddr,
}

/// Queue to the thread that is there from the start.
pub struct Reserve {
    waiting: SyncSender<Turned>,
}

impl Reserve {
    /// Starts the thread; it calls `serve` for each connection to the daemon from `of`, once that is made.
    ///
    /// # Errors
    /// When not even this thread can be started.
    pub fn start(of: mpsc::Receiver<Arc<Daemon>>, serve: fn(&Arc<Daemon>, Turned)) -> io::Result<Reserve> {
        let (waiting, turned) = mpsc::sync_channel::<Turned>(WAITING);
        let serve_all = move || {
            let Ok(daemon) = of.recv() else { return };
            for connection in turned {
                let _ = panics::or_text(|| serve(&daemon, connection)); // it is closed
            }
        };
        std::thread::Builder::new().name("reserve".into()).stack_size(STACK_BYTES).spawn(serve_all)?;
        Ok(Reserve { waiting })
    }

    /// Hands a connection over; gives it back if too many wait already.
    pub fn take(&self, turned: Turned) -> Result<(), Turned> {
        self.waiting.try_send(turned).map_err(|error| match error {
            TrySendError::Full(turned) | TrySendError::Disconnected(turned) => turned,
        })
    }
}

/// Returns why this host cannot start the threads and processes of programs, or soon cannot, and the cure; `None` when
/// all is well.
pub fn trouble() -> Option<String> {
    match std::thread::Builder::new().stack_size(PROBE_STACK_BYTES).spawn(|| ()) {
        Ok(probe) => {
            let _ = probe.join(); // it does nothing
            let (tasks, most) = (tasks_of_host()?, number("/proc/sys/kernel/pid_max")?);
            (tasks >= most / 10 * 9)
                .then(|| format!("{tasks} of {most} processes and threads (kernel.pid_max) are in use; {CURE}"))
        }
        Err(error) => Some(in_words(&error)),
    }
}

/// Returns the message for a connection that could not be accepted or kept.
pub fn in_words_of_connections(error: &io::Error) -> String {
    of_files(error).unwrap_or_else(|| error.to_string())
}

/// Returns the message for an error that comes of too many open files, with the limit and the cure; `None` for others.
fn of_files(error: &io::Error) -> Option<String> {
    match error.raw_os_error()? {
        libc::EMFILE => {
            let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
            let most = most.map_or_else(String::new, |most| format!(", which may have {most}"));
            Some(format!("{error}: of the daemon's process{most}; raise LimitNOFILE= of the unit, or ulimit -n"))
        }
        libc::ENFILE => Some(format!("{error}: of this host; raise fs.file-max")),
        _ => None,
    }
}

/// Returns the message for a failed start of a thread or a process.
pub fn in_words(error: &io::Error) -> String {
    if let Some(text) = of_files(error) {
        return text;
    }
    let limits = limits();
    let limits = if limits.is_empty() { String::new() } else { format!(" ({})", limits.join(", ")) };
    format!("this host cannot start another thread: {error}{limits}; {CURE}")
}

const CURE: &str = "end what has started so many (ps -eLf), or raise the limit: TasksMax= of the unit, ulimit -u, \
                    kernel.pid_max, kernel.threads-max";

/// Returns the limits that may be the cause, as far as the system reports them.
fn limits() -> Vec<String> {
    let mut all = Vec::new();
    if let (Some(tasks), Some(most)) = (tasks_of_host(), number("/proc/sys/kernel/pid_max")) {
        all.push(format!("the host runs {tasks} of {most} that kernel.pid_max allows"));
    }
    if let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nproc).current {
        all.push(format!("its user may have {most}"));
    }
    all
}

/// Returns the number of processes and threads on this host.
fn tasks_of_host() -> Option<u64> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split(' ').nth(3)?.split('/').nth(1)?.parse().ok()
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_cure_are_told() {
        assert!(tasks_of_host().unwrap() > 1 && number("/proc/sys/kernel/pid_max").unwrap() > 100);
        let text = in_words(&io::Error::from_raw_os_error(libc::EAGAIN));
        assert!(
            text.contains("cannot start another thread")
                && text.contains("TasksMax=")
                && text.contains("pid_max allows"),
            "{text}"
        );
        let text = in_words(&io::Error::from_raw_os_error(libc::EMFILE));
        assert!(text.contains("Too many open files") && text.contains("LimitNOFILE="), "{text}");
        assert!(!text.contains("thread"), "{text}");
    }
}
