//! `Trust::apply` from many fibers a worker: synchronous delegation (thesis 2.6.1, "Trust").

use std::{panic, sync::Arc, time::Instant};

use anyhow::Result;
use trust::Trust;

use super::{
    counter::increment,
    pool::{Mode, Stage, client_run},
};
use crate::{
    budget::Budget,
    contender::{Contender, Kind, Run, Workload, fold},
    pick::Picks,
};

/// The contender.
#[derive(Debug)]
pub struct Apply {
    mode: Mode,
}

impl Apply {
    /// `apply` with trustees placed as `mode` says.
    pub fn new(mode: Mode) -> Self {
        Self { mode }
    }
}

impl Contender for Apply {
    fn name(&self) -> &'static str {
        match self.mode {
            Mode::Shared => "apply",
            Mode::Dedicated => "apply-dedicated",
            Mode::Lone => "apply-lone",
        }
    }

    fn kind(&self) -> Kind {
        Kind::Trust
    }

    fn least_threads(&self) -> usize {
        if self.mode == Mode::Shared { 1 } else { 2 }
    }

    fn run(&self, workload: &Workload) -> Result<Run> {
        Ok(if workload.pause { run::<true>(workload, self.mode) } else { run::<false>(workload, self.mode) })
    }
}

fn run<const PAUSE: bool>(workload: &Workload, mode: Mode) -> Run {
    let stage = Stage::new(workload, mode);
    let fibers = workload.fibers;
    let budget = Arc::new(Budget::new(workload.ops, Stage::clients(workload, mode), fibers, workload.share));
    let (picks, trusts) = (workload.picks.clone(), stage.trusts());
    let clients = stage.run(move |client| {
        let start = Instant::now();
        let handles: Vec<_> = (0..fibers)
            .map(|_| {
                let (budget, picks, trusts) = (budget.clone(), picks.clone(), trusts.clone());
                trust::spawn(move || fiber::<PAUSE>(client, &budget, &picks, &trusts))
            })
            .collect();
        let (mut ops, mut fetched) = (0, 0u64);
        for handle in handles {
            let (fiber_ops, fiber_fetched) = handle.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
            ops += fiber_ops;
            fetched = fetched.wrapping_add(fiber_fetched);
        }
        client_run(start, ops, fetched)
    });
    fold(&clients, stage.tally())
}

fn fiber<const PAUSE: bool>(client: usize, budget: &Budget, picks: &Picks, trusts: &[Trust<u64>]) -> (u64, u64) {
    let (mut ops, mut fetched) = (0, 0u64);
    while let Some(claim) = budget.claim(client) {
        ops += claim.end - claim.start;
        for &pick in picks.slice(client, &claim) {
            fetched = fetched.wrapping_add(trusts[pick as usize].apply(increment::<PAUSE>));
        }
    }
    (ops, fetched)
}
