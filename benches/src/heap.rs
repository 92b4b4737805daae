//! `heap`: objects of the heap over a rack (`gossamer-heap`). In one process beside `Box`: reads in random order, few
//! and many, and objects made and dropped. Over two processes (rack.rs): reads of the other one beside an own slice,
//! MPI, a socket, a bunch beside single objects, and objects handed over beside iceoryx2. Jobs placed by load beside
//! fixed shares (placed.rs), tasks that move (tasks.rs), and objects with copies beside such without (copied.rs). Whole
//! programs (apps.rs) beside their twins, gRPC and polars, one by OpenBLAS (blas.rs) beside ScaLAPACK. A run is
//! verified by the sum of the values it read.

mod apps;
mod blas;
mod copied;
mod placed;
mod rack;
mod targets;
mod tasks;

use self::rack::{HANDED_BYTES, Told};
use crate::machines::outcome;
use crate::prelude::*;
use crate::programs::{build, build_unless};
use exchange::array::Outcome;
use gossamer_heap::Global;
use std::hint::black_box;

pub use self::apps::{HeapApp, app_command};
pub use self::copied::{HeapCopied, command as copied_command};
pub use self::placed::{HeapPlaced, command as placed_command};
pub use self::rack::{HeapRun, command as run_command};
pub use self::tasks::{HeapTasks, command as tasks_command};

/// Objects of 8 bytes that are read in random order, a power of two: 16 bytes each in the heap, 32 as boxes.
const OBJECTS: usize = 1 << 26;
/// Reads of a run, and objects that it makes and drops.
const READS: usize = 1 << 23;
/// Objects of the works on few.
const FEW: usize = 1024;

/// Options of `heap`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("9")))]
pub struct HeapBench {
    /// Options of all measuring commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub comparison: Comparison,
}

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

/// A work, its contender, and one run of it.
type Work = (&'static str, &'static str, Box<dyn Fn() -> Result<f64>>);

fn works<O: Owner + 'static>(contender: &'static str, objects: usize, times: usize) -> [Work; 3] {
    let all = |count: usize| (0..count as u64).map(O::own).collect::<Vec<O>>();
    let (many, few) = (all(objects), all(FEW));
    [
        ("reads of many", contender, Box::new(move || read(&many, times))),
        ("reads of few", contender, Box::new(move || read(&few, times))),
        ("made and dropped", contender, Box::new(move || make::<O>(times))),
    ]
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

pub fn command(mut options: HeapBench) -> Result<()> {
    let mut bench = Bench::begin("heap", &mut options.comparison)?;
    let (rounds, is_smoke) = (options.comparison.rounds, options.comparison.smoke);
    let (objects, reads) = if is_smoke { (1 << 12, 1 << 12) } else { (OBJECTS, READS) };
    let samples = outcome(move || beside_boxes(objects, reads, rounds), |run| gossamer::main(run, 1))?;
    let mut all = Figures::default();
    for (work, contender, samples) in samples {
        all.add(work, contender, "ns", samples);
    }
    let elements = if is_smoke { 1 << 8 } else { 1 << 16 };
    for fabric in ["shm", "tcp"] {
        let words = format!("heap-run --fabric {fabric} --rounds {rounds} --elements {elements}");
        for (work, samples) in Program::own(&words)?.told::<Told>()? {
            all.add(&work, "rack", "ns", samples);
        }
    }
    // Each rank has half of them, and reads the other's.
    let (count, ops) = (2 * WORDS * elements, WORDS * elements);
    let pass = format!("--words {WORDS} --work pass --elements {count} --ops {ops}");
    let mpi = Program::mpi("self,vader", 2, || build("mpi", "array-mpi", ""))?.map(|program| program.say(&pass));
    if let Some(mpi) = bench.skipped.sort("mpi", mpi) {
        let one = |_| Ok(1e3 / mpi.told::<Outcome>()?.mops() * WORDS as f64);
        all.add(MPI, "mpi", "ns", (0..rounds).map(one).collect::<Result<_>>()?);
    }
    let loans = build_unless(is_smoke, "iceoryx2", "heap-iceoryx2", "")?;
    if let Some(loans) = bench.skipped.sort("iceoryx2", loans) {
        let loans = Program::at(loans).say(&format!("--bytes {HANDED_BYTES} --turns {elements}"));
        all.add("64 KiB handed over", "iceoryx2", "ns", (0..rounds).map(|_| loans.told()).collect::<Result<_>>()?);
    }
    let jobs = if is_smoke { 20 } else { 1000 };
    let placed = Program::own(&format!("heap-placed --rounds {rounds} --jobs {jobs}"))?;
    for (way, samples) in placed.told::<placed::Told>()? {
        all.add(PLACED, &way, "ns", samples);
    }
    let (turns, steps) = if is_smoke { (1 << 6, 1 << 3) } else { (1 << 14, 1 << 10) };
    for fabric in ["shm", "tcp"] {
        let words = format!("heap-tasks --fabric {fabric} --rounds {rounds} --turns {turns} --steps {steps}");
        for (work, ways) in Program::own(&words)?.told::<tasks::Told>()? {
            for (way, samples) in ways {
                all.add(&format!("{work}, {fabric}"), &way, "ns", samples);
            }
        }
    }
    copied(&mut all, rounds, if is_smoke { 1 << 6 } else { 1 << 14 })?;
    apps::measure(&mut bench, &options.comparison, &mut all)?;
    all.print(&format!("{objects} objects, {reads} reads"));
    let targets = targets::targets(&all);
    bench.conclude(&options, json!({"series": all}), &targets)
}

/// Objects with copies beside such without.
fn copied(all: &mut Figures, rounds: usize, turns: u64) -> Result<()> {
    let ways = [(copied::PLAIN, ""), (copied::COPIED, " --copies")];
    for fabric in ["shm", "tcp"] {
        let mut samples: BTreeMap<(String, &str), Vec<f64>> = BTreeMap::new();
        interleaved(rounds, ways.len(), 1, |_, index| {
            let (way, option) = ways[index];
            let run = Program::own(&format!("heap-copied --fabric {fabric} --turns {turns}{option}"))?;
            for (work, some) in run.told::<copied::Told>()? {
                samples.entry((format!("{work}, {fabric}"), way)).or_default().extend(some);
            }
            Ok(())
        })?;
        for ((work, way), samples) in samples {
            all.add(&work, way, "ns", samples);
        }
    }
    Ok(())
}

/// Words that are read of the other process at once.
const WORDS: usize = 8;
const PLACED: &str = "jobs, half a core beside a whole one";
const MPI: &str = "64 B of the other process, MPI_Get";

/// A work, its contender, and its samples.
type Samples = (&'static str, &'static str, Vec<f64>);

fn beside_boxes(objects: usize, times: usize, rounds: usize) -> Result<Vec<Samples>> {
    let boxes = works::<Box<u64>>("box", objects, times);
    let works: Vec<Work> = boxes.into_iter().chain(works::<Global<u64>>("global", objects, times)).collect();
    let mut samples: Vec<Samples> = works.iter().map(|(work, contender, _)| (*work, *contender, Vec::new())).collect();
    interleaved(rounds, works.len(), 1, |_, index| {
        samples[index].2.push((works[index].2)()?);
        Ok(())
    })?;
    Ok(samples)
}
