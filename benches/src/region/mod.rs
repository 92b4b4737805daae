//! `region`: memory shared by pages (`gossamer-region`) beside a bare handler of faults, MPI, copies, and threads of
//! one process.
//!
//! Here: which contenders there are, the table, the targets. Not here: one sample of one contender (run.rs), the jobs
//! (jobs.rs, work.rs), programs in C that lock and meet (locks.rs), or work (programs.rs).
//!
//! Invariant: each sample is a process, or several, of its own; contenders run interleaved; each answer is verified.

mod bare;
mod jobs;
mod locks;
mod programs;
mod run;
mod work;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use self::jobs::Job;
use self::run::Told;
pub use self::run::{RegionRun, command as run_command};
use crate::{
    echo::programs::{compile, finish, mpi_arguments, own},
    machine::{Machine, program},
    options::{Comparison, Strict},
    report::{median, spread},
    rounds::{Compared, Skipped, chosen, interleaved},
    verdict::{Verdict, conclude, ratio, verdict_at_least, verdict_at_most},
};

/// Longer than any run takes.
const TIME_LIMIT: Duration = Duration::from_secs(300);
/// Of `u64`.
const PAGE_WORDS: u64 = 512;
/// The variables that turn knobs of regions, and their values.
const RUNS_OFF: (&str, &str) = ("GOSSAMER_REGION_RUN_PAGES", "1");
const HOLD_OFF: (&str, &str) = ("GOSSAMER_REGION_HOLD_US", "0");

/// Options of `region`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("7")))]
pub struct RegionBench {
    /// Only these contenders, by name.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// MiB that are scanned.
    #[arg(long, default_value_t = 256)]
    pub mib: usize,
    /// Pages that are fetched one by one.
    #[arg(long, default_value_t = 4096)]
    pub pages: usize,
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

/// All samples of one contender.
#[derive(Clone, Debug, Serialize)]
struct Series {
    contender: String,
    /// Nanoseconds: of a page where pages are fetched one by one, of an addition under a mutex, of a round of a
    /// barrier, of the threads of a program in C, of the whole else.
    median_ns: f64,
    samples: Vec<f64>,
}

struct Contender {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    variable: Option<(&'static str, OsString)>,
    /// The program with the same answer, by this name, or the answer itself.
    answer: Answer,
    /// Its report, from its whole output.
    told: fn(&str) -> Option<Told>,
}

enum Answer {
    Is(u64),
    AsOthers(String),
}

/// Runs it.
///
/// # Errors
/// A contender that fails or has another answer; with `--strict`, a target that is missed.
pub fn command(mut options: RegionBench) -> Result<()> {
    options.comparison.prepare()?;
    if options.comparison.smoke {
        (options.mib, options.pages) = (options.mib.min(1), options.pages.min(16));
    }
    ensure!(options.mib > 0 && options.pages > 0, "--mib, --pages: at least 1");
    let machine = Machine::here();
    println!("{machine}");
    let mut skipped = Skipped::default();
    let all = chosen("contender", contenders(&options, &mut skipped)?, |one| &one.name, &options.only)?;
    let mut samples = vec![Vec::new(); all.len()];
    let mut answers = BTreeMap::new();
    interleaved(options.comparison.rounds, all.len(), options.seed, |round, index| {
        eprintln!("region: round {round}: {}", all[index].name);
        let told = all[index].sample(&mut answers).with_context(|| all[index].name.clone())?;
        samples[index].extend(skipped.sort(&all[index].name, told));
        Ok(())
    })?;
    println!("\n{:<36} {:>12} {:>12} {:>12}", "us", "median", "min", "max");
    let mut series = Vec::new();
    for (one, samples) in all.into_iter().zip(samples).filter(|(_, samples)| !samples.is_empty()) {
        let ((low, high), median_ns) = (spread(samples.iter().copied()), median(&samples));
        println!("{:<36} {:>12.2} {:>12.2} {:>12.2}", one.name, median_ns / 1e3, low / 1e3, high / 1e3);
        series.push(Series { contender: one.name, median_ns, samples });
    }
    let targets = targets(&series);
    let json = options.comparison.json.as_deref();
    let measured = Compared { series: &series, skipped: &skipped };
    conclude("region", &machine, &options, measured, targets, json, options.strict)
}

impl Contender {
    fn sample(&self, answers: &mut BTreeMap<String, u64>) -> Result<std::result::Result<f64, String>> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.variable.clone());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = command.spawn().with_context(|| format!("{} cannot be started", self.program.display()))?;
        let output = finish(child, TIME_LIMIT)?;
        let (ns, digest) = match (self.told)(&output).with_context(|| format!("it tells nothing: {output:?}"))? {
            Told::Sample { ns, digest } => (ns, digest),
            Told::Skipped { skipped } => return Ok(Err(skipped)),
        };
        let wanted = match &self.answer {
            Answer::Is(answer) => *answer,
            Answer::AsOthers(question) => *answers.entry(question.clone()).or_insert(digest),
        };
        ensure!(digest == wanted, "the answer is {digest}, not {wanted}");
        Ok(Ok(ns))
    }
}

