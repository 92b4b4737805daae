//! A tier of checks, how it ended, and the table at the end of a run.
//!
//! Here: verdicts, their sum, their words. Not here: how a tier comes to its verdict.
//!
//! Invariant: a failed tier counts at least one failure and a skipped tier at least one skip, so the
//! last line can never read better than the table above it.

use crate::count::Counts;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most characters of a reason that the table shows.
const WHY_CHARACTERS: usize = 120;

/// Most failures of a tier that the summary repeats.
const FAILURES_MAX: usize = 20;

/// Outcome of a tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// It ran and everything held.
    Passed,
    /// A check failed, and which.
    Failed(String),
    /// It cannot run here, and why.
    Skipped(String),
}

/// Result of a tier: its end and the tests it counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// Its outcome.
    pub state: State,
    /// The tests it ran; all zero for a tier that is one check.
    pub tests: Counts,
    /// Tests that failed at first and passed when they were run again, alone.
    pub flaky: Vec<String>,
    /// Outputs of the failed tests, or offences. The summary repeats them.
    pub failures: Vec<String>,
}

impl Verdict {
    fn new(state: State) -> Verdict {
        Verdict { state, tests: Counts::default(), flaky: Vec::new(), failures: Vec::new() }
    }

    /// A tier that is one check and held.
    pub fn passed() -> Verdict {
        Verdict::new(State::Passed)
    }

    /// A tier that did not hold.
    pub fn failed(why: impl Into<String>) -> Verdict {
        Verdict::new(State::Failed(why.into()))
    }

    /// A tier that cannot run here.
    pub fn skipped(why: impl Into<String>) -> Verdict {
        Verdict::new(State::Skipped(why.into()))
    }

    /// Adds the tests of a part to those of this tier.
    pub fn with_tests(mut self, tests: Counts) -> Verdict {
        self.tests = self.tests + tests;
        self
    }

    /// Adds what the summary is to repeat of a tier that failed.
    pub fn with_failures(mut self, failures: Vec<String>) -> Verdict {
        self.failures.extend(failures);
        self
    }

    /// Both parts of a tier: passed only if both are, with the tests of both.
    pub fn and(self, other: Verdict) -> Verdict {
        let tests = self.tests + other.tests;
        let flaky = [self.flaky, other.flaky].concat();
        let failures = [self.failures, other.failures].concat();
        let state = match (self.state, other.state) {
            (State::Failed(a), State::Failed(b)) => State::Failed(format!("{a}; {b}")),
            (State::Failed(why), _) | (_, State::Failed(why)) => State::Failed(why),
            (State::Skipped(why), _) | (_, State::Skipped(why)) => State::Skipped(why),
            (State::Passed, State::Passed) => State::Passed,
        };
        Verdict { state, tests, flaky, failures }
    }

    /// Runs a tier that measures time, on a machine that others may use too. Where just one test failed, it is run
    /// again, alone. If it passes then, so has the tier, and its row names the test as flaky.
    ///
    /// # Errors
    /// If it cannot be run again.
    pub fn or_again(self, again: impl FnOnce(&str) -> anyhow::Result<Verdict>) -> anyhow::Result<Verdict> {
        let name = match &self.state {
            State::Failed(name) if self.tests.failed == 1 => name.clone(),
            _ => return Ok(self),
        };
        println!("\n--- failed, and is run again: {name}");
        if again(&name)?.state != State::Passed {
            return Ok(self);
        }
        let tests = Counts { passed: self.tests.passed + 1, failed: 0, ..self.tests };
        Ok(Verdict { tests, flaky: vec![name], ..Verdict::passed() })
    }

