//! `heap`: objects of the heap over a rack (`gossamer-heap`). In one process beside `Box`: reads in random order, few
//! and many, and objects made and dropped. Over two processes (rack.rs): reads of the other one beside an own slice,
//! MPI, a socket, a bunch beside single objects, and objects handed over beside iceoryx2. Whole programs (apps.rs)
//! beside their twins, gRPC and polars, one by OpenBLAS (blas.rs) beside ScaLAPACK. A run is verified by the sum of the
//! values it read.

mod apps;
mod blas;
mod rack;
mod targets;

use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use exchange::array::Outcome;
use gossamer_heap::Global;
use serde::Serialize;

pub use self::apps::{HeapApp, app_command};
use self::rack::{HANDED_BYTES, Told};
pub use self::rack::{HeapRun, command as run_command};
use crate::{
    echo::programs::{finish, mpi_arguments, own},
    machine::{Machine, program},
    options::{Comparison, Strict},
    report::{median, spread},
    rounds::{Compared, Skipped, interleaved},
    verdict::conclude,
};

/// Longer than any run over two processes takes.
const TIME_LIMIT: Duration = Duration::from_secs(300);
/// Objects of the works on few.
const FEW: usize = 1024;

/// Options of `heap`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("9")))]
pub struct HeapBench {
    /// Objects of 8 bytes that are read in random order, a power of two: 16 bytes each in the heap, 32 as boxes.
    #[arg(long, default_value_t = 1 << 26)]
    pub objects: usize,
    /// Reads of a run, and objects that it makes and drops.
    #[arg(long, default_value_t = 1 << 23)]
    pub reads: usize,
    /// Seed of the order of contenders.
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

/// All runs of one contender.
#[derive(Clone, Debug, Serialize)]
struct Series {
    work: String,
    contender: String,
    /// Nanoseconds for each object, operation, row or request.
    median_ns: f64,
    samples: Vec<f64>,
}

impl Series {
    fn new(work: &str, contender: &str, samples: Vec<f64>) -> Series {
        Series { work: work.to_owned(), contender: contender.to_owned(), median_ns: median(&samples), samples }
    }
}

/// The works. Both contenders run each.
const WORKS: [&str; 3] = ["reads of many", "reads of few", "made and dropped"];
const CONTENDERS: [&str; 2] = ["box", "global"];

/// An owner of a number.
trait Owner {
    fn own(number: u64) -> Self;
    fn number(&self) -> u64;
}

impl Owner for Box<u64> {
    fn own(number: u64) -> Self {
        Box::new(number)
    }

    fn number(&self) -> u64 {
        **self
    }
}

impl Owner for Global<u64> {
    fn own(number: u64) -> Self {
        Global::new(number)
    }

    fn number(&self) -> u64 {
        *self.read()
    }
}

/// All objects that are read.
struct Objects<O> {
    many: Vec<O>,
    few: Vec<O>,
}

impl<O: Owner> Objects<O> {
    fn new(many: usize) -> Self {
        let all = |count: usize| (0..count as u64).map(O::own).collect();
        Objects { many: all(many), few: all(FEW) }
    }

    /// Does one work. Nanoseconds for each object.
    fn run(&self, work: usize, times: usize) -> Result<f64> {
        match work {
            0 => read(&self.many, times),
            1 => read(&self.few, times),
            _ => make::<O>(times),
        }
    }
}

/// The next place of a generator that comes to each of a power of two before it repeats one.
fn next(at: usize, count: usize) -> usize {
    at.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f) & (count - 1)
}

fn read<O: Owner>(objects: &[O], times: usize) -> Result<f64> {
    let (mut at, mut sum) = (0, 0u64);
    let began = Instant::now();
    for _ in 0..times {
        at = next(at, objects.len());
        sum = sum.wrapping_add(objects[at].number());
    }
    let elapsed = began.elapsed();
    let mut at = 0;
    let wanted = (0..times).fold(0u64, |sum, _| {
        at = next(at, objects.len());
        sum.wrapping_add(at as u64)
    });
    ensure!(sum == wanted, "the numbers add up to {sum}, not {wanted}");
    Ok(elapsed.as_nanos() as f64 / times as f64)
}

/// Makes objects in the places of others, which end.
fn make<O: Owner>(times: usize) -> Result<f64> {
    let mut objects: Vec<O> = (0..FEW as u64).map(O::own).collect();
    let mut at = 0;
    let began = Instant::now();
    for number in 0..times as u64 {
        at = next(at, FEW);
        objects[at] = O::own(black_box(number));
    }
    let elapsed = began.elapsed();
    ensure!(times == 0 || objects[at].number() == times as u64 - 1, "the last object is not what was made");
    Ok(elapsed.as_nanos() as f64 / times as f64)
}

/// Runs it.
///
/// # Errors
/// Numbers that do not add up; with `--strict`, a target that is missed.
pub fn command(mut options: HeapBench) -> Result<()> {
    options.comparison.prepare()?;
    if options.comparison.smoke {
        (options.objects, options.reads) = (options.objects.min(1 << 12), options.reads.min(1 << 12));
    }
    ensure!(options.objects.is_power_of_two() && options.reads > 0, "--objects: a power of two; --reads: at least 1");
    let machine = Machine::here();
    println!("{machine}");
    let measured = Arc::new(Mutex::new(None));
    let (told, asked) = (Arc::clone(&measured), options.clone());
    gossamer::main(move || *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(measure(&asked)), 1);
    let samples = measured.lock().unwrap_or_else(PoisonError::into_inner).take();
    let samples = samples.ok_or_else(|| anyhow!("nothing was measured"))??;
    let mut all = Vec::new();
    for (work, of_work) in WORKS.into_iter().zip(samples) {
        for (contender, samples) in CONTENDERS.into_iter().zip(of_work) {
            all.push(Series::new(work, contender, samples));
        }
    }
    let mut skipped = Skipped::default();
    all.extend(measure_racks(&options, &mut skipped)?);
    for (name, samples) in apps::measure_apps(&options.comparison, &mut skipped)? {
        let (app, way) = name.split_once(", ").unwrap_or((&name, ""));
        all.push(Series::new(app, way, samples));
    }
    print(&options, &all);
    let (verdicts, measured) = (targets::targets(&all), Compared { series: &all, skipped: &skipped });
    let json = options.comparison.json.as_deref();
    conclude("heap", &machine, &options, measured, verdicts, json, options.strict)
}