fn contenders(options: &RegionBench, skipped: &mut Skipped) -> Result<Vec<Contender>> {
    let own = own()?;
    let mut all = vec![];
    let mut add = |name: &str, variable: Option<(&'static str, &str)>, answer, arguments: &str| {
        let variable = variable.map(|(name, value)| (name, value.into()));
        let arguments = ["region-run"].into_iter().chain(arguments.split(' ')).map(str::to_owned).collect();
        all.push(Contender {
            name: name.to_owned(),
            program: own.clone(),
            arguments,
            variable,
            answer,
            told: line_of_json,
        });
    };
    let pages = options.pages as u64;
    let (touched, around) = (|| Answer::Is(pages * (pages - 1) / 2), || Answer::Is(3 * (pages * (pages - 1) / 2)));
    let fetch = |machines, rest: &str| format!("--work fetch --size {pages} --machines {machines} {rest}");
    add("fetch: bare handler", None, touched(), &format!("--work bare --size {pages}"));
    add("fetch: shm", None, touched(), &fetch(2, "--fabric shm --home 1"));
    add("fetch: tcp", None, touched(), &fetch(2, "--fabric tcp --home 1"));
    add("fetch: two hops", None, touched(), &fetch(3, "--fabric shm --home 1"));
    add("fetch: three hops", None, touched(), &fetch(3, "--fabric shm --home 2"));
    let ring = format!("--work ring --size {pages} --machines 3 --fabric shm");
    add("ring: homes spread", None, around(), &ring);
    add("ring: homes at 0", None, around(), &format!("{ring} --home 0"));
    let scanned = (options.mib as u64) << 8;
    let words = scanned * PAGE_WORDS;
    let of_words = |times: u64| Answer::Is((words * (words - 1) / 2).wrapping_mul(times));
    let scan = |rest: &str| format!("--work scan --size {scanned} {rest}");
    add("scan: shm", None, of_words(1), &scan("--fabric shm"));
    add("scan: tcp", None, of_words(1), &scan("--fabric tcp"));
    add("scan: shm with runs off", Some(RUNS_OFF), of_words(1), &scan("--fabric shm"));
    add("scan: memcpy", None, of_words(1), &format!("--work memcpy --size {scanned}"));
    let resident = scanned.div_ceil(16);
    let sum = (resident * PAGE_WORDS * (resident * PAGE_WORDS - 1) / 2).wrapping_mul(run::PASSES as u64);
    add("resident: region", None, Answer::Is(sum), &format!("--work resident --size {resident} --fabric shm"));
    add("resident: Vec", None, Answer::Is(sum), &format!("--work resident-vec --size {resident}"));
    for job in Job::value_variants() {
        let name = job.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let size = job.size(options.comparison.smoke);
        let as_others = || Answer::AsOthers(name.clone());
        let run =
            |machines: u8, rest: &str| format!("--work job --job {name} --size {size} --machines {machines}{rest}");
        add(&format!("{name}: 1 thread"), None, as_others(), &run(1, ""));
        add(&format!("{name}: 2 threads"), None, as_others(), &run(2, ""));
        add(&format!("{name}: region"), None, as_others(), &run(2, " --fabric shm"));
        if *job == Job::Kmeans {
            add("kmeans: region with hold off", Some(HOLD_OFF), as_others(), &run(2, " --fabric shm"));
            add("kmeans: region with runs off", Some(RUNS_OFF), as_others(), &run(2, " --fabric shm"));
        }
    }
    if let Some((program, mut arguments)) =
        skipped.sort("scan: MPI_Get of 4 KiB", mpi("mpi/pages.c", "pages-mpi", &[])?)
    {
        arguments.push(scanned.to_string());
        let name = "scan: MPI_Get of 4 KiB".to_owned();
        all.push(Contender { name, program, arguments, variable: None, answer: of_words(1), told: line_of_json });
    }
    let library = locks::library(options.comparison.smoke)?;
    all.extend(locks::contenders(options.comparison.smoke, &library, skipped)?);
    all.extend(programs::contenders(options.comparison.smoke, &library, skipped)?);
    Ok(all)
}

