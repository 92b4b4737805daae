//! What the larger examples are made of, so that it can be tested; the programs themselves are in `src/bin`.
//!
//! - `counter`, `table`, `launch`: a tutorial for `trust`, one short program each
//! - `wordcount`: the words of all texts under a folder, counted across the processes of a rack ([`wordcount`])
//! - `kv`: a key-value store that speaks memcached's text protocol, on one machine or a rack ([`kv`])
//! - `sssp`: shortest paths in large graphs, over all workers of a rack ([`sssp`])

pub mod kv;
pub mod machines;
pub mod memory;
pub mod progress;
pub mod sssp;
pub mod wordcount;

/// The Rust blocks of README.md, compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
