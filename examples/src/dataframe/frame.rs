//! The table over the places of the rack, and the query on it.

use std::ops::Range;

use gossamer::Trust;
use gossamer_heap::{Global, Shared};

use super::generated::Generated;
use super::query::{Answer, Chunk, Group, Memory, PARTS, Partial, merge, query};
use crate::heaps::own::Slice;
use crate::heaps::spread::{Reader, Spread};
use crate::progress::Count;

/// Columns and groups are objects of the heap.
#[derive(Debug)]
pub enum OnHeap {}

impl Memory for OnHeap {
    type Codes = Global<[u32]>;
    type Numbers = Global<[f64]>;
    type Groups = Global<[Group]>;
    type Parts = Global<[Global<[Group]>]>;
}

/// A table, in chunks.
pub type Frame = Spread<Chunk<OnHeap>>;

/// The rows of chunk `i`.
fn rows_of(i: usize, chunk_rows: u64, rows: u64) -> Range<u64> {
    let start = i as u64 * chunk_rows;
    start..(start + chunk_rows).min(rows)
}

/// Returns the number of chunks of a generated table.
pub fn chunks(table: Generated, chunk_rows: u64) -> usize {
    table.rows.div_ceil(chunk_rows) as usize
}

/// A chunk of a generated table.
pub fn generated<M: Memory>(table: Generated, chunk_rows: u64, i: usize) -> Chunk<M> {
    let rows = rows_of(i, chunk_rows, table.rows);
    let len = (rows.end - rows.start) as usize;
    Chunk {
        keys: M::Codes::make(len, |at| table.row(rows.start + at as u64).0),
        values: M::Numbers::make(len, |at| table.row(rows.start + at as u64).1),
    }
}

/// A generated table: each place makes its own chunks.
///
/// # Errors
/// There is no memory for it.
pub fn generate(table: Generated, chunk_rows: u64) -> anyhow::Result<Frame> {
    Spread::new(chunks(table, chunk_rows), move |own| own.map(|i| generated(table, chunk_rows, i)).collect())
}

/// Chunks that are on this machine, to the places that are to have them: their owners travel, then the objects.
///
/// # Errors
/// There is no memory for it.
pub fn deal(chunks: Vec<Chunk<OnHeap>>) -> anyhow::Result<Frame> {
    let len = chunks.len();
    let all = gossamer::entrust(chunks.into_iter().map(Some).collect::<Vec<_>>());
    Spread::new(len, move |own| {
        let taken = own.filter_map(|i| all.apply(move |all| all[i].take()));
        let brought = |mut chunk: Chunk<OnHeap>| {
            chunk.keys.move_here();
            chunk.values.move_here();
            chunk
        };
        taken.map(brought).collect()
    })
}

/// The whole query. Each finished chunk is reported.
///
/// # Errors
/// There is no memory for it.
pub fn run(frame: &Frame, at_least: f64, labels: &Shared<[u32]>, told: Trust<Count>) -> anyhow::Result<Answer> {
    let chunks = frame.parts();
    let len = Reader::new(&chunks).len();
    let (frame, labels) = (frame.clone(), labels.clone());
    let partials: Spread<Partial<OnHeap>> = Spread::new(len, move |own| {
        let (parts, labels) = (frame.parts(), labels.read());
        let chunks = Reader::new(&parts);
        let one = |i| {
            let partial = query(chunks.get(i), at_least, &labels);
            told.apply_then(|count| count.add(1), |()| ());
            gossamer::yield_now(); // others want something of this worker
            partial
        };
        own.map(one).collect()
    })?;
    let of_chunks = partials.clone();
    let merged = Spread::new(PARTS, move |own| {
        let parts = of_chunks.parts();
        let partials = Reader::new(&parts);
        // Where the groups of each chunk are: one read a chunk.
        let lists: Vec<_> = partials.iter().map(|partial| partial.by_key.read()).collect();
        own.map(|part| Global::from(merge::<OnHeap>(lists.iter().map(|list| &list[part])))).collect()
    })?;
    let (parts, partials) = (merged.parts(), partials.parts());
    let (merged, partials) = (Reader::<Global<[Group]>>::new(&parts), Reader::new(&partials));
    let mut by_key = Vec::new();
    merged.iter().for_each(|groups| by_key.extend_from_slice(&groups.read()));
    Ok(Answer {
        kept: partials.iter().map(|partial| partial.kept).sum(),
        joined: partials.iter().map(|partial| partial.joined).sum(),
        by_key,
        by_label: merge::<OnHeap>(partials.iter().map(|partial| &partial.by_label)),
    })
}
