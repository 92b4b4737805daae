//! Shortest paths from a few vertices of a large graph to all others, over all workers of a rack (thesis 3.3.3).
//!
//! Each worker has a range of the vertices in its care, a [`Shard`](graph::Shard): one property a worker. The
//! algorithm, and the work of a shard by itself, stand in the package `graph`, which knows nothing of workers. Here:
//!
//! 1. [`options`]: the command line; [`start`]: as one process, or as a rack of them
//! 2. [`team`]: all shards, and how work is done on each of them
//! 3. [`build`]: each edge to the two shards it belongs to
//! 4. [`search`]: the search: relaxations to the shards they concern, and the agreement on the next step
//! 5. [`validate`]: Graph500's five rules
//! 6. [`run`]: all of these in order; [`report`]: the output
//!
//! [`components`] finds connected components in the same shards. Beside it [`single`], Dijkstra's algorithm on one
//! thread, to compare with.

pub mod build;
pub mod components;
pub mod options;
pub mod report;
pub mod run;
pub mod search;
pub mod single;
pub mod start;
pub mod team;
pub mod validate;
