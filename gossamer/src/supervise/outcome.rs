//! End of a program, in words and as an exit status. The decisions are in [`super::supervisor`].

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::signals;

/// Exit status of the launcher if the command line is wrong.
pub const USAGE_STATUS: u8 = 2;
/// Exit status of the launcher for failures that have none of their own (`EX_SOFTWARE` of sysexits.h).
pub const FAILURE_STATUS: u8 = 70;
/// Exit status of the launcher if the program was not found or cannot be executed.
pub const NOT_STARTED_STATUS: u8 = 127;
/// Exit status of the launcher if the program's time limit was over, as that of `timeout`.
pub const TIMED_OUT_STATUS: u8 = 124;
/// Exit status of the launcher if its output was closed, as of a process that SIGPIPE has ended.
pub const CLOSED_STATUS: u8 = 128 + SIGPIPE as u8;
const SIGPIPE: i32 = 13;
const SIGNAL_BASE: i32 = 128;
const PANIC_STATUS: i32 = 101;

/// Output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Stream of this process that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to {}: {error}{}", stream.name(), cure(error))]
pub struct Unwritten {
    /// The stream.
    pub stream: Stream,
    /// The system's error.
    pub error: io::Error,
}

impl Unwritten {
    /// Returns whether its reader has closed it, which is the reader's choice and no failure.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.error.kind() == io::ErrorKind::BrokenPipe
    }
}

impl Stream {
    /// Returns the stream's name, as in "standard output".
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

/// End of a program.
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
    /// All machines have run to their own ends, without gossamer, and this one was the first to fail.
    Exited(Death),
    /// The machines' output could not be written here, so the program was ended.
    Unwritten,
}

/// End of a program, and whether all its output was written.
#[derive(Debug)]
#[must_use]
pub struct Ended {
    /// The end of the program.
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
    /// Returns the exit status for the launcher; 0 only for a program that finished with status 0 and complete output.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self.outcome.status() {
            0 if self.unwritten.iter().any(|stream| !stream.is_closed()) => FAILURE_STATUS,
            0 if !self.unwritten.is_empty() => CLOSED_STATUS,
            status => status,
        }
    }

    /// Returns the messages for the user. A machine's end by SIGPIPE is left out if the output is closed: `| head` ends
    /// the programs before it so.
    #[must_use]
    pub fn messages(&self) -> Vec<String> {
        let closed = self.unwritten.iter().any(Unwritten::is_closed);
        let is_news = !(closed && self.outcome.is_by_closed_pipe());
        let failed = self.unwritten.iter().filter(|stream| !stream.is_closed());
        let failed = failed.map(|stream| format!("{stream}; output of the program is lost"));
        failed.chain(self.outcome.message().filter(|_| is_news)).collect()
    }
}

/// The machine that died first, and its cause.
#[derive(Debug)]
pub struct Death {
    /// Number of the machine.
    pub machine: u16,
    /// Its process id.
    pub pid: u32,
    /// Its host, where there are several hosts.
    pub host: Option<String>,
    /// The cause of its death.
    pub cause: Cause,
    /// The exit status of its process, if known.
    pub exit: Option<ExitStatus>,
    /// Cause of the end of its process, as its host knows it.
    pub explanation: Option<String>,
}

/// Progress of gossamer in a machine when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing was received from it, nor from the others: it needs none.
    Alone,
    /// Nothing was received from it; others wait for it, or it had to join.
    Outside,
    /// It was in `gossamer::main`, and had not found all others.
    Joining,
    /// It ran.
    Ready,
}

/// Cause by which a machine counts as dead.
#[derive(Debug)]
pub enum Cause {
    /// Its process ended before the program had finished.
    Exited {
        /// Its exit status.
        status: ExitStatus,
        /// Progress of gossamer in it.
        stage: Stage,
    },
    /// It reported itself that it cannot go on.
    Failed(String),
    /// Its messages on the control channel made no sense.
    Protocol(String),
    /// It cannot reach another machine any more; nothing is known of that machine's end.
    Lost {
        /// The other machine.
        peer: u16,
        /// The other's host, where there are several hosts.
        host: Option<String>,
        /// The reason that it reported.
        reason: String,
    },
    /// It has been stopped by this signal for too long.
    Stood(i32),
    /// Nothing is received from it any more, or from its host; in words.
    Silent(String),
    /// Its connection was closed without a message that it leaves. The end of its process is not known here.
    Closed,
    /// It was made to end, with all machines of its host, by something other than the program; in words.
    Ended(String),
    /// It was still there this long after the program had finished.
    Lingered(Duration),
}

impl Outcome {
    /// Returns the exit status for the launcher; 0 only for a program that finished with status 0.
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

    /// Returns the message for the user; `None` if all is well.
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

    /// Returns whether a machine was ended by SIGPIPE.
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
            // A signal counts if it was the cause; otherwise the launcher sent it.
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
            Cause::Exited { status, stage } => {
                describe_exit(f, *status, *stage)?;
                self.explanation.iter().try_for_each(|cause| write!(f, ", {cause}"))
            }
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
        Outcome::Died(Death { machine: 1, pid: 123, host: None, cause, exit, explanation: None })
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
