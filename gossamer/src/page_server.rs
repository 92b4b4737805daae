//! Page server's worker of a machine: one extra worker, indexed after the service thread, that runs nothing of the
//! program. A
//! crate above uses it to serve requests on which the machine's threads are blocked (`gossamer-region`: their page
//! faults), so its work must finish without any of them.
//!
//! Only a program that was started with such workers has them
//! ([`with_page_servers`](crate::link::with_page_servers)), and only if it has other machines.

use std::sync::OnceLock;
use std::time::Duration;

use trust::Threadpool;

use crate::bootstrap::Plan;
use crate::builder::Builder;
use crate::error::StartError;
use crate::{service, workers};

/// Threads of a machine behind its workers, where the program has page servers.
pub(crate) const HIDDEN_WORKERS: u16 = service::HIDDEN_WORKERS + 1;

static STARTED: OnceLock<()> = OnceLock::new();

/// Returns whether this machine has a page server's worker.
pub(crate) fn is_started() -> bool {
    STARTED.get().is_some()
}

/// Returns its number on a machine with so many workers.
pub(crate) fn number(workers: u16) -> u16 {
    workers + service::HIDDEN_WORKERS
}

/// Starts it for machine `own`. Workers and service thread of the machine have been started and no other thread
/// delegates yet, so it gets the next index.
pub(crate) fn start(settings: &Builder, plan: &Plan, own: u16) -> Result<Threadpool, StartError> {
    let builder = workers::builder(settings, 1, own);
    let _ = STARTED.set(()); // a process runs one program
    let builder = builder.name(&format!("m{own}-pages")).pin(false).spin(Duration::ZERO);
    workers::build_on(&workers::cores(plan.host_of(own))?, builder)
}
