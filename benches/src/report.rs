//! Samples, their medians, and tables on stdout.

use crate::basics::*;
use crate::pick::Dist;
use hdrhistogram::Histogram;
use std::borrow::Borrow;

/// A contender's part in the ratio table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Lock,
    Trust,
    /// Neither under a lock nor by trusts.
    #[default]
    Other,
}

/// One verified run.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    pub round: usize,
    pub mops: f64,
}

/// All runs of one contender on one workload.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// Which table it belongs to.
    pub group: String,
    pub contender: String,
    pub kind: Kind,
    pub threads: usize,
    pub objects: usize,
    pub ops: u64,
    pub median_mops: f64,
    pub min_mops: f64,
    pub max_mops: f64,
    /// In the order of their rounds.
    pub samples: Vec<Sample>,
    /// How objects were picked, and writes in a hundred operations on them, where that differs from series to series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dist: Option<Dist>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<u32>,
}

impl Series {
    pub fn median_ns(&self) -> f64 {
        1e3 / self.median_mops
    }
}

/// The middle of some values, the mean of the two middle ones where their number is even; 0 of none.
pub fn median(values: impl IntoIterator<Item: Borrow<f64>>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().map(|value| *value.borrow()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => (sorted[even / 2 - 1] + sorted[even / 2]) / 2.0,
    }
}

/// The least and the greatest of some values that are not negative.
pub fn spread(values: impl IntoIterator<Item: Borrow<f64>>) -> (f64, f64) {
    let wider = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
    values.into_iter().map(|value| *value.borrow()).fold((f64::INFINITY, 0.0), wider)
}

/// The series of a group, by the kind that ratios are taken against.
#[derive(Debug)]
pub struct Field<'a>(pub Vec<&'a Series>);

impl<'a> Field<'a> {
    pub fn of(series: &'a [Series], group: &str) -> Self {
        Self(series.iter().filter(|series| series.group == group).collect())
    }

    pub fn get(&self, contender: &str) -> Option<&'a Series> {
        self.0.iter().copied().find(|series| series.contender == contender)
    }

    /// The fastest of those that it chooses.
    pub fn best(&self, is_chosen: impl Fn(&Series) -> bool) -> Option<&'a Series> {
        let chosen = self.0.iter().copied().filter(|series| is_chosen(series));
        chosen.max_by(|a, b| a.median_mops.total_cmp(&b.median_mops))
    }

    pub fn best_lock(&self) -> Option<&'a Series> {
        self.best(|series| series.kind == Kind::Lock)
    }

    /// Prints medians, spread and ratios of medians.
    pub fn print(&self, title: &str) {
        let over = |series: &Series, base: Option<&Series>| base.map(|base| series.median_mops / base.median_mops);
        let against = [self.best_lock(), self.get("atomic"), self.get("bare-slots"), self.get("bare-slots-dedicated")];
        let rows = self.0.iter().map(|series| {
            let [lock, atomic, bare, dedicated] = against.map(|base| over(series, base));
            let Series { contender, median_mops, min_mops, max_mops, .. } = series;
            row![contender, median_mops, min_mops, max_mops, lock, atomic, bare, dedicated]
        });
        let head = ["Mops/s", "median", "min", "max", "/lock", "/atomic", "/bare", "/bare-d"];
        table(title, &head, rows);
    }
}

/// Samples of one contender in one group, where they are numbers of one unit.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub group: String,
    pub contender: String,
    pub unit: &'static str,
    pub median: f64,
    pub samples: Vec<f64>,
}

/// All figures of a command.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Figures(pub Vec<Figure>);

impl Figures {
    pub fn add(&mut self, group: &str, contender: &str, unit: &'static str, samples: Vec<f64>) {
        let (group, contender, median) = (group.to_owned(), contender.to_owned(), median(&samples));
        self.0.push(Figure { group, contender, unit, median, samples });
    }

    /// The median of a contender, if it was measured.
    pub fn get(&self, group: &str, contender: &str) -> Option<f64> {
        let is_it = |figure: &&Figure| figure.group == group && figure.contender == contender;
        self.0.iter().find(is_it).map(|figure| figure.median)
    }

