//! How a program ended, in words and as an exit status. Nothing is decided here (see [`super::supervisor`]).

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use bincode::{Decode, Encode};

use super::signals;

/// Exit status of the launcher when the command line is wrong.
pub const USAGE_STATUS: u8 = 2;
/// Exit status of the launcher for failures that have none of their own (`EX_SOFTWARE` of sysexits.h).
pub const FAILURE_STATUS: u8 = 70;
/// Exit status of the launcher when the program was not found or cannot be executed.
pub const NOT_STARTED_STATUS: u8 = 127;
/// Exit status of the launcher when the program's time limit was over, as that of `timeout`.
pub const TIMED_OUT_STATUS: u8 = 124;
/// Exit status of the launcher when nobody reads what it writes any more, as of a process that SIGPIPE has ended.
pub const CLOSED_STATUS: u8 = 128 + SIGPIPE as u8;
const SIGPIPE: i32 = 13;
const SIGNAL_BASE: i32 = 128;
const PANIC_STATUS: i32 = 101;

/// An output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A stream of this process that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to {}: {error}{}", stream.name(), cure(error))]
pub struct Unwritten {
    /// Which.
    pub stream: Stream,
    /// Why.
    pub error: io::Error,
}

impl Unwritten {
    /// Whether nobody reads it any more, which is the reader's choice and no failure.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.error.kind() == io::ErrorKind::BrokenPipe
    }
}

impl Stream {
    /// "standard output"
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stream::Out => "standard output",
            Stream::Err => "standard error",
        }
    }
}

fn cure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room there, or write elsewhere",
        io::ErrorKind::FileTooLarge => "; see ulimit -f, or write elsewhere",
        _ => "",
    }
}

/// How a program ended.
#[derive(Debug)]
#[must_use]
pub enum Outcome {
    /// Machine 0 finished and all others ended; the exit status.
    Finished(u8),
    /// The launcher was told to end by this signal.
    Interrupted(i32),
    /// Its time limit was over, so it was ended.
    TimedOut(Duration),
    /// A machine died, so the program was ended.
    Died(Death),
    /// All machines have run to their own ends, without gossamer, and this one was the first not to end well.
    Exited(Death),
    /// What the machines wrote could not be written here, so the program was ended.
    Unwritten,
}

/// How a program ended, and whether all was written that it wrote.
#[derive(Debug)]
#[must_use]
pub struct Ended {
    /// How it ended.
    pub outcome: Outcome,
    /// The streams of the launcher that could not be written, each once.
    pub unwritten: Vec<Unwritten>,
}

impl From<Outcome> for Ended {
    fn from(outcome: Outcome) -> Ended {
        Ended { outcome, unwritten: Vec::new() }
    }
}

impl Ended {
    /// The exit status for the launcher; 0 only for a program that finished with status 0 and whose output is whole.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self.outcome.status() {
            0 if self.unwritten.iter().any(|stream| !stream.is_closed()) => FAILURE_STATUS,
            0 if !self.unwritten.is_empty() => CLOSED_STATUS,
            status => status,
        }
    }

    /// What to tell the user. Not that SIGPIPE has ended a machine where the output is closed: that is how `| head`
    /// ends what is before it.
    #[must_use]
    pub fn messages(&self) -> Vec<String> {
        let closed = self.unwritten.iter().any(Unwritten::is_closed);
        let is_news = !(closed && self.outcome.is_by_closed_pipe());
        let failed = self.unwritten.iter().filter(|stream| !stream.is_closed());
        let failed = failed.map(|stream| format!("{stream}; output of the program is lost"));
        failed.chain(self.outcome.message().filter(|_| is_news)).collect()
    }
}

/// The machine that died first, and how.
#[derive(Debug)]
pub struct Death {
    /// Which machine.
    pub machine: u16,
    /// Its process id.
    pub pid: u32,
    /// Its host, where there are several.
    pub host: Option<String>,
    /// What happened to it.
    pub cause: Cause,
    /// How its process exited in the end, where that is known.
    pub exit: Option<ExitStatus>,
}

