//! The files of a pool: an image, the log of what came after it, and how both are read again.
//!
//! Invariants:
//! - W1: what recovery would read is never written over. An image, and a log that was begun, get their names when they
//!   are synced.
//! - W2: one record is under way at a time: it is written after the one before is durable. So a bad record before a
//!   good one is damage.

pub(crate) mod disk;
pub(crate) mod folder;
pub(crate) mod format;
pub(crate) mod named;
pub(crate) mod recover;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod sim;
pub(crate) mod store;
#[cfg(test)]
mod tests;
