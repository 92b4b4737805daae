//! The reactor of a build without the feature `net`: there are no sockets, so no worker waits for any.

use crate::fiber::Scheduler;

/// The sockets of a worker: none.
#[derive(Default)]
pub(crate) struct Reactor(());

impl Reactor {
    pub(crate) fn is_active(&self) -> bool {
        false
    }

    pub(crate) fn turn(&self, _scheduler: &Scheduler, _must_look: bool) -> bool {
        false
    }

    pub(crate) fn look_next(&self) {}

    pub(crate) fn cannot_sleep(&self) -> bool {
        false
    }
}