/// How far gossamer had come in a machine when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing was heard of it, nor of the others: it needs none.
    Alone,
    /// Nothing was heard of it; others wait for it, or it had to.
    Outside,
    /// It was in `gossamer::main`, and had not found all others.
    Joining,
    /// It ran.
    Ready,
}

/// Why a machine counts as dead.
#[derive(Debug)]
pub enum Cause {
    /// Its process ended before the program had finished.
    Exited {
        /// How.
        status: ExitStatus,
        /// How far gossamer had come in it.
        stage: Stage,
    },
    /// It said itself that it cannot go on.
    Failed(String),
    /// What it said on the control channel made no sense.
    Protocol(String),
    /// It cannot reach another one any more, of whose end nothing is known.
    Lost {
        /// That other machine.
        peer: u16,
        /// The other's host, where there are several.
        host: Option<String>,
        /// What it saw.
        reason: String,
    },
    /// It has been stopped by this signal for too long.
    Stood(i32),
    /// Nothing is heard of it any more, or of its host; in words.
    Silent(String),
    /// Its connection was closed, and it had not said that it leaves. How its process ended is not known here.
    Closed,
    /// It was made to end, with all of its host's, by something other than the program; in words.
    Ended(String),
    /// It was still there this long after the program had finished.
    Lingered(Duration),
}

impl Outcome {
    /// The exit status for the launcher; 0 only for a program that finished with status 0.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Outcome::Finished(status) => *status,
            Outcome::Interrupted(signal) => signal_status(*signal),
            Outcome::Died(death) | Outcome::Exited(death) => death.status(),
            Outcome::TimedOut(_) => TIMED_OUT_STATUS,
            Outcome::Unwritten => FAILURE_STATUS,
        }
    }

    /// What to tell the user; `None` when all is well.
    #[must_use]
    pub fn message(&self) -> Option<String> {
        match self {
            Outcome::Finished(_) | Outcome::Unwritten => None,
            Outcome::Interrupted(signal) => Some(format!("the program was ended by {}", signals::describe(*signal))),
            Outcome::Died(death) => Some(format!("{death}; the program was ended")),
            Outcome::Exited(death) => Some(death.to_string()),
            Outcome::TimedOut(limit) => Some(format!("the program was ended: its time limit of {limit:?} is over")),
        }
    }

    /// Whether a machine was ended by SIGPIPE.
    #[must_use]
    pub fn is_by_closed_pipe(&self) -> bool {
        match self {
            Outcome::Died(Death { cause: Cause::Exited { status, .. }, .. })
            | Outcome::Exited(Death { cause: Cause::Exited { status, .. }, .. }) => status.signal() == Some(SIGPIPE),
            _ => false,
        }
    }
}

