//! `region`: memory shared by pages (`gossamer-region`) beside a bare handler of faults, MPI, copies, and threads of
//! one process.
//!
//! Here: which contenders there are, the table, the targets. Not here: one sample of one contender (run.rs), the jobs
//! (jobs.rs, work.rs), programs in C that lock and meet (locks.rs), wait (waits.rs), or work (programs.rs); threads
//! that move, a bench of their own (moving.rs).
//!
//! Invariant: each sample is a process, or several, of its own; contenders run interleaved; each answer is verified.

mod bare;
mod jobs;
mod locks;
mod moving;
mod programs;
mod run;
mod waits;
mod work;

use self::jobs::Job;
use self::locks::can_share;
pub use self::moving::{RegionMoves, command as moves_command};
use self::run::Told;
pub use self::run::{RegionRun, command as run_command};
use crate::prelude::*;

/// Of `u64`.
const PAGE_WORDS: u64 = 512;
/// Pages that are fetched one by one, and that are scanned.
const FETCHED_PAGES: u64 = 4096;
const SCANNED_PAGES: u64 = 65_536;
/// End of the name of a contender, and the variable of such ones with its value.
const RUNS_OFF: (&str, &str, &str) = ("with runs off", "GOSSAMER_REGION_RUN_PAGES", "1");

/// Options of `region`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("7")))]
pub struct RegionBench {
    /// Only these contenders, by name.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Options of all measuring commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub comparison: Comparison,
}

struct Contender {
    name: String,
    program: Program,
    answer: Answer,
    /// Its report, from its whole output.
    told: fn(&str) -> Option<Told>,
}

/// The answer of a contender, or that it is the same as others have to this question.
enum Answer {
    Is(u64),
    AsOthers(String),
}

pub fn command(mut options: RegionBench) -> Result<()> {
    let mut bench = Bench::begin("region", &mut options.comparison)?;
    let all = contenders(options.comparison.smoke, &mut bench.skipped)?;
    let all = chosen("contender", all, |one| &one.name, &options.only)?;
    let what = "of a page where pages are fetched one by one, of an addition, of a round of a barrier, of a call, of a \
                word handed over, else of the whole";
    conclude(bench, &options, &all, what, targets)
}

/// Runs all contenders, prints their medians and the targets.
fn conclude(
    bench: Bench,
    options: &impl Serialize,
    all: &[Contender],
    what: &str,
    targets: fn(&Figures) -> Vec<Verdict>,
) -> Result<()> {
    let mut answers = BTreeMap::new();
    let samples = bench.rounds(all, |one| one.name.clone(), |one, _| one.sample(&mut answers))?;
    let mut figures = Figures::default();
    for (one, samples) in all.iter().zip(samples) {
        figures.add("", &one.name, "ns", samples);
    }
    figures.print(what);
    let targets = targets(&figures);
    bench.conclude(options, json!({"series": figures}), &targets)
}

impl Contender {
    fn sample(&self, answers: &mut BTreeMap<String, u64>) -> Result<f64> {
        let output = self.program.run()?;
        let Told { ns, digest } = (self.told)(&output).with_context(|| format!("it tells nothing: {output:?}"))?;
        let wanted = match &self.answer {
            Answer::Is(answer) => *answer,
            Answer::AsOthers(question) => *answers.entry(question.clone()).or_insert(digest),
        };
        ensure!(digest == wanted, "the answer is {digest}, not {wanted}");
        Ok(ns)
    }
}

