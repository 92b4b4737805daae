//! Shared by the contenders on `trust`: a pool of pinned workers, counters entrusted to them, and
//! clients that start together.

use crate::contender::Stats;
use crate::prelude::*;
use std::cell::Cell;
use std::panic;
use std::sync::{Arc, Barrier};
use trust::{Threadpool, Trust};

/// The workers that serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every worker is client and trustee.
    Shared,
    /// Some workers only serve.
    Dedicated,
    /// Every worker could be both, but only the first issues, and only the last has the objects.
    Lone,
}

impl Mode {
    /// The name of this mode among those of all.
    pub fn name(self, names: [&'static str; 3]) -> &'static str {
        names[self as usize]
    }

    pub fn least_threads(self) -> usize {
        if self == Mode::Shared { 1 } else { 2 }
    }
}

/// A pool with its counters; objects go round robin over the trustees.
pub struct Stage {
    trusts: Arc<[Trust<u64>]>,
    clients: usize,
    pool: Threadpool,
    /// The workers' counters when all was ready.
    before: Stats,
}

/// A pool as the workload wants it, with so many workers that only serve.
pub fn pool(workload: &Workload, dedicated: usize) -> Threadpool {
    let mut builder = Threadpool::builder().workers(workload.threads).dedicated(dedicated);
    if !workload.pin {
        // Else as it is by default: under a quota nobody is pinned.
        builder = builder.pin(false);
    }
    if let Some(spin) = workload.spin {
        builder = builder.spin(spin);
    }
    builder.build()
}

/// Sum of the workers' counters since their start.
pub fn stats(pool: &Threadpool) -> Stats {
    let mut sums = Stats::new();
    for (name, value) in pool.trustees().iter().filter_map(|&worker| trust::stats(worker)).flat_map(|one| one.iter()) {
        *sums.entry(name).or_default() += value;
    }
    sums
}

/// Sum of the workers' counters since `before`.
pub fn stats_since(pool: &Threadpool, before: &Stats) -> Stats {
    stats(pool).into_iter().map(|(name, value)| (name, value - before.get(name).copied().unwrap_or(0))).collect()
}

impl Stage {
    /// Starts the workers and entrusts the counters, all at zero.
    pub fn new(workload: &Workload, mode: Mode) -> Self {
        let dedicated = if mode == Mode::Dedicated { workload.dedicated } else { 0 };
        let pool = pool(workload, dedicated);
        let serving = match mode {
            Mode::Shared => workload.threads,
            Mode::Dedicated => workload.dedicated,
            Mode::Lone => 1,
        };
        // Dedicated workers are the last ones of a pool.
        let trustees = &pool.trustees()[workload.threads - serving..];
        let trusts: Arc<[_]> =
            (0..workload.objects).map(|object| trustees[object % trustees.len()].entrust(0)).collect();
        let trustees = trustees.len();
        let mut stage = Self { trusts, clients: Self::clients(workload, mode), pool, before: Stats::new() };
        // Entrusting never waits. Requests of one thread to one trustee run in order: once these have, all counters are
        // there.
        for trust in stage.trusts.iter().take(trustees) {
            trust.apply(|_| ());
        }
        stage.before = stats(&stage.pool);
        stage
    }

    /// Workers that issue operations.
    pub fn clients(workload: &Workload, mode: Mode) -> usize {
        match mode {
            Mode::Shared => workload.threads,
            Mode::Dedicated => workload.clients(),
            Mode::Lone => 1,
        }
    }

    pub fn trusts(&self) -> Arc<[Trust<u64>]> {
        self.trusts.clone()
    }

    /// Runs `body(client)` in a fiber on each client worker; all start together.
    ///
    /// # Panics
    /// Where a body panics, with its message.
    pub fn run<R, F>(&self, body: F) -> Vec<R>
    where
        R: Send + 'static,
        F: Fn(usize) -> R + Clone + Send + 'static,
    {
        let start = Arc::new(Barrier::new(self.clients));
        let handles: Vec<_> = (0..self.clients)
            .map(|client| {
                let (start, body) = (start.clone(), body.clone());
                self.pool.spawn_on(client, move || {
                    start.wait();
                    body(client)
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(|panic| panic::resume_unwind(panic))).collect()
    }

    /// Combines the clients of a run with the workers' counters and the entrusted counters.
    pub fn fold(&self, clients: &[ClientRun]) -> Run {
        let stats = stats_since(&self.pool, &self.before);
        Run { stats, ..fold(clients, self.tally()) }
    }

    /// Reads all counters, through a worker.
    pub fn tally(&self) -> Tally {
        let trusts = self.trusts();
        let reader = self.pool.spawn_on(0, move || {
            COUNTED.set(Tally::default());
            let returned = Returned::watch();
            for trust in &*trusts {
                trust.apply_then(
                    |counter| *counter,
                    |value| {
                        let mut tally = COUNTED.get();
                        tally.add(value);
                        COUNTED.set(tally);
                        Returned::add(value);
                    },
                );
            }
            returned.wait(trusts.len() as u64);
            COUNTED.get()
        });
        reader.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
    }
}

thread_local! {
    static COUNTED: Cell<Tally> = const { Cell::new(Tally { total: 0, fetched: 0 }) };
    static RETURNED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Values that the `then` closures on this thread have received: their number and sum.
///
/// A thread-local, so that the closures capture nothing; they run on the client's thread.
#[derive(Debug)]
pub struct Returned(());

impl Returned {
    /// Starts again from zero on this thread.
    pub fn watch() -> Self {
        RETURNED.set((0, 0));
        Self(())
    }

    /// Adds a value; called by `then`.
    #[inline(always)]
    pub fn add(value: u64) {
        let (count, sum) = RETURNED.get();
        RETURNED.set((count + 1, sum.wrapping_add(value)));
    }

    /// Waits until all that this thread has sent is answered, which must be `count` values; returns their sum.
    pub fn wait(self, count: u64) -> u64 {
        trust::wait_all();
        let (came, sum) = RETURNED.get();
        assert_eq!(came, count, "values came");
        sum
    }
}

/// The run of a client that issued `ops` operations since `start` and has just received all results.
pub fn client_run(start: std::time::Instant, ops: u64, fetched: u64) -> ClientRun {
    ClientRun { start, end: std::time::Instant::now(), ops, fetched }
}