fn line_of_json(output: &str) -> Option<Told> {
    output.lines().find_map(|line| serde_json::from_str(line).ok())
}

/// How two processes of a program in C are started, compiled with these words.
fn mpi(source: &str, binary: &str, words: &[&str]) -> Result<std::result::Result<(PathBuf, Vec<String>), String>> {
    let (Some(mpirun), Some(compiler)) = (program("mpirun.openmpi"), program("mpicc.openmpi")) else {
        let why =
            "there is no `mpirun.openmpi` and `mpicc.openmpi` (on Debian: apt-get install openmpi-bin libopenmpi-dev)";
        return Ok(Err(why.to_owned()));
    };
    let built = compile(&compiler, source, binary, &[words, &["-pthread"]].concat())?;
    Ok(built.map(|built| (mpirun, mpi_arguments("self,vader", 2, &built))))
}

fn targets(series: &[Series]) -> Vec<Verdict> {
    let of = |name: &str| series.iter().find(|series| series.contender == name).map(|series| series.median_ns);
    let over = |one: &str, other: &str| ratio(of(one), of(other));
    let mutex = locks::MPI_MUTEXES.into_iter().filter_map(of).reduce(f64::min);
    let mut targets = vec![
        verdict_at_most(
            "time of a page by shm over that of a bare handler",
            2.0,
            over("fetch: shm", "fetch: bare handler"),
        ),
        verdict_at_most("time of three hops over two", 1.5, over("fetch: three hops", "fetch: two hops")),
        verdict_at_most(
            "time of a ring, homes spread over homes at 0",
            0.7,
            over("ring: homes spread", "ring: homes at 0"),
        ),
        verdict_at_least("scan over MPI_Get of 4 KiB", 1.2, over("scan: MPI_Get of 4 KiB", "scan: shm")),
        verdict_at_least("scan over that with runs off", 10.0, over("scan: shm with runs off", "scan: shm")),
        verdict_at_least("resident words over those of a Vec", 1.0, over("resident: Vec", "resident: region")),
        verdict_at_least(
            "a mutex and a word of 2 machines over the faster under MPI_Win_lock",
            3.0,
            ratio(mutex, of("mutex: region")),
        ),
        verdict_at_least(
            "a barrier of 2x2 threads over MPI_Barrier and pthread_barrier",
            1.0,
            over("barrier: MPI and pthread", "barrier: region"),
        ),
    ];
    for (job, one, two) in [
        ("matrix", 1.8, Some(0.9)),
        ("strings", 1.8, Some(0.9)),
        ("regression", 1.8, Some(0.9)),
        ("histogram", 1.8, Some(0.9)),
        ("words", 1.5, None),
        ("pca", 1.5, None),
        ("kmeans", 0.8, None),
    ] {
        let region = format!("{job}: region");
        let against = |threads: &str| over(&format!("{job}: {threads}"), &region);
        targets.push(verdict_at_least(format!("{job} of 2 machines over 1 thread"), one, against("1 thread")));
        if let Some(two) = two {
            targets.push(verdict_at_least(format!("{job} of 2 machines over 2 threads"), two, against("2 threads")));
        }
    }
    for (job, ..) in programs::JOBS {
        let [_, region, faults] = programs::names(job);
        targets.push(verdict_at_least(
            format!("{job} in C of 2 machines over SIGSEGV and MPI"),
            1.0,
            over(&faults, &region),
        ));
    }
    targets
}
