//! `sssp`: shortest paths (thesis 3.3.3) by delegation over threads, `shm` and `tcp`, beside MPI and Dijkstra's
//! algorithm.
//!
//! Each contender is a program of its own that makes the graph and searches it from all roots in one run; runs are
//! interleaved, in an order shuffled anew every round. All must find the same distances, or there are no figures.
//! `sssp-run` is the example `sssp`, in this program; the MPI program is built when it is asked for. Not here: graph
//! and search (the package `graph`).

use crate::prelude::*;
use crate::programs::build;
use gossamer_examples::sssp::options::Options;
use gossamer_examples::sssp::start;
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Longer than any run takes, with the making of its graph.
const TIME_LIMIT: Duration = Duration::from_secs(1200);
/// Edges for each vertex.
const EDGE_FACTOR: u32 = 16;
const CONTENDERS: &str = "threads,shm,tcp,mpi,dijkstra";

/// Options of `sssp`.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Sssp {
    /// Scales of the graphs: each has 2^scale vertices.
    #[arg(long, value_delimiter = ',', default_value = "16,18,20")]
    pub scale: Vec<u32>,
    /// Searches in each run, from different vertices.
    #[arg(long, default_value_t = 8)]
    pub roots: usize,
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
}

/// One search of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Search {
    pub root: u32,
    pub time_s: f64,
    /// Edges of the component of the root.
    pub edges: u64,
    pub relaxed: u64,
    /// Relaxations sent to other workers.
    pub messages: u64,
    /// Equal where all distances are.
    pub checksum: String,
}

/// One contender on one graph.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    pub contender: String,
    /// Workers, processes or ranks; 1 of Dijkstra's algorithm.
    pub workers: usize,
    pub scale: u32,
    /// Median over the rounds of the harmonic mean over the roots: million traversed edges a second.
    pub median_mteps: f64,
    /// Median over the rounds of the mean over the roots: how long a search took.
    pub median_time_s: f64,
    /// All runs in the order of their rounds, with their searches.
    pub samples: Vec<Vec<Search>>,
}

pub fn run_command(options: Options) -> Result<()> {
    let status = start::start(&options, &["sssp-run"])?;
    ensure!(status == ExitCode::SUCCESS, "the search failed");
    Ok(())
}

pub fn command(mut options: Sssp) -> Result<()> {
    if options.comparison.smoke {
        (options.scale, options.roots) = (vec![8, 9], 2);
    }
    ensure!(options.roots > 0, "--roots 0: at least one is needed");
    ensure!(!options.workers.contains(&0), "--workers 0: at least one is needed");
    let mut bench = Bench::begin("sssp", &mut options.comparison)?;
    let mut programs = Vec::new();
    for contender in &options.only {
        for &workers in options.workers.iter().filter(|workers| can_have(contender, **workers, &options)) {
            let program = bench.skipped.sort(contender, program(contender, workers)?);
            let workers = if contender == "dijkstra" { 1 } else { workers };
            programs.extend(program.map(|program| (contender.clone(), workers, program)));
        }
    }
    let series = measure(&bench, &options, &programs)?;
    let rows = series.iter().map(|Series { contender, workers, scale, median_mteps, median_time_s, samples }| {
        let searches = || samples.iter().flatten();
        let mean = |of: fn(&Search) -> u64| searches().map(of).sum::<u64>() / searches().count().max(1) as u64;
        let (relaxed, messages) = (mean(|search| search.relaxed), mean(|search| search.messages));
        row![contender, workers, scale, median_mteps, median_time_s * 1e3, relaxed, messages]
    });
    table("medians", &["", "x", "scale", "MTEPS", "ms", "edges relaxed", "messages"], rows);
    let targets = verdicts(&series);
    bench.conclude(&options, json!({"series": series}), &targets)
}

