//! `sssp`: shortest paths (thesis 3.3.3) by delegation over threads, `shm` and `tcp`, beside MPI and Dijkstra's
//! algorithm.
//!
//! Each contender is a program of its own that makes the graph and searches it from all roots in one run; runs are
//! interleaved, in an order shuffled anew every round. All must find the same distances, or there are no figures.
//! `sssp-run` is the example `sssp`, in this program; the MPI program is built when it is asked for. Not here: graph
//! and search (the package `graph`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use gossamer_examples::sssp::{options::Options, start};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    echo::programs::{build, finish, mpi_arguments, own},
    machine::{Machine, program},
    options::{Comparison, Strict},
    plot::{Album, Dot, Picture},
    report::median,
    rounds::{Compared, Skipped, interleaved},
    verdict::{Verdict, conclude, verdict_at_least},
};

/// Longer than any run takes, with the making of its graph.
const TIME_LIMIT: Duration = Duration::from_secs(1200);
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
    /// Workers, processes of one worker each, or ranks; a series each. The targets are those of the most.
    #[arg(long, value_delimiter = ',', default_value = "2")]
    pub workers: Vec<usize>,
    /// Contenders: threads, shm, tcp, mpi, dijkstra.
    #[arg(long, value_delimiter = ',', default_value = CONTENDERS)]
    pub only: Vec<String>,
    /// Options of all measuring commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub comparison: Comparison,
    /// Whether targets have to be met.
    #[command(flatten)]
    #[serde(flatten)]
    pub strict: Strict,
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
    /// Workers, processes or ranks; 1 of Dijkstra's algorithm.
    pub workers: usize,
    /// Of the graph.
    pub scale: u32,
    /// Median over the rounds of the harmonic mean over the roots: million traversed edges a second.
    pub median_mteps: f64,
    /// Median over the rounds of the mean over the roots: how long a search took.
    pub median_time_s: f64,
    /// All runs in the order of their rounds, with their searches.
    pub samples: Vec<Vec<Search>>,
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
/// Options out of range; a contender that fails or finds other distances; a file that cannot be written; with
/// `--strict`, a target that is missed or was not measured.
pub fn command(mut options: Sssp) -> Result<()> {
    options.comparison.prepare()?;
    if options.comparison.smoke {
        (options.scale, options.roots) = (vec![8, 9], 2);
    }
    ensure!(options.roots > 0, "--roots 0: at least one is needed");
    ensure!(!options.workers.contains(&0), "--workers 0: at least one is needed");
    let machine = Machine::here();
    println!("{machine}");
    let (mut programs, mut skipped) = (Vec::new(), Skipped::default());
    for contender in &options.only {
        for &workers in options.workers.iter().filter(|workers| can_have(contender, **workers, &options)) {
            programs.extend(skipped.sort(contender, prepare(contender, workers)?));
        }
    }
    let series = measure(&options, &programs)?;
    print(&series);
    let (targets, measured) = (verdicts(&series), Compared { series: &series, skipped: &skipped });
    conclude("sssp", &machine, &options, measured, targets, options.comparison.json.as_deref(), options.strict)
}

/// Whether so many workers make sense: Dijkstra's algorithm is always on one thread, and runs once.
fn can_have(contender: &str, workers: usize, options: &Sssp) -> bool {
    match contender {
        "dijkstra" => options.workers.first() == Some(&workers),
        "shm" | "tcp" => workers > 1,
        _ => true,
    }
}

/// A contender with so many workers: a program and the arguments that make it this one.
struct Program {
    contender: String,
    workers: usize,
    program: PathBuf,
    arguments: Vec<String>,
}

