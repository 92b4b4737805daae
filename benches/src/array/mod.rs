//! `array`: the array over the rack beside a `Vec`, counted references, delegation by hand, locks, MPI windows,
//! OpenSHMEM and Lamellar (DArray 5 and 6); and programs on graphs over arrays beside those of the registry's crate
//! `graph`.
//!
//! Each contender is a program of its own that does one job, verifies the result, and reports its time; runs are
//! interleaved, in an order shuffled anew every round. works.rs has the contenders of each work, programs.rs how each
//! is started, run.rs and graphs.rs are the programs of the project's own contenders. The picks and values of elements
//! are in the package `exchange`.

mod alone;
mod graphs;
mod programs;
mod rack;
mod run;
mod store;
mod works;

use anyhow::{Context, Result, ensure};
use clap::Args;
use exchange::array::{Outcome, Work};
use gossamer::bootstrap::FabricChoice;
use serde::{Deserialize, Serialize};

pub use self::graphs::{labels_command, ranks_command};
use self::programs::{Program, Programs};
pub use self::run::{ArrayRun, command as run_command};
use self::works::{Entry, contenders, crossing, entries, table, verdicts, what};
use crate::{
    busy::child::transfer_ns,
    machine::Machine,
    options::{Comparison, Strict},
    plot::{Album, Dot, Picture},
    report::{median, spread},
    rounds::{Skipped, interleaved},
    verdict::conclude,
};

/// Options of `array`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("5")))]
pub struct ArrayBench {
    /// Works: hits, sum, sets, pass, zipf, uniform, dense, ranks, labels, gets, puts [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub works: Vec<Work>,
    /// Only these contenders, by name.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// The fabric between the processes of the project's own contenders: shm, tcp or auto.
    #[arg(long, default_value = "auto")]
    pub fabric: String,
    /// Seed of the picks and of the order of contenders.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Options of all measuring commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub comparison: Comparison,
    /// Whether targets have to be met.
    #[command(flatten)]
    #[serde(flatten)]
    pub strict: Strict,
}

/// All runs of one contender in one work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// In which table of the document it stands.
    pub table: String,
    /// The group in which it is compared: the work, and the density for `dense`.
    pub group: String,
    /// The work.
    pub work: Work,
    /// Contender.
    pub contender: String,
    /// Elements of 8 bytes.
    pub elements: usize,
    /// Increments of each chunk, in `dense`.
    pub per_chunk: usize,
    /// Median over the rounds: millions of elements, or edges, a second.
    pub median_mops: f64,
    /// All runs in the order of their rounds.
    pub samples: Vec<Outcome>,
}

/// Contents of the file of results.
#[derive(Serialize)]
struct Measured<'a> {
    series: &'a [Series],
    skipped: &'a Skipped,
    /// A cache line from core to core and back, before each round.
    transfer_ns: &'a [f64],
    /// Increments of a chunk at which `apply` and `apply_all` are as fast.
    crossing_per_chunk: Option<f64>,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options out of range; a contender that fails or answers wrongly; a file that cannot be written; with `--strict`, a
/// target that is missed or was not measured.
pub fn command(mut options: ArrayBench) -> Result<()> {
    options.comparison.prepare()?;
    let (known, unknown) = (contenders(), options.only.iter().find(|name| !contenders().contains(&name.as_str())));
    ensure!(unknown.is_none(), "no contender is called {unknown:?}; there are {}", known.join(", "));
    let fabric = options.fabric.parse::<FabricChoice>();
    ensure!(fabric.is_ok(), "--fabric {}: one of shm, tcp, auto", options.fabric);
    let machine = Machine::here();
    println!("{machine}");
    let (mut programs, mut skipped, mut ready) = (Programs::default(), Skipped::default(), Vec::new());
    for entry in entries(&options) {
        let prepared = programs.prepare(entry.contender, &entry.job, &options.fabric)?;
        ready.extend(skipped.sort(entry.contender, prepared).map(|program| (entry, program)));
    }
    let (series, transfer_ns) = measure(&options, &ready)?;
    print(&series);
    let crossing_per_chunk = crossing(&series);
    if series.iter().any(|one| one.work == Work::Dense) {
        let told = crossing_per_chunk.map_or("not between those measured".to_owned(), |at| format!("{at:.0}"));
        println!("\nincrements of a 4 KiB chunk at which array and array-bulk are as fast: {told}");
    }
    let (_, slowest) = spread(transfer_ns.iter().copied());
    println!("\na cache line there and back: median {:.0} ns, slowest {slowest:.0} ns", median(&transfer_ns));
    let targets = verdicts(&series);
    let measured = Measured { series: &series, skipped: &skipped, transfer_ns: &transfer_ns, crossing_per_chunk };
    conclude("array", &machine, &options, measured, targets, options.comparison.json.as_deref(), options.strict)
}

fn measure(options: &ArrayBench, ready: &[(Entry, Program)]) -> Result<(Vec<Series>, Vec<f64>)> {
    let (mut samples, mut transfers) = (vec![Vec::new(); ready.len()], Vec::new());
    interleaved(options.comparison.rounds, ready.len(), options.seed, |round, index| {
        if transfers.len() < round {
            transfers.push(transfer_ns()?);
        }
        let (Entry { group, contender, .. }, program) = &ready[index];
        eprintln!("array: round {round}/{} {group} {contender}", options.comparison.rounds);
        samples[index].push(program.run().with_context(|| format!("{contender} failed in {group}"))?);
        Ok(())
    })?;
    let series = ready.iter().zip(samples).map(|((entry, _), samples)| Series {
        table: table(entry.job.work).to_owned(),
        group: entry.group.clone(),
        work: entry.job.work,
        contender: entry.contender.to_owned(),
        elements: entry.job.elements,
        per_chunk: entry.job.per_chunk,
        median_mops: median(&samples.iter().map(Outcome::mops).collect::<Vec<_>>()),
        samples,
    });
    Ok((series.collect(), transfers))
}

fn print(series: &[Series]) {
    let mut group = None;
    for one in series {
        if group != Some(&one.group) {
            println!("\n{}: {}", one.group, what(one.work));
            let heads = ("million a second", "median", "min", "max", "ns each");
            println!("  {:<26} {:>11} {:>11} {:>11} {:>11}", heads.0, heads.1, heads.2, heads.3, heads.4);
            group = Some(&one.group);
        }
        let (low, high) = spread(one.samples.iter().map(Outcome::mops));
        let (name, median) = (&one.contender, one.median_mops);
        println!("  {name:<26} {median:>11.3} {low:>11.3} {high:>11.3} {:>11.2}", 1e3 / median);
    }
}

/// Combining and delegating over the increments of a chunk.
pub fn pictures(series: &[Series]) -> Vec<Picture> {
    let mut album = Album::default();
    for Series { work, contender, per_chunk, median_mops, samples, .. } in series {
        if *work == Work::Dense {
            let title = || "Increments of another process' chunks, two processes".to_owned();
            let axes = ("increments of a chunk of 4 KiB", "million increments a second (median, min to max)");
            let dot = Dot::among(*per_chunk as f64, *median_mops, samples.iter().map(Outcome::mops));
            album.picture("dense".to_owned(), title, axes).add(contender, dot);
        }
    }
    album.pictures()
}
