//! Threads of a program in C over several machines, known to the crate above that has them (`gossamer-region-ffi`): for
//! people to see, and to send to other machines.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// Threads of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadsSample {
    /// Threads that have left it until now, by the reason.
    pub left: Vec<(String, u64)>,
    /// All that are there.
    pub threads: Vec<ThreadSample>,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadSample {
    /// Its id, in hexadecimal digits: a browser's numbers are too short.
    pub id: String,
    /// The program's function that it runs.
    pub function: String,
    /// Part of the time since the last sample for which it computed, in thousandths.
    pub busy: u16,
    /// Its moves until now.
    pub moves: u32,
    /// Machine that it came from, and the reason of that move.
    pub came_from: Option<(u16, String)>,
    /// Why it stays on its machine, as far as that is known; empty: it may move.
    pub tie: String,
}

/// Functions of the crate above.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// Returns the threads of this machine.
    pub list: fn() -> ThreadsSample,
    /// Asks a thread to go to a machine, and waits for the outcome: [`DONE`], or why it has not gone. Empty: another
    /// machine is to be asked.
    pub go: fn(u64, u16) -> String,
}

/// Outcome of a question to a thread that has gone where it was asked to.
pub const DONE: &str = "done";

static THREADS: OnceLock<Threads> = OnceLock::new();

/// From now on samples of this machine have these threads, and questions go there.
pub(crate) fn show(threads: Threads) {
    _ = THREADS.set(threads); // the same functions each time
}

/// Returns the threads of this machine; none where no crate has any.
pub(super) fn take() -> ThreadsSample {
    THREADS.get().map_or_else(ThreadsSample::default, |threads| (threads.list)())
}

/// Asks a thread to go to a machine, and waits for the outcome.
pub(super) fn go(thread: u64, machine: u16) -> String {
    match THREADS.get() {
        Some(threads) => (threads.go)(thread, machine),
        None => "the program has no threads that move: it is not one that was started with --region".to_owned(),
    }
}