fn contenders(is_smoke: bool, skipped: &mut Skipped) -> Result<Vec<Contender>> {
    let (pages, scanned) = if is_smoke { (16, 256) } else { (FETCHED_PAGES, SCANNED_PAGES) };
    let mut all = vec![];
    let own = |words: &str| Program::own(&format!("region-run {words}"));
    let faults = can_share(own("--work bare --size 1")?)?;
    let regions = can_share(own("--work fetch --size 1 --fabric shm --home 1")?)?;
    let mut add = |name: &str, answer, words: &str| -> Result<()> {
        let mut program = own(words)?;
        let is_there = match words {
            shared if shared.contains("--fabric") => regions.clone(),
            handler if handler.contains("bare") => faults.clone(),
            _ => Ok(()),
        };
        if skipped.sort(name, is_there).is_none() {
            return Ok(());
        }
        if name.ends_with(RUNS_OFF.0) {
            program = program.set(RUNS_OFF.1, RUNS_OFF.2);
        }
        all.push(Contender { name: name.to_owned(), program, answer, told: line_of_json });
        Ok(())
    };
    let (touched, around) = (|| Answer::Is(pages * (pages - 1) / 2), || Answer::Is(3 * (pages * (pages - 1) / 2)));
    let fetch =
        |machines, home| format!("--work fetch --size {pages} --machines {machines} --fabric shm --home {home}");
    add("fetch: bare handler", touched(), &format!("--work bare --size {pages}"))?;
    add("fetch: shm", touched(), &fetch(2, 1))?;
    add("fetch: two hops", touched(), &fetch(3, 1))?;
    add("fetch: three hops", touched(), &fetch(3, 2))?;
    let ring = format!("--work ring --size {pages} --machines 3 --fabric shm");
    add("ring: homes spread", around(), &ring)?;
    add("ring: homes at 0", around(), &format!("{ring} --home 0"))?;
    let sum = |pages: u64, times: u64| {
        let words = pages * PAGE_WORDS;
        Answer::Is((words * (words - 1) / 2).wrapping_mul(times))
    };
    let scan = format!("--work scan --size {scanned} --fabric shm");
    add("scan: shm", sum(scanned, 1), &scan)?;
    add("scan: shm with runs off", sum(scanned, 1), &scan)?;
    let (resident, passes) = (scanned.div_ceil(16), run::PASSES as u64);
    let of_region = format!("--work resident --size {resident} --fabric shm");
    add("resident: region", sum(resident, passes), &of_region)?;
    add("resident: Vec", sum(resident, passes), &format!("--work resident-vec --size {resident}"))?;
    for job in Job::value_variants() {
        let name = name_of(*job);
        let size = job.size(is_smoke);
        for (way, rest) in [("1 thread", "1"), ("2 threads", "2"), ("region", "2 --fabric shm")] {
            let words = format!("--work job --job {name} --size {size} --machines {rest}");
            add(&format!("{name}: {way}"), Answer::AsOthers(name.clone()), &words)?;
        }
    }
    let name = "scan: MPI_Get of 4 KiB".to_owned();
    if let Some(program) = skipped.sort(&name, Program::mpi_of_c("mpi/pages.c", "pages-mpi", &["-pthread"])?) {
        let program = program.with([scanned.to_string()]);
        all.push(Contender { name, program, answer: sum(scanned, 1), told: line_of_json });
    }
    let library = locks::library(is_smoke)?;
    all.extend(locks::contenders(is_smoke, &library, skipped)?);
    all.extend(programs::contenders(is_smoke, &library, skipped)?);
    all.extend(waits::contenders(is_smoke, &library, skipped)?);
    Ok(all)
}

fn line_of_json(output: &str) -> Option<Told> {
    output.lines().find_map(|line| serde_json::from_str(line).ok())
}

fn targets(figures: &Figures) -> Vec<Verdict> {
    let of = |name: &str| figures.get("", name);
    let over = |one: &str, other: &str| figures.over("", one, other);
    let mutex = locks::MPI_MUTEXES.into_iter().filter_map(of).reduce(f64::min);
    let mut targets = vec![
        at_most("time of a page by shm over that of a bare handler", 2.0, over("fetch: shm", "fetch: bare handler")),
        at_most("time of three hops over two", 1.5, over("fetch: three hops", "fetch: two hops")),
        at_most("time of a ring, homes spread over homes at 0", 0.7, over("ring: homes spread", "ring: homes at 0")),
        at_least("scan over MPI_Get of 4 KiB", 1.2, over("scan: MPI_Get of 4 KiB", "scan: shm")),
        at_least("scan over that with runs off", 10.0, over("scan: shm with runs off", "scan: shm")),
        at_least("resident words over those of a Vec", 1.0, over("resident: Vec", "resident: region")),
        at_least(
            "a mutex and a word of 2 machines over the faster under MPI_Win_lock",
            3.0,
            ratio(mutex, of("mutex: region")),
        ),
        at_least(
            "a barrier of 2x2 threads over MPI_Barrier and pthread_barrier",
            1.0,
            over("barrier: MPI and pthread", "barrier: region"),
        ),
    ];
    let there = of(waits::THREAD_THERE).map(|ns| ns / 1e3);
    targets.push(at_most("microseconds to start and join a thread of another machine", 200.0, there));
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
        targets.push(at_least(format!("{job} of 2 machines over 1 thread"), one, against("1 thread")));
        if let Some(two) = two {
            targets.push(at_least(format!("{job} of 2 machines over 2 threads"), two, against("2 threads")));
        }
    }
    for (job, ..) in programs::JOBS {
        let [_, region, faults] = programs::names(job);
        targets.push(at_least(format!("{job} in C of 2 machines over SIGSEGV and MPI"), 1.0, over(&faults, &region)));
    }
    targets
}
