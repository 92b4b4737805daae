//! Counters of a pool.

use serde::{Deserialize, Serialize};

/// Counters of a pool since it was opened, from [`Durable::stats`](crate::Durable::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DurableStats {
    /// Transactions and reads that ran, including those that were undone.
    pub transactions: u64,
    /// Those of them that were undone.
    pub undone: u64,
    /// Groups made durable: one `fdatasync` each.
    pub groups: u64,
    /// Lines of 64 bytes in these groups.
    pub lines: u64,
    /// Lines that transactions saved before writing to them.
    pub lines_saved: u64,
    /// Bytes written to logs for groups.
    pub written_bytes: u64,
    /// Total time of writing and syncing groups, in nanoseconds.
    pub sync_ns: u64,
    /// The longest of these times.
    pub sync_ns_max: u64,
    /// Groups that opening replayed.
    pub groups_replayed: u64,
    /// Bytes of a torn record that opening cut off, if its beginning had been written.
    pub bytes_cut: u64,
    /// Bytes of the log, up to the end of its last record.
    pub log_bytes: u64,
    /// Bytes of the last image.
    pub image_bytes: u64,
    /// New generations begun.
    pub generations: u64,
    /// Memory from the pool's start to the end of the last allocation ever made.
    pub memory_bytes: u64,
    /// Memory that is allocated.
    pub used_bytes: u64,
    /// The most memory that the pool may take. On disk it takes up to two images and two logs.
    pub limit_bytes: u64,
}
