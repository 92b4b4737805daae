//! What the larger examples are made of, so that it can be tested; the programs themselves are in `src/bin`.
//!
//! - `counter`, `table`, `launch`, `accounts`: a tutorial for `trust`, one short program each
//! - `bank`: transfers that survive `kill -9`, on a durable trust ([`bank`])
//! - `wordcount`: the words of all texts under a folder, counted across the processes of a rack ([`wordcount`])
//! - `kv`: a key-value store that speaks memcached's text protocol, on one machine or a rack ([`kv`])
//! - [`trees`]: search trees on durable trusts, for tests and benchmarks
//! - `sssp`: shortest paths in large graphs, over all workers of a rack ([`sssp`])

pub mod bank;
pub mod kv;
pub mod machines;
pub mod memory;
pub mod progress;
pub mod sssp;
pub mod trees;
pub mod wordcount;

/// The Rust blocks of README.md, compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// Those of docs/several-objects.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/several-objects.md")]
struct SeveralObjects;

/// Those of the packages' own READMEs.
#[cfg(doctest)]
#[doc = include_str!("../../trust/README.md")]
#[doc = include_str!("../../trust/durable/README.md")]
#[doc = include_str!("../../gossamer/README.md")]
struct PackageReadmes;
