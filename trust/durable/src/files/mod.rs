//! Files of a pool: an image, the log of later changes, and recovery from both.
//!
//! Invariants:
//! - Data that recovery would read is never overwritten. An image, and a new log, get their names once they are
//!   synced.
//! - One record is written at a time, after the one before is durable. So a bad record before a good one is damage.
//! - A pool that is closed writes an end record behind its last group. So of a closed pool no bad record is taken for
//!   one that a crash cut off.

pub(crate) mod disk;
pub(crate) mod folder;
pub(crate) mod format;
pub(crate) mod migration;
pub(crate) mod named;
pub(crate) mod recover;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod sim;
pub(crate) mod store;
#[cfg(test)]
mod tests;
