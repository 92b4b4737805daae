//! Result of a step of a task.

use std::time::Duration;

/// Result of a step of a [`Task`](crate::Task).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<R> {
    /// There is more to do. The task may go to another machine now.
    Next,
    /// There is more to do in so long; others run meanwhile.
    Sleep(Duration),
    /// The task has ended, with this result.
    Done(R),
}
