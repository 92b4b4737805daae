//! `echo`: the exchange between random peers (thesis 3.3.1) over threads, `shm` and `tcp`, beside MPI and gRPC.
//!
//! Each contender is a program of its own that measures the whole plan in one run; runs are interleaved, in an order
//! shuffled anew every round. rack.rs is the program of `threads`, `shm` and `tcp`; the others are packages with
//! workspaces of their own, which are built when they are asked for (programs.rs). Not here: the requests (the package
//! `exchange`).

pub mod programs;
mod rack;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use clap::Args;
use exchange::{Plan, Point};
use serde::{Deserialize, Serialize};

use self::programs::Program;
pub use self::rack::{EchoRack, command as rack_command};
use crate::{
    machine::Machine,
    options::{Comparison, Strict},
    plot::{Album, Dot, Picture},
    report::median,
    rounds::{Compared, Skipped, interleaved},
    verdict::{Verdict, conclude, verdict_at_least},
};

/// Options of `echo`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("5")))]
pub struct Echo {
    /// Numbers of processes, each with one worker; the contender `threads` has as many workers in one process.
    #[arg(long, value_delimiter = ',', default_value = "2,4")]
    pub processes: Vec<usize>,
    /// Contenders: threads, shm, tcp, mpi, mpi-aggregated, mpi-tcp-aggregated, tonic.
    #[arg(long, value_delimiter = ',', default_value = "threads,shm,tcp,mpi,mpi-aggregated,mpi-tcp-aggregated,tonic")]
    pub only: Vec<String>,
    #[command(flatten)]
    plan: Plan,
    /// Options of all measuring commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub comparison: Comparison,
    /// Whether targets have to be met.
    #[command(flatten)]
    #[serde(flatten)]
    pub strict: Strict,
}

/// One contender at one point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Contender.
    pub contender: String,
    /// Processes, or threads of `threads`.
    pub processes: usize,
    /// Bytes of each request and each reply.
    pub bytes: usize,
    /// Requests that each worker kept outstanding.
    pub outstanding: usize,
    /// Medians over the rounds: millions of requests a second,
    pub median_mops: f64,
    /// and latencies.
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub p999_ns: f64,
    /// All runs in the order of their rounds.
    pub samples: Vec<Point>,
}

type Key = (String, usize, usize, usize);

/// Measures, prints and writes.
///
/// # Errors
/// Options out of range; a contender that fails or answers wrongly; a file that cannot be written; with `--strict`, a
/// target that is missed or was not measured.
pub fn command(mut options: Echo) -> Result<()> {
    options.comparison.prepare()?;
    if options.comparison.smoke {
        options.plan.millis = options.plan.millis.min(10);
        options.plan.bytes.retain(|&bytes| bytes == 32 || bytes == 2048);
        options.plan.outstanding.retain(|&outstanding| outstanding == 1 || outstanding == 64);
        options.processes.truncate(1);
    }
    options.plan.check().map_err(anyhow::Error::msg)?;
    let machine = Machine::here();
    println!("{machine}");
    let (mut programs, mut skipped) = (Vec::new(), Skipped::default());
    for contender in &options.only {
        for &processes in &options.processes {
            programs.extend(skipped.sort(contender, Program::prepare(contender, processes)?));
        }
    }
    let series = measure(&options, &programs)?;
    print(&series);
    let (targets, measured) = (verdicts(&series), Compared { series: &series, skipped: &skipped });
    conclude("echo", &machine, &options, measured, targets, options.comparison.json.as_deref(), options.strict)
}

fn measure(options: &Echo, programs: &[Program]) -> Result<Vec<Series>> {
    let mut samples: BTreeMap<Key, Vec<Point>> = BTreeMap::new();
    interleaved(options.comparison.rounds, programs.len(), options.plan.seed, |round, index| {
        let program = &programs[index];
        eprintln!("echo: round {round}/{} {} x{}", options.comparison.rounds, program.contender, program.processes);
        let points = program.run(&options.plan).with_context(|| format!("{} failed", program.contender))?;
        let asked: Vec<_> = options.plan.points().collect();
        let given: Vec<_> = points.iter().map(|point| (point.bytes, point.outstanding)).collect();
        ensure!(asked == given, "{}: {given:?} were measured where {asked:?} were asked for", program.contender);
        for point in points {
            let key = (program.contender.clone(), program.processes, point.bytes, point.outstanding);
            samples.entry(key).or_default().push(point);
        }
        Ok(())
    })?;
    Ok(samples.into_iter().map(|(key, samples)| series(key, samples)).collect())
}

