//! `busy`: delegation where not every worker has a core to itself. Each workload under each condition, the default way
//! of waiting beside fixed spins, locks and channels; throughput by time, latencies of a closed loop, counters of the
//! workers.
//!
//! conditions.rs has the conditions, strangers.rs and quota.rs bring them about, points.rs has workloads and
//! contenders, child.rs makes one run in a process of its own, targets.rs holds the targets.

pub mod child;
mod conditions;
mod points;
mod quota;
mod samples;
mod std_threads;
mod strangers;
mod table;
mod targets;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use self::{
    conditions::{Condition, Prepared},
    points::{Spec, Who, Work, name_of},
    samples::Series,
    targets::{Evidence, verdicts},
};
use crate::{
    harness::Progress,
    machine::{self, Machine},
    options::{Comparison, Strict},
    report::median,
    rounds::{Skipped, interleaved},
    verdict::conclude,
};

/// Options of `busy`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Busy {
    /// Only under these conditions.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub conditions: Vec<Condition>,
    /// Only these workloads.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub workloads: Vec<Work>,
    /// Only these contenders.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub contenders: Vec<Who>,
    /// Options of all measuring commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub comparison: Comparison,
    /// Length of a run in milliseconds.
    #[arg(long, default_value_t = 200)]
    pub millis: u64,
    /// Seed of picks and of the order of runs.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One round of 100 ms: a first look, in about a minute.
    #[arg(long)]
    pub quick: bool,
    /// Whether targets have to be met.
    #[command(flatten)]
    #[serde(flatten)]
    pub strict: Strict,
}

/// Seconds for which the processor time of an idle pool is measured.
const IDLE_MS: u64 = 1000;

impl Busy {
    fn prepare(mut self) -> Result<Self> {
        self.comparison.prepare()?;
        if self.comparison.smoke {
            self.millis = self.millis.min(15);
        } else if self.quick {
            (self.comparison.rounds, self.millis) = (1, self.millis.min(100));
        }
        ensure!((5..=60_000).contains(&self.millis), "--millis {}: 5 to 60000 are possible", self.millis);
        fn all_if_none<T: ValueEnum + Copy>(chosen: &mut Vec<T>) {
            if chosen.is_empty() {
                chosen.extend(T::value_variants());
            }
        }
        all_if_none(&mut self.conditions);
        all_if_none(&mut self.workloads);
        all_if_none(&mut self.contenders);
        Ok(self)
    }
}

/// Contents of a file of results.
#[derive(Debug, Serialize)]
struct Measured<'a> {
    series: &'a [Series],
    skipped: &'a Skipped,
    /// How long a thread waits for its core beside another that spins there, in microseconds.
    time_slice_us: Option<f64>,
    /// Share of one core that an idle pool uses, in percent, in each round.
    idle_percent: &'a [f64],
}

/// A workload under a condition, and its contenders.
struct Point {
    condition: usize,
    /// Indices of the series.
    series: Vec<usize>,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options out of range; a run with wrong answers; a file that cannot be written; with `--strict`, a target that is
/// missed or was not measured.
pub fn command(options: Busy) -> Result<()> {
    let options = options.prepare()?;
    let machine = Machine::here();
    println!("{machine}");
    let mut skipped = Skipped::default();
    let prepare = |&condition: &Condition| skipped.sort(&name_of(condition), condition.prepare());
    let conditions: Vec<Prepared> = options.conditions.iter().filter_map(prepare).collect();
    let (points, mut series) = plan(&options, &conditions);
    ensure!(!series.is_empty(), "nothing is left to measure: no such workload and contender under these conditions");
    let has_hog =
        |prepared: &Prepared| matches!(prepared.condition, Condition::HogPinned | Condition::HogFloatingWorkers);
    let slice = conditions.iter().any(has_hog).then(strangers::time_slice);
    let idle = measure(&options, &conditions, &points, &mut series)?;
    let evidence = Evidence {
        series: &series,
        cores: machine::cores().len(),
        slice,
        idle_percent: (!idle.is_empty()).then(|| median(&idle)),
    };
    table::print(&evidence);
    let targets = verdicts(&evidence, &options.conditions);
    let time_slice_us = slice.map(|slice: Duration| slice.as_secs_f64() * 1e6);
    let measured = Measured { series: &series, skipped: &skipped, time_slice_us, idle_percent: &idle };
    conclude("busy", &machine, &options, measured, targets, options.comparison.json.as_deref(), options.strict)
}

fn plan(options: &Busy, conditions: &[Prepared]) -> (Vec<Point>, Vec<Series>) {
    let cores = machine::cores().len();
    let (mut points, mut series) = (Vec::new(), Vec::new());
    for (index, &Prepared { condition, .. }) in conditions.iter().enumerate() {
        for &work in options.workloads.iter().filter(|work| work.is_in(condition, cores)) {
            let first = series.len();
            let contenders = options.contenders.iter().filter(|&&who| work.suits(who));
            series.extend(contenders.map(|&who| Series::new(condition, work, who, condition.workers(cores))));
            points.push(Point { condition: index, series: (first..series.len()).collect() });
        }
    }
    (points, series)
}

/// Runs all rounds; returns the processor time of an idle pool in each, where the quiet machine is among the
/// conditions.
///
/// In a round the points are in an order shuffled anew, and the contenders of a point run one after the other, shuffled
/// as well: those that are compared most closely are closest in time.
fn measure(options: &Busy, conditions: &[Prepared], points: &[Point], series: &mut [Series]) -> Result<Vec<f64>> {
    let progress = Progress::new("busy");
    let (mut idle, mut last_idle) = (Vec::new(), 0);
    let is_quiet = |prepared: &Prepared| prepared.condition == Condition::Quiet;
    let measures_idle = conditions.iter().any(is_quiet) && options.contenders.contains(&Who::Default);
    interleaved(options.comparison.rounds, points.len(), options.seed, |round, point| {
        let Point { condition: prepared, series: of_point } = &points[point];
        let order = options.seed.wrapping_add((round * points.len() + point) as u64);
        interleaved(1, of_point.len(), order, |_, index| {
            let series = &mut series[of_point[index]];
            let (condition, work, who) = (series.condition, series.work, series.contender);
            let spec = Spec { condition, work, who, millis: options.millis, round, seed: options.seed };
            let name = format!("{} {} {}", name_of(condition), name_of(work), name_of(who));
            let sample = child::measure(&conditions[*prepared], spec).with_context(|| name.clone())?;
            progress.show(&format!("round {round}/{} {name} {:.2} Mops/s", options.comparison.rounds, sample.mops));
            series.samples.push(sample);
            Ok(())
        })?;
        if measures_idle && last_idle < round {
            let millis = if options.comparison.smoke { options.millis } else { IDLE_MS };
            idle.extend(child::measure_idle(millis).context("an idle pool")?.map(|share| 100.0 * share));
            last_idle = round;
        }
        Ok(())
    })?;
    series.iter_mut().for_each(Series::sum_up);
    progress.end();
    Ok(idle)
}