fn prepare(contender: &str, workers: usize) -> Result<std::result::Result<Program, String>> {
    let count = workers.to_string();
    let arguments = match contender {
        "threads" => vec!["--threads", &count],
        "shm" | "tcp" => vec!["--local", &count, "--threads", &count, "--fabric", contender],
        "dijkstra" => vec!["--single"],
        "mpi" => {
            let Some(mpirun) = program("mpirun") else { return Ok(Err("there is no `mpirun`".to_owned())) };
            return Ok(build("mpi", "sssp-mpi")?.map(|built| Program {
                contender: contender.to_owned(),
                workers,
                program: mpirun,
                arguments: mpi_arguments("self,vader", workers, &built),
            }));
        }
        other => bail!("there is no contender {other:?}: it is one of {CONTENDERS}"),
    };
    let arguments = ["sssp-run", "--json"].into_iter().chain(arguments).map(str::to_owned).collect();
    let workers = if contender == "dijkstra" { 1 } else { workers };
    Ok(Ok(Program { contender: contender.to_owned(), workers, program: own()?, arguments }))
}

fn measure(options: &Sssp, programs: &[Program]) -> Result<Vec<Series>> {
    let mut samples: BTreeMap<(String, usize, u32), Vec<Vec<Search>>> = BTreeMap::new();
    let mut checksums = BTreeMap::new();
    for &scale in &options.scale {
        interleaved(options.comparison.rounds, programs.len(), options.seed, |round, index| {
            let Program { contender, workers, .. } = &programs[index];
            eprintln!("sssp: scale {scale} round {round}/{} {contender} x{workers}", options.comparison.rounds);
            let searches = run(&programs[index], options, scale).with_context(|| format!("{contender} failed"))?;
            ensure!(searches.len() == options.roots, "{contender} searched from {} roots", searches.len());
            for Search { root, checksum, .. } in &searches {
                let known = checksums.entry((scale, *root)).or_insert_with(|| checksum.clone());
                ensure!(known == checksum, "{contender} finds other distances from {root} at scale {scale}");
            }
            samples.entry((contender.clone(), *workers, scale)).or_default().push(searches);
            Ok(())
        })?;
    }
    let expected = if programs.is_empty() { 0 } else { options.scale.len() * options.roots };
    ensure!(checksums.len() == expected, "the contenders searched from different roots");
    let series = samples.into_iter().map(|((contender, workers, scale), samples)| {
        let middle = |of: fn(&[Search]) -> f64| median(&samples.iter().map(|run| of(run)).collect::<Vec<_>>());
        let (median_mteps, median_time_s) = (middle(mteps), middle(mean_time_s));
        Series { contender, workers, scale, median_mteps, median_time_s, samples }
    });
    Ok(series.collect())
}