impl Death {
    fn status(&self) -> u8 {
        match self.exit.map(|exit| (exit.code(), exit.signal())) {
            Some((Some(code), _)) if code != 0 => u8::try_from(code).unwrap_or(FAILURE_STATUS),
            // A signal counts when it was the cause; otherwise it was the launcher that sent it.
            Some((None, Some(signal))) if matches!(self.cause, Cause::Exited { .. }) => signal_status(signal),
            _ => FAILURE_STATUS,
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine {} (pid {}", self.machine, self.pid)?;
        match &self.host {
            Some(host) => write!(f, " on {host}) ")?,
            None => write!(f, ") ")?,
        }
        match &self.cause {
            Cause::Exited { status, stage } => describe_exit(f, *status, *stage),
            Cause::Failed(reason) => write!(f, "failed: {reason}"),
            Cause::Protocol(reason) => write!(f, "did not keep to the control protocol: {reason}"),
            Cause::Lost { peer, host: None, reason } => write!(f, "lost machine {peer}: {reason}"),
            Cause::Lost { peer, host: Some(host), reason } => write!(f, "lost machine {peer} on {host}: {reason}"),
            Cause::Stood(signal) => write!(f, "stands still, stopped by {}", signals::describe(*signal)),
            Cause::Silent(reason) => write!(f, "cannot be reached: {reason}"),
            Cause::Closed => {
                f.write_str("has gone before the program had finished: killed, crashed, or its host is off")
            }
            Cause::Ended(reason) => write!(f, "was ended: {reason}"),
            Cause::Lingered(bound) => write!(f, "was still running {bound:?} after the program had finished"),
        }
    }
}

fn describe_exit(f: &mut fmt::Formatter<'_>, status: ExitStatus, stage: Stage) -> fmt::Result {
    match (status.code(), status.signal()) {
        (_, Some(signal)) => {
            write!(f, "was killed by {}", signals::describe(signal))?;
            if status.core_dumped() { write!(f, ", core dumped") } else { Ok(()) }
        }
        (Some(PANIC_STATUS), _) => write!(f, "panicked (exit status {PANIC_STATUS})"),
        (Some(code), _) => {
            write!(f, "exited with status {code}")?;
            f.write_str(match stage {
                Stage::Alone => "",
                Stage::Outside => {
                    " before it had reached gossamer::main: where one machine calls that, and with --must-join, all \
                     have to"
                }
                Stage::Joining => " before it had found the other machines",
                Stage::Ready => " before the program had finished",
            })
        }
        (None, None) => write!(f, "ended in an unknown way ({status})"),
    }
}

fn signal_status(signal: i32) -> u8 {
    u8::try_from(SIGNAL_BASE + signal).unwrap_or(FAILURE_STATUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died(cause: Cause, raw_exit: Option<i32>) -> Outcome {
        let exit = raw_exit.map(ExitStatus::from_raw);
        Outcome::Died(Death { machine: 1, pid: 123, host: None, cause, exit })
    }

    fn exited(raw: i32, stage: Stage) -> Outcome {
        died(Cause::Exited { status: ExitStatus::from_raw(raw), stage }, Some(raw))
    }

    #[test]
    fn each_end_has_its_words_and_its_status() {
        let cases = [
            (exited(9, Stage::Ready), "was killed by signal 9 (SIGKILL);", 137),
            (exited(11 | 0x80, Stage::Ready), "was killed by signal 11 (SIGSEGV), core dumped;", 139),
            (exited(3 << 8, Stage::Ready), "exited with status 3 before the program had finished;", 3),
            (exited(101 << 8, Stage::Ready), "panicked (exit status 101);", 101),
            (exited(0, Stage::Ready), "exited with status 0 before the program had finished;", 70),
            (exited(0, Stage::Outside), "exited with status 0 before it had reached gossamer::main: where one", 70),
            (exited(3 << 8, Stage::Outside), "and with --must-join, all have to;", 3),
            (exited(3 << 8, Stage::Joining), "exited with status 3 before it had found the other machines;", 3),
            (died(Cause::Failed("no memory".into()), Some(4 << 8)), "failed: no memory;", 4),
            (died(Cause::Failed("no memory".into()), Some(9)), "failed: no memory;", 70),
            (died(Cause::Lingered(Duration::from_secs(5)), Some(9)), "was still running 5s after", 70),
            (
                died(Cause::Closed, None),
                "has gone before the program had finished: killed, crashed, or its host is",
                70,
            ),
            (died(Cause::Protocol("x".into()), None), "control protocol: x;", 70),
        ];
        for (outcome, words, status) in cases {
            let message = outcome.message().unwrap();
            assert!(message.starts_with("machine 1 (pid 123) ") && message.contains(words), "{message}");
            assert!(message.ends_with("the program was ended"), "{message}");
            assert_eq!(outcome.status(), status, "{message}");
        }
        let Outcome::Died(death) = exited(3 << 8, Stage::Alone) else { unreachable!() };
        let alone = Outcome::Exited(death);
        assert_eq!(alone.message().unwrap(), "machine 1 (pid 123) exited with status 3");
        assert_eq!(alone.status(), 3);
        assert_eq!(Outcome::Interrupted(2).status(), 130);
        assert!(Outcome::Interrupted(15).message().unwrap().contains("SIGTERM"));
        assert!(Outcome::Finished(0).message().is_none());
        assert_eq!(Outcome::Finished(7).status(), 7);
    }
}
