//! `losses`: programs that outlive machines. Rates with and without that while none is lost, and the time from the kill
//! of one of four machines to the errors at all others, beside Erlang's nodes. With copies of objects: puts beside
//! Redis with a replica, and how fast the copies get a second place after a loss beside a socket.
//!
//! Here: the contenders, their samples, the targets. Not here: the programs (child.rs, copies.rs, `benches/erlang`).

mod child;
mod copies;
mod redis;

use crate::prelude::*;
use crate::process::Process;
use crate::programs::{builds, here, in_path};
use exchange::{Point, now_ns};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs;

pub use self::child::{LossesRun, command as run_command};

/// Options of `losses`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(
    mut_arg("rounds", |rounds| rounds.default_value("9")),
    mut_arg("millis", |millis| millis.default_value("1000"))
)]
pub struct Losses {
    /// Options of all timed commands.
    #[command(flatten)]
    #[serde(flatten)]
    pub timed: Timed,
}

/// Machines or nodes that see one more go.
const LIVING: usize = 3;
/// From the begin of all waits to the kill.
const REST: Duration = Duration::from_millis(300);
/// Port of Erlang's mapper of names, which is another one than its own.
const EPMD_PORT: &str = "24369";

enum Work {
    /// Million requests a second that it tells as a point.
    Echo(Program),
    /// Million operations a second that it tells.
    Rate(Program),
    /// Milliseconds from the kill of the process that it tells first to the last of the times that it tells then.
    Killed(Program),
    /// Thousand puts a second of this server of Redis, for so long.
    Redis(PathBuf, Duration),
}

impl Work {
    fn sample(&self) -> Result<f64> {
        match self {
            Work::Echo(program) => {
                let points = Point::read(&program.run()?).map_err(anyhow::Error::msg)?;
                Ok(points.first().context("it tells no point")?.mops())
            }
            Work::Rate(program) => program.told(),
            Work::Killed(program) => killed(program.start()?),
            Work::Redis(server, time) => redis::puts(server, *time),
        }
    }
}

fn killed(mut process: Process) -> Result<f64> {
    let line = process.line()?;
    let victim = line.parse().ok().and_then(Pid::from_raw).with_context(|| format!("it says {line:?}"))?;
    thread::sleep(REST);
    let began = now_ns();
    kill_process(victim, Signal::KILL).context("ending a machine")?;
    let output = process.output()?;
    let told: Vec<u64> = output.lines().filter_map(|line| line.parse().ok()).collect();
    ensure!(told.len() == LIVING && told.iter().all(|at| *at > began), "killed at {began}, it says {output:?}");
    let last = told.into_iter().max().unwrap_or_default();
    Ok((last - began) as f64 / 1e6)
}

pub fn command(mut options: Losses) -> Result<()> {
    options.timed.prepare(100)?;
    let mut bench = Bench::begin("losses", &mut options.timed.comparison)?;
    let mut all = ours(options.timed.millis)?;
    if let Some(erlang) = bench.skipped.sort(ERLANG, erlang()?) {
        all.push((ERLANG.to_owned(), "ms", Work::Killed(erlang)));
    }
    if let Some(server) = bench.skipped.sort(REDIS, redis::find()) {
        let time = Duration::from_millis(options.timed.millis);
        all.push((REDIS.to_owned(), "k/s", Work::Redis(server, time)));
    }
    let samples = bench.rounds(&all, |one| one.0.clone(), |(_, _, work), _| work.sample())?;
    if all.iter().any(|one| one.0 == ERLANG) {
        end_epmd()?;
    }
    let mut figures = Figures::default();
    for ((contender, unit, _), samples) in all.iter().zip(samples) {
        figures.add("", contender, unit, samples);
    }
    figures.print("losses");
    let targets = targets(&figures);
    bench.conclude(&options, json!({"series": figures}), &targets)
}

const FABRICS: [&str; 2] = ["shm", "tcp"];
const REDIS: &str = "puts of 1 KiB, Redis with a replica, WAIT 1";
const SOCKET: &str = "bytes by a socket";
const ERLANG: &str = "kill -9 to nodedown at all, Erlang";

fn killed_by(fabric: &str) -> String {
    format!("kill -9 to the error at all, {fabric}")
}

