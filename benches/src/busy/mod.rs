//! `busy`: delegation where not every worker has a core to itself. Each workload under each condition, the default way
//! of waiting beside fixed spins, locks and channels; throughput by time, latencies of a closed loop, counters of the
//! workers.
//!
//! conditions.rs has the conditions, strangers.rs and quota.rs bring them about, points.rs has workloads and
//! contenders, child.rs makes one run in a process of its own, targets.rs holds the targets.

pub mod child;
pub mod conditions;
mod points;
mod quota;
mod samples;
mod std_threads;
pub mod strangers;
mod targets;

use self::child::Prepared;
use self::conditions::Condition;
use self::points::{Spec, Who, Work};
use self::samples::Series;
use self::targets::{Evidence, verdicts};
use crate::machine;
use crate::prelude::*;

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
}

/// Seed of picks and of the order of runs.
const SEED: u64 = 1;
/// Milliseconds for which the processor time of an idle pool is measured.
const IDLE_MS: u64 = 1000;

impl Busy {
    fn prepare(mut self) -> Result<Self> {
        if self.comparison.smoke {
            self.millis = self.millis.min(15);
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

/// A workload under a condition, and its contenders.
struct Point {
    condition: usize,
    series: Vec<usize>,
}

pub fn command(options: Busy) -> Result<()> {
    let mut options = options.prepare()?;
    let mut bench = Bench::begin("busy", &mut options.comparison)?;
    let prepare = |&condition: &Condition| bench.skipped.sort(&name_of(condition), child::prepare(condition));
    let conditions: Vec<Prepared> = options.conditions.iter().filter_map(prepare).collect();
    let (points, mut series) = plan(&options, &conditions);
    ensure!(!series.is_empty(), "nothing is left to measure: no such workload and contender under these conditions");
    let has_hog =
        |prepared: &Prepared| matches!(prepared.condition, Condition::HogPinned | Condition::HogFloatingWorkers);
    let slice = conditions.iter().any(has_hog).then(strangers::time_slice);
    let idle = measure(&options, &conditions, &points, &mut series)?;
    let idle_percent = (!idle.is_empty()).then(|| median(&idle));
    let evidence = Evidence { series: &series, cores: machine::cores().len(), slice, idle_percent };
    evidence.print();
    let targets = verdicts(&evidence, &options.conditions);
    let time_slice_us = slice.map(|slice: Duration| slice.as_secs_f64() * 1e6);
    let measured = json!({"series": series, "time_slice_us": time_slice_us, "idle_percent": idle});
    bench.conclude(&options, measured, &targets)
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
    let (mut idle, mut last_idle) = (Vec::new(), 0);
    let is_quiet = |prepared: &Prepared| prepared.condition == Condition::Quiet;
    let measures_idle = conditions.iter().any(is_quiet) && options.contenders.contains(&Who::Default);
    interleaved(options.comparison.rounds, points.len(), SEED, |round, point| {
        let Point { condition: prepared, series: of_point } = &points[point];
        let order = SEED + (round * points.len() + point) as u64;
        interleaved(1, of_point.len(), order, |_, index| {
            let series = &mut series[of_point[index]];
            let (condition, work, who) = (series.condition, series.work, series.contender);
            let spec = Spec { condition, work, who, millis: options.millis, round, seed: SEED };
            let name = format!("{} {} {}", name_of(condition), name_of(work), name_of(who));
            let sample = child::measure(&conditions[*prepared], spec).with_context(|| name.clone())?;
            eprintln!("busy: round {round}/{} {name} {:.2} Mops/s", options.comparison.rounds, sample.mops);
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
    Ok(idle)
}
