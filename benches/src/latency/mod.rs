//! `latency`: how long an increment takes against the load that is offered, open loop (thesis 2.6.2,
//! figures 8 and 9). Every latency counts from the moment the operation was due, whether or not the
//! client was ready by then, so a stall is charged to all operations that it delayed.
//!
//! locks.rs and delegation.rs hold the two kinds of client, pace.rs when operations are due.

mod delegation;
mod locks;
pub mod pace;

use self::pace::{Recorder, Schedule};
use crate::contenders::{McsCounter, MutexCounter, ParkingLotCounter, SpinCounter};
use crate::prelude::*;
use crate::report::empty_histogram;
use hdrhistogram::Histogram;

/// Options of `latency`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Latency {
    /// Threads, clients and trustees together.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Offered load over all clients, in millions of operations a second; a point each.
    #[arg(long, value_delimiter = ',', default_value = "0.1,0.5,1,2,5,10")]
    pub load: Vec<f64>,
    /// Options of all commands; --ops does not apply, --millis is how long load is offered.
    #[command(flatten)]
    pub common: Common,
}

/// Objects and how they are picked: figures 8 and 9.
const SERIES: [(usize, Dist); 2] = [(64, Dist::Uniform), (1_000_000, Dist::Zipf)];
const SMOKE_SERIES: [(usize, Dist); 2] = [(64, Dist::Uniform), (10_000, Dist::Zipf)];

/// Load of one run.
#[derive(Clone, Debug)]
pub struct Load {
    /// Threads, objects, picks; `ops` follows from rate and time.
    pub workload: Workload,
    /// Operations due a second, over all clients.
    pub rate_hz: f64,
    pub offered_ns: u64,
    pub seed: u64,
}

/// One run of an open-loop contender, before it is checked, and its latencies. It may have made fewer operations than
/// were due, where the contender fell far behind.
pub type Outcome = (Run, Histogram<u64>);

impl Load {
    /// When the operations of a client are due.
    pub fn schedule(&self, client: usize, clients: usize) -> Schedule {
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(client as u64);
        Schedule::new(self.rate_hz / clients as f64, seed)
    }

    /// Whether an operation due at `due_ns` is no longer part of the run: nothing more is offered, or
    /// the client is so far behind that it has fallen out of any steady state.
    pub fn is_over(&self, due_ns: u64, recorder: &Recorder) -> bool {
        const OVERTIME_MAX: u64 = 3;
        due_ns >= self.offered_ns || recorder.now_ns() > OVERTIME_MAX * self.offered_ns
    }
}

/// Puts the clients of a run together.
pub fn outcome(clients: Vec<(ClientRun, Histogram<u64>)>, counters: Tally) -> Outcome {
    let mut histogram = empty_histogram();
    for (_, one) in &clients {
        histogram.add(one).expect("all histograms have the same range");
    }
    let runs: Vec<ClientRun> = clients.into_iter().map(|(run, _)| run).collect();
    (fold(&runs, counters), histogram)
}

/// One way to increment shared counters at a given load: its name, and how the load is offered once.
pub type OpenLoop = (&'static str, Box<dyn Fn(&Load) -> Outcome>);

fn contenders(only: &[String]) -> Result<Vec<OpenLoop>> {
    let mut all = vec![
        locks::paced::<MutexCounter>(),
        locks::paced::<ParkingLotCounter>(),
        locks::paced::<SpinCounter>(),
        locks::paced::<McsCounter>(),
    ];
    all.extend(delegation::all());
    chosen("contender of latency", all, |contender| contender.0, only)
}

pub fn command(mut options: Latency) -> Result<()> {
    if options.common.comparison.smoke {
        options.load.truncate(2);
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
    let bench = Bench::begin("latency", &mut options.common.comparison)?;
    let mut points = Vec::new();
    for (objects, dist) in if options.common.comparison.smoke { SMOKE_SERIES } else { SERIES } {
        points.extend(measure(&bench, &options, objects, dist)?);
    }
    bench.write(&options, json!(points))
}

/// One contender at one offered load.
#[derive(Clone, Debug, Serialize)]
struct Point {
    contender: &'static str,
    objects: usize,
    dist: Dist,
    threads: usize,
    offered_mops: f64,
    /// Medians over the runs.
    achieved_mops: f64,
    latency: Quantiles,
    /// In the order of their rounds.
    samples: Vec<Sample>,
}

/// One verified run.
#[derive(Clone, Debug, Serialize)]
struct Sample {
    round: usize,
    ops: u64,
    achieved_mops: f64,
    #[serde(flatten)]
    latency: Quantiles,
}

/// All contenders at all loads, interleaved.
fn measure(bench: &Bench, options: &Latency, objects: usize, dist: Dist) -> Result<Vec<Point>> {
    let common = &options.common;
    let workload = common.workload(options.threads, objects, dist)?;
    let contenders = contenders(&common.only)?;
    let runs: Vec<(f64, &OpenLoop)> =
        options.load.iter().flat_map(|&load| contenders.iter().map(move |contender| (load, contender))).collect();
    let name = |(load, (name, _)): &(f64, &OpenLoop)| format!("{objects} objects, {dist}: {name} at {load} Mops/s");
    let samples = bench.rounds(&runs, name, |(load, (_, run)), round| {
        let (run, histogram) = run(&Load {
            workload: workload.clone(),
            rate_hz: load * 1e6,
            offered_ns: common.millis * 1_000_000,
            seed: common.seed.wrapping_add(round as u64),
        });
        run.verify(run.ops).context("it counted wrong")?;
        Ok(Sample { round, ops: run.ops, achieved_mops: run.mops(run.ops), latency: Quantiles::of(&histogram) })
    })?;
    let points = runs.iter().zip(samples).map(|((offered_mops, contender), samples)| Point {
        contender: contender.0,
        objects,
        dist,
        threads: options.threads,
        offered_mops: *offered_mops,
        achieved_mops: median(samples.iter().map(|sample| sample.achieved_mops)),
        latency: Quantiles::medians(samples.iter().map(|sample| sample.latency)),
        samples,
    });
    let points: Vec<Point> = points.collect();
    let rows = points.iter().map(|Point { contender, offered_mops, achieved_mops, latency, .. }| {
        let Quantiles { mean_ns, p50_ns, p99_ns, p999_ns, .. } = latency;
        let kept_up = if achieved_mops >= &(0.95 * offered_mops) { "" } else { "fell behind" };
        row![contender, offered_mops, achieved_mops, mean_ns, p50_ns, p99_ns, p999_ns, kept_up]
    });
    let head = ["ns", "offered", "achieved", "mean", "p50", "p99", "p99.9", ""];
    table(&format!("latency, {objects} objects, {dist}"), &head, rows);
    Ok(points)
}
