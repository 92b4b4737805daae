//! The query in one process of plain Rust.

use std::time::Duration;

use super::query::{Answer, Chunk, Group, Memory, PARTS, Partial, merge, query};
use crate::heaps::twin;

/// Columns and groups are in a `Box`.
#[derive(Debug)]
pub enum Boxed {}

impl Memory for Boxed {
    type Codes = Box<[u32]>;
    type Numbers = Box<[f64]>;
    type Groups = Box<[Group]>;
    type Parts = Box<[Box<[Group]>]>;
}

/// The whole query on so many threads, and how long it took.
pub fn run(chunks: &[Chunk<Boxed>], at_least: f64, labels: &[u32], threads: usize) -> (Answer, Duration) {
    let (partials, first): (Vec<Partial<Boxed>>, _) =
        twin::each(threads, chunks.len(), |i| query(&chunks[i], at_least, labels));
    let (parts, second) =
        twin::each(threads, PARTS, |part| merge::<Boxed>(partials.iter().map(|partial| &partial.by_key[part])));
    let start = std::time::Instant::now();
    let answer = Answer {
        kept: partials.iter().map(|partial| partial.kept).sum(),
        joined: partials.iter().map(|partial| partial.joined).sum(),
        by_key: parts.concat(),
        by_label: merge::<Boxed>(partials.iter().map(|partial| &partial.by_label)),
    };
    (answer, first + second + start.elapsed())
}
