//! `array`: the array over the rack beside a `Vec`, counted references, delegation by hand, locks, MPI windows,
//! OpenSHMEM and Lamellar (DArray 5 and 6); and programs on graphs over arrays beside those of the registry's crate
//! `graph`.
//!
//! Each contender is a program of its own that does one job, verifies the result, and reports its time. Here: how each
//! is started. works.rs has the contenders of each work, run.rs the programs of the project's own contenders. The picks
//! and values of elements are in the package `exchange`.

mod alone;
mod rack;
mod run;
mod store;
mod works;

use self::run::EDGE_FACTOR;
use self::works::{Entry, contenders, entries, table_of, verdicts, what};
use crate::prelude::*;
use crate::programs::{build, compile, in_path};
use exchange::array::{Job, Outcome, Work};

pub use self::run::{ArrayRun, command as run_command, heat_command, labels_command, ranks_command};

/// Processes, or workers, of the works that have several.
const PROCESSES: usize = 2;

/// Options of `array`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("5")))]
pub struct ArrayBench {
    /// Works: hits, sum, pass, zipf, uniform, sets, dense, ranks, labels, heat, gets, puts [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub works: Vec<Work>,
    /// Only these contenders, by name.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Options of all measuring commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub comparison: Comparison,
}

/// All runs of one contender in one work.
#[derive(Clone, Debug, Serialize)]
struct Series {
    /// In which table of the document it stands.
    table: &'static str,
    /// The group in which it is compared: the work, and the density for `dense`.
    group: String,
    work: Work,
    contender: &'static str,
    elements: usize,
    per_chunk: usize,
    /// Median over the rounds: millions of elements, or edges, a second.
    median_mops: f64,
    /// In the order of their rounds.
    samples: Vec<Outcome>,
}

pub fn command(mut options: ArrayBench) -> Result<()> {
    chosen("contender", contenders(), |name| name, &options.only)?;
    let mut bench = Bench::begin("array", &mut options.comparison)?;
    let mut ready = Vec::new();
    for entry in entries(&options) {
        let program = program(entry.contender, &entry.job)?;
        ready.extend(bench.skipped.sort(entry.contender, program).map(|program| (entry, program)));
    }
    let name = |(entry, _): &(Entry, Program)| format!("{} {}", entry.group, entry.contender);
    let samples = bench.rounds(&ready, name, |(_, program), _| {
        let outcome: Outcome = program.told()?;
        ensure!(outcome.ops > 0, "it did nothing");
        Ok(outcome)
    })?;
    let series = ready.into_iter().zip(samples).map(|((Entry { group, contender, job }, _), samples)| {
        let Job { work, elements, per_chunk, .. } = job;
        let (table, median_mops) = (table_of(work), median(samples.iter().map(Outcome::mops)));
        Series { table, group, work, contender, elements, per_chunk, median_mops, samples }
    });
    let series: Vec<Series> = series.collect();
    for of_group in series.chunk_by(|one, next| one.group == next.group) {
        let rows = of_group.iter().map(|Series { contender, median_mops, samples, .. }| {
            let (low, high) = spread(samples.iter().map(Outcome::mops));
            row![contender, median_mops, low, high, 1e3 / median_mops]
        });
        let title = format!("{}: {}", of_group[0].group, what(of_group[0].work));
        table(&title, &["million a second", "median", "min", "max", "ns each"], rows);
    }
    let targets = verdicts(&series);
    bench.conclude(&options, json!({"series": series}), &targets)
}

/// A contender, ready for its job; or why it cannot be had here.
fn program(contender: &str, job: &Job) -> Result<Found<Program>> {
    let program = match contender {
        "mpi" => Program::mpi("self,vader", PROCESSES, || build("mpi", "array-mpi", ""))?,
        "shmem" => of_shmem()?,
        "lamellar" => build("lamellar", "array-lamellar", "")?.map(Program::at),
        "graph" => build("graphs", "array-graphs", "")?.map(Program::at),
        _ if job.work == Work::Heat && contender != "vec" => return Ok(Ok(of_heat(contender, job)?)),
        _ if matches!(job.work, Work::Ranks | Work::Labels) => return Ok(Ok(of_graphs(contender, job)?)),
        _ => {
            let (processes, workers) = match job.work {
                Work::Hits | Work::Sum => (1, 1),
                Work::Sets => (1, PROCESSES),
                _ => (PROCESSES, PROCESSES),
            };
            Ok(Program::own(&format!("array-run --contender {contender} --processes {processes} --workers {workers}"))?)
        }
    };
    Ok(program.map(|program| program.with(job.arguments())))
}

fn of_shmem() -> Result<Found<Program>> {
    const PACKAGES: &str = "openmpi-bin libopenmpi-dev";
    let (oshcc, oshrun) = (found!(in_path("oshcc", PACKAGES)), found!(in_path("oshrun", PACKAGES)));
    let options = format!("--allow-run-as-root --oversubscribe -x UCX_TLS=posix,self -n {PROCESSES}");
    let built = compile(&oshcc, "shmem/array.c", "array-shmem", &[])?;
    Ok(built.map(|built| Program::at(oshrun).say(&options).with([built])))
}

/// The example `heat`, compared with plain threads.
fn of_heat(contender: &str, job: &Job) -> Result<Program> {
    let machines = if contender == "array" { format!("--local {PROCESSES}") } else { String::new() };
    let (rows, steps) = (job.rows(), job.ops);
    Program::own(&format!("array-heat --verify --size {rows} --steps {steps} --threads {PROCESSES} {machines}"))
}

/// The examples on graphs, each compared with one thread.
fn of_graphs(contender: &str, job: &Job) -> Result<Program> {
    let (scale, threads) = (job.elements.trailing_zeros(), if contender == "array-single" { 1 } else { PROCESSES });
    let command = if job.work == Work::Ranks { format!("ranks --rounds {}", job.ops) } else { "labels".to_owned() };
    let machines = if contender == "array" { format!("--local {PROCESSES}") } else { String::new() };
    let seed = job.seed;
    Program::own(&format!(
        "array-{command} --verify --scale {scale} --edgefactor {EDGE_FACTOR} --seed {seed} --threads {threads} \
         {machines}"
    ))
}
