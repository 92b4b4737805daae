//! The verbs fabric on real queue pairs: soft-RoCE devices in virtual machines, so that any x86-64 Debian
//! can run these tests, without a network card for RDMA, without root, without changing the host.
//!
//! Here: what is built, which machines run it, what their output means. Not here: what the machines are
//! made of (`kit`), and how one is started (`machine`).
//!
//! Invariant: a machine that does not say how its tests ended has failed.

mod kit;
mod machine;

use crate::command::Context;
use crate::count;
use crate::tier::{State, Verdict};
use anyhow::Context as _;
use kit::{Kit, NoKit};
use machine::{Ended, Machine, Plan};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The networks of the machines, as shell scripts.
const PAIR: &str = include_str!("pair.sh");
const HOST: &str = include_str!("host.sh");
const PROGRAMS: &str = include_str!("programs.sh");

/// How long one machine may take, in seconds: four times what it takes on two busy cores.
const LIMIT_S: u64 = 800;

/// Where machines find what their command needs, inside.
const INSIDE: &str = "\
export PATH=/run/kit/host/usr/sbin:/run/kit/host/usr/bin:/run/kit/host/sbin:/run/kit/host/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LD_LIBRARY_PATH=/run/kit/host/usr/lib/x86_64-linux-gnu:/run/kit/host/lib/x86_64-linux-gnu
export IBV_DRIVERS=/run/kit/host/usr/lib/x86_64-linux-gnu/libibverbs/librxe
export HOME=/root RUST_TEST_THREADS=1
ulimit -l unlimited
set -e
";

/// Builds the tests, then runs them in one machine with two devices, and in two machines with one each; then programs.
pub fn check(context: &Context) -> anyhow::Result<Verdict> {
    let kit = match Kit::get(context)? {
        Ok(kit) => kit,
        Err(NoKit(why)) => return Ok(Verdict::skipped(why)),
    };
    let tests = built(context)?;
    let folder = context.target.join("rdma");
    let _ = fs::remove_dir_all(&folder);
    let verdict = pair(&kit, &folder, &tests)?.and(hosts(&kit, &folder, &tests)?);
    Ok(verdict.and(programs(context, &kit, &folder)?))
}

/// A program over two machines, and over four on what counts as two hosts, all in one virtual machine.
fn programs(context: &Context, kit: &Kit, folder: &Path) -> anyhow::Result<Verdict> {
    let built = context.cargo(&["build", "--package", "gossamer-daemon", "--package", "gossamer-examples"]).check()?;
    if !matches!(built.state, State::Passed) {
        return Ok(built);
    }
    let work = folder.join("programs");
    fs::create_dir_all(work.join("text"))?;
    for program in ["gossamer-launch", "wordcount"] {
        let built = context.target.join("debug").join(program);
        fs::copy(&built, work.join(program)).with_context(|| format!("copying {}", built.display()))?;
    }
    fs::copy(context.root.join("README.md"), work.join("text/README.md"))?;
    fs::copy(context.root.join("docs/ARCHITECTURE.md"), work.join("text/ARCHITECTURE.md"))?;
    let command = format!("{INSIDE}{PAIR}set +e\n{PROGRAMS}");
    let plan = Plan { name: "programs", work, command, processors: 2, network: None };
    let start = Instant::now();
    let ended = Machine::start(kit, &plan, Duration::from_secs(LIMIT_S))?.wait()?;
    show(&plan, &ended, start);
    Ok(judge(&plan, &ended))
}

/// The test program of `comm`.
fn built(context: &Context) -> anyhow::Result<PathBuf> {
    let build = ["test", "--package", "comm", "--features", "conformance", "--test", "verbs", "--no-run"];
    let done = context.cargo(&build).args(&["--message-format", "json"]).capture_aloud()?;
    anyhow::ensure!(done.success, "the tests do not build:\n{}", done.stderr);
    let messages = done.stdout.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let programs = messages.filter_map(|message| Some(message["executable"].as_str()?.to_owned()));
    programs.reduce(|_, last| last).map(PathBuf::from).context("cargo names no test program")
}

/// A folder for a machine, with the test program in it.
fn work(folder: &Path, name: &str, tests: &Path) -> anyhow::Result<PathBuf> {
    let work = folder.join(name);
    fs::create_dir_all(&work).with_context(|| format!("creating {}", work.display()))?;
    fs::copy(tests, work.join("tests"))?;
    Ok(work)
}

