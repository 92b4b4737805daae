//! Counting libtest's output: how many tests passed, failed and were ignored, and which failed.
//!
//! Here: text in, numbers out. Not here: running anything, or the meaning of the numbers for a tier.
//!
//! Invariant: lines that are not a whole `test result:` line count nothing, wherever they come from.

use serde::{Deserialize, Serialize};
use std::iter::Sum;
use std::ops::Add;

/// Most lines of one failed test that a summary repeats.
const FAILURE_LINES_MAX: usize = 60;
/// Most characters of such a line.
const FAILURE_COLUMNS_MAX: usize = 400;

/// Tests by their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Ran and held.
    pub passed: usize,
    /// Ran and did not hold, or did not finish.
    pub failed: usize,
    /// Did not run: ignored tests and skipped tiers.
    pub skipped: usize,
}

impl Counts {
    /// One thing that passed.
    pub const PASSED: Counts = Counts { passed: 1, failed: 0, skipped: 0 };
    /// One thing that failed.
    pub const FAILED: Counts = Counts { passed: 0, failed: 1, skipped: 0 };
    /// One thing that did not run.
    pub const SKIPPED: Counts = Counts { passed: 0, failed: 0, skipped: 1 };
}

impl Add for Counts {
    type Output = Counts;
    fn add(self, other: Counts) -> Counts {
        Counts {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Counts>>(all: I) -> Counts {
        all.fold(Counts::default(), Add::add)
    }
}

/// The sum of all `test result:` lines of `output`.
pub fn results(output: &str) -> Counts {
    output.lines().filter_map(result_line).sum()
}

/// One `test result: ok. 3 passed; 0 failed; 1 ignored; …` line. A program under test may have left
/// text before it on the same line.
fn result_line(line: &str) -> Option<Counts> {
    let (_, rest) = line.split_once("test result: ")?;
    let (_, numbers) = rest.split_once(". ")?;
    let number = |word: &str| {
        let part = numbers.split(';').find_map(|part| part.trim().strip_suffix(word))?;
        part.trim().parse::<usize>().ok()
    };
    Some(Counts { passed: number(" passed")?, failed: number(" failed")?, skipped: number(" ignored")? })
}

/// The names of the tests that `output` reports as run: all but those ignored.
pub fn ran_names(output: &str) -> Vec<&str> {
    let tests = output.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
    tests.filter(|(_, end)| !end.starts_with("ignored")).map(|(name, _)| name).collect()
}

/// Whether some program of tests that reports to `output` had none to run, nor any to ignore.
pub fn has_empty_run(output: &str) -> bool {
    output.lines().filter_map(result_line).any(|counts| counts == Counts::default())
}

/// The names of the tests that `output` reports as failed, in its order, each once.
pub fn failed_names(output: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for line in output.lines() {
        let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) else {
            continue;
        };
        // `libtest-mimic` aligns the results.
        let name = name.trim_end();
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The last lines that each failed test has printed, under its name.
pub fn failed_outputs(output: &str) -> Vec<String> {
    // The next test's output, or the list of names; a test may print such a word itself.
    let is_end = |line: &str| line.starts_with("---- ") && line.ends_with(" ----") || line == "failures:";
    let print = |name: &String| {
        let title = name.strip_suffix(" - should panic").or(name.strip_suffix(" - compile fail")).unwrap_or(name);
        // Rust's test harness, and `libtest-mimic`. The last one: a program of tests with one of the same name may have
        // printed it before.
        let heads = [format!("\n---- {title} stdout ----\n"), format!("\n---- {title} ----\n")];
        let text = heads.iter().find_map(|head| output.rsplit_once(head)).map_or("", |(_, text)| text);
        let lines: Vec<&str> = text.lines().take_while(|line| !is_end(line)).collect();
        let last = lines.len().saturating_sub(FAILURE_LINES_MAX);
        let cut = |line: &&str| line.chars().take(FAILURE_COLUMNS_MAX).collect::<String>();
        format!("{name}\n{}", lines[last..].iter().map(cut).collect::<Vec<_>>().join("\n"))
    };
    failed_names(output).iter().map(print).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_BINARIES: &str = "\
running 3 tests
test slot::tests::a ... ok
test slot::tests::b ... ignored, needs a nic
test slot::tests::c ... FAILED

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests trust
test trust/src/lib.rs - f (line 3) ... ok
test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.20s
";

    #[test]
    fn sums_every_binary() {
        assert_eq!(results(TWO_BINARIES), Counts { passed: 13, failed: 1, skipped: 1 });
        assert_eq!(failed_names(TWO_BINARIES), ["slot::tests::c"]);
    }

    #[test]
    fn a_failed_test_has_its_last_lines() {
        let printed = |count: usize| (0..count).map(|line| format!("line {line}\n")).collect::<String>();
        let head =
            "successes:\n---- slot::tests::a stdout ----\nfine\n\nfailures:\n\n---- slot::tests::c stdout ----\n";
        let of = |count| failed_outputs(&format!("{TWO_BINARIES}{head}{}\nfailures:\n    slot", printed(count)));
        assert_eq!(of(2), ["slot::tests::c\nline 0\nline 1\n"]);
        let [long] = &of(200)[..] else { panic!("one failed") };
        assert!(long.lines().count() <= FAILURE_LINES_MAX + 1 && long.ends_with("line 199\n"), "{long}");
        let panics = "test a::b - should panic ... FAILED\n\n---- a::b stdout ----\nno panic\n";
        assert_eq!(failed_outputs(panics), ["a::b - should panic\nno panic"]);
        let aligned =
            "test a::b    ... FAILED\n\nfailures:\n\n---- a::b ----\nline 9 is wrong\n\nfailures:\n    a::b\n";
        assert_eq!(failed_outputs(aligned), ["a::b\nline 9 is wrong\n"]);
        // Its process died before it said what it printed.
        assert_eq!(failed_outputs(TWO_BINARIES), ["slot::tests::c\n"]);
    }

    #[test]
    fn counts_a_result_behind_other_text() {
        let line = "no newline at the end test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured";
        assert_eq!(results(line).passed, 2);
    }

    #[test]
    fn other_text_counts_nothing() {
        for text in ["", "test result: ", "test result: ok. many passed; 0 failed; 0 ignored", "4 passed; 1 failed"] {
            assert_eq!(results(text), Counts::default(), "{text:?}");
        }
        assert!(failed_names("test result: FAILED. 1 passed\ntesting ... FAILED").is_empty());
    }

    #[test]
    fn what_ran_is_named_and_what_was_ignored_is_not() {
        assert_eq!(ran_names(TWO_BINARIES), ["slot::tests::a", "slot::tests::c", "trust/src/lib.rs - f (line 3)"]);
        assert!(ran_names("testing a ... ok\ntest a: ok").is_empty());
    }

    #[test]
    fn a_program_without_tests_is_seen_among_others() {
        let empty = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out\n";
        assert!(!has_empty_run(TWO_BINARIES) && !has_empty_run(""));
        assert!(has_empty_run(&format!("{TWO_BINARIES}{empty}")) && has_empty_run(empty));
        assert!(!has_empty_run("test result: ok. 0 passed; 0 failed; 2 ignored; 0 measured; 9 filtered out"));
    }

    #[test]
    fn a_name_is_listed_once() {
        let twice = "test a::b ... FAILED\ntest a::b ... FAILED\ntest c - should panic ... FAILED\n";
        assert_eq!(failed_names(twice), ["a::b", "c - should panic"]);
    }
}