fn series((contender, processes, bytes, outstanding): Key, samples: Vec<Point>) -> Series {
    let middle = |value: fn(&Point) -> f64| median(&samples.iter().map(value).collect::<Vec<_>>());
    Series {
        median_mops: middle(Point::mops),
        p50_ns: middle(|point| point.p50_ns),
        p99_ns: middle(|point| point.p99_ns),
        p999_ns: middle(|point| point.p999_ns),
        contender,
        processes,
        bytes,
        outstanding,
        samples,
    }
}

fn print(series: &[Series]) {
    println!(
        "\n  {:<20} {:>4} {:>7} {:>6} {:>10} {:>10} {:>11} {:>11} {:>11}",
        "medians", "x", "bytes", "out", "Mreq/s", "MB/s", "p50 ns", "p99 ns", "p99.9 ns"
    );
    for Series { contender, processes, bytes, outstanding, median_mops, p50_ns, p99_ns, p999_ns, .. } in series {
        println!(
            "  {contender:<20} {processes:>4} {bytes:>7} {outstanding:>6} {median_mops:>10.3} {:>10.1} {p50_ns:>11.0} \
             {p99_ns:>11.0} {p999_ns:>11.0}",
            median_mops * *bytes as f64
        );
    }
}

impl Series {
    /// Its median and spread at this place of the x axis.
    fn dot(&self, x: f64) -> Dot {
        Dot::among(x, self.median_mops, self.samples.iter().map(Point::mops))
    }
}

/// For two sizes and each number of processes, throughput and the 99th percentile over the outstanding requests. And as
/// the thesis has them, of 32 bytes and two processes: throughput over the processes (figure 22), over the size (23),
/// each contender at its best number of outstanding requests; the tail of the latency over the throughput (24).
pub fn pictures(series: &[Series]) -> Vec<Picture> {
    const RATE: &str = "million requests a second (median, min to max)";
    let (mut own, mut of_thesis) = (Album::default(), Album::default());
    for series in series {
        let Series { contender, processes, bytes, outstanding, .. } = series;
        let title = || format!("Echo between random peers, {processes} processes, {bytes} bytes");
        let (x, name) = ("requests each worker keeps outstanding", format!("{processes}-processes-{bytes}-bytes"));
        if PLOTTED_BYTES.contains(bytes) {
            own.picture(format!("{name}-rate"), title, (x, RATE)).add(contender, series.dot(*outstanding as f64));
            let axes = (x, "99th percentile, microseconds (median of runs)");
            let us = Dot::alone(*outstanding as f64, series.p99_ns / 1e3);
            own.picture(format!("{name}-p99"), title, axes).add(contender, us);
        }
        if *bytes == THESIS_BYTES {
            let axes = (RATE, "99.9th percentile, microseconds (median of runs)");
            let tail = Dot::alone(series.median_mops, series.p999_ns / 1e3);
            of_thesis.picture(format!("{name}-p999-over-rate"), title, axes).add(contender, tail);
        }
    }
    for best in best_of_each(series) {
        let Series { contender, processes, bytes, .. } = best;
        if *processes == THESIS_PROCESSES {
            let title = || format!("Echo between random peers, {processes} processes");
            let name = format!("{processes}-processes-over-bytes");
            of_thesis.picture(name, title, ("bytes each way", RATE)).add(contender, best.dot(*bytes as f64));
        }
        if *bytes == THESIS_BYTES {
            let title = || format!("Echo between random peers, {bytes} bytes");
            let name = format!("{bytes}-bytes-over-processes");
            of_thesis.picture(name, title, ("processes", RATE)).linear().add(contender, best.dot(*processes as f64));
        }
    }
    own.pictures().into_iter().chain(of_thesis.pictures_with_lines()).collect()
}