/// One machine, two devices.
fn pair(kit: &Kit, folder: &Path, tests: &Path) -> anyhow::Result<Verdict> {
    let work = work(folder, "pair", tests)?;
    let command = format!("{INSIDE}{PAIR}exec /run/work/tests --show-output pair::\n");
    let plan = Plan { name: "pair", work, command, processors: 2, network: None };
    let start = Instant::now();
    let ended = Machine::start(kit, &plan, Duration::from_secs(LIMIT_S))?.wait()?;
    show(&plan, &ended, start);
    Ok(judge(&plan, &ended))
}

/// Two machines, joined by a network; the second is switched off in the end.
fn hosts(kit: &Kit, folder: &Path, tests: &Path) -> anyhow::Result<Verdict> {
    let sockets = tempfolder()?;
    let socket = |number: u8| sockets.join(format!("{number}"));
    let names = ["host 1", "host 2"];
    let start = Instant::now();
    let mut plans = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let number = index as u8 + 1;
        let work = work(folder, &format!("host{number}"), tests)?;
        let run = format!("COMM_VERBS_HOST={index} exec /run/work/tests --ignored --show-output hosts::");
        let command = format!("{INSIDE}NUMBER={number}\n{HOST}{run}\n");
        let network = Some((socket(number), socket(3 - number), number));
        plans.push(Plan { name, work, command, processors: 1, network });
    }
    let limit = Duration::from_secs(LIMIT_S);
    let machines = plans.iter().map(|plan| Machine::start(kit, plan, limit)).collect::<anyhow::Result<Vec<_>>>();
    let ended =
        machines.and_then(|machines| machines.into_iter().map(Machine::wait).collect::<anyhow::Result<Vec<_>>>());
    let _ = fs::remove_dir_all(&sockets);
    let ended = ended?;
    let mut verdict = Verdict::passed();
    for (plan, ended) in plans.iter().zip(&ended) {
        show(plan, ended, start);
    }
    verdict = verdict.and(judge(&plans[0], &ended[0]));
    // The second tells of its first test only.
    if !ended[1].output.contains("test hosts::conforms_between_hosts ... ok") || ended[1].status.is_some() {
        verdict = verdict.and(Verdict::failed("host 2 did not conform, or was not switched off"));
    }
    Ok(verdict)
}

/// A folder with a path short enough for sockets.
fn tempfolder() -> anyhow::Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("gossamer-rdma-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

fn show(plan: &Plan, ended: &Ended, start: Instant) {
    println!("--- {}, {:.1} s", plan.name, start.elapsed().as_secs_f64());
    print!("{}", ended.output);
}

/// What the output of a machine means.
fn judge(plan: &Plan, ended: &Ended) -> Verdict {
    let name = plan.name;
    let tests = count::results(&ended.output);
    let failed = count::failed_names(&ended.output);
    let verdict = if ended.is_overdue {
        Verdict::failed(format!("machine {name} was stopped: not done after {LIMIT_S} s"))
    } else if ended.status.is_none() {
        Verdict::failed(format!("machine {name} died; its last words: {}", last_words(&ended.console)))
    } else if !failed.is_empty() {
        Verdict::failed(failed.join(", "))
    } else if ended.status != Some(0) || tests.passed == 0 {
        Verdict::failed(format!("the tests of machine {name} ended with status {:?}", ended.status))
    } else {
        Verdict::passed()
    };
    verdict.with_tests(tests)
}

fn last_words(console: &str) -> String {
    let lines: Vec<&str> = console.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: Option<i32>, output: &str, is_overdue: bool) -> Verdict {
        let plan = Plan { name: "x", work: PathBuf::new(), command: String::new(), processors: 1, network: None };
        let (output, console) = (output.to_owned(), "a\n\nb\n".to_owned());
        judge(&plan, &Ended { status, output, console, is_overdue })
    }

    #[test]
    fn only_a_machine_that_says_so_has_passed() {
        let passed = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out";
        assert_eq!(judged(Some(0), passed, false).state, State::Passed);
        for (status, output, is_overdue) in
            [(None, passed, false), (Some(0), "", false), (Some(101), passed, false), (Some(0), passed, true)]
        {
            assert!(matches!(judged(status, output, is_overdue).state, State::Failed(_)), "{status:?} {output}");
        }
        let State::Failed(why) = judged(Some(101), "test pair::x ... FAILED\n", false).state else { panic!("passed") };
        assert_eq!(why, "pair::x");
        let State::Failed(why) = judged(None, "", false).state else { panic!("passed") };
        assert!(why.ends_with("its last words: a / b"), "{why}");
    }
}
