//! `sssp`: shortest paths (thesis 3.3.3) by delegation over threads, `shm` and `tcp`, beside MPI and Dijkstra's algorithm.
//!
//! Each contender is a program of its own that makes the graph and searches it from all roots in one run; runs are interleaved, in
//! an order shuffled anew every round. All must find the same distances, or there are no figures. `sssp-run` is the example
//! `sssp`, in this program; the MPI program is built when it is asked for. Not here: graph and search (the package `graph`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use gossamer_examples::sssp::{options::Options, start};
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    echo::programs::{build, finish, mpi_arguments, own},
    machine::{Machine, program},
    plot::{Dot, Picture},
    report::{Report, median},
    targets::{Verdict, print_verdicts, verdict_at_least},
};

/// Longer than any run takes, with the making of its graph.
const PATIENCE: Duration = Duration::from_secs(1200);
const CONTENDERS: &str = "threads,shm,tcp,mpi,dijkstra";

/// Options of `sssp`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Sssp {
    /// Scales of the graphs: each has 2^scale vertices.
    #[arg(long, value_delimiter = ',', default_value = "16,18,20")]
    pub scale: Vec<u32>,
    /// Edges for each vertex.
    #[arg(long, default_value_t = 16)]
    pub edgefactor: u32,
    /// Searches in each run, from different vertices.
    #[arg(long, default_value_t = 8)]
    pub roots: usize,
    /// Seed of the graphs and of the choice of roots.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Workers, processes of one worker each, or ranks.
    #[arg(long, default_value_t = 2)]
    pub workers: usize,
    /// Contenders: threads, shm, tcp, mpi, dijkstra.
    #[arg(long, value_delimiter = ',', default_value = CONTENDERS)]
    pub only: Vec<String>,
    /// Rounds: each contender runs once a round, in an order shuffled anew.
    #[arg(long, default_value_t = 3)]
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

/// One search of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Search {
    /// From where.
    pub root: u32,
    /// How long it took.
    pub time_s: f64,
    /// Edges of the component of the root.
    pub edges: u64,
    /// Edges that were relaxed.
    pub relaxed: u64,
    /// Relaxations sent to other workers.
    pub messages: u64,
    /// Equal where all distances are.
    pub checksum: String,
}

/// One contender on one graph.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Contender.
    pub contender: String,
    /// Of the graph.
    pub scale: u32,
    /// Median over the rounds of the harmonic mean over the roots: million traversed edges a second.
    pub median_mteps: f64,
    /// All runs in the order of their rounds, with their searches.
    pub samples: Vec<Vec<Search>>,
}

#[derive(Debug, Serialize)]
struct Results<'a> {
    series: &'a [Series],
    /// Contenders that did not run, and why.
    skipped: &'a BTreeMap<String, String>,
    targets: Vec<Verdict>,
}

/// Runs the example `sssp`.
///
/// # Errors
/// As the example.
pub fn run_command(options: &Options) -> Result<()> {
    let status = start::start(options, &["sssp-run"])?;
    ensure!(status == ExitCode::SUCCESS, "the search failed");
    Ok(())
}

/// Measures, prints and writes.
///
/// # Errors
/// Options out of range; a contender that fails or finds other distances; a file that cannot be written; with `--strict`, a
/// target that is missed or was not measured.
pub fn command(mut options: Sssp) -> Result<()> {
    if options.smoke {
        (options.scale, options.roots, options.rounds) = (vec![8, 9], 2, options.rounds.min(2));
    }
    ensure!(options.rounds > 0 && options.roots > 0, "--rounds and --roots must not be 0");
    ensure!(options.workers > 0, "--workers 0: at least one is needed");
    let machine = Machine::here();
    println!("{machine}");
    let (mut programs, mut skipped) = (Vec::new(), BTreeMap::new());
    for contender in &options.only {
        match prepare(contender, options.workers)? {
            Ok(prepared) => programs.push((contender.as_str(), prepared)),
            Err(why) => {
                println!("SKIPPED: {contender}: {why}");
                skipped.insert(contender.clone(), why);
            }
        }
    }
    let series = measure(&options, &programs)?;
    print(&series);
    let targets = judge(&series);
    print_verdicts(&targets);
    let missed = targets.iter().filter(|target| target.met != Some(true)).count();
    let results = Results { series: &series, skipped: &skipped, targets };
    Report::write("sssp", &machine, &options, results, options.json.as_deref())?;
    ensure!(!options.strict || missed == 0, "{missed} targets are missed or were not measured");
    Ok(())
}

