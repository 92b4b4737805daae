//! Whether the program has copies.

use std::sync::atomic::{AtomicBool, Ordering};

use gossamer::link;

static ARE_WANTED: AtomicBool = AtomicBool::new(false);

/// The program that is to start has copies. Returns whether it was told so before.
pub(super) fn turn_on() -> bool {
    // Relaxed: stored before the program starts, whose threads are started later.
    ARE_WANTED.swap(true, Ordering::Relaxed)
}

/// Are there replicas?
#[inline]
pub(crate) fn are_on() -> bool {
    ARE_WANTED.load(Ordering::Relaxed) && link::outlives_losses()
}

/// Do the objects of this machine have heads?
pub(crate) fn has_heads() -> bool {
    are_on() && gossamer::rack().machine() != 0
}
