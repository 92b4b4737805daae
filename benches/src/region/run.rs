//! `region-run`: one sample of one contender of `region`, for itself: a line of JSON with its nanoseconds and the
//! digest of its answer.

use super::jobs::Job;
use super::{bare, work};
use crate::machines::{at, outcome, start};
use crate::prelude::*;
use gossamer::Place;
use gossamer::bootstrap::{FabricChoice, LAUNCHER};
use gossamer_region::{Homes, Region, Span};
use std::env;
use std::hint::black_box;

const WORDS: usize = 512;
/// Times that resident memory is added up.
pub const PASSES: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Machine 0 touches pages of machine 1, one by one.
    Fetch,
    /// Each machine touches pages of the next one, all at the same time.
    Ring,
    /// A handler of faults in this process.
    Bare,
    /// Machine 0 adds up the memory of machine 1.
    Scan,
    /// One machine adds up its own memory, again and again.
    Resident,
    /// The same of a `Vec`.
    ResidentVec,
    /// A job, as `--job` says.
    Job,
}

/// Options of `region-run`.
#[derive(Clone, Debug, Args)]
pub struct RegionRun {
    #[arg(long, value_enum)]
    pub work: Work,
    #[arg(long, value_enum, default_value = "matrix")]
    pub job: Job,
    /// Machines, or threads of this process where there is no fabric.
    #[arg(long, default_value_t = 2)]
    pub machines: u16,
    /// The fabric between machines.
    #[arg(long)]
    pub fabric: Option<FabricChoice>,
    /// The machine that is the home of all pages.
    #[arg(long)]
    pub home: Option<u16>,
    /// Pages, or the size of a job.
    #[arg(long)]
    pub size: usize,
}

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    pub ns: f64,
    pub digest: u64,
}

/// Runs it, or starts its machines.
pub fn command(options: RegionRun) -> Result<()> {
    ensure!(options.size > 0 && options.machines > 0, "--size, --machines: at least 1");
    let (ns, digest) = match (options.fabric, env::var_os(LAUNCHER)) {
        (Some(fabric), None) => return start(options.machines, options.machines.into(), fabric),
        (Some(_), Some(_)) => {
            let machines = usize::from(options.machines);
            outcome(move || measure(&options), |run| gossamer_region::main(run, machines))?
        }
        (None, _) => in_one_process(&options)?,
    };
    println!("{}", serde_json::to_string(&Told { ns, digest })?);
    Ok(())
}

fn in_one_process(options: &RegionRun) -> Result<work::Done> {
    let (pages, threads) = (options.size, usize::from(options.machines));
    Ok(match options.work {
        Work::Bare => bare::faults(pages).map_err(|error| anyhow!("userfaultfd: {error:#}"))?,
        Work::ResidentVec => resident(&numbers(pages)),
        Work::Job => work::by_threads(options.job, pages, threads),
        other => bail!("{other:?} needs --fabric"),
    })
}

fn numbers(pages: usize) -> Vec<u64> {
    (0..(pages * WORDS) as u64).collect()
}

fn resident(words: &[u64]) -> work::Done {
    let (began, mut sum) = (Instant::now(), 0u64);
    for _ in 0..PASSES {
        sum = black_box(words).iter().fold(sum, |sum, word| sum.wrapping_add(*word));
    }
    (began.elapsed().as_nanos() as f64, sum)
}

fn measure(options: &RegionRun) -> Result<work::Done> {
    if options.work == Work::Job {
        return work::by_rack(options.job, options.size);
    }
    let (pages, machines) = (options.size, usize::from(options.machines));
    let parts = if options.work == Work::Ring { machines } else { 1 };
    let region = Region::with_homes(2 * parts * pages * WORDS * 8, options.home.map_or(Homes::Spread, Homes::At))?;
    Ok(match options.work {
        Work::Fetch => touch(filled(region.span(2 * pages * WORDS), 1)?),
        Work::Ring => ring(&region, machines, pages)?,
        Work::Scan => {
            let mut span = region.span::<u64>(pages * WORDS);
            span = at(Place::of(1, 0), move || {
                span.iter_mut().zip(0..).for_each(|(word, i)| *word = i);
                span
            })?;
            let began = Instant::now();
            let sum = span.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
            let ns = began.elapsed().as_nanos() as f64;
            eprintln!("region: scan: {}", region.stats());
            (ns, sum)
        }
        Work::Resident => {
            let mut span = region.span::<u64>(pages * WORDS);
            span.iter_mut().zip(0..).for_each(|(word, i)| *word = i);
            resident(&span)
        }
        other => bail!("{other:?} needs no --fabric"),
    })
}

/// Every second page has its number, written by that machine.
fn filled(mut span: Span<u64>, machine: u16) -> Result<Span<u64>> {
    at(Place::of(machine, 0), move || {
        span.chunks_mut(2 * WORDS).zip(0..).for_each(|(pages, number)| pages[..WORDS].fill(number));
        span
    })
}

/// Nanoseconds for each second page of a span, and the sum of their values. From the last to the first, so that no page
/// is prefetched.
fn touch(span: Span<u64>) -> work::Done {
    let began = Instant::now();
    let sum = span.iter().step_by(2 * WORDS).rev().sum();
    let pages = span.len() / (2 * WORDS);
    (began.elapsed().as_nanos() as f64 / pages as f64, sum)
}

fn ring(region: &Region, machines: usize, pages: usize) -> Result<work::Done> {
    let mut spans = vec![];
    for machine in 0..machines as u16 {
        spans.push(filled(region.span(2 * pages * WORDS), machine)?);
    }
    spans.rotate_left(1);
    let began = Instant::now();
    let touching: Vec<_> = spans
        .into_iter()
        .zip(0..)
        .map(|(span, machine)| gossamer::spawn_on(Place::of(machine, 0), move || touch(span).1))
        .collect();
    let mut sum = 0;
    for fiber in touching {
        sum += fiber.join().map_err(|_| anyhow!("a machine of the ring panicked"))?;
    }
    let all = (machines * pages) as f64;
    Ok((began.elapsed().as_nanos() as f64 / all, sum))
}
