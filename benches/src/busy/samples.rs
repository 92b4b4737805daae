//! Samples of `busy` and their medians.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{
    conditions::Condition,
    points::{Who, Work},
};
use crate::{
    contender::Run,
    report::{median, spread},
    watch::Latencies,
};

/// Latencies of one kind of request in one run, or their medians over runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many requests were timed.
    pub timed: f64,
    /// Half are faster.
    pub p50_ns: f64,
    /// 99 of 100 are faster.
    pub p99_ns: f64,
    /// 999 of 1000 are faster.
    pub p999_ns: f64,
    /// Slowest of those that were timed.
    pub max_ns: f64,
}

/// Latencies by the owner of the core that was taken; `None` where there was no such request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// The core of neither client nor trustee, or of an unknown thread.
    pub others: Option<Quantiles>,
    /// The trustee's.
    pub to_taken: Option<Quantiles>,
    /// The client's, and not the trustee's.
    pub from_taken: Option<Quantiles>,
}

/// One verified run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Its round, counted from 1.
    pub round: usize,
    /// Operations made.
    pub ops: u64,
    /// Millions of operations a second.
    pub mops: f64,
    /// From the first client's start to the last one's end, in seconds.
    pub seconds: f64,
    /// Rate of the slowest client over that of the fastest.
    pub fairness: f64,
    /// Latencies, where they were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Split>,
    /// Totals that the workers counted in the run, where there were workers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stats: BTreeMap<String, u64>,
    /// Time that the host took from all cores together, in milliseconds; `None` where it does not say.
    pub stolen_ms: Option<f64>,
    /// One cache line from core to core and back, just before the run, in nanoseconds.
    pub transfer_ns: f64,
}

impl Sample {
    /// Sums up a run.
    pub fn new(round: usize, run: &Run, transfer_ns: f64, stolen_ms: Option<f64>) -> Self {
        Self {
            round,
            ops: run.ops,
            mops: run.rate_hz / 1e6,
            seconds: run.elapsed.as_secs_f64(),
            fairness: run.fairness,
            latency: run.latencies.as_ref().map(Split::of),
            stats: run.stats.iter().map(|(&name, &value)| (name.to_owned(), value)).collect(),
            stolen_ms,
            transfer_ns,
        }
    }
}

impl Split {
    fn of(latencies: &Latencies) -> Self {
        Self {
            others: Quantiles::of(&latencies.others),
            to_taken: Quantiles::of(&latencies.to_taken),
            from_taken: Quantiles::of(&latencies.from_taken),
        }
    }

    fn medians(samples: &[Sample]) -> Option<Self> {
        let of = |pick: fn(&Split) -> Option<Quantiles>| {
            Quantiles::medians(&samples.iter().filter_map(|sample| pick(sample.latency.as_ref()?)).collect::<Vec<_>>())
        };
        samples.iter().any(|sample| sample.latency.is_some()).then(|| Self {
            others: of(|split| split.others),
            to_taken: of(|split| split.to_taken),
            from_taken: of(|split| split.from_taken),
        })
    }
}

impl Quantiles {
    fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64;
        (!histogram.is_empty()).then(|| Self {
            timed: histogram.len() as f64,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: histogram.max() as f64,
        })
    }

    fn medians(all: &[Self]) -> Option<Self> {
        let middle = |value: fn(&Self) -> f64| median(&all.iter().map(value).collect::<Vec<_>>());
        (!all.is_empty()).then(|| Self {
            timed: middle(|one| one.timed),
            p50_ns: middle(|one| one.p50_ns),
            p99_ns: middle(|one| one.p99_ns),
            p999_ns: middle(|one| one.p999_ns),
            max_ns: middle(|one| one.max_ns),
        })
    }
}

/// All runs of one contender with one workload under one condition.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Under which condition.
    pub condition: Condition,
    /// Work of the clients.
    pub work: Work,
    /// The contender.
    pub contender: Who,
    /// Workers, or threads that contend; plain threads beside a pool.
    pub threads: usize,
    /// Median of the samples, in millions of operations a second.
    pub median_mops: f64,
    /// Slowest sample.
    pub min_mops: f64,
    /// Fastest sample.
    pub max_mops: f64,
    /// Medians of the samples' latencies, where they were taken.
    pub latency: Option<Split>,
    /// Medians of the workers' counters, a second.
    pub stats_per_second: BTreeMap<String, f64>,
    /// All samples in the order of their rounds.
    pub samples: Vec<Sample>,
}

impl Series {
    /// Without samples yet.
    pub fn new(condition: Condition, work: Work, contender: Who, threads: usize) -> Self {
        Self {
            condition,
            work,
            contender,
            threads,
            median_mops: 0.0,
            min_mops: 0.0,
            max_mops: 0.0,
            latency: None,
            stats_per_second: BTreeMap::new(),
            samples: Vec::new(),
        }
    }

    /// Takes the medians of the samples, which keep their rates only.
    pub fn sum_up(&mut self) {
        let mops: Vec<f64> = self.samples.iter().map(|sample| sample.mops).collect();
        self.median_mops = median(&mops);
        (self.min_mops, self.max_mops) = spread(mops.into_iter());
        self.latency = Split::medians(&self.samples);
        let names = self.samples.iter().flat_map(|sample| sample.stats.keys().cloned());
        self.stats_per_second = names
            .map(|name| {
                let rate = |sample: &Sample| sample.stats.get(&name).map(|&count| count as f64 / sample.seconds);
                let middle = median(&self.samples.iter().filter_map(rate).collect::<Vec<_>>());
                (name, middle)
            })
            .filter(|(_, middle)| *middle > 0.0)
            .collect();
        for sample in &mut self.samples {
            sample.latency = None;
            sample.stats.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(mops: f64, p99_ns: f64, parks: u64) -> Sample {
        let quantiles = Quantiles { timed: 1.0, p50_ns: 1.0, p99_ns, p999_ns: p99_ns, max_ns: p99_ns };
        Sample {
            round: 1,
            ops: 1,
            mops,
            seconds: 0.5,
            fairness: 1.0,
            latency: Some(Split { others: Some(quantiles), ..Split::default() }),
            stats: BTreeMap::from([("parks".to_owned(), parks)]),
            stolen_ms: None,
            transfer_ns: 100.0,
        }
    }

    #[test]
    fn a_series_is_the_medians_of_its_samples() {
        let mut series = Series::new(Condition::Quiet, Work::Apply, Who::Default, 2);
        series.samples = vec![sample(3.0, 30.0, 5), sample(1.0, 90.0, 1), sample(2.0, 60.0, 3)];
        series.sum_up();
        assert_eq!([series.min_mops, series.median_mops, series.max_mops], [1.0, 2.0, 3.0]);
        let latency = series.latency.unwrap();
        assert_eq!(latency.others.unwrap().p99_ns, 60.0);
        assert_eq!(latency.to_taken, None);
        assert_eq!(series.stats_per_second["parks"], 6.0);
    }
}
