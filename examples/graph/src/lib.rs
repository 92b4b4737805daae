//! Weighted graphs in shards, and shortest paths in them, shared by `sssp` and the programs that it is compared with.
//!
//! A graph is undirected; its vertices are numbered from 0, its weights are `f32`, not negative, and distances are sums
//! of them in `f64` (exact for generated graphs and for whole weights). Each worker has one [`Shard`]: a range of the
//! vertices, with all their edges.
//!
//! 1. [`kronecker`], [`file`](mod@file): where edges come from
//! 2. [`shard`]: from edges to a shard that can be searched
//! 3. [`search`]: the search, as far as one shard does it alone; it returns its messages for other shards
//! 4. [`components`]: another thing to be found in the same shards, with the same messages
//! 5. [`validate`]: whether a result is right; [`dijkstra`]: the same search the plain way, on one thread
//!
//! Here is no thread, message or lock: the owner of the shards carries their messages (`sssp` by delegation,
//! `benches/mpi` by MPI, the tests by a loop).

#![forbid(unsafe_code)]

pub mod components;
pub mod dijkstra;
pub mod file;
pub mod kronecker;
mod metis;
pub mod random;
mod ranges;
pub mod search;
pub mod shard;
pub mod validate;

pub use file::{FileError, Listing};
pub use kronecker::Kronecker;
pub use ranges::Ranges;
pub use search::{Relax, Report, Sent};
pub use shard::{Edge, Shard};
pub use validate::Verdict;

/// A vertex, by its number in the whole graph.
pub type Vertex = u32;

/// The most vertices that a graph can have: [`NOBODY`] is no vertex.
pub const VERTICES_MAX: u64 = u32::MAX as u64;

/// No vertex: the parent of a vertex that was not reached.
pub const NOBODY: Vertex = u32::MAX;
