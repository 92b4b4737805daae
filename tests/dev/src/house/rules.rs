//! The rules of the house, each a function from the lines of one file to its offences.
//!
//! Here: rules that no lint checks (clippy sees to SAFETY comments and macros of unfinished code). Not here: finding
//! files (`mod.rs`) and taking them apart (`text`).
//!
//! Invariant: a rule looks only at code and comments, never into strings.

use super::labels;
use super::text::{Line, words};
use std::path::Path;

/// Lines of code a file may hold: 400, and a tenth more before one has to ask for its second role.
pub const FILE_LINES: usize = 440;

/// Lines above and below a Release store in which its partner may be named.
const PARTNER_REACH: usize = 12;

/// Lines above and below in which a label of the pair may stand.
const LABEL_REACH: usize = 3;

/// Sources of programs that their manifests build without tests (`test = false`).
const UNTESTED: [&str; 4] = ["examples/src/bin", "gossamer-daemon/src/bin", "tests/src/bin", "trust/durable/src/bin"];

/// A line that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Offence {
    /// Its number, from 1.
    pub line: usize,
    /// The fault and the cure.
    pub what: String,
}

impl Offence {
    /// Makes an offence of the line with this index, from 0.
    pub fn at(index: usize, what: impl Into<String>) -> Offence {
        Offence { line: index + 1, what: what.into() }
    }
}

/// Every file opens with `//!`: its contents, neighbouring things that are elsewhere, and invariants.
pub fn opening(source: &str) -> Vec<Offence> {
    if source.starts_with("//!") {
        Vec::new()
    } else {
        vec![Offence::at(0, "the file does not open with `//!`: say what lives here")]
    }
}

/// A file holds one role, and about 400 lines of code at most.
pub fn size(lines: &[Line]) -> Vec<Offence> {
    let code = lines.iter().filter(|line| line.is_code()).count();
    if code > FILE_LINES {
        vec![Offence::at(0, format!("{code} lines of code (about 400 at most): which second role is in it?"))]
    } else {
        Vec::new()
    }
}

/// A program that is built without tests holds none: it would never run.
pub fn untested(name: &Path, lines: &[Line]) -> Vec<Offence> {
    if !UNTESTED.iter().any(|folder| name.starts_with(folder)) {
        return Vec::new();
    }
    let tests = lines.iter().enumerate().filter(|(_, line)| line.code.contains("#[test]"));
    tests.map(|(i, _)| Offence::at(i, "this test never runs: Cargo.toml has `test = false` for its program")).collect()
}

/// Each Release names its Acquire nearby, and back.
pub fn orderings(lines: &[Line]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        if line.test || line.words().next() == Some("use") {
            continue;
        }
        for (ordering, partner) in [("Release", "acquire"), ("Acquire", "release")] {
            if line.words().any(|word| word == ordering) && !names_partner(lines, i, partner) {
                offences.push(Offence::at(
                    i,
                    format!("this {ordering} names no {partner}: say in a comment which access it pairs with"),
                ));
            }
        }
    }
    offences
}

/// Whether a comment near line `i` names the partner, or one beside it a label of the pair such as `[request-bit]`.
fn names_partner(lines: &[Line], i: usize, partner: &str) -> bool {
    let near = |reach: usize| &lines[i.saturating_sub(reach)..(i + reach + 1).min(lines.len())];
    near(PARTNER_REACH).iter().any(|line| line.comment.to_lowercase().contains(partner))
        || near(LABEL_REACH).iter().any(|line| labels::in_text(&line.comment).next().is_some())
}

