//! Samples of `busy` and their medians.

use super::conditions::Condition;
use super::points::{Who, Work};
use crate::prelude::*;
use crate::watch::ByCore;
use hdrhistogram::Histogram;

/// Latencies; `None` where there was no such request.
pub type Split = ByCore<Option<Quantiles>>;

/// One verified run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub round: usize,
    pub ops: u64,
    pub mops: f64,
    /// From the first client's start to the last one's end, in seconds.
    pub seconds: f64,
    /// Latencies, where they were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Split>,
    /// Totals that the workers counted in the run, where there were workers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stats: BTreeMap<String, u64>,
}

fn quantiles(latencies: &Histogram<u64>) -> Option<Quantiles> {
    (!latencies.is_empty()).then(|| Quantiles::of(latencies))
}

impl Sample {
    pub fn new(round: usize, run: &Run) -> Self {
        Self {
            round,
            ops: run.ops,
            mops: run.rate_hz / 1e6,
            seconds: run.elapsed.as_secs_f64(),
            latency: run.latencies.as_ref().map(|latencies| latencies.map(quantiles)),
            stats: run.stats.iter().map(|(&name, &value)| (name.to_owned(), value)).collect(),
        }
    }
}

/// Medians of the samples' latencies, where they were taken.
fn medians(samples: &[Sample]) -> Option<Split> {
    let of = |pick: fn(&Split) -> Option<Quantiles>| {
        let all: Vec<Quantiles> = samples.iter().filter_map(|sample| pick(sample.latency.as_ref()?)).collect();
        (!all.is_empty()).then(|| Quantiles::medians(all.iter().copied()))
    };
    samples.iter().any(|sample| sample.latency.is_some()).then(|| Split {
        others: of(|split| split.others),
        to_taken: of(|split| split.to_taken),
        from_taken: of(|split| split.from_taken),
    })
}

/// All runs of one contender with one workload under one condition.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    pub condition: Condition,
    pub work: Work,
    pub contender: Who,
    /// Workers, or threads that contend; plain threads beside a pool.
    pub threads: usize,
    /// Median of the samples, in millions of operations a second.
    pub median_mops: f64,
    pub min_mops: f64,
    pub max_mops: f64,
    /// Medians of the samples' latencies, where they were taken.
    pub latency: Option<Split>,
    /// Medians of the workers' counters, a second.
    pub stats_per_second: BTreeMap<String, f64>,
    pub samples: Vec<Sample>,
}

impl Series {
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
        let mops = || self.samples.iter().map(|sample| sample.mops);
        (self.median_mops, (self.min_mops, self.max_mops)) = (median(mops()), spread(mops()));
        self.latency = medians(&self.samples);
        let names = self.samples.iter().flat_map(|sample| sample.stats.keys().cloned());
        self.stats_per_second = names
            .map(|name| {
                let rate = |sample: &Sample| sample.stats.get(&name).map(|&count| count as f64 / sample.seconds);
                let middle = median(self.samples.iter().filter_map(rate));
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
        let quantiles = Quantiles { p99_ns, ..Quantiles::default() };
        Sample {
            round: 1,
            ops: 1,
            mops,
            seconds: 0.5,
            latency: Some(Split { others: Some(quantiles), ..Split::default() }),
            stats: BTreeMap::from([("parks".to_owned(), parks)]),
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