/// Whether so many workers make sense: Dijkstra's algorithm is always on one thread, and runs once.
fn can_have(contender: &str, workers: usize, options: &Sssp) -> bool {
    match contender {
        "dijkstra" => options.workers.first() == Some(&workers),
        "shm" | "tcp" => workers > 1,
        _ => true,
    }
}

/// A contender with so many workers; or why it cannot be had here.
fn program(contender: &str, workers: usize) -> Result<Found<Program>> {
    let words = match contender {
        "threads" => format!("--threads {workers}"),
        "shm" | "tcp" => format!("--local {workers} --threads {workers} --fabric {contender}"),
        "dijkstra" => "--single".to_owned(),
        "mpi" => return Program::mpi("self,vader", workers, || build("mpi", "sssp-mpi", "")),
        other => bail!("there is no contender {other:?}: it is one of {CONTENDERS}"),
    };
    Ok(Ok(Program::own(&format!("sssp-run --json {words}"))?))
}

/// A contender with so many workers.
type Ready = (String, usize, Program);

fn measure(bench: &Bench, options: &Sssp, programs: &[Ready]) -> Result<Vec<Series>> {
    let (mut all, mut checksums) = (Vec::new(), BTreeMap::new());
    for &scale in &options.scale {
        let roots = &options.roots;
        let words = format!("--scale {scale} --edgefactor {EDGE_FACTOR} --seed 1 --roots {roots}");
        let name = |(contender, workers, _): &Ready| format!("{contender} x{workers}, scale {scale}");
        let samples = bench.rounds(programs, name, |(.., program), _| {
            let mut report: Value = program.clone().say(&words).within(TIME_LIMIT).told()?;
            let searches: Vec<Search> =
                serde_json::from_value(report["searches"].take()).context("its searches are not as expected")?;
            ensure!(searches.len() == *roots, "it searched from {} roots", searches.len());
            for Search { root, checksum, .. } in &searches {
                let known = checksums.entry((scale, *root)).or_insert_with(|| checksum.clone());
                ensure!(known == checksum, "it finds other distances from {root}");
            }
            Ok(searches)
        })?;
        all.extend(programs.iter().zip(samples).map(|((contender, workers, _), samples)| {
            let (contender, workers) = (contender.clone(), *workers);
            let median_mteps = median(samples.iter().map(|run| mteps(run)));
            let median_time_s = median(samples.iter().map(|run| mean_time_s(run)));
            Series { contender, workers, scale, median_mteps, median_time_s, samples }
        }));
    }
    let expected = if programs.is_empty() { 0 } else { options.scale.len() * options.roots };
    ensure!(checksums.len() == expected, "the contenders searched from different roots");
    Ok(all)
}

/// The harmonic mean over the searches, in million traversed edges a second.
fn mteps(searches: &[Search]) -> f64 {
    let inverse: f64 = searches.iter().map(|search| search.time_s / search.edges.max(1) as f64).sum();
    searches.len() as f64 / inverse.max(f64::MIN_POSITIVE) / 1e6
}

fn mean_time_s(searches: &[Search]) -> f64 {
    searches.iter().map(|search| search.time_s).sum::<f64>() / searches.len() as f64
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
    let over = |of: &str, to: &str, scale: u32| ratio(at(of, scale), at(to, scale));
    let scales: BTreeSet<u32> = series.iter().map(|series| series.scale).collect();
    let mut verdicts = Vec::new();
    for &scale in &scales {
        verdicts.push(at_least(format!("threads over mpi, scale {scale}"), 1.0, over("threads", "mpi", scale)));
        // Processes as MPI's are.
        verdicts.push(at_least(format!("shm over mpi, scale {scale}"), 1.0, over("shm", "mpi", scale)));
        verdicts.push(at_least(
            format!("threads over dijkstra, scale {scale}"),
            1.3,
            over("threads", "dijkstra", scale),
        ));
    }
    let best = scales.iter().filter_map(|&scale| over("threads", "mpi", scale)).max_by(f64::total_cmp);
    verdicts.push(at_least("threads over mpi, at the best scale", 1.3, best));
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
