//! The count across the rack: a table of counts in the care of every worker, and readers that send each word to the
//! one that has it. The only file of wordcount that knows `gossamer`.
//!
//! Nothing is locked and no message is designed: a reader says `table.call().with(word).apply(Table::add).then(..)` and
//! it is the same line whether the table's worker is its own, another of this process or one in another process. One
//! word is one delegation; that they travel in batches is `gossamer`'s business.
//!
//! Invariant: when a reader has ended, all that it sent was done (see the end of `read_files`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use gossamer::{Place, Trust};
use indicatif::ProgressBar;

use super::files::Found;
use super::report::{Delegations, Report};
use super::table::{Count, Table, rank};
use super::text::Part;
use super::work::{self, Work};

/// Readers of each worker: while one waits for a slot or its next file, others go on.
const READERS_PER_WORKER: usize = 4;
/// Words that are fetched from a table at once. Far below the limit of a message: a word has at most 256 bytes.
const PAGE_WORDS: usize = 4096;
const DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// All tables, in the order in which words are spread over them. A closure that goes to another machine may capture a
/// trust, but no `Vec`: so the list is itself entrusted, and each reader copies it from there.
type Directory = Trust<Vec<Trust<Table>>>;

/// Counts the words of all files on all workers of the rack. To be called from a fiber.
///
/// # Errors
/// If a worker of the rack cannot be given its part, or did not do it to the end.
pub fn count(found: Found, top: usize, bar: &ProgressBar) -> anyhow::Result<(Report, Vec<Trust<Table>>)> {
    let start = Instant::now();
    let places: Vec<Place> = gossamer::rack().places().collect();
    let work = gossamer::entrust(Work::new(found));
    let tables: Vec<Trust<Table>> = places.iter().map(|place| gossamer::entrust_with(*place, Table::default)).collect();
    let directory: Directory = gossamer::entrust(tables.clone());
    let drawer = (!bar.is_hidden()).then(|| draw(work.clone(), bar.clone()));

    let mut readers = Vec::new();
    for place in &places {
        for _ in 0..READERS_PER_WORKER {
            let (work, directory) = (work.clone(), directory.clone());
            readers.push(gossamer::spawn_on(*place, move || read_files(&work, &directory)));
        }
    }
    for reader in readers {
        reader.join().map_err(panicked).context("a reader did not end well")?;
    }

    let (mut words, mut distinct) = (0, 0);
    for table in &tables {
        let (its_words, its_distinct) = table.apply(|table| {
            table.rank();
            (table.words(), table.distinct())
        });
        words += its_words;
        distinct += its_distinct;
    }
    let top = collect(&tables, top);
    let time = start.elapsed();
    let totals = work.apply_with(|work, ()| work.totals(), ());
    if let Some(drawer) = drawer {
        drawer.join().map_err(panicked).context("the progress bar")?;
    }
    let read = totals.tally.words;
    ensure!(words == read, "{read} words were sent to the tables, but {words} are in them");
    let stats = gossamer::rack_stats();
    let delegations = Some(Delegations { local: stats.local, remote: stats.remote });
    let rack = gossamer::rack();
    let (machines, workers) = (rack.machines().len(), rack.workers());
    let report = Report { totals, distinct, top, time, machines, workers, delegations, differences: None };
    Ok((report, tables))
}

/// One reader: takes files until none is left, and sends each word to its table.
fn read_files(work: &Trust<Work>, directory: &Directory) {
    let tables: Vec<Trust<Table>> = (0..directory.apply(|tables| tables.len()))
        .map(|index| directory.apply(move |tables| tables[index].clone()))
        .collect();
    while let Some(job) = work.apply_with(|work, ()| work.take(), ()) {
        let done = work::read(job, |part| match part {
            Part::Word(word) => {
                let table = &tables[table_of(&word, tables.len())];
                table.call().with(word).apply(Table::add).then(|result| result.unwrap()); // does not wait
            }
            Part::Piece { bytes } => {
                work.apply_then(move |work| work.advance(bytes), |()| ());
                gossamer::yield_now(); // this worker has a table to serve, too
            }
        });
        work.call().with(done).apply(Work::finish).then(|result| result.unwrap());
    }
    gossamer::wait_all(); // until every word is in its table
}

/// Which table has a word: the same on every machine, for `DefaultHasher::new` has no secret of the process in it.
fn table_of(word: &str, tables: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    word.hash(&mut hasher);
    (hasher.finish() % tables as u64) as usize
}

/// The `limit` most frequent words of all tables, page by page.
pub fn collect(tables: &[Trust<Table>], limit: usize) -> Vec<Count> {
    let mut counts = Vec::new();
    for table in tables {
        let mut from = 0;
        while from < limit {
            let len = PAGE_WORDS.min(limit - from);
            let page = table.apply_with(|table, (from, len)| table.page(from, len), (from, len));
            if page.is_empty() {
                break;
            }
            from += page.len();
            counts.extend(page);
        }
    }
    rank(&mut counts);
    counts.truncate(limit);
    counts
}

/// A fiber of this machine that moves the bar until the work is over.
fn draw(work: Trust<Work>, bar: ProgressBar) -> gossamer::JoinHandle<()> {
    gossamer::spawn(move || {
        while let Some(bytes) = work.apply(|work| work.position()) {
            bar.set_position(bytes);
            gossamer::sleep(DRAW_INTERVAL);
        }
        bar.finish_and_clear();
    })
}

fn panicked(panic: Box<dyn std::any::Any + Send>) -> anyhow::Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    anyhow!("it panicked: {}", text.unwrap_or("with no message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_spread_over_all_tables() {
        let mut words_of_table = [0; 8];
        for number in 0..8000 {
            words_of_table[table_of(&format!("word{number}"), 8)] += 1;
        }
        assert!(words_of_table.iter().all(|words| (800..1200).contains(words)), "{words_of_table:?}");
        assert_eq!(table_of("word", 1), 0);
    }
}
