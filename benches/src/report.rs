//! Samples, their medians and their destinations: tables on stdout, JSON in a file.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{contender::Kind, harness::Entry, machine::Machine, plot::Dot};

/// One verified run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Its round, counted from 1.
    pub round: usize,
    /// Millions of operations a second.
    pub mops: f64,
    /// Rate of the slowest client over that of the fastest.
    pub fairness: f64,
}

/// All runs of one contender on one workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Which table it belongs to.
    pub group: String,
    /// Contender.
    pub contender: String,
    /// The contender's part in the ratio table.
    pub kind: Kind,
    /// OS threads.
    pub threads: usize,
    /// Threads that only serve, in contenders that have such threads.
    pub dedicated: usize,
    /// Counters.
    pub objects: usize,
    /// Whether counters in shared memory had cache lines of their own.
    pub padded: bool,
    /// Operations a run.
    pub ops: u64,
    /// Median of the samples, in millions of operations a second.
    pub median_mops: f64,
    /// Slowest sample.
    pub min_mops: f64,
    /// Fastest sample.
    pub max_mops: f64,
    /// All samples in the order of their rounds.
    pub samples: Vec<Sample>,
}

impl Series {
    /// Sums up the samples of an entry.
    pub fn new(entry: &Entry, samples: Vec<Sample>) -> Self {
        let mops: Vec<f64> = samples.iter().map(|sample| sample.mops).collect();
        let (min_mops, max_mops) = spread(mops.iter().copied());
        Self {
            group: entry.group.clone(),
            contender: entry.contender.name().to_owned(),
            kind: entry.contender.kind(),
            threads: entry.workload.threads,
            dedicated: entry.workload.dedicated,
            objects: entry.workload.objects,
            padded: entry.workload.padded,
            ops: entry.workload.ops,
            median_mops: median(&mops),
            min_mops,
            max_mops,
            samples,
        }
    }

    /// Its median and spread at this place of the x axis.
    pub fn dot(&self, x: f64) -> Dot {
        Dot { x, y: self.median_mops, low: self.min_mops, high: self.max_mops }
    }

    /// Median of one operation, in nanoseconds.
    pub fn median_ns(&self) -> f64 {
        1e3 / self.median_mops
    }

    fn median_fairness(&self) -> f64 {
        median(&self.samples.iter().map(|sample| sample.fairness).collect::<Vec<_>>())
    }
}

/// The middle of some values, the mean of the two middle ones where their number is even; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => (sorted[even / 2 - 1] + sorted[even / 2]) / 2.0,
    }
}

/// The least and the greatest of some values that are not negative.
pub fn spread(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), value| (low.min(value), high.max(value)))
}

/// The series of a group, by the kind that ratios are taken against.
#[derive(Debug)]
pub struct Field<'a>(pub Vec<&'a Series>);

impl<'a> Field<'a> {
    /// The series of `group`.
    pub fn of(series: &'a [Series], group: &str) -> Self {
        Self(series.iter().filter(|series| series.group == group).collect())
    }

    /// The series of a contender.
    pub fn get(&self, contender: &str) -> Option<&'a Series> {
        self.0.iter().copied().find(|series| series.contender == contender)
    }

    /// The fastest lock.
    pub fn best_lock(&self) -> Option<&'a Series> {
        self.0
            .iter()
            .copied()
            .filter(|series| series.kind == Kind::Lock)
            .max_by(|a, b| a.median_mops.total_cmp(&b.median_mops))
    }

    /// Prints medians, spread and ratios of medians.
    pub fn print(&self, title: &str) {
        println!("\n{title}");
        println!(
            "  {:<22} {:>9} {:>9} {:>9}  {:>6} {:>7} {:>7} {:>7} {:>7}",
            "Mops/s", "median", "min", "max", "fair", "/lock", "/atomic", "/bare", "/bare-d"
        );
        let against = [self.best_lock(), self.get("atomic"), self.get("bare-slots"), self.get("bare-slots-dedicated")];
        for series in &self.0 {
            let ratios: Vec<String> = against
                .iter()
                .map(|base| base.map_or("-".to_owned(), |base| format!("{:.2}", series.median_mops / base.median_mops)))
                .collect();
            println!(
                "  {:<22} {:>9.2} {:>9.2} {:>9.2}  {:>6.2} {:>7} {:>7} {:>7} {:>7}",
                series.contender,
                series.median_mops,
                series.min_mops,
                series.max_mops,
                series.median_fairness(),
                ratios[0],
                ratios[1],
                ratios[2],
                ratios[3]
            );
        }
    }
}

/// A file of results: machine, command, options and all results.
#[derive(Debug, Serialize)]
pub struct Report<'a, O, R> {
    /// Subcommand.
    pub command: &'a str,
    /// The whole command line.
    pub command_line: Vec<String>,
    /// Where it ran.
    pub machine: &'a Machine,
    /// Options after defaults.
    pub options: &'a O,
    /// The results.
    pub results: R,
}

impl<'a, O: Serialize, R: Serialize> Report<'a, O, R> {
    /// Writes the report, if a file is asked for.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(
        command: &'a str,
        machine: &'a Machine,
        options: &'a O,
        results: R,
        path: Option<&Path>,
    ) -> Result<()> {
        let Some(path) = path else { return Ok(()) };
        let report = Self { command, command_line: std::env::args().skip(1).collect(), machine, options, results };
        let mut text = rounded(serde_json::to_value(&report)?).to_string();
        text.push('\n');
        fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
        println!("\nresults: {}", path.display());
        Ok(())
    }
}

/// The value with at most seven significant digits in each fraction, more than a run repeats: files of results stay
/// small.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let digits = format!("{:.6e}", number.as_f64().expect("a number of this kind"));
            Value::from(digits.parse::<f64>().expect("digits that were just written"))
        }
        Value::Array(values) => values.into_iter().map(rounded).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, rounded(value))).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{median, rounded};

    #[test]
    fn fractions_are_rounded_and_counts_are_not() {
        let value =
            serde_json::json!({"mops": 118.83263462357506, "ops": 18446744073709551615u64, "ns": [0.00012345678, 2.0]});
        let expected = serde_json::json!({"mops": 118.8326, "ops": 18446744073709551615u64, "ns": [0.0001234568, 2.0]});
        assert_eq!(rounded(value), expected);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
