//! The count on one thread: no trusts, no workers. The same files, the same words, another way to add them up.

use std::time::Instant;

use super::files::Found;
use super::report::Report;
use super::table::Table;
use super::text::Part;
use super::work::{self, Work};

/// Counts the words of all files, one after the other.
pub fn count(found: Found, top: usize, bar: &indicatif::ProgressBar) -> Report {
    let start = Instant::now();
    let mut table = Table::default();
    let mut work = Work::new(found);
    while let Some(job) = work.take() {
        let done = work::read(job, |part| match part {
            Part::Word(word) => table.add(word),
            Part::Piece { bytes } => bar.inc(bytes),
        });
        work.finish(done);
    }
    table.rank();
    let time = start.elapsed();
    Report {
        totals: work.totals(),
        distinct: table.distinct(),
        top: table.page(0, top),
        time,
        machines: 1,
        workers: 1,
        delegations: None,
        differences: None,
    }
}
