//! `Trust::apply_then` from one fiber a worker: delegation that does not wait (thesis 2.6.1, "Async").

use std::{sync::Arc, time::Instant};

use anyhow::Result;

use super::{
    counter::increment,
    pool::{Mode, Returned, Stage, client_run},
};
use crate::{
    budget::Budget,
    contender::{Contender, Kind, Run, Workload},
};

/// The contender.
#[derive(Debug)]
pub struct ApplyThen {
    mode: Mode,
}

impl ApplyThen {
    /// `apply_then` with trustees placed as `mode` says.
    pub fn new(mode: Mode) -> Self {
        Self { mode }
    }
}

impl Contender for ApplyThen {
    fn name(&self) -> &'static str {
        match self.mode {
            Mode::Shared => "apply_then",
            Mode::Dedicated => "apply_then-dedicated",
            Mode::Lone => "apply_then-lone",
        }
    }

    fn kind(&self) -> Kind {
        Kind::Trust
    }

    fn least_threads(&self) -> usize {
        self.mode.least_threads()
    }

    fn run(&self, workload: &Workload) -> Result<Run> {
        Ok(if workload.pause { run::<true>(workload, self.mode) } else { run::<false>(workload, self.mode) })
    }
}

fn run<const PAUSE: bool>(workload: &Workload, mode: Mode) -> Run {
    let stage = Stage::new(workload, mode);
    let budget = Arc::new(Budget::new(workload, Stage::clients(workload, mode), 1, trust::sleep));
    let (picks, trusts) = (workload.picks.clone(), stage.trusts());
    let clients = stage.run(move |client| {
        let returned = Returned::watch();
        let start = Instant::now();
        let mut ops = 0;
        for claim in budget.claims(client) {
            ops += claim.end - claim.start;
            for &pick in picks.slice(client, &claim) {
                trusts[pick as usize].apply_then(increment::<PAUSE>, Returned::add);
            }
        }
        let fetched = returned.wait(ops);
        client_run(start, ops, fetched)
    });
    stage.fold(&clients)
}