    /// Runs tests with judged times. Those that failed are run again, all of them, and have failed if they fail
    /// again. The others are named as flaky.
    ///
    /// # Errors
    /// If they cannot be run again.
    pub fn each_again(self, again: impl FnOnce(&[&str]) -> anyhow::Result<Verdict>) -> anyhow::Result<Verdict> {
        let State::Failed(why) = &self.state else { return Ok(self) };
        let names: Vec<&str> = why.split(", ").collect();
        if names.len() != self.tests.failed {
            // The program died, or was not built.
            return Ok(self);
        }
        println!("\n--- failed, and are run again: {why}");
        let second = again(&names)?;
        let still = match &second.state {
            State::Passed => String::new(),
            State::Failed(why) | State::Skipped(why) => why.clone(),
        };
        let failed_again = |name: &&str| second.state != State::Passed && still.split(", ").any(|other| other == *name);
        let (failed, flaky): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| failed_again(name));
        if failed.is_empty() && second.state != State::Passed {
            return Ok(self);
        }
        let tests = Counts { passed: self.tests.passed + flaky.len(), failed: failed.len(), ..self.tests };
        let flaky = flaky.into_iter().map(str::to_owned).collect();
        let state = if failed.is_empty() { State::Passed } else { State::Failed(failed.join(", ")) };
        Ok(Verdict { state, tests, flaky, failures: second.failures })
    }

    /// This tier's part of the last line of the summary.
    fn counted(&self) -> Counts {
        let mut counts = self.tests;
        match self.state {
            State::Passed if counts == Counts::default() => counts = Counts::PASSED,
            State::Failed(_) if counts.failed == 0 => counts = counts + Counts::FAILED,
            State::Skipped(_) => counts = counts + Counts::SKIPPED,
            State::Passed | State::Failed(_) => {}
        }
        counts
    }
}

/// The tiers run so far.
pub struct Report {
    require: bool,
    rows: Vec<(&'static str, Verdict, Duration)>,
}

impl Report {
    /// An empty report; with `require` a skipped tier becomes a failed one.
    pub fn new(require: bool) -> Report {
        Report { require, rows: Vec::new() }
    }

    /// Runs one tier, says how it ended and keeps that.
    pub fn run(&mut self, tier: &'static str, body: impl FnOnce() -> anyhow::Result<Verdict>) {
        println!("\n=== {tier}");
        let start = Instant::now();
        let mut verdict = body().unwrap_or_else(|error| Verdict::failed(format!("{error:#}")));
        if let State::Skipped(why) = &verdict.state
            && self.require
        {
            verdict.state = State::Failed(format!("could not run, and --require was given: {why}"));
        }
        match &verdict.state {
            State::Passed if !verdict.flaky.is_empty() => {
                println!("passed: {tier}, but only when run again: {}", verdict.flaky.join(", "));
            }
            State::Passed => println!("passed: {tier}"),
            State::Failed(why) => println!("FAILED: {tier}: {why}"),
            State::Skipped(why) => println!("SKIPPED: {tier}: {why}"),
        }
        self.rows.push((tier, verdict, start.elapsed()));
    }

    /// Writes the verdict on all tiers to a file, for another `cargo dev`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep(&self, file: &Path) -> anyhow::Result<()> {
        let all = self.rows.iter().map(|(_, verdict, _)| verdict.clone());
        let json = serde_json::to_string(&all.reduce(Verdict::and).unwrap_or_else(Verdict::passed))?;
        std::fs::write(file, json).with_context(|| format!("writing {}", file.display()))
    }

    /// Whether no tier failed.
    pub fn succeeded(&self) -> bool {
        !self.rows.iter().any(|(_, verdict, _)| matches!(verdict.state, State::Failed(_)))
    }