/// For each contender, number of processes and size, the number of outstanding requests that was fastest.
fn best_of_each(series: &[Series]) -> impl Iterator<Item = &Series> {
    let mut best: BTreeMap<_, &Series> = BTreeMap::new();
    for series in series {
        let known = best.entry((&series.contender, series.processes, series.bytes)).or_insert(series);
        if series.median_mops > known.median_mops {
            *known = series;
        }
    }
    best.into_values()
}

/// Bytes of the thesis' requests.
const THESIS_BYTES: usize = 32;
/// Sizes with pictures over the outstanding requests: one of many requests a slot, one of few.
const PLOTTED_BYTES: [usize; 2] = [THESIS_BYTES, 4096];
/// Processes of its figures 23 and 24.
const THESIS_PROCESSES: usize = 2;
/// Two neighbouring sizes across which bytes per second must not fall by more than this.
const CLIFF: f64 = 1.5;

/// The targets of the exchange, each at the best number of outstanding requests of either side.
fn verdicts(series: &[Series]) -> Vec<Verdict> {
    let best = |contender: &str, bytes: usize| {
        let is_it = |best: &&Series| {
            (best.contender.as_str(), best.processes, best.bytes) == (contender, THESIS_PROCESSES, bytes)
        };
        best_of_each(series).find(is_it).map(|best| best.median_mops)
    };
    let ratio = |of: &str, to: &str| Some(best(of, THESIS_BYTES)? / best(to, THESIS_BYTES)?);
    let against = |of: &str, to: &str, wanted: f64| {
        verdict_at_least(format!("{of} over {to}, {THESIS_BYTES} bytes, 2 processes"), wanted, ratio(of, to))
    };
    let mut verdicts = vec![
        against("shm", "threads", 0.5),
        against("shm", "mpi-aggregated", 2.0),
        against("shm", "mpi", 10.0),
        verdict_at_least("shm, 32 bytes, 2 processes, million a second", 34.0, best("shm", THESIS_BYTES)),
        against("tcp", "mpi-tcp-aggregated", 1.0),
        against("tcp", "tonic", 10.0),
    ];
    for contender in ["shm", "tcp"] {
        // Only between neighbours: all sizes have to be there.
        let speeds: Option<Vec<f64>> =
            exchange::SIZES.iter().map(|&bytes| Some(best(contender, bytes)? * bytes as f64)).collect();
        let steps = speeds.and_then(|speeds| speeds.windows(2).map(|pair| pair[1] / pair[0]).min_by(f64::total_cmp));
        let what = format!("{contender}: the worst step of bytes a second to the next size");
        verdicts.push(verdict_at_least(what, 1.0 / CLIFF, steps));
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(contender: &str, bytes: usize, outstanding: usize, median_mops: f64) -> Series {
        let (p50_ns, p99_ns, p999_ns) = (1.0, 2.0, 3.0);
        let contender = contender.to_owned();
        Series {
            contender,
            processes: 2,
            bytes,
            outstanding,
            median_mops,
            p50_ns,
            p99_ns,
            p999_ns,
            samples: Vec::new(),
        }
    }

    #[test]
    fn targets_are_compared_at_the_best_of_either_side() {
        let mut series: Vec<Series> = exchange::SIZES.map(|bytes| at("shm", bytes, 64, 1280.0 / bytes as f64)).to_vec();
        series.extend([at("shm", 32, 1, 2.0), at("threads", 32, 64, 50.0)]);
        series[2].median_mops = 5.0;
        // Nothing is said of steps across sizes that are not there.
        series.extend([at("tcp", 8, 1, 4.0), at("tcp", 65_536, 1, 1.0)]);
        let verdicts = verdicts(&series);
        let reached = |what: &str| verdicts.iter().find(|verdict| verdict.target.contains(what)).unwrap().reached;
        assert_eq!(reached("shm over threads"), Some(0.8));
        assert_eq!(reached("million a second"), Some(40.0));
        assert_eq!(reached("shm: the worst step"), Some(0.5));
        assert_eq!((reached("tcp over tonic"), reached("tcp: the worst step")), (None, None));
    }
}