    /// One median over another, in a group.
    pub fn over(&self, group: &str, one: &str, other: &str) -> Option<f64> {
        ratio(self.get(group, one), self.get(group, other))
    }

    pub fn print(&self, title: &str) {
        let rows = self.0.iter().map(|Figure { group, contender, unit, median, samples }| {
            let (low, high) = spread(samples);
            row![group, contender, median, low, high, unit]
        });
        table(title, &["", "", "median", "min", "max", ""], rows);
    }
}

/// One figure over another, if both were measured, and not as 0: a run of no time or no operations has no figure.
pub fn ratio(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    Some(of? / to?).filter(|ratio| ratio.is_finite())
}

/// A histogram for latencies up to a minute, with three digits.
pub fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("1 ns to a minute at 3 digits is a valid range")
}

/// Latencies of one kind of request in one run, or their medians over runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many requests were timed.
    pub timed: f64,
    pub mean_ns: f64,
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub p999_ns: f64,
    pub max_ns: f64,
}

impl Quantiles {
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let [p50_ns, p99_ns, p999_ns] = [0.5, 0.99, 0.999].map(|q| histogram.value_at_quantile(q) as f64);
        let (timed, max_ns) = (histogram.len() as f64, histogram.max() as f64);
        Self { timed, mean_ns: histogram.mean(), p50_ns, p99_ns, p999_ns, max_ns }
    }

    /// The median of each; 0 of none.
    pub fn medians(all: impl Iterator<Item = Self> + Clone) -> Self {
        let middle = |value: fn(Self) -> f64| median(all.clone().map(value));
        Self {
            timed: middle(|one| one.timed),
            mean_ns: middle(|one| one.mean_ns),
            p50_ns: middle(|one| one.p50_ns),
            p99_ns: middle(|one| one.p99_ns),
            p999_ns: middle(|one| one.p999_ns),
            max_ns: middle(|one| one.max_ns),
        }
    }
}

/// The text of a value in a table.
pub trait Cell {
    fn cell(&self) -> String;
}

impl Cell for f64 {
    /// Three digits, or all before the point.
    fn cell(&self) -> String {
        match self.abs() {
            large if large >= 100.0 => format!("{self:.0}"),
            middle if middle >= 10.0 => format!("{self:.1}"),
            middle if middle >= 0.1 || middle == 0.0 => format!("{self:.2}"),
            _ => format!("{self:.4}"),
        }
    }
}

impl<T: Cell> Cell for Option<T> {
    fn cell(&self) -> String {
        self.as_ref().map_or("-".to_owned(), T::cell)
    }
}

impl<T: Cell + ?Sized> Cell for &T {
    fn cell(&self) -> String {
        T::cell(self)
    }
}

macro_rules! cells_of_display {
    ($($kind:ty),*) => {
        $(impl Cell for $kind {
            fn cell(&self) -> String {
                self.to_string()
            }
        })*
    };
}
cells_of_display!(str, String, usize, u64, u32);

/// The cells of a row of a table.
macro_rules! row {
    ($($cell:expr),* $(,)?) => { vec![$($crate::report::Cell::cell(&$cell)),*] };
}
pub(crate) use row;

/// Prints a table, as wide as it has to be; texts of the first column begin at its left, all others end at their right.
pub fn table(title: &str, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
    let widths = (0..rows[0].len()).map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0));
    let widths: Vec<usize> = widths.collect();
    println!("\n{title}");
    for row in &rows {
        let (first, width) = (&row[0], widths[0]);
        let rest = row.iter().zip(&widths).skip(1).map(|(cell, width)| format!(" {cell:>width$}"));
        println!("  {first:<width$} {}", rest.collect::<String>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(Vec::<f64>::new()), 0.0);
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_ratio_is_a_number() {
        assert_eq!(ratio(Some(3.0), Some(2.0)), Some(1.5));
        assert_eq!(
            (ratio(Some(0.0), Some(0.0)), ratio(Some(1.0), Some(0.0)), ratio(Some(1.0), None)),
            (None, None, None)
        );
    }

    #[test]
    fn cells_have_three_digits() {
        assert_eq!(
            row![1234.5, 0.0, 0.012, Some(12.34), None::<f64>, "a", 3usize].join(" "),
            "1234 0.00 0.0120 12.3 - a 3"
        );
    }
}
