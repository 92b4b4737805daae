//! The larger examples as a library, so that they can be tested; the programs themselves are in `src/bin`.
//!
//! - `counter`, `table`, `launch`, `accounts`: a tutorial for `trust`, one short program each
//! - `bank`: transfers that survive `kill -9`, on a durable trust ([`bank`])
//! - `ledger`: a durable trust whose machine is lost, opened again on another one
//! - `wordcount`: the words of all texts under a folder, counted across the processes of a rack ([`wordcount`])
//! - `kv`: a key-value store that speaks memcached's text protocol, on one machine or a rack ([`kv`])
//! - [`trees`]: search trees on durable trusts, for tests and benchmarks
//! - `sssp`: shortest paths in large graphs, over all workers of a rack ([`sssp`])
//! - `pagerank`, `components`: ranks and labels of vertices in arrays over a rack ([`vertices`])
//! - `array-kv`: a key-value store on two arrays, and a load on it ([`array_kv`])
//! - `heat`: a stencil on an array over a rack, with checkpoints ([`heat`])
//! - `heap-kv`: a key-value store on the heap, with a mutex for each bucket ([`heap_kv`])
//! - `gemm`: the product of two matrices with tiles on the heap ([`gemm`])
//! - `dataframe`: a table with columns on the heap, filtered, grouped and joined ([`dataframe`])
//! - `social`: a social network of twelve services, which pass owners of objects of the heap ([`social`])
//! - [`heaps`], [`graphs`], [`machines`], [`progress`]: shared by several of these

pub mod array_kv;
pub mod bank;
pub mod dataframe;
pub mod gemm;
pub mod graphs;
pub mod heap_kv;
pub mod heaps;
pub mod heat;
pub mod kv;
pub mod machines;
pub mod memory;
pub mod program;
pub mod progress;
pub mod social;
pub mod sssp;
pub mod trees;
pub mod vertices;
pub mod wordcount;

/// The Rust blocks of README.md, compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// Those of docs/tour.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour.md")]
struct Tour;

/// Those of docs/several-objects.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/several-objects.md")]
struct SeveralObjects;

/// Those of docs/heap.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/heap.md")]
struct Heap;

/// Those of the packages' own READMEs.
#[cfg(doctest)]
#[doc = include_str!("../../trust/README.md")]
#[doc = include_str!("../../trust/durable/README.md")]
#[doc = include_str!("../../gossamer/README.md")]
#[doc = include_str!("../../gossamer/region/README.md")]
struct PackageReadmes;
