//! `operations`: programs under starters, and a view into them, beside MPI, console-subscriber, prometheus-client and
//! tracing-chrome.
//!
//! Here: which contenders there are, the table, the targets. Not here: how a sample is taken (works.rs), the programs
//! (child.rs, `benches/watching`, `benches/mpi/hello.c`).

mod child;
mod works;

use self::works::{View, Work};
use crate::prelude::*;
use crate::programs::{build_unless, compile, in_path};

pub use self::child::{OperationsRun, command as run_command};

/// Processes that have to meet.
const MANY: u16 = 128;

/// Options of `operations`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(
    mut_arg("rounds", |rounds| rounds.default_value("7")),
    mut_arg("millis", |millis| millis.default_value("2000"))
)]
pub struct Operations {
    /// Options of all timed commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub timed: Timed,
}

/// A starter of others, its options for so many processes, the compiler of its MPI, and their packages.
const STARTERS: [(&str, &str, &str, &str); 3] = [
    ("mpiexec.hydra", "-n", "mpicc.mpich", "mpich libmpich-dev"),
    ("mpirun.openmpi", "--allow-run-as-root --oversubscribe -n", "mpicc.openmpi", "openmpi-bin libopenmpi-dev"),
    ("srun", "--mpi=pmi2 -n", "mpicc.mpich", "slurm-wlm, and a cluster of it"),
];

pub fn command(mut options: Operations) -> Result<()> {
    options.timed.prepare(3000)?;
    let many = if options.timed.comparison.smoke { 8 } else { MANY };
    let mut bench = Bench::begin("operations", &mut options.timed.comparison)?;
    let all = contenders(&options, many, &mut bench.skipped)?;
    let samples = bench.rounds(&all, |one| one.0.clone(), |(_, _, work), _| work.sample(options.timed.millis))?;
    let mut figures = Figures::default();
    for ((contender, unit, _), samples) in all.iter().zip(samples) {
        figures.add("", contender, unit, samples);
    }
    figures.print("operations");
    let targets = targets(&figures, many);
    bench.conclude(&options, json!({"series": figures}), &targets)
}

type Contender = (String, &'static str, Work);

fn contenders(options: &Operations, many: u16, skipped: &mut Skipped) -> Result<Vec<Contender>> {
    let ours = |role: &str| Program::own(&format!("operations-run {role}"));
    let echo = |options_of_rack: &str| {
        let words = format!("echo-rack {options_of_rack} --workers 2 --bytes 32 --outstanding 256 --millis");
        anyhow::Ok(Program::own(&words)?.with([options.timed.millis.to_string()]))
    };
    let mut all: Vec<Contender> =
        vec![("echo, gossamer-launch".into(), "M/s", Work::Echo(echo("--processes 2 --fabric shm")?))];
    for (starter, words, compiler, packages) in STARTERS {
        let Some((found, hello)) = skipped.sort(starter, ready(starter, compiler, packages)?) else { continue };
        let under = |processes: u16, program: Program| {
            Program::at(&found).say(words).with([processes.to_string()]).with(program.words())
        };
        let hello = Program::at(hello);
        let mut add = |name: String, unit, work| all.push((name, unit, work));
        let first_line = |processes, program| Work::FirstLine(under(processes, program), processes);
        add(format!("first line, 4 under {starter}"), "ms", first_line(4, ours("first-line")?));
        add(format!("first line, 4 of MPI under {starter}"), "ms", first_line(4, hello.clone()));
        if starter != "srun" {
            add(format!("first line, all under {starter}"), "ms", first_line(many, ours("first-line")?));
        }
        add(format!("echo, {starter}"), "M/s", Work::Echo(under(2, echo("--processes 1")?)));
        add(format!("killed, {starter}"), "ms", Work::Killed(under(4, ours("wait")?)));
        add(format!("killed, MPI under {starter}"), "ms", Work::Killed(under(4, hello.say("wait"))));
    }
    for (name, view) in [("view off", View::Off), ("view watched", View::Watched), ("traced", View::Traced)] {
        all.push((format!("rate, {name}"), "/s", Work::Rate(view)));
    }
    all.push(("metrics".into(), "us", Work::Metrics));
    let others = build_unless(options.timed.comparison.smoke, "watching", "watching", "--cfg tokio_unstable")?;
    if let Some(built) = skipped.sort("watching", others) {
        let built = Program::at(built);
        for (name, mode) in [("plain", "plain"), ("console-subscriber", "console"), ("tracing-chrome", "chrome")] {
            all.push((format!("rate of tokio, {name}"), "/s", Work::Foreign(built.clone().say(mode))));
        }
        all.push(("metrics of prometheus-client".into(), "us", Work::ForeignMetrics(built)));
    }
    Ok(all)
}

/// A starter, and MPI's hello for it.
fn ready(starter: &str, compiler: &str, packages: &str) -> Result<Found<(PathBuf, PathBuf)>> {
    let (found, compiler) = (found!(in_path(starter, packages)), found!(in_path(compiler, packages)));
    if starter == "srun" && std::env::var_os("SLURM_CONF").is_none() {
        let why = "no cluster: SLURM_CONF names none; `cargo dev starters` measures under one of its own".to_owned();
        return Ok(Err(why));
    }
    Ok(compile(&compiler, "mpi/hello.c", &format!("hello-{starter}"), &[])?.map(|built| (found, built)))
}

fn targets(figures: &Figures, many: u16) -> Vec<Verdict> {
    let of = |name: &str| figures.get("", name);
    let over = |one: &str, other: &str| figures.over("", one, other);
    let mut targets = Vec::new();
    for (starter, ..) in STARTERS {
        let (one, mpi) = (format!("first line, 4 under {starter}"), format!("first line, 4 of MPI under {starter}"));
        let target = format!("time to the first line of 4 under {starter}, over MPI's");
        targets.push(at_most(target, 0.8, over(&one, &mpi)));
        let echo = over(&format!("echo, {starter}"), "echo, gossamer-launch");
        targets.push(at_least(format!("echo by shm under {starter}, over gossamer-launch"), 0.97, echo));
        if starter != "srun" {
            let seconds = of(&format!("first line, all under {starter}")).map(|ms| ms / 1e3);
            targets.push(at_most(format!("seconds until {many} processes under {starter} met"), 5.0, seconds));
        }
        let killed = over(&format!("killed, {starter}"), "killed, MPI under mpirun.openmpi");
        targets.push(at_most(format!("kill -9 to all gone under {starter}, over MPI's under mpirun"), 0.5, killed));
    }
    let lost = |with: &str, without: &str| over(with, without).map(|rate| (1.0 - rate).max(0.0));
    let console = lost("rate of tokio, console-subscriber", "rate of tokio, plain").filter(|lost| *lost > 0.0);
    let lost_over_console = ratio(lost("rate, view watched", "rate, view off"), console);
    let metrics = over("metrics", "metrics of prometheus-client");
    let over_chrome = over("rate, traced", "rate of tokio, tracing-chrome");
    targets.extend([
        at_least("rate watched at 10 Hz over unwatched", 0.99, over("rate, view watched", "rate, view off")),
        at_most(
            "part of the rate lost by it over that by console-subscriber (nobody connected)",
            0.1,
            lost_over_console,
        ),
        at_most("time of /metrics for 128 workers over prometheus-client's", 0.5, metrics),
        at_least("rate traced over off", 0.9, over("rate, traced", "rate, view off")),
        at_least("rate traced over that with tracing-chrome", 3.0, over_chrome),
    ]);
    targets
}
