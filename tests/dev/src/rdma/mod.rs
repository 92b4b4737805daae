//! The verbs fabric on real queue pairs: soft-RoCE devices in virtual machines, so that any x86-64 Debian
//! can run these tests, without a network card for RDMA, without root, without changing the host.
//!
//! Here: the list of parts, the meaning of a machine's output. Not here: builds and commands of a part (`parts`), the
//! contents of the machines (`kit`), and how one is started (`machine`).
//!
//! Invariant: a machine that does not say how its tests ended has failed.

mod counts;
mod kit;
mod machine;
mod parts;
mod steps;

use crate::command::Context;
use crate::count;
use crate::tier::Verdict;
use anyhow::Context as _;
use clap::ValueEnum;
use kit::{Kit, NoKit};
use machine::{Ended, Plan};
use parts::Bench;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time limit of one machine, in seconds of an idle host: four times its time on two busy cores.
const LIMIT: Duration = Duration::from_secs(800);
/// The same for the suite, where behaviours may hang and the others go on.
const SUITE_LIMIT: Duration = Duration::from_secs(2400);

/// Parts that can be run alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// `comm` in one machine with two devices: conformance, faults, counts
    Pair,
    /// `comm` between two machines, one of which is switched off
    Hosts,
    /// The behavioural suite over `verbs`, in one machine
    Suite,
    /// Whole programs in one machine: `wordcount` over `verbs`, and over `verbs` and `shm`
    Programs,
    /// A rack of two machines with daemons: `wordcount`, all fabrics in one program, a machine killed, a host switched
    /// off
    Rack,
    /// Only by its name, and without a machine: the cost of a request over `verbs` and over `shm`, counted
    Counts,
}

impl Part {
    /// Whether it runs when no part is named.
    fn is_usual(self) -> bool {
        self != Part::Counts
    }

    fn run(self, bench: &Bench<'_>) -> anyhow::Result<Verdict> {
        match self {
            Part::Pair => bench.pair(),
            Part::Hosts => bench.hosts(),
            Part::Suite => bench.suite(),
            Part::Programs => bench.programs(),
            Part::Rack => bench.rack(),
            Part::Counts => counts::check(bench.context),
        }
    }
}

/// Runs one part, or all that need a machine, and says how long each took.
pub fn check(context: &Context, only: Option<Part>) -> anyhow::Result<Verdict> {
    if only == Some(Part::Counts) {
        return counts::check(context);
    }
    let kit = match Kit::get(context)? {
        Ok(kit) => kit,
        Err(NoKit(why)) => return Ok(Verdict::skipped(why)),
    };
    let bench = Bench { context, kit, folder: context.target.join("rdma") };
    let mut verdict = Verdict::passed();
    let mut taken = String::new();
    for part in Part::value_variants().iter().filter(|part| only.map_or(part.is_usual(), |only| only == **part)) {
        let start = Instant::now();
        let run = || part.run(&bench);
        let ended = run().and_then(|ended| ended.or_again(|_| run()));
        let ended = ended.unwrap_or_else(|error| Verdict::failed(format!("{part:?}: {error:#}")));
        taken += &format!("  {part:?} {:.1} s\n", start.elapsed().as_secs_f64());
        verdict = verdict.and(ended);
    }
    print!("--- parts, with what each builds\n{taken}");
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

/// The meaning of a machine's output.
fn verdict_on(plan: &Plan, ended: &Ended) -> Verdict {
    let name = plan.name;
    let tests = count::results(&ended.output);
    let failed = count::failed_names(&ended.output);
    let verdict = if ended.is_overdue {
        Verdict::failed(format!(
            "machine {name} was stopped: not done after {:?} of an idle host; its last words: {}",
            plan.limit,
            last_words(&ended.output)
        ))
    } else if ended.status.is_none() {
        Verdict::failed(format!("machine {name} died; its last words: {}", last_words(&ended.console)))
    } else if !failed.is_empty() {
        Verdict::failed(failed.join(", "))
    } else if ended.status == Some(0) && (tests.passed == 0 || count::has_empty_run(&ended.output)) {
        Verdict::failed(format!("machine {name} was to run tests that are not there"))
    } else if ended.status != Some(0) {
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
    use crate::tier::State;

    fn verdict_of(status: Option<i32>, output: &str, is_overdue: bool) -> Verdict {
        let plan = Plan {
            name: "x",
            work: PathBuf::new(),
            command: String::new(),
            processors: 1,
            network: None,
            limit: LIMIT,
        };
        let (output, console) = (output.to_owned(), "a\n\nb\n".to_owned());
        verdict_on(&plan, &Ended { status, output, console, is_overdue })
    }

    #[test]
    fn only_a_machine_that_says_so_has_passed() {
        let passed = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out";
        assert_eq!(verdict_of(Some(0), passed, false).state, State::Passed);
        for (status, output, is_overdue) in
            [(None, passed, false), (Some(0), "", false), (Some(101), passed, false), (Some(0), passed, true)]
        {
            assert!(matches!(verdict_of(status, output, is_overdue).state, State::Failed(_)), "{status:?} {output}");
        }
        let empty = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 5 filtered out";
        let State::Failed(why) = verdict_of(Some(0), &format!("{passed}\n{empty}"), false).state else {
            panic!("passed")
        };
        assert!(why.contains("not there"), "{why}");
        let State::Failed(why) = verdict_of(Some(101), "test pair::x ... FAILED\n", false).state else {
            panic!("passed")
        };
        assert_eq!(why, "pair::x");
        let State::Failed(why) = verdict_of(None, "", false).state else { panic!("passed") };
        assert!(why.ends_with("its last words: a / b"), "{why}");
    }
}
