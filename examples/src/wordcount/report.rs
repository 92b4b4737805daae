//! [`Report`]: the result of a count, as text and as JSON. No counting here.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};

use super::table::Count;
use super::work::Totals;

/// Problems and differences that are listed before the rest is only counted.
const LISTED_MAX: usize = 20;

/// Numbers of closures sent to trustees, on all machines together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delegations {
    /// Closures to trustees of the same machine.
    pub local: u64,
    /// Closures to trustees of other machines.
    pub remote: u64,
}

/// The result of a count.
#[derive(Clone, Debug)]
pub struct Report {
    /// Files, bytes, words, and skipped files.
    pub totals: Totals,
    /// Number of different words.
    pub distinct: u64,
    /// The most frequent words, the first the most.
    pub top: Vec<Count>,
    /// Time from the first file to the last word, without finding the files.
    pub time: Duration,
    /// Processes that took part.
    pub machines: usize,
    /// Their workers, all together.
    pub workers: usize,
    /// `None` for the count on a single thread.
    pub delegations: Option<Delegations>,
    /// Differences from the count on a single thread; `None` if it was not compared.
    pub differences: Option<Vec<String>>,
}

impl Report {
    /// Whether a comparison has found a difference.
    pub fn differs(&self) -> bool {
        self.differences.as_ref().is_some_and(|differences| !differences.is_empty())
    }

    /// Returns the report as JSON. Times are in seconds.
    pub fn json(&self, folder: &Path) -> Value {
        let Totals { files, tally, problems, no_texts, links, others } = &self.totals;
        json!({
            "folder": folder.display().to_string(),
            "machines": self.machines,
            "workers": self.workers,
            "files": files,
            "bytes": tally.bytes,
            "words": tally.words,
            "distinct": self.distinct,
            "top": self.top,
            "time_s": self.time.as_secs_f64(),
            "delegations": self.delegations.map(|sent| json!({"local": sent.local, "remote": sent.remote})),
            "problems": problems,
            "bad_bytes": tally.bad_bytes,
            "overlong": tally.overlong,
            "no_texts": no_texts,
            "links": links,
            "others": others,
            "differences": self.differences,
        })
    }

    /// Skipped files, one line each, for standard error.
    pub fn complaints(&self) -> Vec<String> {
        let Totals { tally, problems, no_texts, links, others, .. } = &self.totals;
        let lines = problems.iter().map(|problem| format!("{} {}", problem.path, problem.what));
        let mut lines = shortened(lines.collect(), "--json lists all");
        let skipped = [
            (
                *others,
                "file of another kind was left out (--all counts every file)",
                "files of other kinds were left out (--all counts every file)",
            ),
            (
                *no_texts,
                "file has zero bytes in it, so it is no text",
                "files have zero bytes in them, so they are no texts",
            ),
            (*links, "symbolic link was not followed", "symbolic links were not followed"),
            (
                tally.overlong,
                "sequence of letters is too long for a word",
                "sequences of letters are too long for words",
            ),
        ];
        lines.extend(
            skipped.iter().filter(|(count, ..)| *count > 0).map(|(count, one, many)| number(*count, one, many)),
        );
        let differences = self.differences.clone().unwrap_or_default();
        lines.extend(shortened(differences, "did a file change meanwhile?"));
        lines.iter().map(|line| visible(line)).collect()
    }
}

fn shortened(mut lines: Vec<String>, hint: &str) -> Vec<String> {
    let more = lines.len().saturating_sub(LISTED_MAX);
    lines.truncate(LISTED_MAX);
    if more > 0 {
        lines.push(format!("and {more} more ({hint})"));
    }
    lines
}

/// Names of files may hold anything: characters that would steer the terminal are escaped.
fn visible(line: &str) -> String {
    let show = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    line.chars().map(show).collect()
}

