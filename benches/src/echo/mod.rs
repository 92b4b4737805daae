//! `echo`: the exchange between random peers (thesis 3.3.1) over threads, `shm` and `tcp`, beside MPI and gRPC.
//!
//! Each contender is a program of its own that measures the whole plan in one run; runs are interleaved, in an order shuffled
//! anew every round. rack.rs is the program of `threads`, `shm` and `tcp`; the others are packages with workspaces of their
//! own, which are built when they are asked for (programs.rs). Not here: what is exchanged (the package `exchange`).

pub mod programs;
mod rack;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use clap::Args;
use exchange::{Plan, Point};
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use self::programs::Program;
pub use self::rack::{EchoRack, command as rack_command};
use crate::{
    machine::Machine,
    plot::{Dot, Picture},
    report::{Report, median},
    targets::{Verdict, print_verdicts, verdict_at_least},
};

/// Options of `echo`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Echo {
    /// Numbers of processes, each with one worker; the contender `threads` has as many workers in one process.
    #[arg(long, value_delimiter = ',', default_value = "2,4")]
    pub processes: Vec<usize>,
    /// Contenders: threads, shm, tcp, mpi, mpi-aggregated, mpi-tcp-aggregated, tonic.
    #[arg(long, value_delimiter = ',', default_value = "threads,shm,tcp,mpi,mpi-aggregated,mpi-tcp-aggregated,tonic")]
    pub only: Vec<String>,
    #[command(flatten)]
    plan: Plan,
    /// Rounds: each contender runs once a round, in an order shuffled anew.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Write all samples to this file, as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// A size that ends in a few seconds: shows that everything works, says nothing about speed.
    #[arg(long)]
    pub smoke: bool,
    /// Exit with an error where a target is missed or was not measured.
    #[arg(long)]
    pub strict: bool,
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

/// What the file of results holds.
#[derive(Debug, Serialize)]
struct Results<'a> {
    series: &'a [Series],
    /// Contenders that did not run, and why.
    skipped: &'a BTreeMap<String, String>,
    targets: Vec<Verdict>,
}

type Key = (String, usize, usize, usize);

/// Measures, prints and writes.
///
/// # Errors
/// Options out of range; a contender that fails or answers wrongly; a file that cannot be written; with `--strict`, a target
/// that is missed or was not measured.
pub fn command(mut options: Echo) -> Result<()> {
    if options.smoke {
        options.rounds = options.rounds.min(2);
        options.plan.millis = options.plan.millis.min(10);
        options.plan.bytes.retain(|&bytes| bytes == 32 || bytes == 2048);
        options.plan.outstanding.retain(|&outstanding| outstanding == 1 || outstanding == 64);
        options.processes.truncate(1);
    }
    options.plan.check().map_err(anyhow::Error::msg)?;
    ensure!(options.rounds > 0, "--rounds 0: at least one round is needed");
    let machine = Machine::here();
    println!("{machine}");
    let (mut programs, mut skipped) = (Vec::new(), BTreeMap::new());
    for contender in &options.only {
        for &processes in &options.processes {
            match Program::prepare(contender, processes)? {
                Ok(program) => programs.push(program),
                Err(why) => {
                    if skipped.insert(contender.clone(), why.clone()).is_none() {
                        println!("SKIPPED: {contender}: {why}");
                    }
                }
            }
        }
    }
    let series = measure(&options, &programs)?;
    print(&series);
    let targets = judge(&series);
    print_verdicts(&targets);
    let missed = targets.iter().filter(|target| target.met != Some(true)).count();
    let results = Results { series: &series, skipped: &skipped, targets };
    Report::write("echo", &machine, &options, results, options.json.as_deref())?;
    ensure!(!options.strict || missed == 0, "{missed} targets are missed or were not measured");
    Ok(())
}

