//! Shares: memory beside the region of the slots, committed in pieces as it is needed, that peers read and write
//! one-sidedly over the connections that exist. Made for what is large and of which only parts are in use: the chunks
//! of an array, the objects of a heap, the pages of a shared region.
//!
//! Here: the memory, and what the owner does with it. Beside it: `map.rs` (which parts are committed), `known.rs` (what
//! a connection knows of a peer's), `tickets.rs` (reads under way). Not here: how peers come to it, which differs by
//! fabric.
//!
//! A machine has up to [`SHARES_MAX`] shares, by number. All lie in one sparse memory file, each at a place of its own:
//! its bytes, and its commit map behind the room for them. On one host all machines map one file (`shm`), else the file
//! is the machine's own. Nothing is mapped before a share is opened, or a peer's is used for the first time.
//!
//! Orders, beside those of `fabric.rs`, all by connection:
//! - W  Who sees a message (a write to a region, by its flag) sees the writes to shares that its sender made before it
//!   on the same connection. A write to a share has no flag of its own.
//! - R  A read that is begun after a message was seen sees what was stored before that message was sent. A read sees
//!   earlier writes of its connection; a write that is begun before `take` may be seen by that read too.
//! - C  Who sees a message that was sent after `commit` returned may use the range.
//!
//! Invariants
//! - S1 A share's mapping is as long as the share, and its file never shrinks (sealed): M1 holds. It is unmapped when
//!   the last who holds it lets go, which may be after the fabric is gone.
//! - S2 A range is released by a hole in the file, never by unmapping: whoever is late finds old bytes or zeros. What a
//!   device has pinned keeps its pages, and is filled with zeros: a hole would part the device from the mapping.
//! - S3 A commit map changes by its owner only, under a lock.

#[cfg(all(target_os = "linux", not(loom)))]
mod known;
pub(crate) mod map;
#[cfg(all(target_os = "linux", not(loom)))]
mod memory;
#[cfg(all(target_os = "linux", not(loom)))]
mod tickets;

#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) use known::{ASKED_WORDS, Known, Told, Verdict};
#[cfg(all(target_os = "linux", not(loom)))]
pub use memory::Share;
#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) use memory::{ShareFile, Shares, create_file, is_length};
#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) use tickets::{Landing, Outcome, Tickets, check_room};

use std::fmt;

/// Shares that a machine may have.
pub const SHARES_MAX: usize = 8;
/// Bytes of a unit: what is committed and released is whole units, and a share is made of them.
pub const SHARE_UNIT_BYTES: usize = 64 << 10;
/// Longest share, in bytes.
pub const SHARE_BYTES_MAX: usize = 4 << 40;

/// Number of a share of a machine, below [`SHARES_MAX`]. What each is for, the users of a fabric agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareId(pub u8);

impl fmt::Display for ShareId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "share {}", self.0)
    }
}

/// A read of a peer's share that is under way, or there: a number, good on the connection that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);
