//! Service thread of a machine: one more worker that runs none of the program's computations and never blocks, so it
//! answers even while the program's workers are busy. Every machine of a rack of several has one.
//!
//! It serves the machine rather than one of its workers. As yet: counts of requests that the workers have made, for a
//! trustee of another machine that would drop a property (`trust/src/property/reclaim.rs`); requests of threads without
//! links to other machines; statistics; reports of loads (`board/`); reports of waits that lead to other machines
//! (`trust/src/runtime/watch/rack.rs`).
//!
//! To the fabric it is one more worker, behind the others (`remote/layout.rs`). To the program it is none: `rack()`
//! does not list it, and nothing of the program is entrusted or spawned there. It sleeps until it has a request, and
//! has no core to itself.
//!
//! Invariant: its work is short, and never blocks the thread. Of the program's code it runs only that of threads
//! without links: arguments that serialise themselves, tasks that are woken; and destructors of tasks of the heap that
//! it cannot start.

use std::time::Duration;

use trust::Threadpool;

use crate::bootstrap::Plan;
use crate::builder::Builder;
use crate::error::StartError;
use crate::workers;

/// Threads of a machine behind its workers, where the program has no page servers.
pub(crate) const HIDDEN_WORKERS: u16 = 1;

/// Returns its number on a machine with so many workers: behind theirs, one that the program does not use.
pub(crate) fn number(workers: u16) -> u16 {
    workers
}

/// Starts it for machine `own`. The machine's workers have been started and no other thread delegates yet, so it gets
/// the next index.
pub(crate) fn start(settings: &Builder, plan: &Plan, own: u16) -> Result<Threadpool, StartError> {
    let builder = workers::builder(settings, 1, own);
    let builder = builder.name(&format!("m{own}-service")).pin(false).spin(Duration::ZERO);
    workers::build_on(&workers::cores(plan.host_of(own))?, builder)
}