/// No test judges by a time that load can stretch, but those that `cargo dev timed` runs alone.
pub fn times(lines: &[Line], all_tests: bool) -> Vec<Offence> {
    let is_judged = |line: &Line| {
        let is_compared = ["elapsed() <", "took <", "taken <"].iter().any(|words| line.code.contains(words));
        is_compared
            && line.code.contains("assert")
            && line.code.contains("Duration::from_")
            && !line.code.contains("bound(")
    };
    let judged = lines.iter().enumerate().filter(|(_, line)| (all_tests || line.test) && is_judged(line));
    let what = "load stretches this time: compare with `limits::HANG`, or call the test `timed_…` and compare with \
                `limits::bound`";
    judged.map(|(i, _)| Offence::at(i, what)).collect()
}

/// Words in comments that mark unfinished work.
pub fn marks(lines: &[Line]) -> Vec<Offence> {
    const MARKS: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];
    let mark = |line: &Line| words(&line.comment).find(|word| MARKS.contains(word)).map(str::to_owned);
    let marked = lines.iter().enumerate().filter_map(|(i, line)| Some((i, mark(line)?)));
    marked.map(|(i, mark)| Offence::at(i, format!("`{mark}`: do it, or open an issue"))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::text::lines;
    use super::*;

    fn at(offences: &[Offence]) -> Vec<usize> {
        offences.iter().map(|offence| offence.line).collect()
    }

    #[test]
    fn a_release_names_its_acquire_and_back() {
        let named = "// pairs with the Acquire in poll\nx.store(1, Release);";
        let labelled = "// [flag-last]\nx.store(1, Ordering::Release);\n// [flag-last]\nx.load(Ordering::Acquire);";
        assert_eq!(orderings(&lines(named)), []);
        assert_eq!(orderings(&lines(labelled)), []);
        assert_eq!(at(&orderings(&lines("\nx.store(1, Ordering::Release);"))), [2]);
        assert_eq!(at(&orderings(&lines("x.load(Acquire);"))), [1]);
        assert_eq!(at(&orderings(&lines("// [flag-last]\n\n\n\nx.load(Acquire); // R1"))), [5]);
        assert_eq!(orderings(&lines("use std::sync::atomic::Ordering::{Acquire, Release};")), []);
        assert_eq!(orderings(&lines("#[cfg(test)]\nmod tests {\n fn f() { x.load(Acquire); }\n}")), []);
    }

    #[test]
    fn a_time_in_a_test_is_a_limit_of_hangs_or_judged_alone() {
        let source = "assert!(start.elapsed() < Duration::from_secs(3));\nassert!(took < limits::HANG);\n\
                      assert!(took < bound(Duration::from_secs(1)));\nassert!(took >= Duration::from_secs(1));";
        assert_eq!(at(&times(&lines(source), true)), [1]);
        assert_eq!(times(&lines(source), false), []);
        let inside = format!("#[cfg(test)]\nmod tests {{\n{source}\n}}");
        assert_eq!(at(&times(&lines(&inside), false)), [3]);
    }

    #[test]
    fn marks_are_found_in_comments_only() {
        assert_eq!(at(&marks(&lines("// TODO later\nfn f() {}\nlet s = \"TODO\"; // FIXME\nlet xxx = 1;"))), [1, 3]);
        assert_eq!(marks(&lines("// TODOs have names elsewhere")), []);
    }

    #[test]
    fn size_counts_code_alone() {
        let full = "x();\n".repeat(FILE_LINES);
        assert_eq!(size(&lines(&format!("//! A.\n{full}\n// c\n#[cfg(test)]\nmod t {{\n{full}}}"))), []);
        assert_eq!(at(&size(&lines(&format!("{full}y();")))), [1]);
    }

    #[test]
    fn a_program_that_is_built_without_tests_has_none() {
        let source = "fn f() {}\n#[test]\nfn g() {}";
        assert_eq!(at(&untested(Path::new("examples/src/bin/kv.rs"), &lines(source))), [2]);
        assert_eq!(untested(Path::new("examples/src/kv/item.rs"), &lines(source)), []);
    }

    #[test]
    fn a_file_says_what_it_is() {
        assert_eq!(opening("//! A.\n"), []);
        assert_eq!(at(&opening("use x;\n")), [1]);
    }
}
