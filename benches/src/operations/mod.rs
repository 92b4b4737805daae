//! `operations`: programs under starters, and a view into them, beside MPI, console-subscriber, prometheus-client and
//! tracing-chrome.
//!
//! Here: which contenders there are, the table, the targets. Not here: how a sample is taken (works.rs), the programs
//! (child.rs, `benches/watching`, `benches/mpi/hello.c`).
//!
//! Invariant: contenders run interleaved, each sample is verified, and a contender that cannot be had is SKIPPED with
//! the reason.

mod child;
mod process;
mod works;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

pub use self::child::{OperationsRun, command as run_command};
use self::works::{View, Work};
use crate::{
    echo::programs::{build_with, compile, own},
    machine::{Machine, program},
    options::Timed,
    report::{median, spread},
    rounds::{Compared, Skipped, interleaved},
    verdict::{conclude, ratio, verdict_at_least, verdict_at_most},
};

/// Options of `operations`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(
    mut_arg("rounds", |rounds| rounds.default_value("7")),
    mut_arg("millis", |millis| millis.default_value("2000"))
)]
pub struct Operations {
    /// Processes that have to meet.
    #[arg(long, default_value_t = 128)]
    pub many: u16,
    /// Options of all timed commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub timed: Timed,
}

/// All samples of one contender.
#[derive(Clone, Debug, Serialize)]
struct Series {
    contender: String,
    unit: &'static str,
    median: f64,
    samples: Vec<f64>,
}

/// A starter of others, its options for so many processes, and the compiler of its MPI.
const STARTERS: [(&str, &[&str], &str, &str); 3] = [
    ("mpiexec.hydra", &["-n"], "mpicc.mpich", "mpich libmpich-dev"),
    (
        "mpirun.openmpi",
        &["--allow-run-as-root", "--oversubscribe", "-n"],
        "mpicc.openmpi",
        "openmpi-bin libopenmpi-dev",
    ),
    ("srun", &["--mpi=pmi2", "-n"], "mpicc.mpich", "slurm-wlm, and a cluster of it"),
];

/// Runs it.
///
/// # Errors
/// A contender that fails; with `--strict`, a target that is missed.
pub fn command(mut options: Operations) -> Result<()> {
    options.timed.prepare(1500)?;
    if options.timed.comparison.smoke {
        options.many = options.many.min(8);
    }
    let machine = Machine::here();
    println!("{machine}");
    let mut skipped = Skipped::default();
    let all = contenders(&options, &mut skipped)?;
    let mut samples = vec![Vec::new(); all.len()];
    let timed = &options.timed;
    interleaved(timed.comparison.rounds, all.len(), timed.seed, |round, index| {
        let (name, _, work) = &all[index];
        eprintln!("operations: round {round}: {name}");
        samples[index].push(work.sample(timed.millis).map_err(|error| error.context(name.clone()))?);
        Ok(())
    })?;
    println!("\n{:<44} {:>12} {:>12} {:>12}", "", "median", "min", "max");
    let mut series = Vec::new();
    for ((contender, unit, _), samples) in all.into_iter().zip(samples) {
        let ((low, high), median) = (spread(samples.iter().copied()), median(&samples));
        println!("{contender:<44} {median:>12.3} {low:>12.3} {high:>12.3} {unit}");
        series.push(Series { contender, unit, median, samples });
    }
    let targets = targets(&series, options.many);
    let json = timed.comparison.json.as_deref();
    conclude(
        "operations",
        &machine,
        &options,
        Compared { series: &series, skipped: &skipped },
        targets,
        json,
        timed.strict,
    )
}

