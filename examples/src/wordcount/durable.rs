//! The count that survives (`--durable`): words and finished files in one durable trust. A file's words are added, and
//! it is marked as counted, in one transaction; so whenever the program is killed, each file counts once when it is run
//! again.
//!
//! After the wordcount of Corundum (M. Hoseinzadeh, S. Swanson, ASPLOS 2021): threads that read produce, the trustee
//! adds up.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, anyhow};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use trust::{Threadpool, Trust};
use trust_durable::{Durable, Error, PMap, PString, PVec, Persist, Tx};

use super::files::Found;
use super::report::{Delegations, Report};
use super::table::{Count, rank};
use super::text::{Part, Tally};
use super::work::{self, Done, End, Totals, Work};

/// The root of the pool.
#[derive(Persist)]
#[repr(C)]
pub struct Counts<'p> {
    words: PMap<'p, PString<'p>, u64>,
    /// Whether the file of each path was a text.
    files: PMap<'p, PVec<'p, u8>, bool>,
    tally: Sum,
}

/// A [`Tally`] that survives.
#[derive(Persist, Clone, Copy, Default)]
#[repr(C)]
struct Sum {
    bytes: u64,
    words: u64,
    bad_bytes: u64,
    overlong: u64,
}

type Handle = Durable<Counts<'static>>;

/// Result for a file.
#[derive(Serialize, Deserialize)]
struct Counted {
    path: Vec<u8>,
    words: HashMap<String, u64>,
    tally: Tally,
    is_text: bool,
}

impl<'p> Counts<'p> {
    /// Adds a file, once.
    fn add(&mut self, counted: &Counted, tx: &Tx<'p>) {
        if self.files.contains_key(counted.path.as_slice()) {
            return;
        }
        self.files.insert(PVec::of(counted.path.iter().copied(), tx), counted.is_text, tx);
        for (word, count) in &counted.words {
            if let Some(there) = self.words.get_mut(word.as_str()) {
                *there += count;
            } else {
                self.words.insert(PString::of(word, tx), *count, tx);
            }
        }
        let Tally { bytes, words, bad_bytes, overlong } = counted.tally;
        let sum = &mut self.tally;
        (sum.bytes, sum.words) = (sum.bytes + bytes, sum.words + words);
        (sum.bad_bytes, sum.overlong) = (sum.bad_bytes + bad_bytes, sum.overlong + overlong);
    }

    fn totals(&self) -> Totals {
        let Sum { bytes, words, bad_bytes, overlong } = self.tally;
        let texts = self.files.values().filter(|is_text| **is_text).count() as u64;
        Totals {
            files: texts,
            no_texts: self.files.len() as u64 - texts,
            tally: Tally { bytes, words, bad_bytes, overlong },
            ..Totals::default()
        }
    }
}

/// Counts those files that the folder does not have yet, and gives the counts of all that it has; and how many files it
/// had before.
///
/// # Errors
/// The folder cannot be opened, or the disk failed.
pub fn count(
    found: Found,
    folder: &Path,
    threads: usize,
    top: usize,
    bar: &ProgressBar,
) -> anyhow::Result<(Report, Vec<Count>, usize)> {
    let start = Instant::now();
    let pool = Threadpool::new(1);
    let trustee = pool.trustees()[0];
    let counts: Handle = Durable::<Counts>::open(trustee, folder, |_| Counts {
        words: PMap::new(),
        files: PMap::new(),
        tally: Sum::default(),
    })?;
    let before = counts.call().apply(|counts, _| counts.files.len()).wait()?;
    let work = pool.entrust(Work::new(found));
    thread::scope(|scope| {
        let read = || scope.spawn(|| read_files(&work, &counts, bar));
        let readers: Vec<_> = (0..threads).map(|_| read()).collect();
        readers.into_iter().try_for_each(|reader| reader.join().map_err(|_| anyhow!("a reader panicked"))?)
    })?;
    let (words, kept) = counts.apply_with(
        |counts, _, ()| {
            let words = counts.words.iter().map(|(word, count)| (word.as_str().to_owned(), *count));
            (words.collect::<Vec<_>>(), counts.totals())
        },
        (),
    );
    let mut words: Vec<Count> = words.into_iter().map(|(word, count)| Count { word, count }).collect();
    rank(&mut words);
    let this_run = work.apply_with(|work, ()| work.totals(), ());
    let (problems, links, others) = (this_run.problems, this_run.links, this_run.others);
    let delegations = Some(Delegations { local: counts.stats()?.transactions, remote: 0 });
    counts.close()?;
    bar.finish_and_clear();
    let report = Report {
        totals: Totals { problems, links, others, ..kept },
        distinct: words.len() as u64,
        top: words.iter().take(top).cloned().collect(),
        time: start.elapsed(),
        machines: 1,
        workers: threads,
        delegations,
        differences: None,
    };
    Ok((report, words, before))
}

/// One reader: takes files until none is left, and has each added that is not there yet.
fn read_files(work: &Trust<Work>, counts: &Handle, bar: &ProgressBar) -> anyhow::Result<()> {
    let failed: Rc<RefCell<Option<Error>>> = Rc::default();
    while let Some(job) = work.apply_with(|work, ()| work.take(), ()) {
        let path = job.path.as_bytes().to_vec();
        // The counts it has seen may not be on disk, but then nor are those that this adds.
        let is_there = |counts: &mut Counts<'_>, _: &Tx<'_>, path: Vec<u8>| counts.files.contains_key(path.as_slice());
        if counts.apply_with(is_there, path.clone()) {
            continue;
        }
        let mut words: HashMap<String, u64> = HashMap::new();
        let done = work::read(job, |part| match part {
            Part::Word(word) => *words.entry(word).or_default() += 1,
            Part::Piece { bytes } => bar.inc(bytes),
        });
        let Done { tally, ref end, .. } = done;
        let is_text = match end {
            End::Whole => true,
            End::NoText => false,
            End::Failed(_) => {
                // It is tried again with the next run.
                work.apply_with(Work::finish, done);
                continue;
            }
        };
        work.apply_with(Work::finish, done);
        let failed = Rc::clone(&failed);
        counts
            .call()
            .with(Counted { path, words, tally, is_text })
            .apply(|counts, tx, counted: Counted| counts.add(&counted, tx))
            .then(move |added| {
                if let Err(error) = added {
                    failed.borrow_mut().get_or_insert(error);
                }
            });
    }
    counts.sync().context("not all counts are on disk")?;
    failed.take().map_or(Ok(()), |error| Err(error.into()))
}
