//! Options that several commands share: [`Comparison`] is of every command that measures, [`Common`] of those that run
//! contenders in this process.

use crate::prelude::*;

/// From so many objects on counters lie beside each other, else in cache lines of their own: the kinder to locks and
/// atomics in each case.
const COMPACT_FROM_OBJECTS: usize = 4096;

/// Fibers a worker, for `apply`.
pub const FIBERS: usize = 64;

/// The name of a value on the command line.
pub fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Serialises values by their names on the command line.
macro_rules! serde_by_name {
    ($($kind:ty),*) => {
        $(impl Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&$crate::options::name_of(*self))
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <$kind>::from_str(&String::deserialize(from)?, false).map_err(serde::de::Error::custom)
            }
        })*
    };
}
pub(crate) use serde_by_name;

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
    /// Operations of a run, instead of --millis.
    #[arg(long)]
    pub ops: Option<u64>,
    /// Only these contenders, by name.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Threads that only serve, in the dedicated contenders [default: half of the threads].
    #[arg(long)]
    pub dedicated: Option<usize>,
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
            self.ops = Some(self.ops.unwrap_or(20_000).min(20_000));
            self.millis = self.millis.min(20);
        }
        ensure!(self.millis > 0, "--millis 0: a run needs some time");
        ensure!(self.ops != Some(0), "--ops 0: a run needs some operations");
        Ok(self)
    }

    /// The workload of one series; `ops` is set when it is calibrated.
    pub fn workload(&self, threads: usize, objects: usize, dist: Dist) -> Result<Workload> {
        ensure!(threads > 0, "--threads 0: at least one thread is needed");
        ensure!(objects > 0 && u32::try_from(objects).is_ok(), "--objects {objects}: 1 to {} are possible", u32::MAX);
        let dedicated = self.dedicated.unwrap_or((threads / 2).max(1));
        ensure!(dedicated > 0, "--dedicated 0: the dedicated contenders need a thread that serves");
        ensure!(
            threads == 1 || dedicated < threads,
            "--dedicated {dedicated} of --threads {threads}: no thread is left to be a client"
        );
        Ok(Workload {
            dedicated,
            ops: self.ops.unwrap_or(1000),
            pause: self.pause,
            fibers: FIBERS,
            padded: objects < COMPACT_FROM_OBJECTS,
            ..Workload::of(threads, objects, Picks::new(dist, objects, threads, self.seed))
        })
    }
}