type Contender = (String, &'static str, Work);

fn contenders(options: &Operations, skipped: &mut Skipped) -> Result<Vec<Contender>> {
    let own = own()?.display().to_string();
    let words = |starter: &[&str], rest: &[&str]| -> Vec<String> {
        starter.iter().chain(rest).map(|word| (*word).to_owned()).collect()
    };
    let ours = |role| [own.as_str(), "operations-run", role];
    let millis = options.timed.millis.to_string();
    let plan = ["--bytes", "32", "--outstanding", "256", "--millis", &millis];
    let echo = |processes, fabric: &[&str]| {
        let of = [own.as_str(), "echo-rack", "--processes", processes, "--workers", "2"];
        words(&of, &[fabric, &plan].concat())
    };
    let mut all: Vec<Contender> =
        vec![("echo, gossamer-launch".into(), "M/s", Work::Echo(echo("2", &["--fabric", "shm"])))];
    for (starter, arguments, compiler, packages) in STARTERS {
        let Some(((found, count), hello)) = skipped.sort(starter, ready(starter, arguments, compiler, packages)?)
        else {
            continue;
        };
        let hello = hello.display().to_string();
        let under = |processes: &str| -> Vec<String> { words(&[&found], &[count, &[processes]].concat()) };
        let with = |processes: &str, rest: &[&str]| [under(processes), words(rest, &[])].concat();
        let many = options.many.to_string();
        all.push((format!("first line, 4 under {starter}"), "ms", Work::FirstLine(with("4", &ours("first-line")), 4)));
        all.push((format!("first line, 4 of MPI under {starter}"), "ms", Work::FirstLine(with("4", &[&hello]), 4)));
        if starter != "srun" {
            let work = Work::FirstLine(with(&many, &ours("first-line")), options.many.into());
            all.push((format!("first line, all under {starter}"), "ms", work));
        }
        all.push((format!("echo, {starter}"), "M/s", Work::Echo([under("2"), echo("1", &[])].concat())));
        all.push((format!("killed, {starter}"), "ms", Work::Killed(with("4", &ours("wait")))));
        all.push((format!("killed, MPI under {starter}"), "ms", Work::Killed(with("4", &[&hello, "wait"]))));
    }
    for (name, view) in [("view off", View::Off), ("view watched", View::Watched), ("traced", View::Traced)] {
        all.push((format!("rate, {name}"), "/s", Work::Rate(view)));
    }
    all.push(("metrics".into(), "us", Work::Metrics));
    let others = match options.timed.comparison.smoke {
        true => Err("a smoke run builds no program of others".to_owned()),
        false => build_with("watching", "watching", "--cfg tokio_unstable")?,
    };
    if let Some(built) = skipped.sort("watching", others) {
        for (name, mode) in [("plain", "plain"), ("console-subscriber", "console"), ("tracing-chrome", "chrome")] {
            all.push((format!("rate of tokio, {name}"), "/s", Work::Foreign(built.clone(), mode)));
        }
        all.push(("metrics of prometheus-client".into(), "us", Work::ForeignMetrics(built)));
    }
    Ok(all)
}

/// A starter with its options, and MPI's hello for it.
type Ready = ((String, &'static [&'static str]), PathBuf);

fn ready(
    starter: &str,
    options: &'static [&'static str],
    compiler: &str,
    packages: &str,
) -> Result<std::result::Result<Ready, String>> {
    let missing = |what: &str| Ok(Err(format!("there is no `{what}` (on Debian: apt-get install {packages})")));
    let Some(found) = program(starter) else { return missing(starter) };
    let Some(compiler) = program(compiler) else { return missing(compiler) };
    if starter == "srun" && std::env::var_os("SLURM_CONF").is_none() {
        let why = "no cluster: SLURM_CONF names none; `cargo dev starters` measures under one of its own".to_owned();
        return Ok(Err(why));
    }
    let built = compile(&compiler, "mpi/hello.c", &format!("hello-{starter}"), &[])?;
    Ok(built.map(|built| ((found.display().to_string(), options), built)))
}

fn targets(series: &[Series], many: u16) -> Vec<crate::verdict::Verdict> {
    let of = |name: &str| series.iter().find(|series| series.contender == name).map(|series| series.median);
    let over = |one: &str, other: &str| ratio(of(one), of(other));
    let mut targets = Vec::new();
    for (starter, ..) in STARTERS {
        let (one, mpi) = (format!("first line, 4 under {starter}"), format!("first line, 4 of MPI under {starter}"));
        targets.push(verdict_at_most(
            format!("time to the first line of 4 under {starter}, over MPI's"),
            0.8,
            over(&one, &mpi),
        ));
        let echo = over(&format!("echo, {starter}"), "echo, gossamer-launch");
        targets.push(verdict_at_least(format!("echo by shm under {starter}, over gossamer-launch"), 0.97, echo));
        if starter != "srun" {
            let seconds = of(&format!("first line, all under {starter}")).map(|ms| ms / 1e3);
            targets.push(verdict_at_most(format!("seconds until {many} processes under {starter} met"), 5.0, seconds));
        }
        let killed = over(&format!("killed, {starter}"), "killed, MPI under mpirun.openmpi");
        targets.push(verdict_at_most(
            format!("kill -9 to all gone under {starter}, over MPI's under mpirun"),
            0.5,
            killed,
        ));
    }
    let lost = |with: &str, without: &str| over(with, without).map(|rate| (1.0 - rate).max(0.0));
    let console = lost("rate of tokio, console-subscriber", "rate of tokio, plain");
    targets.extend([
        verdict_at_least("rate watched at 10 Hz over unwatched", 0.99, over("rate, view watched", "rate, view off")),
        verdict_at_most(
            "part of the rate lost by it over that by console-subscriber (nobody connected)",
            0.1,
            ratio(lost("rate, view watched", "rate, view off"), console.filter(|lost| *lost > 0.0)),
        ),
        verdict_at_most(
            "time of /metrics for 128 workers over prometheus-client's",
            0.5,
            over("metrics", "metrics of prometheus-client"),
        ),
        verdict_at_least("rate traced over off", 0.9, over("rate, traced", "rate, view off")),
        verdict_at_least(
            "rate traced over that with tracing-chrome",
            3.0,
            over("rate, traced", "rate of tokio, tracing-chrome"),
        ),
    ]);
    targets
}
