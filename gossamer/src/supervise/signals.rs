//! Signals to the launcher as readable descriptors, and the names of signals. Their meaning is decided in
//! [`super::supervisor`].

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use signal_hook::SigId;
use signal_hook::low_level::{pipe, signal_name, unregister};

/// Signals that end a program.
pub const CAUGHT: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Catches the ending signals while it lives. Signals that the process was started with as ignored stay ignored
/// (`nohup`, background jobs of scripts).
pub struct Signals {
    caught: Vec<Caught>,
}

struct Caught {
    signal: Signal,
    arrivals: UnixStream,
    id: SigId,
}

impl Signals {
    /// Starts catching.
    pub fn catch() -> io::Result<Signals> {
        let ignored = ignored_signals();
        let mut signals = Signals { caught: Vec::new() };
        for signal in CAUGHT.into_iter().filter(|signal| ignored & (1 << (signal.as_raw() - 1)) == 0) {
            let (arrivals, handler) = UnixStream::pair()?;
            arrivals.set_nonblocking(true)?;
            let id = pipe::register(signal.as_raw(), handler)?;
            signals.caught.push(Caught { signal, arrivals, id });
        }
        Ok(signals)
    }

    /// Returns one descriptor for each signal, readable when it has arrived.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.caught.iter().map(|caught| caught.arrivals.as_fd())
    }

    /// Returns a signal that has arrived and was not returned yet; repeated arrivals count once.
    pub fn take(&self) -> Option<Signal> {
        let mut bytes = [0u8; 64];
        let arrived = |caught: &&Caught| matches!((&caught.arrivals).read(&mut bytes), Ok(count) if count > 0);
        self.caught.iter().find(arrived).map(|caught| caught.signal)
    }
}

impl Signals {
    /// Waits for a signal.
    pub fn wait(&self) -> io::Result<Signal> {
        loop {
            if let Some(signal) = self.take() {
                return Ok(signal);
            }
            let mut fds: Vec<PollFd<'_>> =
                self.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for caught in &self.caught {
            unregister(caught.id);
        }
    }
}

/// Has `SIGUSR1` do nothing where it would end this process: MPICH's process manager sends it to the others when a
/// process has died. Handlers of the program do what they do.
pub fn outlive_usr1() {
    if ignored_signals() & (1 << (Signal::USR1.as_raw() - 1)) == 0 {
        // Refused for signals that have no handlers only.
        let _ = signal_hook::flag::register(Signal::USR1.as_raw(), Arc::default());
    }
}

/// Returns the mask of ignored signals: bit S - 1 is set if signal S is ignored; 0 if the system does not tell.
pub fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Returns the signal of this name (`TERM`, `SIGTERM`, any case) or number.
///
/// # Errors
/// If there is none, in words.
pub fn parse(text: &str) -> Result<Signal, String> {
    let is_named = |number: &i32| {
        let name = signal_name(*number).unwrap_or_default();
        [name, name.trim_start_matches("SIG")].iter().any(|name| !name.is_empty() && name.eq_ignore_ascii_case(text))
    };
    let number = text.parse().ok().or_else(|| (1..64).find(is_named));
    let signal = number.and_then(Signal::from_named_raw);
    signal.ok_or_else(|| format!("{text:?} is no signal: a name as TERM or SIGUSR1, or a number; `kill -l` lists them"))
}

/// Returns a signal's name in messages, as in "signal 9 (SIGKILL)".
pub fn describe(signal: i32) -> String {
    match signal_name(signal) {
        Some(name) => format!("signal {signal} ({name})"),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigusr1_ends_no_process_that_outlives_it() {
        outlive_usr1();
        // Without a handler this ends the tests.
        rustix::process::kill_process(rustix::process::getpid(), Signal::USR1).unwrap();
    }

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["TERM", "SIGTERM", "sigterm", "15"] {
            assert_eq!(parse(text), Ok(Signal::TERM), "{text}");
        }
        assert_eq!((parse("usr1"), parse("STOP")), (Ok(Signal::USR1), Ok(Signal::STOP)));
        for text in ["", "0", "-9", "65", "SIG", "TERMS", "SIGSIGTERM", "99999999999"] {
            assert!(parse(text).unwrap_err().contains("kill -l"), "{text}");
        }
    }
}
