//! Reports of the waits of this worker's fibers.

use super::Worker;
use crate::registry::report::Report;
use crate::unwind::thread_name;

impl Worker {
    pub(crate) fn report(&self, with_names: bool) -> Report {
        Report {
            worker: self.id,
            thread: if with_names { thread_name() } else { String::new() },
            fibers: self.scheduler.seen(with_names),
            root: self.scheduler.root_wait(),
            has_timers: self.timers.next_in().is_some(),
            gathered: self.launches.lines.gathered(),
        }
    }
}

/// Answers all pending questions.
pub(super) fn answer(worker: &Worker) {
    for collection in worker.shared.take_asking() {
        collection.put(worker.report(collection.with_names));
    }
}