fn measure(options: &Echo, programs: &[Program]) -> Result<Vec<Series>> {
    let mut samples: BTreeMap<Key, Vec<Point>> = BTreeMap::new();
    let mut order: Vec<&Program> = programs.iter().collect();
    let mut rng = StdRng::seed_from_u64(options.plan.seed);
    for round in 1..=options.rounds {
        order.shuffle(&mut rng);
        for program in &order {
            eprintln!("echo: round {round}/{} {} x{}", options.rounds, program.contender, program.processes);
            let points = program.run(&options.plan).with_context(|| format!("{} failed", program.contender))?;
            let asked: Vec<_> = options.plan.points().collect();
            let given: Vec<_> = points.iter().map(|point| (point.bytes, point.outstanding)).collect();
            ensure!(asked == given, "{}: {given:?} were measured where {asked:?} were asked for", program.contender);
            for point in points {
                let key = (program.contender.clone(), program.processes, point.bytes, point.outstanding);
                samples.entry(key).or_default().push(point);
            }
        }
    }
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

/// For each size and number of processes, throughput and the 99th percentile over the outstanding requests.
pub fn pictures(series: &[Series]) -> Vec<Picture> {
    let mut pictures: BTreeMap<(usize, usize, &str), Picture> = BTreeMap::new();
    for series in series {
        let Series { contender, processes, bytes, outstanding, .. } = series;
        let rates = series.samples.iter().map(Point::mops);
        let (low, high) = rates.fold((f64::INFINITY, 0.0f64), |(low, high), rate| (low.min(rate), high.max(rate)));
        let us = series.p99_ns / 1e3;
        let rate = Dot { x: *outstanding as f64, y: series.median_mops, low, high };
        let kinds = [
            ("rate", "million requests a second (median, min to max)", rate),
            ("p99", "99th percentile, microseconds (median of runs)", Dot { y: us, low: us, high: us, ..rate }),
        ];
        for (kind, y, dot) in kinds {
            let picture = pictures.entry((*processes, *bytes, kind)).or_insert_with(|| Picture {
                name: format!("echo-{processes}-processes-{bytes}-bytes-{kind}"),
                title: format!("Echo between random peers, {processes} processes, {bytes} bytes"),
                x: "requests each worker keeps outstanding",
                y,
                lines: BTreeMap::new(),
            });
            picture.lines.entry(contender.clone()).or_default().push(dot);
        }
    }
    pictures.into_values().collect()
}

/// Bytes of the thesis' requests.
const THESIS_BYTES: usize = 32;
/// Two neighbouring sizes across which bytes per second must not fall by more than this.
const CLIFF: f64 = 1.5;

/// The targets of the exchange, each at the best number of outstanding requests of either side.
fn judge(series: &[Series]) -> Vec<Verdict> {
    let best = |contender: &str, processes: usize, bytes: usize| {
        let of = series.iter().filter(|series| {
            (series.contender.as_str(), series.processes, series.bytes) == (contender, processes, bytes)
        });
        of.map(|series| series.median_mops).max_by(f64::total_cmp)
    };
    let ratio = |of: &str, to: &str| Some(best(of, 2, THESIS_BYTES)? / best(to, 2, THESIS_BYTES)?);
    let against = |of: &str, to: &str, wanted: f64| {
        verdict_at_least(format!("{of} over {to}, {THESIS_BYTES} bytes, 2 processes"), wanted, ratio(of, to))
    };
    let mut verdicts = vec![
        against("shm", "threads", 0.5),
        against("shm", "mpi-aggregated", 2.0),
        against("shm", "mpi", 10.0),
        verdict_at_least("shm, 32 bytes, 2 processes, million a second", 34.0, best("shm", 2, THESIS_BYTES)),
        against("tcp", "mpi-tcp-aggregated", 1.0),
        against("tcp", "tonic", 10.0),
    ];
    for contender in ["shm", "tcp"] {
        let speeds: Vec<f64> =
            exchange::SIZES.iter().filter_map(|&bytes| Some(best(contender, 2, bytes)? * bytes as f64)).collect();
        let steps = speeds.windows(2).map(|pair| pair[1] / pair[0]).min_by(f64::total_cmp);
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
    fn targets_are_judged_at_the_best_of_either_side() {
        let series =
            [at("shm", 32, 1, 2.0), at("shm", 32, 64, 40.0), at("shm", 128, 64, 5.0), at("threads", 32, 64, 50.0)];
        let verdicts = judge(&series);
        let reached = |what: &str| verdicts.iter().find(|verdict| verdict.target.contains(what)).unwrap().reached;
        assert_eq!(reached("shm over threads"), Some(0.8));
        assert_eq!(reached("million a second"), Some(40.0));
        assert_eq!(reached("shm: the worst step"), Some(0.5));
        assert_eq!((reached("tcp over tonic"), reached("tcp: the worst step")), (None, None));
    }
}
