//! Shares: memory beside the region of the slots, committed in pieces on demand, that peers read and write
//! one-sidedly over the existing connections. Made for large data of which only parts are in use: the chunks
//! of an array, the objects of a heap, the pages of a shared region.
//!
//! Here: the memory, and the owner's operations. Beside it: `map.rs` (which parts are committed), `cached.rs`
//! (a connection's knowledge of a peer's shares), `pending_reads.rs` (reads under way). Not here: access by peers,
//! which differs by fabric.
//!
//! A machine has up to [`SHARES_MAX`] shares, by number. All lie in one sparse memory file, each at its own
//! place: its bytes, and its commit map behind the room for them. On one host all machines map one file
//! (`shm`), otherwise each machine has its own. Nothing is mapped before a share is opened, or a peer's is
//! used for the first time.
//!
//! Orders, in addition to those of `fabric.rs`, all by connection:
//! - [message-after-writes] A reader that sees a message (a write to a region, by its flag) sees the writes to shares
//!   that its sender made before it on the same connection. A write to a share has no flag of its own.
//! - [read-after-message] A read that begins after a message was seen sees the stores made before that message was
//!   sent. A read sees earlier writes of its connection; it may also see a write that begins before `take`.
//! - [commit-before-message] A peer that sees a message sent after `commit` returned may use the range.
//!
//! Invariants
//! - [share-length] A share's mapping is as long as the share, and its file never shrinks (sealed): [mapping-stays]
//!   holds. It is unmapped when the last reference to it is dropped, which may be after the fabric is gone.
//! - [release-by-hole] A range is released by a hole in the file, never by unmapping: a late access finds old bytes or
//!   zeros. Bytes that a device has pinned keep their pages, and are filled with zeros: a hole would separate
//!   the device from the mapping.
//! - [commit-map-owner] Only its owner changes a commit map, under a lock.

#[cfg(all(target_os = "linux", not(loom)))]
mod cached;
pub(crate) mod map;
#[cfg(all(target_os = "linux", not(loom)))]
mod memory;
#[cfg(all(target_os = "linux", not(loom)))]
mod pending_reads;

#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) use cached::{ASKED_WORDS, CachedShares, ShareState, Verdict};
#[cfg(all(target_os = "linux", not(loom)))]
pub use memory::Share;
#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) use memory::{ShareFile, Shares, create_file, is_length};
#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) use pending_reads::{Landing, Outcome, PendingReads, check_room};

#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) use crate::ids::{ReadId, ShareId};

/// Largest number of shares of a machine.
pub const SHARES_MAX: usize = 8;
/// Bytes of a unit: a share is made of whole units, and commit and release take whole units.
pub const SHARE_UNIT_BYTES: usize = 64 << 10;
/// Longest share, in bytes.
pub const SHARE_BYTES_MAX: usize = 4 << 40;
