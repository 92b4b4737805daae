//! Reasons why the machines of a program could not find one another.

use std::time::Duration;

use comm::descriptors::cure;
use rustix::process::Signal;

use super::FAILURE_STATUS;
use crate::supervise::signals::describe;

/// Error before the plan of the program is known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RendezvousError {
    #[error("the environment variable {name} has the value {value:?}, but should be {expected}")]
    Variable { name: &'static str, value: String, expected: &'static str },
    #[error("the environment variable {missing} is missing although {present} is set: {cure}")]
    Missing { missing: &'static str, present: &'static str, cure: &'static str },
    #[error(
        "{starter} has started {tasks} processes of this program, but given them no way to find one another: {cure}; \
         to run each by itself set GOSSAMER_START=alone"
    )]
    NoRendezvous { starter: &'static str, tasks: String, cure: &'static str },
    #[error(
        "the process manager's descriptor (PMI_FD={fd}) did not reach this process: a wrapper has closed it; run the \
         program without the wrapper, or set GOSSAMER_START=alone to run it as one process"
    )]
    PmiClosed { fd: i32 },
    #[error("the process manager cannot be used (PMI): {0}")]
    Pmi(String),
    #[error("the process manager cannot be used (PMIx): {0}")]
    Pmix(String),
    #[error(
        "the other processes did not come to the process manager's barrier within {0:?}: see that all tasks of the \
         step run this program and call gossamer::main (GOSSAMER_START_TIMEOUT sets the time)"
    )]
    Barrier(Duration),
    #[error("machine 0 refuses this machine: {0}")]
    Refused(String),
    #[error("the start was given up by machine 0: {0}")]
    GivenUp(String),
    #[error(
        "{missing} of {count} did not come within {waited:?}: see whether each was started, what it printed, and \
         whether it calls gossamer::main (GOSSAMER_START_TIMEOUT sets the time)"
    )]
    NotCome { missing: String, count: u16, waited: Duration },
    #[error("machine 0 could not be reached at {at} within {waited:?}: {cause}")]
    Unreachable { at: String, waited: Duration, cause: String },
    #[error("while the machines connected: {0}")]
    NotOurs(String),
    #[error("{0}")]
    Wrong(String),
    #[error("the program was ended by {} while it started", describe(.0.as_raw()))]
    Interrupted(Signal),
    #[error("machine 0 has gone while the program started: see what it printed")]
    HubGone,
    #[error("while the machines connected: {0}")]
    Comm(#[source] comm::Error),
    #[error("cannot {doing}: {source}{}", cure(.source))]
    System { doing: &'static str, source: std::io::Error },
}

impl RendezvousError {
    /// Returns the exit status of the process that could not start.
    pub(super) fn status(&self) -> u8 {
        match self {
            RendezvousError::Interrupted(signal) => status(*signal),
            _ => FAILURE_STATUS,
        }
    }

    pub(super) fn system<E: Into<std::io::Error>>(doing: &'static str) -> impl FnOnce(E) -> RendezvousError {
        move |source| RendezvousError::System { doing, source: source.into() }
    }
}

/// Exit status of a process that a signal has ended in order.
pub(super) fn status(signal: Signal) -> u8 {
    128 + signal.as_raw() as u8 // the largest caught signal is 15
}
