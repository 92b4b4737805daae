//! The trait of contenders: one way to let several clients increment shared counters, and the proof
//! that it did.
//!
//! Not here: how contenders are interleaved and timed over rounds (harness.rs).

use crate::basics::*;
use crate::pick::Picks;
use crate::report::Kind;
use crate::watch::{Latencies, Split};

/// A run that ends by the clock: each client makes as many operations as it can.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// From the first client's start on.
    pub lasts: Duration,
    /// All clients rest for so long, then work for so long, and so on.
    pub bursts: Option<Duration>,
}

/// Task of a run; the same for all contenders of a series.
#[derive(Clone, Debug)]
pub struct Workload {
    /// OS threads, clients and trustees together.
    pub threads: usize,
    /// How many of them only serve, in contenders that have such threads.
    pub dedicated: usize,
    pub objects: usize,
    pub picks: Picks,
    /// Increments of the run, over all clients; not asked for where the run ends by the clock.
    pub ops: u64,
    pub timed: Option<Timed>,
    /// A `spin_loop` hint inside the critical section or delegated closure (thesis 2.6.1).
    pub pause: bool,
    /// Fibers a worker, for `apply`.
    pub fibers: usize,
    pub pin: bool,
    /// How long a worker of `trust` polls before it sleeps, if not as long as it likes.
    pub spin: Option<Duration>,
    /// Latencies are wanted, told apart like this; only `apply` with one fiber and counters under locks have them.
    pub watch: Option<Split>,
    /// Whether each counter has cache lines of its own.
    pub padded: bool,
}

impl Workload {
    /// One fiber a worker, threads pinned, nothing batched; the run is of one operation.
    pub fn of(threads: usize, objects: usize, picks: Picks) -> Self {
        Self {
            threads,
            dedicated: 1,
            objects,
            picks,
            ops: 1,
            timed: None,
            pause: false,
            fibers: 1,
            pin: true,
            spin: None,
            watch: None,
            padded: true,
        }
    }

    /// Threads that issue operations where `dedicated` others only serve.
    pub fn clients(&self) -> usize {
        self.threads - self.dedicated
    }
}

/// One run of a contender, before it is checked.
#[derive(Clone, Debug)]
pub struct Run {
    /// From the first client's start to the last client's end.
    pub elapsed: Duration,
    pub ops: u64,
    /// Operations a second of the clients, each over its own time, summed.
    pub rate_hz: f64,
    /// Sum of the values that all increments returned (each the value before).
    pub fetched: u64,
    pub counters: Tally,
    /// Counters of the workers of `trust` over the run.
    pub stats: Stats,
    pub latencies: Option<Latencies>,
}

/// Counters of `trust` by name, summed over workers.
pub type Stats = BTreeMap<&'static str, u64>;

/// Final counters, folded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub total: u64,
    /// Sum over the counters of 0 + 1 + … + (value - 1): the sum that their increments must have returned.
    pub fetched: u64,
}

impl Tally {
    /// Adds a counter that started at zero and stands at `value`.
    pub fn add(&mut self, value: u64) {
        self.total += value;
        let pairs = u128::from(value) * u128::from(value.saturating_sub(1)) / 2;
        self.fetched = self.fetched.wrapping_add(pairs as u64);
    }
}

impl FromIterator<u64> for Tally {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        let mut tally = Self::default();
        values.into_iter().for_each(|value| tally.add(value));
        tally
    }
}

impl Run {
    pub fn mops(&self, ops: u64) -> f64 {
        ops as f64 / self.elapsed.as_secs_f64() / 1e6
    }

    /// Checks that no increment was lost or made twice and that each returned the value it found.
    pub fn verify(&self, ops: u64) -> Result<()> {
        let Tally { total, fetched } = self.counters;
        ensure!(
            total == ops,
            "the counters sum up to {total} after {ops} increments: increments were lost or made twice"
        );
        ensure!(
            fetched == self.fetched,
            "the increments returned values that sum up to {}, but these counters must have returned {fetched}",
            self.fetched
        );
        Ok(())
    }
}

type RunOnce = dyn Fn(&Workload) -> Result<Run>;

/// One way to increment shared counters.
pub struct Contender {
    /// In tables, JSON and `--only`.
    pub name: &'static str,
    pub kind: Kind,
    pub least_threads: usize,
    run: Box<RunOnce>,
    finish: Box<dyn Fn() -> Result<()>>,
}

impl Contender {
    /// `run` sets up, runs the workload once, and tears down; only the operations are timed.
    pub fn new(
        name: &'static str,
        kind: Kind,
        least_threads: usize,
        run: impl Fn(&Workload) -> Result<Run> + 'static,
    ) -> Self {
        Self { name, kind, least_threads, run: Box::new(run), finish: Box::new(|| Ok(())) }
    }

    /// With a check, after the last round, of the state that is kept from run to run.
    pub fn with_finish(self, finish: impl Fn() -> Result<()> + 'static) -> Self {
        Self { finish: Box::new(finish), ..self }
    }

    pub fn run(&self, workload: &Workload) -> Result<Run> {
        (self.run)(workload)
    }

    pub fn finish(&self) -> Result<()> {
        (self.finish)()
    }
}

/// Times of one client's run, and the values that its increments returned.
#[derive(Clone, Copy, Debug)]
pub struct ClientRun {
    pub start: Instant,
    pub end: Instant,
    pub ops: u64,
    pub fetched: u64,
}

/// Folds threads that are each a client or a server with its counters.
pub fn fold_roles(roles: Vec<(Option<ClientRun>, Tally)>) -> Run {
    let clients: Vec<ClientRun> = roles.iter().filter_map(|(client, _)| *client).collect();
    let both =
        |sum: Tally, one: Tally| Tally { total: sum.total + one.total, fetched: sum.fetched.wrapping_add(one.fetched) };
    fold(&clients, roles.into_iter().map(|(_, counters)| counters).fold(Tally::default(), both))
}

/// Folds the clients of a run: from the first start to the last end.
pub fn fold(clients: &[ClientRun], counters: Tally) -> Run {
    let start = clients.iter().map(|client| client.start).min();
    let end = clients.iter().map(|client| client.end).max();
    let rates = clients.iter().map(|client| client.ops as f64 / (client.end - client.start).as_secs_f64().max(1e-9));
    Run {
        elapsed: match (start, end) {
            (Some(start), Some(end)) => end - start,
            _ => Duration::ZERO,
        },
        ops: clients.iter().map(|client| client.ops).sum(),
        rate_hz: rates.sum(),
        fetched: clients.iter().fold(0, |sum, client| sum.wrapping_add(client.fetched)),
        counters,
        stats: Stats::new(),
        latencies: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(fetched: u64, counters: &[u64]) -> Run {
        Run { fetched, ..fold(&[], counters.iter().copied().collect()) }
    }

    #[test]
    fn a_correct_run_passes() {
        // Two counters at 3 and 2: they returned 0, 1, 2 and 0, 1.
        run(4, &[3, 2]).verify(5).unwrap();
    }

    #[test]
    fn a_lost_increment_is_found() {
        assert!(run(4, &[3, 1]).verify(5).is_err());
    }

    #[test]
    fn a_value_returned_twice_is_found() {
        assert!(run(3, &[3, 2]).verify(5).is_err());
    }
}
