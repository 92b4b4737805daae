//! `Trust::apply` from many fibers a worker: synchronous delegation (thesis 2.6.1, "Trust"); and `Trust::apply_then`
//! from one fiber a worker: delegation that does not wait ("Async").

use super::counter::increment;
use super::pool::{Mode, Returned, Stage, client_run, tally};
use crate::prelude::*;
use crate::watch::{Latencies, Timer, Unwatched, Watch};
use std::panic;
use trust::Trust;

/// `apply` from many fibers a worker, with trustees placed as `mode` says.
pub fn apply(mode: Mode) -> Contender {
    let name = mode.name(["apply", "apply-dedicated", "apply-lone", "apply-gathered", "apply-tuned"]);
    Contender::new(name, Kind::Trust, mode.least_threads(), move |workload| {
        let workers = workload.threads;
        Ok(match (workload.watch, workload.pause) {
            (Some(split), _) => {
                let watch = move |client| Timer::on_worker(split, client, workers);
                run::<_, false>(workload, mode, watch)
            }
            (None, true) => run::<_, true>(workload, mode, |_| Unwatched),
            (None, false) => run::<_, false>(workload, mode, |_| Unwatched),
        })
    })
}

fn run<W: Watch + 'static, const PAUSE: bool>(
    workload: &Workload,
    mode: Mode,
    watch: impl Fn(usize) -> W + Clone + Send + 'static,
) -> Run {
    let stage = Stage::new(workload, mode);
    let fibers = workload.fibers;
    let budget = Arc::new(Budget::new(workload, mode.clients(workload), fibers, trust::sleep));
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

/// `apply_then` from one fiber a worker, with trustees placed as `mode` says.
pub fn apply_then(mode: Mode) -> Contender {
    let name =
        mode.name(["apply_then", "apply_then-dedicated", "apply_then-lone", "apply_then-gathered", "apply_then-tuned"]);
    Contender::new(name, Kind::Trust, mode.least_threads(), move |workload| {
        Ok(if workload.pause { run_then::<true>(workload, mode) } else { run_then::<false>(workload, mode) })
    })
}

fn run_then<const PAUSE: bool>(workload: &Workload, mode: Mode) -> Run {
    let stage = Stage::new(workload, mode);
    let trusts = stage.trusts();
    let increment = move |pick: usize| trusts[pick].apply_then(increment::<PAUSE>, Returned::add);
    let clients = clients_then(&stage, workload, mode, increment);
    stage.fold(&clients)
}

/// `apply_then` on the elements of one [`trust::TrustSlice`], every worker client and trustee.
pub fn apply_then_slice() -> Contender {
    Contender::new("apply_then-slice", Kind::Trust, 1, |workload| {
        Ok(if workload.pause { run_slice::<true>(workload) } else { run_slice::<false>(workload) })
    })
}

fn run_slice<const PAUSE: bool>(workload: &Workload) -> Run {
    let mut stage = Stage::<u64>::of(workload, Mode::Shared, Some(0), || 0);
    let counters = stage.entrust_each(workload.objects);
    let elements = counters.clone();
    // Closures of its own: calls of the same two as above would share their code, which is inlined in neither then.
    #[expect(clippy::redundant_closure, reason = "for a type of its own")]
    let increment = move |pick: usize| {
        elements.at(pick).apply_then(|counter| increment::<PAUSE>(counter), |value| Returned::add(value));
    };
    let clients = clients_then(&stage, workload, Mode::Shared, increment);
    let tally = stage.look(move |_| tally(counters.iter()));
    Run { stats: stage.stats(), ..fold(&clients, tally) }
}

/// Runs the clients: each calls `increment` for its picks, and then waits for all values.
fn clients_then(
    stage: &Stage<u64>,
    workload: &Workload,
    mode: Mode,
    increment: impl Fn(usize) + Clone + Send + 'static,
) -> Vec<ClientRun> {
    let budget = Arc::new(Budget::new(workload, mode.clients(workload), 1, trust::sleep));
    let picks = workload.picks.clone();
    stage.run(move |client| {
        let returned = Returned::watch();
        let start = Instant::now();
        let mut ops = 0;
        for claim in budget.claims(client) {
            ops += claim.end - claim.start;
            for &pick in picks.slice(client, &claim) {
                increment(pick as usize);
            }
        }
        let fetched = returned.wait(ops);
        client_run(start, ops, fetched)
    })
}