    /// The failures; the table of tiers (where there are several); and the line that sums them.
    pub fn summary(&self) -> String {
        let mut out = String::from("\n");
        for (tier, verdict, _) in &self.rows {
            for failure in verdict.failures.iter().take(FAILURES_MAX) {
                let _ = writeln!(out, "FAILED in {tier}: {}", failure.trim_end());
            }
            let more = verdict.failures.len().saturating_sub(FAILURES_MAX);
            if more > 0 {
                let _ = writeln!(out, "FAILED in {tier}: {more} more, above");
            }
        }
        if self.rows.len() > 1 {
            let _ = writeln!(
                out,
                "{:<13} {:<8} {:>6} {:>6} {:>7} {:>8}  why",
                "tier", "end", "passed", "failed", "skipped", "seconds"
            );
        }
        let mut total = Counts::default();
        for (tier, verdict, taken) in &self.rows {
            let counts = verdict.counted();
            total = total + counts;
            if self.rows.len() == 1 {
                continue;
            }
            let (end, why) = match &verdict.state {
                State::Passed if verdict.flaky.is_empty() => ("passed", String::new()),
                State::Passed => ("passed", format!("only when run again: {}", verdict.flaky.join(", "))),
                State::Failed(why) => ("FAILED", why.clone()),
                State::Skipped(why) => ("SKIPPED", why.clone()),
            };
            let row = format!(
                "{tier:<13} {end:<8} {:>6} {:>6} {:>7} {:>8.1}  {}",
                counts.passed,
                counts.failed,
                counts.skipped,
                taken.as_secs_f64(),
                shortened(&why)
            );
            let _ = writeln!(out, "{}", row.trim_end());
        }
        let _ = writeln!(out, "{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
        out
    }
}

/// The beginning of a reason that was said in full when its tier ended.
fn shortened(why: &str) -> String {
    match why.char_indices().nth(WHY_CHARACTERS) {
        Some((end, _)) => format!("{}…", &why[..end]),
        None => why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests(passed: usize, failed: usize, skipped: usize) -> Counts {
        Counts { passed, failed, skipped }
    }

    fn last_line(report: &Report) -> String {
        report.summary().lines().last().unwrap_or_default().to_owned()
    }

    #[test]
    fn the_last_line_sums_tests_and_single_checks() {
        let mut report = Report::new(false);
        report.run("fmt", || Ok(Verdict::passed()));
        report.run("test", || Ok(Verdict::passed().with_tests(tests(40, 0, 2))));
        report.run("asan", || Ok(Verdict::skipped("no runtime")));
        assert_eq!(last_line(&report), "41 passed, 0 failed, 3 skipped");
        assert!(report.succeeded());
        let table = report.summary();
        assert!(table.lines().any(|line| line.starts_with("asan") && line.ends_with("no runtime")));
    }

    #[test]
    fn a_failed_tier_counts_even_when_no_test_reported() {
        let mut report = Report::new(false);
        report.run("test", || Ok(Verdict::failed("a test process died").with_tests(tests(7, 0, 0))));
        report.run("lint", || anyhow::bail!("no cargo"));
        assert_eq!(last_line(&report), "7 passed, 2 failed, 0 skipped");
        assert!(!report.succeeded());
    }

    #[test]
    fn a_failed_tier_with_failed_tests_is_not_counted_twice() {
        let mut report = Report::new(false);
        report.run("test", || Ok(Verdict::failed("x").with_tests(tests(7, 2, 0))));
        assert_eq!(last_line(&report), "7 passed, 2 failed, 0 skipped");
    }

    #[test]
    fn require_turns_a_skip_into_a_failure() {
        let mut report = Report::new(true);
        report.run("miri", || Ok(Verdict::skipped("no miri")));
        assert!(!report.succeeded());
        assert_eq!(last_line(&report), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_skipped_tier_is_never_a_pass() {
        let verdict = Verdict::passed().with_tests(tests(3, 0, 0)).and(Verdict::skipped("half"));
        assert_eq!(verdict.state, State::Skipped("half".into()));
        assert_eq!(verdict.counted(), tests(3, 0, 1));
    }

    #[test]
    fn a_verdict_can_be_kept_for_another_program() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for (state, exits_well) in [(State::Skipped("no miri".into()), true), (State::Failed("x".into()), false)] {
            let mut report = Report::new(false);
            report.run("miri", || Ok(Verdict::new(state.clone()).with_tests(tests(3, 0, 1))));
            report.keep(file.path()).expect("is written");
            let kept: Verdict =
                serde_json::from_str(&std::fs::read_to_string(file.path()).expect("a file")).expect("a verdict");
            assert_eq!((kept.state, kept.tests, report.succeeded()), (state, tests(3, 0, 1), exits_well));
        }
        assert!(Report::new(false).keep(std::path::Path::new("/no/such/folder")).is_err());
    }

    #[test]
    fn one_failed_test_is_run_again_and_two_are_not() {
        let failed = |count| Verdict::failed("slow::a").with_tests(tests(7, count, 1));
        let passed = failed(1).or_again(|name| {
            assert_eq!(name, "slow::a");
            Ok(Verdict::passed().with_tests(tests(1, 0, 0)))
        });
        let passed = passed.expect("it ran again");
        assert_eq!((&passed.state, passed.tests), (&State::Passed, tests(8, 0, 1)));
        let mut report = Report::new(false);
        report.run("fmt", || Ok(Verdict::passed()));
        report.run("rack", || Ok(passed));
        assert!(report.summary().contains("only when run again: slow::a"), "{}", report.summary());

        let twice = failed(1).or_again(|_| Ok(failed(1))).expect("it ran again");
        assert_eq!((twice.state, twice.tests), (State::Failed("slow::a".into()), tests(7, 1, 1)));
        for verdict in [failed(2), failed(0), Verdict::passed(), Verdict::skipped("no network")] {
            let state = verdict.state.clone();
            let kept = verdict.or_again(|_| panic!("must not run again")).expect("it is as it was");
            assert_eq!(kept.state, state);
        }
    }

    #[test]
    fn each_that_failed_is_run_again_and_the_second_time_counts() {
        let failed = |why: &str, count| Verdict::failed(why).with_tests(tests(7, count, 1));
        let again = |second: Verdict| {
            let verdict = failed("timed_a, timed_b", 2).each_again(|names| {
                assert_eq!(names, ["timed_a", "timed_b"]);
                Ok(second)
            });
            let verdict = verdict.expect("they ran again");
            (verdict.state, verdict.tests, verdict.flaky)
        };
        let both = vec!["timed_a".to_owned(), "timed_b".to_owned()];
        assert_eq!(again(Verdict::passed()), (State::Passed, tests(9, 0, 1), both));
        let one = (State::Failed("timed_b".into()), tests(8, 1, 1), vec!["timed_a".to_owned()]);
        assert_eq!(again(Verdict::failed("timed_b").with_tests(tests(1, 1, 0))), one);
        let none = (State::Failed("timed_a, timed_b".into()), tests(7, 2, 1), vec![]);
        for died in [Verdict::failed("timed_a, timed_b"), Verdict::failed("`cargo test` ended"), Verdict::skipped("x")]
        {
            assert_eq!(again(died), none);
        }
        for verdict in [failed("`cargo test` ended with 101", 0), Verdict::passed(), Verdict::skipped("no network")] {
            let state = verdict.state.clone();
            assert_eq!(verdict.each_again(|_| panic!("must not run again")).expect("it is as it was").state, state);
        }
    }

    #[test]
    fn a_long_reason_is_shortened_at_a_character() {
        assert_eq!(shortened("short"), "short");
        let long = "ä".repeat(WHY_CHARACTERS + 1);
        assert_eq!(shortened(&long), format!("{}…", "ä".repeat(WHY_CHARACTERS)));
    }

    #[test]
    fn a_failure_outweighs_the_rest() {
        let both = Verdict::skipped("s").and(Verdict::failed("f")).and(Verdict::passed());
        assert_eq!(both.state, State::Failed("f".into()));
    }
}
