//! `region-run`: one sample of one contender of `region`, for itself: a line of JSON with its nanoseconds and the
//! digest of its answer.

use std::env;
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use gossamer::Place;
use gossamer::bootstrap::{FabricChoice, LAUNCHER};
use gossamer_daemon::launch::{self, LaunchConfig};
use gossamer_daemon::options::RunOptions;
use gossamer_region::{Error, Homes, Region, Span};
use serde::{Deserialize, Serialize};

use super::jobs::Job;
use super::{bare, work};

const WORDS: usize = 512;
/// Times that resident memory is added up.
pub const PASSES: usize = 20;

/// The work.
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
    /// The same within one process.
    Memcpy,
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

/// A sample, or why there can be none here.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Told {
    Sample { ns: f64, digest: u64 },
    Skipped { skipped: String },
}

/// Runs it, or starts its machines.
///
/// # Errors
/// Machines that could not be started or failed; wrong values.
pub fn command(options: RegionRun) -> Result<()> {
    ensure!(options.size > 0 && options.machines > 0, "--size, --machines: at least 1");
    let told = match (options.fabric, env::var_os(LAUNCHER)) {
        (Some(fabric), None) => return start(&options, fabric),
        (Some(_), Some(_)) => over_machines(options)?,
        (None, _) => in_one_process(&options)?,
    };
    println!("{}", serde_json::to_string(&told)?);
    Ok(())
}

fn start(options: &RegionRun, fabric: FabricChoice) -> Result<()> {
    let program = env::current_exe().context("where this program is")?.into();
    let args = env::args_os().skip(1).collect();
    let (threads, fabric) = (Some(options.machines.into()), Some(fabric));
    let of_run = RunOptions { threads, fabric, no_prefix: true, must_join: true, ..RunOptions::default() };
    let config = LaunchConfig { options: of_run, ..LaunchConfig::new(program, args, options.machines) };
    let ended = launch::run(&config)?;
    if let Some(message) = ended.messages().first() {
        bail!("{message}");
    }
    ensure!(ended.status() == 0, "the machines ended with status {}", ended.status());
    Ok(())
}

fn over_machines(options: RegionRun) -> Result<Told> {
    let measured = Arc::new(Mutex::new(None));
    let (tell, machines) = (Arc::clone(&measured), usize::from(options.machines));
    let gsm_main = move || *tell.lock().unwrap_or_else(PoisonError::into_inner) = Some(measure(&options));
    gossamer_region::main(gsm_main, machines);
    // Read after the fiber has ended; other machines do not get here.
    let measured = measured.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(match measured.ok_or_else(|| anyhow!("the run has no outcome"))?? {
        Ok((ns, digest)) => Told::Sample { ns, digest },
        Err(error @ (Error::NotAllowed { .. } | Error::OldKernel { .. } | Error::NoUserfaultfd { .. })) => {
            Told::Skipped { skipped: error.to_string() }
        }
        Err(error) => return Err(error.into()),
    })
}

fn in_one_process(options: &RegionRun) -> Result<Told> {
    let (pages, threads) = (options.size, usize::from(options.machines));
    let (ns, digest) = match options.work {
        Work::Bare => match bare::faults(pages) {
            Ok(sample) => sample,
            Err(error) => return Ok(Told::Skipped { skipped: format!("{error:#}") }),
        },
        Work::Memcpy => {
            let (held, mut page) = (numbers(pages), [0u64; WORDS]);
            let (began, mut sum) = (Instant::now(), 0u64);
            for one in held.chunks_exact(WORDS) {
                page.copy_from_slice(one);
                sum = black_box(&page).iter().fold(sum, |sum, word| sum.wrapping_add(*word));
            }
            (began.elapsed().as_nanos() as f64, sum)
        }
        Work::ResidentVec => resident(&numbers(pages)),
        Work::Job => work::by_threads(options.job, pages, threads),
        other => bail!("{other:?} needs --fabric"),
    };
    Ok(Told::Sample { ns, digest })
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

fn measure(options: &RegionRun) -> Result<std::result::Result<work::Done, Error>> {
    if options.work == Work::Job {
        return work::by_rack(options.job, options.size);
    }
    let (pages, machines) = (options.size, usize::from(options.machines));
    let parts = if options.work == Work::Ring { machines } else { 1 };
    let made = Region::with_homes(2 * parts * pages * WORDS * 8, options.home.map_or(Homes::Spread, Homes::At));
    let region = match made {
        Ok(region) => region,
        Err(error) => return Ok(Err(error)),
    };
    Ok(Ok(match options.work {
        Work::Fetch => touch(filled(region.span(2 * pages * WORDS), 1)?),
        Work::Ring => ring(&region, machines, pages)?,
        Work::Scan => {
            let mut span = region.span::<u64>(pages * WORDS);
            span = at(1, move || {
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
    }))
}

fn at<R: gossamer::NoRef + Send + 'static>(
    machine: u16,
    f: impl FnOnce() -> R + gossamer::NoRef + Send + 'static,
) -> Result<R> {
    let fiber = gossamer::spawn_on(Place::of(machine, 0), f);
    fiber.join().map_err(|_| anyhow!("a fiber of machine {machine} panicked"))
}

/// Every second page has its number, written by that machine.
fn filled(mut span: Span<u64>, machine: u16) -> Result<Span<u64>> {
    at(machine, move || {
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
