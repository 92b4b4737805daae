//! Queries on a table whose columns are objects of the heap, in chunks over all places: filter, group by, join (DRust
//! 7.1).
//!
//! A place filters its own chunks, joins them with a small table that each machine fetches once, and groups what is
//! left. Groups of a chunk are dealt to parts by their keys, and each part is merged at a place, which reads the groups
//! that others have made. Chunks are merged in their order, so sums do not depend on how many places there are.
//!
//! 1. [`query`]: what is done with a chunk, and with groups, on the heap or not
//! 2. [`generated`], [`source`]: the rows, generated or from CSV; [`digest`]: what was found, as a number
//! 3. [`frame`]: the table over the places; [`twin`]: the same with `Box` and `Vec`
//! 4. [`options`]: what the user asked for; [`start`]: how it runs

pub mod digest;
pub mod frame;
pub mod generated;
pub mod options;
pub mod query;
pub mod source;
pub mod start;
pub mod twin;
