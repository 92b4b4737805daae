//! What a pool has counted.

use serde::{Deserialize, Serialize};

/// What a pool has counted since it was opened. Of [`Durable::stats`](crate::Durable::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DurableStats {
    /// Transactions and reads that ran, those that were undone included.
    pub transactions: u64,
    /// Of these, undone.
    pub undone: u64,
    /// Groups that are durable: one `fdatasync` each.
    pub groups: u64,
    /// Lines of 64 bytes that these were made of.
    pub lines: u64,
    /// Lines that transactions saved before they wrote to them.
    pub lines_saved: u64,
    /// Bytes written to logs for groups.
    pub written_bytes: u64,
    /// Writing and syncing groups, all together, in nanoseconds.
    pub sync_ns: u64,
    /// The longest of these.
    pub sync_ns_max: u64,
    /// Groups that opening replayed.
    pub groups_replayed: u64,
    /// Bytes of a torn record that opening cut off, if its beginning was written.
    pub bytes_cut: u64,
    /// Bytes of the log, up to its last record.
    pub log_bytes: u64,
    /// Bytes of the last image.
    pub image_bytes: u64,
    /// New generations that were begun.
    pub generations: u64,
    /// Memory from the pool's start to the last room ever taken.
    pub memory_bytes: u64,
    /// Memory of rooms that are taken.
    pub used_bytes: u64,
    /// Memory that it may take. On disk it takes up to two images and two logs.
    pub limit_bytes: u64,
}
