//! Queries on a table with columns on the heap, in chunks over all places: filter, group by, join (DRust 7.1).
//!
//! A place filters its own chunks, joins them with a small table that each machine fetches once, and groups the rows
//! that are left. Groups of a chunk are dealt to parts by their keys, and each part is merged at a place, which reads
//! the groups of the others. Chunks are merged in their order, so sums do not depend on the number of places.
//!
//! 1. [`query`]: the work on a chunk, and on groups, on the heap or not
//! 2. [`generated`], [`source`]: the rows, generated or from CSV; [`digest`]: the result, as a number
//! 3. [`frame`]: the table over the places; [`twin`]: the same with `Box` and `Vec`
//! 4. [`options`]: the command line; [`start`]: how it runs

pub mod digest;
pub mod frame;
pub mod generated;
pub mod options;
pub mod query;
pub mod source;
pub mod start;
pub mod twin;
