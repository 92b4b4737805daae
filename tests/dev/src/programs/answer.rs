//! The compared part of an answer.
//!
//! Here: lines and files of a run that has ended. Not here: the parts that programs name (`list`), verdicts (`mod`).
//!
//! Invariant: a file that is not there is empty.

use super::list::Answer;
use std::fs;
use std::path::Path;

/// The compared part of what a run wrote.
pub fn part(of: Answer, stdout: &[u8], stderr: &[u8], work: &Path) -> Vec<u8> {
    let file = |name: &str| fs::read(work.join(name)).unwrap_or_default();
    let has = |line: &[u8], part: &str| line.windows(part.len()).any(|found| found == part.as_bytes());
    match of {
        Answer::Stdout => stdout.to_vec(),
        Answer::Lines => lines(stdout, |line| !line.is_empty()),
        Answer::LinesWith(part) => lines(stdout, |line| has(line, part)),
        Answer::LinesWithout(parts) => {
            lines(stdout, |line| !line.is_empty() && !parts.iter().any(|part| has(line, part)))
        }
        Answer::ErrorLinesWith(part) => lines(stderr, |line| has(line, part)),
        Answer::File(name) => file(name),
        Answer::LinesOf(name) => lines(&file(name), |line| !line.is_empty()),
    }
}

/// Some lines, in the order of their bytes.
fn lines(bytes: &[u8], is_in: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').filter(|line| is_in(line)).collect();
    lines.sort_unstable();
    lines.join(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_the_part_that_is_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("out"), "2\n1\n").expect("a file");
        let of = |asked, stdout: &str, stderr: &str| {
            String::from_utf8(part(asked, stdout.as_bytes(), stderr.as_bytes(), folder.path())).expect("text")
        };
        assert_eq!(of(Answer::Stdout, "b\na\n", ""), "b\na\n");
        assert_eq!(of(Answer::Lines, "b\na\n", ""), "a\nb");
        assert_eq!(of(Answer::LinesWith("time"), "b\ntime 3\n", ""), "time 3");
        assert_eq!(of(Answer::LinesWithout(&["time", "@PG"]), "@PG x\nb\na\na time 3", ""), "a\nb");
        assert_eq!(of(Answer::ErrorLinesWith("price"), "price 1", "x\nprice 2\n"), "price 2");
        assert_eq!(of(Answer::File("out"), "", ""), "2\n1\n");
        assert_eq!(of(Answer::LinesOf("out"), "", ""), "1\n2");
        assert_eq!(of(Answer::File("none"), "", ""), "");
    }
}
