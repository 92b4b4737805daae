//! `heap`: objects of the heap over a rack (`gossamer-heap`), in one process, beside `Box`: reads in random order, few and many, and objects made and
//! dropped. A run is verified by the sum of what it read.

use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use gossamer_heap::Global;
use serde::Serialize;

use crate::{
    machine::Machine,
    options::{Comparison, Strict},
    report::{median, spread},
    rounds::{Compared, Skipped, interleaved},
    verdict::{conclude, ratio, verdict_at_least, verdict_at_most},
};

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
    /// What all measuring commands share.
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
    work: &'static str,
    contender: &'static str,
    /// Nanoseconds for each object.
    median_ns: f64,
    samples: Vec<f64>,
}

/// What is measured. Each is run by both.
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
    report(&options, &machine, samples)
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

fn report(options: &HeapBench, machine: &Machine, samples: Samples) -> Result<()> {
    println!(
        "\n{} objects, {} reads\n  {:<18} {:<8} {:>8} {:>8} {:>8}",
        options.objects, options.reads, "ns", "", "median", "min", "max"
    );
    let mut all = Vec::new();
    for (work, of_work) in WORKS.into_iter().zip(samples) {
        for (contender, samples) in CONTENDERS.into_iter().zip(of_work) {
            let (low, high) = spread(samples.iter().copied());
            let median_ns = median(&samples);
            println!("  {work:<18} {contender:<8} {median_ns:>8.2} {low:>8.2} {high:>8.2}");
            all.push(Series { work, contender, median_ns, samples });
        }
    }
    let of = |work: usize, contender: usize| Some(all[2 * work + contender].median_ns);
    let targets = vec![
        verdict_at_most("time of a read of one of many objects over Box", 1.1, ratio(of(0, 1), of(0, 0))),
        verdict_at_most(
            "nanoseconds that a read of one of few takes more than Box",
            2.0,
            Some(all[3].median_ns - all[2].median_ns),
        ),
        verdict_at_least("objects made and dropped over Box", 1.0, ratio(of(2, 0), of(2, 1))),
    ];
    let measured = Compared { series: &all, skipped: &Skipped::default() };
    let json = options.comparison.json.as_deref();
    conclude("heap", machine, options, measured, targets, json, options.strict)
}
