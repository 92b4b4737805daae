//! Options that several commands share: [`Comparison`] is of every command that measures, [`Common`] of those that run
//! contenders in this process.

use crate::basics::*;
use crate::contender::Workload;
use crate::pick::{Dist, Picks};

/// From so many objects on counters lie beside each other, else in cache lines of their own: the kinder to locks and
/// atomics in each case.
pub const COMPACT_FROM_OBJECTS: usize = 4096;

/// Operations of a run, where nothing is calibrated.
pub const SMOKE_OPS: u64 = 20_000;
/// Fibers a worker, for `apply`.
pub const FIBERS: usize = 64;

/// Options of every measuring command.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Comparison {
    /// Rounds: each contender runs once a round, in an order shuffled anew.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Write all samples to this file, as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// A size that ends in a few seconds: shows that everything works, says nothing about speed.
    #[arg(long)]
    pub smoke: bool,
    /// Exit with an error where a target is missed or was not measured.
    #[arg(long)]
    pub strict: bool,
}

impl Comparison {
    /// Checks the options and, with `--smoke`, makes the rounds few.
    pub fn prepare(&mut self) -> Result<()> {
        ensure!(self.rounds > 0, "--rounds 0: at least one round is needed");
        if self.smoke {
            self.rounds = self.rounds.min(2);
        }
        Ok(())
    }
}

/// Options of the commands with runs that end after a time, and with targets.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Timed {
    /// Length of a run in milliseconds.
    #[arg(long, default_value_t = 300)]
    pub millis: u64,
    /// Options of all measuring commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub comparison: Comparison,
}

impl Timed {
    /// Checks the options and, with `--smoke`, makes the runs short.
    pub fn prepare(&mut self, smoke_millis: u64) -> Result<()> {
        ensure!(self.millis > 0, "--millis 0: a run needs some time");
        if self.comparison.smoke {
            self.millis = self.millis.min(smoke_millis);
        }
        Ok(())
    }
}

/// Options of the commands with contenders in this process.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("7")))]
pub struct Common {
    /// Options of all measuring commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub comparison: Comparison,
    /// Length of a run in milliseconds; operations are calibrated to it for each contender.
    #[arg(long, default_value_t = 150)]
    pub millis: u64,
    /// Only these contenders, by name.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// A spin-loop hint in the critical section and the delegated closure, as in thesis 2.6.1.
    #[arg(long)]
    pub pause: bool,
    /// Seed of picks and arrivals.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Common {
    /// Checks the options and, with `--smoke`, makes them small.
    pub fn prepare(mut self) -> Result<Self> {
        if self.comparison.smoke {
            self.millis = self.millis.min(20);
        }
        ensure!(self.millis > 0, "--millis 0: a run needs some time");
        Ok(self)
    }

    /// The workload of one series; `ops` is set when it is calibrated.
    pub fn workload(&self, threads: usize, objects: usize, dist: Dist) -> Result<Workload> {
        ensure!(threads > 0, "--threads 0: at least one thread is needed");
        ensure!(objects > 0 && u32::try_from(objects).is_ok(), "--objects {objects}: 1 to {} are possible", u32::MAX);
        Ok(Workload {
            // Threads that only serve, in the dedicated contenders.
            dedicated: (threads / 2).max(1),
            ops: SMOKE_OPS,
            pause: self.pause,
            fibers: FIBERS,
            padded: objects < COMPACT_FROM_OBJECTS,
            ..Workload::of(threads, objects, Picks::new(dist, objects, threads, self.seed))
        })
    }
}
