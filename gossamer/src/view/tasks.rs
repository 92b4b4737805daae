//! Tasks of a machine, which go to other ones: known to the crate above that has them (`gossamer-heap`).

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// The most tasks of a sample.
pub const BUSIEST_MAX: usize = 32;

/// Tasks of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksSample {
    /// Tasks there.
    pub count: u64,
    /// Those among them that could run.
    pub runnable: u64,
    /// Tasks that have left it until now, by the reason.
    pub left: Vec<(String, u64)>,
    /// Its busiest tasks, at most [`BUSIEST_MAX`].
    pub busiest: Vec<TaskSample>,
}

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSample {
    /// Its name.
    pub name: String,
    /// Part of the last tenth of a second for which it was in a step, in thousandths.
    pub busy: u16,
    /// Bytes that it read of other machines in that time.
    pub fetched_bytes: u64,
    /// Its moves until now.
    pub moves: u32,
    /// Machine that it came from, and the reason of that move.
    pub came_from: Option<(u16, String)>,
}

/// Returns the tasks of this machine.
static SHOW: OnceLock<fn() -> TasksSample> = OnceLock::new();

/// From now on samples of this machine have the tasks that `show` returns.
pub(crate) fn show(show: fn() -> TasksSample) {
    _ = SHOW.set(show); // the same function each time
}

/// Returns the tasks of this machine; none where no crate has any.
pub(super) fn take() -> TasksSample {
    SHOW.get().map_or_else(TasksSample::default, |show| show())
}
