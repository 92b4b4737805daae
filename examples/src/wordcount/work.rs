//! [`Work`]: the files that are still to be read, and the results of those that were; a property of machine 0.
//!
//! Readers on every machine take one file after the other from it, so none idles while files are left. No reading
//! here.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::{File, Found, Problem};
use super::text::{self, Part, Tally, TextError};

/// A file for a reader. The name may be no UTF-8, which a `PathBuf` could not be sent with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Which file, by its number.
    pub number: usize,
    /// Its path.
    pub path: OsString,
}

/// Result for a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Which file, by its number.
    pub number: usize,
    /// Its counts; when reading failed, up to there.
    pub tally: Tally,
    /// Outcome of the reading.
    pub end: End,
}

/// Outcome of the reading of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// All of it was read.
    Whole,
    /// It is no text, so nothing of it was counted.
    NoText,
    /// It was not read, or not to its end, and why.
    Failed(String),
}

/// Results so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Files that were read to their end.
    pub files: u64,
    /// Counts of all files.
    pub tally: Tally,
    /// Files that were not read, or not to their end.
    pub problems: Vec<Problem>,
    /// Files that are no texts: they have zero bytes in them.
    pub no_texts: u64,
    /// Symbolic links that were not followed.
    pub links: u64,
    /// Files that were not wanted.
    pub others: u64,
}

/// The files, each with its way from "to do" to "done".
#[derive(Debug)]
pub struct Work {
    files: Vec<File>,
    next: usize,
    bytes_done: u64,
    totals: Totals,
    is_over: bool,
}

impl Work {
    /// All files are still to be read.
    pub fn new(found: Found) -> Work {
        let Found { files, problems, links, others } = found;
        let totals = Totals { problems, links, others, ..Totals::default() };
        Work { files, next: 0, bytes_done: 0, totals, is_over: false }
    }

    /// The next file; `None`: all are taken.
    pub fn take(&mut self) -> Option<Job> {
        let number = self.next;
        let path = self.files.get(number)?.path.clone().into();
        self.next += 1;
        Some(Job { number, path })
    }

    /// A reader has read so much more.
    pub fn advance(&mut self, bytes: u64) {
        self.bytes_done += bytes;
    }

    /// Returns the bytes read or skipped so far; `None` once the totals were asked for.
    pub fn position(&self) -> Option<u64> {
        (!self.is_over).then_some(self.bytes_done)
    }

    /// A reader is done with a file.
    pub fn finish(&mut self, done: Done) {
        let Some(file) = self.files.get(done.number) else { return }; // not one of ours
        self.totals.tally += done.tally;
        self.bytes_done += file.bytes.saturating_sub(done.tally.bytes); // bytes that were not read are done, too
        let bad = done.tally.bad_bytes;
        if bad > 0 {
            let what = format!("{bad} bytes are not UTF-8 and were skipped");
            self.totals.problems.push(Problem::new(&file.path, what));
        }
        match done.end {
            End::Whole => self.totals.files += 1,
            End::NoText => self.totals.no_texts += 1,
            End::Failed(what) => self.totals.problems.push(Problem::new(&file.path, what)),
        }
    }

    /// The results; to be asked for once, at the end.
    pub fn totals(&mut self) -> Totals {
        self.is_over = true;
        let mut totals = std::mem::take(&mut self.totals);
        totals.problems.sort();
        totals
    }
}

/// Reads the file of a job, handing out its parts.
pub fn read(job: Job, mut part: impl FnMut(Part)) -> Done {
    let Job { number, path } = job;
    let mut tally = Tally::default(); // kept here, for when reading fails half way
    let outcome = fs::File::open(Path::new(&path)).map_err(TextError::from).and_then(|file| {
        text::read(file, |next| {
            match &next {
                Part::Word(_) => tally.words += 1,
                Part::Piece { bytes } => tally.bytes += bytes,
            }
            part(next);
        })
    });
    match outcome {
        Ok(tally) => Done { number, tally, end: End::Whole },
        Err(TextError::Binary) => Done { number, tally, end: End::NoText },
        Err(error) => Done { number, tally, end: End::Failed(error.to_string()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(paths: &[&Path]) -> Work {
        let files = paths.iter().map(|path| File { path: path.to_path_buf(), bytes: 12 }).collect();
        let problems = vec![Problem::new(Path::new("zzz"), "is a pipe")];
        Work::new(Found { files, problems, links: 2, others: 0 })
    }

    #[test]
    fn each_file_is_taken_once() {
        let mut work = work(&[Path::new("a"), Path::new("b")]);
        let taken: Vec<_> = std::iter::from_fn(|| work.take()).map(|job| (job.number, job.path)).collect();
        assert_eq!(taken, [(0, "a".into()), (1, "b".into())]);
        assert_eq!(work.take(), None);
    }

    #[test]
    fn what_became_of_the_files_comes_together() {
        let folder = tempfile::tempdir().unwrap();
        let [good, bad, image, missing] = ["good", "bad", "image", "missing"].map(|name| folder.path().join(name));
        fs::write(&image, b"PNG\0").unwrap();
        fs::write(&good, "one two").unwrap();
        fs::write(&bad, b"three \xff four\xfe").unwrap();
        let mut work = work(&[&missing, &good, &image, &bad]);
        let mut words = Vec::new();
        while let Some(job) = work.take() {
            let mut bytes_read = 0;
            let done = read(job, |part| match part {
                Part::Word(word) => words.push(word),
                Part::Piece { bytes } => bytes_read += bytes,
            });
            work.advance(bytes_read);
            work.finish(done);
        }
        assert_eq!(words, ["one", "two", "three", "four"]);
        assert_eq!(work.position(), Some(13 + 12 + 7 + 5 + 12)); // of good and bad: the bytes read, and the rest
        let totals = work.totals();
        assert_eq!(work.position(), None);
        assert_eq!((totals.files, totals.no_texts, totals.links), (2, 1, 2));
        assert_eq!(totals.tally, Tally { bytes: 20, words: 4, bad_bytes: 2, overlong: 0 });
        let problems: Vec<_> = totals.problems.iter().map(|problem| problem.what.as_str()).collect();
        assert_eq!(problems[0], "2 bytes are not UTF-8 and were skipped");
        assert!(problems[1].starts_with("cannot be read: No such file"), "{problems:?}");
        assert_eq!(problems[2], "is a pipe");
    }

    #[test]
    fn a_number_that_is_no_file_is_ignored() {
        let mut work = work(&[Path::new("a")]);
        work.finish(Done { number: 1, tally: Tally { words: 9, ..Tally::default() }, end: End::Whole });
        let totals = work.totals();
        assert_eq!((totals.files, totals.tally.words), (0, 0));
    }

    #[test]
    fn what_was_read_before_a_failure_counts() {
        let job = Job { number: 0, path: "/proc/self/mem".into() }; // opens, but has nothing at its beginning
        let done = read(job, |part| panic!("{part:?}"));
        assert!(matches!(done.end, End::Failed(problem) if problem.starts_with("cannot be read: ")));
    }
}