fn puts_over(fabric: &str) -> String {
    format!("puts of 1 KiB with copies, {fabric}")
}

fn refill_over(fabric: &str) -> String {
    format!("second places of copies, {fabric}")
}

fn kv_meanwhile(fabric: &str) -> String {
    format!("operations meanwhile over before, {fabric}")
}

fn ours(millis: u64) -> Result<Vec<(String, &'static str, Work)>> {
    let mut all = Vec::new();
    for (name, survives) in [("unset", "0"), ("set", "1")] {
        let program = |words: &str| anyhow::Ok(Program::own(words)?.set("GOSSAMER_SURVIVES", survives));
        let echo = "echo-rack --processes 2 --fabric shm --workers 2 --bytes 32 --outstanding 256 --millis";
        all.push((format!("echo, {name}"), "M/s", Work::Echo(program(echo)?.with([millis.to_string()]))));
        let kv = program("losses-run kv shm")?.with([millis.to_string()]);
        all.push((format!("kv, {name}"), "M/s", Work::Rate(kv)));
    }
    for fabric in FABRICS {
        let program = Program::own(&format!("losses-run killed {fabric}"))?.set("GOSSAMER_SURVIVES", "1");
        all.push((killed_by(fabric), "ms", Work::Killed(program.quiet())));
        let works = [(puts_over(fabric), "k/s", "puts"), (refill_over(fabric), "MB/s", "refill")];
        for (name, unit, role) in works.into_iter().chain([(kv_meanwhile(fabric), "", "meanwhile")]) {
            let program = Program::own(&format!("losses-run {role} {fabric} {millis}"))?;
            all.push((name, unit, Work::Rate(program.quiet())));
        }
    }
    all.push((SOCKET.to_owned(), "MB/s", Work::Rate(Program::own(&format!("losses-run socket tcp {millis}"))?)));
    Ok(all)
}

/// Erlang's nodes, compiled; listeners bind to this host.
fn erlang() -> Result<Found<Program>> {
    let compiler = found!(in_path("erlc", "erlang-base"));
    let erl = found!(in_path("erl", "erlang-base"));
    let folder = builds()?.join("erlang");
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let compiled = Program::at(compiler).say("-o").with([&folder, &here("erlang/nodedown.erl")]).compiles();
    found!(compiled.map_err(|why| format!("nodedown.erl {why}")));
    let name = format!("gossamer_bench_{}", std::process::id());
    let program = Program::at(erl).say("-noshell -kernel inet_dist_use_interface {127,0,0,1}");
    let program = program.say("-kernel logger_level critical -run nodedown main -sname").with([OsString::from(name)]);
    Ok(Ok(with_epmd(program.say("-pa").with([folder]))))
}

fn with_epmd(program: Program) -> Program {
    program.set("ERL_EPMD_ADDRESS", "127.0.0.1").set("ERL_EPMD_PORT", EPMD_PORT)
}

/// Ends the mapper of names that the first node has started.
fn end_epmd() -> Result<()> {
    let found = in_path("epmd", "erlang-base").map_err(anyhow::Error::msg)?;
    with_epmd(Program::at(found).say("-kill")).run().map(drop)
}

fn targets(figures: &Figures) -> Vec<Verdict> {
    let over = |one: &str, other: &str| figures.over("", one, other);
    let mut targets = vec![
        at_least("echo, a loss may come, over none may", 0.99, over("echo, set", "echo, unset")),
        at_least("kv, a loss may come, over none may", 0.99, over("kv, set", "kv, unset")),
    ];
    for fabric in FABRICS {
        let time = over(&killed_by(fabric), ERLANG);
        targets.push(at_most(format!("time from kill -9 to the error at all, {fabric}, over Erlang's"), 1.0, time));
    }
    let puts = over(&puts_over("tcp"), REDIS);
    targets.push(at_least("puts of 1 KiB with copies, tcp, over Redis with a replica, WAIT 1", 2.0, puts));
    let refill = over(&refill_over("tcp"), SOCKET);
    targets.push(at_least("second places of copies, tcp, over a socket", 0.5, refill));
    for fabric in FABRICS {
        let meanwhile = figures.get("", &kv_meanwhile(fabric));
        targets.push(at_least(format!("operations of a store meanwhile over before, {fabric}"), 0.7, meanwhile));
    }
    targets
}
