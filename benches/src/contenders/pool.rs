//! Shared by the contenders on `trust`: a pool of pinned workers, properties entrusted to them, and clients that start
//! together.

use crate::contender::Stats;
use crate::prelude::*;
use std::ops::Deref;
use std::panic;
use std::sync::Barrier;
use trust::{Builder, Threadpool, Trust, TrustSlice};

/// The workers that serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every worker is client and trustee.
    Shared,
    /// Some workers only serve.
    Dedicated,
    /// Every worker could be both, but only the first issues, and only the last has the objects.
    Lone,
    /// Every worker is client, and some of them, as many as could be dedicated, have all objects.
    Gathered,
    /// The pool decides.
    Tuned,
}

impl Mode {
    /// The name of this mode among those of all.
    pub fn name(self, names: [&'static str; 5]) -> &'static str {
        names[self as usize]
    }

    pub fn least_threads(self) -> usize {
        if matches!(self, Mode::Shared | Mode::Tuned) { 1 } else { 2 }
    }

    /// Workers that issue operations.
    pub fn clients(self, workload: &Workload) -> usize {
        match self {
            Mode::Shared | Mode::Gathered | Mode::Tuned => workload.threads,
            Mode::Dedicated => workload.clients(),
            Mode::Lone => 1,
        }
    }
}

/// A pool with properties, which go round robin over the trustees.
pub struct Stage<T: 'static> {
    trusts: Arc<[Trust<T>]>,
    clients: usize,
    pool: Threadpool,
    /// The workers' counters when all was ready.
    before: Stats,
}

/// A pool as the workload wants it, with so many workers that only serve.
pub fn pool(workload: &Workload, dedicated: usize) -> Threadpool {
    build(workload, Threadpool::builder().dedicated(dedicated))
}

fn build(workload: &Workload, builder: Builder) -> Threadpool {
    let mut builder = builder.workers(workload.threads);
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
fn stats(pool: &Threadpool) -> Stats {
    let mut sums = Stats::new();
    for (name, value) in pool.trustees().iter().filter_map(|&worker| trust::stats(worker)).flat_map(|one| one.iter()) {
        *sums.entry(name).or_default() += value;
    }
    sums
}

impl<T: Send> Stage<T> {
    /// Starts the workers and entrusts so many properties, as many as there are trustees where nothing is said.
    pub fn of(workload: &Workload, mode: Mode, count: Option<usize>, make: fn() -> T) -> Self {
        let pool = match mode {
            Mode::Shared | Mode::Lone | Mode::Gathered => pool(workload, 0),
            Mode::Dedicated => pool(workload, workload.dedicated),
            Mode::Tuned => build(workload, Threadpool::builder().tuned()),
        };
        let serving = match mode {
            Mode::Shared | Mode::Tuned => pool.trustees().len(),
            Mode::Dedicated | Mode::Gathered => workload.dedicated,
            Mode::Lone => 1,
        };
        // Dedicated workers are the last ones of a pool; so are those with all objects.
        let trustees = &pool.trustees()[pool.trustees().len() - serving..];
        let entrusted = (0..count.unwrap_or(serving)).map(|number| trustees[number % serving].entrust(make()));
        let trusts: Arc<[Trust<T>]> = entrusted.collect();
        // Entrusting never waits. Requests of one thread to one trustee run in order: once these have, all properties
        // are there.
        trusts.iter().take(serving).for_each(|trust| trust.apply(|_| ()));
        let before = stats(&pool);
        Self { trusts, clients: mode.clients(workload), pool, before }
    }

    pub fn trusts(&self) -> Arc<[Trust<T>]> {
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

    /// The result of `look` in a fiber of the first worker, once all that it has asked for is answered.
    pub fn look<R: Default + Send + 'static>(
        &self,
        look: impl FnOnce(&[Trust<T>]) -> Answered<R> + Send + 'static,
    ) -> R {
        let trusts = self.trusts();
        let reader = self.pool.spawn_on(0, move || {
            let answered = look(&trusts);
            trust::wait_all();
            answered.take()
        });
        reader.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
    }

    /// Counts of the workers from now on.
    pub fn restart(&mut self) {
        self.before = stats(&self.pool);
    }

    /// Sum of the workers' counters since all was ready.
    pub fn stats(&self) -> Stats {
        let since = |name, value| value - self.before.get(name).copied().unwrap_or(0);
        stats(&self.pool).into_iter().map(|(name, value)| (name, since(name, value))).collect()
    }
}

/// A result that callbacks put together.
pub type Answered<R> = Rc<RefCell<R>>;

impl Stage<u64> {
    /// With the counters of the workload, all at zero.
    pub fn new(workload: &Workload, mode: Mode) -> Self {
        Self::of(workload, mode, Some(workload.objects), || 0)
    }

    /// Combines the clients of a run with the workers' counters and the entrusted counters.
    pub fn fold(&self, clients: &[ClientRun]) -> Run {
        let stats = self.stats();
        Run { stats, ..fold(clients, self.tally()) }
    }

    /// Entrusts so many counters at zero to all workers by one handle, and counts from then on.
    pub fn entrust_each(&mut self, count: usize) -> TrustSlice<u64> {
        let counters = self.pool.entrust_each((0..count).map(|_| 0));
        let trustees = self.pool.trustees().len();
        counters.iter().take(trustees).for_each(|counter| counter.apply(|_| ()));
        self.restart();
        counters
    }

    /// Reads all counters.
    pub fn tally(&self) -> Tally {
        self.look(|trusts| tally(trusts.iter()))
    }
}

/// Asks for all these counters.
pub fn tally(trusts: impl Iterator<Item: Deref<Target = Trust<u64>>>) -> Answered<Tally> {
    let tally = Answered::<Tally>::default();
    for trust in trusts {
        let tally = tally.clone();
        trust.apply_then(|counter| *counter, move |value| tally.borrow_mut().add(value));
    }
    tally
}

thread_local! {
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
pub fn client_run(start: Instant, ops: u64, fetched: u64) -> ClientRun {
    ClientRun { start, end: Instant::now(), ops, fetched }
}
