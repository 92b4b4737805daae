//! The loads: counters, a table, messages, and a load that changes.

use crate::contenders::counter::increment;
use crate::contenders::pool::{Stage, client_run};
use crate::contenders::{Mode, apply};
use crate::kv;
use crate::names::serde_by_name;
use crate::prelude::*;
use std::hint::black_box;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use trust::Trust;

/// Load of a pool, or what else is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// Counters, over the numbers of objects
    FetchAdd,
    /// The table of `kv`: Zipf's law, 5% writes, one `apply_then` an operation
    Kv,
    /// Messages of 32 bytes to sixteen peers and back
    Echo,
    /// Phases of closures that do next to nothing, and of closures that compute for a microsecond
    Phases,
    /// Counters beside a thread that spins on the last core; also those under a lock
    Hog,
    /// Moves of an idle pool's trustee
    Pauses,
}

serde_by_name!(Load);

/// Objects of the loads that have no number of their own.
const PEERS: usize = 16;
const KEYS: usize = 100_000;
/// Writes in a hundred.
const WRITES: u32 = 5;
const SEED: u64 = 1;
/// Phases of a run: two of each kind.
const PHASES: f64 = 4.0;
/// Steps of a closure that computes, about a nanosecond each.
const STEPS: u32 = 1000;

impl Load {
    pub fn objects(self) -> usize {
        if self == Load::Kv { KEYS } else { PEERS }
    }

    pub fn picks(self, objects: usize, threads: usize) -> Picks {
        if self == Load::Kv {
            Picks::new(Dist::Zipf, objects, threads, SEED).marked(WRITES, SEED)
        } else {
            Picks::new(Dist::Uniform, objects, threads, SEED)
        }
    }

    /// The contender with trustees as `mode` says.
    pub fn contender(self, mode: Mode, picks: &Picks) -> Contender {
        let of_calls = |name, calls: [Call; 2]| {
            Contender::new(name, Kind::Trust, mode.least_threads(), move |workload| Ok(run(workload, mode, calls)))
        };
        match self {
            Load::Kv => kv::tables::delegated(mode, picks.clone()),
            Load::Echo => of_calls("echo", [echo; 2]),
            Load::Phases => of_calls("phases", [fetch_add, compute]),
            Load::FetchAdd | Load::Hog | Load::Pauses => apply(mode),
        }
    }
}

/// One operation, with its number; returns the value that it has found.
type Call = fn(&Trust<u64>, u64) -> u64;

fn fetch_add(counter: &Trust<u64>, _: u64) -> u64 {
    counter.apply(increment::<false>)
}

fn compute(counter: &Trust<u64>, _: u64) -> u64 {
    counter.apply(|counter| {
        (0..STEPS).for_each(|step| {
            black_box(step);
        });
        increment::<false>(counter)
    })
}

fn echo(peer: &Trust<u64>, number: u64) -> u64 {
    let message = [number, number + 1, number + 2, number + 3];
    let (before, answer) = peer.apply(move |asked| (increment::<false>(asked), message));
    assert_eq!(answer, message, "the answer to another message");
    before
}

/// Runs the fibers of all clients: the first call in the first phase, the other one in the next, and so on. The rate is
/// the geometric mean of those of the two kinds of phase.
fn run(workload: &Workload, mode: Mode, calls: [Call; 2]) -> Run {
    let stage = Stage::new(workload, mode);
    let (picks, trusts, fibers) = (workload.picks.clone(), stage.trusts(), workload.fibers);
    let budget = Arc::new(Budget::new(workload, mode.clients(workload), fibers, trust::sleep));
    let lasts = workload.timed.map_or(Duration::MAX, |timed| timed.lasts);
    let made: Arc<[AtomicU64; 2]> = Arc::default();
    let counts = made.clone();
    let clients = stage.run(move |client| {
        let start = Instant::now();
        let fiber = || {
            let (budget, picks, trusts, counts) = (budget.clone(), picks.clone(), trusts.clone(), counts.clone());
            trust::spawn(move || {
                let (mut ops, mut fetched) = ([0; 2], 0u64);
                for claim in budget.claims(client) {
                    let phase = (start.elapsed().as_secs_f64() / lasts.as_secs_f64() * PHASES) as usize % 2;
                    ops[phase] += claim.end - claim.start;
                    for (number, &pick) in claim.clone().zip(picks.slice(client, &claim)) {
                        fetched = fetched.wrapping_add(calls[phase](&trusts[pick as usize], number));
                    }
                }
                for (count, ops) in counts.iter().zip(ops) {
                    count.fetch_add(ops, Ordering::Relaxed);
                }
                (ops.iter().sum::<u64>(), fetched)
            })
        };
        let handles: Vec<_> = (0..fibers).map(|_| fiber()).collect();
        let (mut ops, mut fetched) = (0, 0u64);
        for handle in handles {
            let (more_ops, more) = handle.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
            ops += more_ops;
            fetched = fetched.wrapping_add(more);
        }
        client_run(start, ops, fetched)
    });
    let run = stage.fold(&clients);
    let [first, other] = made.each_ref().map(|count| count.load(Ordering::Relaxed) as f64);
    let rate_hz = 2.0 * (first * other).sqrt() / run.elapsed.as_secs_f64();
    Run { rate_hz, ..run }
}
