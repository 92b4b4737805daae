//! `latency`: how long an increment takes against the load that is offered, open loop (thesis 2.6.2,
//! figures 8 and 9). Every latency counts from the moment the operation was due, whether or not the
//! client was ready by then, so a stall is charged to all operations that it delayed.
//!
//! locks.rs and delegation.rs hold the two kinds of client, pace.rs when operations are due.

mod delegation;
mod locks;
pub mod pace;
mod table;

use std::str::FromStr;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use serde::Serialize;

use self::pace::{Recorder, Schedule, empty_histogram};
pub use self::{
    pace::Arrivals,
    table::{Point, Sample},
};
use crate::{
    contender::{ClientRun, Run, Tally, Workload, fold},
    contenders::{McsCounter, MutexCounter, ParkingLotCounter, SpinCounter},
    machine::Machine,
    options::Common,
    pick::Dist,
    plot::{Album, Dot, Picture},
    report::Report,
    rounds::{chosen, interleaved},
};

/// Options of `latency`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Latency {
    /// Threads, clients and trustees together.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Offered load over all clients, in millions of operations a second; a point each.
    #[arg(long, value_delimiter = ',', default_value = "0.1,0.5,1,2,5,10")]
    pub load: Vec<f64>,
    /// Objects and how they are picked; a series each.
    #[arg(long, value_delimiter = ',', default_value = "64:uniform,1000000:zipf")]
    pub series: Vec<SeriesKey>,
    /// How arrivals are spaced.
    #[arg(long, value_enum, default_value_t = Arrivals::Poisson)]
    pub arrivals: Arrivals,
    /// Options of all commands; --ops does not apply, --millis is how long load is offered.
    #[command(flatten)]
    pub common: Common,
}

/// `OBJECTS:DIST`, such as `64:uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SeriesKey {
    /// Counters.
    pub objects: usize,
    /// How they are picked.
    pub dist: Dist,
}

impl FromStr for SeriesKey {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let usage = || anyhow!("{text:?} is not OBJECTS:DIST, such as 64:uniform or 1000000:zipf");
        let (objects, dist) = text.split_once(':').ok_or_else(usage)?;
        Ok(Self {
            objects: objects.parse().map_err(|_| usage())?,
            dist: Dist::from_str(dist, true).map_err(|_| usage())?,
        })
    }
}

/// Load of one run.
#[derive(Clone, Debug)]
pub struct Load {
    /// Threads, objects, picks; `ops` follows from rate and time.
    pub workload: Workload,
    /// Operations due a second, over all clients.
    pub rate_hz: f64,
    /// For how long operations are due.
    pub offered_ns: u64,
    /// How they are spaced.
    pub arrivals: Arrivals,
    /// Seed of the arrivals.
    pub seed: u64,
}

/// One run of an open-loop contender, before it is checked.
pub struct Outcome {
    /// Operations made: fewer than were due where the contender fell far behind.
    pub ops: u64,
    /// Time and counters.
    pub run: Run,
    /// Latencies in nanoseconds.
    pub histogram: Histogram<u64>,
}

impl Load {
    /// When the operations of a client are due.
    pub fn schedule(&self, client: usize, clients: usize) -> Schedule {
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(client as u64);
        Schedule::new(self.arrivals, self.rate_hz / clients as f64, seed)
    }

    /// Whether an operation due at `due_ns` is no longer part of the run: nothing more is offered, or
    /// the client is so far behind that it has fallen out of any steady state.
    pub fn is_over(&self, due_ns: u64, recorder: &Recorder) -> bool {
        const OVERTIME_MAX: u64 = 3;
        due_ns >= self.offered_ns || recorder.now_ns() > OVERTIME_MAX * self.offered_ns
    }
}

impl Outcome {
    /// Puts the clients of a run together.
    pub fn of(clients: Vec<(ClientRun, Histogram<u64>)>, counters: Tally) -> Self {
        let mut histogram = empty_histogram();
        for (_, one) in &clients {
            histogram.add(one).expect("all histograms have the same range");
        }
        let runs: Vec<ClientRun> = clients.into_iter().map(|(run, _)| run).collect();
        Self { ops: runs.iter().map(|run| run.ops).sum(), run: fold(&runs, counters), histogram }
    }
}

/// One way to increment shared counters at a given load.
pub trait OpenLoop {
    /// Name in tables, JSON and `--only`.
    fn name(&self) -> &'static str;
    /// Offers the load once.
    fn run(&self, load: &Load) -> Outcome;
}

