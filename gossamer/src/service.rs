//! The service thread of a machine: one more worker, on which nothing of the program computes or blocks, so that it
//! answers whatever the program's workers do. Every machine of a rack of several has one.
//!
//! It is for what concerns a machine rather than one of its workers. As yet: how many requests these have made, for a
//! trustee of another machine that would drop a property (`trust/src/property/reclaim.rs`); what threads without links
//! have for other machines; statistics; word of waits that lead to other machines (`trust/src/runtime/watch/rack.rs`).
//!
//! To the fabric it is one worker more, behind the others (`remote/layout.rs`). To the program it is none: `rack()`
//! does not list it, and nothing of the program is entrusted or spawned there. It sleeps until it is asked, and has no
//! core to itself.
//!
//! Invariant: whatever runs on it is short, and never blocks the thread. Of the program's code that is what threads
//! without links bring along: arguments that serialise themselves, tasks that are woken.

use std::time::Duration;

use trust::Threadpool;

use crate::bootstrap::Plan;
use crate::builder::Builder;
use crate::error::StartError;
use crate::{Place, workers};

/// Threads of a machine behind its workers, where the program has no keepers.
pub(crate) const ALONE: u16 = 1;

/// Where it is, on a machine with so many workers: behind them, at a place that the program has not.
pub(crate) fn place(machine: u16, workers: u16) -> Place {
    Place { machine, worker: workers }
}

/// Starts it, for machine `own`, of which the workers have been started and no other thread delegates yet: it has the
/// next index.
pub(crate) fn start(settings: &Builder, plan: &Plan, own: u16) -> Result<Threadpool, StartError> {
    let builder = workers::builder(settings, 1, own);
    let builder = builder.name(&format!("m{own}-service")).pin(false).spin(Duration::ZERO);
    workers::build_on(&workers::cores(plan.host_of(own))?, builder)
}
