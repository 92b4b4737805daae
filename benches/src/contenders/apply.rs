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
    contender::{Contender, Kind, Run, Workload},
    pick::Picks,
    watch::{Latencies, Timer, Unwatched, Watch},
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
        self.mode.least_threads()
    }

    fn run(&self, workload: &Workload) -> Result<Run> {
        let (mode, workers) = (self.mode, workload.threads);
        Ok(match (workload.watch, workload.pause) {
            (Some(split), _) => {
                let watch = move |client| Timer::on_worker(split, client, workers);
                run::<_, false>(workload, mode, watch)
            }
            (None, true) => run::<_, true>(workload, mode, |_| Unwatched),
            (None, false) => run::<_, false>(workload, mode, |_| Unwatched),
        })
    }
}

fn run<W: Watch + 'static, const PAUSE: bool>(
    workload: &Workload,
    mode: Mode,
    watch: impl Fn(usize) -> W + Clone + Send + 'static,
) -> Run {
    let stage = Stage::new(workload, mode);
    let fibers = workload.fibers;
    let budget = Arc::new(Budget::new(workload, Stage::clients(workload, mode), fibers, trust::sleep));
    let (picks, trusts) = (workload.picks.clone(), stage.trusts());
    let results = stage.run(move |client| {
        let start = Instant::now();
        let handles: Vec<_> = (0..fibers)
            .map(|_| {
                let (budget, picks, trusts) = (budget.clone(), picks.clone(), trusts.clone());
                let watch = watch.clone();
                trust::spawn(move || fiber::<_, PAUSE>(client, &budget, &picks, &trusts, watch(client)))
            })
            .collect();
        let (mut ops, mut fetched, mut latencies) = (0, 0u64, None);
        for handle in handles {
            let (fiber_ops, fiber_fetched, seen) = handle.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
            ops += fiber_ops;
            fetched = fetched.wrapping_add(fiber_fetched);
            latencies = Latencies::sum([latencies, seen]);
        }
        (client_run(start, ops, fetched), latencies)
    });
    let (clients, latencies): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    Run { latencies: Latencies::sum(latencies), ..stage.fold(&clients) }
}

fn fiber<W: Watch, const PAUSE: bool>(
    client: usize,
    budget: &Budget,
    picks: &Picks,
    trusts: &[Trust<u64>],
    mut watch: W,
) -> (u64, u64, Option<Latencies>) {
    let (mut ops, mut fetched) = (0, 0u64);
    for claim in budget.claims(client) {
        ops += claim.end - claim.start;
        for &pick in picks.slice(client, &claim) {
            let begun = watch.begin();
            fetched = fetched.wrapping_add(trusts[pick as usize].apply(increment::<PAUSE>));
            watch.end(pick, begun);
        }
    }
    (ops, fetched, watch.latencies())
}