fn contenders(only: &[String]) -> Result<Vec<Box<dyn OpenLoop>>> {
    let mut all: Vec<Box<dyn OpenLoop>> = vec![
        Box::new(locks::Paced::<MutexCounter>::new()),
        Box::new(locks::Paced::<ParkingLotCounter>::new()),
        Box::new(locks::Paced::<SpinCounter>::new()),
        Box::new(locks::Paced::<McsCounter>::new()),
    ];
    all.extend(delegation::all());
    chosen("contender of latency", all, |contender| contender.name(), only)
}

/// Measures, prints and writes.
///
/// # Errors
/// Options out of range; counters that are wrong after a run; a file that cannot be written.
pub fn command(mut options: Latency) -> Result<()> {
    if options.common.comparison.smoke {
        options.load.truncate(2);
        options.series =
            vec![SeriesKey { objects: 64, dist: Dist::Uniform }, SeriesKey { objects: 10_000, dist: Dist::Zipf }];
    }
    options.common = options.common.prepare()?;
    ensure!(
        options.threads >= 2,
        "--threads {}: the dedicated contenders need a client and a trustee, so at least 2",
        options.threads
    );
    ensure!(
        options.load.iter().all(|&mops| (0.001..=1000.0).contains(&mops)),
        "--load: 0.001 to 1000 million operations a second are possible"
    );
    let machine = Machine::here();
    println!("{machine}");
    let mut points = Vec::new();
    for key in &options.series {
        let series = measure(&options, *key)?;
        table::print(*key, &series);
        points.extend(series);
    }
    Report::write("latency", &machine, &options, points, options.common.comparison.json.as_deref())
}

/// All contenders at all loads, interleaved.
fn measure(options: &Latency, key: SeriesKey) -> Result<Vec<Point>> {
    let common = &options.common;
    let workload = common.workload(options.threads, key.objects, key.dist)?;
    let contenders = contenders(&common.only)?;
    let mut points: Vec<(usize, Point)> = Vec::new();
    for &offered_mops in &options.load {
        for (index, contender) in contenders.iter().enumerate() {
            points.push((index, Point::new(contender.name(), key, options.threads, workload.dedicated, offered_mops)));
        }
    }
    interleaved(common.comparison.rounds, points.len(), common.seed, |round, index| {
        let (contender, point) = &mut points[index];
        let contender = &contenders[*contender];
        let load = Load {
            workload: workload.clone(),
            rate_hz: point.offered_mops * 1e6,
            offered_ns: common.millis * 1_000_000,
            arrivals: options.arrivals,
            seed: common.seed.wrapping_add(round as u64),
        };
        let outcome = contender.run(&load);
        outcome
            .run
            .verify(outcome.ops)
            .with_context(|| format!("{} counted wrong at {} Mops/s", contender.name(), point.offered_mops))?;
        eprintln!(
            "latency, {} objects, {}: round {round}/{} {} at {} Mops/s: mean {:.0} ns",
            key.objects,
            key.dist,
            common.comparison.rounds,
            contender.name(),
            point.offered_mops,
            outcome.histogram.mean()
        );
        point.samples.push(Sample::new(round, &outcome));
        Ok(())
    })?;
    Ok(points
        .into_iter()
        .map(|(_, mut point)| {
            point.sum_up();
            point
        })
        .collect())
}

/// Mean and 99.9th percentile over the offered load, for each number of objects and distribution.
pub fn pictures(points: &[Point]) -> Vec<Picture> {
    type Pick = fn(&Point) -> f64;
    let quantiles: [(&str, &str, Pick); 2] =
        [("mean", "mean", |point| point.latency.mean_ns), ("p999", "99.9th percentile", |point| point.latency.p999_ns)];
    let mut album = Album::default();
    for (short, long, pick) in quantiles {
        for point in points {
            let (objects, dist) = (point.objects, point.dist);
            let title = || format!("Latency ({long}), {objects} objects, {dist}, {} threads", point.threads);
            let axes = ("offered load, million operations a second", "microseconds (median of runs)");
            let picture = album.picture(format!("{objects}-{dist}-{short}"), title, axes);
            picture.add(&point.contender, Dot::alone(point.offered_mops, pick(point) / 1e3));
        }
    }
    album.pictures()
}
