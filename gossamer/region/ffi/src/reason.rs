//! Reasons for which threads go to other machines, and how many have left this machine for each.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Reason for a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reason {
    /// The thread's own call.
    Own,
    /// Another thread, or the user.
    Asked,
    Idle,
    /// It waited for pages of the machine to which it goes.
    Pages,
    Undone,
}

impl Reason {
    /// All of them, by their numbers.
    const ALL: [Reason; 5] = [Reason::Own, Reason::Asked, Reason::Idle, Reason::Pages, Reason::Undone];

    /// Its name for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Own => "by itself",
            Reason::Asked => "asked",
            Reason::Idle => "idle core",
            Reason::Pages => "its pages",
            Reason::Undone => "undone",
        }
    }
}

static LEFT: [AtomicU64; Reason::ALL.len()] = [const { AtomicU64::new(0) }; Reason::ALL.len()];

/// Counts a thread that has left this machine.
pub(crate) fn note_left(reason: Reason) {
    LEFT[reason as usize].fetch_add(1, Ordering::Relaxed); // a number on its own
}

/// Returns the names of the reasons for which threads have left, with their numbers.
pub(crate) fn left() -> Vec<(String, u64)> {
    let counted = Reason::ALL.iter().zip(&LEFT).map(|(reason, left)| (reason.name(), left.load(Ordering::Relaxed)));
    counted.filter(|(_, times)| *times > 0).map(|(name, times)| (name.to_owned(), times)).collect()
}