fn run(Program { program, arguments, .. }: &Program, options: &Sssp, scale: u32) -> Result<Vec<Search>> {
    let mut command = Command::new(program);
    command.args(arguments).args(["--scale", &scale.to_string(), "--edgefactor", &options.edgefactor.to_string()]);
    command.args(["--seed", &options.seed.to_string(), "--roots", &options.roots.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let child = command.spawn().with_context(|| format!("{} cannot be started", program.display()))?;
    let output = finish(child, TIME_LIMIT)?;
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

fn mean_time_s(searches: &[Search]) -> f64 {
    searches.iter().map(|search| search.time_s).sum::<f64>() / searches.len() as f64
}

fn print(series: &[Series]) {
    let (relaxed, sent) = ("edges relaxed", "messages");
    println!("\n  {:<12} {:>3} {:>6} {:>12} {:>12} {relaxed:>14} {sent:>12}", "medians", "x", "scale", "MTEPS", "ms");
    for Series { contender, workers, scale, median_mteps, median_time_s, samples } in series {
        let mean = |of: fn(&Search) -> u64| {
            let searches = samples.iter().flatten();
            searches.map(of).sum::<u64>() / samples.iter().map(Vec::len).sum::<usize>().max(1) as u64
        };
        let (relaxed, messages) = (mean(|search| search.relaxed), mean(|search| search.messages));
        println!(
            "  {contender:<12} {workers:>3} {scale:>6} {median_mteps:>12.2} {:>12.3} {relaxed:>14} {messages:>12}",
            median_time_s * 1e3
        );
    }
}

/// Of the most workers, traversed edges a second and the time of a search (figure 26 of the thesis) over the size of
/// the graph; of the largest graph, the time over the workers (figure 25).
pub fn pictures(series: &[Series]) -> Vec<Picture> {
    let (mut sizes, mut teams) = (Album::default(), Album::default());
    let most = series.iter().map(|series| series.workers).max().unwrap_or_default();
    let largest = series.iter().map(|series| series.scale).max().unwrap_or_default();
    for Series { contender, workers, scale, median_mteps, median_time_s, samples } in series {
        let seconds = "seconds a search (median of means, min to max)";
        let time = |x: f64| Dot::among(x, *median_time_s, samples.iter().map(|searches| mean_time_s(searches)));
        if *workers == most || contender == "dijkstra" {
            let vertices = f64::from(*scale).exp2();
            let title = || format!("Shortest paths in a Kronecker graph, {most} workers (dijkstra: one thread)");
            let axes = ("vertices", "million traversed edges a second (median, min to max)");
            let rate = Dot::among(vertices, *median_mteps, samples.iter().map(|searches| mteps(searches)));
            sizes.picture("teps".to_owned(), title, axes).add(contender, rate);
            sizes.picture("seconds".to_owned(), title, ("vertices", seconds)).add(contender, time(vertices));
        }
        if *scale == largest {
            let title = || format!("Shortest paths in a Kronecker graph of 2^{largest} vertices");
            let picture = teams.picture("workers".to_owned(), title, ("workers", seconds)).linear();
            picture.add(contender, time(*workers as f64));
        }
    }
    sizes.pictures().into_iter().chain(teams.pictures_with_lines()).collect()
}

/// The targets, of the most workers: at each scale as fast as MPI and faster than one thread, and clearly faster than
/// MPI at one of them.
fn verdicts(series: &[Series]) -> Vec<Verdict> {
    let most = series.iter().map(|series| series.workers).max();
    let at = |contender: &str, scale: u32| {
        let is_it = |series: &&Series| {
            (series.contender.as_str(), series.scale) == (contender, scale)
                && (contender == "dijkstra" || Some(series.workers) == most)
        };
        series.iter().find(is_it).map(|series| series.median_mteps)
    };
    let over = |of: &str, to: &str, scale: u32| Some(at(of, scale)? / at(to, scale)?);
    let ratio = |to: &str, scale: u32| over("threads", to, scale);
    let scales: BTreeSet<u32> = series.iter().map(|series| series.scale).collect();
    let mut verdicts = Vec::new();
    for &scale in &scales {
        verdicts.push(verdict_at_least(format!("threads over mpi, scale {scale}"), 1.0, ratio("mpi", scale)));
        // Processes as MPI's are.
        let shm = over("shm", "mpi", scale);
        verdicts.push(verdict_at_least(format!("shm over mpi, scale {scale}"), 1.0, shm));
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
        let (contender, workers) = (contender.to_owned(), if contender == "dijkstra" { 1 } else { 2 });
        Series { contender, workers, scale, median_mteps, median_time_s: 1.0, samples: Vec::new() }
    }

    #[test]
    fn targets_are_compared_at_each_scale() {
        let series = [at("threads", 18, 30.0), at("mpi", 18, 20.0), at("threads", 20, 18.0), at("mpi", 20, 20.0)];
        let reached: Vec<_> = verdicts(&series).into_iter().map(|verdict| (verdict.met, verdict.reached)).collect();
        let expected = [
            (Some(true), Some(1.5)),
            (None, None),
            (None, None),
            (Some(false), Some(0.9)),
            (None, None),
            (None, None),
            (Some(true), Some(1.5)),
        ];
        assert_eq!(reached, expected);
    }

    #[test]
    fn the_mean_is_harmonic() {
        let search =
            |time_s| Search { root: 0, time_s, edges: 4_000_000, relaxed: 0, messages: 0, checksum: String::new() };
        assert!((mteps(&[search(1.0), search(0.5)]) - 16.0 / 3.0).abs() < 1e-9);
    }
}