/// A program and the arguments that make it this contender.
type Program = (PathBuf, Vec<String>);

fn prepare(contender: &str, workers: usize) -> Result<std::result::Result<Program, String>> {
    let count = workers.to_string();
    let arguments = match contender {
        "threads" => vec!["--threads", &count],
        "shm" | "tcp" => vec!["--local", &count, "--threads", &count, "--fabric", contender],
        "dijkstra" => vec!["--single"],
        "mpi" => {
            let Some(mpirun) = program("mpirun") else { return Ok(Err("there is no `mpirun`".to_owned())) };
            let built = build("mpi", "sssp-mpi")?;
            return Ok(built.map(|built| (mpirun, mpi_arguments("self,vader", workers, &built))));
        }
        other => bail!("there is no contender {other:?}: it is one of {CONTENDERS}"),
    };
    let arguments = ["sssp-run", "--json"].into_iter().chain(arguments).map(str::to_owned);
    Ok(Ok((own()?, arguments.collect())))
}

fn measure(options: &Sssp, programs: &[(&str, Program)]) -> Result<Vec<Series>> {
    let mut samples: BTreeMap<(String, u32), Vec<Vec<Search>>> = BTreeMap::new();
    let mut checksums = BTreeMap::new();
    let mut rng = StdRng::seed_from_u64(options.seed);
    let mut order: Vec<_> = programs.iter().collect();
    for round in 1..=options.rounds {
        for &scale in &options.scale {
            order.shuffle(&mut rng);
            for (contender, prepared) in &order {
                eprintln!("sssp: round {round}/{} scale {scale} {contender}", options.rounds);
                let searches = run(prepared, options, scale).with_context(|| format!("{contender} failed"))?;
                ensure!(searches.len() == options.roots, "{contender} searched from {} roots", searches.len());
                for Search { root, checksum, .. } in &searches {
                    let known = checksums.entry((scale, *root)).or_insert_with(|| checksum.clone());
                    ensure!(known == checksum, "{contender} finds other distances from {root} at scale {scale}");
                }
                samples.entry(((*contender).to_owned(), scale)).or_default().push(searches);
            }
        }
    }
    ensure!(checksums.len() == options.scale.len() * options.roots, "the contenders searched from different roots");
    let series = samples.into_iter().map(|((contender, scale), samples)| {
        let median_mteps = median(&samples.iter().map(|searches| mteps(searches)).collect::<Vec<_>>());
        Series { contender, scale, median_mteps, samples }
    });
    Ok(series.collect())
}

