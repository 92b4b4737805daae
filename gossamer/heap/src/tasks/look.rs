//! Looks at the loads, by tasks between their steps: nothing runs where there are no tasks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use gossamer::link;

use super::entry::now_ns;
use super::policy::Report;
use super::registry::{self, time};
use crate::load;

/// Least time between two looks, and the time between them for each time that one takes.
const EVERY_NS: u64 = 5_000_000;
const TIMES: u64 = 20;

/// A task lets others of its worker run after so long.
pub(super) const SLICE_NS: u64 = 100_000;

static NEXT_NS: AtomicU64 = AtomicU64::new(0);

/// Has the machines report their loads, if there are several.
pub(super) fn begin() {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    if !HAS_BEGUN.swap(true, Relaxed) && gossamer::rack().machines().len() > 1 {
        link::loads(load::of_own_machine);
    }
}

/// Decides which tasks are to go where, if it is time again. True if it was.
pub(super) fn look(now: u64) -> bool {
    let next = NEXT_NS.load(Relaxed);
    if now < next || NEXT_NS.compare_exchange(next, u64::MAX, Relaxed, Relaxed).is_err() {
        return false;
    }
    if gossamer::rack().machines().len() > 1 {
        let reports = link::loads(load::of_own_machine);
        let time = time();
        let report = |load: &link::MachineLoad| Report {
            at: time.saturating_sub(load.age),
            cores: load.cores.into(),
            others: load.others.into(),
            tasks: load.tasks,
        };
        let mut registry = registry::lock();
        registry.policy().observe(time, reports.iter().map(|load| (load.machine, report(load))));
        registry.decide();
    }
    let end = now_ns();
    NEXT_NS.store(end + EVERY_NS.max(TIMES * end.saturating_sub(now)), Relaxed);
    true
}