/// Bytes that are read of the other process at once, in words.
const WORDS: usize = 8;
const MPI: &str = "64 B of the other process, MPI_Get";

/// All works over two processes, those of the project, MPI's and iceoryx2's.
fn measure_racks(options: &HeapBench, skipped: &mut Skipped) -> Result<Vec<Series>> {
    let elements = if options.comparison.smoke { 1 << 8 } else { 1 << 16 };
    let (mut told, rounds) = (Told::new(), options.comparison.rounds.to_string());
    for fabric in ["shm", "tcp"] {
        eprintln!("heap: two processes, {fabric}");
        let count = elements.to_string();
        let output = run(&own()?, &["heap-run", "--fabric", fabric, "--rounds", &rounds, "--elements", &count])?;
        let line = output.lines().find_map(|line| serde_json::from_str::<Told>(line).ok());
        told.append(&mut line.ok_or_else(|| anyhow!("heap-run tells nothing: {output:?}"))?);
    }
    let mut all: Vec<Series> = told.into_iter().map(|(work, samples)| Series::new(&work, "rack", samples)).collect();
    all.extend(measure_mpi(options, elements, skipped)?);
    all.extend(measure_iceoryx2(options, elements, skipped)?);
    Ok(all)
}

fn measure_mpi(options: &HeapBench, elements: usize, skipped: &mut Skipped) -> Result<Option<Series>> {
    let mpi = match program("mpirun") {
        None => {
            Err("there is no `mpirun` (on Debian: apt-get install openmpi-bin libopenmpi-dev libclang-dev)".to_owned())
        }
        Some(mpirun) => apps::foreign("mpi", "array-mpi", options.comparison.smoke)?
            .map(|built| (mpirun, mpi_arguments("self,vader", 2, &built))),
    };
    let Some((mpirun, mut arguments)) = skipped.sort("mpi", mpi) else { return Ok(None) };
    // Each rank has half of them, and reads the other's.
    let (count, ops) = ((2 * WORDS * elements).to_string(), (WORDS * elements).to_string());
    let job = ["--words", &WORDS.to_string(), "--work", "pass", "--elements", &count, "--ops", &ops].map(str::to_owned);
    arguments.extend(job);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let one = |_| {
        let outcome = Outcome::read(&run(&mpirun, &arguments)?).map_err(|error| anyhow!(error))?;
        Ok(1e3 / outcome.mops() * WORDS as f64)
    };
    let samples = (0..options.comparison.rounds).map(one).collect::<Result<_>>()?;
    Ok(Some(Series::new(MPI, "mpi", samples)))
}

fn measure_iceoryx2(options: &HeapBench, elements: usize, skipped: &mut Skipped) -> Result<Option<Series>> {
    let Some(built) = skipped.sort("iceoryx2", apps::foreign("iceoryx2", "heap-iceoryx2", options.comparison.smoke)?)
    else {
        return Ok(None);
    };
    let (bytes, turns) = (HANDED_BYTES.to_string(), elements.to_string());
    let one = |_| {
        let output = run(&built, &["--bytes", &bytes, "--turns", &turns])?;
        output.trim().parse().with_context(|| format!("iceoryx2 tells no time: {output:?}"))
    };
    let samples = (0..options.comparison.rounds).map(one).collect::<Result<_>>()?;
    Ok(Some(Series::new("64 KiB handed over", "iceoryx2", samples)))
}

/// Output of a program.
fn run(program: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    // Each worker, or rank, multiplies on its own thread; else the library begins with more, and they spin for a while.
    command.env("OPENBLAS_NUM_THREADS", "1");
    let child = command.spawn().with_context(|| format!("{} cannot be started", program.display()))?;
    finish(child, TIME_LIMIT)
}

/// Samples by work and contender.
type Samples = [[Vec<f64>; 2]; 3];

fn measure(options: &HeapBench) -> Result<Samples> {
    let (boxes, globals) = (Objects::<Box<u64>>::new(options.objects), Objects::<Global<u64>>::new(options.objects));
    let mut samples = Samples::default();
    interleaved(options.comparison.rounds, 6, options.seed, |_, index| {
        let (work, contender) = (index / 2, index % 2);
        let ns = if contender == 0 { boxes.run(work, options.reads) } else { globals.run(work, options.reads) };
        samples[work][contender].push(ns?);
        Ok(())
    })?;
    Ok(samples)
}

fn print(options: &HeapBench, all: &[Series]) {
    println!("\n{} objects, {} reads", options.objects, options.reads);
    println!("  {:<34} {:<16} {:>12} {:>12} {:>12}", "ns", "", "median", "min", "max");
    for Series { work, contender, median_ns, samples } in all {
        let (low, high) = spread(samples.iter().copied());
        let digits = if *median_ns < 1.0 { 4 } else { 2 };
        println!("  {work:<34} {contender:<16} {median_ns:>12.digits$} {low:>12.digits$} {high:>12.digits$}");
    }
}
