//! Questions to a machine of a watched program.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

/// Question to a machine. The contents of the answer's bytes are in `view`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    /// Counters of the machine. The viewer keeps asking for the next seconds.
    Sample,
    /// The waits of all fibers ([`trust::dump`]).
    Dump,
    /// A trace of all workers for so long, at most [`Look::TRACE_MAX`].
    Trace(#[serde(deserialize_with = "not_too_long")] Duration),
    /// Asks a thread of a C program to go to a machine: the answer is the outcome, or empty where another machine is
    /// asked.
    Move {
        /// Id of the thread.
        thread: u64,
        /// Number of the machine.
        machine: u16,
    },
}

impl Look {
    /// Longest trace.
    pub const TRACE_MAX: Duration = Duration::from_secs(600);
}

fn not_too_long<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let time = Duration::deserialize(from)?;
    if time > Look::TRACE_MAX {
        return Err(serde::de::Error::custom("a trace of that length is too long"));
    }
    Ok(time)
}