fn run((program, arguments): &Program, options: &Sssp, scale: u32) -> Result<Vec<Search>> {
    let mut command = Command::new(program);
    command.args(arguments).args(["--scale", &scale.to_string(), "--edgefactor", &options.edgefactor.to_string()]);
    command.args(["--seed", &options.seed.to_string(), "--roots", &options.roots.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let child = command.spawn().with_context(|| format!("{} cannot be started", program.display()))?;
    let output = finish(child, PATIENCE)?;
    let report: Value =
        serde_json::from_str(&output).with_context(|| format!("it says what is no report: {output}"))?;
    let searches = report.get("searches").cloned().ok_or_else(|| anyhow!("its report has no searches: {output}"))?;
    serde_json::from_value(searches).with_context(|| format!("its searches are not as expected: {output}"))
}

/// The harmonic mean over the searches, in million traversed edges a second.
fn mteps(searches: &[Search]) -> f64 {
    let inverse: f64 = searches.iter().map(|search| search.time_s / search.edges.max(1) as f64).sum();
    searches.len() as f64 / inverse.max(f64::MIN_POSITIVE) / 1e6
}

fn print(series: &[Series]) {
    println!("\n  {:<12} {:>6} {:>12} {:>14} {:>12}", "medians", "scale", "MTEPS", "edges relaxed", "messages");
    for Series { contender, scale, median_mteps, samples } in series {
        let mean = |of: fn(&Search) -> u64| {
            let searches = samples.iter().flatten();
            searches.map(of).sum::<u64>() / samples.iter().map(Vec::len).sum::<usize>().max(1) as u64
        };
        let (relaxed, messages) = (mean(|search| search.relaxed), mean(|search| search.messages));
        println!("  {contender:<12} {scale:>6} {median_mteps:>12.2} {relaxed:>14} {messages:>12}");
    }
}

/// Traversed edges a second over the size of the graph.
pub fn pictures(series: &[Series]) -> Vec<Picture> {
    let mut lines: BTreeMap<String, Vec<Dot>> = BTreeMap::new();
    for Series { contender, scale, median_mteps, samples } in series {
        let rates = samples.iter().map(|searches| mteps(searches));
        let (low, high) = rates.fold((f64::INFINITY, 0.0f64), |(low, high), rate| (low.min(rate), high.max(rate)));
        let dot = Dot { x: f64::from(*scale).exp2(), y: *median_mteps, low, high };
        lines.entry(contender.clone()).or_default().push(dot);
    }
    let title = "Shortest paths in a Kronecker graph, all contenders with two cores but dijkstra".to_owned();
    let (x, y) = ("vertices", "million traversed edges a second (median, min to max)");
    vec![Picture { name: "sssp".to_owned(), title, x, y, lines }]
}

/// The targets: at each scale as fast as MPI and faster than one thread, and clearly faster than MPI at one of them.
fn judge(series: &[Series]) -> Vec<Verdict> {
    let at = |contender: &str, scale: u32| {
        let mut of = series.iter().filter(|series| series.contender == contender && series.scale == scale);
        of.next().map(|series| series.median_mteps)
    };
    let ratio = |to: &str, scale: u32| Some(at("threads", scale)? / at(to, scale)?);
    let scales: std::collections::BTreeSet<u32> = series.iter().map(|series| series.scale).collect();
    let mut verdicts = Vec::new();
    for &scale in &scales {
        verdicts.push(verdict_at_least(format!("threads over mpi, scale {scale}"), 1.0, ratio("mpi", scale)));
        verdicts.push(verdict_at_least(format!("threads over dijkstra, scale {scale}"), 1.3, ratio("dijkstra", scale)));
    }
    let best = scales.iter().filter_map(|&scale| ratio("mpi", scale)).max_by(f64::total_cmp);
    verdicts.push(verdict_at_least("threads over mpi, at the best scale", 1.3, best));
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(contender: &str, scale: u32, median_mteps: f64) -> Series {
        Series { contender: contender.to_owned(), scale, median_mteps, samples: Vec::new() }
    }

    #[test]
    fn targets_are_judged_at_each_scale() {
        let series = [at("threads", 18, 30.0), at("mpi", 18, 20.0), at("threads", 20, 18.0), at("mpi", 20, 20.0)];
        let reached: Vec<_> = judge(&series).into_iter().map(|verdict| (verdict.met, verdict.reached)).collect();
        let expected =
            [(Some(true), Some(1.5)), (None, None), (Some(false), Some(0.9)), (None, None), (Some(true), Some(1.5))];
        assert_eq!(reached, expected);
    }

    #[test]
    fn the_mean_is_harmonic() {
        let search =
            |time_s| Search { root: 0, time_s, edges: 4_000_000, relaxed: 0, messages: 0, checksum: String::new() };
        assert!((mteps(&[search(1.0), search(0.5)]) - 16.0 / 3.0).abs() < 1e-9);
    }
}