/// A number and its noun.
fn number(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", HumanCount(count), if count == 1 { one } else { many })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self.top.iter().map(|count| HumanCount(count.count).to_string().len()).max();
        for Count { word, count } in &self.top {
            writeln!(f, "{:>width$}  {word}", HumanCount(*count).to_string(), width = longest.unwrap_or(0))?;
        }
        let Totals { files, tally, .. } = &self.totals;
        writeln!(
            f,
            "{} ({} different) in {}, {}",
            number(tally.words, "word", "words"),
            HumanCount(self.distinct),
            number(*files, "file", "files"),
            number(tally.bytes, "byte", "bytes"),
        )?;
        let rate = tally.bytes as f64 / self.time.as_secs_f64().max(1e-9);
        write!(f, "{:.3} s, {}/s, ", self.time.as_secs_f64(), HumanBytes(rate as u64))?;
        match self.delegations {
            None => writeln!(f, "on a single thread")?,
            Some(Delegations { local, remote }) => {
                let machines = number(self.machines as u64, "process", "processes");
                writeln!(f, "{machines} with {} in all", number(self.workers as u64, "worker", "workers"))?;
                writeln!(f, "delegations: {} local, {} remote", HumanCount(local), HumanCount(remote))?;
            }
        }
        match &self.differences {
            None => Ok(()),
            Some(none) if none.is_empty() => writeln!(f, "verified: equal to the count on a single thread"),
            Some(some) => writeln!(f, "NOT EQUAL to the count on a single thread: {} words differ", some.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wordcount::files::Problem;
    use crate::wordcount::text::Tally;

    fn report() -> Report {
        let count = |word: &str, count| Count { word: word.to_owned(), count };
        Report {
            totals: Totals {
                files: 1,
                tally: Tally { bytes: 20_480, words: 1236, bad_bytes: 3, overlong: 1 },
                problems: vec![Problem::new(Path::new("a\u{1b}[2J"), "is a pipe"); 21],
                no_texts: 1,
                links: 2,
                others: 0,
            },
            distinct: 2,
            top: vec![count("the", 1234), count("a", 2)],
            time: Duration::from_millis(500),
            machines: 2,
            workers: 4,
            delegations: Some(Delegations { local: 1000, remote: 2000 }),
            differences: None,
        }
    }

    #[test]
    fn the_text_has_all_figures() {
        let expected = "1,234  the
    2  a
1,236 words (2 different) in 1 file, 20,480 bytes
0.500 s, 40.00 KiB/s, 2 processes with 4 workers in all
delegations: 1,000 local, 2,000 remote
";
        assert_eq!(report().to_string(), expected);
        let single = Report { delegations: None, ..report() };
        assert!(single.to_string().ends_with("40.00 KiB/s, on a single thread\n"));
    }

    #[test]
    fn a_comparison_shows() {
        let equal = Report { differences: Some(Vec::new()), ..report() };
        assert!(!equal.differs() && equal.to_string().contains("verified: equal"));
        let different = Report { differences: Some(vec!["x".into()]), ..report() };
        assert!(different.differs() && different.to_string().contains("NOT EQUAL"));
        assert!(different.complaints().contains(&"x".to_owned()));
        assert!(!report().differs() && !report().to_string().contains("single thread"));
    }

    #[test]
    fn complaints_are_few_and_harmless() {
        let complaints = report().complaints();
        assert_eq!(complaints[0], r"a\u{1b}[2J is a pipe");
        assert_eq!(complaints[20], "and 1 more (--json lists all)");
        assert_eq!(complaints[21], "1 file has zero bytes in it, so it is no text");
        assert_eq!(complaints.len(), 24);
    }

    #[test]
    fn json_has_all_figures() {
        let json = report().json(Path::new("docs"));
        assert_eq!(json["top"][0], json!({"word": "the", "count": 1234}));
        assert_eq!((&json["time_s"], &json["delegations"]["remote"]), (&json!(0.5), &json!(2000)));
        assert_eq!(json["problems"].as_array().map(Vec::len), Some(21));
        assert_eq!(json["differences"], Value::Null);
    }
}
