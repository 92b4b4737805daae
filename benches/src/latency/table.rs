//! Medians of a latency run, and how they are printed.

use serde::{Deserialize, Serialize};

use super::{Outcome, SeriesKey};
use crate::{pick::Dist, report::median};

/// Latencies of a run, or their medians over runs, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Quantiles {
    /// Mean.
    pub mean_ns: f64,
    /// Half are faster.
    pub p50_ns: f64,
    /// 99 of 100 are faster.
    pub p99_ns: f64,
    /// 999 of 1000 are faster.
    pub p999_ns: f64,
    /// Slowest.
    pub max_ns: f64,
}

/// One verified run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Its round, counted from 1.
    pub round: usize,
    /// Operations made.
    pub ops: u64,
    /// Millions of operations a second that were completed.
    pub achieved_mops: f64,
    /// Latencies.
    #[serde(flatten)]
    pub latency: Quantiles,
}

impl Sample {
    /// Sums up a run.
    pub fn new(round: usize, outcome: &Outcome) -> Self {
        let quantile = |q: f64| outcome.histogram.value_at_quantile(q) as f64;
        Self {
            round,
            ops: outcome.ops,
            achieved_mops: outcome.run.mops(outcome.ops),
            latency: Quantiles {
                mean_ns: outcome.histogram.mean(),
                p50_ns: quantile(0.5),
                p99_ns: quantile(0.99),
                p999_ns: quantile(0.999),
                max_ns: outcome.histogram.max() as f64,
            },
        }
    }
}

/// One contender at one offered load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Contender.
    pub contender: String,
    /// Counters.
    pub objects: usize,
    /// How they were picked.
    pub dist: Dist,
    /// OS threads.
    pub threads: usize,
    /// Threads that only serve, in the dedicated contenders.
    pub dedicated: usize,
    /// Load offered, in millions of operations a second.
    pub offered_mops: f64,
    /// Median of the completed load.
    pub achieved_mops: f64,
    /// Medians over the runs.
    pub latency: Quantiles,
    /// All runs in the order of their rounds.
    pub samples: Vec<Sample>,
}

impl Point {
    /// A point without samples yet.
    pub fn new(contender: &str, key: SeriesKey, threads: usize, dedicated: usize, offered_mops: f64) -> Self {
        Self {
            contender: contender.to_owned(),
            objects: key.objects,
            dist: key.dist,
            threads,
            dedicated,
            offered_mops,
            achieved_mops: 0.0,
            latency: Quantiles::default(),
            samples: Vec::new(),
        }
    }

    /// Takes the medians of the samples.
    pub fn sum_up(&mut self) {
        let middle = |value: fn(&Sample) -> f64| median(&self.samples.iter().map(value).collect::<Vec<_>>());
        self.latency = Quantiles {
            mean_ns: middle(|sample| sample.latency.mean_ns),
            p50_ns: middle(|sample| sample.latency.p50_ns),
            p99_ns: middle(|sample| sample.latency.p99_ns),
            p999_ns: middle(|sample| sample.latency.p999_ns),
            max_ns: middle(|sample| sample.latency.max_ns),
        };
        self.achieved_mops = middle(|sample| sample.achieved_mops);
    }

    /// Whether the contender kept up with the load.
    pub fn kept_up(&self) -> bool {
        self.achieved_mops >= 0.95 * self.offered_mops
    }
}

/// Prints the points of a series, medians over rounds.
pub fn print(key: SeriesKey, points: &[Point]) {
    println!("\nlatency, {} objects, {}", key.objects, key.dist);
    println!(
        "  {:<22} {:>8} {:>9} {:>10} {:>10} {:>10} {:>10}",
        "ns", "offered", "achieved", "mean", "p50", "p99", "p99.9"
    );
    for point in points {
        let Quantiles { mean_ns, p50_ns, p99_ns, p999_ns, .. } = point.latency;
        println!(
            "  {:<22} {:>8} {:>9.3} {mean_ns:>10.0} {p50_ns:>10.0} {p99_ns:>10.0} {p999_ns:>10.0}{}",
            point.contender,
            point.offered_mops,
            point.achieved_mops,
            if point.kept_up() { "" } else { "  fell behind" }
        );
    }
}
