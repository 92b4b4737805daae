//! Graphs over a rack, as far as the programs that work on them share it: `sssp`, `pagerank` and `components`.
//!
//! 1. [`options`]: which graph
//! 2. [`team`]: something of each worker's own, and fibers at each of them
//! 3. [`deal`]: the edges to the workers that want them

pub mod deal;
pub mod options;
pub mod team;
